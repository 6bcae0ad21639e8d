//! From a log, or a snapshot and the rest of the log, to what a shard knows.

use felix_model::batch::BatchRefused;
use felix_model::forms::Keyed;
use felix_model::{Offset, Record, TimeMs};

use super::decide::add_digest;
use crate::keyed::snapshot::Loaded;
use crate::keyed::{Entry, Index, Key, Once, OnceBounds, Remembered, Sums};

/// What the records of a cache's log come to.
#[derive(Debug)]
pub struct Fold {
    pub(super) index: Index,
    pub(super) sums: Sums,
    pub(super) once: Once<i64>,
    /// Records below it are in the fold. Exclusive.
    covered: Offset,
}

impl Fold {
    /// Of no record.
    #[must_use]
    pub fn new(bounds: OnceBounds) -> Self {
        Self {
            index: Index::new(),
            sums: Sums::new(),
            once: Once::new(bounds),
            covered: Offset::ZERO,
        }
    }

    /// Of what a snapshot holds.
    #[must_use]
    pub fn from_snapshot(loaded: Loaded, bounds: OnceBounds) -> Self {
        let mut once = Once::new(bounds);
        for (id, known) in loaded.once {
            once.remember(&id, known);
        }
        Self {
            index: Index::from_sorted(loaded.entries),
            sums: Sums::from_sorted(loaded.sums),
            once,
            covered: loaded.covered,
        }
    }

    /// The first offset whose record is still to be observed.
    #[must_use]
    pub fn covered(&self) -> Offset {
        self.covered
    }

    /// Takes the next record of the log. One that the fold knows already changes nothing.
    ///
    /// # Errors
    /// When the record is none of a cache's log.
    pub fn observe(&mut self, record: &Record) -> Result<(), BatchRefused> {
        let offset = record.offset;
        let at = TimeMs(u64::try_from(record.timestamp_ms).unwrap_or(0));
        match Keyed::read(record)? {
            Keyed::Put {
                key,
                value,
                expires,
            } => {
                if self.is_new_entry(&key, offset) {
                    let entry = Entry {
                        offset,
                        expires,
                        length: u32::try_from(value.len()).unwrap_or(u32::MAX),
                    };
                    self.index.put(Key::from(key.as_ref()), entry);
                }
            }
            Keyed::Delete { key } => {
                if self.is_new_entry(&key, offset) {
                    self.index.remove(&key);
                }
            }
            Keyed::Add { key, delta, once } => {
                let held = self.sums.get(&key);
                if held.is_none_or(|held| held.offset < offset) {
                    // Compaction may have dropped the adds before this one; then a checkpoint follows.
                    let before = held.map_or(0, |held| held.sum);
                    let sum = once.as_ref().map(|once| once.sum);
                    let sum = sum.unwrap_or_else(|| before.wrapping_add(delta));
                    self.sums.add(Key::from(key.as_ref()), sum, offset);
                }
                if let Some(once) = once {
                    let what = Remembered {
                        digest: add_digest(&key, delta),
                        offset,
                        at,
                        result: once.sum,
                    };
                    self.once.remember(&once.id, what);
                    self.once.forget(at);
                }
            }
            Keyed::Checkpoint { key, sum } => {
                if self.sums.get(&key).is_none_or(|held| held.offset < offset) {
                    self.sums.checkpoint(Key::from(key.as_ref()), sum, offset);
                }
            }
        }
        self.covered = self.covered.max(offset.plus(1));
        Ok(())
    }

    fn is_new_entry(&self, key: &[u8], offset: Offset) -> bool {
        self.index
            .get(key)
            .is_none_or(|entry| entry.offset < offset)
    }
}
