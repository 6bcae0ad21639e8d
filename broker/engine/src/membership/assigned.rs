//! A group whose shards the broker shares out.
//!
//! A shard has a *target*, who is to have it, and a *holder*, who may be working on it. Targets
//! follow the members at once; holders follow the targets in two steps, so that a shard never has
//! two: the holder is told to give it up, says that it did, and only then is it given on.
//!
//! ```text
//!   free ──given──▶ held by A ──target moves to B──▶ A gives up ──A's beat without it──▶ free ─▶ B
//!                        └──── A leaves, or is silent for its session ────▶ free
//! ```
//!
//! A member stops working on what it has when one session has passed since it *sent* the last beat
//! that was answered; the broker counts from when the beat came, which is later, so the member has
//! stopped before its shards are given on.
//!
//! The members are remembered in memory only. A broker that starts anew learns who holds what from
//! the members as they join again, and for as long as one of them may still be working unheard
//! ([`AssignedOptions::quiet_until`]) gives nobody a shard that nobody reported.

mod turn;
mod types;

use std::collections::BTreeMap;

use felix_model::TimeMs;

use super::{MemberId, MembershipRefused, earlier};
use crate::input::Ticket;

pub use types::{
    AssignedAnswer, AssignedEffect, AssignedInput, AssignedOptions, Assignment, Beat, Join,
    MemberView,
};

type Answered = Result<AssignedAnswer, MembershipRefused>;

/// One group whose shards the broker shares out.
#[derive(Debug)]
pub struct Assigned {
    options: AssignedOptions,
    shards: Vec<Shard>,
    members: BTreeMap<MemberId, Member>,
    /// Grows whenever a target changes or somebody is given a shard, so that of two assignments the
    /// larger generation is the later.
    generation: u64,
    /// Everybody who waits has seen what there was to see in this generation.
    settled: u64,
    /// Nothing is shared out before this time: others are probably about to join, or about to say
    /// what they hold.
    settle: Option<Settle>,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Settle {
    at: TimeMs,
    /// Joins put it off, but not beyond this.
    at_most: TimeMs,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    target: Option<MemberId>,
    holder: Option<MemberId>,
    /// While the holder is to give it up.
    revoked: Option<Revoked>,
}

#[derive(Clone, Copy, Debug)]
struct Revoked {
    /// The first generation whose assignments say so.
    generation: u64,
    /// When the holder must have done it.
    by: TimeMs,
}

#[derive(Debug)]
struct Member {
    session: u64,
    session_ms: u64,
    rebalance_ms: u64,
    heard: TimeMs,
    /// What the last answer to it said.
    told: Option<Told>,
    parked: Option<Parked>,
}

#[derive(Debug)]
struct Told {
    generation: u64,
    shards: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    ticket: Ticket,
    until: TimeMs,
}

impl Member {
    fn expires(&self) -> TimeMs {
        self.heard.plus(self.session_ms)
    }

    /// How soon it should be heard of again: two lost beats are no lost member.
    fn beat_ms(&self) -> u64 {
        (self.session_ms / 3).max(1)
    }
}

impl Assigned {
    /// A group over `shards` shards without members.
    pub fn new(options: AssignedOptions, shards: u32) -> Self {
        Self {
            options,
            shards: vec![Shard::default(); shards as usize],
            members: BTreeMap::new(),
            generation: 0,
            settled: 0,
            settle: None,
            closed: false,
        }
    }

    /// Advances by one input and pushes the answers that can be given now. `now` must not go back.
    pub fn handle(&mut self, now: TimeMs, input: AssignedInput, effects: &mut Vec<AssignedEffect>) {
        // Time passes for everybody before anybody acts.
        self.pass(now, effects);
        match input {
            AssignedInput::Join { ticket, join } => match self.join(now, join, effects) {
                Ok(member) => self.answer(&member, ticket, effects),
                Err(refused) => answer(ticket, Err(refused), effects),
            },
            AssignedInput::Beat { ticket, beat } => {
                if let Err(refused) = self.beat(now, ticket, &beat, effects) {
                    answer(ticket, Err(refused), effects);
                }
            }
            AssignedInput::Leave {
                ticket,
                member,
                session,
            } => {
                let left = self.known(&member, session).map(|_| ());
                if left.is_ok() {
                    self.remove(now, &member, &MembershipRefused::UnknownMember, effects);
                }
                answer(ticket, left.map(|()| AssignedAnswer::Left), effects);
            }
            AssignedInput::Shards { count } => self.resize(now, count),
            AssignedInput::Tick => {}
            AssignedInput::Close => self.close(effects),
        }
        self.settle(effects);
    }

    /// When [`AssignedInput::Tick`] is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<TimeMs> {
        let members = self.members.values().flat_map(|member| {
            let parked = member.parked.map(|parked| parked.until);
            [Some(member.expires()), parked]
        });
        let revoked = self
            .shards
            .iter()
            .map(|shard| shard.revoked.map(|revoked| revoked.by));
        members
            .chain(revoked)
            .fold(self.settle.map(|settle| settle.at), earlier)
    }

