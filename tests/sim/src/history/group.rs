//! The rules of a consumer group over one shard, held against what consumers were told.
//!
//! What was acknowledged is not handed out again. What was not is, or is set aside. The attempts of a record grow and
//! stay within their bound. First deliveries come in the order of offsets. While one consumer has a record, no other
//! gets it. And when everybody has finished, nothing was skipped.

use std::collections::{BTreeMap, BTreeSet};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It was finished.
    #[error("offset {offset} was acknowledged and came again, for the {attempts}th time")]
    AckedAgain {
        /// Which.
        offset: u64,
        /// The attempt it came with.
        attempts: u32,
    },
    /// The number of an attempt does not follow.
    #[error("offset {offset} came with attempt {attempts} after {before}, of {limit}")]
    Attempts {
        /// Which.
        offset: u64,
        /// What it came with.
        attempts: u32,
        /// The highest before.
        before: u32,
        /// The highest allowed.
        limit: u32,
    },
    /// An earlier record was to come first.
    #[error("offset {offset} came for the first time after {before}")]
    Order {
        /// Which.
        offset: u64,
        /// What had come for the first time before.
        before: u64,
    },
    /// Two have it.
    #[error("offset {offset} went to consumer {to} while {has} had it")]
    Shared {
        /// Which.
        offset: u64,
        /// Who got it.
        to: u64,
        /// Who had it.
        has: u64,
    },
    /// It is not in the log.
    #[error("offset {offset} came and the log ends at {end}")]
    Invented {
        /// Which.
        offset: u64,
        /// Exclusive end of the log.
        end: u64,
    },
    /// Everybody has finished and it was neither acknowledged nor set aside.
    #[error("offset {offset} was skipped: it is neither acknowledged nor set aside")]
    Skipped {
        /// Which.
        offset: u64,
    },
    /// Set aside although it could have been tried again, or was finished.
    #[error("offset {offset} was set aside after attempt {attempts} of {limit}")]
    SetAside {
        /// Which.
        offset: u64,
        /// The attempts it had.
        attempts: u32,
        /// The attempts it may have.
        limit: u32,
    },
}

/// A record on its way to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Who gets it.
    pub consumer: u64,
    /// Which.
    pub offset: u64,
    /// The attempt it comes with, from 1.
    pub attempts: u32,
    /// When the poll began, as [`Checker::now`] had it.
    pub asked: u64,
    /// By the broker's clock: when it was handed out, in milliseconds.
    pub at_ms: u64,
    /// By the broker's clock: it is this consumer's until then. Exclusive.
    pub until_ms: u64,
}

/// A record that was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Which.
    pub offset: u64,
    /// How often it was handed out.
    pub attempts: u32,
    /// By the broker's clock: when, in milliseconds.
    pub at_ms: u64,
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It stands.
    Done,
    /// It was refused: nothing changed.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// What is known of one record.
#[derive(Clone, Debug, Default)]
struct Known {
    attempts: u32,
    /// The acknowledgement was there at this instant, and at this time by the broker's clock.
    acked: Option<(u64, u64)>,
    /// It may be finished, and nobody was told.
    maybe_acked: bool,
    holder: Option<(u64, u64)>,
}

/// Takes what happens in the order in which it is seen.
#[derive(Debug)]
pub struct Checker {
    attempts_max: u32,
    now: u64,
    end: u64,
    known: BTreeMap<u64, Known>,
    first: Option<u64>,
    broken: Vec<Broken>,
}

impl Checker {
    /// Of a group whose records are set aside after so many attempts.
    #[must_use]
    pub fn new(attempts_max: u32) -> Self {
        Self {
            attempts_max,
            now: 0,
            end: 0,
            known: BTreeMap::new(),
            first: None,
            broken: Vec::new(),
        }
    }

