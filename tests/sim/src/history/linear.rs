//! Whether calls that overlapped could have happened one at a time, each between its beginning and its end.
//!
//! Configurations are carried from event to event: a state, and the calls under way that have had their effect
//! already. When a call ends, only those survive in which its effect, with the answer it gave, lies before (Lowe,
//! "Testing for linearizability", just-in-time linearization). A call whose outcome nobody was told may have had its
//! effect or not, but has it before its end: who records it ends it when its broker is gone.

use std::collections::BTreeSet;

/// What is checked, when it does one thing at a time.
pub trait Sequential {
    /// All there is to it.
    type State: Clone + Ord;
    /// A call together with its answer.
    type Call;

    /// The states in which the call can leave this one. None: from this state it cannot have answered so.
    fn after(&self, state: &Self::State, call: &Self::Call) -> Vec<Self::State>;
}

/// A call and its time. Instants of different events differ.
#[derive(Clone, Debug)]
pub struct Timed<C> {
    /// What was asked and answered.
    pub call: C,
    /// When it was asked.
    pub began: u64,
    /// When the answer was there, or could not come any more.
    pub ended: u64,
    /// The outcome is known. Otherwise the call may have done nothing.
    pub is_known: bool,
}

/// Why a history did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLinear {
    /// No order of the calls so far explains this answer.
    #[error("no order of the calls explains the answer of call {call}")]
    Unexplained {
        /// Its index in the history.
        call: usize,
    },
    /// There are more possibilities than are looked at: the history must be made of fewer calls at once.
    #[error("over {limit} possibilities at call {call}")]
    TooMany {
        /// Where.
        call: usize,
        /// How many are looked at.
        limit: usize,
    },
}

/// Possibilities that are looked at between two events.
const CONFIGURATIONS_MAX: usize = 200_000;

/// A state, and the calls under way that lead to it.
type Configuration<S> = (S, BTreeSet<usize>);

/// Looks for an order.
///
/// # Errors
/// [`NotLinear`] at the first call whose answer no order explains.
pub fn check<M: Sequential>(
    model: &M,
    start: M::State,
    history: &[Timed<M::Call>],
) -> Result<(), NotLinear> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * history.len());
    for (index, timed) in history.iter().enumerate() {
        events.push((timed.began, false, index));
        events.push((timed.ended, true, index));
    }
    events.sort_unstable();
    let mut open = BTreeSet::new();
    let mut possible = BTreeSet::from([(start, BTreeSet::new())]);
    for (_, ends, index) in events {
        if !ends {
            open.insert(index);
            continue;
        }
        possible = explain(model, history, possible, &open, index)?;
        open.remove(&index);
    }
    Ok(())
}

/// The configurations in which a call has had its effect when it ends.
fn explain<M: Sequential>(
    model: &M,
    history: &[Timed<M::Call>],
    from: BTreeSet<Configuration<M::State>>,
    open: &BTreeSet<usize>,
    ending: usize,
) -> Result<BTreeSet<Configuration<M::State>>, NotLinear> {
    let may_be_nothing = history.get(ending).is_some_and(|timed| !timed.is_known);
    let mut explained = BTreeSet::new();
    let mut seen = from.clone();
    let mut work: Vec<_> = from.into_iter().collect();
    while let Some((state, mut done)) = work.pop() {
        if done.contains(&ending) {
            done.remove(&ending);
            explained.insert((state, done));
            continue;
        }
        if may_be_nothing {
            explained.insert((state.clone(), done.clone()));
        }
        for next in open.difference(&done) {
            let Some(timed) = history.get(*next) else {
                continue;
            };
            for after in model.after(&state, &timed.call) {
                let mut done = done.clone();
                done.insert(*next);
                let configuration = (after, done);
                if seen.insert(configuration.clone()) {
                    work.push(configuration);
                }
            }
        }
        if seen.len() > CONFIGURATIONS_MAX {
            return Err(NotLinear::TooMany {
                call: ending,
                limit: CONFIGURATIONS_MAX,
            });
        }
    }
    if explained.is_empty() {
        return Err(NotLinear::Unexplained { call: ending });
    }
    Ok(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is set and read.
    struct Number;

    enum Call {
        Set(u8),
        Get(u8),
    }

    impl Sequential for Number {
        type State = u8;
        type Call = Call;

        fn after(&self, state: &u8, call: &Call) -> Vec<u8> {
            match call {
                Call::Set(to) => vec![*to],
                Call::Get(seen) if seen == state => vec![*state],
                Call::Get(_) => vec![],
            }
        }
    }

    fn history(calls: Vec<(u64, u64, Call)>) -> Vec<Timed<Call>> {
        let known = |(began, ended, call)| Timed {
            call,
            began,
            ended,
            is_known: true,
        };
        calls.into_iter().map(known).collect()
    }

    #[test]
    fn reads_beside_a_write_may_see_either_and_reads_after_it_only_the_new() {
        let beside = history(vec![
            (1, 9, Call::Set(7)),
            (2, 3, Call::Get(0)),
            (4, 5, Call::Get(7)),
        ]);
        assert_eq!(check(&Number, 0, &beside), Ok(()));
        let after = history(vec![(1, 2, Call::Set(7)), (3, 4, Call::Get(0))]);
        let refused = Err(NotLinear::Unexplained { call: 1 });
        assert_eq!(check(&Number, 0, &after), refused);
    }

    #[test]
    fn what_one_reader_has_seen_another_may_not_unsee() {
        let back = history(vec![
            (1, 9, Call::Set(7)),
            (2, 3, Call::Get(7)),
            (4, 5, Call::Get(0)),
        ]);
        let refused = Err(NotLinear::Unexplained { call: 2 });
        assert_eq!(check(&Number, 0, &back), refused);
    }

    #[test]
    fn an_unknown_write_may_have_happened_or_not_but_not_after_its_end() {
        let unknown = |seen: [u8; 2]| {
            let mut history = history(vec![
                (1, 5, Call::Set(7)),
                (2, 3, Call::Get(seen[0])),
                (6, 7, Call::Get(seen[1])),
            ]);
            history[0].is_known = false;
            check(&Number, 0, &history)
        };
        for seen in [[0, 0], [0, 7], [7, 7]] {
            assert_eq!(unknown(seen), Ok(()), "{seen:?}");
        }
        assert!(unknown([7, 0]).is_err());
        let mut late = history(vec![
            (1, 2, Call::Set(7)),
            (3, 4, Call::Get(0)),
            (5, 6, Call::Get(7)),
        ]);
        late[0].is_known = false;
        assert!(check(&Number, 0, &late).is_err());
    }

    #[test]
    fn an_order_is_found_among_many_calls_at_once() {
        let mut calls = Vec::new();
        for number in 0..8 {
            calls.push((
                1 + u64::from(number),
                100 + u64::from(number),
                Call::Set(number),
            ));
        }
        calls.push((50, 60, Call::Get(3)));
        calls.push((61, 70, Call::Get(5)));
        calls.push((200, 201, Call::Get(6)));
        assert_eq!(check(&Number, 99, &history(calls)), Ok(()));
    }
}
