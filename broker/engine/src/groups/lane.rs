//! What is written into the lane, and how.
//!
//! A lane is a log like the stream's. Every record of it says one change; its key is the group's name, or nothing when
//! it is about the shard. A value begins with a version and a kind; numbers are varints (LEB128, unsigned).
//!
//! ```text
//! 1  delivered    next, runs            first deliveries: attempts 1
//! 2  redelivered  count, (offset, attempts)*
//! 3  finished     runs
//! 4  returned     count, (offset, due ms)*          due 0: at once
//! 5  letter       offset, attempts, at ms, reason, record batch v2 of one record, or nothing
//! 6  redriven     runs
//! 7  discarded    runs
//! 8  moved        to                    a seek; also what makes a group
//! 9  deleted
//! 10 skipped      below                 retention took what lies below
//! 11 cut          end                   the stream's log lost what lies at or above
//! 16 scheduled    due ms, record batch v2 of one record     (key: the schedule's id, as for the next three)
//! 17 firing       data end              from here on the record may be in the stream, at or above this offset
//! 18 fired        at ms
//! 19 cancelled
//! 32 checkpoint   everything before it is superseded by the states that follow in the same batch
//! 33 group        the state of a group
//! 34 schedule     the state of a schedule
//!
//! runs = count, (gap since the end of the run before, length)*
//! ```

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use felix_model::batch::BuildRefused;
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, Record, Records, TimeMs, patch};

use super::io::Effect;
use super::ranges::Run;

const VERSION: u8 = 1;

/// A batch is closed at this size, so that it stays well below the limit of batches whatever comes last.
const BATCH_BYTES: usize = 1 << 20;

/// What happened to one group, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Delivered { next: u64, runs: Vec<Run> },
    Redelivered(Vec<(u64, u32)>),
    Finished(Vec<Run>),
    Returned(Vec<(u64, u64)>),
    Letter(Box<NewLetter>),
    Redriven(Vec<Run>),
    Discarded(Vec<Run>),
    Moved { to: u64 },
    Deleted,
    Skipped { below: u64 },
    Cut { end: u64 },
}

/// A record that is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewLetter {
    pub(super) offset: u64,
    pub(super) attempts: u32,
    pub(super) at: TimeMs,
    pub(super) reason: Arc<str>,
    /// The record as a batch of its own; empty when it is not kept.
    pub(super) batch: Bytes,
}

/// What happened to one scheduled record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Planned {
    Scheduled { due: TimeMs, batch: Bytes },
    Firing { data_end: u64 },
    Fired { at: TimeMs },
    Cancelled,
}

/// One record of the lane, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Group(Bytes, Change),
    Schedule(Bytes, Planned),
    Checkpoint,
    GroupState(Bytes, Fields),
    ScheduleState(Bytes, Fields),
}

/// Why a record of the lane cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneRefused {
    /// It ends too early, or a field of it is out of bounds.
    #[error("the record at offset {at} of the lane is malformed")]
    Malformed {
        /// Where.
        at: Offset,
    },
    /// A newer build wrote it.
    #[error(
        "the record at offset {at} of the lane is of version {version}, kind {kind}: start the newer build"
    )]
    Newer {
        /// Where.
        at: Offset,
        /// Its version.
        version: u8,
        /// Its kind.
        kind: u8,
    },
    /// Its batch cannot be read.
    #[error("a batch of the lane cannot be read: {0}")]
    Batch(#[from] felix_model::BatchRefused),
}

/// The lane as it is written.
#[derive(Debug)]
pub(super) struct Lane {
    generation: Generation,
    builder: Option<BatchBuilder>,
    /// Of the first record in the builder.
    base: u64,
    /// The offset the next record gets.
    next: u64,
}

impl Lane {
    pub(super) fn new(end: Offset, generation: Generation) -> Self {
        Self {
            generation,
            builder: None,
            base: end.0,
            next: end.0,
        }
    }

