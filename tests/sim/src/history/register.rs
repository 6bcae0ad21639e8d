//! One key of a cache, one call at a time: a value, its version, and when it expires.

use super::linear::Sequential;

/// A key of a cache.
#[derive(Debug)]
pub struct Register;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Held {
    entry: Option<Entry>,
    /// The newest version that is known to have been given out: later ones are larger.
    newest: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Values are told apart by the number of the put that wrote them.
    value: u64,
    /// `None` until somebody is told.
    version: Option<u64>,
    /// The entry expires between these two times, both included; `None`: never.
    expires: Option<(u64, u64)>,
}

/// When something happened, by the broker's clock in milliseconds: between these two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Not before.
    pub from: u64,
    /// Not after.
    pub to: u64,
}

/// What a conditional write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Anything,
    /// No live entry.
    Absent,
    /// A live entry of this version.
    Version(u64),
}

/// What a write was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is done: the version of a put, and what a delete took away (value and version).
    Done {
        /// Of a put.
        version: Option<u64>,
        /// By a delete.
        removed: Option<(u64, u64)>,
    },
    /// The condition did not hold; the version of the live entry.
    Unmet(Option<u64>),
    /// Nobody knows.
    Unknown,
}

/// One call, and when the broker can have looked at the clock for it.
#[derive(Clone, Debug)]
pub enum Call {
    /// Set it.
    Put {
        /// The number of this put.
        value: u64,
        /// For how long, in milliseconds.
        ttl: Option<u64>,
        /// If.
        expect: Expect,
        /// When.
        window: Window,
        /// What came of it.
        answer: Written,
    },
    /// Remove it.
    Delete {
        /// If.
        expect: Expect,
        /// When.
        window: Window,
        /// What came of it.
        answer: Written,
    },
    /// Read it: the value and its version.
    Get {
        /// When.
        window: Window,
        /// What was there.
        answer: Option<(u64, u64)>,
    },
}

impl Held {
    /// The ways in which this can look within a window: with the live entry, without one, or either.
    fn views(&self, window: Window) -> impl Iterator<Item = Option<&Entry>> {
        let expires = |entry: &Entry| entry.expires;
        let live = self
            .entry
            .as_ref()
            .filter(|entry| expires(entry).is_none_or(|(_, latest)| latest > window.from));
        let gone = match &self.entry {
            None => true,
            Some(entry) => expires(entry).is_some_and(|(earliest, _)| earliest <= window.to),
        };
        live.map(Some).into_iter().chain(gone.then_some(None))
    }

    /// The same, once somebody was told that the live entry has this version.
    fn told(&self, version: u64) -> Option<Self> {
        let entry = self.entry.as_ref()?;
        match entry.version {
            Some(known) => (known == version).then(|| self.clone()),
            None => self
                .newest
                .is_none_or(|newest| newest < version)
                .then(|| Self {
                    entry: Some(Entry {
                        version: Some(version),
                        ..entry.clone()
                    }),
                    newest: Some(version),
                }),
        }
    }

    fn removed(&self) -> Self {
        Self {
            entry: None,
            newest: self.newest,
        }
    }

    /// What an answer about the live entry leaves: it had this version, or there was none.
    fn seen(&self, view: Option<&Entry>, version: Option<u64>) -> Option<Self> {
        match (view, version) {
            (Some(_), Some(version)) => self.told(version),
            // What expired stays written down: a call that began earlier may have been decided while it was live.
            (None, None) => Some(self.clone()),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }

    /// The states in which the condition holds, with what is live then; or in which it does not.
    fn judged(&self, expect: Expect, window: Window) -> Vec<(Self, bool)> {
        let mut judged = Vec::new();
        for view in self.views(window) {
            match (expect, view) {
                (Expect::Anything, _) => judged.push((self.clone(), true)),
                (Expect::Absent, None) => judged.push((self.clone(), true)),
                (Expect::Absent, Some(_)) => judged.push((self.clone(), false)),
                (Expect::Version(_), None) => judged.push((self.clone(), false)),
                (Expect::Version(version), Some(entry)) => {
                    judged.extend(self.told(version).map(|told| (told, true)));
                    if entry.version != Some(version) {
                        judged.push((self.clone(), false));
                    }
                }
            }
        }
        judged
    }
}

impl Sequential for Register {
    type State = Held;
    type Call = Call;

