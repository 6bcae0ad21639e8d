//! One log of a journal: its inbox, its log, and whoever is told about it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use felix_model::{BatchHeader, Offset};

use super::open::Claim;
use super::pool::{Chore, Pool};
use super::{Completions, SyncMode, WriteFailure};
use crate::limits;
use crate::log::{
    AppendFailed, CompactFailed, CompactOptions, Compacted, Keep, Log, RollFailed, SyncFailed,
};

/// A log with its inbox. Whoever holds `writer` may take from the inbox, so batches are written in the order in which
/// they were queued, by whichever thread.
pub(super) struct Cell {
    inbox: Mutex<Inbox>,
    writer: Mutex<Writer>,
    sync: SyncMode,
    flush_planned: AtomicBool,
    rest_planned: AtomicBool,
    /// Whether the log is closed. Held for reading by whoever works on its files without holding the log, so that a
    /// closed log is left alone: its directory may be opened again.
    closed: RwLock<bool>,
    /// Held until the log is closed.
    claim: Mutex<Option<Claim>>,
}

#[derive(Default)]
struct Inbox {
    batches: VecDeque<Bytes>,
    /// Whether the log is in the writers' queue, or being written.
    queued: bool,
    closed: bool,
}

pub(super) struct Writer {
    log: Log,
    completions: Arc<dyn Completions>,
    /// A failure was reported: batches are dropped until one begins at the log's end, for they were queued before the
    /// caller knew.
    rewinding: bool,
    poison_told: bool,
    last_write: Instant,
}

impl fmt::Debug for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cell")
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// A log that is held.
pub(super) struct Held<'a>(MutexGuard<'a, Writer>);

impl std::ops::Deref for Held<'_> {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0.log
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.0.log
    }
}

impl Cell {
    pub(super) fn new(
        log: Log,
        sync: SyncMode,
        completions: Arc<dyn Completions>,
        claim: Claim,
    ) -> Self {
        Self {
            inbox: Mutex::default(),
            writer: Mutex::new(Writer {
                log,
                completions,
                rewinding: false,
                poison_told: false,
                last_write: Instant::now(),
            }),
            sync,
            flush_planned: AtomicBool::new(false),
            rest_planned: AtomicBool::new(false),
            closed: RwLock::new(false),
            claim: Mutex::new(Some(claim)),
        }
    }

    /// Puts a batch into the inbox; whether the log now has to be queued.
    pub(super) fn push(&self, batch: Bytes) -> bool {
        let mut inbox = self.inbox();
        if inbox.closed {
            return false;
        }
        inbox.batches.push_back(batch);
        !std::mem::replace(&mut inbox.queued, true)
    }

