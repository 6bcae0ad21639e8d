//! What an idempotent producer has in flight to one shard. Pure.
//!
//! Batches get their sequence when they are accepted and keep it until they are acknowledged. When one fails in a
//! way that trying again can mend, all unacknowledged ones are sent again, in order, under the same sequences: the
//! broker knows those it has and answers them with their offsets. Each such round is an *epoch*; a failure that
//! belongs to an earlier epoch says nothing any more, an acknowledgement always counts.

use std::collections::VecDeque;
use std::time::Duration;

use felix_wire::message::RefusedReason;

use super::answer::NotPublished;
use crate::error::{CallFailed, PublishFailed, Refused, Retry};

/// Sequences of one shard.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    /// The sequence the next batch gets.
    next: u64,
    /// In order of their sequences, which are contiguous up to `next`.
    unanswered: VecDeque<Entry<T>>,
    phase: Phase,
    epoch: u32,
}

#[derive(Debug)]
struct Entry<T> {
    sequence: u64,
    /// `None` once acknowledged out of order.
    item: Option<T>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Batches are sent as they come.
    Flowing,
    /// Batches wait; the one with this sequence is sent next.
    Recovering {
        resend: u64,
    },
    Ended {
        why: String,
    },
}

/// Whether a batch may be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    Send {
        sequence: u64,
        epoch: u32,
    },
    /// It will be sent by the round that is under way.
    Hold,
}

/// What a failure means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    /// Nothing: it belongs to an earlier round.
    Ignore,
    /// A round of resending begins, after this long, perhaps at the broker named.
    Recover {
        after: Duration,
        leader: Option<String>,
    },
    /// It is over. The first is to be told `refused`, the others that the producer ended.
    End {
        refused: PublishFailed,
        first: Option<T>,
        others: Vec<T>,
        why: String,
    },
}

