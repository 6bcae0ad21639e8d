//! The state of entities beside a model of it: commits in flight that fail, restarts from the log and
//! from snapshots, retries.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use felix_engine::keyed::{OnceBounds, snapshot};
    use felix_engine::state::{
        CommitOp, CommitRefused, Committed, Precondition, StateAnswer, StateFold, StateOptions,
        StateView,
    };
    use felix_engine::{
        AckWhen, Append, AppendRefused, Appended, CommitWhen, Draft, Effect, Input, ProducerTable,
        Shard, ShardOptions, Ticket, WriteFailure,
    };
    use felix_model::forms::{Change, Commit};
    use felix_model::{InternalHeaders, Offset, Payloads, Record, Records, TimeMs};
    use proptest::prelude::*;

    const OPTIONS: StateOptions = StateOptions {
        commit_bytes_max: 1_000,
        value_bytes: 1 << 20,
        once: OnceBounds {
            age_ms: 1_000_000,
            keys_min: 1_000,
            keys_max: 10_000,
        },
    };

    type Outcome = Result<Committed, CommitRefused>;

    /// A shard with its view, and the log as the disk has it.
    struct World {
        shard: Shard,
        view: StateView,
        log: Vec<Bytes>,
        answers: BTreeMap<u64, Outcome>,
        tickets: u64,
        now: u64,
    }

    impl World {
        fn new() -> Self {
            Self::over(Vec::new(), StateFold::new(OPTIONS.once))
        }

        fn over(log: Vec<Bytes>, fold: StateFold) -> Self {
            let mut options = ShardOptions::durable(CommitWhen::Written);
            options.end = Offset(log.len() as u64);
            Self {
                shard: Shard::new(options, ProducerTable::new(8)),
                view: StateView::new(OPTIONS, fold),
                log,
                answers: BTreeMap::new(),
                tickets: 0,
                now: 0,
            }
        }

        fn commit(&mut self, op: CommitOp) -> u64 {
            self.tickets += 1;
            let (mut effects, mut answers) = (Vec::new(), Vec::new());
            let asked = (Ticket(self.tickets), op);
            let now = TimeMs(self.now);
            self.view
                .commit(now, &mut self.shard, asked, &mut effects, &mut answers);
            self.carry_out(effects, answers);
            self.tickets
        }

        fn publish(&mut self) {
            self.tickets += 1;
            let payloads =
                Payloads::build([b"plain".as_slice()]).unwrap_or_else(|why| panic!("{why}"));
            let headers = InternalHeaders::default();
            let log = felix_model::records_from_payloads(&payloads, None, 0, &headers);
            let batch = log.map(Draft::from_log);
            let Ok(Ok(batch)) = batch else {
                panic!("{batch:?}");
            };
            let append = Append {
                ticket: Ticket(self.tickets),
                batch,
                expected: None,
                producer: None,
                ack: AckWhen::Committed,
            };
            self.give(Input::Append(append));
        }

        fn give(&mut self, input: Input) {
            let mut effects = Vec::new();
            self.shard.handle(TimeMs(self.now), input, &mut effects);
            self.carry_out(effects, Vec::new());
        }

        fn carry_out(&mut self, effects: Vec<Effect>, mut answers: Vec<StateAnswer>) {
            for effect in effects {
                match effect {
                    Effect::Write { batch, .. } => self.log.extend(batch.log().cloned()),
                    Effect::Reply { ticket, outcome } => {
                        let outcome =
                            outcome
                                .map_err(CommitRefused::from)
                                .map(|appended| Committed {
                                    offset: appended.base().unwrap_or(Offset::MAX),
                                    repeated: matches!(appended, Appended::Duplicate { .. }),
                                });
                        self.answer(ticket, outcome);
                    }
                    Effect::Subscribed { .. }
                    | Effect::SubscribeRefused { .. }
                    | Effect::Deliver { .. }
                    | Effect::Read { .. }
                    | Effect::ReaderEnded { .. }
                    | Effect::Closed => {}
                }
            }
            self.view.follow(&self.shard, &mut answers);
            for StateAnswer { ticket, outcome } in answers {
                self.answer(ticket, outcome);
            }
        }

        fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
            let before = self.answers.insert(ticket.0, outcome);
            assert_eq!(before, None, "{ticket:?} is answered once");
        }

        fn written(&mut self, end: u64) {
            self.give(Input::Written { end: Offset(end) });
        }

        fn fail(&mut self, from: u64, why: WriteFailure) {
            self.log.truncate(from as usize);
            self.give(Input::WriteFailed {
                from: Offset(from),
                why,
            });
        }

        fn settle(&mut self) {
            self.written(self.shard.end().0);
        }

        fn now(&mut self, op: CommitOp) -> Outcome {
            let ticket = self.commit(op);
            self.settle();
            self.outcome(ticket)
        }

        fn outcome(&self, ticket: u64) -> Outcome {
            match self.answers.get(&ticket) {
                Some(outcome) => outcome.clone(),
                None => panic!("{ticket} is not answered"),
            }
        }

        fn value(&mut self, entity: &str, key: &str) -> Option<(u64, Bytes)> {
            let found = self.view.get(entity.as_bytes(), key.as_bytes())?;
            let value = found.value.or_else(|| {
                let record = &records(&self.log[found.version.0 as usize])[0];
                let commit = commit_in(record)?;
                self.view.learn(found.version, &commit);
                self.view.get(entity.as_bytes(), key.as_bytes())?.value
            });
            value.map(|value| (found.version.0, value))
        }

        /// The broker is killed: the log remains.
        fn restart(&mut self, fold: StateFold) {
            *self = Self::over(std::mem::take(&mut self.log), fold);
        }

        fn fold(&self, mut fold: StateFold) -> StateFold {
            for batch in &self.log {
                for record in records(batch) {
                    if record.offset >= fold.covered() {
                        fold.observe(&record).unwrap_or_else(|why| panic!("{why}"));
                    }
                }
            }
            fold
        }

        fn snapshot(&mut self) -> Vec<u8> {
            let (mut bytes, mut writing) = self.view.begin_snapshot(self.shard.committed());
            while let Some(piece) = writing.next(&self.view) {
                bytes.extend(piece);
            }
            bytes
        }
    }

    fn records(batch: &Bytes) -> Vec<Record> {
        let records = Records::new(batch).map(|records| records.collect::<Result<Vec<_>, _>>());
        match records {
            Ok(Ok(records)) => records,
            other => panic!("{other:?}"),
        }
    }

    fn commit_in(record: &Record) -> Option<Commit> {
        Commit::read(record).unwrap_or_else(|why| panic!("{why}"))
    }

    fn put(key: &str, value: &str) -> Change {
        Change::Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        }
    }

    fn delete(key: &str) -> Change {
        Change::Delete {
            key: Bytes::copy_from_slice(key.as_bytes()),
        }
    }

    fn op(entity: &str, event: &str, changes: Vec<Change>) -> CommitOp {
        CommitOp {
            commit: Commit {
                entity: Bytes::copy_from_slice(entity.as_bytes()),
                event: Bytes::copy_from_slice(event.as_bytes()),
                changes,
                idempotency: None,
            },
            preconditions: Vec::new(),
            expected: None,
        }
    }

    fn once(mut op: CommitOp, id: &'static str) -> CommitOp {
        op.commit.idempotency = Some(id.into());
        op
    }

    fn if_at(mut op: CommitOp, key: &'static str, version: Option<u64>) -> CommitOp {
        op.preconditions.push(Precondition {
            key: key.into(),
            version: version.map(Offset),
        });
        op
    }

    fn landed(offset: u64) -> Outcome {
        Ok(Committed {
            offset: Offset(offset),
            repeated: false,
        })
    }

    #[test]
    fn an_event_and_its_changes_become_visible_together() {
        let mut world = World::new();
        world.publish();
        let ticket = world.commit(op(
            "order-7",
            "paid",
            vec![put("total", "12"), put("state", "paid")],
        ));
        assert_eq!(world.value("order-7", "total"), None);
        assert_eq!(world.view.as_of(), None);
        world.written(2);
        assert_eq!(world.outcome(ticket), landed(1));
        assert_eq!(world.value("order-7", "total"), Some((1, "12".into())));
        assert_eq!(world.view.as_of(), Some(Offset(1)));
        world
            .now(op(
                "order-7",
                "unpaid",
                vec![delete("state"), put("total", "0")],
            ))
            .unwrap();
        assert_eq!(world.value("order-7", "state"), None);
        assert_eq!(world.value("order-7", "total"), Some((2, "0".into())));
    }

    #[test]
    fn a_commit_that_was_refused_or_lost_is_none_that_the_log_has() {
        let mut world = World::new();
        let mut refused = op("e", "x", vec![put("a", "1")]);
        refused.expected = Some(Offset(7));
        world.now(refused).unwrap_err();
        world
            .now(if_at(op("e", "x", vec![]), "a", Some(3)))
            .unwrap_err();
        assert!(!world.view.has_commits());
        world.commit(op("e", "x", vec![put("a", "1")]));
        assert!(world.view.has_commits());
        world.fail(0, WriteFailure::Full);
        assert!(!world.view.has_commits());
        world.now(op("e", "x", vec![])).unwrap();
        assert!(world.view.has_commits());
        assert!(world.fold(StateFold::new(OPTIONS.once)).has_commits());
    }

    #[test]
    fn what_can_be_judged_without_the_state_is() {
        let long = "k".repeat(2_000);
        let refused = op("e", "x", vec![put(&long, "")]).check(1_000_000);
        assert!(matches!(refused, Err(CommitRefused::KeyLength { .. })));
        let refused = op("e", "x", vec![put("a", "1")]).check(3);
        let (bytes, limit) = (4, 3);
        assert_eq!(refused, Err(CommitRefused::TooLarge { bytes, limit }));
    }

    #[test]
    fn changes_are_applied_in_order() {
        let mut world = World::new();
        let changes = vec![
            put("a", "1"),
            delete("a"),
            put("a", "2"),
            put("b", "1"),
            delete("b"),
        ];
        world.now(op("e", "x", changes)).unwrap();
        assert_eq!(world.value("e", "a"), Some((0, "2".into())));
        assert_eq!(world.value("e", "b"), None);
    }

    #[test]
    fn entities_that_use_the_same_key_stay_apart() {
        let mut world = World::new();
        world.now(op("a", "x", vec![put("bkey", "1")])).unwrap();
        world.now(op("ab", "x", vec![put("key", "2")])).unwrap();
        world.now(op("", "x", vec![put("abkey", "3")])).unwrap();
        assert_eq!(world.value("a", "bkey"), Some((0, "1".into())));
        assert_eq!(world.value("ab", "key"), Some((1, "2".into())));
        assert_eq!(world.value("", "abkey"), Some((2, "3".into())));
        assert_eq!(world.value("a", "key"), None);
    }

    #[test]
    fn a_state_is_listed_in_pages() {
        let mut world = World::new();
        let changes = vec![
            put("a/1", "1"),
            put("a/2", "2"),
            put("a/3", "3"),
            put("b", "4"),
        ];
        world.now(op("e", "x", changes)).unwrap();
        world.now(op("f", "x", vec![put("a/9", "9")])).unwrap();
        let (rows, more) = world.view.list(b"e", b"a/", None, 2);
        let keys: Vec<_> = rows.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!((keys, more), (vec!["a/1".into(), "a/2".into()], true));
        let (rows, more) = world.view.list(b"e", b"a/", Some(b"a/2"), 2);
        assert_eq!(rows[0].1.value, Some("3".into()));
        assert_eq!((rows.len(), more), (1, false));
        assert_eq!(world.view.list(b"e", b"", None, 10).0.len(), 4);
    }

    #[test]
    fn a_precondition_is_judged_with_the_commits_in_flight() {
        let mut world = World::new();
        let first = world.commit(if_at(op("e", "x", vec![put("k", "1")]), "k", None));
        let second = world.commit(if_at(op("e", "y", vec![put("k", "2")]), "k", None));
        let third = world.commit(if_at(op("e", "z", vec![delete("k")]), "k", Some(0)));
        assert!(
            world.answers.is_empty(),
            "it is not certain yet that the first will be there"
        );
        world.written(1);
        assert_eq!(world.outcome(first), landed(0));
        let mismatch = CommitRefused::VersionMismatch {
            index: 0,
            current: Some(Offset(0)),
        };
        assert_eq!(world.outcome(second), Err(mismatch));
        world.settle();
        assert_eq!(world.outcome(third), landed(1));
        assert_eq!(world.now(if_at(op("e", "x", vec![]), "k", None)), landed(2));
    }

    #[test]
    fn what_was_judged_by_a_commit_that_failed_fails_with_it() {
        let mut world = World::new();
        world.now(op("e", "x", vec![put("k", "1")])).unwrap();
        let doomed = world.commit(once(op("e", "x", vec![put("k", "2")]), "id"));
        let retried = world.commit(once(op("e", "x", vec![put("k", "2")]), "id"));
        let misled = world.commit(if_at(op("e", "y", vec![]), "k", Some(0)));
        world.fail(1, WriteFailure::Full);
        let full = Err(CommitRefused::Append(AppendRefused::StorageFull));
        for ticket in [doomed, retried, misled] {
            assert_eq!(world.outcome(ticket), full);
        }
        assert_eq!(world.value("e", "k"), Some((0, "1".into())));
        assert_eq!(
            world.now(if_at(op("e", "y", vec![]), "k", Some(0))),
            landed(1)
        );
        assert_eq!(
            world.now(once(op("e", "x", vec![put("k", "2")]), "id")),
            landed(2)
        );
    }

    #[test]
    fn a_commit_sent_again_lands_once_and_is_answered_alike() {
        let mut world = World::new();
        world.publish();
        let send = || once(op("e", "x", vec![put("k", "1")]), "id");
        let sent = world.commit(send());
        let again = world.commit(send());
        world.settle();
        assert_eq!(world.outcome(sent), landed(1));
        let repeated = Ok(Committed {
            offset: Offset(1),
            repeated: true,
        });
        assert_eq!(world.outcome(again), repeated);
        let other = once(op("e", "y", vec![]), "id");
        let reused = CommitRefused::IdReused { offset: Offset(1) };
        assert_eq!(world.now(other), Err(reused));
        // Its condition was judged when it landed.
        let mut late = if_at(send(), "k", None);
        late.expected = Some(Offset(1));
        assert_eq!(world.now(late.clone()), repeated);
        let fold = world.fold(StateFold::new(OPTIONS.once));
        world.restart(fold);
        assert_eq!(world.now(late), repeated);
        assert_eq!(world.log.len(), 2);
    }

    #[test]
    fn an_expected_offset_counts_everything_in_the_log() {
        let mut world = World::new();
        world.publish();
        let mut wrong = op("e", "x", vec![put("k", "1")]);
        wrong.expected = Some(Offset(0));
        let mismatch = AppendRefused::OffsetMismatch { tail: Offset(1) };
        assert_eq!(world.now(wrong.clone()), Err(mismatch.into()));
        assert_eq!(world.value("e", "k"), None);
        wrong.expected = Some(Offset(1));
        assert_eq!(world.now(wrong), landed(1));
    }

    #[test]
    fn what_is_too_large_or_too_many_is_refused_and_changes_nothing() {
        let mut world = World::new();
        let long = "x".repeat(1_001);
        let refused = [
            (
                op("e", &long, vec![]),
                CommitRefused::TooLarge {
                    bytes: 1_002,
                    limit: 1_000,
                },
            ),
            (
                op("e", "x", vec![put(&"k".repeat(1_025), "")]),
                CommitRefused::KeyLength {
                    bytes: 1_025,
                    limit: 1_024,
                },
            ),
            (
                op(&"e".repeat(4_097), "x", vec![]),
                CommitRefused::EntityLength {
                    bytes: 4_097,
                    limit: 4_096,
                },
            ),
            (
                op("e", "x", vec![delete("k"); 1_001]),
                CommitRefused::TooMany {
                    count: 1_001,
                    limit: 1_000,
                },
            ),
            (
                once(op("e", "x", vec![]), ""),
                CommitRefused::IdLength {
                    bytes: 0,
                    limit: 128,
                },
            ),
        ];
        for (op, why) in refused {
            assert_eq!(world.now(op), Err(why));
        }
        assert!(world.log.is_empty() && world.view.is_empty());
    }

    #[test]
    fn a_snapshot_that_knows_more_than_the_log_is_not_used() {
        let mut world = World::new();
        for number in 0..5 {
            world
                .now(op("e", "x", vec![put("k", &number.to_string())]))
                .unwrap();
        }
        let bytes = world.snapshot();
        let load = |end| {
            let loaded = snapshot::read(&mut bytes.as_slice()).unwrap();
            StateFold::from_snapshot(loaded, Offset(end), OPTIONS.once)
        };
        assert!(load(4).is_none());
        let fold = load(5).unwrap();
        assert_eq!(fold.covered(), Offset(5));
        world.restart(fold);
        assert_eq!(world.value("e", "k"), Some((4, "4".into())));
        assert_eq!(world.view.as_of(), Some(Offset(4)));
    }

    /// One step of a run: what is done, to which entity and key, under which id.
    type Step = (u8, usize, usize, usize);

    const NAMES: [&str; 3] = ["a", "ab", ""];

    fn random_op((_, entity, key, id): Step, number: usize) -> CommitOp {
        let keys = ["bk", "k", "", "z"];
        let value = number.to_string();
        let mut changes = vec![put(keys[key], &value)];
        if number.is_multiple_of(3) {
            changes.push(delete(keys[(key + 1) % 4]));
        }
        if number.is_multiple_of(5) {
            changes = vec![delete(keys[key])];
        }
        let mut op = op(NAMES[entity], &value, changes);
        if id < 4 {
            // The same id always means the same commit.
            let ids = ["one", "two", "three", "four"];
            op = once(
                self::op(NAMES[id % 3], ids[id], vec![put(keys[id], ids[id])]),
                ids[id],
            );
        }
        op
    }

    /// The state as anybody would fold it from the records of a log.
    fn model(log: &[Bytes]) -> BTreeMap<(Bytes, Bytes), (u64, Bytes)> {
        let mut state = BTreeMap::new();
        for record in log.iter().flat_map(records) {
            let Some(commit) = commit_in(&record) else {
                continue;
            };
            for change in commit.changes {
                let name = (commit.entity.clone(), change.key().clone());
                match change {
                    Change::Put { value, .. } => {
                        state.insert(name, (record.offset.0, value));
                    }
                    Change::Delete { .. } => {
                        state.remove(&name);
                    }
                }
            }
        }
        state
    }

    fn seen(world: &mut World) -> BTreeMap<(Bytes, Bytes), (u64, Bytes)> {
        let mut all = BTreeMap::new();
        for entity in NAMES {
            let (rows, _) = world.view.list(entity.as_bytes(), b"", None, 100);
            for (key, _) in rows {
                let text = String::from_utf8_lossy(&key).into_owned();
                let found = world.value(entity, &text);
                let found =
                    found.unwrap_or_else(|| panic!("{entity}/{text} is listed and not there"));
                all.insert((Bytes::from(entity), key), found);
            }
        }
        all
    }

    proptest! {
        #[test]
        fn the_state_is_the_fold_of_the_committed_log_whatever_fails(
            steps in proptest::collection::vec((0_u8..14, 0_usize..3, 0_usize..4, 0_usize..12), 1..120)
        ) {
            let mut world = World::new();
            let mut landed_once: BTreeMap<Bytes, u64> = BTreeMap::new();
            let mut kept = None;
            for (number, step) in steps.into_iter().enumerate() {
                world.now = number as u64;
                match step.0 {
                    0..=5 => drop(world.commit(random_op(step, number))),
                    6 => world.publish(),
                    7 | 8 => {
                        let open = world.shard.end().0 - world.shard.committed().0;
                        let part = (step.1 as u64 + 1) * open / 3;
                        world.written(world.shard.committed().0 + part);
                    }
                    9 => {
                        let from = world.shard.committed().0.max(world.shard.end().0.saturating_sub(2));
                        world.fail(from, WriteFailure::Full);
                    }
                    10 => kept = Some(world.snapshot()),
                    11 => {
                        // Killed: what was written and not heard of may be there or not.
                        let part = world.shard.committed().0 as usize + step.1;
                        world.log.truncate(part);
                        let end = Offset(world.log.len() as u64);
                        let loaded = kept.as_ref().map(|bytes| snapshot::read(&mut bytes.as_slice()).unwrap());
                        let fold = loaded
                            .and_then(|loaded| StateFold::from_snapshot(loaded, end, OPTIONS.once))
                            .unwrap_or_else(|| {
                                kept = None;
                                StateFold::new(OPTIONS.once)
                            });
                        let fold = world.fold(fold);
                        world.restart(fold);
                    }
                    _ => world.settle(),
                }
                let committed = world.shard.committed().0 as usize;
                let expected = model(&world.log[..committed]);
                prop_assert_eq!(seen(&mut world), expected);
            }
            world.settle();
            for record in world.log.iter().flat_map(records) {
                if let Some(id) = commit_in(&record).and_then(|commit| commit.idempotency) {
                    let before = landed_once.insert(id, record.offset.0);
                    prop_assert_eq!(before, None, "a commit with an id lands once");
                }
            }
        }

        #[test]
        fn compaction_may_drop_what_is_not_kept_and_the_state_stays(
            steps in proptest::collection::vec((0_u8..1, 0_usize..3, 0_usize..4, 0_usize..12), 1..80),
            drops in proptest::collection::vec(any::<bool>(), 80)
        ) {
            let mut world = World::new();
            for (number, step) in steps.into_iter().enumerate() {
                let ticket = world.commit(random_op(step, number));
                world.settle();
                world.outcome(ticket).unwrap();
            }
            let expected = seen(&mut world);
            let mut fold = StateFold::new(OPTIONS.once);
            for (record, drop) in world.log.iter().flat_map(records).zip(drops) {
                let commit = commit_in(&record).unwrap();
                if !drop || world.view.keeps(record.offset, &commit) {
                    fold.observe(&record).unwrap();
                }
            }
            let as_of = world.view.as_of();
            world.restart(fold);
            prop_assert_eq!(seen(&mut world), expected);
            prop_assert_eq!(world.view.as_of(), as_of);
        }
    }
}
