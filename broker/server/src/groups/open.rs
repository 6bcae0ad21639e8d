//! Opening the groups of a shard from their lane, and closing them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use felix_engine::CommitWhen;
use felix_engine::groups::{GroupOptions, InDoubt, Input, Moment, Replay, ScheduleId, schedule_of};
use felix_journal::{
    Completions, DiskError, LogHandle, LogOptions, LogReader, OpenRefused, ReadRefused, SyncMode,
    WriteFailure, data_dir, durable,
};
use felix_model::{Generation, Offset, Records, ShardIndex};

use super::cell::{GroupCell, LaneReports};
use super::timers::steady;
use crate::shards::cell::{Cell, now};
use crate::shards::open::OpenFailed;
use crate::shards::{Kind, Shards, Store, StreamHandle, StreamSpec};

/// Bytes of a log read at a time.
const PAGE_BYTES: usize = 1024 * 1024;

/// A segment of a lane. Small, so that what compaction may touch is never far behind.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// How long a lane that failed rests before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// How long an opening waits for appends under way, and how often it looks.
const APPENDS_WAIT: Duration = Duration::from_secs(5);
const APPENDS_NAP: Duration = Duration::from_millis(2);

impl Shards {
    /// The groups of a shard, opened if need be, and the shard with them.
    ///
    /// # Errors
    /// [`OpenFailed`]; the next call tries again.
    pub(crate) async fn open_groups(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: ShardIndex,
    ) -> Result<Arc<GroupCell>, OpenFailed> {
        let cell = self.open(handle, shard).await?;
        if let Some(groups) = cell.groups() {
            return Ok(groups);
        }
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        // A task of its own, for the same reason as the shard's opening.
        let opening = self.runtime.spawn(async move {
            let _opening = handle.opening(shard).await;
            match handle.open_cell(shard) {
                Some(current) if Arc::ptr_eq(&current, &cell) => {}
                Some(_) | None => return Err(OpenFailed::Interrupted),
            }
            if let Some(groups) = cell.groups() {
                return Ok(groups);
            }
            let of = Arc::clone(&handle);
            let opening = tokio::task::spawn_blocking(move || {
                shards.open_lane(&of, &of.spec(), shard, &cell)
            });
            opening.await.map_err(|_| OpenFailed::Interrupted)?
        });
        opening.await.map_err(|_| OpenFailed::Interrupted)?
    }

    /// Opens the groups of a shard that has some. Called under the lock that opens and closes the shard, before
    /// anything can be appended, so that what the stream's log lost with the power is seen to be lost. When they cannot
    /// be opened, the recovered end of the log, `end`, is written down for the later opening.
    ///
    /// # Errors
    /// They cannot be opened, and that cannot be written down: nothing may be appended.
    pub(crate) fn open_lane_if_there(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        spec: &StreamSpec,
        (shard, end): (ShardIndex, Offset),
        cell: &Arc<Cell>,
    ) -> Result<(), DiskError> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let lane = lane_dir(store, spec, shard);
        let is_there = match store.disk.list(&lane) {
            Ok(files) => !files.is_empty(),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        if !is_there {
            return Ok(());
        }
        if let Err(error) = self.open_lane(handle, spec, shard, cell) {
            tracing::error!(stream = %spec.id, shard = shard.0, %error, "the groups of a shard are not served");
            cell.set_owes_groups(error.may_pass());
            let path = cut_path(&lane);
            let earlier = read_cut(store, &path)?;
            let cut = earlier.map_or(end, |earlier| earlier.min(end));
            durable::replace(store.disk.as_ref(), &path, &cut.0.to_be_bytes())?;
        }
        Ok(())
    }

    /// Tries again to open the groups that could not be opened.
    pub(crate) fn open_owed_groups(self: &Arc<Self>) {
        for handle in self.handles() {
            for shard in 0..handle.spec().shards {
                let shard = ShardIndex(shard);
                let owes = |cell: &Arc<Cell>| cell.owes_groups() && cell.groups().is_none();
                if !handle.open_cell(shard).as_ref().is_some_and(owes) {
                    continue;
                }
                let (shards, handle) = (Arc::clone(self), Arc::clone(&handle));
                self.runtime.spawn(async move {
                    if let Err(error) = shards.open_groups(&handle, shard).await {
                        tracing::warn!(stream = %handle.spec().id, shard = shard.0, %error, "the groups of a shard are still not served");
                        if let Some(cell) = handle.open_cell(shard) {
                            cell.set_owes_groups(error.may_pass());
                        }
                    }
                });
            }
        }
    }

    /// The shards of a stream that have groups or schedules, or had. Blocking.
    pub(crate) fn with_lane(&self, handle: &StreamHandle) -> Vec<u32> {
        let Some(store) = &self.store else {
            return Vec::new();
        };
        let spec = handle.spec();
        let has_lane = |shard: &u32| {
            let lane = lane_dir(store, &spec, ShardIndex(*shard));
            store.disk.list(&lane).is_ok_and(|files| !files.is_empty())
        };
        (0..spec.shards).filter(has_lane).collect()
    }