impl<T> Lane<T> {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            unanswered: VecDeque::new(),
            phase: Phase::Flowing,
            epoch: 0,
        }
    }

    /// Takes a batch and gives it its sequence.
    ///
    /// # Errors
    /// Gives the batch back when the lane has ended, with the reason.
    pub(crate) fn accept(&mut self, item: T) -> Result<Accepted, (T, PublishFailed)> {
        let accepted = match &self.phase {
            Phase::Flowing => Accepted::Send {
                sequence: self.next,
                epoch: self.epoch,
            },
            Phase::Recovering { .. } => Accepted::Hold,
            Phase::Ended { why } => {
                return Err((item, PublishFailed::ProducerEnded { why: why.clone() }));
            }
        };
        self.unanswered.push_back(Entry {
            sequence: self.next,
            item: Some(item),
        });
        self.next += 1;
        Ok(accepted)
    }

    /// The batch with this sequence is in the log. `None` when that was known.
    pub(crate) fn acknowledged(&mut self, sequence: u64) -> Option<T> {
        let first = self.unanswered.front()?.sequence;
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        let item = self.unanswered.get_mut(index)?.item.take();
        while self
            .unanswered
            .front()
            .is_some_and(|entry| entry.item.is_none())
        {
            self.unanswered.pop_front();
        }
        item
    }

    /// The batch with this sequence, sent in `epoch`, failed.
    pub(crate) fn failed(&mut self, epoch: u32, sequence: u64, why: NotPublished) -> Step<T> {
        if epoch != self.epoch || matches!(self.phase, Phase::Ended { .. }) {
            return Step::Ignore;
        }
        match judge(why) {
            Judged::Again { after, leader } => {
                self.recover();
                Step::Recover { after, leader }
            }
            // The broker waits for one of those that will be sent again: the one before this was refused.
            Judged::Gap { expected, .. }
                if self
                    .unanswered
                    .front()
                    .is_some_and(|first| first.sequence <= expected)
                    && expected <= sequence =>
            {
                self.recover();
                Step::Recover {
                    after: Duration::ZERO,
                    leader: None,
                }
            }
            Judged::Gap { refused, why, .. } | Judged::Over { refused, why } => {
                self.end(sequence, refused, why)
            }
        }
    }

    /// The connection was lost or a round could not go on: begins another round.
    pub(crate) fn recover(&mut self) {
        if matches!(self.phase, Phase::Ended { .. }) {
            return;
        }
        let resend = self
            .unanswered
            .front()
            .map_or(self.next, |entry| entry.sequence);
        self.phase = Phase::Recovering { resend };
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// What the round under way sends next: the batch, its sequence and the epoch. `None` when all is sent; then
    /// batches flow again.
    pub(crate) fn resend(&mut self) -> Option<(u64, u32, &T)> {
        let Phase::Recovering { resend } = &mut self.phase else {
            return None;
        };
        let from = *resend;
        let due = self
            .unanswered
            .iter()
            .find(|entry| entry.sequence >= from && entry.item.is_some());
        let Some((sequence, item)) =
            due.and_then(|entry| Some((entry.sequence, entry.item.as_ref()?)))
        else {
            self.phase = Phase::Flowing;
            return None;
        };
        *resend = sequence;
        Some((sequence, self.epoch, item))
    }

    /// The round has sent this one.
    pub(crate) fn resent(&mut self, sequence: u64) {
        if let Phase::Recovering { resend } = &mut self.phase
            && *resend == sequence
        {
            *resend = sequence + 1;
        }
    }

    /// Gives up: no broker could be reached for too long.
    pub(crate) fn give_up(&mut self, why: &str) -> Vec<T> {
        self.phase = Phase::Ended {
            why: why.to_owned(),
        };
        self.unanswered
            .drain(..)
            .filter_map(|entry| entry.item)
            .collect()
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    fn end(&mut self, sequence: u64, refused: PublishFailed, why: String) -> Step<T> {
        self.phase = Phase::Ended { why: why.clone() };
        let mut first = None;
        let mut others = Vec::new();
        for entry in self.unanswered.drain(..) {
            if entry.sequence == sequence {
                first = entry.item;
            } else {
                others.extend(entry.item);
            }
        }
        Step::End {
            refused,
            first,
            others,
            why,
        }
    }
}

enum Judged {
    Again {
        after: Duration,
        leader: Option<String>,
    },
    Gap {
        expected: u64,
        refused: PublishFailed,
        why: String,
    },
    Over {
        refused: PublishFailed,
        why: String,
    },
}

fn judge(why: NotPublished) -> Judged {
    let again = |after| Judged::Again {
        after,
        leader: None,
    };
    let ended = |why: String| PublishFailed::ProducerEnded { why };
    match why {
        NotPublished::Lost(_) => again(Duration::ZERO),
        NotPublished::Refused(failure) => {
            let refused = Refused::from(failure);
            match refused.retry {
                Retry::RetryAfter(after) => again(after),
                Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown => again(Duration::ZERO),
                Retry::Fatal => {
                    let why = refused.to_string();
                    Judged::Over {
                        refused: CallFailed::Refused(refused).into(),
                        why,
                    }
                }
            }
        }
        NotPublished::OutOfPlace(RefusedReason::SequenceGap { expected }, why) => Judged::Gap {
            expected,
            refused: ended(why.clone()),
            why,
        },
        NotPublished::OutOfPlace(RefusedReason::NotLeader { addr, .. }, _) => Judged::Again {
            after: Duration::ZERO,
            leader: addr,
        },
        NotPublished::OutOfPlace(
            RefusedReason::UnknownProducer
            | RefusedReason::SequenceExpired
            | RefusedReason::SequenceReused
            | RefusedReason::OffsetMismatch { .. },
            why,
        ) => Judged::Over {
            refused: ended(why.clone()),
            why,
        },
    }
}

#[cfg(test)]
mod tests {
    use felix_wire::error::{Code, Failure};

    use super::super::answer::Lost;
    use super::*;

    fn lost() -> NotPublished {
        NotPublished::Lost(Lost::because(true, "lost"))
    }

    fn gap(expected: u64) -> NotPublished {
        NotPublished::OutOfPlace(RefusedReason::SequenceGap { expected }, "gap".to_owned())
    }

    fn filled(count: u64) -> Lane<u64> {
        let mut lane = Lane::new();
        for sequence in 0..count {
            assert_eq!(
                lane.accept(sequence),
                Ok(Accepted::Send { sequence, epoch: 0 })
            );
        }
        lane
    }

    fn resent(lane: &mut Lane<u64>) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some((sequence, _, item)) = lane.resend() {
            assert_eq!(sequence, *item);
            all.push(sequence);
            lane.resent(sequence);
        }
        all
    }

    #[test]
    fn sequences_begin_at_zero_and_rise_by_one() {
        let mut lane = filled(3);
        assert_eq!(lane.acknowledged(0), Some(0));
        assert_eq!(lane.acknowledged(0), None);
        assert_eq!(
            lane.accept(3),
            Ok(Accepted::Send {
                sequence: 3,
                epoch: 0
            })
        );
    }

    #[test]
    fn after_a_loss_everything_unacknowledged_is_sent_again_in_order() {
        let mut lane = filled(4);
        assert_eq!(lane.acknowledged(0), Some(0));
        assert_eq!(lane.acknowledged(2), Some(2));
        let step = lane.failed(0, 1, lost());
        assert_eq!(
            step,
            Step::Recover {
                after: Duration::ZERO,
                leader: None
            }
        );
        assert_eq!(lane.failed(0, 3, lost()), Step::Ignore);
        assert_eq!(lane.accept(4), Ok(Accepted::Hold));
        assert_eq!(resent(&mut lane), [1, 3, 4]);
        assert_eq!(
            lane.accept(5),
            Ok(Accepted::Send {
                sequence: 5,
                epoch: 1
            })
        );
    }

    #[test]
    fn an_acknowledgement_from_an_earlier_round_counts() {
        let mut lane = filled(2);
        lane.recover();
        assert_eq!(lane.acknowledged(0), Some(0));
        assert_eq!(resent(&mut lane), [1]);
    }

    #[test]
    fn a_loss_during_a_round_begins_another() {
        let mut lane = filled(3);
        lane.recover();
        let (sequence, epoch, _) = lane.resend().unwrap();
        assert_eq!((sequence, epoch), (0, 1));
        lane.resent(0);
        assert!(matches!(lane.failed(1, 0, lost()), Step::Recover { .. }));
        assert_eq!(resent(&mut lane), [0, 1, 2]);
        assert_eq!(lane.epoch(), 2);
    }

    #[test]
    fn a_refused_batch_is_sent_again_and_the_gaps_behind_it_are_no_news() {
        let mut lane = filled(3);
        let overloaded = Failure::new(Code::Overloaded, "full").with_retry_after_ms(40);
        let step = lane.failed(0, 0, NotPublished::Refused(overloaded));
        assert_eq!(
            step,
            Step::Recover {
                after: Duration::from_millis(40),
                leader: None
            }
        );
        assert_eq!(lane.failed(0, 1, gap(0)), Step::Ignore);
        assert_eq!(resent(&mut lane), [0, 1, 2]);
    }

    #[test]
    fn a_gap_that_begins_within_what_is_kept_is_filled() {
        let mut lane = filled(3);
        assert!(matches!(lane.failed(0, 2, gap(1)), Step::Recover { .. }));
        assert_eq!(resent(&mut lane), [0, 1, 2]);
    }

    #[test]
    fn a_gap_below_what_was_acknowledged_ends_the_producer() {
        let mut lane = filled(3);
        lane.acknowledged(0);
        let Step::End {
            first,
            others,
            refused,
            ..
        } = lane.failed(0, 1, gap(0))
        else {
            panic!("the broker lost what it had acknowledged");
        };
        assert_eq!((first, others), (Some(1), vec![2]));
        assert_eq!(refused.code(), "producer_ended");
        assert!(lane.accept(9).is_err());
        assert_eq!(lane.failed(0, 2, lost()), Step::Ignore);
    }

    #[test]
    fn a_fatal_refusal_is_told_to_its_batch_and_the_others_hear_that_it_is_over() {
        let mut lane = filled(2);
        let forbidden = NotPublished::Refused(Failure::new(Code::Forbidden, "no"));
        let Step::End {
            refused,
            first,
            others,
            ..
        } = lane.failed(0, 0, forbidden)
        else {
            panic!("fatal");
        };
        assert_eq!(refused.code(), "forbidden");
        assert_eq!((first, others), (Some(0), vec![1]));
    }

    #[test]
    fn a_redirect_names_the_broker_to_go_on_with() {
        let mut lane = filled(1);
        let reason = RefusedReason::NotLeader {
            node_id: "b".to_owned(),
            addr: Some("10.0.0.1:1".to_owned()),
        };
        let step = lane.failed(0, 0, NotPublished::OutOfPlace(reason, String::new()));
        let leader = Some("10.0.0.1:1".to_owned());
        assert_eq!(
            step,
            Step::Recover {
                after: Duration::ZERO,
                leader
            }
        );
    }

    #[test]
    fn giving_up_hands_everything_back() {
        let mut lane = filled(2);
        lane.recover();
        assert_eq!(lane.give_up("no broker"), vec![0, 1]);
        assert_eq!(lane.resend(), None);
        let (item, failed) = lane.accept(7).unwrap_err();
        assert_eq!((item, failed.code()), (7, "producer_ended"));
    }
}
