//! Keys in order, with where their newest values stand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use felix_model::{Offset, TimeMs};

use super::Key;

/// Where the newest value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of the record that set it; also its version. Below 2^56.
    pub offset: Offset,
    /// When it stops being there; `None`: never.
    pub expires: Option<TimeMs>,
    /// Of the value, in bytes. Below 2^24.
    pub length: u32,
}

impl Entry {
    /// Whether it is there at `now`: an entry is gone from the very millisecond it expires at.
    #[must_use]
    pub fn is_live(&self, now: TimeMs) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

/// An entry in sixteen bytes, since there may be tens of millions of them.
///
/// ```text
/// word 0   offset, 56 bits      | high 8 bits of the expiry
/// word 1   low 40 bits of the expiry | length, 24 bits
/// ```
///
/// An expiry has 48 bits, which end in the year 10889; all ones mean never. A million records a second
/// reach 2^56 after two thousand years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed([u64; 2]);

const EXPIRY_NEVER: u64 = (1 << 48) - 1;
const LENGTH_MAX: u64 = (1 << 24) - 1;
const OFFSET_MAX: u64 = (1 << 56) - 1;

impl Packed {
    fn new(entry: &Entry) -> Self {
        let expiry = entry
            .expires
            .map_or(EXPIRY_NEVER, |at| at.0.min(EXPIRY_NEVER));
        let offset = entry.offset.0.min(OFFSET_MAX);
        let length = u64::from(entry.length).min(LENGTH_MAX);
        Self([(offset << 8) | (expiry >> 40), (expiry << 24) | length])
    }

    fn entry(self) -> Entry {
        let [first, second] = self.0;
        let expiry = ((first & 0xff) << 40) | (second >> 24);
        Entry {
            offset: Offset(first >> 8),
            expires: (expiry != EXPIRY_NEVER).then_some(TimeMs(expiry)),
            length: (second & LENGTH_MAX) as u32,
        }
    }
}

/// An ordered map from keys to entries, and the order in which these expire.
///
/// Beyond its key an entry takes about 100 bytes when keys come in order and less when they do not; one
/// that expires takes a third more (`tests/keyed_memory.rs` measures both).
#[derive(Debug, Default)]
pub struct Index {
    entries: BTreeMap<Key, Packed>,
    /// Those that expire, by when. The keys are shared with `entries`.
    due: BTreeSet<(TimeMs, Key)>,
}

impl Index {
    /// No keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An index of entries that are in order of their keys and have each key once, built at once and
    /// without spare room: several times as fast as putting them in one by one.
    #[must_use]
    pub fn from_sorted(entries: Vec<(Key, Entry)>) -> Self {
        let due = entries
            .iter()
            .filter_map(|(key, entry)| Some((entry.expires?, Key::clone(key))))
            .collect();
        let entries = entries
            .into_iter()
            .map(|(key, entry)| (key, Packed::new(&entry)))
            .collect();
        Self { entries, due }
    }

    /// How many keys there are, those included that expired and were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of a key, whether it expired or not.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        self.entries.get(key).map(|packed| packed.entry())
    }

