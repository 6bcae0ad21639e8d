//! Opening a cache's shard: from its log, and the index that was written down beside it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use felix_engine::cache::{CacheOptions, CacheShard, Fold, KEY_BYTES_MAX};
use felix_engine::keyed::OnceBounds;
use felix_engine::{CloseReason, CommitWhen, Input, Overflow, ProducerTable, Shard, ShardOptions};
use felix_journal::{
    Completions, LogOptions, LogReader, OpenRefused, Recovered, SyncMode, WriteFailure, data_dir,
};
use felix_model::{CacheId, Generation, Records, ShardIndex};
use felix_wire::error::{Code, Failure, Retry};

use super::cell::{Cell, Reports};
use super::{CacheHandle, CacheSpec, Caches, Kind, closed, lock, log_directory, snapshot};

/// Bytes of a page while a log is read through.
const REBUILD_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The file beside a log that holds its index.
const INDEX: &str = "index";

/// Segments of a cache's log. Only closed ones are compacted, and the open one counts against what a log may take
/// beyond its live bytes.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// What a cache in memory keeps of its changes for those who watch, beside its entries.
const RING_BYTES: u64 = 8 * 1024 * 1024;

/// Batches are handed on at 4 MiB, so one may be this much larger than a record.
const BATCH_SLACK_BYTES: u64 = 5 * 1024 * 1024;

/// Where the index of a log is: beside the log, so that removing the log's files does not touch it.
pub(crate) fn index_file(log_directory: &Path) -> PathBuf {
    log_directory.with_file_name(INDEX)
}

/// Why a shard is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenFailed {
    #[error("the cache was deleted")]
    Gone,
    #[error("the broker is shutting down")]
    Stopping,
    #[error("this broker has no data directory and serves in-memory caches only")]
    NoStore,
    #[error("shard {shard} of cache {cache} is not served: {source}")]
    Log {
        cache: CacheId,
        shard: u32,
        source: OpenRefused,
    },
    #[error("shard {shard} of cache {cache} is not served: {reason}")]
    Unreadable {
        cache: CacheId,
        shard: u32,
        reason: String,
    },
    #[error("opening was interrupted")]
    Interrupted,
}

impl OpenFailed {
    /// The same as a client reads it.
    pub(crate) fn failure(&self) -> Failure {
        let message = self.to_string();
        let unavailable = Failure::new(Code::ShardUnavailable, &*message);
        match self {
            Self::Gone => Failure::new(Code::NotFound, message),
            Self::Stopping => closed(CloseReason::Stopping),
            Self::NoStore => unavailable.with_reason("no_storage"),
            Self::Log {
                source: OpenRefused::Damaged(_),
                ..
            } => unavailable.with_reason("corrupt").with_retry(Retry::Fatal),
            Self::Log { .. } | Self::Unreadable { .. } | Self::Interrupted => unavailable
                .with_reason("not_ready")
                .with_retry_after_ms(1_000),
        }
    }
}

impl Caches {
    /// The shard, opened if need be. Whoever comes meanwhile waits for the same opening.
    ///
    /// # Errors
    /// [`OpenFailed`]; the next call tries again.
    pub(crate) async fn open(
        self: &Arc<Self>,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let (caches, handle) = (Arc::clone(self), Arc::clone(handle));
        // A task of its own: a client that goes away must not end an opening halfway, or a second one could begin on
        // the same log.
        let opening = self
            .runtime
            .spawn(async move { caches.open_once(&handle, shard).await });
        opening.await.map_err(|_| OpenFailed::Interrupted)?
    }

