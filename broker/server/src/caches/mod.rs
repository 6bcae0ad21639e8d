//! The caches this broker serves: their shards are opened when first needed, and closed when their cache goes away.
//!
//! [`call::ask`] is the one way in for requests, whichever protocol they came by. [`watch`] follows changes.

pub(crate) mod call;
pub(crate) mod cell;
mod compact;
mod events;
mod open;
pub(crate) mod requests;
mod snapshot;
mod upkeep;
pub(crate) mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use felix_auth::{Action, Principal, Resource};
use felix_engine::cache::{CacheOp, CacheRefused};
use felix_engine::{AppendRefused, CloseReason};
use felix_journal::SyncMode;
use felix_meta::CacheRecord;
use felix_model::{CacheId, Incarnation, ShardIndex};
use felix_wire::error::{Code, Failure};
use tokio::runtime::Handle;

use self::cell::Cell;
use crate::conn::publish::append_failure;
use crate::conn::stream::StreamState;
use crate::metrics::Metrics;
use crate::names::sync_mode;
use crate::shards::{Listed, Shards, Store};

pub(crate) use open::index_file;

/// What the catalogue says about a cache, as far as serving it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheSpec {
    pub(crate) id: CacheId,
    pub(crate) incarnation: Incarnation,
    pub(crate) shards: u32,
    pub(crate) max_record_bytes: u32,
    pub(crate) kind: Kind,
}

/// Where a cache's entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Durable {
        sync: SyncMode,
    },
    Memory {
        /// Of each shard.
        bytes: u64,
    },
}

impl CacheSpec {
    /// What serving a cache needs to know of it.
    pub(crate) fn of(record: &CacheRecord) -> Self {
        let kind = if record.durable {
            Kind::Durable {
                sync: sync_mode(record.sync),
            }
        } else {
            Kind::Memory {
                bytes: record.memory_bytes,
            }
        };
        Self {
            id: CacheId {
                tenant: record.tenant_id.clone(),
                namespace: record.namespace.clone(),
                cache: record.cache.clone(),
            },
            incarnation: record.incarnation,
            shards: record.shards.max(1),
            max_record_bytes: record.max_record_bytes,
            kind,
        }
    }
}

/// One cache in service. Requests keep it; it says when it is outdated.
#[derive(Debug)]
pub(crate) struct CacheHandle {
    spec: Arc<CacheSpec>,
    /// The cache was deleted, or created anew under its name.
    gone: AtomicBool,
    slots: Box<[Slot]>,
}

#[derive(Debug, Default)]
struct Slot {
    cell: RwLock<Option<Arc<Cell>>>,
    opening: tokio::sync::Mutex<()>,
    /// Bytes of the log when the index was last written down.
    snapshot_at: AtomicU64,
}

