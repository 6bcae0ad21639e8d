//! The language of the scripts. A line is one command; `b` after a number means that many batches
//! of one payload of one byte.
//!
//! ```text
//! shard durable commit=written|flushed [start=N end=N generation=N window=4b in_flight=4b readers=N]
//! shard memory overflow=drop_new|drop_old|block ring=8b reader=4b [held=N held_ms=N]
//! append 1 "a" "b"*300 [ack=accepted|never] [expected=N] [producer=P/SEQUENCE] [control]
//! written 3 | flushed 3 | failed 3 full|io|poisoned
//! subscribe r1 latest|earliest|N      pull r1 [4b]      unsubscribe r1
//! page r1 0..3 | page r1 below 5 | page r1 unreadable      [from=N]
//! page r1 sparse 8 0..3 5..6                               [from=N]
//! trimmed 3      at 100      timeout      close moved|deleted|stopping|reopening
//! state | readers | stats
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use felix_engine::{
    AckWhen, Append, Appended, Batch, BatchKind, CloseReason, CommitWhen, Draft, Effect, Input,
    Overflow, Page, Produced, ProducerTable, ReaderEnd, ReaderId, Shard, ShardOptions, Start,
    Storage, Ticket, WriteFailure, payload_digest,
};
use felix_model::{
    Generation, InternalHeaders, Offset, Payloads, ProducerId, TimeMs, records_from_payloads,
};

const CONTROL_BIT: u16 = 1 << 5;

#[derive(Debug, Default)]
pub(crate) struct Interpreter {
    shard: Option<Shard>,
    now: u64,
    /// What the journal was handed, by base offset.
    journal: BTreeMap<Offset, Arc<Batch>>,
    /// Where each reader was last read for.
    reads: BTreeMap<ReaderId, Offset>,
}

impl Interpreter {
    pub(crate) fn run(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let command = Words(&words[1..]);
        match words[0] {
            "shard" => self.open(&command),
            "at" => self.now = command.number(0),
            "state" => return vec![self.state()],
            "readers" => return self.readers(),
            "stats" => return self.stats(),
            _ => return self.handle(words[0], &command),
        }
        Vec::new()
    }

    fn open(&mut self, command: &Words<'_>) {
        let durable = command.at(0) == "durable";
        let unit = batch_bytes(durable);
        let bytes = |name: &str, otherwise| {
            command
                .named(name)
                .map_or(otherwise, |value| scaled(value, unit))
        };
        let mut options = if durable {
            ShardOptions::durable(match command.named("commit") {
                Some("flushed") => CommitWhen::Flushed,
                _ => CommitWhen::Written,
            })
        } else {
            let overflow = match command.named("overflow") {
                Some("drop_old") => Overflow::DropOld,
                Some("block") => Overflow::Block,
                _ => Overflow::DropNew,
            };
            ShardOptions::memory(bytes("ring", 0), bytes("reader", 0), overflow)
        };
        let number = |name: &str| command.named(name).map(|value| value.parse().unwrap());
        options.start = Offset(number("start").unwrap_or(0));
        options.end = Offset(number("end").unwrap_or(0));
        options.generation = Generation(number("generation").unwrap_or(0) as u32);
        let limits = &mut options.limits;
        limits.window_bytes = bytes("window", limits.window_bytes);
        limits.in_flight_bytes_max = bytes("in_flight", limits.in_flight_bytes_max);
        limits.readers_max = number("readers").map_or(limits.readers_max, |max| max as u32);
        limits.held_max = number("held").map_or(limits.held_max, |max| max as u32);
        limits.held_ms_max = number("held_ms").unwrap_or(limits.held_ms_max);
        let producers = ProducerTable::new(limits.producers_max);
        self.shard = Some(Shard::new(options, producers));
        self.now = 0;
        self.journal.clear();
        self.reads.clear();
        for offset in options.start.0..options.end.0 {
            let mut log = log_bytes(&["h"], false);
            felix_model::batch::patch(&mut log, Offset(offset), Generation(0));
            self.keep(Arc::new(Batch::from_log(log.freeze()).unwrap()));
        }
    }

