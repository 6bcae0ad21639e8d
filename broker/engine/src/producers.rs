//! Idempotent producers: who sent what, so that a batch sent twice is appended once.
//!
//! The table is a fold over the log: appending and observing a recovered batch do the same to it.
//! Which producer is forgotten first depends on offsets only, so a table that was rebuilt from
//! the whole log equals the one that was lost, but for producers of which retention left nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use felix_model::{Offset, ProducerId};

use crate::input::Produced;
use crate::kafka_producers::{KafkaObserved, KafkaProduced, KafkaProducers};
use crate::refused::AppendRefused;

/// Committed batches remembered for each producer: more than any published client leaves
/// unanswered. Those in flight are remembered beside them, so that taking these back leaves no
/// less; their number is bounded by the bytes that may be in flight.
pub(crate) const REMEMBERED_BATCHES: usize = 64;

/// One batch of a producer as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Who sent it, which, and with what in it.
    pub produced: Produced,
    /// Of its first record.
    pub base: Offset,
    /// Exclusive.
    pub end: Offset,
}

/// What the log says about idempotent producers.
#[derive(Clone, Debug)]
pub struct ProducerTable {
    cap: usize,
    producers: BTreeMap<ProducerId, Producer>,
    /// The same producers by the base offset of their last batch, the next to be forgotten first.
    by_age: BTreeSet<(Offset, ProducerId)>,
    /// Those of the Kafka protocol. An id is one of these or of the others for life.
    kafka: KafkaProducers,
}

#[derive(Clone, Debug)]
struct Producer {
    next: u64,
    /// Base of the newest batch; the key in `by_age`.
    last: Offset,
    /// In order of sequence, without gaps, ending at `next - 1`.
    recent: VecDeque<Remembered>,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    sequence: u64,
    digest: u64,
    base: Offset,
    end: Offset,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Append,
    Duplicate { base: Offset, end: Offset },
    Refuse(AppendRefused),
}

impl ProducerTable {
    /// An empty table that remembers at most `producers_max` producers.
    pub fn new(producers_max: u32) -> Self {
        let cap = usize::try_from(producers_max).unwrap_or(usize::MAX).max(1);
        Self {
            cap,
            producers: BTreeMap::new(),
            by_age: BTreeSet::new(),
            kafka: KafkaProducers::new(cap),
        }
    }

    /// Producers remembered.
    pub fn len(&self) -> usize {
        self.producers.len() + self.kafka.len()
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything remembered of native producers, producer by producer, each in order of sequence. Observing these in
    /// order of their offsets, with those of [`Self::iter_kafka`], gives the same table.
    pub fn iter(&self) -> impl Iterator<Item = Observed> + '_ {
        self.producers.iter().flat_map(|(&producer, known)| {
            known.recent.iter().map(move |batch| Observed {
                produced: Produced {
                    producer,
                    sequence: batch.sequence,
                    digest: batch.digest,
                },
                base: batch.base,
                end: batch.end,
            })
        })
    }

