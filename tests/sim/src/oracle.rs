//! What the outside world knows: what was sent, what it was told, and what it read. Everything a broker says is held
//! against this.

use std::collections::BTreeMap;

use bytes::Bytes;
use felix_engine::{AppendRefused, Appended, Batch};
use felix_model::native::payloads_from_records;
use felix_model::{Generation, Offset, Payloads, TimeMs};

use crate::check::{Check, Findings};
use crate::plan::Mode;

mod recovery;

pub use recovery::Ending;
pub(crate) use recovery::Found;

/// Which batch, in the order in which they were made. It is written into the first payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Uid(pub(crate) u64);

/// Where a batch stands among those of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence {
    pub(crate) producer: u64,
    pub(crate) number: u64,
}

/// What is known of a batch that was made.
#[derive(Debug)]
struct Facts {
    payloads: Payloads,
    sequence: Option<Sequence>,
    expected: Option<Offset>,
    /// It was sent once and refused in a way that says it is not in the log.
    is_refused: bool,
}

/// Somebody was told, or has read, that this batch is at some offset.
#[derive(Clone, Copy, Debug)]
struct Claim {
    uid: Uid,
    end: u64,
    /// None as long as only the answer to a repeated sending told of it.
    generation: Option<Generation>,
    acked: bool,
}

/// A claim that a power cut was allowed to take back.
#[derive(Clone, Copy, Debug)]
struct Revoked {
    uid: Uid,
    end: u64,
    generation: Option<Generation>,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) findings: Findings,
    mode: Mode,
    interval_ms: u64,
    batches: Vec<Facts>,
    /// By base offset.
    claims: BTreeMap<u64, Claim>,
    sequences: BTreeMap<Sequence, u64>,
    revoked: BTreeMap<u64, Vec<Revoked>>,
    /// When what lies below these offsets was written, oldest first, as far as it is not known to be durable.
    written: Vec<(Offset, TimeMs)>,
    /// Everything below was reported to be durable.
    flushed: Offset,
    /// The furthest start that retention may have made.
    retained: Offset,
    /// Oldest offset the log holds.
    start: Offset,
}

impl Oracle {
    pub(crate) fn new(mode: Mode, interval_ms: u64) -> Self {
        Self {
            findings: Findings::default(),
            mode,
            interval_ms,
            batches: Vec::new(),
            claims: BTreeMap::new(),
            sequences: BTreeMap::new(),
            revoked: BTreeMap::new(),
            written: Vec::new(),
            flushed: Offset(0),
            retained: Offset(0),
            start: Offset(0),
        }
    }

    /// The uid that the next batch will have.
    pub(crate) fn next_uid(&self) -> Uid {
        Uid(self.batches.len() as u64)
    }

    /// A batch was made.
    pub(crate) fn made(
        &mut self,
        payloads: Payloads,
        sequence: Option<Sequence>,
        expected: Option<Offset>,
    ) -> Uid {
        let uid = self.next_uid();
        self.batches.push(Facts {
            payloads,
            sequence,
            expected,
            is_refused: false,
        });
        uid
    }

    pub(crate) fn payloads(&self, uid: Uid) -> Option<&Payloads> {
        self.facts(uid).map(|facts| &facts.payloads)
    }

    fn facts(&self, uid: Uid) -> Option<&Facts> {
        self.batches.get(usize::try_from(uid.0).ok()?)
    }

    /// The log was written up to `end`.
    pub(crate) fn wrote(&mut self, end: Offset, now: TimeMs) {
        if self.written.last().is_none_or(|(last, _)| *last < end) {
            self.written.push((end, now));
        }
    }

    /// The log was reported to be durable up to `end`.
    pub(crate) fn flushed(&mut self, end: Offset) {
        self.flushed = self.flushed.max(end);
    }

    /// Retention moved the start.
    pub(crate) fn trimmed(&mut self, start: Offset) {
        self.retained = self.retained.max(start);
        self.start = self.start.max(start);
    }

    /// A publisher was told that its batch is in the log.
    pub(crate) fn acked(&mut self, uid: Uid, appended: Appended, generation: Generation) {
        let (base, end, generation) = match appended {
            Appended::Accepted => return,
            Appended::Committed { base, end } => (base, end, Some(generation)),
            Appended::Duplicate { base, end } => (base, end, None),
        };
        let Some(facts) = self.facts(uid) else { return };
        let (count, expected) = (u64::from(facts.payloads.count), facts.expected);
        self.findings
            .expect(end.since(base) == count, Check::Offsets, || {
                format!("a batch of {count} records was acknowledged at {base}..{end}")
            });
        self.findings.expect(
            expected.is_none_or(|at| at == base),
            Check::Conditional,
            || {
                format!(
                    "batch {} was to be at {expected:?} and was acknowledged at {base}",
                    uid.0
                )
            },
        );
        self.claim(
            base,
            Claim {
                uid,
                end: end.0,
                generation,
                acked: true,
            },
        );
    }

