//! What the journal's threads do to one log, in steps that a scheduler can put in any order.
//!
//! The batches of several appends go out in one write; syncs, seals, prepared segments and the removal of forgotten
//! ones are begun while the log is held, run without it, and finished while it is held again. What there is to say
//! about the log is said in order, and heard later.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use felix_engine::WriteFailure;
use felix_journal::{
    AppendFailed, CompactOptions, DiskError, DiskFile, Keep, Log, PrepareJob, RetainJob,
    RetentionPolicy, SealJob, SyncFailed, SyncJob,
};
use felix_model::{BatchHeader, Offset, TimeMs};

use crate::plan::Mode;
use crate::random::Random;

/// How long a sync that is due may take until it is done, in milliseconds.
pub(crate) const SYNC_MS_MAX: u64 = 20;

/// Batches in one write, at most.
const GROUP_MAX: usize = 8;

/// What the journal says about the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Report {
    Written(Offset),
    Flushed(Offset),
    Failed(Offset, WriteFailure),
}

#[derive(Debug)]
pub(crate) struct Pool {
    log: Log,
    mode: Mode,
    interval_ms: u64,
    inbox: VecDeque<Bytes>,
    /// A failure was reported: batches are dropped until one begins at the log's end.
    rewinding: bool,
    poison_told: bool,
    reports: VecDeque<Report>,
    /// When the next periodic sync begins.
    flush_due: Option<TimeMs>,
    jobs: Vec<Job>,
}

/// One piece of background work, begun and not finished.
#[derive(Debug)]
struct Job {
    work: Work,
    /// By when it has run; a sync has a deadline, the others take the time they take.
    due: Option<TimeMs>,
}

#[derive(Debug)]
enum Work {
    Sync(SyncJob),
    Synced(SyncJob, Result<(), DiskError>),
    Seal(SealJob),
    Sealed(SealJob, Result<(), DiskError>),
    Prepare(PrepareJob),
    Prepared(Result<Arc<dyn DiskFile>, DiskError>),
    Retain(RetainJob),
}

/// What a write came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrote {
    pub(crate) batches: usize,
    pub(crate) end: Offset,
}

impl Pool {
    pub(crate) fn new(log: Log, mode: Mode, interval_ms: u64) -> Self {
        Self {
            log,
            mode,
            interval_ms,
            inbox: VecDeque::new(),
            rewinding: false,
            poison_told: false,
            reports: VecDeque::new(),
            flush_due: None,
            jobs: Vec::new(),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.log.is_poisoned()
    }

    pub(crate) fn push(&mut self, batch: Bytes) {
        self.inbox.push_back(batch);
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    pub(crate) fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.reports.is_empty() || !self.jobs.is_empty()
    }

    /// Writes one group. `leave_out_last` is a twin's.
    pub(crate) fn write(
        &mut self,
        random: &mut Random,
        now: TimeMs,
        leave_out_last: bool,
    ) -> Wrote {
        let waiting = self.inbox.len().min(GROUP_MAX);
        if waiting == 0 {
            return Wrote::default();
        }
        let count = 1 + random.index(waiting);
        let mut group: Vec<Bytes> = self.inbox.drain(..count).collect();
        self.drop_stale(&mut group);
        if group.is_empty() {
            return Wrote::default();
        }
        let left_out = if leave_out_last { group.pop() } else { None };
        let before = self.log.end();
        let result = self.log.append(&group);
        let mut end = self.log.end();
        let batches = group.len();
        if let Some(header) = left_out.and_then(|batch| BatchHeader::parse(&batch).ok()) {
            end = header.next_offset();
        }
        if end > before && !self.log.is_poisoned() {
            self.report(Report::Written(end));
        }
        if let Err(failed) = result {
            self.append_failed(&failed);
        }
        if self.mode == Mode::OnCommit && end > before {
            let result = self.log.sync_records();
            self.report_flush(&result.map(|synced| synced.max(end)));
        }
        self.plan_jobs(now);
        Wrote {
            batches,
            end: self.log.end(),
        }
    }

    /// Drops what was queued before the shard heard of a failure.
    fn drop_stale(&mut self, group: &mut Vec<Bytes>) {
        if !self.rewinding {
            return;
        }
        let end = self.log.end();
        match group.iter().position(|batch| base_of(batch) == Some(end)) {
            Some(fresh) if !self.log.is_poisoned() => {
                self.rewinding = false;
                group.drain(..fresh);
            }
            Some(_) | None => group.clear(),
        }
    }

    fn append_failed(&mut self, failed: &AppendFailed) {
        match failed {
            _ if self.log.is_poisoned() => self.poisoned(),
            AppendFailed::Poisoned => self.poisoned(),
            AppendFailed::Full => self.fail(WriteFailure::Full),
            AppendFailed::Io(_)
            | AppendFailed::NotContiguous { .. }
            | AppendFailed::Malformed(_) => {
                self.fail(WriteFailure::Io);
            }
        }
    }

    fn fail(&mut self, why: WriteFailure) {
        self.rewinding = true;
        self.report(Report::Failed(self.log.end(), why));
    }

    fn poisoned(&mut self) {
        self.rewinding = true;
        if !std::mem::replace(&mut self.poison_told, true) {
            self.report(Report::Failed(
                self.log.durable_end(),
                WriteFailure::Poisoned,
            ));
        }
    }

    fn report_flush(&mut self, result: &Result<Offset, SyncFailed>) {
        match result {
            Ok(end) => self.report(Report::Flushed(*end)),
            Err(_) => self.poisoned(),
        }
    }

    fn plan_jobs(&mut self, now: TimeMs) {
        if let Some(job) = self.log.begin_prepare() {
            self.jobs.push(Job {
                work: Work::Prepare(job),
                due: None,
            });
        }
        while let Some(job) = self.log.begin_seal() {
            self.jobs.push(Job {
                work: Work::Seal(job),
                due: None,
            });
        }
        if self.mode == Mode::Periodic && self.flush_due.is_none() {
            self.flush_due = Some(now.plus(self.interval_ms));
        }
    }

    /// When the next thing with a time is due.
    pub(crate) fn next_due(&self) -> Option<TimeMs> {
        self.jobs
            .iter()
            .filter_map(|job| job.due)
            .chain(self.flush_due)
            .min()
    }

    /// Does what is due.
    pub(crate) fn run_due(&mut self, random: &mut Random, now: TimeMs) {
        if self.flush_due.is_some_and(|due| due <= now) {
            // Before the capture: a write that comes after it plans the next sync.
            self.flush_due = None;
            if let Ok(Some(job)) = self.log.begin_sync() {
                let due = Some(now.plus(random.below(SYNC_MS_MAX + 1)));
                self.jobs.push(Job {
                    work: Work::Sync(job),
                    due,
                });
            }
        }
        while let Some(index) = self
            .jobs
            .iter()
            .position(|job| job.due.is_some_and(|due| due <= now))
        {
            self.advance(index);
        }
    }

    /// Takes one piece of background work a step further; whether there was one.
    pub(crate) fn run_any(&mut self, random: &mut Random) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        let index = random.index(self.jobs.len());
        self.advance(index);
        true
    }