    fn handle(&mut self, name: &str, command: &Words<'_>) -> Vec<String> {
        let input = match name {
            "append" => self.append(command),
            "written" => Input::Written {
                end: command.offset(0),
            },
            "flushed" => Input::Flushed {
                end: command.offset(0),
            },
            "failed" => Input::WriteFailed {
                from: command.offset(0),
                why: match command.at(1) {
                    "full" => WriteFailure::Full,
                    "io" => WriteFailure::Io,
                    _ => WriteFailure::Poisoned,
                },
            },
            "subscribe" => Input::Subscribe {
                reader: command.reader(),
                start: match command.at(1) {
                    "latest" => Start::Latest,
                    "earliest" => Start::Earliest,
                    _ => Start::Offset(command.offset(1)),
                },
            },
            "pull" => Input::Pull {
                reader: command.reader(),
                max_bytes: self.max_bytes(command),
            },
            "page" => Input::PageRead {
                reader: command.reader(),
                from: command.named("from").map_or_else(
                    || {
                        *self
                            .reads
                            .get(&command.reader())
                            .expect("a read before its page")
                    },
                    |from| Offset(from.parse().unwrap()),
                ),
                page: self.page(command),
            },
            "unsubscribe" => Input::Unsubscribe {
                reader: command.reader(),
            },
            "trimmed" => Input::Trimmed {
                start: command.offset(0),
            },
            "timeout" => Input::Timeout,
            "close" => Input::Close {
                reason: match command.at(0) {
                    "moved" => CloseReason::Moved,
                    "deleted" => CloseReason::Deleted,
                    "stopping" => CloseReason::Stopping,
                    _ => CloseReason::Reopening,
                },
            },
            _ => panic!("no such command: {name}"),
        };
        let mut effects = Vec::new();
        let now = TimeMs(self.now);
        self.shard().handle(now, input, &mut effects);
        effects.iter().map(|effect| self.show(effect)).collect()
    }

    fn append(&mut self, command: &Words<'_>) -> Input {
        let payloads: Vec<String> = command.0.iter().filter_map(|word| payload(word)).collect();
        let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
        let producer = command.named("producer").map(|value| {
            let (producer, sequence) = value.split_once('/').expect("producer=P/SEQUENCE");
            Produced {
                producer: ProducerId(producer.parse().unwrap()),
                sequence: sequence.parse().unwrap(),
                digest: payload_digest(payloads.iter().map(|payload| payload.as_bytes())),
            }
        });
        let durable = self.is_durable();
        Input::Append(Append {
            ticket: Ticket(command.number(0)),
            batch: draft(&payloads, durable, command.0.contains(&"control")),
            expected: command
                .named("expected")
                .map(|value| Offset(value.parse().unwrap())),
            producer,
            ack: match command.named("ack") {
                Some("accepted") => AckWhen::Accepted,
                Some("never") => AckWhen::Never,
                _ => AckWhen::Committed,
            },
        })
    }

    fn page(&self, command: &Words<'_>) -> Page {
        match command.at(1) {
            "below" => Page::BelowStart {
                oldest: command.offset(2),
            },
            "unreadable" => Page::Unreadable,
            "sparse" => Page::Sparse {
                next: command.offset(2),
                batches: command
                    .0
                    .iter()
                    .skip(3)
                    .take_while(|word| !word.contains('='))
                    .flat_map(|range| self.batches_in(&parse_range(range)))
                    .collect(),
            },
            range => Page::Batches(self.batches_in(&parse_range(range))),
        }
    }

