//! Random inputs for the engine, with a reference model beside it that predicts every effect, and
//! a journal that reports late, fails, and drops what it was handed before its failure was known.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod model;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use felix_engine::{
    AckWhen, Append, Appended, Batch, CloseReason, CommitWhen, Draft, Effect, Input, Page,
    Produced, ProducerTable, ReaderId, Shard, ShardOptions, Start, Storage, Ticket, WriteFailure,
    payload_digest,
};
use felix_model::{InternalHeaders, Offset, Payloads, ProducerId, TimeMs, records_from_payloads};
use model::journal::{Disk, Report};
use model::ops::{Op, op, options};
use model::{Asked, Event, Model};
use proptest::prelude::*;

/// As many batches of one producer as are remembered, so that the model may forget none.
const SEQUENCES: u64 = 64;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_does_what_the_reference_model_predicts(
        options in options(),
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let mut pair = Pair::new(options);
        let readers = [Op::Subscribe(0, 0, 0), Op::Subscribe(1, 0, 0)];
        for op in readers.into_iter().chain(ops) {
            pair.run(op);
        }
        pair.wind_up();
    }
}

struct Pair {
    shard: Shard,
    model: Model,
    disk: Disk,
    now: u64,
    tickets: u64,
    /// Tickets that are owed an answer, in order.
    owed: VecDeque<u64>,
    /// What each ticket asked to append.
    asked: BTreeMap<u64, Bytes>,
    reads: Vec<(ReaderId, u64, u64)>,
    is_closed: bool,
}

impl Pair {
    fn new(options: ShardOptions) -> Self {
        Self {
            shard: Shard::new(options, ProducerTable::new(options.limits.producers_max)),
            model: Model::new(options),
            disk: Disk::default(),
            now: 0,
            tickets: 0,
            owed: VecDeque::new(),
            asked: BTreeMap::new(),
            reads: Vec::new(),
            is_closed: false,
        }
    }

    fn run(&mut self, op: Op) {
        let durable = self.model.is_durable();
        match op {
            Op::Append {
                size,
                count,
                ack,
                expected,
                control,
            } => {
                let text = format!("{} ", self.tickets).repeat([1, 10, 80, 200][size]);
                let payloads = vec![text.as_bytes(); count];
                let ack = match ack {
                    0 => AckWhen::Accepted,
                    1 => AckWhen::Never,
                    _ => AckWhen::Committed,
                };
                let expected =
                    expected.map(|delta| self.model.end().saturating_add_signed(delta.into()));
                self.append(&payloads, ack, expected, None, control && durable);
            }
            Op::Produce {
                producer,
                ahead,
                twist,
                early,
            } => {
                let next = self.model.next_sequence(producer).min(SEQUENCES - 1);
                let sequence = next.saturating_add_signed(ahead.into());
                let text = format!("{producer}/{sequence}{}", if twist { "!" } else { "" });
                let payloads = vec![text.as_bytes(); 1 + sequence as usize % 2];
                let digest = payload_digest(payloads.iter().copied());
                let produced = Produced {
                    producer: ProducerId(producer),
                    sequence,
                    digest,
                };
                let ack = if early {
                    AckWhen::Accepted
                } else {
                    AckWhen::Committed
                };
                self.append(&payloads, ack, None, Some(produced), false);
            }
            Op::Write(batches) if durable => self.disk.write(batches, batches % 2 == 0),
            Op::Fail(why) if durable => self.disk.fail(match why {
                0 => WriteFailure::Io,
                1 => WriteFailure::Poisoned,
                _ => WriteFailure::Full,
            }),
            Op::Report(count) => (0..count).for_each(|_| self.report()),
            Op::Subscribe(id, kind, at) => {
                let reader = ReaderId(id);
                let start = match kind {
                    0 => Start::Latest,
                    1 => Start::Earliest,
                    _ => Start::Offset(Offset(at)),
                };
                self.model.subscribe(reader, start);
                self.handle(Input::Subscribe { reader, start });
            }
            Op::Pull(id, max) => {
                let (reader, max_bytes) = (ReaderId(id), [0, 700, 2000, u32::MAX][max]);
                self.model.pull(reader, max_bytes);
                self.handle(Input::Pull { reader, max_bytes });
            }
            Op::Unsubscribe(id) => {
                self.model.unsubscribe(ReaderId(id));
                self.handle(Input::Unsubscribe {
                    reader: ReaderId(id),
                });
            }
            Op::AnswerRead(which, take) if which < self.reads.len() => self.answer(which, take),
            Op::SpoilRead(which, hole) if which < self.reads.len() => self.spoil(which, hole),
            Op::Trim(at) if durable => {
                let mut ends = self.disk.written.iter().map(|batch| batch.end.0);
                let start = ends.rfind(|&end| end <= at.min(self.model.committed));
                self.disk.start = self.disk.start.max(start.unwrap_or(0));
                self.disk
                    .reports
                    .push_back(Report::Trimmed(self.disk.start));
            }
            Op::Compact(below, gone) if durable => {
                let below = below.min(self.model.committed);
                let closed = self
                    .disk
                    .written
                    .iter()
                    .filter(|batch| batch.end.0 <= below);
                let some = closed.filter(|batch| gone >> (batch.base.0 % 64) & 1 == 1);
                self.disk.gone.extend(some.map(|batch| batch.base.0));
            }
            Op::Tick(ms) => {
                self.now += ms;
                if self.model.next_timeout().is_some_and(|due| due <= self.now) {
                    self.model.timeout(self.now);
                    self.handle(Input::Timeout);
                }
            }
            Op::Close => self.close(),
            Op::Write(_)
            | Op::Fail(_)
            | Op::AnswerRead(..)
            | Op::SpoilRead(..)
            | Op::Trim(_)
            | Op::Compact(..) => {}
        }
    }

