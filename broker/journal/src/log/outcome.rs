//! What is asked of a log, and what it answers.

use std::path::PathBuf;

use felix_model::{Generation, Offset};

use crate::disk::DiskError;
use crate::limits;

/// How a log is laid out. What belongs to a stream's meaning (retention, sync mode) is given where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Size in bytes at which a segment is rolled; a larger batch gets a segment to itself.
    pub segment_bytes: u64,
    /// How many bytes of log, newest first, are checked at open beyond what recovery needs. `u64::MAX` checks all.
    pub verify_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: limits::SEGMENT_BYTES,
            verify_bytes: limits::VERIFY_BYTES,
        }
    }
}

/// What opening a log found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Oldest offset still held.
    pub start: Offset,
    /// One past the newest offset held (exclusive). Everything below it is durable.
    pub end: Offset,
    /// The newest generation that batches may have been appended under; zero for a new log. After an unclean open the
    /// next higher one is remembered as well, durably, before this is answered.
    pub last_generation: Generation,
    /// Largest record time in unix ms, or -1 for an empty log.
    pub max_timestamp: i64,
    /// Bytes of log held.
    pub bytes: u64,
    /// Bytes cut off the end as a torn tail.
    pub truncated_bytes: u64,
    /// Bytes that had been durable and are gone, cut off or missing: the medium lost what it had promised to keep.
    pub lost_durable_bytes: u64,
    /// Whether the log had been closed in order in this run of the machine, with all of it known to be durable. When
    /// false, offsets at or above `end` may have been handed out before the crash, so the caller appends under
    /// `last_generation + 1`.
    pub clean: bool,
}

/// Where a log is broken and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is damaged at byte {position} (offset {offset}): {kind}", file.display())]
pub struct Damage {
    /// The segment file.
    pub file: PathBuf,
    /// Byte in the file where the bad batch begins.
    pub position: u64,
    /// The offset expected there.
    pub offset: Offset,
    /// What is wrong.
    pub kind: DamageKind,
}

/// What is wrong at a damaged place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// The batch does not pass its own checks.
    #[error("{0}")]
    Batch(String),
    /// A good batch with an offset that does not follow.
    #[error("expected offset {expected}, found {found}")]
    Gap {
        /// What the batch before it, or the file name, asks for.
        expected: Offset,
        /// What is written there.
        found: Offset,
    },
    /// What says which segments were compacted cannot be read.
    #[error("the manifest of compaction is unreadable")]
    Manifest,
    /// A segment that must be there is not.
    #[error("no segment holds the offsets from {expected} to {found}")]
    MissingSegment {
        /// First offset missing.
        expected: Offset,
        /// First offset of the next segment.
        found: Offset,
    },
}

/// Why a log was not opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefused {
    /// The log is damaged where a crash cannot explain it.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// The journal has a log open in this directory that is not closed yet.
    #[error("the log in {} is open already", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
}

/// Why an append was not done, or not to its end: batches below [`crate::Log::end`] are in the log, the others are not and
/// their offsets are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendFailed {
    /// No room; trying again later can help.
    #[error("the disk is full")]
    Full,
    /// The disk failed the write.
    #[error(transparent)]
    Io(DiskError),
    /// An earlier failure left the log in doubt; only opening it again can help.
    #[error("the log takes no more writes after an earlier disk failure")]
    Poisoned,
    /// The caller's batches do not continue the log.
    #[error("batch starts at {found}, but the log ends at {expected}")]
    NotContiguous {
        /// The log's end.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The caller's bytes are not a record batch.
    #[error("not a record batch: {0}")]
    Malformed(String),
}

/// Why the log could not be made durable. It takes no more writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncFailed {
    /// The disk failed this sync.
    #[error(transparent)]
    Io(DiskError),
    /// An earlier failure left the log in doubt.
    #[error("the log takes no more writes after an earlier disk failure")]
    Poisoned,
}
