//! Admission: which append gets which offsets, and which is refused.

use std::collections::VecDeque;
use std::sync::Arc;

use felix_model::TimeMs;

use super::commit::{Answer, Outcome, Place};
use super::{Shard, Status};
use crate::batch::Draft;
use crate::effect::Effect;
use crate::input::{Append, CloseReason, Produced};
use crate::kafka_producers::KafkaObserved;
use crate::options::{Overflow, Storage};
use crate::producers::{Observed, Verdict};
use crate::refused::AppendRefused;

/// Appends that wait for slow readers, in order. Each has its place among the answers already.
#[derive(Debug, Default)]
pub(super) struct Held {
    appends: VecDeque<HeldAppend>,
    bytes: u64,
}

#[derive(Debug)]
struct HeldAppend {
    place: Place,
    append: Append,
    deadline: TimeMs,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.appends.len()
    }

    pub(super) fn deadline(&self) -> Option<TimeMs> {
        self.appends.front().map(|held| held.deadline)
    }

    fn push(&mut self, held: HeldAppend) {
        self.bytes += held.append.batch.bytes_len();
        self.appends.push_back(held);
    }

    fn pop_if(&mut self, ready: impl FnOnce(&HeldAppend) -> bool) -> Option<HeldAppend> {
        let held = self.appends.pop_front_if(|held| ready(held))?;
        self.bytes -= held.append.batch.bytes_len();
        Some(held)
    }
}

impl Shard {
    pub(super) fn append(&mut self, now: TimeMs, append: Append, effects: &mut Vec<Effect>) {
        let place = self.answers.push(Answer {
            ticket: append.ticket,
            ack: append.ack,
            outcome: Outcome::Undecided,
        });
        if let Err(refused) = self.admissible(&append.batch) {
            self.refuse(place, refused);
        } else if self.must_wait(&append.batch) {
            self.hold(now, place, append);
        } else {
            self.decide(place, append, effects);
        }
        self.answers.release(self.committed, effects);
    }

    /// What can be said without looking at the order.
    fn admissible(&self, batch: &Draft) -> Result<(), AppendRefused> {
        match self.status {
            Status::Open => {}
            Status::Poisoned => return Err(AppendRefused::Poisoned),
            Status::Closing(reason) | Status::Closed(reason) => {
                return Err(AppendRefused::Closed { reason });
            }
        }
        if batch.count() == 0 || (self.is_durable() && !batch.has_log()) {
            return Err(AppendRefused::Empty);
        }
        let size = batch.bytes_len();
        match self.options.storage {
            Storage::Memory {
                ring_bytes: limit, ..
            } if size > limit => Err(AppendRefused::TooLarge { size, limit }),
            Storage::Memory { .. } | Storage::Durable { .. } => Ok(()),
        }
    }

    /// Under `overflow: block`: does it have to wait for readers, or for others that do?
    fn must_wait(&self, batch: &Draft) -> bool {
        match self.options.storage {
            Storage::Memory {
                overflow: Overflow::Block,
                ..
            } => self.held.len() > 0 || !self.has_ring_room(batch.bytes_len()),
            Storage::Memory { .. } | Storage::Durable { .. } => false,
        }
    }

    fn hold(&mut self, now: TimeMs, place: Place, append: Append) {
        let limits = self.options.limits;
        let bytes = self.held.bytes + append.batch.bytes_len();
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        if held >= limits.held_max || (held > 0 && bytes > self.held_bytes_max()) {
            return self.refuse(place, AppendRefused::Blocked { held });
        }
        let deadline = TimeMs(now.0.saturating_add(limits.held_ms_max));
        self.held.push(HeldAppend {
            place,
            append,
            deadline,
        });
    }

    /// What waits is no more than the ring itself, so that a stream is never held twice over.
    fn held_bytes_max(&self) -> u64 {
        let limit = self.options.limits.in_flight_bytes_max;
        match self.options.storage {
            Storage::Memory { ring_bytes, .. } => limit.min(ring_bytes),
            Storage::Durable { .. } => limit,
        }
    }