    /// Nobody is in it: it may be forgotten.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether somebody is a member.
    pub fn has(&self, member: &MemberId) -> bool {
        self.members.contains_key(member)
    }

    /// Shards are not shared out yet, because others are probably about to join.
    pub fn is_settling(&self) -> bool {
        self.settle.is_some()
    }

    /// Members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Grows with every change of who is to have what, and of who has it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Who may be working on a shard. At most one member at any time.
    pub fn holder(&self, shard: u32) -> Option<&MemberId> {
        self.shards.get(shard as usize)?.holder.as_ref()
    }

    /// Every member with what it holds, in order of names.
    pub fn members(&self) -> impl Iterator<Item = MemberView> + '_ {
        self.members.iter().map(|(id, member)| MemberView {
            member: id.clone(),
            shards: self.allowed(id),
            gives_up: self.giving_up(id),
            heard: member.heard,
            session_ms: member.session_ms,
        })
    }

    fn join(
        &mut self,
        now: TimeMs,
        join: Join,
        effects: &mut Vec<AssignedEffect>,
    ) -> Result<MemberId, MembershipRefused> {
        self.admissible(&join)?;
        let Join {
            member: id,
            session,
            session_ms,
            rebalance_ms,
            owned,
        } = join;
        let was_empty = self.members.is_empty();
        let member = Member {
            session,
            session_ms,
            rebalance_ms,
            heard: now,
            told: None,
            parked: None,
        };
        let before = self.members.insert(id.clone(), member);
        let is_new = before.is_none();
        if let Some(parked) = before.and_then(|before| before.parked) {
            answer(parked.ticket, Err(MembershipRefused::Fenced), effects);
        }
        // It may go on with more than it said, if this was overtaken by another joining of its own:
        // only a beat of this session can give something up.
        self.claim(&id, &owned.into_iter().collect());
        if was_empty {
            self.put_off(now);
        } else if is_new && let Some(settle) = &mut self.settle {
            settle.at = now
                .plus(self.options.initial_delay_ms)
                .max(settle.at)
                .min(settle.at_most);
        }
        if self.settle.is_none() || self.shards.iter().all(|shard| shard.holder.is_some()) {
            self.rebalance(now);
        }
        Ok(id)
    }

    fn admissible(&self, join: &Join) -> Result<(), MembershipRefused> {
        let AssignedOptions {
            session_ms_min: min,
            session_ms_max: max,
            members_max: limit,
            ..
        } = self.options;
        if self.closed {
            return Err(MembershipRefused::NotCoordinator);
        }
        if !(min..=max).contains(&join.session_ms) {
            return Err(MembershipRefused::InvalidSession {
                asked: join.session_ms,
                min,
                max,
            });
        }
        match self.members.get(&join.member) {
            // It was overtaken on its way by a later joining.
            Some(member) if member.session > join.session => Err(MembershipRefused::Fenced),
            None if self.members.len() >= limit => Err(MembershipRefused::Full { limit }),
            Some(_) | None => Ok(()),
        }
    }

    fn beat(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        beat: &Beat,
        effects: &mut Vec<AssignedEffect>,
    ) -> Result<(), MembershipRefused> {
        let Beat {
            member: id,
            session,
            generation,
            owned,
            wait_ms,
        } = beat;
        let member = self.known(id, *session)?;
        member.heard = now;
        let wait = (*wait_ms).min(member.beat_ms());
        if let Some(parked) = member.parked.take() {
            // The member asks again, so it does not wait for that answer any more.
            self.answer(id, parked.ticket, effects);
        }
        self.release(id, *generation, &owned.iter().copied().collect());
        self.grant();
        let has_news = self.has_news(id);
        let member = self.known(id, *session)?;
        // What it does not act on yet is an answer that was lost.
        let lost_one = |told: &Told| told.generation > *generation;
        if wait == 0 || has_news || member.told.as_ref().is_some_and(lost_one) {
            self.answer(id, ticket, effects);
        } else {
            let until = now.plus(wait);
            member.parked = Some(Parked { ticket, until });
        }
        Ok(())
    }

    fn known(&mut self, id: &MemberId, session: u64) -> Result<&mut Member, MembershipRefused> {
        if self.closed {
            return Err(MembershipRefused::NotCoordinator);
        }
        let member = self
            .members
            .get_mut(id)
            .ok_or(MembershipRefused::UnknownMember)?;
        if member.session != session {
            return Err(MembershipRefused::Fenced);
        }
        Ok(member)
    }
}

fn answer(ticket: Ticket, outcome: Answered, effects: &mut Vec<AssignedEffect>) {
    effects.push(AssignedEffect { ticket, outcome });
}
