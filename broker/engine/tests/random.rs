//! Random inputs for the engine, with a reference model beside it that predicts every effect, and
//! a journal that reports late, fails, and drops what it was handed before its failure was known.

mod model;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use felix_engine::{
    AckWhen, Append, Appended, Batch, CloseReason, CommitWhen, Draft, Effect, Input, Overflow,
    Page, Produced, ProducerTable, ReaderId, Shard, ShardOptions, Start, Storage, Ticket,
    WriteFailure, payload_digest,
};
use felix_model::{InternalHeaders, Offset, Payloads, ProducerId, TimeMs, records_from_payloads};
use model::{Asked, Event, Model};
use proptest::prelude::*;

/// As many batches of one producer as are remembered, so that the model may forget none.
const SEQUENCES: u64 = 64;

#[derive(Clone, Debug)]
enum Op {
    Append {
        size: usize,
        count: usize,
        ack: u8,
        expected: Option<i8>,
        control: bool,
    },
    Produce {
        producer: u64,
        ahead: i8,
        twist: bool,
        early: bool,
    },
    Write(usize),
    Fail(u8),
    Report(usize),
    Subscribe(u64, u8, u64),
    Pull(u64, usize),
    Unsubscribe(u64),
    AnswerRead(usize, usize),
    SpoilRead(usize, bool),
    Trim(u64),
    Tick(u64),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    let expected = prop_oneof![3 => Just(None), 1 => (-1..2_i8).prop_map(Some)];
    let append = (0..4_usize, 0..8_usize, 0..6_u8, expected, 0..8_u8).prop_map(
        |(size, count, ack, expected, control)| {
            let count = count.min(3);
            Op::Append {
                size,
                count,
                ack,
                expected,
                control: control < 2,
            }
        },
    );
    let ahead = prop_oneof![6 => Just(0), 2 => -3..0_i8, 1 => 1..3_i8];
    let produce =
        (0..3_u64, ahead, 0..4_u8, 0..6_u8).prop_map(|(producer, ahead, twist, early)| {
            Op::Produce {
                producer,
                ahead,
                twist: twist == 0,
                early: early == 0,
            }
        });
    prop_oneof![
        12 => append,
        8 => produce,
        12 => (1..5_usize).prop_map(Op::Write),
        1 => (0..20_u8).prop_map(Op::Fail),
        12 => (1..4_usize).prop_map(Op::Report),
        4 => (0..4_u64, 0..4_u8, 0..200_u64).prop_map(|(id, kind, at)| Op::Subscribe(id, kind, at)),
        12 => (0..4_u64, 0..4_usize).prop_map(|(id, max)| Op::Pull(id, max)),
        2 => (0..4_u64).prop_map(Op::Unsubscribe),
        8 => (0..4_usize, 1..5_usize).prop_map(|(which, take)| Op::AnswerRead(which, take)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(which, hole)| Op::SpoilRead(which, hole)),
        2 => (0..200_u64).prop_map(Op::Trim),
        2 => (0..80_u64).prop_map(Op::Tick),
        1 => (0..20_u8).prop_map(|odds| if odds == 0 { Op::Close } else { Op::Write(9) }),
    ]
}

fn options() -> impl Strategy<Value = ShardOptions> {
    let commit = prop_oneof![Just(CommitWhen::Written), Just(CommitWhen::Flushed)];
    let overflow = prop_oneof![
        Just(Overflow::DropNew),
        Just(Overflow::DropOld),
        Just(Overflow::Block)
    ];
    let storage = prop_oneof![
        3 => commit.prop_map(|commit| Storage::Durable { commit }),
        3 => (500..4000_u64, 300..3000_u64, overflow).prop_map(
            |(ring_bytes, reader_bytes, overflow)| Storage::Memory {
                ring_bytes, reader_bytes, overflow
            }),
    ];
    (storage, 300..2000_u64, 600..9000_u64, 1..4_u32).prop_map(
        |(storage, window_bytes, in_flight_bytes_max, held_max)| {
            let mut options = ShardOptions::durable(CommitWhen::Written);
            options.storage = storage;
            options.limits.window_bytes = window_bytes;
            options.limits.in_flight_bytes_max = in_flight_bytes_max;
            options.limits.held_max = held_max;
            options.limits.held_ms_max = 100;
            options
        },
    )
}

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

/// What the journal has to say, in order.
#[derive(Clone, Copy, Debug)]
enum Report {
    Written(u64),
    Flushed(u64),
    Failed(u64, WriteFailure),
    Trimmed(u64),
}

/// A journal that is as slow as the operations want it to be.
#[derive(Debug, Default)]
struct Disk {
    queue: VecDeque<Arc<Batch>>,
    written: Vec<Arc<Batch>>,
    flushed: u64,
    start: u64,
    /// It failed; batches are dropped until one begins at its end.
    dropping: bool,
    dead: bool,
    reports: VecDeque<Report>,
}

impl Disk {
    fn end(&self) -> u64 {
        self.written.last().map_or(0, |batch| batch.end.0)
    }

    fn write(&mut self, batches: usize, flush: bool) {
        for _ in 0..batches {
            let Some(batch) = self.queue.pop_front() else {
                break;
            };
            if self.dead || (self.dropping && batch.base.0 != self.end()) {
                continue;
            }
            assert_eq!(
                batch.base.0,
                self.end(),
                "the journal is handed a log without holes"
            );
            self.dropping = false;
            self.written.push(batch);
        }
        if self.dead {
            return;
        }
        self.reports.push_back(Report::Written(self.end()));
        if flush {
            self.flushed = self.end();
            self.reports.push_back(Report::Flushed(self.end()));
        }
    }

    fn fail(&mut self, why: WriteFailure) {
        let end = self.end();
        while self.dropping
            && self
                .queue
                .pop_front_if(|batch| batch.base.0 != end)
                .is_some()
        {}
        if self.dead || (why != WriteFailure::Poisoned && self.queue.is_empty()) {
            return;
        }
        let from = if why == WriteFailure::Poisoned {
            self.flushed
        } else {
            self.end()
        };
        // Queued batches fail one group at a time; those behind are dropped when their turn comes.
        self.queue.pop_front();
        self.dropping = true;
        self.dead = why != WriteFailure::Full;
        self.reports.push_back(Report::Failed(from, why));
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
            Op::Tick(ms) => {
                self.now += ms;
                if self.model.next_timeout().is_some_and(|due| due <= self.now) {
                    self.model.timeout(self.now);
                    self.handle(Input::Timeout);
                }
            }
            Op::Close => self.close(),
            Op::Write(_) | Op::Fail(_) | Op::AnswerRead(..) | Op::SpoilRead(..) | Op::Trim(_) => {}
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
        // As it would come from disk: without what only memory knows.
        let found: Vec<_> = found
            .map(|batch| Arc::new(Batch::from_log(batch.log().unwrap().clone()).unwrap()))
            .collect();
        self.page(reader, from, found);
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