    /// Gives an append its offsets, or refuses it, by the state of the shard right now.
    fn decide(&mut self, place: Place, append: Append, effects: &mut Vec<Effect>) {
        match self.judge(&append) {
            Verdict::Append => self.admit(place, append.batch, append.producer, effects),
            Verdict::Duplicate { base, end } => {
                self.stats.duplicate_batches += 1;
                self.answers.set(place, Outcome::Duplicate { base, end });
            }
            Verdict::Refuse(refused) => self.refuse(place, refused),
        }
    }

    fn judge(&self, append: &Append) -> Verdict {
        let sent_before = match append.producer {
            Some(produced) => Some(self.producers.judge(produced)),
            None => append
                .batch
                .kafka()
                .map(|produced| self.producers.judge_kafka(produced)),
        };
        if let Some(verdict @ (Verdict::Duplicate { .. } | Verdict::Refuse(_))) = sent_before {
            return verdict;
        }
        if append.expected.is_some_and(|expected| expected != self.end) {
            return Verdict::Refuse(AppendRefused::OffsetMismatch { tail: self.end });
        }
        let limit = self.options.limits.in_flight_bytes_max;
        let in_flight = self.in_flight_bytes;
        if in_flight > 0 && in_flight + append.batch.bytes_len() > limit {
            return Verdict::Refuse(AppendRefused::Busy { in_flight, limit });
        }
        Verdict::Append
    }

    fn admit(
        &mut self,
        place: Place,
        draft: Draft,
        produced: Option<Produced>,
        effects: &mut Vec<Effect>,
    ) {
        let kafka = draft.kafka();
        let batch = Arc::new(draft.seal(self.end, self.options.generation));
        self.end = batch.end;
        self.stats.appended_batches += 1;
        self.stats.appended_records += u64::from(batch.count);
        self.stats.appended_bytes += batch.bytes_len;
        if let Some(produced) = produced {
            let seen = Observed {
                produced,
                base: batch.base,
                end: batch.end,
            };
            self.producers.admit(seen, self.committed);
        } else if let Some(produced) = kafka {
            let seen = KafkaObserved {
                produced,
                base: batch.base,
                end: batch.end,
            };
            self.producers.admit_kafka(seen, self.committed);
        }
        self.answers.set(
            place,
            Outcome::Append {
                base: batch.base,
                end: batch.end,
            },
        );
        self.in_flight_bytes += batch.bytes_len;
        self.in_flight.push_back(Arc::clone(&batch));
        if self.is_durable() {
            let end = batch.end;
            effects.push(Effect::Write { batch, end });
        } else {
            self.commit(batch.end, effects);
        }
    }

    pub(super) fn refuse(&mut self, place: Place, refused: AppendRefused) {
        self.stats.refused_batches += 1;
        self.answers.set(place, Outcome::Refused(refused));
    }

    /// Decides appends that waited for readers, as far as there is room now.
    pub(super) fn decide_held(&mut self, effects: &mut Vec<Effect>) {
        while let Some(bytes) = self
            .held
            .appends
            .front()
            .map(|held| held.append.batch.bytes_len())
            && self.has_ring_room(bytes)
            && let Some(HeldAppend { place, append, .. }) = self.held.pop_if(|_| true)
        {
            self.decide(place, append, effects);
        }
        self.answers.release(self.committed, effects);
    }

    pub(super) fn refuse_overdue(&mut self, now: TimeMs) {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        while let Some(overdue) = self.held.pop_if(|held| held.deadline <= now) {
            self.refuse(overdue.place, AppendRefused::Blocked { held });
        }
    }

    pub(super) fn refuse_held(&mut self, reason: CloseReason) {
        while let Some(held) = self.held.pop_if(|_| true) {
            self.refuse(held.place, AppendRefused::Closed { reason });
        }
    }
}
