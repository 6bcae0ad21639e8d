//! One counter, one call at a time: a sum, and what was added under idempotency keys.

use std::collections::BTreeMap;

use super::linear::Sequential;

/// A counter.
#[derive(Debug)]
pub struct Counter;

/// What it has come to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Counted {
    /// `None`: never added to.
    sum: Option<i64>,
    /// By idempotency key, the sum that was answered.
    once: BTreeMap<u64, i64>,
}

/// One call.
#[derive(Clone, Debug)]
pub enum Call {
    /// Add.
    Add {
        /// How much.
        delta: i64,
        /// The number of its idempotency key. The same key comes with the same delta.
        once: Option<u64>,
        /// The sum afterwards; `None`: nobody knows whether it was added.
        answer: Option<i64>,
    },
    /// Read.
    Sum {
        /// `None`: never added to.
        answer: Option<i64>,
    },
}

impl Sequential for Counter {
    type State = Counted;
    type Call = Call;

    fn after(&self, state: &Counted, call: &Call) -> Vec<Counted> {
        let after = match call {
            Call::Sum { answer } => (*answer == state.sum).then(|| state.clone()),
            Call::Add {
                delta,
                once,
                answer,
            } => {
                let known = once.and_then(|once| state.once.get(&once)).copied();
                let (next, sum) = match known {
                    Some(sum) => (state.clone(), sum),
                    None => added(state, *delta, *once),
                };
                answer.is_none_or(|answer| answer == sum).then_some(next)
            }
        };
        after.into_iter().collect()
    }
}

fn added(state: &Counted, delta: i64, once: Option<u64>) -> (Counted, i64) {
    let sum = state.sum.unwrap_or(0).wrapping_add(delta);
    let mut next = Counted {
        sum: Some(sum),
        once: state.once.clone(),
    };
    next.once.extend(once.map(|once| (once, sum)));
    (next, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::linear::{NotLinear, Timed, check};

    fn add(delta: i64, once: Option<u64>, answer: Option<i64>) -> Call {
        Call::Add {
            delta,
            once,
            answer,
        }
    }

    fn row(calls: impl IntoIterator<Item = Call>) -> Result<(), NotLinear> {
        let timed = |(index, call): (usize, Call)| Timed {
            is_known: !matches!(call, Call::Add { answer: None, .. }),
            call,
            began: 2 * index as u64,
            ended: 2 * index as u64 + 1,
        };
        let history: Vec<_> = calls.into_iter().enumerate().map(timed).collect();
        check(&Counter, Counted::default(), &history)
    }

    fn sum(answer: i64) -> Call {
        Call::Sum {
            answer: Some(answer),
        }
    }

    fn unexplained(call: usize) -> Result<(), NotLinear> {
        Err(NotLinear::Unexplained { call })
    }

    #[test]
    fn every_acknowledged_add_counts_once() {
        assert_eq!(
            row([add(2, None, Some(2)), add(3, None, Some(5)), sum(5)]),
            Ok(())
        );
        assert_eq!(row([add(2, None, Some(2)), sum(4)]), unexplained(1));
        assert_eq!(
            row([add(2, None, Some(2)), Call::Sum { answer: None }]),
            unexplained(1)
        );
    }

    #[test]
    fn an_unknown_add_counts_once_or_never() {
        let unknown = || [add(2, None, Some(2)), add(3, None, None)];
        for (answer, right) in [(2, true), (5, true), (8, false), (3, false)] {
            let outcome = row(unknown().into_iter().chain([sum(answer)]));
            assert_eq!(outcome.is_ok(), right, "{answer}");
        }
    }

    #[test]
    fn an_add_sent_again_under_its_key_is_answered_as_before_and_counts_once() {
        let again = [
            add(2, Some(1), None),
            add(2, Some(1), Some(2)),
            add(5, None, Some(7)),
            add(2, Some(1), Some(2)),
            sum(7),
        ];
        assert_eq!(row(again), Ok(()));
        let twice = [add(2, Some(1), Some(2)), add(2, Some(1), Some(4))];
        assert_eq!(row(twice), unexplained(1));
    }
}
