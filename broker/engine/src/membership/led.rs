//! A group whose shards one of its members shares out: Kafka's classic groups.
//!
//! ```text
//!            first join              all joined, or time is up          leader's sync
//!   Empty ───────────▶ Preparing ──────────────────────────▶ Completing ─────────────▶ Stable
//!     ▲                   ▲  ▲                                   │                       │
//!     │ all are gone      │  └── a member leaves, is lost or ────┘                       │
//!     └───────────────────┘      joins with something new ◀──────────────────────────────┘
//! ```
//!
//! A join is answered when everybody has joined (`Preparing` is over); it names the generation and
//! one member as the leader, which alone is told of the others. The leader sends everybody's
//! assignment with its sync, and the syncs of all are answered with what it sent. What members say
//! about themselves and what the leader assigns is never read here.
//!
//! A member with an instance id may come back under a new member id without the others noticing.

mod join;
mod rounds;
mod sync;
mod types;

use std::collections::BTreeMap;

use bytes::Bytes;
use felix_model::TimeMs;

use super::{MemberId, MembershipRefused, earlier};
use crate::input::Ticket;

pub use types::{
    JoinLed, Joined, JoinedMember, LedAnswer, LedEffect, LedInput, LedOptions, LedState, Protocol,
    SyncLed, Who,
};

type Answered = Result<LedAnswer, MembershipRefused>;

/// One group whose shards one of its members shares out.
#[derive(Debug)]
pub struct Led {
    options: LedOptions,
    state: LedState,
    generation: u32,
    protocol_type: Option<MemberId>,
    /// The assignment protocol of this generation.
    protocol: Option<MemberId>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    instances: BTreeMap<MemberId, MemberId>,
    /// Ids that were given out and did not join yet, and until when they may.
    promised: BTreeMap<MemberId, TimeMs>,
    /// When `Preparing` or `Completing` ends whoever is missing.
    round_ends: Option<TimeMs>,
    /// The first round waits for further members: until when at most. Not in later rounds.
    gathering: Option<TimeMs>,
}

#[derive(Debug)]
struct Member {
    instance: Option<MemberId>,
    session_ms: u64,
    rebalance_ms: u64,
    expires: TimeMs,
    protocols: Vec<Protocol>,
    joining: Option<Ticket>,
    syncing: Option<Ticket>,
    /// The generation of the last round it took part in.
    joined_in: u32,
    assignment: Bytes,
}

impl Member {
    fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    fn speaks(&self, protocol: &MemberId) -> bool {
        self.protocols.iter().any(|known| known.name == *protocol)
    }

    fn metadata(&self, protocol: Option<&MemberId>) -> Bytes {
        let known = self
            .protocols
            .iter()
            .find(|known| Some(&known.name) == protocol);
        known.map_or_else(Bytes::new, |known| known.metadata.clone())
    }
}

impl Led {
    /// A group without members.
    pub fn new(options: LedOptions) -> Self {
        Self {
            options,
            state: LedState::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            promised: BTreeMap::new(),
            round_ends: None,
            gathering: None,
        }
    }

    /// Advances by one input and pushes the answers that can be given now. `now` must not go back.
    pub fn handle(&mut self, now: TimeMs, input: LedInput, effects: &mut Vec<LedEffect>) {
        self.pass(now, effects);
        match input {
            LedInput::Join { ticket, join } => {
                if let Err(refused) = self.join(now, ticket, join, effects) {
                    answer(ticket, Err(refused), effects);
                }
            }
            LedInput::Sync { ticket, sync } => {
                if let Err(refused) = self.sync(now, ticket, sync, effects) {
                    answer(ticket, Err(refused), effects);
                }
            }
            LedInput::Beat {
                ticket,
                who,
                generation,
            } => {
                let beat = self.beat(now, &who, generation);
                answer(ticket, beat.map(|()| LedAnswer::Alive), effects);
            }
            LedInput::Leave { ticket, members } => {
                let left = members
                    .into_iter()
                    .map(|who| self.leave(now, who, effects))
                    .collect();
                answer(ticket, Ok(LedAnswer::Left(left)), effects);
            }
            LedInput::Tick => {}
            LedInput::Close => self.close(effects),
        }
        self.end_round(now, effects);
    }