    fn batches_in(&self, range: &Range<u64>) -> Vec<Arc<Batch>> {
        self.journal
            .values()
            .filter(|batch| batch.end.0 > range.start && batch.base.0 < range.end)
            .map(Arc::clone)
            .collect()
    }

    fn max_bytes(&mut self, command: &Words<'_>) -> u32 {
        let unit = batch_bytes(self.is_durable());
        command
            .0
            .get(1)
            .map_or(u32::MAX, |value| scaled(value, unit) as u32)
    }

    fn show(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Write { batch, end } => {
                self.keep(Arc::clone(batch));
                let log = Batch::from_log(batch.log().expect("a write has bytes").clone()).unwrap();
                assert_eq!(
                    (log.base, log.end, *end),
                    (batch.base, batch.end, batch.end)
                );
                format!("write {}..{end} generation={}", log.base, log.generation)
            }
            Effect::Reply { ticket, outcome } => {
                let outcome = match outcome {
                    Ok(Appended::Committed { base, end }) => format!("committed {base}..{end}"),
                    Ok(Appended::Duplicate { base, end }) => format!("duplicate of {base}..{end}"),
                    Ok(Appended::Accepted) => "accepted".to_owned(),
                    Err(refused) => format!("refused: {refused}"),
                };
                format!("reply {} {outcome}", ticket.0)
            }
            Effect::Subscribed {
                reader,
                start,
                live,
            } => {
                format!("subscribed {reader} start={start} live={live}")
            }
            Effect::SubscribeRefused { reader, why } => format!("refused {reader}: {why}"),
            Effect::Deliver {
                reader,
                from,
                batches,
                skipped_before,
                lost,
            } => {
                let mut line = format!("deliver {reader} from={from}");
                for (what, count) in [("skipped", skipped_before), ("lost", lost)] {
                    if *count > 0 {
                        line += &format!(" {what}={count}");
                    }
                }
                batches
                    .iter()
                    .for_each(|batch| line += &format!(" [{}]", show_batch(batch)));
                line
            }
            Effect::Read {
                reader,
                from,
                until,
                ..
            } => {
                self.reads.insert(*reader, *from);
                format!("read {reader} {from}..{until}")
            }
            Effect::ReaderEnded { reader, why } => match why {
                ReaderEnd::TooOld { position, oldest } => {
                    format!("ended {reader}: too old at {position}, resume at {oldest}")
                }
                ReaderEnd::Unreadable { position } => {
                    format!("ended {reader}: unreadable at {position}")
                }
                ReaderEnd::Closed { reason, resume } => {
                    format!("ended {reader}: {reason:?}, resume at {resume}")
                }
            },
            Effect::Closed => "closed".to_owned(),
        }
    }

    fn state(&mut self) -> String {
        let timeout = self.shard().next_timeout();
        let shard = self.shard();
        let mut line = format!(
            "start={} committed={} end={}",
            shard.start(),
            shard.committed(),
            shard.end()
        );
        if shard.is_poisoned() {
            line += " poisoned";
        }
        if let Some(timeout) = timeout {
            line += &format!(" timeout={timeout}");
        }
        line
    }

    fn readers(&mut self) -> Vec<String> {
        let show = |view: felix_engine::ReaderView| {
            let waiting = if view.waiting { " waiting" } else { "" };
            format!(
                "{} position={} lag={} lost={}{waiting}",
                view.reader, view.position, view.lag, view.lost
            )
        };
        self.shard().readers().map(show).collect()
    }

    /// What is not zero, without sizes that depend on how large a batch is in memory.
    fn stats(&mut self) -> Vec<String> {
        let unit = batch_bytes(self.is_durable());
        let stats = self.shard().stats();
        let all = [
            ("appended_batches", stats.appended_batches),
            ("appended_records", stats.appended_records),
            ("committed_records", stats.committed_records),
            ("refused_batches", stats.refused_batches),
            ("duplicate_batches", stats.duplicate_batches),
            (
                "unacknowledged_lost_batches",
                stats.unacknowledged_lost_batches,
            ),
            ("delivered_batches", stats.delivered_batches),
            ("reads", stats.reads),
            ("lost_records", stats.lost_records),
            ("overtaken_readers", stats.overtaken_readers),
            ("readers", stats.readers),
            ("parked_readers", stats.parked_readers),
            ("in_flight_batches", stats.in_flight_batches),
            ("held_batches", stats.held_batches),
            ("window_units", stats.window_bytes / unit),
            ("producers", stats.producers),
        ];
        let all = all.into_iter().filter(|(_, value)| *value > 0);
        all.map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn keep(&mut self, batch: Arc<Batch>) {
        self.journal.split_off(&batch.base);
        self.journal.insert(batch.base, batch);
    }

    fn is_durable(&mut self) -> bool {
        matches!(self.shard().options().storage, Storage::Durable { .. })
    }

    fn shard(&mut self) -> &mut Shard {
        self.shard.as_mut().expect("the script opens a shard first")
    }
}

struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn at(&self, index: usize) -> &'a str {
        self.0.get(index).copied().unwrap_or("")
    }

    fn number(&self, index: usize) -> u64 {
        self.at(index).parse().expect("a number")
    }

    fn offset(&self, index: usize) -> Offset {
        Offset(self.number(index))
    }

    fn reader(&self) -> ReaderId {
        ReaderId(
            self.at(0)
                .trim_start_matches('r')
                .parse()
                .expect("a reader such as r1"),
        )
    }

    fn named(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

fn draft(payloads: &[&str], durable: bool, control: bool) -> Draft {
    let native = Payloads::build(payloads.iter().map(|payload| payload.as_bytes())).unwrap();
    if durable && !payloads.is_empty() {
        Draft::from_log(log_bytes(payloads, control))
            .unwrap()
            .with_native(native)
    } else {
        Draft::from_payloads(native, TimeMs(0))
    }
}

/// `"a"` or, for a long one, `"a"*300`.
fn payload(word: &str) -> Option<String> {
    let (payload, times) = word.strip_prefix('"')?.split_once('"')?;
    let times = times
        .strip_prefix('*')
        .map_or(1, |times| times.parse().expect("a number"));
    Some(payload.repeat(times))
}

fn log_bytes(payloads: &[&str], control: bool) -> BytesMut {
    let native = Payloads::build(payloads.iter().map(|payload| payload.as_bytes())).unwrap();
    let mut log = records_from_payloads(&native, None, 0, &InternalHeaders::default())
        .expect("a script has small batches");
    if control {
        // The shard reads only this bit; the checksum is the journal's concern.
        let attributes = u16::from_be_bytes([log[21], log[22]]) | CONTROL_BIT;
        log[21..23].copy_from_slice(&attributes.to_be_bytes());
    }
    log
}

fn batch_bytes(durable: bool) -> u64 {
    draft(&["x"], durable, false).bytes_len()
}

fn scaled(value: &str, unit: u64) -> u64 {
    match value.strip_suffix('b') {
        Some(batches) => batches.parse::<u64>().unwrap() * unit,
        None => value.parse().unwrap(),
    }
}

fn parse_range(range: &str) -> Range<u64> {
    let (start, end) = range.split_once("..").expect("a range such as 0..3");
    start.parse().unwrap()..end.parse().unwrap()
}

fn show_batch(batch: &Batch) -> String {
    let payloads = batch.native().map_or_else(String::new, |payloads| {
        payloads
            .iter()
            .map(|payload| match payload {
                [first, .., _] => format!(" {}*{}", char::from(*first), payload.len()),
                short => format!(" {}", String::from_utf8_lossy(short)),
            })
            .collect()
    });
    let kind = if batch.kind == BatchKind::Control {
        " control"
    } else {
        ""
    };
    format!("{}..{}{payloads}{kind}", batch.base, batch.end)
}
