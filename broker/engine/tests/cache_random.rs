//! A cache's shard beside a small model, under random ops, completions, failures and restarts.

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, VecDeque};
    use std::sync::Arc;

    use bytes::Bytes;
    use felix_engine::cache::{
        CacheAnswer, CacheEffect, CacheInput, CacheOp, CacheOptions, CacheRefused, CacheShard,
        CacheTicket, Condition, Fold, Tell,
    };
    use felix_engine::keyed::{Key, OnceBounds, snapshot};
    use felix_engine::{
        Batch, CommitWhen, Effect, Input, ProducerTable, Shard, ShardOptions, WriteFailure,
    };
    use felix_model::forms::Keyed;
    use felix_model::{Offset, Record, Records, TimeMs};

    const SEEDS: u64 = 300;
    const STEPS: u64 = 400;

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (self.0 >> 33) % sides
        }
    }

    /// What a key has: value, version, expiry.
    type Held = (Bytes, u64, Option<u64>);

    /// The reference: maps, and nothing in flight.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Model {
        entries: BTreeMap<Bytes, Held>,
        sums: BTreeMap<Bytes, i64>,
        once: BTreeMap<Bytes, (Bytes, i64, i64)>,
    }

    impl Model {
        fn live(&self, now: u64, key: &Bytes) -> Option<&Held> {
            self.entries
                .get(key)
                .filter(|(_, _, expires)| expires.is_none_or(|at| at > now))
        }

        /// Carries an op out at `offset` and says what is to be answered, and how many records it took.
        fn op(&mut self, now: u64, offset: u64, op: &CacheOp) -> (Expected, u64) {
            match op {
                CacheOp::Put {
                    key,
                    value,
                    ttl_ms,
                    condition,
                } => {
                    let current = self.live(now, key).map(|held| held.1);
                    let holds = match condition {
                        None => true,
                        Some(Condition::Absent) => current.is_none(),
                        Some(Condition::Version(version)) => current == Some(version.0),
                    };
                    if !holds {
                        return (Expected::Unmet(current), 0);
                    }
                    let held = (value.clone(), offset, ttl_ms.map(|ttl| now + ttl));
                    self.entries.insert(key.clone(), held);
                    (Expected::Put(offset), 1)
                }
                CacheOp::Delete { key, version, .. } => {
                    let live = self.live(now, key).cloned();
                    let current = live.as_ref().map(|held| held.1);
                    if version.is_some_and(|version| Some(version.0) != current) {
                        return (Expected::Unmet(current), 0);
                    }
                    let records = u64::from(live.is_some());
                    if live.is_some() {
                        self.entries.remove(key);
                    }
                    (Expected::Deleted(live.map(|held| held.0)), records)
                }
                CacheOp::Add { key, delta, id } => {
                    if let Some((of, was, sum)) = id.as_ref().and_then(|id| self.once.get(id)) {
                        if of == key && was == delta {
                            return (Expected::Sum(Some(*sum)), 0);
                        }
                        return (Expected::Reused, 0);
                    }
                    let before = self.sums.get(key).copied().unwrap_or(0);
                    let Some(sum) = before.checked_add(*delta) else {
                        return (Expected::Overflow, 0);
                    };
                    self.sums.insert(key.clone(), sum);
                    if let Some(id) = id {
                        self.once.insert(id.clone(), (key.clone(), *delta, sum));
                    }
                    (Expected::Sum(Some(sum)), 1)
                }
                CacheOp::Get { key } => {
                    let live = self.live(now, key);
                    (
                        Expected::Value(live.map(|held| (held.0.clone(), held.1))),
                        0,
                    )
                }
                CacheOp::Sum { key } => (Expected::Sum(self.sums.get(key).copied()), 0),
                CacheOp::List { .. } => (Expected::Any, 0),
            }
        }
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Expected {
        Value(Option<(Bytes, u64)>),
        Put(u64),
        Unmet(Option<u64>),
        Deleted(Option<Bytes>),
        Sum(Option<i64>),
        Reused,
        Overflow,
        Any,
    }

    /// The shard, its journal, and the model after each batch that is in flight.
    struct World {
        dice: Dice,
        now: u64,
        cache: CacheShard,
        /// Every record that the journal has, by offset.
        journal: BTreeMap<Offset, Arc<Batch>>,
        in_flight: VecDeque<(Offset, Offset)>,
        committed: Model,
        /// The model as of each end of a batch in flight.
        tails: VecDeque<(Offset, Model)>,
        asked: HashMap<u64, Expected>,
        next_ticket: u64,
        poisoned: bool,
    }

    fn options() -> CacheOptions {
        CacheOptions {
            value_bytes: 4_000,
            once: OnceBounds {
                age_ms: 0,
                keys_min: 1_000,
                keys_max: 2_000,
            },
            ..CacheOptions::default()
        }
    }

    fn open(end: Offset, fold: Fold) -> CacheShard {
        let mut shard = ShardOptions::durable(CommitWhen::Written);
        shard.end = end;
        CacheShard::new(Shard::new(shard, ProducerTable::new(8)), options(), fold)
    }

    impl World {
        fn new(seed: u64) -> Self {
            Self {
                dice: Dice(seed),
                now: 1_000,
                cache: open(Offset(0), Fold::new(options().once)),
                journal: BTreeMap::new(),
                in_flight: VecDeque::new(),
                committed: Model::default(),
                tails: VecDeque::new(),
                asked: HashMap::new(),
                next_ticket: 0,
                poisoned: false,
            }
        }

        fn key(&mut self) -> Bytes {
            Bytes::from(format!("k{}", self.dice.roll(6)))
        }

        fn random_op(&mut self) -> CacheOp {
            let key = self.key();
            let version = Offset(self.cache.shard().end().0.saturating_sub(self.dice.roll(8)));
            match self.dice.roll(9) {
                0 => CacheOp::Get { key },
                1 => CacheOp::Sum { key },
                2 | 3 => CacheOp::Put {
                    key,
                    value: Bytes::from(vec![b'v'; self.dice.roll(900) as usize]),
                    ttl_ms: (self.dice.roll(3) == 0).then(|| self.dice.roll(50)),
                    condition: None,
                },
                4 => CacheOp::Put {
                    key,
                    value: Bytes::from_static(b"if"),
                    ttl_ms: None,
                    condition: Some(match self.dice.roll(2) {
                        0 => Condition::Absent,
                        _ => Condition::Version(version),
                    }),
                },
                5 => CacheOp::Delete {
                    key,
                    version: None,
                    tell: Tell::Removed,
                },
                6 => CacheOp::Delete {
                    key,
                    version: Some(version),
                    tell: Tell::Removed,
                },
                _ => CacheOp::Add {
                    key,
                    delta: match self.dice.roll(20) {
                        0 => i64::MAX,
                        delta => delta as i64 - 10,
                    },
                    id: (self.dice.roll(3) == 0)
                        .then(|| Bytes::from(format!("i{}", self.dice.roll(20)))),
                },
            }
        }

        fn ask(&mut self) {
            let mut ops = Vec::new();
            let mut tail = self
                .tails
                .back()
                .map_or(&self.committed, |(_, model)| model)
                .clone();
            let mut end = self.cache.shard().end();
            for _ in 0..=self.dice.roll(5) {
                let op = self.random_op();
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                let is_read = matches!(op, CacheOp::Get { .. } | CacheOp::Sum { .. });
                let expected = if is_read {
                    self.committed.op(self.now, 0, &op).0
                } else {
                    let (expected, records) = tail.op(self.now, end.0, &op);
                    end = end.plus(records);
                    expected
                };
                self.asked.insert(ticket, expected);
                ops.push((CacheTicket(ticket), op));
            }
            let before = self.cache.shard().end();
            self.handle(CacheInput::Ops(ops));
            if end > before && !self.poisoned {
                assert_eq!(self.cache.shard().end(), end, "one record for each write");
                self.tails.push_back((end, tail));
            }
        }

        fn handle(&mut self, input: CacheInput) {
            let mut effects = Vec::new();
            self.cache.handle(TimeMs(self.now), input, &mut effects);
            for effect in effects {
                match effect {
                    CacheEffect::Log(Effect::Write { batch, end }) => {
                        self.in_flight.push_back((batch.base, end));
                        self.journal.insert(batch.base, batch);
                    }
                    CacheEffect::Log(_) => {}
                    CacheEffect::Answer { ticket, outcome } => {
                        let expected = self.asked.remove(&ticket.0).expect("answered once");
                        check(&expected, outcome);
                    }
                }
            }
        }

        fn commit(&mut self) {
            let Some((_, end)) = self.in_flight.pop_front() else {
                return;
            };
            self.settle_model(end);
            self.handle(CacheInput::Log(Input::Written { end }));
        }

        fn settle_model(&mut self, end: Offset) {
            while let Some((_, model)) = self.tails.pop_front_if(|(at, _)| *at <= end) {
                self.committed = model;
            }
        }

        fn fail(&mut self) {
            let Some(&(from, _)) = self.in_flight.front() else {
                return;
            };
            self.journal.split_off(&from);
            self.in_flight.clear();
            self.tails.clear();
            let why = if self.dice.roll(4) == 0 {
                self.poisoned = true;
                WriteFailure::Io
            } else {
                WriteFailure::Full
            };
            self.handle(CacheInput::Log(Input::WriteFailed { from, why }));
        }

        /// Expiry writes records of its own, which the model has to follow.
        fn expire(&mut self) {
            self.now += self.dice.roll(40);
            let before = self.cache.shard().end();
            let mut tail = self
                .tails
                .back()
                .map_or(&self.committed, |(_, model)| model)
                .clone();
            self.handle(CacheInput::Expire);
            let end = self.cache.shard().end();
            if end > before {
                let now = self.now;
                let batch = Arc::clone(&self.journal[&before]);
                for record in records(&batch) {
                    let gone = tail.entries.remove(&record.key.unwrap()).unwrap();
                    assert!(gone.2.unwrap() <= now, "only what expired is deleted");
                }
                self.tails.push_back((end, tail));
            }
        }

        /// What is in the journal is what is there after a kill: everything that was handed to it.
        fn restart(&mut self) {
            let end = self.cache.shard().end();
            self.settle_model(end);
            self.in_flight.clear();
            self.asked.clear();
            self.poisoned = false;
            let snapshot = (self.dice.roll(2) == 0).then(|| self.snapshot());
            let mut fold = match snapshot {
                Some(bytes) => {
                    let loaded = snapshot::read(&mut bytes.as_slice()).unwrap();
                    Fold::from_snapshot(loaded, options().once)
                }
                None => Fold::new(options().once),
            };
            let covered = fold.covered();
            // One batch more than needed: what is known changes nothing.
            let from = self.journal.range(..covered).next_back();
            let from = from.map_or(Offset(0), |(base, _)| *base);
            for batch in self.journal.range(from..).map(|(_, batch)| batch) {
                for record in records(batch) {
                    fold.observe(&record).unwrap();
                }
            }
            self.cache = open(end, fold);
            self.check_state();
        }

        fn snapshot(&self) -> Vec<u8> {
            let mut writer = snapshot::Writer::default();
            let mut out = snapshot::head(self.cache.shard().committed());
            let mut after: Option<Key> = None;
            loop {
                let rows = self.cache.walk(b"", after.as_deref()).take(3);
                let rows: Vec<_> = rows.map(|(key, entry)| (Key::clone(key), entry)).collect();
                let Some((last, _)) = rows.last() else { break };
                after = Some(Key::clone(last));
                out.extend(writer.entries(rows.iter().map(|(key, entry)| (key, *entry))));
            }
            out.extend(writer.sums(self.cache.counters(None)));
            out.extend(writer.once(self.cache.remembered(Offset(0))));
            out.extend(writer.end());
            out
        }

        fn check_state(&self) {
            let entries: BTreeMap<Bytes, (u64, Option<u64>)> = self
                .cache
                .walk(b"", None)
                .map(|(key, entry)| {
                    let expires = entry.expires.map(|at| at.0);
                    (Bytes::copy_from_slice(key), (entry.offset.0, expires))
                })
                .collect();
            let expected = self.committed.entries.iter();
            let expected: BTreeMap<_, _> = expected
                .map(|(key, (_, version, expires))| (key.clone(), (*version, *expires)))
                .collect();
            assert_eq!(entries, expected);
            let sums: BTreeMap<Bytes, i64> = self
                .cache
                .counters(None)
                .map(|(key, sum)| (Bytes::copy_from_slice(key), sum.sum))
                .collect();
            assert_eq!(sums, self.committed.sums);
        }

        /// Drops from the journal whatever compaction may drop.
        fn compact(&mut self) {
            let end = self.cache.shard().committed();
            self.handle(CacheInput::Log(Input::Flushed { end }));
            let mut effects = Vec::new();
            if !self.poisoned {
                let now = TimeMs(self.now);
                let mut after = None;
                loop {
                    after = self
                        .cache
                        .checkpoint(now, end, after.as_ref(), &mut effects);
                    if after.is_none() {
                        break;
                    }
                }
            }
            for effect in effects {
                if let CacheEffect::Log(Effect::Write { batch, end }) = effect {
                    let tail = self
                        .tails
                        .back()
                        .map_or(&self.committed, |(_, model)| model);
                    self.tails.push_back((end, tail.clone()));
                    self.in_flight.push_back((batch.base, end));
                    self.journal.insert(batch.base, batch);
                }
            }
            let now = TimeMs(self.now);
            let mut kept = BTreeMap::new();
            for (base, batch) in self.journal.range(..end) {
                let stays: Vec<Record> = records(batch)
                    .into_iter()
                    .filter(|record| {
                        let form = Keyed::read(record).unwrap();
                        let time = TimeMs(record.timestamp_ms as u64);
                        self.cache.keeps(&form, record.offset, time, now)
                    })
                    .collect();
                kept.insert(*base, stays);
            }
            // The rest of the log is not touched; what was dropped must change nothing.
            let mut fold = Fold::new(options().once);
            for record in kept.into_values().flatten() {
                fold.observe(&record).unwrap();
            }
            let rest: Vec<_> = self.journal.range(end..).map(|(_, batch)| batch).collect();
            for record in rest.into_iter().flat_map(|batch| records(batch)) {
                fold.observe(&record).unwrap();
            }
            if self.in_flight.is_empty() {
                let compacted = open(self.cache.shard().end(), fold);
                assert!(compacted.walk(b"", None).eq(self.cache.walk(b"", None)));
                let sums = |cache: &CacheShard| -> Vec<(Key, i64)> {
                    let sums = cache.counters(None);
                    sums.map(|(key, sum)| (Key::clone(key), sum.sum)).collect()
                };
                assert_eq!(sums(&compacted), sums(&self.cache));
                let ids = |cache: &CacheShard| -> Vec<(Key, i64)> {
                    let known = cache.remembered(Offset(0));
                    known
                        .map(|(key, known)| (Key::clone(key), known.result))
                        .collect()
                };
                assert_eq!(ids(&compacted), ids(&self.cache));
            }
        }
    }

    fn records(batch: &Batch) -> Vec<Record> {
        Records::new(batch.log().unwrap())
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn check(expected: &Expected, outcome: Result<CacheAnswer, CacheRefused>) {
        let told = match outcome {
            Ok(CacheAnswer::Value(found)) => {
                let Expected::Value(want) = expected else {
                    panic!("{expected:?}")
                };
                assert_eq!(
                    found.as_ref().map(|found| found.version.0),
                    want.as_ref().map(|want| want.1)
                );
                if let (Some(found), Some(want)) = (found, want) {
                    assert_eq!(found.length as usize, want.0.len());
                    assert!(found.value.is_none_or(|value| value == want.0));
                }
                return;
            }
            Ok(CacheAnswer::Deleted(found)) => {
                let Expected::Deleted(want) = expected else {
                    panic!("{expected:?}")
                };
                assert_eq!(found.is_some(), want.is_some());
                let value = found.and_then(|found| found.value);
                assert!(value.is_none_or(|value| Some(value) == *want));
                return;
            }
            Ok(CacheAnswer::Put { version }) => Expected::Put(version.0),
            Ok(CacheAnswer::Unmet { current }) => Expected::Unmet(current.map(|at| at.0)),
            Ok(CacheAnswer::Sum { sum, .. }) => Expected::Sum(sum),
            Ok(CacheAnswer::Page { .. }) => Expected::Any,
            Err(CacheRefused::Overflow { .. }) => Expected::Overflow,
            Err(CacheRefused::IdReused { .. }) => Expected::Reused,
            // Whatever was decided upon a write that failed fails with it.
            Err(CacheRefused::Append(_)) => return,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(told, *expected);
    }

    #[test]
    fn a_shard_does_what_the_model_does_through_failures_and_restarts() {
        for seed in 0..SEEDS {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                match world.dice.roll(24) {
                    0 => world.fail(),
                    1 => world.expire(),
                    2 => world.restart(),
                    3 => world.compact(),
                    4..=12 => world.commit(),
                    _ => world.ask(),
                }
                if world.poisoned {
                    world.restart();
                }
            }
            while !world.in_flight.is_empty() {
                world.commit();
            }
            assert!(world.asked.is_empty(), "seed {seed}: every op is answered");
            world.check_state();
        }
    }
}
