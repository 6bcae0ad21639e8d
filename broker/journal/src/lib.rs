//! Logs on disk: segments, group commit, recovery, and the tools that look at them offline.
//!
//! What lives here: the [`Disk`] trait with the real and the simulated disk, one shard's [`Log`] with its
//! [`LogReader`], the [`Journal`] that writes many logs with a few threads, the data directory's identity, and
//! inspection, repair and backup. The bytes on disk are drawn in `docs/STORAGE.md`.
//!
//! What never lives here: what an acknowledgement means, who may read, which offsets a batch gets. Batches arrive
//! with their final offsets and leave as they were written; nothing here looks inside a record, except to find
//! the first one of a given time, and for compaction, which lets whole records go.
//!
//! Where to begin: [`Log::open`] and [`Log::append`], then `log/recover.rs` for what is believed after a crash,
//! then [`Journal`] for the threads around it.

pub mod backup;
pub mod compact;
pub mod data_dir;
pub mod disk;
pub mod durable;
pub mod inspect;
mod journal;
pub mod limits;
mod log;
mod reader;
pub mod repair;

pub use data_dir::{DataDir, DataDirRefused, Identity, LogPlace};
pub use disk::{Disk, DiskError, DiskFile, Entry, RealDisk, SimDisk, Space};
pub use inspect::{Inspection, Verdict, inspect};
pub use journal::{Completions, Journal, JournalOptions, LogHandle, SyncMode, WriteFailure};
pub use log::{
    AppendFailed, CompactFailed, CompactJob, CompactOptions, Compacted, Damage, DamageKind, Keep,
    Log, LogOptions, OpenFiles, OpenRefused, PrepareJob, Recovered, RetainJob, RetentionPolicy,
    RollFailed, SealJob, SyncFailed, SyncJob, TruncateRefused,
};
pub use reader::{LogReader, Page, ReadRefused, Scrubbed, TimePoint};