    /// Everything remembered of producers of the Kafka protocol, in the same way.
    pub fn iter_kafka(&self) -> impl Iterator<Item = KafkaObserved> + '_ {
        self.kafka.iter()
    }

    /// Takes note of a batch of a producer of the Kafka protocol that is in the log. Call it in order of offsets.
    pub fn observe_kafka(&mut self, seen: KafkaObserved) {
        self.kafka.admit(seen, seen.end);
    }

    pub(crate) fn admit_kafka(&mut self, seen: KafkaObserved, committed: Offset) {
        self.kafka.admit(seen, committed);
    }

    pub(crate) fn judge_kafka(&self, produced: KafkaProduced) -> Verdict {
        self.kafka.judge(produced)
    }

    /// Takes note of a batch that is in the log. Call it in order of offsets.
    ///
    /// A sequence other than the next one starts the producer anew: it was forgotten while the
    /// log grew, or retention took what came before.
    pub fn observe(&mut self, seen: Observed) {
        self.admit(seen, seen.end);
    }

    /// Takes note of a batch that is on its way into a log that is committed up to `committed`.
    pub(crate) fn admit(&mut self, seen: Observed, committed: Offset) {
        let Observed {
            produced:
                Produced {
                    producer,
                    sequence,
                    digest,
                },
            base,
            end,
        } = seen;
        let known = self.producers.entry(producer).or_insert_with(|| Producer {
            next: sequence,
            last: base,
            recent: VecDeque::new(),
        });
        self.by_age.remove(&(known.last, producer));
        if known.next != sequence {
            known.recent.clear();
        }
        known.recent.push_back(Remembered {
            sequence,
            digest,
            base,
            end,
        });
        while known
            .recent
            .get(REMEMBERED_BATCHES)
            .is_some_and(|batch| batch.end <= committed)
        {
            known.recent.pop_front();
        }
        known.next = sequence.saturating_add(1);
        known.last = base;
        self.by_age.insert((base, producer));
        self.forget_oldest();
    }

    pub(crate) fn judge(&self, produced: Produced) -> Verdict {
        let Produced {
            producer,
            sequence,
            digest,
        } = produced;
        let Some(known) = self.producers.get(&producer) else {
            return if sequence == 0 {
                Verdict::Append
            } else {
                Verdict::Refuse(AppendRefused::UnknownProducer)
            };
        };
        if sequence == known.next {
            return Verdict::Append;
        }
        if sequence > known.next {
            return Verdict::Refuse(AppendRefused::SequenceGap {
                expected: known.next,
            });
        }
        let found = known
            .recent
            .binary_search_by_key(&sequence, |batch| batch.sequence);
        match found.ok().and_then(|index| known.recent.get(index)) {
            None => Verdict::Refuse(AppendRefused::SequenceExpired {
                remembered: u32::try_from(known.recent.len()).unwrap_or(u32::MAX),
            }),
            Some(&Remembered {
                digest: first,
                base,
                end,
                ..
            }) if first == digest => Verdict::Duplicate { base, end },
            Some(&Remembered { base, end, .. }) => {
                Verdict::Refuse(AppendRefused::SequenceReused { base, end })
            }
        }
    }

    /// Forgets every batch at or beyond `from`: it did not make it into the log.
    pub(crate) fn roll_back(&mut self, from: Offset) {
        self.kafka.roll_back(from);
        let touched: Vec<ProducerId> = self
            .by_age
            .range((from, ProducerId(0))..)
            .map(|&(_, producer)| producer)
            .collect();
        for producer in touched {
            let Some(known) = self.producers.get_mut(&producer) else {
                continue;
            };
            self.by_age.remove(&(known.last, producer));
            while let Some(batch) = known.recent.pop_back_if(|batch| batch.base >= from) {
                known.next = batch.sequence;
            }
            if let Some(batch) = known.recent.back() {
                known.last = batch.base;
                self.by_age.insert((known.last, producer));
            } else {
                // Committed batches are remembered beside those in flight, so it has none.
                self.producers.remove(&producer);
            }
        }
    }

    fn forget_oldest(&mut self) {
        while self.producers.len() > self.cap {
            let Some((_, producer)) = self.by_age.pop_first() else {
                return;
            };
            self.producers.remove(&producer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_judged_by_what_is_remembered() {
        let mut table = ProducerTable::new(8);
        for sequence in 0..70 {
            assert_eq!(table.judge(sent(1, sequence)), Verdict::Append);
            table.observe(seen(1, sequence));
        }
        assert_eq!(table.judge(sent(1, 70)), Verdict::Append);
        assert_eq!(
            table.judge(sent(1, 72)),
            Verdict::Refuse(AppendRefused::SequenceGap { expected: 70 })
        );
        assert_eq!(
            table.judge(sent(1, 6)),
            Verdict::Duplicate {
                base: Offset(6),
                end: Offset(7)
            }
        );
        assert_eq!(
            table.judge(sent(1, 5)),
            Verdict::Refuse(AppendRefused::SequenceExpired { remembered: 64 })
        );
        assert_eq!(
            table.judge(Produced {
                digest: 0,
                ..sent(1, 69)
            }),
            Verdict::Refuse(AppendRefused::SequenceReused {
                base: Offset(69),
                end: Offset(70)
            })
        );
        assert_eq!(
            table.judge(sent(2, 1)),
            Verdict::Refuse(AppendRefused::UnknownProducer)
        );
    }

    #[test]
    fn the_producer_that_appended_least_recently_is_forgotten_first() {
        let mut table = ProducerTable::new(2);
        table.observe(at(1, 0, 0));
        table.observe(at(2, 0, 1));
        table.observe(at(1, 1, 2));
        table.observe(at(3, 0, 3));
        assert_eq!(
            table.judge(sent(2, 1)),
            Verdict::Refuse(AppendRefused::UnknownProducer)
        );
        assert_eq!(table.judge(sent(1, 2)), Verdict::Append);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_batch_that_was_rolled_back_is_expected_again() {
        let mut table = ProducerTable::new(8);
        table.observe(at(1, 0, 0));
        table.observe(at(1, 1, 1));
        table.observe(at(2, 0, 2));
        table.roll_back(Offset(1));
        assert_eq!(table.judge(sent(1, 1)), Verdict::Append);
        assert_eq!(
            table.judge(sent(2, 1)),
            Verdict::Refuse(AppendRefused::UnknownProducer)
        );
        assert_eq!(table.judge(sent(2, 0)), Verdict::Append);
    }

    #[test]
    fn as_much_as_ever_is_remembered_after_many_batches_in_flight_were_rolled_back() {
        let mut table = ProducerTable::new(8);
        for sequence in 0..100 {
            table.observe(seen(1, sequence));
        }
        for sequence in 100..300 {
            table.admit(seen(1, sequence), Offset(100));
            table.admit(at(2, sequence - 100, sequence), Offset(100));
        }
        table.roll_back(Offset(100));
        assert_eq!(table.judge(sent(1, 100)), Verdict::Append);
        assert_eq!(
            table.judge(sent(1, 36)),
            Verdict::Duplicate {
                base: Offset(36),
                end: Offset(37)
            }
        );
        assert_eq!(
            table.judge(sent(1, 35)),
            Verdict::Refuse(AppendRefused::SequenceExpired { remembered: 64 })
        );
        assert_eq!(table.judge(sent(2, 0)), Verdict::Append);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn what_was_remembered_rebuilds_the_table() {
        let mut table = ProducerTable::new(8);
        for offset in 0..200 {
            table.observe(at(offset % 3, offset / 3, offset));
        }
        let mut all: Vec<_> = table.iter().collect();
        all.sort_by_key(|batch| batch.base);
        let mut again = ProducerTable::new(8);
        all.into_iter().for_each(|batch| again.observe(batch));
        assert_eq!(format!("{table:?}"), format!("{again:?}"));
    }

    fn sent(producer: u64, sequence: u64) -> Produced {
        Produced {
            producer: ProducerId(producer),
            sequence,
            digest: sequence + 100,
        }
    }

    fn seen(producer: u64, sequence: u64) -> Observed {
        at(producer, sequence, sequence)
    }

    fn at(producer: u64, sequence: u64, base: u64) -> Observed {
        Observed {
            produced: sent(producer, sequence),
            base: Offset(base),
            end: Offset(base + 1),
        }
    }
}