    /// A moment that is later than all before, to remember when something began.
    pub fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The log reaches to here. Exclusive.
    pub fn appended(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// A consumer was handed a record.
    pub fn delivered(&mut self, what: Delivered) {
        let (offset, attempts, limit) = (what.offset, what.attempts, self.attempts_max);
        if offset >= self.end {
            let end = self.end;
            self.broken.push(Broken::Invented { offset, end });
        }
        let known = self.known.entry(offset).or_default();
        if known.acked.is_some_and(|(at, _)| at < what.asked) {
            self.broken.push(Broken::AckedAgain { offset, attempts });
        }
        let before = known.attempts;
        if attempts <= before || attempts > limit {
            self.broken.push(Broken::Attempts {
                offset,
                attempts,
                before,
                limit,
            });
        }
        if let Some((has, until)) = known.holder
            && has != what.consumer
            && until > what.at_ms
        {
            let to = what.consumer;
            self.broken.push(Broken::Shared { offset, to, has });
        }
        known.attempts = before.max(attempts);
        known.holder = Some((what.consumer, what.until_ms));
        // Of a first delivery that nobody heard of, only the second is seen; it may come late.
        if attempts == 1 {
            if let Some(before) = self.first
                && before > offset
            {
                self.broken.push(Broken::Order { offset, before });
            }
            self.first = self.first.max(Some(offset));
        }
    }

    /// An acknowledgement was answered at this time by the broker's clock, or is given up. One that comes after its
    /// record was set aside is answered as done, too: it repeats what is settled.
    pub fn acked(&mut self, offset: u64, outcome: Settled, at_ms: u64) {
        let now = self.now();
        let known = self.known.entry(offset).or_default();
        match outcome {
            Settled::Done => known.acked = known.acked.or(Some((now, at_ms))),
            Settled::Unknown => known.maybe_acked = true,
            Settled::Refused => return,
        }
        known.holder = None;
    }

    /// Somebody gave a record back, or tried to: it may go to anybody.
    pub fn given_back(&mut self, offset: u64) {
        self.known.entry(offset).or_default().holder = None;
    }

    /// A consumer asks for what it had on an earlier connection: that is not its own any more, whoever gets it.
    pub fn reclaims(&mut self, consumer: u64) {
        for known in self.known.values_mut() {
            known.holder = known.holder.filter(|(has, _)| *has != consumer);
        }
    }

    /// The broker started again: nobody has anything.
    pub fn restarted(&mut self) {
        self.known
            .values_mut()
            .for_each(|known| known.holder = None);
    }

    /// Everybody has finished: no poll finds anything. `aside` are the records set aside, `start` the first offset
    /// of the group.
    pub fn finished(&mut self, start: u64, aside: &[Aside]) {
        let limit = self.attempts_max;
        for Aside {
            offset,
            attempts,
            at_ms,
        } in aside.iter().copied()
        {
            let known = self.known.get(&offset);
            let acked = known.is_some_and(|known| known.acked.is_some_and(|(_, at)| at < at_ms));
            if attempts < limit || acked {
                self.broken.push(Broken::SetAside {
                    offset,
                    attempts,
                    limit,
                });
            }
        }
        let aside: BTreeSet<u64> = aside.iter().map(|aside| aside.offset).collect();
        for offset in start..self.end {
            let done = self
                .known
                .get(&offset)
                .is_some_and(|known| known.acked.is_some() || known.maybe_acked);
            if !done && !aside.contains(&offset) {
                self.broken.push(Broken::Skipped { offset });
            }
        }
    }

    /// What was found since the last call.
    pub fn take(&mut self) -> Vec<Broken> {
        std::mem::take(&mut self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checker(end: u64) -> Checker {
        let mut checker = Checker::new(3);
        checker.appended(end);
        checker
    }

    fn aside(offset: u64, attempts: u32) -> Aside {
        Aside {
            offset,
            attempts,
            at_ms: 9,
        }
    }

    fn deliver(checker: &mut Checker, consumer: u64, offset: u64, attempts: u32) {
        let asked = checker.now();
        checker.delivered(Delivered {
            consumer,
            offset,
            attempts,
            asked,
            at_ms: 0,
            until_ms: 100,
        });
    }

    #[test]
    fn everything_handed_out_in_order_and_finished_is_right() {
        let mut checker = checker(3);
        for offset in 0..3 {
            deliver(&mut checker, 1, offset, 1);
        }
        checker.acked(0, Settled::Done, 5);
        checker.given_back(1);
        deliver(&mut checker, 2, 1, 2);
        checker.acked(1, Settled::Unknown, 5);
        checker.restarted();
        deliver(&mut checker, 1, 1, 3);
        deliver(&mut checker, 2, 2, 3);
        checker.acked(1, Settled::Done, 5);
        checker.finished(0, &[aside(2, 3)]);
        assert_eq!(checker.take(), []);
    }

    #[test]
    fn what_was_acknowledged_does_not_come_again_but_to_a_poll_that_began_before() {
        let mut checker = checker(1);
        let asked = checker.now();
        deliver(&mut checker, 1, 0, 1);
        checker.acked(0, Settled::Done, 5);
        checker.delivered(Delivered {
            consumer: 1,
            offset: 0,
            attempts: 2,
            asked,
            at_ms: 0,
            until_ms: 1,
        });
        assert_eq!(checker.take(), []);
        deliver(&mut checker, 1, 0, 3);
        let again = Broken::AckedAgain {
            offset: 0,
            attempts: 3,
        };
        assert_eq!(checker.take(), [again]);
    }

    #[test]
    fn attempts_grow_and_are_bounded() {
        let mut checker = checker(1);
        deliver(&mut checker, 1, 0, 2);
        deliver(&mut checker, 1, 0, 2);
        assert!(matches!(
            checker.take()[..],
            [Broken::Attempts { before: 2, .. }]
        ));
        deliver(&mut checker, 1, 0, 4);
        assert!(matches!(
            checker.take()[..],
            [Broken::Attempts { attempts: 4, .. }]
        ));
    }

    #[test]
    fn first_deliveries_come_in_order() {
        let mut checker = checker(3);
        deliver(&mut checker, 1, 1, 1);
        deliver(&mut checker, 1, 0, 2);
        assert_eq!(checker.take(), []);
        deliver(&mut checker, 1, 0, 1);
        let found = checker.take();
        let order = Broken::Order {
            offset: 0,
            before: 1,
        };
        assert!(found.contains(&order), "{found:?}");
    }

    #[test]
    fn nobody_gets_what_another_has() {
        let mut checker = checker(1);
        deliver(&mut checker, 1, 0, 1);
        deliver(&mut checker, 2, 0, 2);
        let shared = Broken::Shared {
            offset: 0,
            to: 2,
            has: 1,
        };
        assert_eq!(checker.take(), [shared]);
        let asked = checker.now();
        checker.delivered(Delivered {
            consumer: 1,
            offset: 0,
            attempts: 3,
            asked,
            at_ms: 100,
            until_ms: 200,
        });
        assert_eq!(checker.take(), [], "the claim had lapsed");
    }

    #[test]
    fn nothing_is_skipped_invented_or_set_aside_too_early() {
        let mut checker = checker(3);
        deliver(&mut checker, 1, 0, 1);
        checker.acked(0, Settled::Done, 5);
        checker.finished(0, &[aside(1, 2), aside(0, 3)]);
        let found = checker.take();
        assert!(found.contains(&Broken::Skipped { offset: 2 }), "{found:?}");
        assert_eq!(found.len(), 3, "{found:?}");
        deliver(&mut checker, 1, 7, 1);
        let invented = Broken::Invented { offset: 7, end: 3 };
        assert_eq!(checker.take(), [invented]);
    }
}