    async fn open_once(
        self: &Arc<Self>,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let Some(slot) = handle.slots.get(shard.0 as usize) else {
            return Err(OpenFailed::Gone);
        };
        let _opening = slot.opening.lock().await;
        // Asked under the lock: whoever closes everything waits for an opening that began before.
        if self.is_closing() {
            return Err(OpenFailed::Stopping);
        }
        if handle.is_gone() {
            return Err(OpenFailed::Gone);
        }
        if let Some(cell) = handle.open_cell(shard) {
            return Ok(cell);
        }
        let cell = match handle.spec().kind {
            Kind::Memory { bytes } => self.open_memory(handle.spec(), bytes),
            Kind::Durable { sync } => {
                let (caches, handle) = (Arc::clone(self), Arc::clone(handle));
                let opening =
                    tokio::task::spawn_blocking(move || caches.open_durable(&handle, shard, sync));
                opening.await.map_err(|_| OpenFailed::Interrupted)??
            }
        };
        // Whoever ends the cache from here on waits for this lock, and finds the shard.
        *slot.cell.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&cell));
        self.metrics.cache_shards_open.increment(1.0);
        Ok(cell)
    }

    fn open_memory(&self, spec: &CacheSpec, bytes: u64) -> Arc<Cell> {
        let ring = RING_BYTES
            .max(u64::from(spec.max_record_bytes) + BATCH_SLACK_BYTES + KEY_BYTES_MAX as u64);
        let shard = ShardOptions::memory(ring, ring, Overflow::DropOld);
        let options = CacheOptions {
            value_bytes: bytes,
            ..options(spec)
        };
        let core = CacheShard::new(
            Shard::new(shard, ProducerTable::new(0)),
            options,
            Fold::new(options.once),
        );
        Cell::new(core, self.runtime.clone(), |_| {})
    }

    fn open_durable(
        self: &Arc<Self>,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
        sync: SyncMode,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let store = self.store().ok_or(OpenFailed::NoStore)?;
        let spec = handle.spec();
        let directory = log_directory(store, spec, shard);
        let reports = Arc::new(Reports::default());
        let opened = store.journal.open_log(
            &directory,
            LogOptions {
                segment_bytes: SEGMENT_BYTES,
                ..LogOptions::default()
            },
            sync,
            Arc::clone(&reports) as Arc<dyn Completions>,
        );
        let (log, recovered) = opened.map_err(|source| {
            if let OpenRefused::Damaged(damage) = &source {
                tracing::error!(cache = %spec.id, shard = shard.0, %damage, "a cache's shard is corrupt and is not served");
                lock(&self.corrupt).insert(directory.clone(), damage.to_string());
            }
            OpenFailed::Log { cache: spec.id.clone(), shard: shard.0, source }
        })?;
        lock(&self.corrupt).remove(&directory);
        if recovered.truncated_bytes > 0 {
            tracing::warn!(
                cache = %spec.id, shard = shard.0, bytes = recovered.truncated_bytes, end = recovered.end.0,
                "a torn tail was cut"
            );
        }
        let options = options(spec);
        let unreadable = |reason: String| OpenFailed::Unreadable {
            cache: spec.id.clone(),
            shard: shard.0,
            reason,
        };
        let index = snapshot::read(store.disk.as_ref(), &index_file(&directory), recovered.end)
            .map_err(|error| unreadable(error.to_string()))?;
        if index.is_some()
            && let Some(slot) = handle.slots.get(shard.0 as usize)
        {
            slot.snapshot_at.store(recovered.bytes, Ordering::Relaxed);
        }
        let fold = index.map_or_else(
            || Fold::new(options.once),
            |loaded| Fold::from_snapshot(loaded, options.once),
        );
        let fold = read_on(&log.reader(), &recovered, fold).map_err(unreadable)?;
        let (caches, failing) = (Arc::downgrade(self), Arc::downgrade(handle));
        let core = CacheShard::new(
            Shard::new(shard_options(&recovered, sync), ProducerTable::new(0)),
            options,
            fold,
        );
        let cell = Cell::new(core, self.runtime.clone(), move |why| {
            if let (Some(caches), Some(handle)) = (caches.upgrade(), failing.upgrade()) {
                caches.failed(&handle, shard, why);
            }
        });
        cell.attach(log);
        reports.attach(&cell);
        // Everything that recovery found is durable.
        cell.report(Input::Flushed { end: recovered.end });
        Ok(cell)
    }

    /// A write or sync failed. Unless the disk is only full, the shard stops and is recovered on next use: what is
    /// on disk is known only then.
    fn failed(self: &Arc<Self>, handle: &Arc<CacheHandle>, shard: ShardIndex, why: WriteFailure) {
        match why {
            WriteFailure::Full => {
                self.metrics.storage_full.increment(1);
                return;
            }
            WriteFailure::Io | WriteFailure::Poisoned => self.metrics.write_failures.increment(1),
        }
        let Some(cell) = handle.open_cell(shard) else {
            return;
        };
        tracing::error!(cache = %handle.spec().id, shard = shard.0, "a write failed; the shard is reopened by recovery");
        self.reopen(handle, shard, cell);
    }

    /// Opens every shard that has a directory, so that damage shows at start and not at first use.
    pub(crate) async fn verify_all(
        self: &Arc<Self>,
        known: impl Fn(&CacheId) -> Option<CacheSpec>,
    ) {
        let Some(store) = self.store() else { return };
        let (disk, root) = (Arc::clone(&store.disk), store.root.clone());
        let walk = tokio::task::spawn_blocking(move || data_dir::cache_logs(disk.as_ref(), &root));
        let places = match walk.await {
            Ok(Ok(places)) => places,
            Ok(Err(error)) => {
                tracing::error!(%error, "the caches of the data directory cannot be listed");
                return;
            }
            Err(_) => return,
        };
        for found in places {
            match known(&found.cache) {
                Some(spec) if spec.incarnation == found.incarnation => {
                    let handle = self.cache(spec);
                    // A refusal was logged and listed where it happened.
                    let _ = self.open(&handle, found.shard).await;
                }
                Some(_) | None => tracing::warn!(
                    cache = %found.cache, incarnation = found.incarnation.0, shard = found.shard.0,
                    "orphan: the catalogue does not know this log; it is kept"
                ),
            }
        }
    }
}

