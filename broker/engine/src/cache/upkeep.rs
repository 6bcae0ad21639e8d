//! What a shard does by itself: expiry, eviction, checkpoints; and what compaction may drop.

use std::collections::{HashMap, VecDeque};

use felix_model::forms::Keyed;
use felix_model::{Offset, TimeMs};

use super::{CacheEffect, CacheShard, EXPIRED_PER_PASS_MAX, Staged};
use crate::keyed::{Key, Remembered, Sum};

/// Checkpoints written in one turn.
const CHECKPOINTS_PER_TURN: usize = 1024;

/// Entries evicted in one batch.
const EVICTED_PER_BATCH: usize = 1024;

/// Keys whose deletion may not have reached the disk: until it has, what it deletes must stay in the log.
#[derive(Debug, Default)]
pub(super) struct Removed {
    order: VecDeque<(Offset, Key)>,
    by_key: HashMap<Key, Offset>,
    /// Everything below is on disk. Exclusive.
    flushed: Offset,
}

impl Removed {
    pub(super) fn push(&mut self, offset: Offset, key: Key) {
        if offset >= self.flushed {
            self.by_key.insert(Key::clone(&key), offset);
            self.order.push_back((offset, key));
        }
    }

    pub(super) fn flushed(&mut self, end: Offset) {
        self.flushed = self.flushed.max(end);
        while let Some((offset, key)) = self.order.pop_front_if(|(offset, _)| *offset < end) {
            if self.by_key.get(&key) == Some(&offset) {
                self.by_key.remove(&key);
            }
        }
    }

    fn holds(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }
}

impl CacheShard {
    /// Deletes what expired, so that whoever watches hears of it.
    pub(super) fn expire(&mut self, now: TimeMs, effects: &mut Vec<CacheEffect>) {
        let due: Vec<Key> = self
            .index
            .due(now)
            .filter(|key| self.overlay.entry(key).is_none())
            .take(EXPIRED_PER_PASS_MAX)
            .map(Key::clone)
            .collect();
        self.stats.expired += due.len() as u64;
        for key in due {
            self.stage_own(now, Staged::Delete { key }, effects);
        }
        self.submit(now, effects);
    }

    /// Of a cache in memory: deletes what was asked for least until the rest fits.
    pub(super) fn evict(&mut self, now: TimeMs, effects: &mut Vec<CacheEffect>) {
        while !self.is_durable() && self.values.is_over() {
            for _ in 0..EVICTED_PER_BATCH {
                if !self.values.is_over() {
                    break;
                }
                let Some((key, _)) = self.values.pop() else {
                    break;
                };
                self.stats.evicted += 1;
                self.stage_own(now, Staged::Delete { key }, effects);
            }
            if self.building.is_none() {
                return;
            }
            self.submit(now, effects);
        }
    }

    /// Writes checkpoints of counters that have adds below `below` which no checkpoint holds, so that
    /// compaction may drop these. Goes on behind `after`, a few at a time; answers where to go on, `None`
    /// when all were seen.
    pub fn checkpoint(
        &mut self,
        now: TimeMs,
        below: Offset,
        after: Option<&Key>,
        effects: &mut Vec<CacheEffect>,
    ) -> Option<Key> {
        let needs = |sum: &Sum| sum.is_open() && sum.checkpoint.is_none_or(|at| at < below);
        let seen: Vec<(Key, Sum)> = self
            .sums
            .walk(after.map(|key| &**key))
            .take(CHECKPOINTS_PER_TURN)
            .map(|(key, sum)| (Key::clone(key), sum))
            .collect();
        let last = seen.last().map(|(key, _)| Key::clone(key));
        for (key, held) in seen.into_iter().filter(|(_, sum)| needs(sum)) {
            self.submit_full(now, effects);
            // The checkpoint stands behind what is in flight, so it has that in it.
            let sum = self.overlay.sum(&key).map_or(held.sum, |(sum, _)| sum);
            self.stage_own(now, Staged::Checkpoint { key, sum }, effects);
        }
        self.submit(now, effects);
        last
    }

    /// Whether compaction must keep a record. A record goes only when the one that replaces it is on
    /// disk.
    #[must_use]
    pub fn keeps(&self, record: &Keyed, offset: Offset, time: TimeMs, now: TimeMs) -> bool {
        let on_disk = |at: Offset| at < self.removed.flushed;
        match record {
            Keyed::Put { key, .. } => match self.index.get(key) {
                Some(entry) => entry.offset <= offset || !on_disk(entry.offset),
                None => !on_disk(offset) || self.removed.holds(key),
            },
            Keyed::Delete { key } => match self.index.get(key) {
                Some(entry) => entry.offset <= offset || !on_disk(entry.offset),
                None => !on_disk(offset) || now.since(time) < self.options.tombstone_grace_ms,
            },
            Keyed::Add { key, once, .. } => {
                let needed = once
                    .as_ref()
                    .is_some_and(|once| self.once.needs(&once.id, offset));
                needed || !self.is_in_checkpoint(key, offset)
            }
            Keyed::Checkpoint { key, .. } => !self.is_in_checkpoint(key, offset),
        }
    }

    /// Whether a later checkpoint that is on disk holds what the counter's record at `offset` says.
    fn is_in_checkpoint(&self, key: &[u8], offset: Offset) -> bool {
        let checkpoint = self.sums.get(key).and_then(|sum| sum.checkpoint);
        checkpoint.is_some_and(|at| at > offset && at < self.removed.flushed)
    }

    /// The committed counters above `after`.
    pub fn counters<'a>(&'a self, after: Option<&'a [u8]>) -> impl Iterator<Item = (&'a Key, Sum)> {
        self.sums.walk(after)
    }

    /// The committed idempotent adds at or above `from`, by offset.
    pub fn remembered(&self, from: Offset) -> impl Iterator<Item = (&Key, &Remembered<i64>)> {
        let committed = self.shard.committed();
        self.once
            .walk(from)
            .take_while(move |(_, known)| known.offset < committed)
    }
}
