//! The state that commits keep, per entity.

use bytes::Bytes;

use super::field::{List, Text, item, layout};

layout! {
    /// Reads one key of an entity's state.
    StateGet {
        /// The entity.
        entity: Bytes,
        /// The key within its state.
        key: Text,
        /// The shard to read instead of hashing the entity.
        shard: Option<u32> = 0x0001,
    }
}

item! {
    /// A value and the commit that wrote it.
    Versioned {
        /// Offset of the commit.
        version: u64,
        /// The value.
        value: Bytes,
    }
}

layout! {
    /// What the key holds.
    StateGot {
        /// Offset of the last commit reflected; absent before the shard's first.
        as_of: Option<u64> = 0x0001,
        /// Absent when the key holds nothing.
        value: Option<Versioned> = 0x0002,
    }
}

layout! {
    /// Lists an entity's state in the order of its keys.
    StateList {
        /// The entity.
        entity: Bytes,
        /// Keys that begin so; empty for all.
        prefix: Text,
        /// At most this many; 0 for as many as a page holds.
        limit: u32,
        /// Only keys greater than this one.
        after: Option<Text> = 0x0001,
        /// The shard to read instead of hashing the entity.
        shard: Option<u32> = 0x0002,
    }
}

item! {
    /// One key of an entity's state.
    StateEntry {
        /// The key.
        key: Text,
        /// Offset of the commit that wrote the value.
        version: u64,
        /// The value.
        value: Bytes,
    }
}

layout! {
    /// One page of a state.
    StateListed {
        /// Ascending by key.
        entries: List<StateEntry>,
        /// Whether there is more after the last key of the page.
        more: bool = 0x0001,
        /// Offset of the last commit reflected; absent before the shard's first.
        as_of: Option<u64> = 0x0002,
    }
}
