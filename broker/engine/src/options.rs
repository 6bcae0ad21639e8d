//! What the shell decides about a shard when it opens one.

use felix_model::{Generation, Offset};

/// What must have happened to a batch before it counts as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitWhen {
    /// Written: it survives the end of the process (`sync: periodic` and `none`).
    Written,
    /// Flushed: it survives power loss (`sync: on_commit`).
    Flushed,
}

/// What an in-memory stream does when a reader is slower than its publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The reader keeps what it is owed, up to its bound, and loses what is published until it
    /// has taken that.
    #[default]
    DropNew,
    /// The reader loses the oldest of what it is owed.
    DropOld,
    /// Nothing is lost; publishers wait.
    Block,
}

/// Where the batches of a shard are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a journal; readers that fall behind read it.
    Durable {
        /// What commits a batch.
        commit: CommitWhen,
    },
    /// Nowhere but in memory; a batch is committed the moment it is admitted.
    Memory {
        /// Bound of all the stream holds, in [`Batch::bytes_len`](crate::Batch::bytes_len), however many readers
        /// there are. At least one batch is held whatever its size.
        ring_bytes: u64,
        /// Bound of what a single reader can be owed; no more than `ring_bytes` counts, and under
        /// `drop_new` no more than half of that, so that there is room to keep what slow readers are
        /// owed beside what is new.
        reader_bytes: u64,
        /// What happens when that is not enough.
        overflow: Overflow,
    },
}

/// Bounds that protect the broker rather than describe the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recent committed batches of a durable stream kept in memory for readers at the tail, in
    /// bytes. More lets a slower reader live without reading the journal, and costs just that
    /// memory in every busy shard.
    pub window_bytes: u64,
    /// Bytes admitted and not yet committed. One batch is admitted even when it is larger.
    pub in_flight_bytes_max: u64,
    /// Readers at a time.
    pub readers_max: u32,
    /// Idempotent producers remembered; the one that appended least recently is forgotten first.
    pub producers_max: u32,
    /// Batches that may wait for slow readers under [`Overflow::Block`].
    pub held_max: u32,
    /// How long they may wait, in milliseconds, before they are refused.
    pub held_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window_bytes: 8 << 20,
            in_flight_bytes_max: 64 << 20,
            readers_max: 65_536,
            producers_max: 4096,
            held_max: 1024,
            held_ms_max: 2_000,
        }
    }
}

/// Everything a shard is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// Where batches are and what commits them.
    pub storage: Storage,
    /// Bounds.
    pub limits: Limits,
    /// Written into every batch appended from here on.
    pub generation: Generation,
    /// First offset the log still holds, as recovered. 0 in memory.
    pub start: Offset,
    /// Where the log ends, exclusive, as recovered; all of it counts as committed. 0 in memory.
    pub end: Offset,
}

impl ShardOptions {
    /// A new durable shard, empty.
    pub fn durable(commit: CommitWhen) -> Self {
        Self::new(Storage::Durable { commit })
    }

    /// A new in-memory shard.
    pub fn memory(ring_bytes: u64, reader_bytes: u64, overflow: Overflow) -> Self {
        Self::new(Storage::Memory {
            ring_bytes,
            reader_bytes,
            overflow,
        })
    }

    fn new(storage: Storage) -> Self {
        Self {
            storage,
            limits: Limits::default(),
            generation: Generation(0),
            start: Offset(0),
            end: Offset(0),
        }
    }
}