    fn open_lane(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        spec: &StreamSpec,
        shard: ShardIndex,
        cell: &Arc<Cell>,
    ) -> Result<Arc<GroupCell>, OpenFailed> {
        let store = self.store.as_ref().ok_or(OpenFailed::NoStore)?;
        let Kind::Durable { sync, .. } = spec.kind else {
            return Err(OpenFailed::NoStore);
        };
        let directory = lane_dir(store, spec, shard);
        let unreadable = |reason: String| OpenFailed::Unreadable {
            stream: spec.id.clone(),
            shard: shard.0,
            reason: format!("its group lane: {reason}"),
        };
        let reports = Arc::new(LateReports::default());
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            ..LogOptions::default()
        };
        let completions = Arc::clone(&reports) as Arc<dyn Completions>;
        let opened = store
            .journal
            .open_log(&directory, options, sync, completions);
        let (lane, recovered) = opened.map_err(|source| {
            if let OpenRefused::Damaged(damage) = &source {
                self.note_corrupt(&directory, &damage.to_string());
            }
            OpenFailed::Log {
                stream: spec.id.clone(),
                shard: shard.0,
                source,
            }
        })?;
        self.note_whole(&directory);
        let generation = if recovered.clean {
            recovered.last_generation
        } else {
            recovered
                .last_generation
                .next()
                .unwrap_or(recovered.last_generation)
        };
        let mut replay = Replay::new(options_for(sync, generation));
        read_through(&lane.reader(), recovered.start, recovered.end, |batch| {
            replay.batch(batch).map_err(|error| error.to_string())
        })
        .map_err(unreadable)?;
        let data = cell.log().ok_or(OpenFailed::Gone)?;
        let doubts = replay.in_doubt();
        if !doubts.is_empty() {
            wait_for_appends(cell).map_err(unreadable)?;
        }
        let marks = cell.marks();
        let appended = look_for(&data.reader(), &doubts, marks.committed).map_err(unreadable)?;
        let moment = Moment {
            now: steady(),
            wall: now(),
            start: marks.start,
            tail: marks.committed,
        };
        let cut_path = cut_path(&directory);
        let cut = read_cut(store, &cut_path).map_err(|error| unreadable(error.to_string()))?;
        if let Some(end) = cut {
            replay.cut(end);
        }
        let core = replay.finish(moment, recovered.end, &appended);
        let (shards, failing) = (Arc::downgrade(self), Arc::downgrade(handle));
        let groups = GroupCell::new(
            core,
            lane.clone(),
            cell,
            Arc::clone(&self.timers),
            self.runtime.clone(),
            move |why| {
                if let (Some(shards), Some(handle)) = (shards.upgrade(), failing.upgrade()) {
                    shards.lane_failed(&handle, shard, why);
                }
            },
        );
        reports.attach(LaneReports(Arc::downgrade(&groups)));
        cell.put_groups(Arc::clone(&groups));
        cell.set_owes_groups(false);
        // What recovery decided is carried out, and timers are set.
        groups.hear(Input::Timeout);
        if cut.is_some() {
            forget_cut(store, &lane, &cut_path);
        }
        Ok(groups)
    }

    /// A write or sync of a lane failed: its groups have refused everybody, and are opened anew from what is there.
    fn lane_failed(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: ShardIndex,
        why: WriteFailure,
    ) {
        match why {
            WriteFailure::Full => self.metrics.storage_full.increment(1),
            WriteFailure::Io | WriteFailure::Poisoned => self.metrics.write_failures.increment(1),
        }
        let Some(cell) = handle.open_cell(shard) else {
            return;
        };
        let Some(failed) = cell.groups() else { return };
        tracing::error!(
            stream = %handle.spec().id, shard = shard.0, ?why,
            "a group lane failed; the groups of the shard are opened anew"
        );
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        self.runtime.spawn(async move {
            {
                let _opening = handle.opening(shard).await;
                let current = cell.groups();
                if !current.is_some_and(|current| Arc::ptr_eq(&current, &failed)) {
                    return;
                }
                drop(failed);
                close_groups(&cell).await;
            }
            tokio::time::sleep(REOPEN_AFTER).await;
            cell.set_owes_groups(true);
            // If it fails again, the next request tries, and so does the upkeep.
            if !handle.is_gone() {
                drop(shards.open_groups(&handle, shard).await);
            }
        });
    }
}

/// Closes the groups of a shard and their lane. `false` when the lane could not be flushed. Only under the lock that
/// opens and closes the shard.
pub(crate) async fn close_groups(cell: &Arc<Cell>) -> bool {
    let Some(groups) = cell.take_groups() else {
        return true;
    };
    let lane: LogHandle = groups.close();
    tokio::task::spawn_blocking(move || lane.close().is_ok())
        .await
        .unwrap_or(false)
}

