//! What caches need now and then: expiry, budgets, indexes written down, gauges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use felix_engine::cache::CacheStats;
use felix_journal::LogHandle;
use felix_model::{ShardIndex, TenantId};

use super::cell::Cell;
use super::{CacheHandle, Caches, index_file, log_directory, snapshot};

/// Memory for values that could as well be read from their logs, of all durable caches together.
const VALUE_BYTES_TOTAL: u64 = 512 * 1024 * 1024;

/// A shard's share of it is at least this much.
const VALUE_BYTES_MIN: u64 = 1024 * 1024;

/// A log that grew by this much since its index was written down, and by a share of what the index may take, has it
/// written down again: what a start after a crash reads is bounded by it.
const GROWTH_BYTES: u64 = 32 * 1024 * 1024;

/// About what a key takes in an index, divided by how often the index is written while the log grows by its size: a start
/// reads records more slowly than an index.
const INDEX_BYTES_PER_KEY: u64 = 64 / 4;

impl Caches {
    /// Deletes what expired. Once a second.
    pub(crate) fn expire(&self) {
        for (_, _, cell) in self.open_shards() {
            cell.expire();
        }
    }

    /// The slower chores: every other second. Blocking.
    pub(crate) fn tend(&self) {
        let open = self.open_shards();
        let share = VALUE_BYTES_TOTAL / (open.len() as u64).max(1);
        for (handle, shard, cell) in &open {
            cell.set_value_bytes(share.max(VALUE_BYTES_MIN));
            self.write_index_if_grown(handle, *shard, cell);
        }
        self.refresh_gauges();
    }

    /// Compacts what is worth it: every other second. Blocking, for as long as that takes; nothing else may wait for it.
    pub(crate) fn compact_all(&self) {
        for (handle, shard, cell) in &self.open_shards() {
            if self.is_closing() {
                return;
            }
            self.compact_if_worth(handle, *shard, cell);
        }
    }

    /// What the open caches of each namespace hold, in bytes of keys and values.
    pub(crate) fn held(&self) -> BTreeMap<(TenantId, String), u64> {
        let mut held = BTreeMap::new();
        for (handle, _, cell) in self.open_shards() {
            let id = &handle.spec().id;
            let of = (id.tenant.clone(), id.namespace.to_string());
            *held.entry(of).or_insert(0) += cell.stats().live_bytes;
        }
        held
    }

    /// Sets the gauges that are read and not counted.
    pub(crate) fn refresh_gauges(&self) {
        let mut sum = CacheStats::default();
        for (_, _, cell) in self.open_shards() {
            let stats = cell.stats();
            sum.keys += stats.keys;
            sum.counters += stats.counters;
            sum.value_bytes += stats.value_bytes;
            sum.hits += stats.hits;
            sum.misses += stats.misses;
            sum.reads += stats.reads;
            sum.expired += stats.expired;
            sum.evicted += stats.evicted;
        }
        let metrics = &self.metrics;
        let gauge = crate::broker::as_gauge;
        metrics.cache_keys.set(gauge(sum.keys));
        metrics.cache_counters.set(gauge(sum.counters));
        metrics.cache_value_bytes.set(gauge(sum.value_bytes));
        metrics.cache_hits.absolute(sum.hits);
        metrics.cache_misses.absolute(sum.misses);
        metrics.cache_reads.absolute(sum.reads);
        metrics.cache_expired.absolute(sum.expired);
        metrics.cache_evicted.absolute(sum.evicted);
    }

    fn write_index_if_grown(&self, handle: &Arc<CacheHandle>, shard: ShardIndex, cell: &Cell) {
        let (Some(log), Some(slot)) = (cell.log(), handle.slots.get(shard.0 as usize)) else {
            return;
        };
        let grown = log.reader().bytes();
        let before = slot.snapshot_at.load(Ordering::Relaxed);
        let index_bytes = cell.stats().keys * INDEX_BYTES_PER_KEY;
        // Compaction makes a log smaller, after which it begins to grow anew.
        let growth = grown.saturating_sub(before.min(grown));
        if growth < GROWTH_BYTES.max(index_bytes) {
            return;
        }
        if self.write_index(handle, shard, cell, &log) {
            slot.snapshot_at.store(grown, Ordering::Relaxed);
        }
    }

    /// Writes the index of a shard down. `false` when that failed, which was reported.
    pub(super) fn write_index(
        &self,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
        cell: &Cell,
        log: &LogHandle,
    ) -> bool {
        let Some(store) = self.store() else {
            return false;
        };
        let path = index_file(&log_directory(store, handle.spec(), shard));
        match snapshot::write(cell, log, store.disk.as_ref(), &path) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(cache = %handle.spec().id, shard = shard.0, %error, "the index of a cache was not written down");
                false
            }
        }
    }
}