    /// A publisher was told that its batch is not in the log.
    pub(crate) fn refused(&mut self, uid: Uid, why: AppendRefused) {
        let Some(index) = usize::try_from(uid.0).ok() else {
            return;
        };
        let Some(facts) = self.batches.get_mut(index) else {
            return;
        };
        let Some(sequence) = facts.sequence else {
            facts.is_refused |= why != AppendRefused::OutcomeUnknown;
            return;
        };
        let known = |number| self.is_live(Sequence { number, ..sequence });
        let own = known(sequence.number);
        let wrong = match why {
            AppendRefused::UnknownProducer => {
                let first = Sequence {
                    number: 0,
                    ..sequence
                };
                let last = Sequence {
                    number: u64::MAX,
                    ..sequence
                };
                self.sequences
                    .range(first..=last)
                    .any(|(sequence, _)| self.is_live(*sequence))
            }
            AppendRefused::SequenceGap { expected } => known(expected),
            AppendRefused::SequenceExpired { .. } => own,
            // Publishers here are native ones: a Kafka producer's refusal is never theirs.
            AppendRefused::SequenceReused { .. }
            | AppendRefused::KafkaSequence { .. }
            | AppendRefused::ProducerFenced { .. } => true,
            AppendRefused::OffsetMismatch { .. }
            | AppendRefused::Empty
            | AppendRefused::TooLarge { .. }
            | AppendRefused::Busy { .. }
            | AppendRefused::Blocked { .. }
            | AppendRefused::StorageFull
            | AppendRefused::Poisoned
            | AppendRefused::OutcomeUnknown
            | AppendRefused::Closed { .. } => false,
        };
        let Sequence { producer, number } = sequence;
        self.findings.expect(!wrong, Check::Idempotent, || {
            format!(
                "sequence {number} of producer {producer} (in the log: {own}) was refused: {why}"
            )
        });
    }

    /// Whether somebody knows this batch to be in the log.
    fn is_live(&self, sequence: Sequence) -> bool {
        let Some(base) = self.sequences.get(&sequence) else {
            return false;
        };
        let Some(claim) = self.claims.get(base) else {
            return false;
        };
        let facts = self.facts(claim.uid);
        Offset(*base) >= self.start && facts.is_some_and(|facts| facts.sequence == Some(sequence))
    }

    /// A reader was given a batch; what it read begins at `from`.
    pub(crate) fn delivered(&mut self, batch: &Batch, from: Offset) {
        let from = from.max(batch.base);
        let list = match (batch.native(), batch.log()) {
            (Some(native), _) => {
                Some(native.skip(u32::try_from(from.since(batch.base)).unwrap_or(0)))
            }
            (None, Some(log)) => decode(log, from),
            (None, None) => None,
        };
        let Some(list) = list else {
            return self.findings.report(
                Check::Bytes,
                format!("batch at {} cannot be read", batch.base),
            );
        };
        self.read(
            &list,
            Place {
                base: batch.base,
                end: batch.end,
                generation: batch.generation,
            },
            from,
        );
        if let Some(log) = batch.log() {
            self.in_log(log);
        }
    }

    /// A whole batch was seen in the log, where everybody can read it.
    fn in_log(&mut self, log: &Bytes) -> Option<(Uid, Offset)> {
        let batch = Batch::from_log(log.clone()).ok()?;
        let place = Place {
            base: batch.base,
            end: batch.end,
            generation: batch.generation,
        };
        let Some(list) = decode(log, batch.base) else {
            self.findings.report(
                Check::Bytes,
                format!("batch at {} cannot be read", batch.base),
            );
            return None;
        };
        let uid = self.read(&list, place, batch.base)?;
        Some((uid, batch.end))
    }

