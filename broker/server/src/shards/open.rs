//! Opening a shard: recovery of its log, and of what the log says about producers.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use felix_engine::{
    CloseReason, CommitWhen, KafkaObserved, KafkaProduced, Observed, Overflow, Produced,
    ProducerTable, Shard, ShardOptions,
};
use felix_journal::{
    Completions, LogOptions, LogReader, OpenRefused, ReadRefused, SyncMode, WriteFailure, data_dir,
};
use felix_model::native::{digest_from_records, internal_headers};
use felix_model::{BatchHeader, Offset, ShardIndex, StreamId};
use felix_wire::error::{Code, Failure, Retry};

use super::cell::{Cell, Reports};
use super::marker::Marker;
use super::{Kind, Shards, Store, StreamHandle, StreamSpec, state};

/// Bytes of log read at a time while producers are rebuilt.
const REBUILD_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Bound of what an in-memory stream holds per shard.
const MEMORY_RING_BYTES: u64 = 64 * 1024 * 1024;

/// Bound of what one slow reader of an in-memory stream is owed.
const MEMORY_READER_BYTES: u64 = 64 * 1024 * 1024;

/// Segments that a bound on a stream's bytes is divided into: what is kept beyond it is at most one of them.
const RETAINED_SEGMENTS: u64 = 8;

/// A segment of a stream with a tight bound; smaller ones would be more files than data.
const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;

/// How long a shard that was closed rests before it is opened again, at first and at most.
const REOPEN_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How large the segments of a stream may grow. Only whole ones are forgotten, so a stream that may keep little has
/// small ones.
fn segment_bytes(spec: &StreamSpec) -> u64 {
    let usual = LogOptions::default().segment_bytes;
    let bound = match spec.kind {
        Kind::Durable { retention, .. } => retention.max_bytes,
        Kind::Memory { .. } => None,
    };
    bound.map_or(usual, |bytes| {
        (bytes / RETAINED_SEGMENTS).clamp(SEGMENT_BYTES_MIN.min(usual), usual)
    })
}

/// Why a shard is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenFailed {
    #[error("the stream was deleted")]
    Gone,
    #[error("the broker is shutting down")]
    Stopping,
    #[error("this broker has no data directory and serves in-memory streams only")]
    NoStore,
    #[error("shard {shard} of {stream} is not served: {source}")]
    Log {
        stream: StreamId,
        shard: u32,
        source: OpenRefused,
    },
    #[error("shard {shard} of {stream} is not served: {reason}")]
    Unreadable {
        stream: StreamId,
        shard: u32,
        reason: String,
    },
    #[error("opening was interrupted")]
    Interrupted,
}

impl OpenFailed {
    /// Whether another try may go well.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Gone | Self::Stopping | Self::NoStore => false,
            Self::Log { source, .. } => !matches!(source, OpenRefused::Damaged(_)),
            Self::Unreadable { .. } | Self::Interrupted => true,
        }
    }

    /// The same as a client reads it.
    pub(crate) fn failure(&self) -> Failure {
        let message = self.to_string();
        match self {
            Self::Gone => Failure::new(Code::NotFound, message),
            Self::Stopping => crate::conn::publish::closed(CloseReason::Stopping),
            Self::NoStore => {
                Failure::new(Code::ShardUnavailable, message).with_reason("no_storage")
            }
            Self::Log {
                source: OpenRefused::Damaged(_),
                ..
            } => Failure::new(Code::ShardUnavailable, message)
                .with_reason("corrupt")
                .with_retry(Retry::Fatal),
            Self::Log { .. } | Self::Unreadable { .. } | Self::Interrupted => {
                Failure::new(Code::ShardUnavailable, message)
                    .with_reason("not_ready")
                    .with_retry_after_ms(1_000)
            }
        }
    }
}

impl Shards {
    /// The shard, opened if need be. Whoever comes meanwhile waits for the same opening.
    ///
    /// # Errors
    /// [`OpenFailed`]; the next call tries again.
    pub(crate) async fn open(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: ShardIndex,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        // A task of its own: a client that goes away must not end an opening halfway, or a second one could begin on
        // the same log.
        let opening = self
            .runtime
            .spawn(async move { shards.open_once(&handle, shard).await });
        opening.await.map_err(|_| OpenFailed::Interrupted)?
    }