impl CacheHandle {
    pub(crate) fn spec(&self) -> &Arc<CacheSpec> {
        &self.spec
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

    fn open_cells(&self) -> Vec<(ShardIndex, Arc<Cell>)> {
        (0..self.spec.shards)
            .map(ShardIndex)
            .filter_map(|shard| Some((shard, self.open_cell(shard)?)))
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
        held.take_if(|held| Arc::ptr_eq(held, cell)).is_some()
    }
}

/// Every cache that was asked for, and the shards that are open.
#[derive(Debug)]
pub(crate) struct Caches {
    shards: Arc<Shards>,
    caches: Mutex<HashMap<CacheId, Arc<CacheHandle>>>,
    corrupt: Mutex<BTreeMap<PathBuf, String>>,
    runtime: Handle,
    metrics: Arc<Metrics>,
    /// No shard is opened any more. Set while the map is held: a handle that was not in it by then opens nothing.
    closing: AtomicBool,
}

impl Caches {
    /// None yet; logs are opened in the store of `shards`.
    pub(crate) fn new(shards: Arc<Shards>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            shards,
            caches: Mutex::default(),
            corrupt: Mutex::default(),
            runtime: Handle::current(),
            metrics,
            closing: AtomicBool::new(false),
        })
    }

    /// Whether every shard is being closed, for good.
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.shards.store.as_ref()
    }

    /// The handle of a cache as the catalogue describes it now. Another incarnation ends the earlier one and removes
    /// its logs.
    pub(crate) fn cache(self: &Arc<Self>, spec: CacheSpec) -> Arc<CacheHandle> {
        let mut caches = lock(&self.caches);
        if let Some(handle) = caches.get(&spec.id) {
            let known = handle.spec();
            // The catalogue moves forward only, but a request may have looked before it moved.
            if known.incarnation >= spec.incarnation {
                return Arc::clone(handle);
            }
            self.end(handle);
        }
        let handle = Arc::new(CacheHandle {
            gone: AtomicBool::new(false),
            slots: (0..spec.shards).map(|_| Slot::default()).collect(),
            spec: Arc::new(spec),
        });
        caches.insert(handle.spec.id.clone(), Arc::clone(&handle));
        handle
    }

    /// The catalogue says that the cache is gone: its watches end, its logs go.
    pub(crate) fn deleted(self: &Arc<Self>, id: &CacheId, incarnation: Incarnation) {
        let mut caches = lock(&self.caches);
        if caches
            .get(id)
            .is_some_and(|handle| handle.spec.incarnation == incarnation)
            && let Some(handle) = caches.remove(id)
        {
            self.end(&handle);
        }
    }

    /// Ends a deleted cache and removes its logs once nobody writes them any more. Only ever called for an explicit
    /// deletion.
    fn end(self: &Arc<Self>, handle: &Arc<CacheHandle>) {
        handle.gone.store(true, Ordering::Release);
        for (_, cell) in handle.open_cells() {
            // Watches hear of it now; what is in flight settles behind.
            drop(cell.close(CloseReason::Deleted));
        }
        let (caches, handle) = (Arc::clone(self), Arc::clone(handle));
        self.runtime.spawn(async move {
            for slot in &handle.slots {
                let _opening = slot.opening.lock().await;
                if let Some(cell) = slot.take() {
                    caches.close(&cell, CloseReason::Deleted, None).await;
                }
            }
            let spec = Arc::clone(handle.spec());
            let removing = tokio::task::spawn_blocking(move || caches.remove_directory(&spec));
            // A removal that panicked was reported; what stays behind is listed as an orphan.
            let _ = removing.await;
        });
    }

    fn remove_directory(&self, spec: &CacheSpec) {
        let Some(store) = self.store() else { return };
        let log = log_directory(store, spec, ShardIndex::ZERO);
        let Some(directory) = log.parent().and_then(Path::parent) else {
            return;
        };
        match felix_journal::durable::remove_tree(store.disk.as_ref(), directory) {
            Ok(()) => tracing::info!(cache = %spec.id, "the log of a deleted cache was removed"),
            Err(error) if error.is_missing() => {}
            Err(error) => {
                tracing::warn!(cache = %spec.id, %error, "the log of a deleted cache stays behind");
            }
        }
    }

    /// Closes a shard so that its next use opens it anew. No second opening of the log can begin before the first
    /// is closed: both happen under the slot's lock.
    fn reopen(self: &Arc<Self>, handle: &Arc<CacheHandle>, shard: ShardIndex, cell: Arc<Cell>) {
        drop(cell.close(CloseReason::Reopening));
        let (caches, handle) = (Arc::clone(self), Arc::clone(handle));
        self.runtime.spawn(async move {
            let Some(slot) = handle.slots.get(shard.0 as usize) else {
                return;
            };
            let _opening = slot.opening.lock().await;
            if slot.take_if(&cell) {
                caches.close(&cell, CloseReason::Reopening, None).await;
            }
        });
    }

    /// Closes a shard that was taken out of its slot, and its log, and writes its index down where `index` says.
    /// `false` when the log could not be flushed.
    async fn close(&self, cell: &Arc<Cell>, reason: CloseReason, index: Option<PathBuf>) -> bool {
        self.metrics.cache_shards_open.decrement(1.0);
        // A shard that is dropped instead of closed has nothing in flight any more.
        let _ = cell.close(reason).await;
        let Some(log) = cell.log() else { return true };
        let disk = self.store().map(|store| Arc::clone(&store.disk));
        let cell = Arc::clone(cell);
        let closing = tokio::task::spawn_blocking(move || {
            if let (Some(index), Some(disk)) = (index, disk)
                && let Err(error) = snapshot::write(&cell, &log, disk.as_ref(), &index)
            {
                tracing::warn!(%error, "the index of a cache was not written down; the next start reads its log");
            }
            log.close().is_ok()
        });
        closing.await.unwrap_or(false)
    }

    /// Stops every shard and makes what was acknowledged durable. Answers how many logs could not be flushed.
    pub(crate) async fn close_all(&self) -> usize {
        // They stay in the map: whoever looks a name up meanwhile must come to the same locks.
        let handles: Vec<_> = {
            let caches = lock(&self.caches);
            self.closing.store(true, Ordering::Release);
            caches.values().cloned().collect()
        };
        let mut unflushed = 0;
        for handle in handles {
            for (slot, shard) in handle.slots.iter().zip(0..) {
                let _opening = slot.opening.lock().await;
                let Some(cell) = slot.take() else { continue };
                let index = self.store().map(|store| {
                    index_file(&log_directory(store, &handle.spec, ShardIndex(shard)))
                });
                if !self.close(&cell, CloseReason::Stopping, index).await {
                    unflushed += 1;
                }
            }
        }
        unflushed
    }

    /// Caches in service.
    pub(crate) fn handles(&self) -> Vec<Arc<CacheHandle>> {
        lock(&self.caches).values().cloned().collect()
    }

    /// The open shards with their caches.
    pub(crate) fn open_shards(&self) -> Vec<(Arc<CacheHandle>, ShardIndex, Arc<Cell>)> {
        self.handles()
            .into_iter()
            .flat_map(|handle| {
                let cells = handle.open_cells();
                cells
                    .into_iter()
                    .map(move |(shard, cell)| (Arc::clone(&handle), shard, cell))
            })
            .collect()
    }

    pub(crate) fn corrupt_count(&self) -> usize {
        lock(&self.corrupt).len()
    }

    /// Everything on disk and everything open, by name.
    pub(crate) fn listing(&self) -> Vec<Listed> {
        let mut listed = BTreeMap::new();
        let place = |id: &CacheId, incarnation: Incarnation, shard: ShardIndex| {
            (format!("cache {id}"), incarnation.0, shard.0)
        };
        if let Some(store) = self.store() {
            let corrupt = lock(&self.corrupt).clone();
            let served: HashMap<_, _> = self
                .handles()
                .iter()
                .map(|handle| ((handle.spec.id.clone(), handle.spec.incarnation), ()))
                .collect();
            let found = felix_journal::data_dir::cache_logs(store.disk.as_ref(), &store.root);
            for found in found.unwrap_or_default() {
                let detail = corrupt.get(&found.dir).cloned();
                let is_served = served.contains_key(&(found.cache.clone(), found.incarnation));
                let key = place(&found.cache, found.incarnation, found.shard);
                listed.insert(
                    key.clone(),
                    Listed::on_disk(key, found.dir, is_served, detail),
                );
            }
        }
        for (handle, shard, cell) in self.open_shards() {
            let key = place(&handle.spec.id, handle.spec.incarnation, shard);
            let directory = listed.remove(&key).and_then(Listed::into_directory);
            listed.insert(key.clone(), Listed::open(key, directory, cell.marks()));
        }
        listed.into_values().collect()
    }
}