    fn after(&self, state: &Held, call: &Call) -> Vec<Held> {
        match call {
            Call::Get { window, answer } => get(state, *window, *answer),
            Call::Put {
                value,
                ttl,
                expect,
                window,
                answer,
            } => {
                let expires = ttl.map(|ttl| (window.from + ttl, window.to.saturating_add(ttl)));
                let entry = Entry {
                    value: *value,
                    version: None,
                    expires,
                };
                put(state, &entry, *expect, *window, *answer)
            }
            Call::Delete {
                expect,
                window,
                answer,
            } => delete(state, *expect, *window, *answer),
        }
    }
}

fn get(state: &Held, window: Window, answer: Option<(u64, u64)>) -> Vec<Held> {
    let fits = |view: Option<&Entry>| match (view, answer) {
        (Some(entry), Some((value, version))) if entry.value == value => state.told(version),
        (None, None) => state.seen(None, None),
        _ => None,
    };
    state.views(window).filter_map(fits).collect()
}

fn put(state: &Held, entry: &Entry, expect: Expect, window: Window, answer: Written) -> Vec<Held> {
    let with = |before: &Held, version: Option<u64>| Held {
        entry: Some(Entry {
            version,
            ..entry.clone()
        }),
        newest: version.or(before.newest),
    };
    let judged = state.judged(expect, window).into_iter();
    match answer {
        Written::Done { version, .. } => judged
            .filter(|(before, holds)| *holds && before.newest < version)
            .map(|(before, _)| with(&before, version))
            .collect(),
        Written::Unmet(current) => unmet(state, expect, window, current),
        Written::Unknown => judged
            .map(|(before, holds)| if holds { with(&before, None) } else { before })
            .collect(),
    }
}

fn delete(state: &Held, expect: Expect, window: Window, answer: Written) -> Vec<Held> {
    match answer {
        Written::Done {
            removed: Some((value, version)),
            ..
        } => {
            let was = state
                .entry
                .as_ref()
                .is_some_and(|entry| entry.value == value);
            let told = state.told(version).filter(|_| was);
            let judged = told
                .map(|told| told.judged(expect, window))
                .unwrap_or_default();
            let live = judged
                .into_iter()
                .filter(|(held, holds)| *holds && held.entry.is_some());
            live.map(|(held, _)| held.removed()).collect()
        }
        Written::Done { removed: None, .. } => {
            let mut views = state.views(window);
            let holds = expect == Expect::Anything && views.any(|view| view.is_none());
            holds.then(|| state.clone()).into_iter().collect()
        }
        Written::Unmet(current) => unmet(state, expect, window, current),
        Written::Unknown => {
            let judged = state.judged(expect, window).into_iter();
            judged
                .map(|(held, holds)| if holds { held.removed() } else { held })
                .collect()
        }
    }
}

/// The condition did not hold, and the live entry was this one.
fn unmet(state: &Held, expect: Expect, window: Window, current: Option<u64>) -> Vec<Held> {
    let fails = match (expect, current) {
        (Expect::Anything, _) | (Expect::Absent, None) => false,
        (Expect::Absent, Some(_)) => true,
        (Expect::Version(version), current) => current != Some(version),
    };
    let views = state.views(window).filter(|_| fails);
    views.filter_map(|view| state.seen(view, current)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::linear::{NotLinear, Timed, check};

    const AT: Window = Window { from: 10, to: 10 };

    fn put(value: u64, answer: Written) -> Call {
        Call::Put {
            value,
            ttl: None,
            expect: Expect::Anything,
            window: AT,
            answer,
        }
    }

    fn done(version: u64) -> Written {
        Written::Done {
            version: Some(version),
            removed: None,
        }
    }

    fn get(answer: Option<(u64, u64)>) -> Call {
        Call::Get { window: AT, answer }
    }

    fn if_(expect: Expect, value: u64, answer: Written) -> Call {
        Call::Put {
            value,
            ttl: None,
            expect,
            window: AT,
            answer,
        }
    }

    /// One call after the other.
    fn row(calls: impl IntoIterator<Item = Call>) -> Result<(), NotLinear> {
        let timed = |(index, call): (usize, Call)| {
            let is_known = !matches!(
                &call,
                Call::Put {
                    answer: Written::Unknown,
                    ..
                } | Call::Delete {
                    answer: Written::Unknown,
                    ..
                }
            );
            Timed {
                call,
                began: 2 * index as u64,
                ended: 2 * index as u64 + 1,
                is_known,
            }
        };
        let history: Vec<_> = calls.into_iter().enumerate().map(timed).collect();
        check(&Register, Held::default(), &history)
    }

    fn unexplained(call: usize) -> Result<(), NotLinear> {
        Err(NotLinear::Unexplained { call })
    }

    #[test]
    fn a_read_sees_the_last_write_with_its_version() {
        assert_eq!(row([put(1, done(5)), get(Some((1, 5)))]), Ok(()));
        assert_eq!(row([put(1, done(5)), get(Some((1, 6)))]), unexplained(1));
        assert_eq!(row([put(1, done(5)), get(None)]), unexplained(1));
        let stale = [put(1, done(5)), put(2, done(6)), get(Some((1, 5)))];
        assert_eq!(row(stale), unexplained(2));
    }

    #[test]
    fn versions_grow() {
        assert_eq!(row([put(1, done(5)), put(2, done(5))]), unexplained(1));
        assert_eq!(row([put(1, done(5)), put(2, done(4))]), unexplained(1));
    }

    #[test]
    fn an_acknowledged_write_is_not_forgotten_and_an_unknown_one_is_decided_once() {
        let unknown = put(2, Written::Unknown);
        let both = [
            put(1, done(5)),
            unknown.clone(),
            get(Some((2, 7))),
            get(Some((2, 7))),
        ];
        assert_eq!(row(both), Ok(()));
        let neither = [put(1, done(5)), unknown.clone(), get(Some((1, 5)))];
        assert_eq!(row(neither), Ok(()));
        let back = [
            put(1, done(5)),
            unknown,
            get(Some((2, 7))),
            get(Some((1, 5))),
        ];
        assert_eq!(row(back), unexplained(3));
    }

    #[test]
    fn of_two_that_ask_for_absence_one_wins() {
        let win = |value, version| if_(Expect::Absent, value, done(version));
        assert_eq!(row([win(1, 5), win(2, 6)]), unexplained(1));
        let lost = if_(Expect::Absent, 2, Written::Unmet(Some(5)));
        assert_eq!(row([win(1, 5), lost.clone(), get(Some((1, 5)))]), Ok(()));
        assert_eq!(row([lost]), unexplained(0));
    }

    #[test]
    fn a_conditional_write_that_is_done_had_its_version_and_one_that_is_not_had_another() {
        let swap = |answer| if_(Expect::Version(5), 2, answer);
        assert_eq!(row([put(1, done(5)), swap(done(6))]), Ok(()));
        assert_eq!(row([put(1, done(4)), swap(done(6))]), unexplained(1));
        assert_eq!(
            row([put(1, done(5)), swap(Written::Unmet(Some(5)))]),
            unexplained(1)
        );
        assert_eq!(
            row([put(1, done(4)), swap(Written::Unmet(Some(4)))]),
            Ok(())
        );
        assert_eq!(row([swap(Written::Unmet(None))]), Ok(()));
    }

    #[test]
    fn a_delete_says_what_it_removed_and_leaves_nothing() {
        let delete = |removed| Call::Delete {
            expect: Expect::Anything,
            window: AT,
            answer: Written::Done {
                version: None,
                removed,
            },
        };
        assert_eq!(
            row([put(1, done(5)), delete(Some((1, 5))), get(None)]),
            Ok(())
        );
        assert_eq!(row([put(1, done(5)), delete(None)]), unexplained(1));
        let back = [put(1, done(5)), delete(Some((1, 5))), get(Some((1, 5)))];
        assert_eq!(row(back), unexplained(2));
        assert_eq!(row([delete(Some((1, 5)))]), unexplained(0));
    }

    #[test]
    fn an_entry_is_there_until_it_expires_and_not_after() {
        let brief = Call::Put {
            value: 1,
            ttl: Some(5),
            expect: Expect::Anything,
            window: AT,
            answer: done(5),
        };
        let at = |time, answer| Call::Get {
            window: Window {
                from: time,
                to: time,
            },
            answer,
        };
        assert_eq!(
            row([brief.clone(), at(14, Some((1, 5))), at(15, None)]),
            Ok(())
        );
        assert_eq!(row([brief.clone(), at(15, Some((1, 5)))]), unexplained(1));
        assert_eq!(row([brief, at(14, None)]), unexplained(1));
    }
}