    async fn open_once(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: ShardIndex,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let Some(slot) = handle.slots.get(shard.0 as usize) else {
            return Err(OpenFailed::Gone);
        };
        let _opening = slot.opening.lock().await;
        // Asked under the lock: whoever closes everything waits for an opening that began before.
        if self.stopping.load(Ordering::Acquire) {
            return Err(OpenFailed::Stopping);
        }
        if handle.is_gone() {
            return Err(OpenFailed::Gone);
        }
        if let Some(cell) = handle.open_cell(shard) {
            return Ok(cell);
        }
        let cell = match handle.spec().kind {
            Kind::Memory { overflow } => self.open_memory(overflow),
            Kind::Durable { sync, .. } => {
                let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
                let opening = tokio::task::spawn_blocking(move || {
                    shards.open_durable(&handle, &handle.spec(), shard.0, sync)
                });
                opening.await.map_err(|_| OpenFailed::Interrupted)??
            }
        };
        // Whoever ends the stream from here on waits for this lock, and finds the shard.
        *slot.cell.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&cell));
        self.metrics.shards_open.increment(1.0);
        Ok(cell)
    }

    fn open_memory(&self, overflow: Overflow) -> Arc<Cell> {
        let options = ShardOptions::memory(MEMORY_RING_BYTES, MEMORY_READER_BYTES, overflow);
        let producers = ProducerTable::new(options.limits.producers_max);
        let core = Shard::new(options, producers);
        Cell::new(core, None, self.runtime.clone(), |_| {})
    }

    fn open_durable(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        spec: &StreamSpec,
        shard: u32,
        sync: SyncMode,
    ) -> Result<Arc<Cell>, OpenFailed> {
        let store = self.store.as_ref().ok_or(OpenFailed::NoStore)?;
        let directory = log_directory(store, spec, shard);
        let unreadable = |reason: String| OpenFailed::Unreadable {
            stream: spec.id.clone(),
            shard,
            reason,
        };
        let reports = Arc::new(LateReports::default());
        let opened = store.journal.open_log(
            &directory,
            LogOptions {
                segment_bytes: segment_bytes(spec),
                ..LogOptions::default()
            },
            sync,
            Arc::clone(&reports) as Arc<dyn Completions>,
        );
        let (log, recovered) = opened.map_err(|source| {
            if let OpenRefused::Damaged(damage) = &source {
                tracing::error!(stream = %spec.id, shard, %damage, "a shard is corrupt and is not served");
                super::lock(&self.corrupt).insert(directory.clone(), damage.to_string());
            }
            OpenFailed::Log { stream: spec.id.clone(), shard, source }
        })?;
        super::lock(&self.corrupt).remove(&directory);
        if recovered.truncated_bytes > 0 {
            tracing::warn!(
                stream = %spec.id, shard, bytes = recovered.truncated_bytes, end = recovered.end.0,
                "a torn tail was cut"
            );
        }
        let mut options = ShardOptions::durable(match sync {
            SyncMode::OnCommit => CommitWhen::Flushed,
            SyncMode::Periodic { .. } | SyncMode::None => CommitWhen::Written,
        });
        options.end = recovered.end;
        let kept = crate::raw::kept_start(store.disk.as_ref(), &directory)
            .map_err(|error| unreadable(error.to_string()))?;
        options.start = recovered.start.max(kept.min(recovered.end));
        // After a crash, offsets at the end may have been handed out before and lost: what is appended now is of
        // another generation, so that nobody takes one for the other.
        options.generation = if recovered.clean {
            recovered.last_generation
        } else {
            recovered
                .last_generation
                .next()
                .unwrap_or(recovered.last_generation)
        };
        let mut producers = ProducerTable::new(options.limits.producers_max);
        if Marker::Producers.is_at(store, &directory) {
            rebuild(
                &log.reader(),
                recovered.start,
                recovered.end,
                &mut producers,
            )
            .map_err(|error| unreadable(error.to_string()))?;
        }
        let state = if Marker::Commits.is_at(store, &directory) {
            let how = ((recovered.start, recovered.end), state::options(spec));
            let state = state::load(store, &directory, &log.reader(), how)
                .map_err(|error| unreadable(error.to_string()))?;
            if state.is_none() {
                // Every commit that was tried was refused, or was lost with the power.
                handle.unmark(store, ShardIndex(shard), Marker::Commits);
            }
            state
        } else {
            None
        };
        let (shards, failing) = (Arc::downgrade(self), Arc::downgrade(handle));
        let cell = Cell::new(
            Shard::new(options, producers),
            state,
            self.runtime.clone(),
            move |why| {
                if let (Some(shards), Some(handle)) = (shards.upgrade(), failing.upgrade()) {
                    shards.failed(&handle, shard, why);
                }
            },
        );
        cell.attach(log);
        reports.attach(Reports(Arc::downgrade(&cell)));
        self.open_lane_if_there(handle, spec, (ShardIndex(shard), recovered.end), &cell)
            .map_err(|error| unreadable(error.to_string()))?;
        Ok(cell)
    }

    /// Where the log of a shard is, on a broker that has a disk.
    pub(crate) fn log_directory(&self, spec: &StreamSpec, shard: ShardIndex) -> Option<PathBuf> {
        let store = self.store.as_ref()?;
        Some(log_directory(store, spec, shard.0))
    }

    /// A write or sync failed. Unless the disk is only full, the shard stops and is recovered: what is on disk is known
    /// only then.
    fn failed(self: &Arc<Self>, handle: &Arc<StreamHandle>, shard: u32, why: WriteFailure) {
        match why {
            WriteFailure::Full => {
                self.metrics.storage_full.increment(1);
                return;
            }
            WriteFailure::Io | WriteFailure::Poisoned => self.metrics.write_failures.increment(1),
        }
        let Some(cell) = handle.open_cell(ShardIndex(shard)) else {
            return;
        };
        tracing::error!(stream = %handle.spec().id, shard, "a write failed; the shard is reopened by recovery");
        self.reopen(handle, shard, cell);
    }

    /// Opens every shard that has a directory, so that damage shows at start and not at first use.
    pub(crate) async fn verify_all(
        self: &Arc<Self>,
        known: impl Fn(&StreamId) -> Option<StreamSpec>,
    ) {
        let Some(store) = &self.store else { return };
        let (disk, root) = (Arc::clone(&store.disk), store.root.clone());
        let walk = tokio::task::spawn_blocking(move || data_dir::logs(disk.as_ref(), &root));
        let places = match walk.await {
            Ok(Ok(places)) => places,
            Ok(Err(error)) => {
                tracing::error!(%error, "the data directory cannot be listed");
                return;
            }
            Err(_) => return,
        };
        let mut orphans = 0_u32;
        for found in places {
            match known(&found.stream) {
                Some(spec) if spec.incarnation == found.incarnation => {
                    let handle = self.stream(spec);
                    // A refusal was logged and listed where it happened.
                    let _ = self.open(&handle, found.shard).await;
                }
                Some(_) | None => {
                    tracing::warn!(
                        stream = %found.stream, incarnation = found.incarnation.0, shard = found.shard.0,
                        "orphan: the catalogue does not know this log; it is kept"
                    );
                    orphans += 1;
                }
            }
        }
        self.metrics.shards_orphaned.set(f64::from(orphans));
    }
}

