//! The threads of a journal and what they share.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::JournalOptions;
use super::cell::Cell;
use super::open::OpenDirs;
use super::queue::{Agenda, Queue};
use super::room::Room;
use crate::disk::{Disk, DiskError};
use crate::limits;
use crate::log::{OpenFiles, PrepareJob, SealJob};

/// What the threads and the handles share.
#[derive(Debug)]
pub(super) struct Pool {
    files: Arc<OpenFiles>,
    room: Room,
    writes: Queue<Arc<Cell>>,
    chores: Agenda<Chore>,
    /// Earlier than any due time: what is urgent goes first.
    started: Instant,
    /// Held by the one log that is compacted.
    compacting: Mutex<()>,
    open_dirs: Arc<OpenDirs>,
}

/// Work that need not be done by a writer thread.
#[derive(Debug)]
pub(super) enum Chore {
    /// Make a periodic log durable.
    Flush(Arc<Cell>),
    /// Create the next segment's file.
    Prepare(Arc<Cell>, PrepareJob),
    /// Seal a finished segment.
    Seal(Arc<Cell>, SealJob),
    /// Let go of an idle log's files and memory.
    Rest(Arc<Cell>),
    /// Close a log whose handles are gone.
    Close(Arc<Cell>),
    /// Look how much room the disk has.
    Look,
}

impl Pool {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        root: &Path,
        open_files: usize,
    ) -> Result<Arc<Self>, DiskError> {
        let room = Room::new(Arc::clone(&disk), root)?;
        let pool = Arc::new(Self {
            files: OpenFiles::new(disk, open_files),
            room,
            writes: Queue::new(),
            chores: Agenda::new(),
            started: Instant::now(),
            compacting: Mutex::default(),
            open_dirs: Arc::default(),
        });
        pool.plan(Instant::now() + LOOK_AGAIN, Chore::Look);
        Ok(pool)
    }

    pub(super) fn files(&self) -> &Arc<OpenFiles> {
        &self.files
    }

    pub(super) fn open_dirs(&self) -> &Arc<OpenDirs> {
        &self.open_dirs
    }

    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    pub(super) fn write_later(&self, cell: &Arc<Cell>) {
        self.writes.push(Arc::clone(cell));
    }

    pub(super) fn plan(&self, due: Instant, chore: Chore) {
        self.chores.push(due, chore);
    }

    /// A segment that is not ready in time makes a writer wait.
    pub(super) fn plan_urgent(&self, chore: Chore) {
        self.chores.push(self.started, chore);
    }

    /// Waits for the turn to compact a log.
    pub(super) fn compaction_turn(&self) -> MutexGuard<'_, ()> {
        self.compacting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a log whose handles are gone: here, when there are no threads any more.
    pub(super) fn close_later(self: &Arc<Self>, cell: &Arc<Cell>) {
        if self.chores.is_stopped() {
            // What could be told about it has been told to the log's completions.
            let _ = cell.close(self);
        } else {
            self.plan(Instant::now(), Chore::Close(Arc::clone(cell)));
        }
    }

    fn write_until_stopped(self: &Arc<Self>) {
        while let Some(cell) = self.writes.pop() {
            if cell.turn(self) {
                self.writes.push(cell);
            }
        }
    }

    fn chores_until_stopped(self: &Arc<Self>) {
        while let Some(chore) = self.chores.pop() {
            self.run(chore);
        }
    }

    fn run(self: &Arc<Self>, chore: Chore) {
        match chore {
            Chore::Flush(cell) => cell.flush_in_background(),
            Chore::Prepare(cell, job) => cell.prepared(&job),
            Chore::Seal(cell, job) => cell.seal(&job),
            Chore::Rest(cell) => {
                if let Some(due) = cell.rest(Instant::now(), self.chores.is_stopped()) {
                    self.plan(due, Chore::Rest(cell));
                }
            }
            Chore::Close(cell) => {
                let _ = cell.close(self);
            }
            Chore::Look => {
                self.room.look();
                if !self.chores.is_stopped() {
                    self.plan(Instant::now() + LOOK_AGAIN, Chore::Look);
                }
            }
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(limits::SPACE_CHECK_MS);

/// The running threads. Dropping them stops them once what is queued is done.
#[derive(Debug)]
pub(super) struct Threads {
    pool: Arc<Pool>,
    writers: Vec<JoinHandle<()>>,
    chores: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(pool: &Arc<Pool>, options: JournalOptions) -> Result<Self, DiskError> {
        let mut threads = Self {
            pool: Arc::clone(pool),
            writers: Vec::new(),
            chores: Vec::new(),
        };
        for number in 0..options.writer_threads.max(1) {
            let pool = Arc::clone(pool);
            let thread = spawn(format!("journal-{number}"), move || {
                pool.write_until_stopped()
            })?;
            threads.writers.push(thread);
        }
        for number in 0..options.chore_threads.max(1) {
            let pool = Arc::clone(pool);
            let thread = spawn(format!("journal-chores-{number}"), move || {
                pool.chores_until_stopped()
            })?;
            threads.chores.push(thread);
        }
        Ok(threads)
    }

    pub(super) fn count(&self) -> usize {
        self.writers.len() + self.chores.len()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Writers first: what they write may leave chores behind.
        self.pool.writes.stop();
        for thread in self.writers.drain(..) {
            let _ = thread.join();
        }
        self.pool.chores.stop();
        for thread in self.chores.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DiskError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| DiskError::new("start", Path::new("journal thread"), &error))
}
