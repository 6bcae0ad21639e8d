//! A stream with commits: clients commit events with changes of state, some again under the same idempotency key; some
//! read events, some read state. The log says in the end who saw the truth.

use std::collections::BTreeMap;

use bytes::Bytes;
use felix_engine::keyed::OnceBounds;
use felix_engine::state::{
    CommitOp, CommitRefused, Committed, Precondition, StateAnswer, StateFold, StateFound,
    StateOptions, StateView,
};
use felix_engine::{
    AppendRefused, CloseReason, Effect, Input, ProducerTable, Shard, ShardOptions, Ticket,
    WriteFailure,
};
use felix_journal::LogReader;
use felix_model::Offset;
use felix_model::forms::{Change, Commit};

use super::Twin;
use super::life::Reading;
use super::machine::{Machine, Opened, records};
use crate::check::Check;
use crate::history::commit::{Changes, Checker};
use crate::pool::{Pool, Report};
use crate::world::read_all;

/// Entities, and keys of each: few, so that commits meet.
const ENTITIES: u64 = 2;
const KEYS: u64 = 3;

/// Commits under way at once.
const ASKED_MAX: usize = 6;

/// Clients and the shard they commit to.
pub(super) struct Ledger {
    serving: Option<Serving>,
    checker: Checker,
    asked: BTreeMap<Ticket, u64>,
    sent: Vec<Sent>,
    next_ticket: u64,
    /// How far the reader of events is.
    read_to: Offset,
    /// Versions that state keys were last seen to have.
    seen: BTreeMap<u64, u64>,
    /// The log when it was read last.
    log: Vec<(u64, u64)>,
}

struct Serving {
    shard: Shard,
    view: StateView,
    pools: Vec<Pool>,
    log: LogReader,
    has_failed: bool,
}

/// A commit, by its number.
struct Sent {
    op: CommitOp,
    entity: u64,
    is_acked: bool,
    /// It may be in the log, and nobody was told.
    is_doubtful: bool,
}