fn lane_dir(store: &Store, spec: &StreamSpec, shard: ShardIndex) -> PathBuf {
    data_dir::lane_dir(&store.root, &spec.id, spec.incarnation, shard)
}

/// Where it is written down how far the stream's log reached when it was recovered and its groups could not be opened:
/// beside the lane.
fn cut_path(lane: &Path) -> PathBuf {
    lane.with_file_name("group-cut")
}

fn read_cut(store: &Store, path: &Path) -> Result<Option<Offset>, DiskError> {
    let bytes = durable::read(store.disk.as_ref(), path)?;
    // It is replaced as a whole; what is no number was never written.
    let number = bytes.and_then(|bytes| bytes.as_slice().try_into().ok());
    Ok(number.map(u64::from_be_bytes).map(Offset))
}

/// Once the lane has the cut, what was written down for it goes. If that fails, records are handed out once more
/// after the next start.
fn forget_cut(store: &Store, lane: &LogHandle, path: &Path) {
    if let Err(error) = lane.flush() {
        tracing::warn!(%error, "a group lane cannot be flushed");
        return;
    }
    if let Err(error) = durable::unlink(store.disk.as_ref(), path) {
        tracing::warn!(path = %path.display(), %error, "a file that is of no use cannot be removed");
    }
}

fn options_for(sync: SyncMode, generation: Generation) -> GroupOptions {
    let commit = match sync {
        SyncMode::OnCommit => CommitWhen::Flushed,
        SyncMode::Periodic { .. } | SyncMode::None => CommitWhen::Written,
    };
    let mut options = GroupOptions::new(commit);
    options.generation = generation;
    if sync == SyncMode::None {
        options.fire = CommitWhen::Written;
    }
    options
}

/// Waits until everything that the shard has taken in is committed: an append that the groups before these asked for may
/// still be under way. Blocking, for a few milliseconds unless the disk is in trouble.
fn wait_for_appends(cell: &Cell) -> Result<(), String> {
    let deadline = Instant::now() + APPENDS_WAIT;
    // What is held has no offset yet, and is let go of within seconds.
    while cell.next_timeout().is_some() && Instant::now() < deadline {
        std::thread::sleep(APPENDS_NAP);
    }
    let end = cell.marks().end;
    loop {
        let marks = cell.marks();
        if marks.committed >= end || marks.end < end {
            return Ok(());
        }
        if cell.is_poisoned() || Instant::now() >= deadline {
            let committed = marks.committed;
            return Err(format!(
                "the stream's log is taken in up to {end} and committed up to {committed}"
            ));
        }
        std::thread::sleep(APPENDS_NAP);
    }
}

/// Which of the scheduled records that are in doubt the stream's log has.
fn look_for(log: &LogReader, doubts: &[InDoubt], end: Offset) -> Result<Vec<ScheduleId>, String> {
    let mut found = Vec::new();
    let Some(from) = doubts.iter().map(|doubt| doubt.from).min() else {
        return Ok(found);
    };
    let from = from.max(log.start());
    read_through(log, from, end, |batch| {
        let records = Records::new(batch).map_err(|error| error.to_string())?;
        if !records.header().is_internal() {
            return Ok(());
        }
        for record in records.map_while(Result::ok) {
            let Some(id) = schedule_of(&record) else {
                continue;
            };
            found.extend(
                doubts
                    .iter()
                    .filter(|doubt| doubt.id.as_bytes() == id && record.offset >= doubt.from)
                    .map(|doubt| doubt.id.clone()),
            );
        }
        Ok(())
    })?;
    Ok(found)
}

/// Hands over every batch of a log from `from` to `end`. Compaction may have left holes.
fn read_through(
    log: &LogReader,
    mut from: Offset,
    end: Offset,
    mut each: impl FnMut(&bytes::Bytes) -> Result<(), String>,
) -> Result<(), String> {
    while from < end {
        let page = match log.read(from, PAGE_BYTES, end) {
            Ok(page) => page,
            Err(ReadRefused::BelowStart { oldest }) if oldest > from => {
                from = oldest;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        for batch in &page.batches {
            each(batch)?;
        }
        if page.next <= from {
            return Ok(());
        }
        from = page.next;
    }
    Ok(())
}

/// Reports that may come before there is a cell to report to.
#[derive(Default)]
struct LateReports(OnceLock<LaneReports>);

impl LateReports {
    fn attach(&self, reports: LaneReports) {
        // Attached once, by the opening that made it.
        let _ = self.0.set(reports);
    }
}

impl Completions for LateReports {
    fn written(&self, end: Offset) {
        if let Some(reports) = self.0.get() {
            reports.written(end);
        }
    }

    fn flushed(&self, end: Offset) {
        if let Some(reports) = self.0.get() {
            reports.flushed(end);
        }
    }

    fn failed(&self, from: Offset, why: WriteFailure) {
        if let Some(reports) = self.0.get() {
            reports.failed(from, why);
        }
    }
}
