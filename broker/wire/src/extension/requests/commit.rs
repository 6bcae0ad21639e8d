//! Atomic commits: one event and the state it changes.

use bytes::Bytes;

use super::field::{List, Text, item, layout};

layout! {
    /// Appends an event and changes the state of its entity in one record.
    Commit {
        /// The entity; routes to a shard like a publish key.
        entity: Bytes,
        /// What subscribers see.
        event: Bytes,
        /// Applied in order.
        changes: List<Change>,
        /// The offset the record must get; refused with `offset_mismatch` when it is another.
        expected_offset: Option<u64> = 0x0001,
        /// What the entity's keys must hold; refused with `version_mismatch` for the first that
        /// does not.
        preconditions: Option<List<Precondition>> = 0x0002,
        /// 1 to 128 bytes. A commit that landed under the same key before does not land again.
        once: Option<Bytes> = 0x0004,
        /// Shard to write to instead of hashing the entity.
        shard: Option<u32> = 0x0008,
    }
}

item! {
    /// One change of an entity's state.
    Change {
        /// The key.
        key: Text,
        /// Its new value; absent to remove the key.
        value: Option<Bytes>,
    }
}

item! {
    /// What a key of the entity must hold for a commit to be applied.
    Precondition {
        /// The key.
        key: Text,
        /// Offset of the commit that wrote it; absent when it must hold nothing.
        version: Option<u64>,
    }
}

layout! {
    /// The commit is in the log.
    Committed {
        /// The record's offset, which is the version of what it wrote.
        offset: u64,
        /// It had landed before.
        repeated: bool = 0x0001,
    }
}