    /// The end of what was pushed, exclusive.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    pub(super) fn push_change(
        &mut self,
        now: TimeMs,
        key: &[u8],
        change: &Change,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        let mut value = Writer::new();
        change.encode(&mut value);
        self.push(now, Some(key), &value.0, effects)
    }

    pub(super) fn push_planned(
        &mut self,
        now: TimeMs,
        key: &[u8],
        planned: &Planned,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        let mut value = Writer::new();
        planned.encode(&mut value);
        self.push(now, Some(key), &value.0, effects)
    }

    /// Writes everything into one batch, whatever its size, so that it is there as a whole or not at all.
    pub(super) fn push_checkpoint(
        &mut self,
        now: TimeMs,
        states: &[(Bytes, Writer)],
        effects: &mut Vec<Effect>,
    ) -> Result<u64, BuildRefused> {
        self.finish(effects);
        let mut builder = BatchBuilder::new(options());
        let time = millis(now);
        builder.push(time, None, Some(&Writer::of(kind::CHECKPOINT).0), &[])?;
        for (key, state) in states {
            builder.push(time, Some(key), Some(&state.0), &[])?;
        }
        let at = self.next;
        self.next += u64::from(builder.records());
        self.builder = Some(builder);
        self.finish(effects);
        Ok(at)
    }

    /// Says where the record was put. A record that a batch cannot hold cannot come here: every part of it is bounded.
    fn push(
        &mut self,
        now: TimeMs,
        key: Option<&[u8]>,
        value: &[u8],
        effects: &mut Vec<Effect>,
    ) -> u64 {
        let full = self
            .builder
            .as_ref()
            .is_some_and(|builder| builder.bytes() + value.len() > BATCH_BYTES);
        if full {
            self.finish(effects);
        }
        let builder = self
            .builder
            .get_or_insert_with(|| BatchBuilder::new(options()));
        let pushed = builder.push(millis(now), key, Some(value), &[]);
        debug_assert!(pushed.is_ok(), "a lane record fits a batch: {pushed:?}");
        let at = self.next;
        self.next += u64::from(pushed.is_ok());
        at
    }

    /// Hands over what was pushed since the last time.
    pub(super) fn finish(&mut self, effects: &mut Vec<Effect>) {
        let Some(builder) = self.builder.take() else {
            return;
        };
        let base = self.base;
        self.base = self.next;
        match builder.finish() {
            Ok(mut batch) => {
                patch(&mut batch, Offset(base), self.generation);
                effects.push(Effect::Write {
                    batch: batch.freeze(),
                    end: Offset(self.next),
                });
            }
            Err(error) => debug_assert!(false, "a lane batch can be built: {error}"),
        }
    }
}

fn options() -> BatchOptions {
    BatchOptions {
        internal: true,
        ..BatchOptions::default()
    }
}

fn millis(now: TimeMs) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

/// A record as a batch of its own, so that its key, headers and time stay with it.
pub(super) fn alone(record: &Record) -> Result<Bytes, BuildRefused> {
    let internal = !record.internal.is_empty();
    let headers = if internal {
        &record.internal
    } else {
        &record.headers
    };
    let pairs: Vec<(Bytes, Option<Bytes>)> = headers.iter().collect();
    let pairs: Vec<(&[u8], Option<&[u8]>)> = pairs
        .iter()
        .map(|(key, value)| (key.as_ref(), value.as_deref()))
        .collect();
    let mut builder = BatchBuilder::new(BatchOptions {
        internal,
        ..BatchOptions::default()
    });
    builder.push(
        record.timestamp_ms,
        record.key.as_deref(),
        record.value.as_deref(),
        &pairs,
    )?;
    let mut batch = builder.finish()?;
    patch(&mut batch, record.offset, Generation::ZERO);
    Ok(batch.freeze())
}

/// The only record of a batch.
pub(super) fn only(batch: &Bytes) -> Option<Record> {
    Records::new(batch).ok()?.next()?.ok()
}

/// The record that was kept in a lane record, if one was.
pub(super) fn kept(at: Offset, lane: &Record) -> Option<Record> {
    match Entry::read(at, lane).ok()? {
        Entry::Group(_, Change::Letter(letter)) => only(&letter.batch),
        Entry::Schedule(_, Planned::Scheduled { batch, .. }) => only(&batch),
        Entry::Group(..)
        | Entry::Schedule(..)
        | Entry::Checkpoint
        | Entry::GroupState(..)
        | Entry::ScheduleState(..) => None,
    }
}

