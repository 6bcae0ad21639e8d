//! A cache's shard: clients put, read, delete and add, several at once, and every answer goes into a history per key.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use felix_engine::cache::{
    CacheAnswer, CacheEffect, CacheInput, CacheOp, CacheOptions, CacheRefused, CacheShard,
    CacheTicket, Condition, Fold, Found, Tell,
};
use felix_engine::keyed::OnceBounds;
use felix_engine::{
    AppendRefused, CloseReason, Effect, Input, ProducerTable, Shard, ShardOptions, WriteFailure,
};
use felix_journal::{Keep, LogReader};
use felix_model::forms::Keyed;
use felix_model::{BatchHeader, Offset, Record, TimeMs};

use super::Twin;
use super::life::Reading;
use super::machine::{Machine, Opened, records};
use crate::check::Check;
use crate::history::linear::{self, Sequential, Timed};
use crate::history::register::{Expect, Window, Written};
use crate::history::{counter, register};
use crate::pool::{Pool, Report};

/// Keys with values, and counters: few, so that calls meet on them.
const KEYS: u64 = 3;

/// Calls under way at once.
const ASKED_MAX: usize = 6;

/// Values over this together are not all in memory.
const VALUE_BYTES: u64 = 3_000;

/// Clients and the shard they ask.
pub(super) struct Cache {
    serving: Option<Serving>,
    asked: BTreeMap<CacheTicket, Asked>,
    /// Their outcome is known only to whoever opens the log again.
    in_doubt: Vec<Asked>,
    entries: BTreeMap<u64, Vec<Timed<register::Call>>>,
    counters: BTreeMap<u64, Vec<Timed<counter::Call>>>,
    /// Adds with an idempotency key, by its number: the counter and how much.
    once: Vec<(u64, i64)>,
    next_ticket: u64,
    next_value: u64,
    /// What each key was last seen to hold, and before.
    seen: BTreeMap<u64, [Option<(u64, u64)>; 2]>,
}

struct Serving {
    shard: CacheShard,
    pools: Vec<Pool>,
    log: LogReader,
    has_failed: bool,
}

/// A call under way.
struct Asked {
    key: u64,
    began: u64,
    call: Call,
}

/// What was asked, with the answer still to come.
enum Call {
    Entry(register::Call),
    Counter(counter::Call),
}

/// What an answer makes of a call.
enum Settled {
    /// It was answered; the call has the answer in it.
    Known(Call),
    /// Nothing was written.
    Nothing,
    /// Nobody knows.
    Unknown(Call),
}

