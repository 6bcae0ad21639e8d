//! Compaction of a cache's log: when it is worth it, and what stays.

use std::ops::ControlFlow;
use std::sync::Arc;

use felix_engine::Input;
use felix_engine::keyed::Key;
use felix_journal::{CompactOptions, Keep, LogHandle};
use felix_model::forms::Keyed;
use felix_model::{BatchHeader, Offset, Record, ShardIndex, TimeMs};

use super::cell::{Cell, Fate};
use super::{CacheHandle, Caches};

/// A log below it is left alone: compacting it would save nothing that counts.
const LOG_BYTES_MIN: u64 = 1024 * 1024;

/// A log is compacted when it is this many times its live bytes. Half of what a log may come to, because writing goes
/// on while it is compacted.
const WORTH_RATIO: u64 = 2;

/// How fast a log is read while it is compacted.
const BYTES_PER_SECOND: u64 = 64 * 1024 * 1024;

impl Caches {
    /// Compacts a shard's log if much of it is not needed any more. Blocking, and one after the other.
    pub(super) fn compact_if_worth(
        &self,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
        cell: &Arc<Cell>,
    ) {
        let Some(log) = cell.log() else { return };
        let bytes = log.reader().bytes();
        let live = cell.stats().live_bytes;
        if bytes < LOG_BYTES_MIN.max(live.saturating_mul(WORTH_RATIO)) {
            return;
        }
        // Nothing new to let go since the last time.
        if log.reader().dirty_bytes() < LOG_BYTES_MIN.max(live / 2) {
            return;
        }
        if let Err(why) = self.compact(handle, shard, cell, &log) {
            tracing::warn!(cache = %handle.spec().id, shard = shard.0, %why, "the log of a cache was not compacted");
        }
    }

    fn compact(
        &self,
        handle: &Arc<CacheHandle>,
        shard: ShardIndex,
        cell: &Arc<Cell>,
        log: &LogHandle,
    ) -> Result<(), String> {
        let mut after: Option<Key> = None;
        let below = cell.marks().committed;
        loop {
            after = cell.checkpoint(below, after.as_ref());
            if after.is_none() {
                break;
            }
        }
        log.roll().map_err(|error| error.to_string())?;
        // What replaces a record must be on disk before that goes.
        let end = log.flush().map_err(|error| error.to_string())?;
        cell.report(Input::Flushed { end });
        // An index older than a deletion that is let go would bring the key back.
        if !self.write_index(handle, shard, cell, log) {
            return Err("its index could not be written down".into());
        }
        let mut keeper = Keeper {
            cell,
            deletions_below: Offset::ZERO,
        };
        let options = CompactOptions {
            below: end,
            bytes_per_second: Some(BYTES_PER_SECOND),
        };
        let mut pause = |_| {
            if handle.is_gone() || self.is_closing() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let done = log
            .compact(options, &mut keeper, &mut pause)
            .map_err(|error| error.to_string())?;
        self.metrics.cache_compactions.increment(1);
        self.metrics
            .cache_reclaimed_bytes
            .increment(done.bytes_before.saturating_sub(done.bytes_after));
        Ok(())
    }
}

/// Says what stays, by what the shard knows.
struct Keeper<'a> {
    cell: &'a Cell,
    deletions_below: Offset,
}

impl Keep for Keeper<'_> {
    fn keep(&mut self, _batch: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        let read = |record: &Record| {
            let time = TimeMs(u64::try_from(record.timestamp_ms).unwrap_or(0));
            Some((Keyed::read(record).ok()?, record.offset, time))
        };
        // A batch with anything else in it is none of a cache's and stays as it is.
        let Some(forms) = records.iter().map(read).collect::<Option<Vec<_>>>() else {
            return;
        };
        let fates = self.cell.sift(&forms);
        for (fate, (_, offset, _)) in fates.iter().zip(&forms) {
            if *fate == Fate::LastDeletion {
                self.deletions_below = self.deletions_below.max(offset.plus(1));
            }
        }
        stay.extend(fates.iter().map(|fate| *fate == Fate::Stays));
    }

    fn deletions_below(&self) -> Offset {
        self.deletions_below
    }
}