    /// Payloads were read from `from` on.
    fn read(&mut self, list: &Payloads, place: Place, from: Offset) -> Option<Uid> {
        let skipped = from.since(place.base);
        let uid = match skipped {
            0 => uid_of(list),
            // What is left of a batch does not say which it is; the whole batch does, where it was seen.
            _ => self.claims.get(&place.base.0).map(|claim| claim.uid),
        };
        let Some(uid) = uid else {
            if skipped == 0 {
                self.findings.report(
                    Check::Bytes,
                    format!("nobody published what is at {}", place.base),
                );
            }
            return None;
        };
        let Some(facts) = self.facts(uid) else {
            self.findings.report(
                Check::Bytes,
                format!("nobody published what is at {}", place.base),
            );
            return None;
        };
        let is_same = facts
            .payloads
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX))
            .eq(list.iter());
        let is_refused = facts.is_refused;
        self.findings.expect(is_same, Check::Bytes, || {
            format!(
                "what is read at {from} is not what batch {} was published with",
                uid.0
            )
        });
        self.findings.expect(!is_refused, Check::Refused, || {
            format!("batch {} was refused and is at {}", uid.0, place.base)
        });
        self.claim(
            place.base,
            Claim {
                uid,
                end: place.end.0,
                generation: Some(place.generation),
                acked: false,
            },
        );
        Some(uid)
    }

    /// Somebody knows that a batch is at `base`.
    fn claim(&mut self, base: Offset, new: Claim) {
        if base < self.start {
            return;
        }
        self.hold_against_neighbours(base, new);
        self.hold_against_revoked(base, new);
        self.hold_against_sequences(base, new.uid);
        let claim = self.claims.entry(base.0).or_insert(new);
        claim.acked |= new.acked;
        claim.generation = claim.generation.or(new.generation);
    }

    fn hold_against_neighbours(&mut self, base: Offset, new: Claim) {
        let before = self
            .claims
            .range(..base.0)
            .next_back()
            .map(|(_, claim)| claim.end);
        let after = self
            .claims
            .range(base.0 + 1..)
            .next()
            .map(|(base, _)| *base);
        let overlaps =
            before.is_some_and(|end| end > base.0) || after.is_some_and(|base| base < new.end);
        self.findings.expect(!overlaps, Check::Offsets, || {
            format!(
                "batch {} at {base}..{} overlaps another one",
                new.uid.0, new.end
            )
        });
        let Some(known) = self.claims.get(&base.0) else {
            return;
        };
        let is_same = known.uid == new.uid
            && known.end == new.end
            && (known.generation == new.generation
                || known.generation.or(new.generation).is_none()
                || known.generation.is_none()
                || new.generation.is_none());
        let known = *known;
        self.findings.expect(is_same, Check::Offsets, || {
            format!(
                "offset {base} is batch {} and was batch {}: {new:?}, {known:?}",
                new.uid.0, known.uid.0
            )
        });
    }

    /// An offset may be given away again after a power cut has taken what it held, under another generation.
    fn hold_against_revoked(&mut self, base: Offset, new: Claim) {
        let Some(generation) = new.generation else {
            return;
        };
        for (at, revoked) in self.revoked.range(..new.end) {
            for old in revoked.iter().filter(|old| old.end > base.0) {
                let is_same = *at == base.0 && old.uid == new.uid && old.end == new.end;
                let is_newer = old.generation.is_none_or(|old| old < generation);
                if !is_same && !is_newer {
                    let what = format!(
                        "offset {base} of generation {generation} is batch {} and was batch {}",
                        new.uid.0, old.uid.0
                    );
                    return self.findings.report(Check::Offsets, what);
                }
            }
        }
    }

    fn hold_against_sequences(&mut self, base: Offset, uid: Uid) {
        let Some(sequence) = self.facts(uid).and_then(|facts| facts.sequence) else {
            return;
        };
        let Some(other) = self
            .sequences
            .insert(sequence, base.0)
            .filter(|other| *other != base.0)
        else {
            return;
        };
        let is_live = Offset(other) >= self.start
            && self
                .claims
                .get(&other)
                .is_some_and(|claim| claim.uid == uid);
        self.findings.expect(!is_live, Check::Idempotent, || {
            format!(
                "sequence {} of producer {} is at {other} and at {base}",
                sequence.number, sequence.producer
            )
        });
    }
}

/// Where a batch was found.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: Offset,
    end: Offset,
    generation: Generation,
}

/// The payloads of a batch from an offset on.
fn decode(log: &Bytes, from: Offset) -> Option<Payloads> {
    let mut runs = payloads_from_records(log, from).ok()?;
    let run = runs.next()?.ok()?;
    // A batch that was never compacted is one run.
    (run.base == from && runs.next().is_none()).then_some(run.payloads)
}

fn uid_of(list: &Payloads) -> Option<Uid> {
    let first = list.iter().next()?;
    first
        .first_chunk()
        .map(|bytes| Uid(u64::from_be_bytes(*bytes)))
}