    fn append(
        &mut self,
        payloads: &[&[u8]],
        ack: AckWhen,
        expected: Option<u64>,
        producer: Option<Produced>,
        control: bool,
    ) {
        let native = Payloads::build(payloads.iter().copied()).unwrap();
        let batch = if self.model.is_durable() && !payloads.is_empty() {
            let mut log =
                records_from_payloads(&native, None, 0, &InternalHeaders::default()).unwrap();
            // The shard reads only this bit; the checksum is the journal's concern.
            log[22] |= u8::from(control) << 5;
            Draft::from_log(log).unwrap().with_native(native.clone())
        } else {
            Draft::from_payloads(native.clone(), TimeMs(self.now))
        };
        let ticket = self.tickets;
        self.tickets += 1;
        self.asked.insert(ticket, native.bytes);
        if ack != AckWhen::Never {
            self.owed.push_back(ticket);
        }
        let (count, bytes) = (u64::from(batch.count()), batch.bytes_len());
        self.model.append(
            self.now,
            Asked {
                ticket,
                count,
                bytes,
                control,
                expected,
                producer,
                ack,
            },
        );
        let expected = expected.map(Offset);
        self.handle(Input::Append(Append {
            ticket: Ticket(ticket),
            batch,
            expected,
            producer,
            ack,
        }));
    }

    fn report(&mut self) {
        let Some(report) = self.disk.reports.pop_front() else {
            return;
        };
        let input = match report {
            Report::Written(end) => {
                self.model.written(end);
                Input::Written { end: Offset(end) }
            }
            Report::Flushed(end) => {
                self.model.commit(end);
                Input::Flushed { end: Offset(end) }
            }
            Report::Failed(from, why) => {
                self.model.failed(from, why);
                Input::WriteFailed {
                    from: Offset(from),
                    why,
                }
            }
            Report::Trimmed(start) => {
                self.model.trimmed(start);
                Input::Trimmed {
                    start: Offset(start),
                }
            }
        };
        self.handle(input);
    }