    fn advance(&mut self, index: usize) {
        let next = match self.jobs.swap_remove(index).work {
            Work::Sync(job) => {
                let result = job.run();
                Some(Work::Synced(job, result))
            }
            Work::Synced(job, result) => {
                let result = self.log.finish_sync(&job, result);
                self.report_flush(&result);
                None
            }
            Work::Seal(job) => {
                let result = job.run();
                Some(Work::Sealed(job, result))
            }
            Work::Sealed(job, result) => {
                self.finish_seal(&job, result);
                None
            }
            Work::Prepare(job) => Some(Work::Prepared(job.run())),
            Work::Prepared(result) => {
                self.log.finish_prepare(result);
                None
            }
            Work::Retain(job) => {
                // What was not removed is removed by a later pass or at the next open.
                let _ = job.run();
                None
            }
        };
        self.jobs.extend(next.map(|work| Job { work, due: None }));
    }

    fn finish_seal(&mut self, job: &SealJob, result: Result<(), DiskError>) {
        let before = self.log.durable_end();
        match self.log.finish_seal(job, result) {
            Ok(()) if self.log.durable_end() > before => {
                self.report_flush(&Ok(self.log.durable_end()))
            }
            Ok(()) => {}
            Err(failed) => self.report_flush(&Err(failed)),
        }
    }

    /// Forgets what may be forgotten; answers the new start. The files go later.
    pub(crate) fn retain(
        &mut self,
        policy: RetentionPolicy,
        now: TimeMs,
        never_past: Offset,
    ) -> Offset {
        if let Some(job) = self.log.begin_retain(policy, now, never_past) {
            self.jobs.push(Job {
                work: Work::Retain(job),
                due: None,
            });
        }
        self.log.start()
    }

    /// Writes closed segments again without what nobody needs, below this offset; if `rolls`, after closing the one that
    /// is written to. How many records are gone.
    pub(crate) fn compact(&mut self, below: Offset, rolls: bool, keep: &mut dyn Keep) -> u64 {
        // The journal syncs a log in one place at a time.
        if rolls && self.jobs.is_empty() {
            let before = self.log.durable_end();
            let closed = self.log.close_segment();
            let end = self.log.durable_end();
            if closed.is_ok() && end > before {
                self.report(Report::Flushed(end));
            }
        }
        let options = CompactOptions {
            below,
            bytes_per_second: None,
        };
        let done = self.log.compact(options, keep);
        if self.log.is_poisoned() {
            self.poisoned();
        }
        done.map_or(0, |done| done.records_dropped)
    }

    /// Lets go of what an idle log need not hold; whether the log is well.
    pub(crate) fn rest(&mut self) -> bool {
        let before = self.log.durable_end();
        let result = self.log.rest();
        let end = self.log.durable_end();
        match result {
            Ok(()) if end > before => self.report(Report::Flushed(end)),
            Ok(()) => {}
            Err(_) => self.poisoned(),
        }
        !self.poison_told
    }

    /// Writes what is queued, makes it durable and lets the files go; whether all of that went well. Background work
    /// that has run is finished first, and what has not begun to is left: the log may be opened again.
    pub(crate) fn close(mut self, random: &mut Random, now: TimeMs) -> bool {
        self.jobs.retain(|job| {
            matches!(
                job.work,
                Work::Synced(..) | Work::Sealed(..) | Work::Prepared(_)
            )
        });
        while !self.jobs.is_empty() {
            self.advance(0);
        }
        while !self.inbox.is_empty() {
            self.write(random, now, false);
        }
        self.rest()
    }
}

fn base_of(batch: &Bytes) -> Option<Offset> {
    let header = BatchHeader::parse(batch).ok()?;
    u64::try_from(header.base_offset).ok().map(Offset)
}
