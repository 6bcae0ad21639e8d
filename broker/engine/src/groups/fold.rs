//! What is remembered of a group, and how each change changes it. Replaying the lane and deciding live go through
//! the same [`Fold::apply`], so that a restart knows what was known before.
//!
//! ```text
//!   0         position                    next                     tail
//!   |  finished  |  finished, but for what  |  never handed out       |
//!   |            |  is open: owed, resting, |  (acks of an earlier    |
//!   |            |  claimed                 |   state may lie ahead)  |
//! ```
//!
//! What is finished is not remembered: it is what was handed out and is not open any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use felix_model::TimeMs;

use super::core::LeaseId;
use super::io::ReadId;
use super::lane::{Change, Fields, NewLetter, Writer, kind};
use super::ranges::{Ranges, Run};

/// The durable part of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fold {
    /// Whether the lane knows the group.
    pub(super) persisted: bool,
    /// The first offset never handed out.
    pub(super) next: u64,
    /// Handed out, or redriven, and not finished.
    pub(super) open: BTreeMap<u64, Open>,
    /// Finished at or above `next`.
    pub(super) ahead: Ranges,
    /// Set aside.
    pub(super) letters: BTreeMap<u64, Letter>,
    /// Bytes kept of those.
    pub(super) letter_bytes: u64,
}

/// One record that was handed out and is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) attempts: u32,
    /// Where the lane keeps its bytes, for one that was redriven.
    pub(super) kept: Option<u64>,
    pub(super) state: State,
}

/// Where an open record is. Only `Resting` outlives the process; everything else is owed at once after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Owed,
    Resting(TimeMs),
    /// It is being read for a poll.
    Fetching(ReadId),
    Claimed(LeaseId),
    /// It is being read to be set aside.
    Burying,
}

/// One record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) attempts: u32,
    pub(super) at: TimeMs,
    pub(super) reason: Arc<str>,
    /// Bytes kept; 0 when nothing was.
    pub(super) bytes: u64,
    /// Where in the lane.
    pub(super) lane: u64,
}

impl Open {
    pub(super) fn owed(attempts: u32) -> Self {
        Self {
            attempts,
            kept: None,
            state: State::Owed,
        }
    }
}

impl Fold {
    /// Everything below is finished.
    pub(super) fn position(&self) -> u64 {
        let next = self.ahead.end_of(self.next).unwrap_or(self.next);
        match self.open.first_key_value() {
            Some((&first, _)) => first.min(next),
            None => next,
        }
    }

    /// Takes note of a change that the lane has, or is about to have, at `lane`.
    pub(super) fn apply(&mut self, change: &Change, lane: u64) {
        self.persisted = true;
        match change {
            Change::Delivered { next, runs } => {
                for offset in runs.iter().copied().flat_map(Run::offsets) {
                    self.open.insert(offset, Open::owed(1));
                }
                self.pass(*next);
            }
            Change::Redelivered(list) => {
                for &(offset, attempts) in list {
                    if let Some(open) = self.open.get_mut(&offset) {
                        open.attempts = attempts;
                        open.state = State::Owed;
                    }
                }
            }
            Change::Finished(runs) => {
                for &run in runs {
                    self.finish(run);
                }
            }
            Change::Returned(list) => {
                for &(offset, due) in list {
                    if let Some(open) = self.open.get_mut(&offset) {
                        open.state = match due {
                            0 => State::Owed,
                            due => State::Resting(TimeMs(due)),
                        };
                    }
                }
            }
            Change::Letter(letter) => self.set_aside(letter, lane),
            Change::Redriven(runs) => {
                for offset in runs.iter().copied().flat_map(Run::offsets) {
                    self.redrive(offset);
                }
            }
            Change::Discarded(runs) => {
                for offset in runs.iter().copied().flat_map(Run::offsets) {
                    self.take_letter(offset);
                }
            }
            Change::Moved { to } => {
                self.open.clear();
                self.ahead.clear();
                self.next = *to;
            }
            Change::Deleted => *self = Self::default(),
            Change::Skipped { below } => self.skip(*below),
            Change::Cut { end } => {
                drop(self.open.split_off(end));
                self.ahead.remove_from(*end);
                self.next = self.next.min(*end);
            }
        }
    }

    /// Everything below `next` was handed out or was not there.
    fn pass(&mut self, next: u64) {
        self.next = self.next.max(next);
        self.ahead.remove_below(self.next);
    }

    fn finish(&mut self, run: Run) {
        for offset in run.offsets() {
            self.open.remove(&offset);
        }
        let end = run.start.saturating_add(run.count);
        let start = run.start.max(self.next);
        if start < end {
            let count = end - start;
            self.ahead.insert(Run { start, count });
        }
    }