impl Reading for Cache {
    const LANES: &'static [&'static str] = &["data"];

    fn new(_: &mut Machine) -> Self {
        Self {
            serving: None,
            asked: BTreeMap::new(),
            in_doubt: Vec::new(),
            entries: BTreeMap::new(),
            counters: BTreeMap::new(),
            once: Vec::new(),
            next_ticket: 0,
            next_value: 0,
            seen: BTreeMap::new(),
        }
    }

    fn open(&mut self, machine: &mut Machine, lanes: Vec<Opened>) -> Result<(), String> {
        let Some(lane) = lanes.into_iter().next() else {
            return Err("no log".to_owned());
        };
        let options = CacheOptions {
            value_bytes: VALUE_BYTES,
            once: OnceBounds {
                age_ms: 0,
                keys_min: 1_000,
                keys_max: 2_000,
            },
            tombstone_grace_ms: machine.random.pick([0, 40, 600_000]),
            ..CacheOptions::default()
        };
        let mut fold = Fold::new(options.once);
        let mut found: Vec<_> = records(&lane.batches).collect();
        if machine.plan.is(Twin::ForgetLast) {
            found.pop();
        }
        for record in &found {
            fold.observe(record).map_err(|error| error.to_string())?;
        }
        let mut shard = ShardOptions::durable(machine.commit_when());
        shard.start = lane.start;
        shard.end = lane.end;
        shard.generation = lane.generation;
        let shard = Shard::new(shard, ProducerTable::new(8));
        self.serving = Some(Serving {
            shard: CacheShard::new(shard, options, fold),
            pools: vec![lane.pool],
            log: lane.log,
            has_failed: false,
        });
        Ok(())
    }

    fn act(&mut self, machine: &mut Machine, ending: bool) {
        if ending {
            return;
        }
        match machine.random.below(12) {
            0 => self.tell(machine, CacheInput::Expire),
            1 if machine.random.percent(40) => self.tend(machine),
            _ if self.asked.len() < ASKED_MAX => {
                let count = 1 + machine.random.index(ASKED_MAX - self.asked.len());
                self.ask(machine, count);
            }
            _ => {}
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
        self.tell(machine, CacheInput::Log(input));
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
        self.tell(machine, CacheInput::Log(Input::Close { reason }));
    }

    fn gone(&mut self, machine: &mut Machine) -> Vec<Pool> {
        let left = std::mem::take(&mut self.asked).into_values();
        let in_doubt: Vec<Asked> = left.chain(self.in_doubt.drain(..)).collect();
        for asked in in_doubt {
            let ended = machine.instant();
            self.record(asked, ended, false);
        }
        self.serving
            .take()
            .map(|serving| serving.pools)
            .unwrap_or_default()
    }

    fn is_settled(&self) -> bool {
        self.asked.is_empty()
    }

    fn judge(&mut self, machine: &mut Machine) {
        self.gone_through(machine);
        check(machine, &register::Register, &self.entries, "key");
        check(machine, &counter::Counter, &self.counters, "counter");
    }
}

fn check<M: Sequential>(
    machine: &mut Machine,
    model: &M,
    histories: &BTreeMap<u64, Vec<Timed<M::Call>>>,
    what: &str,
) where
    M::State: Default,
    M::Call: std::fmt::Debug,
{
    for (key, history) in histories {
        machine.tally.sent += history.len() as u64;
        machine.tally.acked += history.iter().filter(|timed| timed.is_known).count() as u64;
        let outcome = linear::check(model, M::State::default(), history);
        let Err(why) = outcome else { continue };
        let linear::NotLinear::Unexplained { call } = &why else {
            machine
                .findings
                .report(Check::Linear, format!("{what} {key}: {why}"));
            continue;
        };
        let before = history
            .get(call.saturating_sub(4)..=*call)
            .unwrap_or_default();
        machine.findings.report(
            Check::Linear,
            format!("{what} {key}: {why}, the last of {before:?}"),
        );
    }
}