fn options(spec: &CacheSpec) -> CacheOptions {
    CacheOptions {
        record_bytes_max: spec.max_record_bytes,
        once: OnceBounds::default(),
        ..CacheOptions::default()
    }
}

fn shard_options(recovered: &Recovered, sync: SyncMode) -> ShardOptions {
    let mut options = ShardOptions::durable(match sync {
        SyncMode::OnCommit => CommitWhen::Flushed,
        SyncMode::Periodic { .. } | SyncMode::None => CommitWhen::Written,
    });
    options.start = recovered.start;
    options.end = recovered.end;
    // After a crash, offsets at the end may have been handed out before and lost: what is written now is of another
    // generation, so that nobody takes one for the other.
    options.generation = if recovered.clean {
        recovered.last_generation
    } else {
        next_generation(recovered.last_generation)
    };
    options
}

fn next_generation(last: Generation) -> Generation {
    last.next().unwrap_or(last)
}

/// Reads what of the log is not in the fold yet. Compaction leaves holes, within batches and between them.
fn read_on(log: &LogReader, recovered: &Recovered, mut fold: Fold) -> Result<Fold, String> {
    let end = recovered.end;
    let mut from = fold.covered().max(recovered.start);
    while from < end {
        let page = log
            .read(from, REBUILD_PAGE_BYTES, end)
            .map_err(|error| error.to_string())?;
        for batch in &page.batches {
            observe(batch, &mut fold).map_err(|error| {
                format!("what follows offset {from} is none of a cache: {error}")
            })?;
        }
        if page.next <= from {
            return Err(format!("reading does not go on at offset {from}"));
        }
        from = page.next;
    }
    Ok(fold)
}

/// Takes the records of a batch.
fn observe(batch: &bytes::Bytes, fold: &mut Fold) -> Result<(), felix_model::BatchRefused> {
    let records = Records::new(batch)?;
    if records.header().is_control() {
        return Ok(());
    }
    for record in records {
        fold.observe(&record?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use felix_model::Incarnation;

    use super::*;
    use crate::metrics::Metrics;
    use crate::shards::Shards;

    fn spec(cache: &str) -> CacheSpec {
        CacheSpec {
            id: CacheId::new("t", "n", cache).unwrap(),
            incarnation: Incarnation(1),
            shards: 1,
            max_record_bytes: 1024,
            kind: Kind::Memory { bytes: 1 << 20 },
        }
    }

    #[tokio::test]
    async fn nothing_is_opened_once_everything_is_being_closed() {
        let metrics = Arc::new(Metrics::new());
        let shards = Shards::new(None, Arc::clone(&metrics));
        let caches = Caches::new(shards, metrics);
        let before = caches.cache(spec("c"));
        caches.open(&before, ShardIndex(0)).await.unwrap();
        assert_eq!(caches.close_all().await, 0);
        let again = caches.cache(spec("c"));
        assert!(Arc::ptr_eq(&before, &again), "the same locks");
        for handle in [again, caches.cache(spec("another"))] {
            let opened = caches.open(&handle, ShardIndex(0)).await;
            assert!(matches!(opened, Err(OpenFailed::Stopping)), "{opened:?}");
        }
    }
}
