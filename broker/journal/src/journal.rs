//! Many logs, few threads: the journal of one data directory.
//!
//! ```text
//!   write() -> inbox of the log -> queue of logs -> writer threads: one write (and one sync) per group
//!                                                        |
//!                                   written / flushed / failed, then flush, seal and prepare
//!                                                        |
//!                                                   chore threads
//! ```

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_model::{Offset, TimeMs};

use crate::backup::{self, Copied, CopyRefused};
use crate::disk::{Disk, DiskError, Space};
use crate::limits;
use crate::log::{
    CompactFailed, CompactOptions, Compacted, Keep, Log, LogOptions, OpenRefused, Recovered,
    RetentionPolicy, RollFailed, SyncFailed,
};
use crate::reader::LogReader;

mod cell;
mod open;
mod pool;
mod queue;
mod room;

use cell::Cell;
use pool::Pool;

/// When written bytes are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before they are reported as flushed, group by group: nothing that was reported is lost with the power.
    OnCommit,
    /// Every so many milliseconds; power loss takes at most that much, and only from the end.
    Periodic {
        /// The interval.
        ms: u64,
    },
    /// When the kernel sees fit, when a segment is finished, and when the log has been idle for a while.
    None,
}

impl Default for SyncMode {
    fn default() -> Self {
        Self::Periodic {
            ms: limits::PERIODIC_FLUSH_MS,
        }
    }
}

/// Why batches were not written, or will not become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// No room on the disk. Writes are taken again once there is.
    Full,
    /// The disk refused the write; the log itself is whole.
    Io,
    /// A sync failed, or a failed write could not be undone: this log takes no more writes until it is opened again.
    Poisoned,
}

/// Who is told how far a log has come. Called on journal threads, one call at a time for a log: it must not block,
/// and of the log's handle it may call only [`LogHandle::write`].
pub trait Completions: Send + Sync + 'static {
    /// Everything below `end` (exclusive) survives the end of this process. In `OnCommit` mode it is called before the
    /// sync, and `flushed` follows.
    fn written(&self, end: Offset);

    /// Everything below `end` (exclusive) survives power loss.
    fn flushed(&self, end: Offset);

    /// Nothing at or above `from` was written, or, when poisoned, will become durable. Batches that were queued before
    /// the caller heard of it are dropped without another call; the next one that is written must begin at `from`.
    fn failed(&self, from: Offset, why: WriteFailure);
}

/// How many threads and files a journal may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Threads that write; see [`limits::WRITER_THREADS`].
    pub writer_threads: usize,
    /// Threads that flush, seal and prepare; see [`limits::CHORE_THREADS`].
    pub chore_threads: usize,
    /// Sealed and idle files kept open; see [`limits::OPEN_FILES`].
    pub open_files: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            writer_threads: limits::WRITER_THREADS,
            chore_threads: limits::CHORE_THREADS,
            open_files: limits::OPEN_FILES,
        }
    }
}

/// The journal of one data directory: a few threads that write any number of logs. Dropping it writes what is
/// queued, closes the logs and stops the threads.
#[derive(Debug)]
pub struct Journal {
    pool: Arc<Pool>,
    threads: pool::Threads,
}

impl Journal {
    /// Starts the threads. `root` is any directory of the file system whose room is watched.
    ///
    /// # Errors
    /// When a thread cannot be started or the room on the disk cannot be read.
    pub fn start(
        disk: Arc<dyn Disk>,
        root: &Path,
        options: JournalOptions,
    ) -> Result<Self, DiskError> {
        let pool = Pool::new(disk, root, options.open_files)?;
        let threads = pool::Threads::start(&pool, options)?;
        Ok(Self { pool, threads })
    }

    /// Opens and recovers a log; blocking. A directory has one open log at a time: one whose last handle was dropped is
    /// waited for until it is closed.
    ///
    /// # Errors
    /// See [`OpenRefused`]. A log that is refused can still be inspected, repaired and dropped.
    pub fn open_log(
        &self,
        dir: &Path,
        options: LogOptions,
        sync: SyncMode,
        completions: Arc<dyn Completions>,
    ) -> Result<(LogHandle, Recovered), OpenRefused> {
        let claim = self.pool.open_dirs().claim(dir)?;
        let (log, recovered) = Log::open_in(self.pool.files(), dir, options)?;
        let reader = log.reader();
        let cell = Arc::new(Cell::new(log, sync, completions, claim));
        let owner = Arc::new(Owner {
            cell: Arc::clone(&cell),
            pool: Arc::clone(&self.pool),
        });
        Ok((LogHandle { owner, reader }, recovered))
    }