impl Cache {
    fn tell(&mut self, machine: &mut Machine, input: CacheInput) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        serving.shard.handle(machine.now, input, &mut effects);
        self.perform(machine, effects);
    }

    fn perform(&mut self, machine: &mut Machine, effects: Vec<CacheEffect>) {
        for effect in effects {
            match effect {
                CacheEffect::Log(Effect::Write { batch, .. }) => {
                    let pool = self.serving.as_mut().and_then(|one| one.pools.first_mut());
                    if let (Some(pool), Some(log)) = (pool, batch.log()) {
                        pool.push(log.clone());
                    }
                }
                CacheEffect::Log(_) => {}
                CacheEffect::Answer { ticket, outcome } => self.answered(machine, ticket, outcome),
            }
        }
    }

    /// Counters write down what they have come to, and the log is compacted.
    fn tend(&mut self, machine: &mut Machine) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        if machine.random.percent(50) {
            let (mut effects, below) = (Vec::new(), serving.shard.shard().committed());
            serving
                .shard
                .checkpoint(machine.now, below, None, &mut effects);
            return self.perform(machine, effects);
        }
        let rolls = machine.random.percent(70);
        let mut sifter = Sifter {
            shard: &serving.shard,
            now: machine.now,
            deletions_below: Offset::ZERO,
        };
        let below = sifter.shard.shard().committed();
        if let Some(pool) = serving.pools.first_mut() {
            let gone = pool.compact(below, rolls, &mut sifter);
            machine.tally.trimmed += gone;
            machine
                .transcript
                .say(format_args!("compacted: {gone} records are gone"));
        }
    }

    fn ask(&mut self, machine: &mut Machine, count: usize) {
        let mut ops = Vec::new();
        for _ in 0..count {
            let key = machine.random.below(KEYS);
            let (op, call) = if machine.random.percent(60) {
                self.entry_call(machine, key)
            } else {
                self.counter_call(machine, key)
            };
            let ticket = CacheTicket(self.next_ticket);
            self.next_ticket += 1;
            let began = machine.instant();
            machine
                .transcript
                .say(format_args!("ask {}: key {key} {op:?}", ticket.0));
            self.asked.insert(ticket, Asked { key, began, call });
            ops.push((ticket, op));
        }
        self.tell(machine, CacheInput::Ops(ops));
    }

    fn entry_call(&mut self, machine: &mut Machine, number: u64) -> (CacheOp, Call) {
        let window = Window {
            from: machine.now.0,
            to: machine.now.0,
        };
        let key = entry_key(number);
        let seen = self.seen.get(&number).and_then(|seen| seen[1]);
        let version = seen.map(|(_, version)| version);
        match machine.random.below(10) {
            0..=3 => {
                let call = register::Call::Get {
                    window,
                    answer: None,
                };
                (CacheOp::Get { key }, Call::Entry(call))
            }
            4..=7 => {
                let value = self.next_value;
                self.next_value += 1;
                let ttl = machine
                    .random
                    .percent(30)
                    .then(|| 1 + machine.random.below(60));
                let expect = match machine.random.below(4) {
                    0 => Expect::Absent,
                    1 => version.map_or(Expect::Anything, Expect::Version),
                    _ => Expect::Anything,
                };
                let ignored = machine.plan.is(Twin::IgnoreCondition);
                let forever = machine.plan.is(Twin::IgnoreExpiry);
                let op = CacheOp::Put {
                    key,
                    value: value_of(value, machine.random.index(900)),
                    ttl_ms: ttl.filter(|_| !forever),
                    condition: condition(expect).filter(|_| !ignored),
                };
                let call = register::Call::Put {
                    value,
                    ttl,
                    expect,
                    window,
                    answer: Written::Unknown,
                };
                (op, Call::Entry(call))
            }
            _ => {
                let version = version.filter(|_| machine.random.percent(40));
                let op = CacheOp::Delete {
                    key,
                    version: version.map(Offset),
                    tell: Tell::Removed,
                };
                let call = register::Call::Delete {
                    expect: version.map_or(Expect::Anything, Expect::Version),
                    window,
                    answer: Written::Unknown,
                };
                (op, Call::Entry(call))
            }
        }
    }

    fn counter_call(&mut self, machine: &mut Machine, number: u64) -> (CacheOp, Call) {
        let key = Bytes::from(format!("counter-{number}"));
        if machine.random.percent(30) {
            let call = counter::Call::Sum { answer: None };
            return (CacheOp::Sum { key }, Call::Counter(call));
        }
        let known = self.once.iter().enumerate();
        let known: Vec<_> = known.filter(|(_, (of, _))| *of == number).collect();
        let (once, delta) = match machine.random.below(3) {
            0 => (None, 1 + machine.random.below(9)),
            1 if !known.is_empty() => {
                let again = known.get(machine.random.index(known.len()));
                let again = again.map_or((0, 0), |(id, (_, delta))| {
                    (*id as u64, delta.unsigned_abs())
                });
                (Some(again.0), again.1)
            }
            _ => (Some(self.once.len() as u64), 1 + machine.random.below(9)),
        };
        let delta = i64::try_from(delta).unwrap_or(1);
        if once == Some(self.once.len() as u64) {
            self.once.push((number, delta));
        }
        let sent = once.filter(|_| !machine.plan.is(Twin::AddAgain));
        let op = CacheOp::Add {
            key,
            delta,
            id: sent.map(|id| Bytes::from(format!("once-{id}"))),
        };
        let call = counter::Call::Add {
            delta,
            once,
            answer: None,
        };
        (op, Call::Counter(call))
    }

    fn answered(
        &mut self,
        machine: &mut Machine,
        ticket: CacheTicket,
        outcome: Result<CacheAnswer, CacheRefused>,
    ) {
        machine
            .transcript
            .say(format_args!("answer {}: {outcome:?}", ticket.0));
        let Some(mut asked) = self.asked.remove(&ticket) else {
            let what = format!("an answer that nobody waits for: {outcome:?}");
            return machine.findings.report(Check::Liveness, what);
        };
        let ended = machine.instant();
        match self.settle(machine, asked.key, asked.call, outcome) {
            Settled::Known(call) => {
                asked.call = call;
                self.record(asked, ended, true);
            }
            Settled::Nothing => {}
            Settled::Unknown(call) => {
                asked.call = call;
                self.in_doubt.push(asked);
            }
        }
    }

    fn settle(
        &mut self,
        machine: &mut Machine,
        key: u64,
        mut call: Call,
        outcome: Result<CacheAnswer, CacheRefused>,
    ) -> Settled {
        match (&mut call, outcome) {
            (_, Err(CacheRefused::Append(AppendRefused::OutcomeUnknown))) => {
                return Settled::Unknown(call);
            }
            (_, Err(CacheRefused::Append(_))) => return Settled::Nothing,
            (Call::Entry(register::Call::Get { answer, .. }), Ok(CacheAnswer::Value(found))) => {
                let found = match found.map(|found| self.value(machine, key, found)) {
                    Some(None) => return Settled::Nothing,
                    Some(Some(seen)) => Some(seen),
                    None => None,
                };
                *answer = self.remember(machine, key, found);
            }
            (Call::Entry(register::Call::Put { answer, .. }), Ok(CacheAnswer::Put { version })) => {
                *answer = Written::Done {
                    version: Some(version.0),
                    removed: None,
                };
            }
            (
                Call::Entry(register::Call::Delete { answer, .. }),
                Ok(CacheAnswer::Deleted(found)),
            ) => {
                let removed = match found.map(|found| self.value(machine, key, found)) {
                    Some(None) => return Settled::Unknown(call),
                    Some(removed) => removed,
                    None => None,
                };
                *answer = Written::Done {
                    version: None,
                    removed,
                };
            }
            (
                Call::Entry(
                    register::Call::Put { answer, .. } | register::Call::Delete { answer, .. },
                ),
                Ok(CacheAnswer::Unmet { current }),
            ) => *answer = Written::Unmet(current.map(|version| version.0)),
            (
                Call::Counter(counter::Call::Add { answer, .. } | counter::Call::Sum { answer }),
                Ok(CacheAnswer::Sum { sum, .. }),
            ) => *answer = sum,
            (_, other) => {
                let what =
                    format!("an answer of another kind, or a refusal for no reason: {other:?}");
                machine.findings.report(Check::Linear, what);
                return Settled::Nothing;
            }
        }
        Settled::Known(call)
    }

    /// The value that was found, by its number, and its version. `None`: it cannot be read just now.
    fn value(&mut self, machine: &mut Machine, key: u64, found: Found) -> Option<(u64, u64)> {
        let version = found.version;
        let value = match found.value {
            Some(value) => value,
            None => {
                machine.tally.pages += 1;
                let serving = self.serving.as_mut()?;
                match serving.log.record(version) {
                    Ok(Some(record)) => {
                        let value = record.value.unwrap_or_default();
                        serving.shard.learn(&entry_key(key), version, &value);
                        value
                    }
                    Ok(None) => {
                        let what = format!("key {key} is at {version}, where there is no record");
                        machine.findings.report(Check::Linear, what);
                        return None;
                    }
                    Err(_) => return None,
                }
            }
        };
        let number = value
            .first_chunk()
            .map(|number| u64::from_be_bytes(*number));
        let right = value.len() as u64 == u64::from(found.length);
        machine.findings.expect(right, Check::Bytes, || {
            format!(
                "key {key} at {version}: {} bytes of {}",
                value.len(),
                found.length
            )
        });
        number.map(|number| (number, version.0))
    }

    /// Takes note of what a key was seen to hold, and gives it, or something older if the broker is broken like this.
    fn remember(
        &mut self,
        machine: &mut Machine,
        key: u64,
        found: Option<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        let seen = self.seen.entry(key).or_default();
        if seen[1] != found {
            *seen = [seen[1], found];
        }
        if machine.strikes(Twin::StaleRead, 20) {
            return self.seen.get(&key).and_then(|seen| seen[0]);
        }
        found
    }

    fn record(&mut self, asked: Asked, ended: u64, is_known: bool) {
        let Asked { key, began, call } = asked;
        match call {
            // What was only read and never answered says nothing.
            Call::Entry(register::Call::Get { .. }) | Call::Counter(counter::Call::Sum { .. })
                if !is_known => {}
            Call::Entry(call) => self.entries.entry(key).or_default().push(Timed {
                call,
                began,
                ended,
                is_known,
            }),
            Call::Counter(call) => self.counters.entry(key).or_default().push(Timed {
                call,
                began,
                ended,
                is_known,
            }),
        }
    }

    /// Reads everything once more, when nothing is under way.
    fn gone_through(&mut self, machine: &mut Machine) {
        for key in 0..KEYS {
            let window = Window {
                from: machine.now.0,
                to: machine.now.0,
            };
            let last = [
                (
                    CacheOp::Get {
                        key: entry_key(key),
                    },
                    Call::Entry(register::Call::Get {
                        window,
                        answer: None,
                    }),
                ),
                (
                    CacheOp::Sum {
                        key: Bytes::from(format!("counter-{key}")),
                    },
                    Call::Counter(counter::Call::Sum { answer: None }),
                ),
            ];
            for (op, call) in last {
                let ticket = CacheTicket(self.next_ticket);
                self.next_ticket += 1;
                let began = machine.instant();
                self.asked.insert(ticket, Asked { key, began, call });
                self.tell(machine, CacheInput::Ops(vec![(ticket, op)]));
            }
        }
    }
}

