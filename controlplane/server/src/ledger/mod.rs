//! Where events are kept.
//!
//! A ledger knows nothing of the catalogue: it keeps records, one per revision, in an order that never changes, every
//! record from the first on. Several processes may write one ledger; each append names the revision it stands on, and
//! of two that name the same one wins. Every kind of ledger passes the same suite, `contract`.

use std::fmt::Debug;

use bytes::Bytes;
use felix_meta::Revision;
use tokio::sync::watch;

#[cfg(test)]
pub(crate) mod contract;
mod disk;
mod memory;
mod postgres;
pub mod raft;
mod whole;

pub use disk::{DiskLedger, OpenFailed};
pub use memory::MemoryLedger;
pub use postgres::{Address, AddressRefused, PostgresLedger, PostgresRefused};
pub use whole::NotWhole;

/// Keeps one record per revision, durably, for any number of writers. Blocking: called from threads of their own, never
/// from a task.
pub trait Ledger: Send + Sync + Debug + 'static {
    /// The revision of the newest record readable here; 0 when there is none. It never goes back.
    fn revision(&self) -> Revision;

    /// Follows [`Ledger::revision`]: moves when anybody has added records and they are readable here.
    fn watch(&self) -> watch::Receiver<Revision>;

    /// Adds records behind `expected`, which must be the newest revision: all of them or none. When it returns, they
    /// survive what the kind of ledger promises to survive (at least a power cut here), and they are readable here.
    ///
    /// # Errors
    /// [`AppendRefused`], whose variants say whether the records may nevertheless be there. After
    /// [`AppendRefused::Raced`] the records up to the revision found are readable here.
    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused>;

    /// Records after a revision, in order: at least one unless there are none, and about `bytes_max` at most.
    ///
    /// # Errors
    /// [`ReadFailed`] when what was kept cannot be read.
    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed>;

    /// A revision that is at least every one acknowledged to anybody before this call, and that is readable here and
    /// seen by [`Ledger::watch`] when this returns.
    ///
    /// # Errors
    /// [`ConfirmFailed`] when that cannot be known now.
    fn confirm(&self) -> Result<Revision, ConfirmFailed>;

    /// Keeps the state as of a revision, so that a start need not read what came before it. It replaces an older one;
    /// a newer one, which another writer may have kept, stays.
    ///
    /// # Errors
    /// [`ReadFailed`] when it could not be kept; the one before is still there then.
    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed>;

    /// The snapshot kept last, if any, and its revision.
    ///
    /// # Errors
    /// [`ReadFailed`] when there is one that cannot be read.
    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed>;

    /// How it stands now. Cheap and without waiting: asked by every probe.
    fn standing(&self) -> Standing;

    /// What else an operator may watch. Cheap and without waiting.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }

    /// Ends in order. A ledger that is only dropped is as after a crash: correct, and slower to open.
    fn close(self: Box<Self>);
}

/// How a ledger stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `memory`, `disk`, `postgres` or `raft`.
    pub kind: &'static str,
    /// Who this process is among those that keep the ledger; empty where they have no names.
    pub member: String,
    /// Who decides which append comes first, as far as known here; `None` where nobody of the members does, or it is
    /// not known.
    pub leader: Option<String>,
    /// Whether that is this process.
    pub leads: bool,
    /// Whether an append would be tried now.
    pub ready: bool,
    /// Why not, in words for an operator, without secrets.
    pub why_not: Option<String>,
}

impl Standing {
    /// A ledger that one process keeps for itself, and that works unless `why_not` says otherwise.
    #[must_use]
    pub fn alone(kind: &'static str, why_not: Option<String>) -> Self {
        Self {
            kind,
            member: String::new(),
            leader: None,
            leads: true,
            ready: why_not.is_none(),
            why_not,
        }
    }
}

/// A number for `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// `gauge` or `counter`.
    pub kind: &'static str,
    /// Its whole name.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// What it is now.
    pub value: u64,
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
    /// Those who keep the ledger cannot be reached, or cannot agree. Nothing was added, and nothing will be; it works
    /// again when they are back.
    #[error("the ledger cannot be reached: {0}")]
    Unreachable(String),
    /// The records were handed over and nobody could say what became of them. They may be there now, or later, or
    /// never; the next append finds out.
    #[error("the ledger did not answer: {0}")]
    Unconfirmed(String),
    /// The disk failed. The records may or may not be there after a restart, and none can be added before.
    #[error("the ledger failed: {0}")]
    Failed(String),
}

/// Why something kept could not be read, or a snapshot not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadFailed(pub String);

/// Why it is not known what the newest revision is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the newest revision cannot be confirmed: {0}")]
pub struct ConfirmFailed(pub String);
