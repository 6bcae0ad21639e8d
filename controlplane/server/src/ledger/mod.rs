//! Where events are kept.
//!
//! A ledger knows nothing of the catalogue: it keeps records, one per revision, in an order that never changes. It has
//! three verbs: append at an expected revision, read from a revision on, and keep a snapshot. Every kind of ledger
//! passes the same suite, `contract`.

use bytes::Bytes;
use felix_meta::Revision;

#[cfg(test)]
mod contract;
mod disk;
mod memory;

pub use disk::{Copier, CopyFailed, DiskLedger, OpenFailed};
pub use memory::MemoryLedger;

/// Keeps one record per revision, durably, for a single writer. Blocking.
pub trait Ledger: Send + std::fmt::Debug + 'static {
    /// The revision of the newest record; 0 when there is none.
    fn revision(&self) -> Revision;

    /// Adds records behind `expected`, which must be the newest revision. When it returns, they survive a power cut.
    ///
    /// # Errors
    /// [`AppendRefused`], whose variants say whether the records may nevertheless be there after a restart.
    fn append(&mut self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused>;

    /// Records after a revision, in order: at least one unless there are none, and about `bytes_max` at most.
    ///
    /// # Errors
    /// [`ReadFailed`] when what was kept cannot be read.
    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed>;

    /// Keeps the state as of a revision, so that a start need not read what came before it. Replaces the one before.
    ///
    /// # Errors
    /// [`ReadFailed`] when it could not be kept; the one before is still there then.
    fn keep_snapshot(&mut self, at: Revision, state: &[u8]) -> Result<(), ReadFailed>;

    /// Ends in order. A ledger that is only dropped is as after a crash: correct, and slower to open.
    fn close(self: Box<Self>);

    /// The snapshot kept last, if any, and its revision.
    ///
    /// # Errors
    /// [`ReadFailed`] when there is one that cannot be read.
    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed>;
}

/// Why records were not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefused {
    /// Somebody else added records. Nothing was added.
    #[error("expected revision {expected}, but the ledger is at {found}")]
    Raced {
        /// What the caller believed.
        expected: Revision,
        /// What is.
        found: Revision,
    },
    /// The disk has no room. Nothing was added; it works again when there is room.
    #[error("the disk is full")]
    Full,
    /// The records are too large for one append. Nothing was added.
    #[error("the records do not fit: {0}")]
    Unfit(String),
    /// The disk failed. The records may or may not be there after a restart, and none can be added before.
    #[error("the ledger failed: {0}")]
    Failed(String),
}

/// Why something kept could not be read, or a snapshot not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadFailed(pub String);
