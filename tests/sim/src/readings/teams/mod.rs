//! Groups of the Kafka protocol on a coordinator that crashes: members of a group that share out themselves and of one in
//! which the broker does join, beat, commit, leave and die. What they were told is held against the rules of
//! [`crate::history::team`] and [`crate::history::holders`].

#![expect(
    clippy::indexing_slicing,
    reason = "a map or list is asked for what this very run put into it; else the run is wrong, and ends"
)]

mod classic;
mod consumers;

use std::collections::{BTreeMap, BTreeSet};

use felix_engine::membership::{LedInput, LedOptions, MembershipRefused, Who};
use felix_engine::teams::{
    Change, CommitAsk, ConsumerOptions, Coordinator, Partition, Position, Replay, TeamAnswer,
    TeamEffect, TeamId, TeamOptions, Topic, TopicName,
};
use felix_engine::{
    AckWhen, Append, AppendRefused, CloseReason, Draft, Effect, Input, ProducerTable, Shard,
    ShardOptions, Ticket, WriteFailure,
};
use felix_model::batch::{BatchBuilder, BatchOptions};

use self::classic::{Classic, State};
use self::consumers::{Beater, News};
use super::Twin;
use super::life::Reading;
use super::machine::{Machine, Opened, records};
use crate::check::Check;
use crate::history::holders::Holders;
use crate::history::team::{Checker, Outcome};
use crate::pool::{Pool, Report};

/// Partitions that each group reads.
const WIDTH: u32 = 5;
/// Members of each group; the last of the first one is static.
const MEMBERS: usize = 3;
/// How long a member may be silent.
const SESSION_MS: u64 = 400;

const OPTIONS: TeamOptions = TeamOptions {
    led: LedOptions {
        session_ms_min: 1,
        session_ms_max: 100_000,
        members_max: 8,
        initial_delay_ms: 5,
    },
    consumer: ConsumerOptions {
        session_ms: SESSION_MS,
        heartbeat_ms: 50,
        members_max: 8,
    },
    retention_ms: u64::MAX,
    teams_max: 8,
    teams_of_tenant_max: 8,
};

/// The members of both groups, and the shard of their coordinator.
pub(super) struct Teams {
    serving: Option<Serving>,
    classic: [Classic; MEMBERS],
    consumers: [Beater; MEMBERS],
    checker: Checker,
    holders: Holders,
    next_ticket: u64,
    next_member: u64,
    commits: u64,
}

struct Serving {
    core: Coordinator,
    shard: Shard,
    pools: Vec<Pool>,
    has_failed: bool,
    appends: BTreeMap<Ticket, Written>,
    /// Which member a parked call is of.
    parked: BTreeMap<Ticket, usize>,
}

/// What is on its way into the log, and what follows.
struct Written {
    changes: Vec<Change>,
    then: Then,
}

enum Then {
    Members(Vec<(Ticket, TeamAnswer)>),
    Commit(u64),
    /// A member of the second group hears this.
    Told(News),
}