    fn answer(&mut self, which: usize, take: usize) {
        let (reader, from, until) = self.reads.remove(which);
        if from < self.disk.start {
            let oldest = self.disk.start;
            self.model.page(reader, from, Err(Some(oldest)));
            let page = Page::BelowStart {
                oldest: Offset(oldest),
            };
            return self.handle(Input::PageRead {
                reader,
                from: Offset(from),
                page,
            });
        }
        let wanted = |batch: &&Arc<Batch>| batch.end.0 > from && batch.end.0 <= until;
        let found = self.disk.written.iter().filter(wanted).take(take);
        if found
            .clone()
            .any(|batch| self.disk.gone.contains(&batch.base.0))
        {
            return self.answer_sparse(reader, from, &found.cloned().collect::<Vec<_>>());
        }
        // As it would come from disk: without what only memory knows.
        let found: Vec<_> = found
            .map(|batch| Arc::new(Batch::from_log(batch.log().unwrap().clone()).unwrap()))
            .collect();
        self.page(reader, from, found);
    }

    /// Some of the batches that were read are gone.
    fn answer_sparse(&mut self, reader: ReaderId, from: u64, read: &[Arc<Batch>]) {
        let gone = &self.disk.gone;
        let left = read.iter().filter(|batch| !gone.contains(&batch.base.0));
        let left: Vec<_> = left.cloned().collect();
        let bases: Vec<u64> = left.iter().map(|batch| batch.base.0).collect();
        let next = read.last().unwrap().end;
        self.model.sparse_page(reader, from, &bases, next.0);
        self.handle(Input::PageRead {
            reader,
            from: Offset(from),
            page: Page::Sparse {
                batches: left,
                next,
            },
        });
    }

    fn spoil(&mut self, which: usize, hole: bool) {
        let (reader, from, _) = self.reads.remove(which);
        if hole {
            let beyond = self.disk.written.iter().filter(|batch| batch.base.0 > from);
            return self.page(reader, from, beyond.cloned().collect());
        }
        self.model.page(reader, from, Err(None));
        self.handle(Input::PageRead {
            reader,
            from: Offset(from),
            page: Page::Unreadable,
        });
    }

    fn page(&mut self, reader: ReaderId, from: u64, batches: Vec<Arc<Batch>>) {
        let ranges: Vec<_> = batches
            .iter()
            .map(|batch| (batch.base.0, batch.end.0))
            .collect();
        self.model.page(reader, from, Ok(&ranges));
        let page = Page::Batches(batches);
        self.handle(Input::PageRead {
            reader,
            from: Offset(from),
            page,
        });
    }

    fn close(&mut self) {
        self.model.close(CloseReason::Moved);
        self.handle(Input::Close {
            reason: CloseReason::Moved,
        });
    }

    /// Lets the journal finish, closes, and sees that nobody is left without an answer.
    fn wind_up(mut self) {
        self.disk.write(usize::MAX, true);
        while !self.disk.reports.is_empty() {
            self.report();
        }
        self.close();
        assert!(self.is_closed, "nothing is in flight, so it is closed");
        assert!(
            self.owed.is_empty(),
            "nobody is left without an answer: {:?}",
            self.owed
        );
        assert_eq!(self.shard.readers().count(), 0);
    }

    fn handle(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shard.handle(TimeMs(self.now), input, &mut effects);
        let events: Vec<Event> = effects
            .into_iter()
            .map(|effect| self.perform(effect))
            .collect();
        compare(events, self.model.events());
        self.compare_state();
    }

