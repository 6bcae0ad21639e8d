//! The committed mark, and the answers that wait for it.

use std::collections::VecDeque;

use felix_model::Offset;

use super::{Shard, Status};
use crate::batch::BatchKind;
use crate::effect::{Appended, Effect};
use crate::input::{AckWhen, Ticket};
use crate::refused::{AppendRefused, WriteFailure};

/// Answers that may be outstanding before [`Shard::room`] says stop. Refusals wait in line, too,
/// and have no bytes that would bound them.
pub(super) const ANSWERS_MAX: usize = 65_536;

/// Answers not yet given, in the order in which the appends came in.
///
/// Refusals wait in line as well: they were decided by a state of which appends in flight are a
/// part, and must not be told before it is certain that these will not be taken back.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: VecDeque<Answer>,
    /// How many have left: the place of the first one waiting.
    left: u64,
}

/// Where an answer stands in line, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) ticket: Ticket,
    pub(super) ack: AckWhen,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It waits for slow readers.
    Undecided,
    Append {
        base: Offset,
        end: Offset,
    },
    Duplicate {
        base: Offset,
        end: Offset,
    },
    Refused(AppendRefused),
}

impl Answer {
    fn is_ready(&self, committed: Offset) -> bool {
        match self.outcome {
            Outcome::Undecided => false,
            Outcome::Append { end, .. } | Outcome::Duplicate { end, .. } => {
                self.ack != AckWhen::Committed || end <= committed
            }
            Outcome::Refused(_) => true,
        }
    }

    fn effect(self) -> Option<Effect> {
        let outcome = match (self.ack, self.outcome) {
            (AckWhen::Never, _) | (_, Outcome::Undecided) => return None,
            (_, Outcome::Refused(refused)) => Err(refused),
            (AckWhen::Accepted, Outcome::Append { .. } | Outcome::Duplicate { .. }) => {
                Ok(Appended::Accepted)
            }
            (AckWhen::Committed, Outcome::Append { base, end }) => {
                Ok(Appended::Committed { base, end })
            }
            (AckWhen::Committed, Outcome::Duplicate { base, end }) => {
                Ok(Appended::Duplicate { base, end })
            }
        };
        Some(Effect::Reply {
            ticket: self.ticket,
            outcome,
        })
    }
}

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, answer: Answer) -> Place {
        let place = Place(self.left + self.waiting.len() as u64);
        self.waiting.push_back(answer);
        place
    }

    /// An undecided answer cannot leave, so its place is still in line.
    pub(super) fn set(&mut self, place: Place, outcome: Outcome) {
        let index = usize::try_from(place.0 - self.left).ok();
        if let Some(answer) = index.and_then(|index| self.waiting.get_mut(index)) {
            answer.outcome = outcome;
        }
    }

    /// Lets everybody go who has nobody before him that must wait.
    pub(super) fn release(&mut self, committed: Offset, effects: &mut Vec<Effect>) {
        while let Some(answer) = self
            .waiting
            .pop_front_if(|answer| answer.is_ready(committed))
        {
            self.left += 1;
            effects.extend(answer.effect());
        }
    }

    /// Turns into refusals what hangs on offsets that failed. A refusal behind it that was decided
    /// by the order of appends changes, too: that order is no more. Says how many appends will be
    /// told so.
    fn fail(&mut self, failure: Failure) -> u64 {
        let mut appends = 0;
        let mut failed = false;
        for answer in &mut self.waiting {
            let refused = match answer.outcome {
                Outcome::Append { end, .. } if end > failure.keep => {
                    appends += u64::from(answer.ack != AckWhen::Never);
                    failure.refusal(end)
                }
                Outcome::Duplicate { end, .. } if end > failure.keep => failure.refusal(end),
                Outcome::Refused(old) if failed && is_by_order(old) => failure.refusal(Offset::MAX),
                Outcome::Undecided
                | Outcome::Append { .. }
                | Outcome::Duplicate { .. }
                | Outcome::Refused(_) => continue,
            };
            failed = true;
            answer.outcome = Outcome::Refused(refused);
        }
        appends
    }
}