    /// Holds the log. Nothing is written meanwhile.
    pub(super) fn log(&self) -> Held<'_> {
        Held(self.writer())
    }

    /// Writes one group; whether there is more.
    pub(super) fn turn(self: &Arc<Self>, pool: &Arc<Pool>) -> bool {
        let mut writer = self.writer();
        let group = self.take();
        if !group.is_empty() {
            self.write(&mut writer, group, pool);
        }
        drop(writer);
        let mut inbox = self.inbox();
        inbox.queued = !inbox.batches.is_empty();
        inbox.queued
    }

    /// What goes out in the next write.
    fn take(&self) -> Vec<Bytes> {
        let mut inbox = self.inbox();
        let mut bytes = 0;
        let fitting = inbox
            .batches
            .iter()
            .take_while(|batch| {
                let first = bytes == 0;
                bytes += batch.len();
                first || bytes <= limits::GROUP_BYTES_MAX
            })
            .count();
        inbox.batches.drain(..fitting).collect()
    }

    fn write(self: &Arc<Self>, writer: &mut Writer, group: Vec<Bytes>, pool: &Arc<Pool>) {
        let group = writer.without_stale(group);
        if group.is_empty() {
            return;
        }
        if pool.room().is_full() {
            return writer.fail(WriteFailure::Full);
        }
        let before = writer.log.end();
        let result = writer.append(&group);
        let end = writer.log.end();
        writer.last_write = Instant::now();
        if end > before && !writer.log.is_poisoned() {
            writer.completions.written(end);
        }
        if let Err(failed) = result {
            writer.append_failed(&failed, pool);
        }
        if self.sync == SyncMode::OnCommit && end > before {
            let result = writer.log.sync_records();
            writer.report_flush(&result);
        }
        self.plan_chores(writer, pool);
    }

    /// Leaves to the chore threads what need not be done here.
    fn plan_chores(self: &Arc<Self>, writer: &mut Writer, pool: &Arc<Pool>) {
        let now = writer.last_write;
        if let Some(job) = writer.log.begin_prepare() {
            pool.plan_urgent(Chore::Prepare(Arc::clone(self), job));
        }
        while let Some(job) = writer.log.begin_seal() {
            pool.plan(now, Chore::Seal(Arc::clone(self), job));
        }
        if let SyncMode::Periodic { ms } = self.sync
            && !self.flush_planned.swap(true, Ordering::AcqRel)
        {
            pool.plan(
                now + Duration::from_millis(ms),
                Chore::Flush(Arc::clone(self)),
            );
        }
        if !self.rest_planned.swap(true, Ordering::AcqRel) {
            pool.plan(now + IDLE, Chore::Rest(Arc::clone(self)));
        }
    }

    /// Makes durable what is written now, without holding up further writes.
    pub(super) fn flush_in_background(&self) {
        // Before the capture: a write that comes after it plans the next flush.
        self.flush_planned.store(false, Ordering::Release);
        let Some(_open) = self.stay_open() else {
            return;
        };
        // Whoever has to know of a failure has heard of it.
        let _ = self.flush_open();
    }

    /// Makes durable what is written now. Nothing is held up meanwhile.
    fn flush_open(&self) -> Result<(), SyncFailed> {
        // Not kept: finishing holds the log as well.
        let job = self.writer().log.begin_sync()?;
        let Some(job) = job else { return Ok(()) };
        let result = job.run();
        let mut writer = self.writer();
        let result = writer.log.finish_sync(&job, result);
        writer.report_flush(&result);
        result.map(drop)
    }

    /// Takes a prepared segment.
    pub(super) fn prepared(&self, job: &crate::log::PrepareJob) {
        let Some(_open) = self.stay_open() else {
            return;
        };
        let result = job.run();
        self.writer().log.finish_prepare(result);
    }

    /// Seals a finished segment.
    pub(super) fn seal(&self, job: &crate::log::SealJob) {
        if let Some(_open) = self.stay_open() {
            self.seal_open(job);
        }
    }

    fn seal_open(&self, job: &crate::log::SealJob) {
        let result = job.run();
        let mut writer = self.writer();
        let before = writer.log.durable_end();
        match writer.log.finish_seal(job, result) {
            Ok(()) if writer.log.durable_end() > before => {
                let end = writer.log.durable_end();
                writer.report_flush(&Ok(end));
            }
            Ok(()) => {}
            Err(failed) => writer.report_flush(&Err(failed)),
        }
    }

    /// Closes the active segment, makes it durable and seals it. Nothing is held up meanwhile.
    pub(super) fn roll(&self) -> Result<(), RollFailed> {
        let Some(_open) = self.stay_open() else {
            return Ok(());
        };
        let (sync, seals) = {
            let mut writer = self.writer();
            writer.log.begin_close_segment()?;
            let sync = writer.log.begin_sync()?;
            let seals: Vec<_> = std::iter::from_fn(|| writer.log.begin_seal()).collect();
            (sync, seals)
        };
        if let Some(job) = sync {
            let result = job.run();
            let mut writer = self.writer();
            let result = writer.log.finish_sync(&job, result);
            writer.report_flush(&result);
            result?;
        }
        for job in seals {
            self.seal_open(&job);
        }
        Ok(())
    }

    /// Compacts what is closed. A log that is to be closed does not wait for the end of it.
    pub(super) fn compact(
        &self,
        options: CompactOptions,
        keep: &mut dyn Keep,
        pause: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Compacted, CompactFailed> {
        let Some(_open) = self.stay_open() else {
            return Ok(Compacted::default());
        };
        let job = self.writer().log.begin_compact(options)?;
        let result = job.run(keep, &mut || self.flush_open(), &mut |bytes| {
            if self.inbox().closed {
                return ControlFlow::Break(());
            }
            pause(bytes)
        });
        if result.is_err() {
            let mut writer = self.writer();
            if writer.log.is_poisoned() {
                writer.poisoned();
            }
        }
        result
    }

    /// Lets an idle log's files and memory go; when to look again if it is not idle.
    pub(super) fn rest(&self, now: Instant, at_once: bool) -> Option<Instant> {
        let _open = self.stay_open()?;
        let mut writer = self.writer();
        let due = writer.last_write + IDLE;
        if due > now && !at_once {
            return Some(due);
        }
        self.rest_planned.store(false, Ordering::Release);
        writer.rest();
        None
    }

    /// Writes what is queued and makes it durable.
    pub(super) fn flush(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<Offset, SyncFailed> {
        let mut writer = self.writer();
        self.drain(&mut writer, pool);
        let result = writer.log.sync_records();
        writer.report_flush(&result);
        result
    }

    /// Writes what is queued, makes it durable and takes no more.
    pub(super) fn close(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<(), SyncFailed> {
        self.inbox().closed = true;
        // Waits for background work that is under way, and keeps out what has not begun. A second call waits for the
        // first, for its caller may open the directory again.
        let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        let mut writer = self.writer();
        self.drain(&mut writer, pool);
        writer.log.take_back_chores();
        writer.rest();
        // The directory may be opened again from here on: nothing of this log touches it any more.
        drop(self.claim().take());
        if writer.log.is_poisoned() {
            Err(SyncFailed::Poisoned)
        } else {
            Ok(())
        }
    }

    fn drain(self: &Arc<Self>, writer: &mut Writer, pool: &Arc<Pool>) {
        loop {
            let group = self.take();
            if group.is_empty() {
                return;
            }
            self.write(writer, group, pool);
        }
    }

    /// Keeps the log from being closed while its files are worked on; none when it is closed.
    pub(super) fn stay_open(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        (!*closed).then_some(closed)
    }

    /// The log is about to be closed in the background.
    pub(super) fn last_handle_gone(&self) {
        if let Some(claim) = &*self.claim() {
            claim.closing();
        }
    }

    fn claim(&self) -> MutexGuard<'_, Option<Claim>> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Whole between any two statements.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic in the middle of an append leaves bytes past the end that nobody was told of; the next append
        // overwrites them.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const IDLE: Duration = Duration::from_millis(limits::IDLE_CLOSE_MS);

impl Writer {
    /// Drops what was queued before the caller heard of a failure.
    fn without_stale(&mut self, mut group: Vec<Bytes>) -> Vec<Bytes> {
        if !self.rewinding {
            return group;
        }
        let end = self.log.end();
        let fresh = group.iter().position(|batch| base_of(batch) == Some(end));
        match fresh {
            Some(fresh) if !self.log.is_poisoned() => {
                self.rewinding = false;
                group.drain(..fresh);
                group
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Appends a group. A batch that cannot be appended does not take those before it with it.
    fn append(&mut self, group: &[Bytes]) -> Result<(), AppendFailed> {
        match self.log.append(group) {
            Err(AppendFailed::NotContiguous { .. } | AppendFailed::Malformed(_)) => group
                .iter()
                .try_for_each(|batch| self.log.append(std::slice::from_ref(batch))),
            other => other,
        }
    }

    fn append_failed(&mut self, failed: &AppendFailed, pool: &Pool) {
        match failed {
            // A write that could not be undone may be found by recovery, whatever made it fail.
            _ if self.log.is_poisoned() => self.poisoned(),
            AppendFailed::Poisoned => self.poisoned(),
            AppendFailed::Full => {
                pool.room().look();
                self.fail(WriteFailure::Full);
            }
            AppendFailed::Io(_) => self.fail(WriteFailure::Io),
            AppendFailed::NotContiguous { .. } | AppendFailed::Malformed(_) => {
                tracing::error!(error = %failed, dir = %self.log.dir().display(), "batch cannot be appended");
                self.fail(WriteFailure::Io);
            }
        }
    }

    fn fail(&mut self, why: WriteFailure) {
        self.rewinding = true;
        self.completions.failed(self.log.end(), why);
    }

    fn poisoned(&mut self) {
        self.rewinding = true;
        if !std::mem::replace(&mut self.poison_told, true) {
            self.completions
                .failed(self.log.durable_end(), WriteFailure::Poisoned);
        }
    }

    fn report_flush(&mut self, result: &Result<Offset, SyncFailed>) {
        match result {
            Ok(end) => self.completions.flushed(*end),
            Err(_) => self.poisoned(),
        }
    }

    fn rest(&mut self) {
        let before = self.log.durable_end();
        let result = self.log.rest();
        let end = self.log.durable_end();
        match result {
            Ok(()) if end > before => self.completions.flushed(end),
            Ok(()) => {}
            Err(_) => self.poisoned(),
        }
    }
}

fn base_of(batch: &Bytes) -> Option<Offset> {
    let header = BatchHeader::parse(batch).ok()?;
    u64::try_from(header.base_offset).ok().map(Offset)
}
