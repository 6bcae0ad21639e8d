//! Caches: entries of keys, conditional on versions, read one, many, or in order.

use bytes::{Bytes, BytesMut};

use super::field::{Field, List, Text, item, layout};
use crate::cursor::{Cursor, Malformed};
use crate::publish::PublishTooLong;

layout! {
    /// Reads one key.
    CacheGet {
        /// The key.
        key: Text,
    }
}

item! {
    /// A live entry.
    Entry {
        /// Offset of the put that wrote it.
        version: u64,
        /// When it expires, Unix milliseconds; 0 for never.
        expires_at_ms: u64,
        /// The value; empty where values were not asked for.
        value: Bytes,
    }
}

layout! {
    /// The entry of one key.
    CacheGot {
        /// Absent when the key has no live entry.
        entry: Option<Entry> = 0x0001,
    }
}

layout! {
    /// Reads many keys, of any shards.
    CacheGetMany {
        /// The keys.
        keys: List<Text>,
    }
}

item! {
    /// What one of many keys holds.
    Slot {
        /// Absent when the key has no live entry.
        entry: Option<Entry>,
    }
}

layout! {
    /// The entries of the first keys asked for, in their order. Fewer slots than keys means that
    /// the frame is full: whoever wants the rest asks again for them.
    CacheGotMany {
        /// One for each key, from the first.
        slots: List<Slot>,
    }
}

/// What must hold for a write to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key has no live entry.
    Absent,
    /// The key's live entry has exactly this version.
    Version(u64),
}

layout! {
    /// Sets a key.
    CachePut {
        /// The key.
        key: Text,
        /// The value.
        value: Bytes,
        /// How long the entry lives from now on the broker's clock, in milliseconds; absent for ever.
        ttl_ms: Option<u64> = 0x0001,
        /// Absent: whatever the key holds. Refused with `version_mismatch` when it does not hold.
        condition: Option<Condition> = 0x0002,
    }
}

layout! {
    /// The entry is written.
    CacheStored {
        /// Its version.
        version: u64,
    }
}

layout! {
    /// Removes a key.
    CacheDelete {
        /// The key.
        key: Text,
        /// Only this version; refused with `version_mismatch` when it is another.
        version: Option<u64> = 0x0001,
        /// Whether the answer shall carry the removed value.
        want_value: bool = 0x0002,
    }
}

layout! {
    /// The key has no entry now.
    CacheDeleted {
        /// The entry that was removed; absent when there was none.
        removed: Option<Entry> = 0x0001,
    }
}

layout! {
    /// Lists live entries in the order of their keys.
    CacheList {
        /// Keys that begin so; empty for all.
        prefix: Text,
        /// At most this many entries; 0 for as many as a page holds.
        limit: u32,
        /// Only keys greater than this one.
        after: Option<Text> = 0x0001,
        /// Whether to send values too.
        want_values: bool = 0x0002,
        /// Only keys of this shard; absent for those of every shard, merged.
        shard: Option<u32> = 0x0004,
    }
}

item! {
    /// One entry of a list.
    Listed {
        /// The key.
        key: Text,
        /// What it holds.
        entry: Entry,
    }
}

layout! {
    /// One page of a list.
    CacheListed {
        /// Ascending by key.
        entries: List<Listed>,
        /// Whether there is more after the last key of the page.
        more: bool = 0x0001,
    }
}

/// A byte that says whether an entry follows, and the entry.
impl Field for Option<Entry> {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        // A version takes the place of the byte: an absent entry has none.
        self.as_ref().map(|entry| entry.version).put(into, field)?;
        match self {
            Some(entry) => {
                entry.expires_at_ms.put(into, field)?;
                entry.value.put(into, field)
            }
            None => Ok(()),
        }
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let Some(version) = Option::<u64>::read(cursor, field)? else {
            return Ok(None);
        };
        Ok(Some(Entry {
            version,
            expires_at_ms: u64::read(cursor, "expires_at_ms")?,
            value: Bytes::read(cursor, "value")?,
        }))
    }
}

/// A version that must stand, or that none must.
impl Field for Condition {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        match *self {
            Self::Absent => None,
            Self::Version(version) => Some(version),
        }
        .put(into, field)
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let version = Option::<u64>::read(cursor, field)?;
        Ok(version.map_or(Self::Absent, Self::Version))
    }
}
