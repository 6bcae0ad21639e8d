//! The shards this broker serves: opened when first needed, closed when their stream goes away.

pub(crate) mod cell;
mod compact;
pub(crate) mod mailbox;
mod marker;
pub(crate) mod open;
pub(crate) mod state;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use felix_engine::{CloseReason, Overflow};
use felix_journal::data_dir::lane_beside;
use felix_journal::{Disk, Journal, RetentionPolicy, SyncMode};
use felix_meta::Cleanup;
use felix_model::{Incarnation, Routing, ShardIndex, StreamId};
use serde::Serialize;
use tokio::runtime::Handle;

pub(crate) use marker::Marker;

use self::cell::Cell;
use self::marker::Marked;
use crate::groups::timers::Timers;
use crate::metrics::Metrics;

/// What the catalogue says about a stream, as far as serving it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSpec {
    pub(crate) id: StreamId,
    pub(crate) incarnation: Incarnation,
    pub(crate) shards: u32,
    pub(crate) routing: Routing,
    pub(crate) max_record_bytes: u32,
    /// Whose time records of the Kafka protocol have.
    pub(crate) timestamps: felix_meta::Timestamps,
    pub(crate) kind: Kind,
}

/// Where a stream's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Durable {
        sync: SyncMode,
        retention: RetentionPolicy,
        /// Retention, or compaction in its stead.
        cleanup: Cleanup,
    },
    Memory {
        overflow: Overflow,
    },
}

/// One stream in service. Requests keep it; it says when it is outdated.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    spec: RwLock<Arc<StreamSpec>>,
    /// The stream was deleted, or created anew under its name.
    gone: AtomicBool,
    slots: Box<[Slot]>,
    pub(crate) tenant: Arc<Tenant>,
}

/// What the streams of one tenant share.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) id: felix_model::TenantId,
}

#[derive(Debug, Default)]
struct Slot {
    cell: RwLock<Option<Arc<Cell>>>,
    opening: tokio::sync::Mutex<()>,
    /// Held while the state of entities is written down.
    saving: Mutex<()>,
    marked: Marked,
}

impl StreamHandle {
    pub(crate) fn spec(&self) -> Arc<StreamSpec> {
        Arc::clone(&self.spec.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a request must look the name up again.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The shard, if it is open.
    pub(crate) fn open_cell(&self, shard: ShardIndex) -> Option<Arc<Cell>> {
        let slot = self.slots.get(shard.0 as usize)?;
        slot.cell
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The lock under which a shard of the stream is opened and closed. There is none for a shard it does not have.
    pub(crate) async fn opening(
        &self,
        shard: ShardIndex,
    ) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let slot = self.slots.get(shard.0 as usize)?;
        Some(slot.opening.lock().await)
    }

    fn open_cells(&self) -> Vec<(u32, Arc<Cell>)> {
        (0..)
            .zip(self.slots.iter())
            .filter_map(|(index, slot): (u32, &Slot)| {
                let cell = slot
                    .cell
                    .read()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()?;
                Some((index, cell))
            })
            .collect()
    }
}

impl Slot {
    fn take(&self) -> Option<Arc<Cell>> {
        self.cell
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Takes the shard out if it is this one. `false` when it was taken out before.
    fn take_if(&self, cell: &Arc<Cell>) -> bool {
        let mut held = self.cell.write().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, cell)) {
            *held = None;
            return true;
        }
        false
    }
}

/// The disk side of a broker that has one.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) journal: Journal,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
}

/// Every stream that was asked for, and the shards that are open.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(crate) store: Option<Store>,
    streams: Mutex<HashMap<StreamId, Arc<StreamHandle>>>,
    tenants: Mutex<HashMap<felix_model::TenantId, Weak<Tenant>>>,
    corrupt: Mutex<BTreeMap<PathBuf, String>>,
    pub(crate) runtime: Handle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) timers: Arc<Timers>,
    started: std::time::Instant,
    /// Long work in the background is to end.
    stopping: AtomicBool,
    /// Shards whose compaction failed, and when.
    not_compacted: Mutex<HashMap<(StreamId, u32), std::time::Instant>>,
}

