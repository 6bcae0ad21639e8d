//! What was sent with an idempotency key, so that it counts once when it is sent again.

use std::collections::{BTreeMap, VecDeque};

use felix_model::{Offset, TimeMs};

use super::Key;

/// How much is remembered. An idempotency key is forgotten only when it is older than `age_ms` *and*
/// there are more than `keys_min` newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceBounds {
    /// Remembered at least this long.
    pub age_ms: u64,
    /// At least this many are remembered.
    pub keys_min: usize,
    /// No more than this many are taken: beyond it, new ones are refused until old ones may go.
    pub keys_max: usize,
}

impl Default for OnceBounds {
    fn default() -> Self {
        Self {
            age_ms: 10 * 60 * 1000,
            keys_min: 10_000,
            keys_max: 1 << 20,
        }
    }
}

/// What is known about one idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered<R> {
    /// Of what was sent under it.
    pub digest: u64,
    /// Where it is in the log.
    pub offset: Offset,
    /// When it was appended.
    pub at: TimeMs,
    /// What it came to.
    pub result: R,
}

/// What is to be done with a request that has an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceVerdict<R> {
    /// It is new: carry it out and remember it.
    New,
    /// It was carried out; the answer leaves when `offset` is committed.
    Again(Remembered<R>),
    /// Something else was sent under the same key.
    Reused {
        /// Where that is.
        offset: Offset,
    },
    /// Too many keys are too young to be forgotten.
    Full {
        /// How many.
        keys: usize,
    },
}

/// Idempotency keys and what came of them, as a fold over the log: appending and observing a record do
/// the same to it.
#[derive(Debug)]
pub struct Once<R> {
    bounds: OnceBounds,
    by_key: BTreeMap<Key, Remembered<R>>,
    /// The same keys by offset.
    order: VecDeque<(Offset, Key)>,
}

impl<R: Copy> Once<R> {
    /// Nothing remembered yet.
    #[must_use]
    pub fn new(bounds: OnceBounds) -> Self {
        Self {
            bounds,
            by_key: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// What to do with a request. `digest` stands for everything in it that makes it what it is.
    pub fn judge(&mut self, now: TimeMs, id: &[u8], digest: u64) -> OnceVerdict<R> {
        match self.by_key.get(id) {
            Some(known) if known.digest == digest => return OnceVerdict::Again(*known),
            Some(known) => {
                return OnceVerdict::Reused {
                    offset: known.offset,
                };
            }
            None => {}
        }
        self.forget(now);
        if self.len() >= self.bounds.keys_max {
            return OnceVerdict::Full { keys: self.len() };
        }
        OnceVerdict::New
    }

    /// Remembers what was appended. Offsets come in order, but for those known already: replaying them
    /// changes nothing.
    pub fn remember(&mut self, id: &[u8], what: Remembered<R>) {
        if self.by_key.contains_key(id) {
            return;
        }
        let key = Key::from(id);
        self.order.push_back((what.offset, Key::clone(&key)));
        self.by_key.insert(key, what);
    }

    /// Takes back everything from `from` on: it did not make it into the log.
    pub fn roll_back(&mut self, from: Offset) {
        while let Some((_, key)) = self.order.pop_back_if(|(offset, _)| *offset >= from) {
            self.by_key.remove(&key);
        }
    }

    /// Forgets what may be forgotten.
    pub fn forget(&mut self, now: TimeMs) {
        while self.order.len() > self.bounds.keys_min
            && let Some((_, key)) = self.order.front()
            && let Some(oldest) = self.by_key.get(key)
            && now.since(oldest.at) >= self.bounds.age_ms
        {
            if let Some((_, key)) = self.order.pop_front() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Whether the record at `offset` is still needed to answer for its key.
    #[must_use]
    pub fn needs(&self, id: &[u8], offset: Offset) -> bool {
        self.by_key
            .get(id)
            .is_some_and(|known| known.offset == offset)
    }

    /// The keys whose records lie at or above `from`, by offset.
    pub fn walk(&self, from: Offset) -> impl Iterator<Item = (&Key, &Remembered<R>)> {
        let first = self.order.partition_point(|(offset, _)| *offset < from);
        self.order
            .range(first..)
            .filter_map(|(_, key)| self.by_key.get_key_value(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OnceBounds = OnceBounds {
        age_ms: 100,
        keys_min: 2,
        keys_max: 4,
    };

    fn remember(once: &mut Once<i64>, id: &str, offset: u64, at: u64) {
        let what = Remembered {
            digest: 7,
            offset: Offset(offset),
            at: TimeMs(at),
            result: 1,
        };
        once.remember(id.as_bytes(), what);
    }

    #[test]
    fn a_key_is_forgotten_only_when_it_is_old_and_there_are_enough_newer_ones() {
        let mut once = Once::new(BOUNDS);
        remember(&mut once, "a", 0, 0);
        remember(&mut once, "b", 1, 0);
        once.forget(TimeMs(1_000));
        assert_eq!(once.len(), 2);
        remember(&mut once, "c", 2, 50);
        once.forget(TimeMs(99));
        assert_eq!(once.len(), 3);
        once.forget(TimeMs(100));
        assert_eq!(once.len(), 2);
        assert_eq!(once.judge(TimeMs(100), b"a", 7), OnceVerdict::New);
    }

    #[test]
    fn another_request_under_a_known_key_is_told_apart() {
        let mut once = Once::new(BOUNDS);
        remember(&mut once, "a", 4, 0);
        assert!(matches!(
            once.judge(TimeMs(0), b"a", 7),
            OnceVerdict::Again(known) if known.offset == Offset(4)
        ));
        assert_eq!(
            once.judge(TimeMs(0), b"a", 8),
            OnceVerdict::Reused { offset: Offset(4) }
        );
    }

    #[test]
    fn keys_beyond_the_bound_are_refused_until_old_ones_may_go() {
        let mut once = Once::new(BOUNDS);
        for (id, offset) in ["a", "b", "c", "d"].iter().zip(0..) {
            remember(&mut once, id, offset, 0);
        }
        assert_eq!(
            once.judge(TimeMs(99), b"e", 7),
            OnceVerdict::Full { keys: 4 }
        );
        assert_eq!(once.judge(TimeMs(100), b"e", 7), OnceVerdict::New);
    }

    #[test]
    fn what_was_taken_back_may_come_again() {
        let mut once = Once::new(BOUNDS);
        remember(&mut once, "a", 0, 0);
        remember(&mut once, "b", 5, 0);
        once.roll_back(Offset(5));
        assert_eq!(once.judge(TimeMs(0), b"b", 7), OnceVerdict::New);
        remember(&mut once, "b", 5, 0);
        remember(&mut once, "b", 5, 0);
        let offsets: Vec<u64> = once
            .walk(Offset(1))
            .map(|(_, known)| known.offset.0)
            .collect();
        assert_eq!(offsets, [5]);
        assert!(once.needs(b"b", Offset(5)));
        assert!(!once.needs(b"b", Offset(6)));
    }
}