    fn set_aside(&mut self, letter: &NewLetter, lane: u64) {
        self.finish(Run {
            start: letter.offset,
            count: 1,
        });
        self.take_letter(letter.offset);
        let bytes = letter.batch.len() as u64;
        self.letter_bytes += bytes;
        self.letters.insert(
            letter.offset,
            Letter {
                attempts: letter.attempts,
                at: letter.at,
                reason: Arc::clone(&letter.reason),
                bytes,
                lane,
            },
        );
    }

    /// One that is open already, because the group was moved back, only stops being set aside.
    fn redrive(&mut self, offset: u64) {
        let Some(letter) = self.take_letter(offset) else {
            return;
        };
        let kept = (letter.bytes > 0).then_some(letter.lane);
        let open = self.open.entry(offset).or_insert_with(|| Open::owed(0));
        open.kept = kept;
    }

    fn take_letter(&mut self, offset: u64) -> Option<Letter> {
        let letter = self.letters.remove(&offset)?;
        self.letter_bytes -= letter.bytes;
        Some(letter)
    }

    /// What is below `below` is gone from the stream. Claimed records are with their holders; those whose bytes the
    /// lane has are not lost.
    fn skip(&mut self, below: u64) {
        let lost: Vec<u64> = self.lost_below(below).collect();
        for offset in lost {
            self.open.remove(&offset);
        }
        self.pass(below);
    }

    pub(super) fn lost_below(&self, below: u64) -> impl Iterator<Item = u64> + '_ {
        self.open
            .range(..below)
            .filter(|(_, open)| {
                open.kept.is_none() && matches!(open.state, State::Owed | State::Resting(_))
            })
            .map(|(&offset, _)| offset)
    }

    /// Where the lane keeps bytes that this group needs.
    pub(super) fn lane_refs(&self, refs: &mut BTreeSet<u64>) {
        let letters = self.letters.values().filter(|letter| letter.bytes > 0);
        refs.extend(letters.map(|letter| letter.lane));
        refs.extend(self.open.values().filter_map(|open| open.kept));
    }

    /// The whole state as one lane record.
    pub(super) fn encode(&self) -> Writer {
        let mut out = Writer::of(kind::GROUP);
        out.number(self.next);
        out.number(self.open.len() as u64);
        let mut before = 0;
        for (&offset, open) in &self.open {
            out.number(offset - before);
            before = offset;
            out.number(u64::from(open.attempts));
            out.number(match open.state {
                State::Resting(due) => due.0,
                State::Owed | State::Fetching(_) | State::Claimed(_) | State::Burying => 0,
            });
            out.number(open.kept.map_or(0, |lane| lane + 1));
        }
        out.runs(self.ahead.iter(), self.ahead.len());
        out.number(self.letters.len() as u64);
        for (&offset, letter) in &self.letters {
            out.number(offset);
            out.number(u64::from(letter.attempts));
            out.number(letter.at.0);
            out.bytes(letter.reason.as_bytes());
            out.number(letter.bytes);
            out.number(letter.lane);
        }
        out
    }

    /// `None`: it is malformed.
    pub(super) fn decode(mut fields: Fields) -> Option<Self> {
        let mut fold = Self {
            persisted: true,
            next: fields.number()?,
            ..Self::default()
        };
        let mut offset = 0_u64;
        let open = fields.pairs(|fields| {
            offset = offset.checked_add(fields.number()?)?;
            let attempts = fields.small()?;
            let state = match fields.number()? {
                0 => State::Owed,
                due => State::Resting(TimeMs(due)),
            };
            let kept = fields.number()?.checked_sub(1);
            let open = Open {
                attempts,
                kept,
                state,
            };
            Some((offset, open))
        })?;
        fold.open.extend(open);
        for run in fields.runs()? {
            fold.ahead.insert(run);
        }
        let letters = fields.pairs(|fields| {
            let offset = fields.number()?;
            let letter = Letter {
                attempts: fields.small()?,
                at: TimeMs(fields.number()?),
                reason: fields.text()?,
                bytes: fields.number()?,
                lane: fields.number()?,
            };
            Some((offset, letter))
        })?;
        for (offset, letter) in letters {
            fold.letter_bytes += letter.bytes;
            fold.letters.insert(offset, letter);
        }
        Some(fold)
    }

    /// The same as after a restart: whoever held something is gone.
    pub(super) fn forget_holders(&mut self) {
        for open in self.open.values_mut() {
            if !matches!(open.state, State::Resting(_)) {
                open.state = State::Owed;
            }
        }
    }
}

/// Whether a lane record of a group may hold this many bytes beside the record it keeps.
pub(super) fn kept_bytes(batch: &Bytes, limit: u64, held: u64) -> Bytes {
    if held.saturating_add(batch.len() as u64) > limit {
        Bytes::new()
    } else {
        batch.clone()
    }
}