/// One line of the shard listing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Listed {
    stream: String,
    incarnation: u64,
    shard: u32,
    /// `open`, `idle`, `corrupt` or `orphan`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Listed {
    /// A log that is on disk and not open; named by object, incarnation and shard.
    pub(crate) fn on_disk(
        (stream, incarnation, shard): (String, u64, u32),
        directory: PathBuf,
        is_served: bool,
        corrupt: Option<String>,
    ) -> Self {
        let state = match (&corrupt, is_served) {
            (Some(_), _) => "corrupt",
            (None, true) => "idle",
            (None, false) => "orphan",
        };
        Self {
            stream,
            incarnation,
            shard,
            state,
            directory: Some(directory),
            start: None,
            committed: None,
            end: None,
            detail: corrupt,
        }
    }

    /// A shard that is open.
    pub(crate) fn open(
        (stream, incarnation, shard): (String, u64, u32),
        directory: Option<PathBuf>,
        marks: cell::Marks,
    ) -> Self {
        Self {
            stream,
            incarnation,
            shard,
            state: "open",
            directory,
            start: Some(marks.start.0),
            committed: Some(marks.committed.0),
            end: Some(marks.end.0),
            detail: None,
        }
    }

    pub(crate) fn into_directory(self) -> Option<PathBuf> {
        self.directory
    }
}