    /// A key as it is held here, so that whoever names it again need not copy it.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<Key> {
        let (held, _) = self.entries.get_key_value(key)?;
        Some(Key::clone(held))
    }

    /// Sets a key and gives back what it was.
    pub fn put(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        let packed = Packed::new(&entry);
        // As it was stored, which is what it is found by.
        let expires = packed.entry().expires;
        // The key that is held stays, so that its bytes are held once.
        let held = self.entries.get_mut(&key);
        let before = held.map(|held| std::mem::replace(held, packed).entry());
        let was_due = before.and_then(|before| before.expires);
        if was_due == expires && before.is_some() {
            return before;
        }
        let held = match was_due {
            Some(at) => {
                let mark = (at, key);
                let held = self.due.take(&mark);
                held.map_or(mark.1, |(_, held)| held)
            }
            None if before.is_some() && expires.is_some() => self.key(&key).unwrap_or(key),
            None => key,
        };
        if let Some(at) = expires {
            self.due.insert((at, Key::clone(&held)));
        }
        if before.is_none() {
            self.entries.insert(held, packed);
        }
        before
    }

    /// Removes a key and gives back what it was.
    pub fn remove(&mut self, key: &[u8]) -> Option<(Key, Entry)> {
        let (key, packed) = self.entries.remove_entry(key)?;
        let entry = packed.entry();
        let Some(at) = entry.expires else {
            return Some((key, entry));
        };
        let mark = (at, key);
        self.due.remove(&mark);
        Some((mark.1, entry))
    }

    /// When the next entry expires.
    #[must_use]
    pub fn next_due(&self) -> Option<TimeMs> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The keys that expired by `now`, the earliest first.
    pub fn due(&self, now: TimeMs) -> impl Iterator<Item = &Key> {
        self.due
            .iter()
            .take_while(move |(at, _)| *at <= now)
            .map(|(_, key)| key)
    }

    /// The entries whose keys begin with `prefix`, in order of their keys, those above `after` only.
    /// Taken in pieces, by the last key of each, it walks an index of any size without holding it for
    /// long.
    pub fn walk<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Key, Entry)> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        self.entries
            .range::<[u8], _>((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, packed)| (key, packed.entry()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::from(text.as_bytes())
    }

    fn entry(offset: u64, expires: Option<u64>) -> Entry {
        Entry {
            offset: Offset(offset),
            expires: expires.map(TimeMs),
            length: 3,
        }
    }

    fn due(index: &Index, now: u64) -> Vec<&[u8]> {
        index.due(TimeMs(now)).map(|key| &**key).collect()
    }

    #[test]
    fn an_entry_is_unpacked_as_it_was_packed_to_the_ends_of_its_fields() {
        for offset in [0, 1, OFFSET_MAX] {
            for expires in [None, Some(0), Some(1 << 40), Some(EXPIRY_NEVER - 1)] {
                for length in [0, 1, LENGTH_MAX as u32] {
                    let entry = Entry {
                        length,
                        ..entry(offset, expires)
                    };
                    assert_eq!(Packed::new(&entry).entry(), entry);
                }
            }
        }
        let far = entry(1, Some(u64::MAX));
        assert_eq!(Packed::new(&far).entry().expires, None);
    }

    #[test]
    fn an_entry_is_gone_from_the_millisecond_it_expires_at() {
        assert!(entry(0, Some(5)).is_live(TimeMs(4)));
        assert!(!entry(0, Some(5)).is_live(TimeMs(5)));
        assert!(entry(0, None).is_live(TimeMs(u64::MAX)));
    }

    #[test]
    fn the_order_of_expiry_follows_every_change() {
        let mut index = Index::new();
        index.put(key("a"), entry(1, Some(30)));
        index.put(key("b"), entry(2, Some(10)));
        index.put(key("c"), entry(3, None));
        assert_eq!(due(&index, 30), [b"b", b"a"]);
        assert_eq!(
            index.put(key("a"), entry(4, Some(5))),
            Some(entry(1, Some(30)))
        );
        assert_eq!(due(&index, 30), [b"a", b"b"]);
        index.put(key("a"), entry(5, None));
        index.put(key("c"), entry(6, Some(7)));
        assert_eq!(index.next_due(), Some(TimeMs(7)));
        assert_eq!(
            index.remove(b"b").map(|(_, was)| was),
            Some(entry(2, Some(10)))
        );
        assert_eq!(due(&index, 30), [b"c"]);
        assert_eq!(due(&index, 6), [b""; 0]);
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn a_key_is_held_once_however_often_it_is_put() {
        let mut index = Index::new();
        index.put(key("a"), entry(1, None));
        index.put(key("a"), entry(2, Some(9)));
        index.put(key("a"), entry(3, Some(10)));
        let held = index.key(b"a").unwrap();
        // The map, the order of expiry, and this one.
        assert_eq!(Key::strong_count(&held), 3);
    }

    #[test]
    fn a_walk_in_pieces_sees_what_one_walk_sees() {
        let mut index = Index::new();
        for (offset, name) in ["a", "ab", "ab1", "ab2", "ac", "b"].iter().enumerate() {
            index.put(key(name), entry(offset as u64, None));
        }
        let mut seen: Vec<Key> = Vec::new();
        loop {
            let after = seen.last().cloned();
            let piece: Vec<Key> = index
                .walk(b"ab", after.as_deref())
                .take(2)
                .map(|(key, _)| Key::clone(key))
                .collect();
            if piece.is_empty() {
                break;
            }
            seen.extend(piece);
        }
        assert_eq!(seen, [key("ab"), key("ab1"), key("ab2")]);
        assert_eq!(index.walk(b"", None).count(), 6);
        assert_eq!(index.walk(b"b", Some(b"a")).count(), 1);
        assert_eq!(index.walk(b"ab", Some(b"ad")).count(), 0);
    }

    #[test]
    fn an_index_built_at_once_is_the_same() {
        let rows = [("a", Some(3)), ("b", None), ("c", Some(1))];
        let rows: Vec<_> = rows
            .iter()
            .zip(0..)
            .map(|((name, expires), offset)| (key(name), entry(offset, *expires)))
            .collect();
        let built = Index::from_sorted(rows.clone());
        let mut put = Index::new();
        for (key, entry) in rows {
            put.put(key, entry);
        }
        assert!(built.walk(b"", None).eq(put.walk(b"", None)));
        assert_eq!(due(&built, 9), due(&put, 9));
    }
}