pub(super) mod kind {
    pub(in super::super) const DELIVERED: u8 = 1;
    pub(in super::super) const REDELIVERED: u8 = 2;
    pub(in super::super) const FINISHED: u8 = 3;
    pub(in super::super) const RETURNED: u8 = 4;
    pub(in super::super) const LETTER: u8 = 5;
    pub(in super::super) const REDRIVEN: u8 = 6;
    pub(in super::super) const DISCARDED: u8 = 7;
    pub(in super::super) const MOVED: u8 = 8;
    pub(in super::super) const DELETED: u8 = 9;
    pub(in super::super) const SKIPPED: u8 = 10;
    pub(in super::super) const CUT: u8 = 11;
    pub(in super::super) const SCHEDULED: u8 = 16;
    pub(in super::super) const FIRING: u8 = 17;
    pub(in super::super) const FIRED: u8 = 18;
    pub(in super::super) const CANCELLED: u8 = 19;
    pub(in super::super) const CHECKPOINT: u8 = 32;
    pub(in super::super) const GROUP: u8 = 33;
    pub(in super::super) const SCHEDULE: u8 = 34;
}

impl Change {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Delivered { next, runs } => {
                out.kind(kind::DELIVERED);
                out.number(*next);
                out.runs(runs.iter().copied(), runs.len());
            }
            Self::Redelivered(list) => {
                out.kind(kind::REDELIVERED);
                out.number(list.len() as u64);
                for (offset, attempts) in list {
                    out.number(*offset);
                    out.number(u64::from(*attempts));
                }
            }
            Self::Finished(runs) => out.kind_and_runs(kind::FINISHED, runs),
            Self::Returned(list) => {
                out.kind(kind::RETURNED);
                out.number(list.len() as u64);
                for (offset, due) in list {
                    out.number(*offset);
                    out.number(*due);
                }
            }
            Self::Letter(letter) => {
                out.kind(kind::LETTER);
                out.number(letter.offset);
                out.number(u64::from(letter.attempts));
                out.number(letter.at.0);
                out.bytes(letter.reason.as_bytes());
                out.bytes(&letter.batch);
            }
            Self::Redriven(runs) => out.kind_and_runs(kind::REDRIVEN, runs),
            Self::Discarded(runs) => out.kind_and_runs(kind::DISCARDED, runs),
            Self::Moved { to } => {
                out.kind(kind::MOVED);
                out.number(*to);
            }
            Self::Deleted => out.kind(kind::DELETED),
            Self::Skipped { below } => {
                out.kind(kind::SKIPPED);
                out.number(*below);
            }
            Self::Cut { end } => {
                out.kind(kind::CUT);
                out.number(*end);
            }
        }
    }

    fn decode(kind: u8, fields: &mut Fields) -> Option<Self> {
        Some(match kind {
            kind::DELIVERED => Self::Delivered {
                next: fields.number()?,
                runs: fields.runs()?,
            },
            kind::REDELIVERED => {
                Self::Redelivered(fields.pairs(|fields| Some((fields.number()?, fields.small()?)))?)
            }
            kind::FINISHED => Self::Finished(fields.runs()?),
            kind::RETURNED => {
                Self::Returned(fields.pairs(|fields| Some((fields.number()?, fields.number()?)))?)
            }
            kind::LETTER => Self::Letter(Box::new(NewLetter {
                offset: fields.number()?,
                attempts: fields.small()?,
                at: TimeMs(fields.number()?),
                reason: fields.text()?,
                batch: fields.bytes()?,
            })),
            kind::REDRIVEN => Self::Redriven(fields.runs()?),
            kind::DISCARDED => Self::Discarded(fields.runs()?),
            kind::MOVED => Self::Moved {
                to: fields.number()?,
            },
            kind::DELETED => Self::Deleted,
            kind::SKIPPED => Self::Skipped {
                below: fields.number()?,
            },
            kind::CUT => Self::Cut {
                end: fields.number()?,
            },
            _ => return None,
        })
    }
}