impl Shards {
    pub(crate) fn new(store: Option<Store>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            store,
            streams: Mutex::default(),
            tenants: Mutex::default(),
            corrupt: Mutex::default(),
            runtime: Handle::current(),
            metrics,
            timers: Arc::default(),
            started: std::time::Instant::now(),
            stopping: AtomicBool::new(false),
            not_compacted: Mutex::default(),
        })
    }

    /// The handle of a stream as the catalogue describes it now. A changed description is taken over, and a shard is
    /// reopened for what it must be opened with; another incarnation ends the earlier one and removes its log.
    pub(crate) fn stream(self: &Arc<Self>, spec: StreamSpec) -> Arc<StreamHandle> {
        let mut streams = lock(&self.streams);
        if let Some(handle) = streams.get(&spec.id) {
            let known = handle.spec();
            if *known == spec {
                return Arc::clone(handle);
            }
            // The catalogue moves forward only, but a request may have looked before it moved.
            if known.incarnation > spec.incarnation {
                return Arc::clone(handle);
            }
            if known.incarnation == spec.incarnation && known.shards == spec.shards {
                let reopen = opened_with(&known) != opened_with(&spec);
                *handle.spec.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(spec);
                if reopen {
                    for (shard, cell) in handle.open_cells() {
                        self.reopen(handle, shard, cell);
                    }
                }
                return Arc::clone(handle);
            }
            self.end(handle);
        }
        let handle = Arc::new(StreamHandle {
            gone: AtomicBool::new(false),
            slots: (0..spec.shards).map(|_| Slot::default()).collect(),
            tenant: self.tenant(&spec.id.tenant),
            spec: RwLock::new(Arc::new(spec)),
        });
        streams.insert(handle.spec().id.clone(), Arc::clone(&handle));
        handle
    }

    /// The catalogue says that the stream is gone: its readers end, its log goes.
    pub(crate) fn deleted(self: &Arc<Self>, id: &StreamId, incarnation: Incarnation) {
        let mut streams = lock(&self.streams);
        if streams
            .get(id)
            .is_some_and(|handle| handle.spec().incarnation == incarnation)
            && let Some(handle) = streams.remove(id)
        {
            self.end(&handle);
        }
    }

    /// Ends a deleted stream and removes its logs once nobody writes them any more. Only ever called for an explicit
    /// deletion.
    fn end(self: &Arc<Self>, handle: &Arc<StreamHandle>) {
        handle.gone.store(true, Ordering::Release);
        for (_, cell) in handle.open_cells() {
            // Readers hear of it now; what is in flight settles behind.
            drop(cell.close(CloseReason::Deleted));
        }
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        self.runtime.spawn(async move {
            for slot in &handle.slots {
                let _opening = slot.opening.lock().await;
                if let Some(cell) = slot.take() {
                    shards.close(&cell, CloseReason::Deleted).await;
                }
            }
            let spec = handle.spec();
            let removing = tokio::task::spawn_blocking(move || {
                shards.remove_directory(&spec.id, spec.incarnation)
            });
            // A removal that panicked was reported; what stays behind is listed as an orphan.
            let _ = removing.await;
        });
    }

    fn remove_directory(&self, id: &StreamId, incarnation: Incarnation) {
        let Some(store) = &self.store else { return };
        let Some(directory) = stream_directory(&store.root, id, incarnation) else {
            return;
        };
        match felix_journal::durable::remove_tree(store.disk.as_ref(), &directory) {
            Ok(()) => tracing::info!(stream = %id, "the log of a deleted stream was removed"),
            Err(error) if error.is_missing() => {}
            Err(error) => {
                tracing::warn!(stream = %id, %error, "the log of a deleted stream stays behind");
            }
        }
    }

    /// Closes a shard and opens it anew, so that its schedules and timers go on also when nobody uses it. No second
    /// opening of the log can begin before the first is closed: both happen under the slot's lock.
    fn reopen(self: &Arc<Self>, handle: &Arc<StreamHandle>, shard: u32, cell: Arc<Cell>) {
        drop(cell.close(CloseReason::Reopening));
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        self.runtime.spawn(async move {
            let Some(slot) = handle.slots.get(shard as usize) else {
                return;
            };
            {
                let _opening = slot.opening.lock().await;
                if !slot.take_if(&cell) {
                    return;
                }
                shards.close(&cell, CloseReason::Reopening).await;
            }
            let shards = Arc::downgrade(&shards);
            drop(cell);
            open::open_again(shards, handle, ShardIndex(shard)).await;
        });
    }

    /// Closes a shard that was taken out of its slot, and its log. `false` when the log could not be flushed.
    async fn close(&self, cell: &Arc<Cell>, reason: CloseReason) -> bool {
        self.metrics.shards_open.decrement(1.0);
        let groups_flushed = crate::groups::close_groups(cell).await;
        // A shard that is dropped instead of closed has nothing in flight any more.
        let _ = cell.close(reason).await;
        let Some(log) = cell.log() else { return true };
        let flushed = tokio::task::spawn_blocking(move || log.close().is_ok())
            .await
            .unwrap_or(false);
        flushed && groups_flushed
    }

    /// Stops every shard and makes what was acknowledged durable. Answers how many logs could not be flushed.
    pub(crate) async fn close_all(self: &Arc<Self>) -> usize {
        // They stay in the map: whoever looks a name up meanwhile must come to the same locks. A handle that is not in
        // it by now opens nothing.
        let handles: Vec<_> = {
            let streams = lock(&self.streams);
            self.stopping.store(true, Ordering::Release);
            streams.values().cloned().collect()
        };
        let mut unflushed = 0;
        for handle in handles {
            for (shard, slot) in (0..).zip(&handle.slots) {
                let _opening = slot.opening.lock().await;
                let Some(cell) = slot.take() else { continue };
                if self.close(&cell, CloseReason::Stopping).await {
                    self.save_closed(&handle, shard, cell).await;
                } else {
                    unflushed += 1;
                }
            }
        }
        unflushed
    }

    fn tenant(&self, id: &felix_model::TenantId) -> Arc<Tenant> {
        let mut tenants = lock(&self.tenants);
        if let Some(tenant) = tenants.get(id).and_then(Weak::upgrade) {
            return tenant;
        }
        let tenant = Arc::new(Tenant { id: id.clone() });
        tenants.retain(|_, known| known.strong_count() > 0);
        tenants.insert(id.clone(), Arc::downgrade(&tenant));
        tenant
    }

    /// Time since this broker started, for rate limits.
    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.started.elapsed()
    }

    /// Streams in service.
    pub(crate) fn handles(&self) -> Vec<Arc<StreamHandle>> {
        lock(&self.streams).values().cloned().collect()
    }

    /// The open shards with their streams.
    pub(crate) fn open_shards(&self) -> Vec<(Arc<StreamSpec>, u32, Arc<Cell>)> {
        self.handles()
            .into_iter()
            .flat_map(|handle| {
                let spec = handle.spec();
                let cells = handle.open_cells();
                cells
                    .into_iter()
                    .map(move |(shard, cell)| (Arc::clone(&spec), shard, cell))
            })
            .collect()
    }

    /// Applies retention to every open durable shard that has bounds and is not compacted instead. Blocking.
    pub(crate) fn retain(&self) {
        for (spec, shard, cell) in self.open_shards() {
            let Kind::Durable {
                retention,
                cleanup: Cleanup::Delete,
                ..
            } = spec.kind
            else {
                continue;
            };
            let Some(log) = cell.log() else { continue };
            if retention == RetentionPolicy::default() {
                continue;
            }
            // The state of entities is what their commits left: forgetting the oldest would change it.
            if cell.has_commits() {
                if cell.tells_of_commits() {
                    tracing::warn!(stream = %spec.id, shard, "{}", RETENTION_SUSPENDED);
                }
                continue;
            }
            let marks = cell.marks();
            match log.retain(retention, cell::now(), marks.committed) {
                Ok(start) if start > marks.start => cell.trimmed(start),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(stream = %spec.id, shard, %error, "retention could not be applied");
                }
            }
        }
    }

    /// Lets appends that wait for slow readers time out.
    pub(crate) fn time_out(&self) {
        let now = cell::now();
        for (_, _, cell) in self.open_shards() {
            if cell.next_timeout().is_some_and(|due| due <= now) {
                cell.timeout();
            }
        }
    }

    /// A log is damaged and not served.
    pub(crate) fn note_corrupt(&self, directory: &Path, damage: &str) {
        tracing::error!(directory = %directory.display(), damage, "a log is corrupt and is not served");
        lock(&self.corrupt).insert(directory.to_owned(), damage.to_owned());
    }

    /// A log could be opened.
    pub(crate) fn note_whole(&self, directory: &Path) {
        lock(&self.corrupt).remove(directory);
    }

    pub(crate) fn corrupt_count(&self) -> usize {
        lock(&self.corrupt).len()
    }

    /// Everything on disk and everything open, by name.
    pub(crate) fn listing(&self) -> Vec<Listed> {
        let mut listed: BTreeMap<(String, u64, u32), Listed> = BTreeMap::new();
        if let Some(store) = &self.store {
            let corrupt = lock(&self.corrupt).clone();
            let served: HashMap<(StreamId, u64), ()> = self
                .handles()
                .iter()
                .map(|handle| ((handle.spec().id.clone(), handle.spec().incarnation.0), ()))
                .collect();
            let places = felix_journal::data_dir::logs(store.disk.as_ref(), &store.root);
            for found in places.unwrap_or_default() {
                let detail = corrupt.get(&found.dir).cloned();
                let is_served = served.contains_key(&(found.stream.clone(), found.incarnation.0));
                let key = (found.stream.to_string(), found.incarnation.0, found.shard.0);
                listed.insert(
                    key.clone(),
                    Listed::on_disk(key, found.dir, is_served, detail),
                );
            }
        }
        for (spec, shard, cell) in self.open_shards() {
            let key = (spec.id.to_string(), spec.incarnation.0, shard);
            let directory = listed.remove(&key).and_then(Listed::into_directory);
            let lane = directory.as_deref().map(lane_beside);
            let damage = lane.and_then(|lane| lock(&self.corrupt).get(&lane).cloned());
            let mut open = Listed::open(key.clone(), directory, cell.marks());
            // The shard is served, its groups are not.
            open.detail = damage.map(|damage| format!("group lane: {damage}"));
            if open.detail.is_none() && has_bounds(&spec) && cell.has_commits() {
                open.detail = Some(RETENTION_SUSPENDED.to_owned());
            }
            listed.insert(key, open);
        }
        listed.into_values().collect()
    }
}

/// Said of a shard whose log grows beyond what its stream should keep.
const RETENTION_SUSPENDED: &str =
    "retention is suspended: the log has commits, and the state of their entities needs them all";

/// Whether retention would forget records of a stream.
fn has_bounds(spec: &StreamSpec) -> bool {
    match spec.kind {
        Kind::Durable {
            retention,
            cleanup: Cleanup::Delete,
            ..
        } => retention != RetentionPolicy::default(),
        Kind::Durable { .. } | Kind::Memory { .. } => false,
    }
}

/// What a shard is opened with, so that a change of it needs another opening. What an in-memory stream holds would not
/// survive one, so its new overflow policy waits for the next start.
fn opened_with(spec: &StreamSpec) -> Option<SyncMode> {
    match spec.kind {
        Kind::Durable { sync, .. } => Some(sync),
        Kind::Memory { .. } => None,
    }
}

/// The directory that holds all logs of one incarnation of a stream.
fn stream_directory(root: &Path, id: &StreamId, incarnation: Incarnation) -> Option<PathBuf> {
    let log = felix_journal::data_dir::log_dir(root, id, incarnation, ShardIndex(0));
    Some(log.parent()?.parent()?.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
