//! Members of the group that shares out itself.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use felix_engine::Ticket;
use felix_engine::membership::{
    JoinLed, LedAnswer, LedInput, MembershipRefused, Protocol, SyncLed, Who,
};
use felix_engine::teams::TeamAnswer;

use super::{MEMBERS, SESSION_MS, Teams, WIDTH, classic};
use crate::readings::Twin;
use crate::readings::machine::Machine;

/// A member of the group that shares out itself, as it is on its side.
#[derive(Clone, Debug, Default)]
pub(super) struct Classic {
    pub(super) member: String,
    pub(super) state: State,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Out,
    Waits,
    Joined {
        generation: u32,
        /// Whom it shares out to, if that is for it to do.
        leads: Vec<String>,
    },
    Syncs {
        generation: u32,
    },
    Owns {
        generation: u32,
        partitions: BTreeSet<u32>,
    },
}

impl Teams {
    /// The next step of a member of the first group.
    pub(super) fn classic_acts(&mut self, machine: &mut Machine, at: usize, ending: bool) {
        let state = self.classic[at].state.clone();
        match state {
            State::Out => self.joins(machine, at),
            State::Waits | State::Syncs { .. } => {}
            State::Joined { generation, leads } => self.syncs(machine, at, generation, &leads),
            State::Owns { generation, .. } => {
                // Now and then one wants to be shared out to anew.
                if !ending && machine.random.percent(5) {
                    return self.joins(machine, at);
                }
                let ticket = self.ticket();
                let who = self.who(at);
                self.asks(
                    machine,
                    at,
                    ticket,
                    LedInput::Beat {
                        ticket,
                        who,
                        generation,
                    },
                );
            }
        }
    }

    pub(super) fn who(&self, at: usize) -> Who {
        Who {
            member: self.classic[at].member.as_str().into(),
            instance: (at + 1 == MEMBERS).then(|| "static".into()),
        }
    }

    fn joins(&mut self, machine: &mut Machine, at: usize) {
        self.next_member += 1;
        let (ticket, who) = (self.ticket(), self.who(at));
        let join = JoinLed {
            who,
            fresh: format!("c{at}-{}", self.next_member).as_str().into(),
            id_required: false,
            session_ms: SESSION_MS,
            rebalance_ms: SESSION_MS,
            protocol_type: "consumer".into(),
            protocols: vec![Protocol {
                name: "range".into(),
                // Other metadata, so that a rejoin is not taken for a member that came back.
                metadata: Bytes::from(self.next_member.to_be_bytes().to_vec()),
            }],
        };
        self.classic[at].state = State::Waits;
        self.asks(machine, at, ticket, LedInput::Join { ticket, join });
    }

    fn syncs(&mut self, machine: &mut Machine, at: usize, generation: u32, leads: &[String]) {
        let mut shares: BTreeMap<&String, Vec<u8>> =
            leads.iter().map(|it| (it, Vec::new())).collect();
        for (partition, member) in (0..WIDTH).zip(leads.iter().cycle()) {
            if let Some(share) = shares.get_mut(member) {
                share.push(partition as u8);
            }
        }
        let assignments = shares.into_iter();
        let assignments =
            assignments.map(|(member, share)| (member.as_str().into(), Bytes::from(share)));
        let (ticket, who) = (self.ticket(), self.who(at));
        let sync = SyncLed {
            who,
            generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments.collect(),
        };
        self.classic[at].state = State::Syncs { generation };
        self.asks(machine, at, ticket, LedInput::Sync { ticket, sync });
    }

    pub(super) fn asks(
        &mut self,
        machine: &mut Machine,
        at: usize,
        ticket: Ticket,
        input: LedInput,
    ) {
        let mut effects = Vec::new();
        let Some(serving) = &mut self.serving else {
            return;
        };
        serving.parked.insert(ticket, at);
        serving
            .core
            .led(machine.now, &classic(), input, &mut effects);
        self.follow(machine, effects, None);
    }

    pub(super) fn answered(&mut self, machine: &mut Machine, ticket: Ticket, answer: TeamAnswer) {
        let Some(at) = self
            .serving
            .as_mut()
            .and_then(|serving| serving.parked.remove(&ticket))
        else {
            return;
        };
        let group = classic().group;
        let is_static = at + 1 == MEMBERS;
        match answer {
            Ok(LedAnswer::Joined(joined)) => {
                // One that died meanwhile hears nothing.
                if self.classic[at].state != State::Waits {
                    return;
                }
                let leader = joined.leader.as_str().to_owned();
                self.checker.joined(&group, joined.generation, &leader);
                let members = joined
                    .members
                    .iter()
                    .map(|it| it.who.member.as_str().to_owned());
                self.classic[at] = Classic {
                    member: joined.member.as_str().to_owned(),
                    state: State::Joined {
                        generation: joined.generation,
                        leads: members.collect(),
                    },
                };
            }
            Ok(LedAnswer::Synced { assignment, .. }) => {
                let State::Syncs { generation } = self.classic[at].state else {
                    return;
                };
                let mut partitions: BTreeSet<u32> =
                    assignment.iter().map(|byte| u32::from(*byte)).collect();
                if machine.strikes(Twin::TwoOwners, 10) {
                    partitions.insert(0);
                }
                let name = if is_static {
                    "static"
                } else {
                    &self.classic[at].member
                };
                self.checker.assigned(&group, generation, name, &partitions);
                self.classic[at].state = State::Owns {
                    generation,
                    partitions,
                };
            }
            Ok(LedAnswer::Alive | LedAnswer::Left(_)) => {}
            Err(MembershipRefused::RebalanceInProgress) => self.classic[at].state = State::Out,
            Err(_) => self.classic[at] = Classic::default(),
        }
    }
}