fn log_directory(store: &Store, spec: &CacheSpec, shard: ShardIndex) -> PathBuf {
    felix_journal::data_dir::cache_log_dir(&store.root, &spec.id, spec.incarnation, shard)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a principal may carry out an op.
///
/// # Errors
/// `forbidden`, naming the action. It never says whether the cache exists.
pub(crate) fn check(principal: &Principal, id: &CacheId, op: &CacheOp) -> Result<(), Failure> {
    let (action, name) = match op {
        CacheOp::Get { .. } | CacheOp::List { .. } | CacheOp::Sum { .. } => {
            (Action::CacheRead, "cache.read")
        }
        CacheOp::Put { .. } | CacheOp::Delete { .. } => (Action::CacheWrite, "cache.write"),
        CacheOp::Add { .. } => (Action::CounterAdd, "counter.add"),
    };
    let allowed = match op {
        CacheOp::Get { key }
        | CacheOp::Put { key, .. }
        | CacheOp::Delete { key, .. }
        | CacheOp::Add { key, .. }
        | CacheOp::Sum { key } => may_key(principal, action, id, key),
        CacheOp::List { prefix, .. } => may_prefix(principal, action, id, prefix),
    };
    if allowed {
        Ok(())
    } else {
        Err(forbidden(name, id))
    }
}

/// Counts an op against what bounds its author. Reading is bounded by nothing, and deleting not by what caches may hold.
///
/// # Errors
/// `tenant_quota` or `quota_exceeded`, with when it is worth trying again.
pub(crate) fn admit(state: &StreamState, id: &CacheId, op: &CacheOp) -> Result<(), Failure> {
    let (bytes, adds) = match op {
        CacheOp::Get { .. } | CacheOp::List { .. } | CacheOp::Sum { .. } => return Ok(()),
        CacheOp::Put { key, value, .. } => {
            let bytes = key.len() + value.len();
            (bytes, bytes)
        }
        CacheOp::Add { key, .. } => (key.len() + size_of::<i64>(), key.len()),
        CacheOp::Delete { key, .. } => (key.len(), 0),
    };
    let by = state.user(id.namespace.as_str());
    state
        .used
        .write_to_cache(by, bytes as u64, adds as u64)
        .map_err(|exceeded| state.conn.shared.exceeded(exceeded))
}

pub(crate) fn may_key(principal: &Principal, action: Action, id: &CacheId, key: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(key) else {
        return may_all(principal, action, id);
    };
    let resource = Resource::CacheKey {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        cache: id.cache.as_str(),
        key,
    };
    principal.allows(action, &resource)
}

pub(crate) fn may_prefix(
    principal: &Principal,
    action: Action,
    id: &CacheId,
    prefix: &[u8],
) -> bool {
    let Ok(prefix) = std::str::from_utf8(prefix) else {
        return may_all(principal, action, id);
    };
    let resource = Resource::CachePrefix {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        cache: id.cache.as_str(),
        prefix,
    };
    principal.allows(action, &resource)
}

/// Grants over keys are written as text, so other keys need one over the whole cache.
fn may_all(principal: &Principal, action: Action, id: &CacheId) -> bool {
    let resource = Resource::Cache {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        cache: id.cache.as_str(),
    };
    principal.allows(action, &resource)
}

/// The refusal of a principal that lacks a permission. It never says whether the thing exists.
pub(crate) fn forbidden(action: &str, id: &CacheId) -> Failure {
    Failure::new(
        Code::Forbidden,
        format!("{action} on cache {id} is not granted"),
    )
}

/// A refused op as a client reads it.
pub(crate) fn refused(why: &CacheRefused) -> Failure {
    let message = why.to_string();
    let invalid = |reason: &str| Failure::new(Code::InvalidRequest, &*message).with_reason(reason);
    match why {
        CacheRefused::KeyLength { bytes: 0, .. } => invalid("key_empty"),
        CacheRefused::KeyLength { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("key_bytes")
        }
        CacheRefused::TooLarge { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("record_bytes")
        }
        CacheRefused::Overflow { .. } => invalid("overflow"),
        CacheRefused::IdLength { .. } => invalid("idempotency_key_bytes"),
        CacheRefused::IdReused { .. } => invalid("idempotency_key_reused"),
        CacheRefused::IdsFull { .. } => Failure::new(Code::Overloaded, message)
            .with_reason("idempotency_keys")
            .with_retry_after_ms(1_000),
        CacheRefused::Append(AppendRefused::Closed { reason }) => closed(*reason),
        CacheRefused::Append(why) => append_failure(*why),
    }
}

/// What a closed shard says to whoever asks it.
pub(crate) fn closed(reason: CloseReason) -> Failure {
    match reason {
        CloseReason::Deleted => Failure::new(Code::NotFound, "the cache was deleted"),
        CloseReason::Moved | CloseReason::Stopping | CloseReason::Reopening => {
            crate::conn::publish::closed(reason)
        }
    }
}
