//! Commits: an event and changes of state together, or neither, for every reader.
//!
//! Every commit has a number that is its event and the value of everything it sets. What event readers and state
//! readers saw is held against the log in the end: the state of a key is what the events up to some place make of it,
//! and that place is not before what the reader had seen already.

use std::collections::BTreeMap;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It was answered as done and is not where it was said to be.
    #[error("commit {commit} was answered with offset {offset}, where the log has {found:?}")]
    Lost {
        /// Which.
        commit: u64,
        /// Where.
        offset: u64,
        /// The commit that is there.
        found: Option<u64>,
    },
    /// It is there more than once.
    #[error("commit {commit} is at offset {first} and again at {second}")]
    Twice {
        /// Which.
        commit: u64,
        /// Where.
        first: u64,
        /// Where, too.
        second: u64,
    },
    /// It was refused and is there.
    #[error("commit {commit} was refused and is at offset {offset}")]
    Refused {
        /// Which.
        commit: u64,
        /// Where.
        offset: u64,
    },
    /// A reader of events saw something else than the log has.
    #[error("a reader saw commit {commit} at offset {offset}, where the log has {found:?}")]
    Event {
        /// What was seen.
        commit: u64,
        /// Where.
        offset: u64,
        /// The commit that is there.
        found: Option<u64>,
    },
    /// The state was never so, or not any more when it was read.
    #[error(
        "key {key} was read as {seen:?} (commit, version); no place at or after offset {floor} makes it so"
    )]
    State {
        /// Which key.
        key: u64,
        /// Commit and version.
        seen: Option<(u64, u64)>,
        /// Exclusive end of the events that had been read, or acknowledged, before the state was.
        floor: u64,
    },
}

/// What a commit does to the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys it sets.
    pub sets: Vec<u64>,
    /// Keys it removes.
    pub removes: Vec<u64>,
}

/// A state that was read.
#[derive(Clone, Copy, Debug)]
struct Read {
    key: u64,
    seen: Option<(u64, u64)>,
    floor: u64,
}

/// Takes what is seen, in any order that keeps what each reader saw in its own.
#[derive(Debug, Default)]
pub struct Checker {
    commits: BTreeMap<u64, Changes>,
    acked: Vec<(u64, u64)>,
    refused: Vec<u64>,
    events: Vec<(u64, u64)>,
    reads: Vec<Read>,
    /// Everything below is known to somebody. Exclusive.
    floor: u64,
}

impl Checker {
    /// A commit is sent, the first time.
    pub fn sent(&mut self, commit: u64, changes: Changes) {
        self.commits.insert(commit, changes);
    }

    /// It was answered: it is there.
    pub fn acked(&mut self, commit: u64, offset: u64) {
        self.acked.push((commit, offset));
        self.floor = self.floor.max(offset + 1);
    }

    /// It was answered: it is not there, and never will be.
    pub fn refused(&mut self, commit: u64) {
        self.refused.push(commit);
    }

    /// A reader got the event of a commit.
    pub fn event(&mut self, offset: u64, commit: u64) {
        self.events.push((offset, commit));
        self.floor = self.floor.max(offset + 1);
    }

    /// Where a read of the state that begins now must not be behind.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// A key was read: the commit whose value it has, and the version. `floor` is what [`Self::floor`] was when the read
    /// began.
    pub fn state(&mut self, key: u64, seen: Option<(u64, u64)>, floor: u64) {
        self.reads.push(Read { key, seen, floor });
    }

    /// Holds everything against the log: offsets with their commits, in order. Other records are left out.
    #[must_use]
    pub fn finish(&self, log: &[(u64, u64)]) -> Vec<Broken> {
        let at: BTreeMap<u64, u64> = log.iter().copied().collect();
        let mut broken = Vec::new();
        let mut places = BTreeMap::new();
        let mut of_key: BTreeMap<u64, Vec<(u64, Option<u64>)>> = BTreeMap::new();
        for &(offset, commit) in log {
            if let Some(first) = places.insert(commit, offset) {
                broken.push(Broken::Twice {
                    commit,
                    first,
                    second: offset,
                });
            }
            if let Some(changes) = self.commits.get(&commit) {
                for key in &changes.sets {
                    of_key.entry(*key).or_default().push((offset, Some(commit)));
                }
                for key in &changes.removes {
                    of_key.entry(*key).or_default().push((offset, None));
                }
            }
        }
        for &(commit, offset) in &self.acked {
            let found = at.get(&offset).copied();
            if found != Some(commit) {
                broken.push(Broken::Lost {
                    commit,
                    offset,
                    found,
                });
            }
        }
        for &commit in &self.refused {
            if let Some(&offset) = places.get(&commit) {
                broken.push(Broken::Refused { commit, offset });
            }
        }
        for &(offset, commit) in &self.events {
            let found = at.get(&offset).copied();
            if found != Some(commit) {
                broken.push(Broken::Event {
                    commit,
                    offset,
                    found,
                });
            }
        }
        for read in &self.reads {
            let history = of_key.get(&read.key).map_or(&[][..], Vec::as_slice);
            if !is_possible(history, read) {
                broken.push(Broken::State {
                    key: read.key,
                    seen: read.seen,
                    floor: read.floor,
                });
            }
        }
        broken
    }
}