/// Opens a shard that was closed, as often as it takes; until its stream or the broker ends, or it turns out to be
/// corrupt. The broker is not kept from ending meanwhile.
pub(super) async fn open_again(shards: Weak<Shards>, handle: Arc<StreamHandle>, shard: ShardIndex) {
    let (mut rest, rest_max) = REOPEN_AFTER;
    loop {
        tokio::time::sleep(rest).await;
        let Some(shards) = shards.upgrade() else {
            return;
        };
        if handle.is_gone() || shards.is_stopping() {
            return;
        }
        let Err(refused) = shards.open(&handle, shard).await else {
            return;
        };
        tracing::warn!(stream = %handle.spec().id, shard = shard.0, %refused, "a shard cannot be opened again yet");
        if !refused.may_pass() {
            return;
        }
        rest = rest.saturating_mul(2).min(rest_max);
    }
}

/// Reports that may come before there is a shard to report to: opening a log starts nothing, but nothing here
/// depends on that.
#[derive(Default)]
struct LateReports(std::sync::OnceLock<Reports>);

impl LateReports {
    fn attach(&self, reports: Reports) {
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

pub(super) fn log_directory(store: &Store, spec: &StreamSpec, shard: u32) -> PathBuf {
    data_dir::log_dir(&store.root, &spec.id, spec.incarnation, ShardIndex(shard))
}

/// Takes note of a batch of a producer of the Kafka protocol. `false` when it is none.
fn observe_kafka(
    log: &bytes::Bytes,
    batch: &felix_engine::Batch,
    producers: &mut ProducerTable,
) -> Result<bool, felix_model::BatchRefused> {
    let Some(produced) = KafkaProduced::of(&BatchHeader::parse(log)?) else {
        return Ok(false);
    };
    producers.observe_kafka(KafkaObserved {
        produced,
        base: batch.base,
        end: batch.end,
    });
    Ok(true)
}

/// Which batch of which producer this is, if it is an idempotent producer's.
fn produced(log: &bytes::Bytes) -> Result<Option<Produced>, felix_model::BatchRefused> {
    let header = BatchHeader::parse(log)?;
    // Compaction thins only batches that their producers may forget, and the digest of what is left tells nothing.
    if header.records() < header.offsets() {
        return Ok(None);
    }
    let Some(sent) = internal_headers(log)?.sequence else {
        return Ok(None);
    };
    let digest = digest_from_records(log)?;
    Ok(Some(Produced {
        producer: sent.producer,
        sequence: sent.sequence,
        digest,
    }))
}

/// Reads a log through and takes note of every idempotent batch.
pub(super) fn rebuild(
    log: &LogReader,
    start: Offset,
    end: Offset,
    producers: &mut ProducerTable,
) -> Result<(), ReadRefused> {
    let mut from = start;
    while from < end {
        let page = log.read(from, REBUILD_PAGE_BYTES, end)?;
        let next = page.next;
        let Some(batches) = super::cell::batches(page.batches).filter(|_| next > from) else {
            return Ok(());
        };
        from = next;
        for batch in &batches {
            let Some(log) = batch.log() else { continue };
            if matches!(observe_kafka(log, batch, producers), Ok(true)) {
                continue;
            }
            match produced(log) {
                Ok(Some(produced)) => {
                    producers.observe(Observed {
                        produced,
                        base: batch.base,
                        end: batch.end,
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(offset = batch.base.0, %error, "a batch's producer cannot be read; it is forgotten");
                }
            }
        }
    }
    Ok(())
}