    /// Room on the disk when it was last looked at.
    #[must_use]
    pub fn space(&self) -> Space {
        self.pool.room().space()
    }

    /// Whether writes are refused because the disk is nearly full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pool.room().is_full()
    }

    /// How many threads it has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.count()
    }
}

/// One log of a journal. Cheap to clone. With its last handle the log is closed in the background; with
/// [`LogHandle::close`], at once.
#[derive(Clone)]
pub struct LogHandle {
    owner: Arc<Owner>,
    reader: LogReader,
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogHandle")
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

/// What all handles of a log share.
struct Owner {
    cell: Arc<Cell>,
    pool: Arc<Pool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.cell.last_handle_gone();
        self.pool.close_later(&self.cell);
    }
}

impl LogHandle {
    /// Queues a batch whose next offset is `end` (exclusive); never blocks. How much may be queued is the caller's
    /// budget. What becomes of it is told to the log's [`Completions`].
    pub fn write(&self, batch: Bytes, end: Offset) {
        debug_assert!(
            felix_model::BatchHeader::parse(&batch).is_ok_and(|header| header.next_offset() == end)
        );
        if self.owner.cell.push(batch) {
            self.owner.pool.write_later(&self.owner.cell);
        }
    }

    /// A reader, for any thread that may block.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// Forgets whole segments from the front, never past `never_past`; blocking. Answers the new start.
    ///
    /// # Errors
    /// See [`crate::Log::retain`].
    pub fn retain(
        &self,
        policy: RetentionPolicy,
        now: TimeMs,
        never_past: Offset,
    ) -> Result<Offset, DiskError> {
        // A closed log forgets nothing: its directory may have been opened again.
        let Some(_open) = self.owner.cell.stay_open() else {
            return Ok(self.reader.start());
        };
        let job = self.owner.cell.log().begin_retain(policy, now, never_past);
        if let Some(job) = job {
            job.run()?;
        }
        Ok(self.reader.start())
    }

    /// Closes the active segment, so that it can be compacted; blocking, while writes go on. An empty one is left as it is.
    ///
    /// # Errors
    /// See [`RollFailed`].
    pub fn roll(&self) -> Result<(), RollFailed> {
        self.owner.cell.roll()
    }

    /// Replaces closed segments by ones without what `keep` lets go; blocking, while writes and reads go on. `pause` is
    /// called about every 256 KiB with the bytes read since; its break ends the compaction, and so does closing the log.
    /// One log of a journal is compacted at a time; the others wait.
    /// What was committed until then stays done. A log that is closed is left alone.
    ///
    /// # Errors
    /// See [`CompactFailed`].
    pub fn compact(
        &self,
        options: CompactOptions,
        keep: &mut dyn Keep,
        pause: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Compacted, CompactFailed> {
        // Taken before the log is kept open: one that is to be closed does not wait for others.
        let _turn = self.owner.pool.compaction_turn();
        self.owner.cell.compact(options, keep, pause)
    }

    /// Below it (exclusive) compaction has collapsed the history; see [`LogReader::cleaned_to`].
    #[must_use]
    pub fn cleaned_to(&self) -> Offset {
        self.reader.cleaned_to()
    }

    /// Below it (exclusive) deletions may be gone; see [`LogReader::tombstone_floor`].
    #[must_use]
    pub fn tombstone_floor(&self) -> Offset {
        self.reader.tombstone_floor()
    }

    /// Writes what is queued and makes it durable; blocking. Answers the durable end (exclusive).
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn flush(&self) -> Result<Offset, SyncFailed> {
        self.owner.cell.flush(&self.owner.pool)
    }

    /// Writes what is queued, makes it durable and closes; blocking. Later writes are dropped.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn close(&self) -> Result<(), SyncFailed> {
        self.owner.cell.close(&self.owner.pool)
    }

    /// Copies a consistent prefix, everything durable that ends at or below `until` (exclusive), into an empty or
    /// missing directory of the same disk while writes go on; blocking.
    ///
    /// # Errors
    /// See [`CopyRefused`].
    pub fn copy_to(&self, dir: &Path, until: Offset) -> Result<Copied, CopyRefused> {
        self.flush()?;
        backup::copy(
            &self.reader,
            self.owner.pool.files().disk().as_ref(),
            dir,
            until,
        )
    }
}