    /// When [`LedInput::Tick`] is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<TimeMs> {
        let silent = self.members.values().filter(|member| !member.is_waiting());
        let expiries = silent.map(|member| Some(member.expires));
        let promises = self.promised.values().map(|until| Some(*until));
        expiries.chain(promises).fold(self.round_ends, earlier)
    }

    /// Whether a member of this generation may store positions. `generation` is `None` for somebody
    /// who is in no group and only uses its name, which an empty group allows.
    ///
    /// # Errors
    /// Why not. While a round is open a member may still store what it has done: it must, before
    /// it gives a shard up.
    pub fn may_commit(&self, who: &Who, generation: Option<u32>) -> Result<(), MembershipRefused> {
        let Some(generation) = generation else {
            return match self.state {
                LedState::Empty => Ok(()),
                LedState::Dead => Err(MembershipRefused::NotCoordinator),
                LedState::Preparing | LedState::Completing | LedState::Stable => {
                    Err(MembershipRefused::UnknownMember)
                }
            };
        };
        self.member(who)?;
        self.same_generation(generation)?;
        match self.state {
            LedState::Completing => Err(MembershipRefused::RebalanceInProgress),
            LedState::Empty | LedState::Preparing | LedState::Stable | LedState::Dead => Ok(()),
        }
    }

    /// A group whose members a restart lost. Its next generation is newer than any that was given out.
    pub fn after(options: LedOptions, generation: u32) -> Self {
        Self {
            generation,
            ..Self::new(options)
        }
    }

    /// What kind of members it has; absent while it has none.
    pub fn protocol_type(&self) -> Option<&MemberId> {
        self.protocol_type.as_ref()
    }

    /// The assignment protocol of this generation.
    pub fn protocol(&self) -> Option<&MemberId> {
        self.protocol.as_ref()
    }

    /// The members: who, what each says about itself in the protocol of this generation, and its assignment.
    pub fn members(&self) -> impl Iterator<Item = (JoinedMember, &Bytes)> {
        self.members.iter().map(|(id, member)| {
            let who = Who {
                member: id.clone(),
                instance: member.instance.clone(),
            };
            let metadata = member.metadata(self.protocol.as_ref());
            (JoinedMember { who, metadata }, &member.assignment)
        })
    }

    /// Where the group stands.
    pub fn state(&self) -> LedState {
        self.state
    }

    /// How often the shards were shared out.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Who shares them out.
    pub fn leader(&self) -> Option<&MemberId> {
        self.leader.as_ref()
    }

    /// Members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What the leader assigned to a member in this generation.
    pub fn assignment(&self, member: &MemberId) -> Option<&Bytes> {
        self.members.get(member).map(|member| &member.assignment)
    }

    /// The member an asker is, once it is one and nobody took its place.
    fn member(&self, who: &Who) -> Result<&Member, MembershipRefused> {
        if self.state == LedState::Dead {
            return Err(MembershipRefused::NotCoordinator);
        }
        if let Some(instance) = &who.instance {
            match self.instances.get(instance) {
                None => return Err(MembershipRefused::UnknownMember),
                Some(id) if *id != who.member => return Err(MembershipRefused::Fenced),
                Some(_) => {}
            }
        }
        self.members
            .get(&who.member)
            .ok_or(MembershipRefused::UnknownMember)
    }

    fn same_generation(&self, named: u32) -> Result<(), MembershipRefused> {
        let current = self.generation;
        if named == current {
            Ok(())
        } else {
            Err(MembershipRefused::IllegalGeneration { current, named })
        }
    }
}

fn answer(ticket: Ticket, outcome: Answered, effects: &mut Vec<LedEffect>) {
    effects.push(LedEffect { ticket, outcome });
}