/// What compaction may drop, as the shard says.
struct Sifter<'a> {
    shard: &'a CacheShard,
    now: TimeMs,
    deletions_below: Offset,
}

impl Keep for Sifter<'_> {
    fn keep(&mut self, _: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        for record in records {
            let time = TimeMs(u64::try_from(record.timestamp_ms).unwrap_or(0));
            let stays = Keyed::read(record).map_or(true, |form| {
                self.shard.keeps(&form, record.offset, time, self.now)
            });
            if !stays && record.value.is_none() {
                self.deletions_below = self.deletions_below.max(record.offset.plus(1));
            }
            stay.push(stays);
        }
    }

    fn deletions_below(&self) -> Offset {
        self.deletions_below
    }
}

fn entry_key(number: u64) -> Bytes {
    Bytes::from(format!("key-{number}"))
}

/// A value that can be told from all others.
fn value_of(number: u64, padding: usize) -> Bytes {
    let mut value = BytesMut::new();
    value.put_u64(number);
    value.put_bytes(b'.', padding);
    value.freeze()
}

fn condition(expect: Expect) -> Option<Condition> {
    match expect {
        Expect::Anything => None,
        Expect::Absent => Some(Condition::Absent),
        Expect::Version(version) => Some(Condition::Version(Offset(version))),
    }
}