    /// Carries an effect out, and holds it against what the journal has.
    fn perform(&mut self, effect: Effect) -> Event {
        match effect {
            Effect::Write { batch, end } => {
                assert_eq!(batch.end, end);
                let event = Event::Write {
                    base: batch.base.0,
                    end: end.0,
                };
                self.disk.queue.push_back(batch);
                event
            }
            Effect::Reply { ticket, outcome } => {
                assert_eq!(
                    self.owed.pop_front(),
                    Some(ticket.0),
                    "answers leave in order, once"
                );
                if let Ok(Appended::Committed { base, .. } | Appended::Duplicate { base, .. }) =
                    outcome
                    && self.model.is_durable()
                {
                    self.is_on_disk(base, &self.asked[&ticket.0]);
                }
                Event::Reply(ticket.0, outcome)
            }
            Effect::Subscribed {
                reader,
                start,
                live,
            } => Event::Subscribed(reader, start.0, live.0),
            Effect::SubscribeRefused { reader, why } => Event::SubscribeRefused(reader, why),
            Effect::Deliver {
                reader,
                from,
                batches,
                skipped_before: skipped,
                lost,
            } => {
                for batch in batches.iter().filter(|_| self.model.is_durable()) {
                    let mut written = self.disk.written.iter();
                    let written = written.find(|written| written.base == batch.base);
                    assert_eq!(
                        written.expect("only what is written is delivered").log(),
                        batch.log()
                    );
                }
                let batches = batches.iter().map(|batch| batch.base.0).collect();
                Event::Deliver {
                    reader,
                    from: from.0,
                    batches,
                    skipped,
                    lost,
                }
            }
            Effect::Read {
                reader,
                from,
                max_bytes,
                until,
            } => {
                self.reads.push((reader, from.0, until.0));
                Event::Read {
                    reader,
                    from: from.0,
                    max_bytes,
                    until: until.0,
                }
            }
            Effect::ReaderEnded { reader, why } => Event::Ended(reader, why),
            Effect::Closed => {
                self.is_closed = true;
                Event::Closed
            }
        }
    }

    fn is_on_disk(&self, base: Offset, payloads: &Bytes) {
        let batch = self.disk.written.iter().find(|batch| batch.base == base);
        let batch = batch.expect("what is acknowledged is written");
        assert_eq!(&batch.native().unwrap().bytes, payloads);
        let commit = CommitWhen::Flushed;
        if self.shard.options().storage == (Storage::Durable { commit }) {
            assert!(
                batch.end.0 <= self.disk.flushed,
                "what is acknowledged is flushed"
            );
        }
    }

    fn compare_state(&self) {
        let (shard, model) = (&self.shard, &self.model);
        let marks = (shard.start().0, shard.committed().0, shard.end().0);
        assert_eq!(marks, (model.oldest(), model.committed, model.end()));
        assert_eq!(shard.is_poisoned(), model.poisoned);
        assert_eq!(
            shard.next_timeout().map(|time| time.0),
            model.next_timeout()
        );
        let views = shard.readers();
        let views: Vec<_> = views
            .map(|view| (view.reader, view.position.0, view.lost, view.waiting))
            .collect();
        assert_eq!(views, model.readers());
        let stats = shard.stats();
        assert_eq!(stats.lost_records, model.lost_records());
        if let Storage::Memory { ring_bytes, .. } = shard.options().storage {
            assert!(
                stats.window_bytes <= ring_bytes,
                "{} are held",
                stats.window_bytes
            );
        }
    }
}

/// In which order readers are woken does not matter; everything else has its order.
fn compare(happened: Vec<Event>, predicted: Vec<Event>) {
    let is_reading = |event: &Event| matches!(event, Event::Deliver { .. } | Event::Read { .. });
    let (mut reading, others): (Vec<_>, Vec<_>) = happened.into_iter().partition(is_reading);
    let (mut predicted_reading, predicted): (Vec<_>, Vec<_>) =
        predicted.into_iter().partition(is_reading);
    assert_eq!(others, predicted);
    let by_text = |event: &Event| format!("{event:?}");
    reading.sort_by_key(by_text);
    predicted_reading.sort_by_key(by_text);
    assert_eq!(reading, predicted_reading);
}