impl Planned {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Scheduled { due, batch } => {
                out.kind(kind::SCHEDULED);
                out.number(due.0);
                out.bytes(batch);
            }
            Self::Firing { data_end } => {
                out.kind(kind::FIRING);
                out.number(*data_end);
            }
            Self::Fired { at } => {
                out.kind(kind::FIRED);
                out.number(at.0);
            }
            Self::Cancelled => out.kind(kind::CANCELLED),
        }
    }

    fn decode(kind: u8, fields: &mut Fields) -> Option<Self> {
        Some(match kind {
            kind::SCHEDULED => Self::Scheduled {
                due: TimeMs(fields.number()?),
                batch: fields.bytes()?,
            },
            kind::FIRING => Self::Firing {
                data_end: fields.number()?,
            },
            kind::FIRED => Self::Fired {
                at: TimeMs(fields.number()?),
            },
            kind::CANCELLED => Self::Cancelled,
            _ => return None,
        })
    }
}

impl Entry {
    /// Reads one record of a lane.
    pub(super) fn read(at: Offset, record: &Record) -> Result<Self, LaneRefused> {
        let malformed = || LaneRefused::Malformed { at };
        let mut fields = Fields(record.value.clone().ok_or_else(malformed)?);
        let version = fields.byte().ok_or_else(malformed)?;
        let kind = fields.byte().ok_or_else(malformed)?;
        let newer = LaneRefused::Newer { at, version, kind };
        if version > VERSION {
            return Err(newer);
        }
        let key = || record.key.clone().ok_or_else(malformed);
        match kind {
            kind::DELIVERED..=kind::CUT => {
                let change = Change::decode(kind, &mut fields).ok_or_else(malformed)?;
                Ok(Self::Group(key()?, change))
            }
            kind::SCHEDULED..=kind::CANCELLED => {
                let planned = Planned::decode(kind, &mut fields).ok_or_else(malformed)?;
                Ok(Self::Schedule(key()?, planned))
            }
            kind::CHECKPOINT => Ok(Self::Checkpoint),
            kind::GROUP => Ok(Self::GroupState(key()?, fields)),
            kind::SCHEDULE => Ok(Self::ScheduleState(key()?, fields)),
            _ => Err(newer),
        }
    }
}

/// The value of a lane record as it grows.
#[derive(Clone, Debug)]
pub(super) struct Writer(pub(super) BytesMut);

impl Writer {
    fn new() -> Self {
        Self(BytesMut::with_capacity(64))
    }

    pub(super) fn of(kind: u8) -> Self {
        let mut out = Self::new();
        out.kind(kind);
        out
    }

    fn kind(&mut self, kind: u8) {
        self.0.put_u8(VERSION);
        self.0.put_u8(kind);
    }

