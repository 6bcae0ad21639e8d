//! What is held in memory, and what slow readers lose.

use felix_engine::{Overflow, Storage};

use super::{Entry, Model, Reader};

impl Model {
    /// Moves the start of the window, and in memory settles who loses what.
    pub(super) fn evict(&mut self) {
        let bound = self.window_bound();
        let newest = self.committed;
        while self.held_bytes(self.window_start, newest) > bound {
            let Some(oldest) = self
                .log
                .iter()
                .find(|entry| entry.base >= self.window_start)
            else {
                return;
            };
            if oldest.end == newest {
                return self.fit_ring();
            }
            self.window_start = oldest.end;
        }
        self.fit_ring();
    }

    pub(super) fn fit_ring(&mut self) {
        let Storage::Memory {
            ring_bytes,
            overflow: Overflow::DropNew,
            ..
        } = self.options.storage
        else {
            return;
        };
        let newest = self
            .log
            .iter()
            .rfind(|entry| entry.end <= self.committed)
            .unwrap()
            .base;
        for reader in self.readers.values_mut() {
            if reader.cut.is_none() && reader.position < self.window_start {
                reader.cut = Some(newest);
            }
        }
        loop {
            let kept: Vec<Entry> = self
                .log
                .iter()
                .filter(|entry| entry.end <= self.window_start)
                .filter(|entry| self.readers.values().any(|reader| is_owed(reader, entry)))
                .copied()
                .collect();
            let bytes: u64 = kept.iter().map(|entry| entry.bytes).sum();
            let window = self.held_bytes(self.window_start, self.committed);
            let Some(oldest) = kept.first().filter(|_| window + bytes > ring_bytes) else {
                return;
            };
            for reader in self
                .readers
                .values_mut()
                .filter(|reader| is_owed(reader, oldest))
            {
                if reader.cut == Some(oldest.end) {
                    lose_until(reader, self.committed);
                    reader.cut = None;
                } else {
                    lose_until(reader, oldest.end);
                }
            }
        }
    }

    pub(super) fn window_bound(&self) -> u64 {
        match self.options.storage {
            Storage::Durable { .. } => self.options.limits.window_bytes,
            Storage::Memory {
                ring_bytes,
                reader_bytes,
                overflow: Overflow::DropNew,
            } => reader_bytes.min(ring_bytes / 2),
            Storage::Memory {
                ring_bytes,
                reader_bytes,
                ..
            } => reader_bytes.min(ring_bytes),
        }
    }

    pub(super) fn held_bytes(&self, from: u64, to: u64) -> u64 {
        let inside = self
            .log
            .iter()
            .filter(|entry| entry.base >= from && entry.end <= to);
        inside.map(|entry| entry.bytes).sum()
    }

    /// Under `block`: is it enough to drop what all readers have?
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let slowest = self.readers.values().map(|reader| reader.position).min();
        let needed = slowest.unwrap_or(self.committed).max(self.window_start);
        let needed = self
            .log
            .iter()
            .map(|entry| entry.base)
            .rfind(|&base| base <= needed)
            .map_or(0, |base| {
                if needed < self.committed {
                    base
                } else {
                    needed
                }
            });
        needed >= self.committed
            || self.held_bytes(needed.max(self.window_start), self.committed) + bytes
                <= self.window_bound()
    }

    pub(super) fn lost_so_far(&self, reader: &Reader) -> u64 {
        match reader.cut {
            Some(cut) => self.committed - cut,
            None if self.is_durable() || self.drops_new() => 0,
            None => self.window_start.saturating_sub(reader.position),
        }
    }
}

fn is_owed(reader: &Reader, entry: &Entry) -> bool {
    reader.position < entry.end && reader.cut.is_some_and(|cut| cut > entry.base)
}

pub(super) fn lose_until(reader: &mut Reader, position: u64) {
    reader.lost += position - reader.position;
    reader.lost_total += position - reader.position;
    reader.position = position;
}