impl Reading for Teams {
    const LANES: &'static [&'static str] = &["data"];

    fn new(_: &mut Machine) -> Self {
        Self {
            serving: None,
            classic: Default::default(),
            consumers: Default::default(),
            checker: Checker::default(),
            holders: Holders::default(),
            next_ticket: 0,
            next_member: 0,
            commits: 0,
        }
    }

    fn open(&mut self, machine: &mut Machine, lanes: Vec<Opened>) -> Result<(), String> {
        let Some(lane) = lanes.into_iter().next() else {
            return Err("no log".to_owned());
        };
        let mut replay = Replay::new(OPTIONS);
        for record in records(&lane.batches) {
            let key = record.key.unwrap_or_default();
            let change = Change::read(&key, record.value.as_deref());
            let change = change.map_err(|error| error.to_string())?;
            let is_member = matches!(change, Change::Member { .. });
            if !(is_member && machine.strikes(Twin::ForgetMembers, 100)) {
                replay.take(change);
            }
        }
        let core = replay.done(machine.now);
        self.checker.restarted();
        let mut shard = ShardOptions::durable(machine.commit_when());
        shard.start = lane.start;
        shard.end = lane.end;
        shard.generation = lane.generation;
        for team in [classic(), consumers()] {
            let found = core.positions(&team);
            let found = found.into_iter().flatten();
            let found = found.map(|(at, position)| (at.shard, position.offset));
            self.checker.found(&team.group, &found.collect());
        }
        self.serving = Some(Serving {
            core,
            shard: Shard::new(shard, ProducerTable::new(8)),
            pools: vec![lane.pool],
            has_failed: false,
            appends: BTreeMap::new(),
            parked: BTreeMap::new(),
        });
        Ok(())
    }

    fn act(&mut self, machine: &mut Machine, ending: bool) {
        self.tick(machine);
        let member = machine.random.index(MEMBERS);
        match machine.random.below(9) {
            0..=4 => self.classic_acts(machine, member, ending),
            5..=7 => self.consumer_beats(machine, member, ending),
            _ if ending => {}
            _ => self.goes(machine, member),
        }
        // Most of the time nobody has a partition to commit for.
        let commits = if ending {
            0
        } else {
            machine.random.pick([0, 2, 6])
        };
        for _ in 0..commits {
            let member = machine.random.index(MEMBERS);
            self.commits(machine, member);
        }
    }

    fn hear(&mut self, machine: &mut Machine, _: usize, report: Report) {
        let input = match report {
            Report::Written(end) => Input::Written { end },
            Report::Flushed(end) => Input::Flushed { end },
            Report::Failed(from, why) => {
                if let Some(serving) = &mut self.serving {
                    serving.has_failed |= why != WriteFailure::Full;
                }
                Input::WriteFailed { from, why }
            }
        };
        self.tell(machine, input);
    }

    fn pools(&mut self) -> &mut [Pool] {
        self.serving
            .as_mut()
            .map_or(&mut [], |serving| serving.pools.as_mut_slice())
    }

    fn has_failed(&self) -> bool {
        self.serving
            .as_ref()
            .is_some_and(|serving| serving.has_failed)
    }

    fn stop(&mut self, machine: &mut Machine) {
        let reason = CloseReason::Stopping;
        self.tell(machine, Input::Close { reason });
    }

    fn gone(&mut self, _: &mut Machine) -> Vec<Pool> {
        // Whoever waits hears nothing more, and asks anew.
        for member in &mut self.classic {
            if matches!(member.state, State::Waits | State::Syncs { .. }) {
                member.state = State::Out;
            }
        }
        for member in &mut self.consumers {
            member.waits = false;
        }
        let serving = self.serving.take();
        serving.map(|serving| serving.pools).unwrap_or_default()
    }

    fn is_settled(&self) -> bool {
        let Some(serving) = &self.serving else {
            return false;
        };
        let mut of_classic: BTreeSet<u32> = BTreeSet::new();
        let mut generations = BTreeSet::new();
        for member in &self.classic {
            let State::Owns {
                generation,
                partitions,
            } = &member.state
            else {
                return false;
            };
            generations.insert(*generation);
            of_classic.extend(partitions);
        }
        let of_consumers: BTreeSet<u32> = self
            .consumers
            .iter()
            .flat_map(|it| &it.held)
            .copied()
            .collect();
        let epochs: BTreeSet<i64> = self.consumers.iter().map(|it| it.epoch).collect();
        serving.appends.is_empty()
            && (generations.len(), epochs.len()) == (1, 1)
            && of_classic.len() == WIDTH as usize
            && of_consumers.len() == WIDTH as usize
    }

    fn judge(&mut self, machine: &mut Machine) {
        machine.tally.sent += self.commits;
        machine.tally.acked += self.checker.acked();
        let broken = self.checker.finish().into_iter();
        for broken in broken.chain(self.holders.finish()) {
            machine.findings.report(Check::Team, broken);
        }
    }
}

impl Teams {
    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn tick(&mut self, machine: &mut Machine) {
        let mut effects = Vec::new();
        if let Some(serving) = &mut self.serving {
            serving.core.tick(machine.now, &mut effects);
        }
        self.follow(machine, effects, None);
    }

    /// A member commits how far it is with one of its partitions.
    fn commits(&mut self, machine: &mut Machine, at: usize) {
        let of_classic = machine.random.percent(50);
        let (team, who, generation, owned) = if of_classic {
            let State::Owns {
                generation,
                partitions,
            } = &self.classic[at].state
            else {
                return;
            };
            (
                classic(),
                self.who(at),
                i64::from(*generation),
                partitions.clone(),
            )
        } else {
            let member = &self.consumers[at];
            let who = Who {
                member: member.member.as_str().into(),
                instance: None,
            };
            (consumers(), who, member.epoch, member.held.clone())
        };
        let Some(shard) = owned.iter().nth(machine.random.index(owned.len())).copied() else {
            return;
        };
        self.commits += 1;
        let commit = self.commits;
        let position = Position {
            offset: commit,
            generation: -1,
            metadata: "".into(),
            committed_at: machine.now,
        };
        let ask = CommitAsk {
            who,
            generation,
            positions: vec![(partition(shard), position)],
        };
        self.checker.commits(&team.group, shard, commit);
        let Some(serving) = &mut self.serving else {
            return;
        };
        match serving.core.commit(&team, &ask) {
            Ok(changes) => {
                let early = machine.strikes(Twin::CommitBeforeLog, 30);
                if early {
                    self.checker.answered(commit, Outcome::Done);
                }
                self.append(machine, changes, Then::Commit(commit));
            }
            Err(_) => self.checker.answered(commit, Outcome::Refused),
        }
    }