/// Whether some place at or after the floor has this state. `history` is what the log did to the key.
fn is_possible(history: &[(u64, Option<u64>)], read: &Read) -> bool {
    // What holds at the floor, and everything after it.
    let before = history.partition_point(|(offset, _)| *offset < read.floor);
    let at_floor = history.get(..before).and_then(<[_]>::last);
    let later = history.get(before..).unwrap_or_default();
    if at_floor.is_none() && read.seen.is_none() {
        return true;
    }
    at_floor
        .into_iter()
        .chain(later)
        .any(|&(offset, commit)| match (commit, read.seen) {
            (None, None) => true,
            (Some(commit), Some(seen)) => seen == (commit, offset),
            (None, Some(_)) | (Some(_), None) => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits 1 and 2 set key 7, commit 3 removes it and sets 8.
    fn checker() -> Checker {
        let mut checker = Checker::default();
        let sets = |keys: &[u64]| Changes {
            sets: keys.to_vec(),
            removes: Vec::new(),
        };
        checker.sent(1, sets(&[7]));
        checker.sent(2, sets(&[7]));
        checker.sent(
            3,
            Changes {
                removes: vec![7],
                ..sets(&[8])
            },
        );
        checker
    }

    const LOG: &[(u64, u64)] = &[(10, 1), (11, 2), (12, 3)];

    #[test]
    fn what_the_log_says_is_right_for_every_reader() {
        let mut checker = checker();
        checker.state(7, None, 0);
        checker.acked(1, 10);
        checker.state(7, Some((1, 10)), checker.floor());
        checker.event(11, 2);
        checker.state(7, Some((2, 11)), checker.floor());
        checker.event(12, 3);
        checker.state(7, None, checker.floor());
        checker.state(8, Some((3, 12)), checker.floor());
        assert_eq!(checker.finish(LOG), []);
    }

    #[test]
    fn an_event_without_its_state_is_found_and_so_is_a_state_without_its_event() {
        let mut without_state = checker();
        without_state.event(12, 3);
        without_state.state(8, None, without_state.floor());
        without_state.state(7, Some((2, 11)), without_state.floor());
        assert_eq!(without_state.finish(LOG).len(), 2);
        let mut without_event = checker();
        without_event.state(8, Some((3, 12)), 0);
        assert_eq!(without_event.finish(LOG), []);
        assert_eq!(without_event.finish(&LOG[..2]).len(), 1);
    }

    #[test]
    fn a_state_that_is_older_than_what_was_seen_before_is_found() {
        let mut checker = checker();
        checker.acked(2, 11);
        checker.state(7, Some((1, 10)), checker.floor());
        let behind = Broken::State {
            key: 7,
            seen: Some((1, 10)),
            floor: 12,
        };
        assert_eq!(checker.finish(LOG), [behind]);
    }

    #[test]
    fn a_value_under_another_version_is_found() {
        let mut checker = checker();
        checker.state(7, Some((1, 11)), 0);
        assert_eq!(checker.finish(LOG).len(), 1);
    }

    #[test]
    fn a_commit_is_there_once_or_never_as_it_was_answered() {
        let mut checker = checker();
        checker.acked(1, 10);
        checker.refused(2);
        let found = checker.finish(&[(10, 2), (11, 3), (12, 3)]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(matches!(found[0], Broken::Twice { commit: 3, .. }));
        assert!(matches!(found[1], Broken::Lost { found: Some(2), .. }));
        assert!(matches!(found[2], Broken::Refused { offset: 10, .. }));
    }

    #[test]
    fn a_reader_of_events_sees_what_is_in_the_log() {
        let mut checker = checker();
        checker.event(11, 1);
        let found = checker.finish(LOG);
        assert!(matches!(found[..], [Broken::Event { found: Some(2), .. }]));
    }
}
