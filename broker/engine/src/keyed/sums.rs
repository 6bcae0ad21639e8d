//! Counters in order of their keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use felix_model::Offset;

use super::Key;

/// What a counter has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// All that was added.
    pub sum: i64,
    /// Of the newest record of the counter.
    pub offset: Offset,
    /// Of the newest checkpoint; adds below it are in its sum and may be forgotten. `None`: there is no
    /// checkpoint yet.
    pub checkpoint: Option<Offset>,
}

impl Sum {
    /// Whether there are adds that no checkpoint has.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.checkpoint != Some(self.offset)
    }
}

/// An ordered map from counters to their sums.
#[derive(Debug, Default)]
pub struct Sums(BTreeMap<Key, Sum>);

impl Sums {
    /// No counters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counters that are in order of their keys and have each key once, built at once.
    #[must_use]
    pub fn from_sorted(sums: Vec<(Key, Sum)>) -> Self {
        Self(sums.into_iter().collect())
    }

    /// How many counters there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A counter's sum; `None` when it was never added to.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Sum> {
        self.0.get(key).copied()
    }

    /// A key as it is held here.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<Key> {
        let (held, _) = self.0.get_key_value(key)?;
        Some(Key::clone(held))
    }

    /// Sets a counter to the sum after an add at `offset`.
    pub fn add(&mut self, key: Key, sum: i64, offset: Offset) {
        self.0
            .entry(key)
            .and_modify(|held| {
                held.sum = sum;
                held.offset = offset;
            })
            .or_insert(Sum {
                sum,
                offset,
                checkpoint: None,
            });
    }

    /// Takes note of a checkpoint.
    pub fn checkpoint(&mut self, key: Key, sum: i64, offset: Offset) {
        self.0.insert(
            key,
            Sum {
                sum,
                offset,
                checkpoint: Some(offset),
            },
        );
    }

    /// The counters above `after`, in order of their keys.
    pub fn walk<'a>(&'a self, after: Option<&'a [u8]>) -> impl Iterator<Item = (&'a Key, Sum)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.0
            .range::<[u8], _>((from, Bound::Unbounded))
            .map(|(key, sum)| (key, *sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_covers_the_adds_before_it_and_none_after() {
        let mut sums = Sums::new();
        let key = Key::from(b"a".as_slice());
        sums.add(Key::clone(&key), 3, Offset(4));
        assert!(sums.get(b"a").unwrap().is_open());
        sums.checkpoint(Key::clone(&key), 3, Offset(5));
        assert!(!sums.get(b"a").unwrap().is_open());
        sums.add(key, 4, Offset(6));
        let sum = sums.get(b"a").unwrap();
        assert!(sum.is_open());
        assert_eq!((sum.sum, sum.checkpoint), (4, Some(Offset(5))));
        assert_eq!(sums.walk(Some(b"a")).count(), 0);
        assert_eq!(sums.walk(None).count(), 1);
    }
}