    /// A member leaves, or dies without a word.
    fn goes(&mut self, machine: &mut Machine, at: usize) {
        if machine.random.percent(50) {
            self.consumers[at] = Beater::default();
            return;
        }
        if matches!(self.classic[at].state, State::Owns { .. }) && machine.random.percent(60) {
            let ticket = self.ticket();
            let leave = LedInput::Leave {
                ticket,
                members: vec![self.who(at)],
            };
            self.asks(machine, at, ticket, leave);
        }
        self.classic[at] = Classic::default();
    }

    fn append(&mut self, machine: &mut Machine, changes: Vec<Change>, then: Then) {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        for change in &changes {
            let time = i64::try_from(machine.now.0).unwrap_or(i64::MAX);
            let value = change.value();
            // A change is small, and there are few.
            let _ = batch.push(time, Some(&change.key()), value.as_deref(), &[]);
        }
        let draft = batch
            .finish()
            .ok()
            .and_then(|log| Draft::from_log(log).ok());
        let ticket = self.ticket();
        let Some((draft, serving)) = draft.zip(self.serving.as_mut()) else {
            return;
        };
        serving.appends.insert(ticket, Written { changes, then });
        self.tell(machine, append_input(ticket, draft));
    }

    fn tell(&mut self, machine: &mut Machine, input: Input) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        serving.shard.handle(machine.now, input, &mut effects);
        let mut finished = Vec::new();
        for effect in effects {
            match effect {
                Effect::Write { batch, .. } => {
                    if let (Some(pool), Some(log)) = (serving.pools.first_mut(), batch.log()) {
                        pool.push(log.clone());
                    }
                }
                Effect::Reply { ticket, outcome } => finished.push((ticket, outcome.err())),
                Effect::Subscribed { .. }
                | Effect::SubscribeRefused { .. }
                | Effect::Deliver { .. }
                | Effect::Read { .. }
                | Effect::ReaderEnded { .. }
                | Effect::Closed => {}
            }
        }
        for (ticket, refused) in finished {
            self.written(machine, ticket, refused);
        }
    }

    /// The log has something, or will not have it, as far as is known.
    fn written(&mut self, machine: &mut Machine, ticket: Ticket, refused: Option<AppendRefused>) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let Some(Written { changes, then }) = serving.appends.remove(&ticket) else {
            return;
        };
        let is_there = refused.is_none();
        if is_there {
            changes
                .into_iter()
                .for_each(|change| serving.core.apply(change));
        }
        match then {
            Then::Members(answers) => {
                for (ticket, answer) in answers {
                    let answer = if is_there {
                        answer
                    } else {
                        Err(MembershipRefused::NotCoordinator)
                    };
                    self.answered(machine, ticket, answer);
                }
            }
            Then::Commit(commit) if is_there => self.checker.answered(commit, Outcome::Done),
            Then::Commit(commit) => self.checker.answered(commit, Outcome::Unknown),
            Then::Told(news) if is_there => self.told(machine, news),
            Then::Told(news) => self.untold(&news),
        }
    }

    /// Does what follows from a call. Who beats is told `beat` once the log has what is to be written.
    fn follow(&mut self, machine: &mut Machine, effects: Vec<TeamEffect>, mut beat: Option<Then>) {
        for effect in effects {
            match effect {
                TeamEffect::Answer { ticket, answer } => self.answered(machine, ticket, answer),
                TeamEffect::Write { .. } if machine.strikes(Twin::ForgetGeneration, 100) => {
                    if let TeamEffect::Write { then, .. } = effect {
                        for (ticket, answer) in then {
                            self.answered(machine, ticket, answer);
                        }
                    }
                }
                TeamEffect::Write { changes, then } => {
                    let then = match beat.take() {
                        Some(beat) if then.is_empty() => beat,
                        other => {
                            beat = other;
                            Then::Members(then)
                        }
                    };
                    self.append(machine, changes, then);
                }
            }
        }
        if let Some(Then::Told(news)) = beat {
            self.told(machine, news);
        }
    }
}

fn append_input(ticket: Ticket, draft: Draft) -> Input {
    Input::Append(Append {
        ticket,
        batch: draft,
        expected: None,
        producer: None,
        ack: AckWhen::Committed,
    })
}

fn team(group: &str) -> TeamId {
    TeamId {
        tenant: "t".to_owned(),
        group: group.to_owned(),
    }
}

fn classic() -> TeamId {
    team("classic")
}

fn consumers() -> TeamId {
    team("consumer")
}

fn partition(shard: u32) -> Partition {
    Partition { number: 1, shard }
}

fn topic_name() -> TopicName {
    TopicName {
        namespace: "n".to_owned(),
        stream: "s".to_owned(),
    }
}

fn topic(_: &TopicName) -> Option<Topic> {
    Some(Topic {
        number: 1,
        width: WIDTH,
    })
}
