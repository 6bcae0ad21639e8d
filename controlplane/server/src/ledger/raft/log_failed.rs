//! What can go wrong with the raft log.

use felix_journal::{AppendFailed, OpenRefused, ReadRefused, SyncFailed, TruncateRefused};
use felix_model::batch::BuildRefused;
use openraft::{AnyError, ErrorSubject, ErrorVerb, StorageIOError};

use super::place::PlaceRefused;
use super::types::StorageError;

/// Why the log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogFailed {
    /// It could not be opened.
    #[error("the raft log cannot be opened: {0}")]
    Open(#[from] OpenRefused),
    /// It could not be read.
    #[error("the raft log cannot be read: {0}")]
    Read(#[from] ReadRefused),
    /// It could not be written.
    #[error("the raft log cannot be written: {0}")]
    Append(#[from] AppendFailed),
    /// It could not be made durable.
    #[error("the raft log cannot be synced: {0}")]
    Sync(#[from] SyncFailed),
    /// It could not be cut.
    #[error("the raft log cannot be cut: {0}")]
    Truncate(#[from] TruncateRefused),
    /// A file beside it failed.
    #[error(transparent)]
    Place(#[from] PlaceRefused),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] felix_journal::DiskError),
    /// An entry is too large.
    #[error("entry {index} does not fit: {why}")]
    Unfit {
        /// Its index.
        index: u64,
        /// Why.
        why: BuildRefused,
    },
    /// A batch or an entry is not what was written.
    #[error("entry {index}: {why}")]
    Entry {
        /// Its index.
        index: u64,
        /// What is wrong with it.
        why: String,
    },
    /// An entry does not follow the one before.
    #[error("entry {found} does not follow the log, which ends before {expected}")]
    Gap {
        /// The next index.
        expected: u64,
        /// The entry's.
        found: u64,
    },
    /// The medium lost what it had promised to keep.
    #[error(
        "the disk lost {bytes} bytes of the raft log that were durable: this member has forgotten what it promised. \
         Where there are others, remove its raft directory, and it is counted in again as an empty one; where it is alone, \
         restore a backup into an empty directory"
    )]
    Lost {
        /// How many bytes.
        bytes: u64,
    },
}

impl LogFailed {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors are handed over as they come"
    )]
    pub(super) fn entry(index: u64, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::Entry { index, why }
    }

    pub(super) fn into_storage(self, subject: ErrorSubject<u64>, verb: ErrorVerb) -> StorageError {
        tracing::error!(error = %self, "the raft log failed");
        StorageIOError::new(subject, verb, AnyError::new(&self)).into()
    }
}
