//! What the batches in flight will have done: the tail, as far as it differs from what is committed.

use std::collections::HashMap;

use bytes::Bytes;
use felix_model::{Offset, TimeMs};

use super::{Flight, Found, Staged};
use crate::keyed::Key;

/// The newest record in flight of each key.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    entries: HashMap<Key, Pending>,
    sums: HashMap<Key, (i64, Offset)>,
}

/// The newest record in flight of a cache entry.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) offset: Offset,
    /// `None` after a delete.
    value: Option<(Bytes, Option<TimeMs>)>,
}

impl Pending {
    /// The entry it leaves, if that is live.
    pub(super) fn found(&self, now: TimeMs) -> Option<Found> {
        let (value, expires) = self.value.as_ref()?;
        expires.is_none_or(|at| at > now).then(|| Found {
            version: self.offset,
            expires: *expires,
            length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            value: Some(value.clone()),
        })
    }
}

impl Overlay {
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Pending> {
        self.entries.get(key)
    }

    pub(super) fn entry_key(&self, key: &[u8]) -> Option<Key> {
        self.entries
            .get_key_value(key)
            .map(|(key, _)| Key::clone(key))
    }

    /// The sum in flight and the offset that made it.
    pub(super) fn sum(&self, key: &[u8]) -> Option<(i64, Offset)> {
        self.sums.get(key).copied()
    }

    pub(super) fn sum_key(&self, key: &[u8]) -> Option<Key> {
        self.sums.get_key_value(key).map(|(key, _)| Key::clone(key))
    }

    /// Takes note of a record that goes out at `offset`.
    pub(super) fn stage(&mut self, offset: Offset, record: &Staged) {
        match record {
            Staged::Put {
                key,
                value,
                expires,
            } => {
                let value = Some((value.clone(), *expires));
                self.entries
                    .insert(Key::clone(key), Pending { offset, value });
            }
            Staged::Delete { key } => {
                let value = None;
                self.entries
                    .insert(Key::clone(key), Pending { offset, value });
            }
            Staged::Add { key, sum } | Staged::Checkpoint { key, sum } => {
                self.sums.insert(Key::clone(key), (*sum, offset));
            }
        }
    }

    /// The record at `offset` is committed: unless a later one is in flight, its key is settled.
    pub(super) fn settle(&mut self, offset: Offset, record: &Staged) {
        match record {
            Staged::Put { key, .. } | Staged::Delete { key } => {
                if self
                    .entries
                    .get(key)
                    .is_some_and(|held| held.offset == offset)
                {
                    self.entries.remove(key);
                }
            }
            Staged::Add { key, .. } | Staged::Checkpoint { key, .. } => {
                if self.sums.get(key).is_some_and(|(_, held)| *held == offset) {
                    self.sums.remove(key);
                }
            }
        }
    }

    /// Starts again from the batches that are still in flight.
    pub(super) fn rebuild<'a>(&mut self, flights: impl Iterator<Item = &'a Flight>) {
        self.entries.clear();
        self.sums.clear();
        for flight in flights {
            for (offset, record) in (flight.base.0..).zip(&flight.records) {
                self.stage(Offset(offset), record);
            }
        }
    }
}
