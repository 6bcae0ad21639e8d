//! Idempotent producers of the Kafka protocol: who sent which sequences, so that a batch sent twice is appended once.
//!
//! A fold over the log like the native table beside it. The rules are the Kafka broker's: sequences count records and
//! wrap from `i32::MAX` to 0, a batch is the same as another when both its first and its last sequence are, an epoch
//! fences those before it, and a producer that is not known may begin anywhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use felix_model::{BatchHeader, Offset, ProducerId};

use crate::producers::Verdict;
use crate::refused::AppendRefused;

/// Committed batches remembered for each producer: as many as a producer may have in flight.
pub(crate) const REMEMBERED_BATCHES: usize = 5;

/// Where a batch stands among those of its producer, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KafkaProduced {
    /// Who sent it.
    pub producer: ProducerId,
    /// Which of those that have had the id; never negative.
    pub epoch: i16,
    /// Sequence of the first record; never negative.
    pub first: i32,
    /// Sequence of the last record (inclusive); below `first` where sequences wrap.
    pub last: i32,
}

impl KafkaProduced {
    /// Which batch of which producer this is; `None` when it is nobody's, or a native producer's.
    pub fn of(header: &BatchHeader) -> Option<Self> {
        let producer = header.producer().filter(|_| !header.is_internal())?;
        let is_data = !header.is_control() && header.base_sequence >= 0;
        is_data.then(|| Self {
            producer,
            epoch: header.producer_epoch,
            first: header.base_sequence,
            last: plus(header.base_sequence, header.last_offset_delta),
        })
    }
}

/// A sequence so many records later.
fn plus(sequence: i32, records: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(records);
    let wrapped = sum % (i64::from(i32::MAX) + 1);
    i32::try_from(wrapped).unwrap_or(0)
}

/// One batch of a producer as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KafkaObserved {
    /// Who sent it, and which.
    pub produced: KafkaProduced,
    /// Of its first record.
    pub base: Offset,
    /// Exclusive.
    pub end: Offset,
}

/// What the log says about these producers.
#[derive(Clone, Debug)]
pub(crate) struct KafkaProducers {
    cap: usize,
    producers: BTreeMap<ProducerId, Producer>,
    /// The same producers by the base offset of their last batch, the next to be forgotten first.
    by_age: BTreeSet<(Offset, ProducerId)>,
}

/// Never empty.
#[derive(Clone, Debug)]
struct Producer {
    /// In the order of the log. Epochs do not fall.
    recent: VecDeque<Remembered>,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    epoch: i16,
    first: i32,
    last: i32,
    base: Offset,
    end: Offset,
}