impl Reading for Ledger {
    const LANES: &'static [&'static str] = &["data"];

    fn new(_: &mut Machine) -> Self {
        Self {
            serving: None,
            checker: Checker::default(),
            asked: BTreeMap::new(),
            sent: Vec::new(),
            next_ticket: 0,
            read_to: Offset::ZERO,
            seen: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn open(&mut self, machine: &mut Machine, lanes: Vec<Opened>) -> Result<(), String> {
        let Some(lane) = lanes.into_iter().next() else {
            return Err("no log".to_owned());
        };
        let once = OnceBounds {
            age_ms: 0,
            keys_min: 1_000,
            keys_max: 2_000,
        };
        let mut fold = StateFold::new(once);
        for record in records(&lane.batches) {
            if machine.strikes(Twin::EventOnly, 10) {
                continue;
            }
            fold.observe(&record).map_err(|error| error.to_string())?;
        }
        let mut shard = ShardOptions::durable(machine.commit_when());
        shard.start = lane.start;
        shard.end = lane.end;
        shard.generation = lane.generation;
        let options = StateOptions {
            commit_bytes_max: 1 << 20,
            value_bytes: 2_000,
            once,
        };
        self.serving = Some(Serving {
            shard: Shard::new(shard, ProducerTable::new(8)),
            view: StateView::new(options, fold),
            pools: vec![lane.pool],
            log: lane.log,
            has_failed: false,
        });
        Ok(())
    }

    fn act(&mut self, machine: &mut Machine, ending: bool) {
        match machine.random.below(10) {
            0..=3 if !ending && self.asked.len() < ASKED_MAX => self.commit(machine),
            4 if !ending && self.asked.len() < ASKED_MAX => self.commit_again(machine),
            5 => self.read_events(machine),
            _ => self.read_state(machine),
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
        for commit in std::mem::take(&mut self.asked).into_values() {
            self.doubt(commit);
        }
        self.serving
            .take()
            .map(|serving| serving.pools)
            .unwrap_or_default()
    }

    fn is_settled(&self) -> bool {
        let end = self.serving.as_ref().map(|serving| serving.shard.end());
        self.asked.is_empty() && end.is_none_or(|end| self.read_to >= end)
    }

    fn judge(&mut self, machine: &mut Machine) {
        for number in 0..ENTITIES * KEYS {
            self.read_key(machine, number);
        }
        if let Some(serving) = &self.serving {
            let (start, end) = (serving.shard.start(), serving.shard.end());
            match read_all(&serving.log, start, end, 1 << 16) {
                Ok(batches) => {
                    let commits = records(&batches).filter_map(|record| {
                        let commit = Commit::read(&record).ok()??;
                        Some((record.offset.0, number(&commit.event)?))
                    });
                    self.log = commits.collect();
                }
                Err(why) => machine.findings.report(Check::Bytes, why),
            }
        }
        for (commit, sent) in (0..).zip(&self.sent) {
            if !sent.is_acked && !sent.is_doubtful {
                self.checker.refused(commit);
            }
        }
        machine.tally.sent += self.sent.len() as u64;
        machine.tally.acked += self.sent.iter().filter(|sent| sent.is_acked).count() as u64;
        for broken in self.checker.finish(&self.log) {
            machine.findings.report(Check::Atomic, broken.to_string());
        }
    }
}

impl Ledger {
    fn tell(&mut self, machine: &mut Machine, input: Input) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        serving.shard.handle(machine.now, input, &mut effects);
        self.follow(machine, effects, Vec::new());
    }

    fn follow(
        &mut self,
        machine: &mut Machine,
        effects: Vec<Effect>,
        mut answers: Vec<StateAnswer>,
    ) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        serving.view.follow(&serving.shard, &mut answers);
        for effect in effects {
            match effect {
                Effect::Write { batch, .. } => {
                    if let (Some(pool), Some(log)) = (serving.pools.first_mut(), batch.log()) {
                        pool.push(log.clone());
                    }
                }
                Effect::Reply { ticket, outcome } => {
                    let outcome = match outcome {
                        Ok(appended) => Ok(Committed {
                            offset: appended.base().unwrap_or_default(),
                            repeated: false,
                        }),
                        Err(refused) => Err(CommitRefused::Append(refused)),
                    };
                    answers.push(StateAnswer { ticket, outcome });
                }
                Effect::Subscribed { .. }
                | Effect::SubscribeRefused { .. }
                | Effect::Deliver { .. }
                | Effect::Read { .. }
                | Effect::ReaderEnded { .. }
                | Effect::Closed => {}
            }
        }
        for answer in answers {
            self.answered(machine, answer);
        }
    }

    fn commit(&mut self, machine: &mut Machine) {
        let commit = self.sent.len() as u64;
        let entity = machine.random.below(ENTITIES);
        let value = Bytes::copy_from_slice(&commit.to_be_bytes());
        let mut changes = BTreeMap::new();
        for _ in 0..machine.random.below(4) {
            let key = machine.random.below(KEYS);
            changes.insert(key, machine.random.percent(75));
        }
        let key = machine.random.below(KEYS);
        let condition = machine.random.percent(25).then(|| Precondition {
            key: state_key(key),
            version: self.seen.get(&(entity * KEYS + key)).copied().map(Offset),
        });
        let op = CommitOp {
            commit: Commit {
                entity: entity_key(entity),
                event: value.clone(),
                changes: changes
                    .iter()
                    .map(|(key, sets)| match sets {
                        true => Change::Put {
                            key: state_key(*key),
                            value: value.clone(),
                        },
                        false => Change::Delete {
                            key: state_key(*key),
                        },
                    })
                    .collect(),
                idempotency: machine
                    .random
                    .percent(60)
                    .then(|| Bytes::from(format!("commit-{commit}"))),
            },
            preconditions: condition.into_iter().collect(),
            expected: None,
        };
        let of = |sets: bool| {
            let those = changes.iter().filter(move |(_, set)| **set == sets);
            those.map(|(key, _)| entity * KEYS + key).collect()
        };
        self.checker.sent(
            commit,
            Changes {
                sets: of(true),
                removes: of(false),
            },
        );
        self.sent.push(Sent {
            op,
            entity,
            is_acked: false,
            is_doubtful: false,
        });
        self.send(machine, commit);
    }

    /// A client that was not told, or does not remember, sends again.
    fn commit_again(&mut self, machine: &mut Machine) {
        let recent = self.sent.len().saturating_sub(20);
        let commit = recent + machine.random.index(self.sent.len() - recent);
        let has_id = |sent: &Sent| sent.op.commit.idempotency.is_some();
        if self.sent.get(commit).is_some_and(has_id) {
            machine.tally.duplicates += 1;
            self.send(machine, commit as u64);
        }
    }

    fn send(&mut self, machine: &mut Machine, commit: u64) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let sent = usize::try_from(commit)
            .ok()
            .and_then(|at| self.sent.get(at));
        let (Some(sent), Some(serving)) = (sent, &mut self.serving) else {
            return;
        };
        let mut op = sent.op.clone();
        if machine.plan.is(Twin::CommitAgain) {
            op.commit.idempotency = None;
        }
        machine
            .transcript
            .say(format_args!("commit {commit} as {}: {op:?}", ticket.0));
        self.asked.insert(ticket, commit);
        let (mut effects, mut answers) = (Vec::new(), Vec::new());
        let (view, shard) = (&mut serving.view, &mut serving.shard);
        view.commit(machine.now, shard, (ticket, op), &mut effects, &mut answers);
        self.follow(machine, effects, answers);
    }

    fn answered(&mut self, machine: &mut Machine, answer: StateAnswer) {
        let StateAnswer { ticket, outcome } = answer;
        machine
            .transcript
            .say(format_args!("answer {}: {outcome:?}", ticket.0));
        let Some(commit) = self.asked.remove(&ticket) else {
            let what = format!("an answer that nobody waits for: {outcome:?}");
            return machine.findings.report(Check::Liveness, what);
        };
        let at = usize::try_from(commit).unwrap_or(usize::MAX);
        match outcome {
            Ok(done) => {
                self.checker.acked(commit, done.offset.0);
                if let Some(sent) = self.sent.get_mut(at) {
                    sent.is_acked = true;
                }
            }
            Err(CommitRefused::Append(AppendRefused::OutcomeUnknown)) => self.doubt(commit),
            Err(CommitRefused::Append(_) | CommitRefused::VersionMismatch { .. }) => {
                machine.tally.refused += 1;
            }
            Err(other) => {
                let what = format!("commit {commit} was refused for no reason: {other}");
                machine.findings.report(Check::Atomic, what);
            }
        }
    }

    fn doubt(&mut self, commit: u64) {
        let at = usize::try_from(commit).unwrap_or(usize::MAX);
        if let Some(sent) = self.sent.get_mut(at) {
            sent.is_doubtful = true;
        }
    }

    /// The reader of events goes on to the committed mark.
    fn read_events(&mut self, machine: &mut Machine) {
        let Some(serving) = &self.serving else {
            return;
        };
        let committed = serving.shard.committed();
        let Ok(batches) = read_all(&serving.log, self.read_to, committed, 4_096) else {
            return;
        };
        machine.tally.pages += 1;
        for record in records(&batches) {
            if record.offset < self.read_to {
                continue;
            }
            self.read_to = record.offset.plus(1);
            let event = record.value.as_ref().and_then(|event| number(event));
            if let Some(event) = event {
                machine.tally.delivered += 1;
                self.checker.event(record.offset.0, event);
            }
        }
    }

    fn read_state(&mut self, machine: &mut Machine) {
        let number = machine.random.below(ENTITIES * KEYS);
        self.read_key(machine, number);
    }

    fn read_key(&mut self, machine: &mut Machine, number: u64) {
        let floor = self.checker.floor();
        let (entity, key) = (number / KEYS, number % KEYS);
        let Some(serving) = &mut self.serving else {
            return;
        };
        let found = serving.view.get(&entity_key(entity), &state_key(key));
        let seen = match found {
            None => None,
            Some(found) => {
                let version = found.version.0;
                let Some(value) = value(serving, &state_key(key), found) else {
                    return;
                };
                Some((value, version))
            }
        };
        match seen {
            Some((_, version)) => self.seen.insert(number, version),
            None => self.seen.remove(&number),
        };
        let seen = if machine.strikes(Twin::StateOnly, 10) {
            self.never_appended(number).or(seen)
        } else {
            seen
        };
        self.checker.state(number, seen, floor);
    }

    /// What the state would be if the last commit that was refused had been done to it alone.
    fn never_appended(&self, number: u64) -> Option<(u64, u64)> {
        let end = self.serving.as_ref()?.shard.end();
        let refused =
            |sent: &Sent| !sent.is_acked && !sent.is_doubtful && sent.entity == number / KEYS;
        let last = self.sent.iter().rposition(refused)?;
        Some((last as u64, end.0))
    }
}

/// The value that was found, by the number of its commit. `None`: it cannot be read just now.
fn value(serving: &mut Serving, key: &[u8], found: StateFound) -> Option<u64> {
    if let Some(value) = found.value {
        return number(&value);
    }
    let record = serving.log.record(found.version).ok()??;
    let commit = Commit::read(&record).ok()??;
    serving.view.learn(found.version, &commit);
    commit.changes.iter().rev().find_map(|change| match change {
        Change::Put { key: of, value } if of.as_ref() == key => number(value),
        Change::Put { .. } | Change::Delete { .. } => None,
    })
}

fn number(value: &[u8]) -> Option<u64> {
    value
        .first_chunk()
        .map(|number| u64::from_be_bytes(*number))
}

fn entity_key(number: u64) -> Bytes {
    Bytes::from(format!("entity-{number}"))
}

fn state_key(number: u64) -> Bytes {
    Bytes::from(format!("key-{number}"))
}