/// Was it refused for what came before it?
fn is_by_order(refused: AppendRefused) -> bool {
    match refused {
        AppendRefused::OffsetMismatch { .. }
        | AppendRefused::SequenceGap { .. }
        | AppendRefused::SequenceExpired { .. }
        | AppendRefused::SequenceReused { .. }
        | AppendRefused::UnknownProducer
        | AppendRefused::KafkaSequence { .. }
        | AppendRefused::ProducerFenced { .. } => true,
        AppendRefused::Empty
        | AppendRefused::TooLarge { .. }
        | AppendRefused::Busy { .. }
        | AppendRefused::Blocked { .. }
        | AppendRefused::StorageFull
        | AppendRefused::Poisoned
        | AppendRefused::OutcomeUnknown
        | AppendRefused::Closed { .. } => false,
    }
}

/// What a failure of the journal means for what was in flight.
#[derive(Clone, Copy, Debug)]
struct Failure {
    /// What lies below may still be committed.
    keep: Offset,
    /// Nothing from here on was written.
    from: Offset,
    why: WriteFailure,
}

impl Failure {
    /// Of an append that ends at `end`; at the end of time: of one that was not even admitted.
    fn refusal(&self, end: Offset) -> AppendRefused {
        match self.why {
            WriteFailure::Full => AppendRefused::StorageFull,
            WriteFailure::Io if end > self.from => AppendRefused::Poisoned,
            WriteFailure::Poisoned if end == Offset::MAX => AppendRefused::Poisoned,
            WriteFailure::Io | WriteFailure::Poisoned => AppendRefused::OutcomeUnknown,
        }
    }
}

impl Shard {
    pub(super) fn written(&mut self, end: Offset, effects: &mut Vec<Effect>) {
        if !self.commits_when_flushed() {
            self.commit(end, effects);
        }
    }

    pub(super) fn flushed(&mut self, end: Offset, effects: &mut Vec<Effect>) {
        self.commit(end, effects);
    }

    /// Moves the mark, lets answers go and wakes the readers that waited.
    pub(super) fn commit(&mut self, mark: Offset, effects: &mut Vec<Effect>) {
        let mark = mark.min(self.end);
        if mark <= self.committed {
            return;
        }
        while let Some(batch) = self.in_flight.pop_front_if(|batch| batch.end <= mark) {
            self.committed = batch.end;
            self.in_flight_bytes -= batch.bytes_len;
            if batch.kind == BatchKind::Data {
                self.visible_end = batch.end;
                self.stats.committed_records += u64::from(batch.count);
            }
            self.window.push(batch);
            self.make_room();
        }
        self.answers.release(self.committed, effects);
        self.wake_readers(effects);
        self.close_if_drained(effects);
    }

    pub(super) fn write_failed(
        &mut self,
        from: Offset,
        why: WriteFailure,
        effects: &mut Vec<Effect>,
    ) {
        if matches!(self.status, Status::Poisoned | Status::Closed(_)) || !self.is_durable() {
            return;
        }
        // A failed flush leaves everything that was not committed in doubt, wherever it began; a
        // failed write leaves in doubt what was written before it and now will not be flushed.
        // Nothing of the failed batches remains: the journal undoes them or says that it is
        // poisoned.
        let keep = match why {
            WriteFailure::Full => from.max(self.committed),
            WriteFailure::Io | WriteFailure::Poisoned => self.committed,
        };
        let failure = Failure {
            keep,
            from: from.max(keep),
            why,
        };
        let mut failed = 0;
        while let Some(batch) = self.in_flight.pop_back_if(|batch| batch.end > keep) {
            failed += 1;
            self.end = batch.base;
            self.in_flight_bytes -= batch.bytes_len;
        }
        self.producers.roll_back(self.end);
        let told = self.answers.fail(failure);
        self.stats.refused_batches += told;
        self.stats.unacknowledged_lost_batches += failed - told;
        if why != WriteFailure::Full && self.status == Status::Open {
            self.status = Status::Poisoned;
        }
        self.answers.release(self.committed, effects);
        self.close_if_drained(effects);
    }
}