    fn kind_and_runs(&mut self, kind: u8, runs: &[Run]) {
        self.kind(kind);
        self.runs(runs.iter().copied(), runs.len());
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.put_u8((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.put_u8(number as u8);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.put_slice(bytes);
    }

    /// Runs ascend and do not overlap.
    pub(super) fn runs(&mut self, runs: impl Iterator<Item = Run>, count: usize) {
        self.number(count as u64);
        let mut end = 0;
        for run in runs {
            self.number(run.start.saturating_sub(end));
            self.number(run.count);
            end = run.start.saturating_add(run.count);
        }
    }
}

/// The value of a lane record as it is read. Nothing is reserved for what is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields(Bytes);

impl Fields {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.0.first()?;
        let _ = self.0.split_to(1);
        Some(byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    pub(super) fn text(&mut self) -> Option<Arc<str>> {
        let bytes = self.bytes()?;
        std::str::from_utf8(&bytes).ok().map(Arc::from)
    }

    pub(super) fn runs(&mut self) -> Option<Vec<Run>> {
        let mut end = 0_u64;
        self.pairs(|fields| {
            let start = end.checked_add(fields.number()?)?;
            let count = fields.number()?;
            end = start.checked_add(count)?;
            Some(Run { start, count })
        })
    }

    pub(super) fn pairs<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.number()?;
        // Each takes two bytes at least, so a false count runs into the end before it costs anything.
        let mut list = Vec::with_capacity(usize::try_from(count).ok()?.min(self.0.len() / 2));
        for _ in 0..count {
            list.push(one(self)?);
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        let runs = vec![
            Run { start: 3, count: 4 },
            Run {
                start: 1 << 40,
                count: 1,
            },
        ];
        vec![
            Change::Delivered {
                next: 9,
                runs: runs.clone(),
            },
            Change::Redelivered(vec![(5, 2), (6, 5)]),
            Change::Finished(runs.clone()),
            Change::Returned(vec![(5, 0), (7, 1_700_000_000_000)]),
            Change::Letter(Box::new(NewLetter {
                offset: 7,
                attempts: 5,
                at: TimeMs(8),
                reason: "why".into(),
                batch: Bytes::from_static(b"b"),
            })),
            Change::Redriven(runs.clone()),
            Change::Discarded(runs),
            Change::Moved { to: 12 },
            Change::Deleted,
            Change::Skipped { below: 1 },
            Change::Cut { end: 2 },
        ]
    }

    fn planned() -> Vec<Planned> {
        vec![
            Planned::Scheduled {
                due: TimeMs(5),
                batch: Bytes::from_static(b"b"),
            },
            Planned::Firing { data_end: 5 },
            Planned::Fired { at: TimeMs(6) },
            Planned::Cancelled,
        ]
    }

    fn written(push: impl FnOnce(&mut Lane, &mut Vec<Effect>)) -> Vec<Record> {
        let mut lane = Lane::new(Offset(100), Generation(3));
        let mut effects = Vec::new();
        push(&mut lane, &mut effects);
        lane.finish(&mut effects);
        let mut records = Vec::new();
        for effect in effects {
            let Effect::Write { batch, end } = effect else {
                panic!("only writes");
            };
            felix_model::verify(&batch).unwrap();
            records.extend(Records::new(&batch).unwrap().map(Result::unwrap));
            assert_eq!(records.last().unwrap().offset.0 + 1, end.0);
        }
        records
    }

    #[test]
    fn what_is_written_is_read_again() {
        let records = written(|lane, effects| {
            for change in changes() {
                lane.push_change(TimeMs(1), b"g", &change, effects);
            }
            for planned in planned() {
                lane.push_planned(TimeMs(1), b"id", &planned, effects);
            }
        });
        let read: Vec<Entry> = records
            .iter()
            .map(|record| Entry::read(record.offset, record).unwrap())
            .collect();
        let groups = changes()
            .into_iter()
            .map(|change| Entry::Group(Bytes::from_static(b"g"), change));
        let schedules = planned()
            .into_iter()
            .map(|planned| Entry::Schedule(Bytes::from_static(b"id"), planned));
        let expected: Vec<Entry> = groups.chain(schedules).collect();
        assert_eq!(read, expected);
        assert_eq!(records.first().unwrap().offset, Offset(100));
    }

    #[test]
    fn a_record_cut_anywhere_is_malformed_and_nothing_worse() {
        let records = written(|lane, effects| {
            for change in changes() {
                lane.push_change(TimeMs(1), b"g", &change, effects);
            }
        });
        for record in records {
            let whole = record.value.clone().unwrap();
            for length in 0..whole.len() {
                let cut = Record {
                    value: Some(whole.slice(..length)),
                    ..record.clone()
                };
                let read = Entry::read(cut.offset, &cut);
                assert_eq!(read, Err(LaneRefused::Malformed { at: cut.offset }));
            }
        }
    }

    #[test]
    fn a_record_keeps_its_key_headers_and_time_in_a_batch_of_its_own() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder
            .push(
                7,
                Some(b"k"),
                Some(b"v"),
                &[(b"h", Some(b"1")), (b"n", None)],
            )
            .unwrap();
        let mut batch = builder.finish().unwrap();
        patch(&mut batch, Offset(41), Generation(2));
        let record = only(&batch.freeze()).unwrap();
        assert_eq!(only(&alone(&record).unwrap()), Some(record));
    }
}