impl KafkaProducers {
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            cap,
            producers: BTreeMap::new(),
            by_age: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }

    /// Everything remembered, producer by producer, each in the order of the log.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KafkaObserved> + '_ {
        self.producers.iter().flat_map(|(&producer, known)| {
            known.recent.iter().map(move |batch| KafkaObserved {
                produced: KafkaProduced {
                    producer,
                    epoch: batch.epoch,
                    first: batch.first,
                    last: batch.last,
                },
                base: batch.base,
                end: batch.end,
            })
        })
    }

    /// Takes note of a batch that is on its way into a log that is committed up to `committed`.
    pub(crate) fn admit(&mut self, seen: KafkaObserved, committed: Offset) {
        let KafkaObserved {
            produced,
            base,
            end,
        } = seen;
        let known = self
            .producers
            .entry(produced.producer)
            .or_insert_with(|| Producer {
                recent: VecDeque::new(),
            });
        if let Some(newest) = known.recent.back() {
            self.by_age.remove(&(newest.base, produced.producer));
        }
        known.recent.push_back(Remembered {
            epoch: produced.epoch,
            first: produced.first,
            last: produced.last,
            base,
            end,
        });
        // What is in flight is remembered beside what is committed, so that taking it back leaves no less.
        while known
            .recent
            .get(REMEMBERED_BATCHES)
            .is_some_and(|batch| batch.end <= committed)
        {
            known.recent.pop_front();
        }
        self.by_age.insert((base, produced.producer));
        while self.producers.len() > self.cap {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.producers.remove(&oldest);
        }
    }

    pub(crate) fn judge(&self, produced: KafkaProduced) -> Verdict {
        let known = self.producers.get(&produced.producer);
        let Some((known, newest)) = known.and_then(|known| Some((known, known.recent.back()?)))
        else {
            return Verdict::Append;
        };
        if produced.epoch < newest.epoch {
            let epoch = newest.epoch;
            return Verdict::Refuse(AppendRefused::ProducerFenced { epoch });
        }
        if produced.epoch > newest.epoch {
            return match produced.first {
                0 => Verdict::Append,
                _ => Verdict::Refuse(AppendRefused::KafkaSequence { expected: 0 }),
            };
        }
        let mut recent = known.recent.iter().rev();
        let same = recent.find(|batch| {
            batch.epoch == produced.epoch
                && batch.first == produced.first
                && batch.last == produced.last
        });
        if let Some(&Remembered { base, end, .. }) = same {
            return Verdict::Duplicate { base, end };
        }
        let expected = plus(newest.last, 1);
        if produced.first == expected {
            Verdict::Append
        } else {
            Verdict::Refuse(AppendRefused::KafkaSequence { expected })
        }
    }

    /// Forgets every batch at or beyond `from`: it did not make it into the log.
    pub(crate) fn roll_back(&mut self, from: Offset) {
        let touched: Vec<ProducerId> = self
            .by_age
            .range((from, ProducerId(0))..)
            .map(|&(_, producer)| producer)
            .collect();
        for producer in touched {
            let Some(known) = self.producers.get_mut(&producer) else {
                continue;
            };
            if let Some(newest) = known.recent.back() {
                self.by_age.remove(&(newest.base, producer));
            }
            while known
                .recent
                .pop_back_if(|batch| batch.base >= from)
                .is_some()
            {}
            match known.recent.back() {
                Some(newest) => {
                    self.by_age.insert((newest.base, producer));
                }
                // Committed batches are remembered beside those in flight, so it has none.
                None => {
                    self.producers.remove(&producer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(epoch: i16, first: i32, count: i32) -> KafkaProduced {
        KafkaProduced {
            producer: ProducerId(7),
            epoch,
            first,
            last: plus(first, count - 1),
        }
    }

    fn at(produced: KafkaProduced, base: u64) -> KafkaObserved {
        let end = Offset(base + 1);
        let base = Offset(base);
        KafkaObserved {
            produced,
            base,
            end,
        }
    }

    fn table(batches: impl IntoIterator<Item = KafkaProduced>) -> KafkaProducers {
        let mut table = KafkaProducers::new(4);
        for (base, produced) in (0..).zip(batches) {
            table.admit(at(produced, base), Offset(base + 1));
        }
        table
    }

    const GAP: fn(i32) -> Verdict =
        |expected| Verdict::Refuse(AppendRefused::KafkaSequence { expected });

    fn again(base: u64) -> Verdict {
        Verdict::Duplicate {
            base: Offset(base),
            end: Offset(base + 1),
        }
    }

    #[test]
    fn a_producer_that_is_not_known_may_begin_anywhere() {
        assert_eq!(table([]).judge(sent(3, 1234, 2)), Verdict::Append);
    }

    #[test]
    fn the_last_five_batches_are_answered_with_their_first_offset_and_no_older_one_is() {
        let table = table((0..6).map(|batch| sent(0, batch * 10, 10)));
        assert_eq!(table.judge(sent(0, 60, 1)), Verdict::Append);
        for batch in 1..6 {
            let base = u64::try_from(batch).unwrap();
            assert_eq!(table.judge(sent(0, batch * 10, 10)), again(base));
        }
        assert_eq!(table.judge(sent(0, 0, 10)), GAP(60));
        // The same first sequence with another last one is another batch.
        assert_eq!(table.judge(sent(0, 50, 9)), GAP(60));
        assert_eq!(table.judge(sent(0, 61, 1)), GAP(60));
    }

    #[test]
    fn a_newer_epoch_begins_at_0_and_fences_those_before_it() {
        let table = table([sent(0, 5, 5), sent(1, 0, 5)]);
        assert_eq!(
            table.judge(sent(0, 10, 1)),
            Verdict::Refuse(AppendRefused::ProducerFenced { epoch: 1 })
        );
        assert_eq!(table.judge(sent(2, 0, 1)), Verdict::Append);
        assert_eq!(table.judge(sent(2, 5, 1)), GAP(0));
        assert_eq!(table.judge(sent(1, 0, 5)), again(1));
    }

    #[test]
    fn a_sequence_wraps_to_0_and_not_below() {
        let table = table([sent(0, i32::MAX - 4, 5)]);
        assert_eq!(table.judge(sent(0, 0, 3)), Verdict::Append);
        let across = sent(0, i32::MAX - 1, 4);
        assert_eq!((across.first, across.last), (i32::MAX - 1, 1));
        let mut table = KafkaProducers::new(1);
        table.admit(at(across, 0), Offset(1));
        assert_eq!(table.judge(sent(0, 2, 1)), Verdict::Append);
        assert_eq!(table.judge(across), again(0));
    }

    #[test]
    fn what_was_rolled_back_is_expected_again_and_the_epoch_before_stands() {
        let mut table = table([sent(0, 0, 5)]);
        for base in 1..20 {
            let batch = i32::try_from(base - 1).unwrap();
            table.admit(at(sent(1, batch * 5, 5), base), Offset(1));
        }
        table.roll_back(Offset(1));
        assert_eq!(table.judge(sent(0, 5, 5)), Verdict::Append);
        assert_eq!(table.judge(sent(0, 0, 5)), again(0));
        table.roll_back(Offset(0));
        assert_eq!(table.len(), 0);
        assert!(table.by_age.is_empty());
    }

    #[test]
    fn the_producer_that_appended_least_recently_is_forgotten_first() {
        let mut table = KafkaProducers::new(2);
        for (base, producer) in [(0, 1), (1, 2), (2, 1), (3, 3)] {
            let produced = KafkaProduced {
                producer: ProducerId(producer),
                ..sent(0, i32::try_from(base).unwrap(), 1)
            };
            table.admit(at(produced, base), Offset(base + 1));
        }
        let known: Vec<_> = table.producers.keys().map(|producer| producer.0).collect();
        assert_eq!(known, [1, 3]);
    }

    #[test]
    fn what_was_remembered_rebuilds_the_table() {
        let table = table((0..8).map(|batch| sent(i16::from(batch > 3), batch % 4, 1)));
        let mut again = KafkaProducers::new(4);
        for seen in table.iter() {
            again.admit(seen, seen.end);
        }
        assert_eq!(format!("{table:?}"), format!("{again:?}"));
    }
}
