//! What a shard is, said as simply as possible: a `Vec` of batches, a `BTreeMap` of readers, and
//! marks. It looks everything up by walking along, and predicts every effect of the engine.

pub(crate) mod journal;
mod memory;
pub(crate) mod ops;
mod readers;

use std::collections::{BTreeMap, VecDeque};

use felix_engine::{
    AckWhen, AppendRefused, Appended, CloseReason, CommitWhen, Overflow, Produced, ReaderEnd,
    ReaderId, ShardOptions, Storage, SubscribeRefused, WriteFailure,
};
use felix_model::Offset;

/// An effect, reduced to what can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Write {
        base: u64,
        end: u64,
    },
    Reply(u64, Result<Appended, AppendRefused>),
    Subscribed(ReaderId, u64, u64),
    SubscribeRefused(ReaderId, SubscribeRefused),
    Deliver {
        reader: ReaderId,
        from: u64,
        batches: Vec<u64>,
        skipped: u64,
        lost: u64,
    },
    Read {
        reader: ReaderId,
        from: u64,
        max_bytes: u32,
        until: u64,
    },
    Ended(ReaderId, ReaderEnd),
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: u64,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) control: bool,
    pub(crate) expected: Option<u64>,
    pub(crate) producer: Option<Produced>,
    pub(crate) ack: AckWhen,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    base: u64,
    end: u64,
    bytes: u64,
    control: bool,
    produced: Option<Produced>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Decided {
    Held,
    Append { base: u64, end: u64 },
    Duplicate { base: u64, end: u64 },
    Refused(AppendRefused),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Nothing,
    Waiting,
    Reading,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    position: u64,
    max_bytes: u32,
    doing: Doing,
    skipped: u64,
    lost: u64,
    lost_total: u64,
    cut: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Model {
    options: ShardOptions,
    log: Vec<Entry>,
    pub(crate) start: u64,
    pub(crate) committed: u64,
    window_start: u64,
    line: VecDeque<(Asked, Decided)>,
    /// Tickets and when they are refused.
    held: VecDeque<(u64, u64)>,
    readers: BTreeMap<ReaderId, Reader>,
    lost_by_the_gone: u64,
    pub(crate) poisoned: bool,
    closing: Option<CloseReason>,
    closed: bool,
    events: Vec<Event>,
}

impl Model {
    pub(crate) fn new(options: ShardOptions) -> Self {
        Self {
            options,
            log: Vec::new(),
            start: 0,
            committed: 0,
            window_start: 0,
            line: VecDeque::new(),
            held: VecDeque::new(),
            readers: BTreeMap::new(),
            lost_by_the_gone: 0,
            poisoned: false,
            closing: None,
            closed: false,
            events: Vec::new(),
        }
    }

    /// What is predicted since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn end(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.end)
    }

    pub(crate) fn oldest(&self) -> u64 {
        if self.is_durable() {
            self.start
        } else {
            self.window_start
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.held.front().map(|&(_, deadline)| deadline)
    }

    /// Position, records lost and whether it waits, for every reader.
    pub(crate) fn readers(&self) -> Vec<(ReaderId, u64, u64, bool)> {
        let view = |(&id, reader): (&ReaderId, &Reader)| {
            let lost = reader.lost_total + self.lost_so_far(reader);
            (id, reader.position, lost, reader.doing == Doing::Waiting)
        };
        self.readers.iter().map(view).collect()
    }

    pub(crate) fn lost_records(&self) -> u64 {
        self.lost_by_the_gone
            + self
                .readers()
                .iter()
                .map(|&(_, _, lost, _)| lost)
                .sum::<u64>()
    }

    /// The sequence a producer has to send next.
    pub(crate) fn next_sequence(&self, producer: u64) -> u64 {
        let of_it = |entry: &&Entry| {
            entry
                .produced
                .is_some_and(|sent| sent.producer.0 == producer)
        };
        self.log.iter().filter(of_it).count() as u64
    }

    pub(crate) fn append(&mut self, now: u64, asked: Asked) {
        let refused = self.refused_at_once(&asked);
        let decided = match self.options.storage {
            _ if refused.is_some() => refused.map(Decided::Refused),
            Storage::Memory {
                ring_bytes,
                overflow: Overflow::Block,
                ..
            } if !self.held.is_empty() || !self.has_room(asked.bytes) => {
                let held = self.held.len() as u32;
                let waiting = self
                    .line
                    .iter()
                    .filter(|(_, decided)| *decided == Decided::Held);
                let bytes: u64 = waiting.map(|(asked, _)| asked.bytes).sum();
                let limits = self.options.limits;
                let too_many = held >= limits.held_max
                    || (held > 0
                        && bytes + asked.bytes > limits.in_flight_bytes_max.min(ring_bytes));
                Some(if too_many {
                    Decided::Refused(AppendRefused::Blocked { held })
                } else {
                    self.held
                        .push_back((asked.ticket, now + limits.held_ms_max));
                    Decided::Held
                })
            }
            Storage::Memory { .. } | Storage::Durable { .. } => None,
        };
        self.line
            .push_back((asked, decided.unwrap_or(Decided::Held)));
        if decided.is_none() {
            self.decide(asked.ticket);
        }
        self.release();
    }

    fn refused_at_once(&self, asked: &Asked) -> Option<AppendRefused> {
        if let Some(reason) = self.closing {
            return Some(AppendRefused::Closed { reason });
        }
        if self.poisoned {
            return Some(AppendRefused::Poisoned);
        }
        if asked.count == 0 {
            return Some(AppendRefused::Empty);
        }
        match self.options.storage {
            Storage::Memory {
                ring_bytes: limit, ..
            } if asked.bytes > limit => Some(AppendRefused::TooLarge {
                size: asked.bytes,
                limit,
            }),
            Storage::Memory { .. } | Storage::Durable { .. } => None,
        }
    }

    fn decide(&mut self, ticket: u64) {
        let asked = self
            .line
            .iter()
            .find(|(asked, _)| asked.ticket == ticket)
            .unwrap()
            .0;
        let decided = self.judge(&asked);
        if let Decided::Append { base, end } = decided {
            let Asked {
                bytes,
                control,
                producer,
                ..
            } = asked;
            self.log.push(Entry {
                base,
                end,
                bytes,
                control,
                produced: producer,
            });
            if self.is_durable() {
                self.events.push(Event::Write { base, end });
            }
        }
        let place = self
            .line
            .iter_mut()
            .find(|(asked, _)| asked.ticket == ticket);
        place.unwrap().1 = decided;
        if !self.is_durable() {
            self.commit(self.end());
        }
    }

    fn judge(&self, asked: &Asked) -> Decided {
        let end = self.end();
        if let Some(decided) = asked.producer.and_then(|sent| self.sent_before(sent)) {
            return decided;
        }
        if asked.expected.is_some_and(|expected| expected != end) {
            return Decided::Refused(AppendRefused::OffsetMismatch { tail: Offset(end) });
        }
        let flying = self.log.iter().filter(|entry| entry.end > self.committed);
        let in_flight: u64 = flying.map(|entry| entry.bytes).sum();
        let limit = self.options.limits.in_flight_bytes_max;
        if in_flight > 0 && in_flight + asked.bytes > limit {
            return Decided::Refused(AppendRefused::Busy { in_flight, limit });
        }
        Decided::Append {
            base: end,
            end: end + asked.count,
        }
    }

    /// `None`: it is the next one. Fewer batches are sent than are remembered.
    fn sent_before(&self, sent: Produced) -> Option<Decided> {
        let next = self.next_sequence(sent.producer.0);
        if sent.sequence == next {
            return None;
        }
        if next == 0 {
            return Some(Decided::Refused(AppendRefused::UnknownProducer));
        }
        let same = |entry: &&Entry| {
            let as_sent = entry.produced.map(|known| (known.producer, known.sequence));
            as_sent == Some((sent.producer, sent.sequence))
        };
        let Some(first) = self.log.iter().find(same) else {
            return Some(Decided::Refused(AppendRefused::SequenceGap {
                expected: next,
            }));
        };
        let (base, end) = (first.base, first.end);
        if first
            .produced
            .is_some_and(|known| known.digest == sent.digest)
        {
            return Some(Decided::Duplicate { base, end });
        }
        let (base, end) = (Offset(base), Offset(end));
        Some(Decided::Refused(AppendRefused::SequenceReused {
            base,
            end,
        }))
    }

    /// Answers leave in order; nobody overtakes.
    fn release(&mut self) {
        while let Some(&(Asked { ticket, ack, .. }, decided)) = self.line.front() {
            let (reply, end) = match decided {
                Decided::Held => return,
                Decided::Refused(refused) => (Err(refused), 0),
                Decided::Append { base, end } => (
                    Ok(Appended::Committed {
                        base: Offset(base),
                        end: Offset(end),
                    }),
                    end,
                ),
                Decided::Duplicate { base, end } => (
                    Ok(Appended::Duplicate {
                        base: Offset(base),
                        end: Offset(end),
                    }),
                    end,
                ),
            };
            if ack == AckWhen::Committed && end > self.committed {
                return;
            }
            let early = reply.is_ok() && ack == AckWhen::Accepted;
            if ack != AckWhen::Never {
                self.events.push(Event::Reply(
                    ticket,
                    if early { Ok(Appended::Accepted) } else { reply },
                ));
            }
            self.line.pop_front();
        }
    }

    pub(crate) fn written(&mut self, end: u64) {
        if self.options.storage
            == (Storage::Durable {
                commit: CommitWhen::Written,
            })
        {
            self.commit(end);
        }
    }

    pub(crate) fn commit(&mut self, mark: u64) {
        if self.poisoned || mark <= self.committed {
            return;
        }
        let news: Vec<u64> = self.log.iter().map(|entry| entry.end).collect();
        let range = self.committed + 1..=mark;
        for end in news.into_iter().filter(|end| range.contains(end)) {
            self.committed = end;
            self.evict();
        }
        self.release();
        let waiting: Vec<ReaderId> = self
            .readers
            .iter()
            .filter(|(_, reader)| reader.doing == Doing::Waiting)
            .map(|(&id, _)| id)
            .collect();
        for id in waiting {
            self.serve(id);
        }
        self.finish_closing();
    }

    pub(crate) fn failed(&mut self, from: u64, why: WriteFailure) {
        if self.poisoned || self.closed {
            return;
        }
        let keep = if why == WriteFailure::Full {
            from.max(self.committed)
        } else {
            self.committed
        };
        self.log.retain(|entry| entry.end <= keep);
        let mut failed = false;
        for (_, decided) in &mut self.line {
            let end = match *decided {
                Decided::Append { end, .. } | Decided::Duplicate { end, .. } if end > keep => {
                    Some(end)
                }
                Decided::Refused(
                    AppendRefused::OffsetMismatch { .. }
                    | AppendRefused::SequenceGap { .. }
                    | AppendRefused::SequenceExpired { .. }
                    | AppendRefused::SequenceReused { .. }
                    | AppendRefused::UnknownProducer,
                ) if failed => None,
                Decided::Held
                | Decided::Append { .. }
                | Decided::Duplicate { .. }
                | Decided::Refused(_) => continue,
            };
            failed = true;
            *decided = Decided::Refused(match (why, end) {
                (WriteFailure::Full, _) => AppendRefused::StorageFull,
                (_, None) => AppendRefused::Poisoned,
                (WriteFailure::Io, Some(end)) if end > from.max(keep) => AppendRefused::Poisoned,
                (_, Some(_)) => AppendRefused::OutcomeUnknown,
            });
        }
        self.poisoned = why != WriteFailure::Full && self.closing.is_none();
        self.release();
        self.finish_closing();
    }

    fn decide_held(&mut self) {
        while let Some(&(ticket, _)) = self.held.front() {
            let asked = self
                .line
                .iter()
                .find(|(asked, _)| asked.ticket == ticket)
                .unwrap()
                .0;
            if !self.has_room(asked.bytes) {
                break;
            }
            self.held.pop_front();
            self.decide(ticket);
        }
        self.release();
    }

    fn refuse_held(&mut self, why: AppendRefused, until: u64) {
        while let Some((ticket, _)) = self
            .held
            .pop_front_if(|&mut (_, deadline)| deadline <= until)
        {
            let place = self
                .line
                .iter_mut()
                .find(|(asked, _)| asked.ticket == ticket);
            place.unwrap().1 = Decided::Refused(why);
        }
    }

    pub(crate) fn timeout(&mut self, now: u64) {
        let held = self.held.len() as u32;
        self.refuse_held(AppendRefused::Blocked { held }, now);
        self.decide_held();
    }

    pub(crate) fn trimmed(&mut self, start: u64) {
        self.start = self.start.max(start.min(self.committed));
        let whole = self
            .log
            .iter()
            .filter(|entry| entry.end <= self.start)
            .map(|entry| entry.end);
        self.window_start = self.window_start.max(whole.max().unwrap_or(0));
    }

    pub(crate) fn close(&mut self, reason: CloseReason) {
        if self.closed {
            return self.events.push(Event::Closed);
        }
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(reason);
        self.poisoned = false;
        self.refuse_held(AppendRefused::Closed { reason }, u64::MAX);
        self.release();
        let all: Vec<(ReaderId, u64)> = self
            .readers
            .iter()
            .map(|(&id, reader)| (id, reader.position))
            .collect();
        for (id, resume) in all {
            self.forget(id);
            let why = ReaderEnd::Closed {
                reason,
                resume: Offset(resume),
            };
            self.events.push(Event::Ended(id, why));
        }
        self.finish_closing();
    }

    fn finish_closing(&mut self) {
        let drained = self.end() == self.committed && self.line.is_empty();
        if self.closing.is_some() && !self.closed && drained {
            self.closed = true;
            self.events.push(Event::Closed);
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        matches!(self.options.storage, Storage::Durable { .. })
    }

    fn drops_new(&self) -> bool {
        matches!(
            self.options.storage,
            Storage::Memory {
                overflow: Overflow::DropNew,
                ..
            }
        )
    }
}
