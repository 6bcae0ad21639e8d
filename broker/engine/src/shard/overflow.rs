//! What an in-memory stream does when readers are slower than publishers.
//!
//! The window is bounded by what one reader can be owed. What leaves it is gone under `drop_old`;
//! it cannot leave it under `block` while a reader needs it; under `drop_new` it is kept as long
//! as a reader is owed it and the ring has room.
//!
//! ```text
//!             kept (holes where nobody is owed)      window (no holes)
//!        |##|     |####|                        |#####################|
//!        ^  ^                                   start                 committed
//!        |  cut: where what the reader is owed ends
//!        position of a slow reader
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use felix_model::Offset;

use super::Shard;
use super::readers::{Reader, Readers};
use crate::batch::Batch;
use crate::options::{Overflow, Storage};

/// Batches older than the window that slow readers are owed, in offset order.
#[derive(Debug, Default)]
pub(super) struct Kept {
    batches: VecDeque<Arc<Batch>>,
    bytes: u64,
    /// A slow reader moved on or left, so there may be batches that nobody is owed.
    loose: bool,
}

impl Kept {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is kept from `position` on.
    pub(super) fn from(&self, position: Offset) -> impl Iterator<Item = &Arc<Batch>> {
        let first = self.batches.partition_point(|batch| batch.end <= position);
        self.batches.range(first..)
    }

    fn push(&mut self, batch: Arc<Batch>) {
        self.bytes += batch.bytes_len;
        self.batches.push_back(batch);
    }

    fn pop(&mut self) -> Option<Arc<Batch>> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.bytes_len;
        Some(batch)
    }

    /// A slow reader moved on or left.
    pub(super) fn loosen(&mut self) {
        self.loose = true;
    }

    /// Forgets what nobody is owed any more, in one pass over readers and batches.
    fn sweep(&mut self, readers: &Readers) {
        if !std::mem::take(&mut self.loose) {
            return;
        }
        let owed = |reader: &Reader| Some((reader.position, reader.cut?));
        let mut owed: Vec<(Offset, Offset)> = readers.iter().filter_map(owed).collect();
        owed.sort_unstable();
        let mut owed = owed.into_iter();
        // Where what is owed to those seen so far ends; they are seen in order of where it begins,
        // and so are the batches.
        let mut next = owed.next();
        let mut until = Offset(0);
        self.batches.retain(|batch| {
            while let Some((position, cut)) = next.filter(|(position, _)| *position < batch.end) {
                debug_assert!(
                    position < cut,
                    "a reader that was cut off is owed something"
                );
                until = until.max(cut);
                next = owed.next();
            }
            batch.base < until
        });
        self.bytes = self.batches.iter().map(|batch| batch.bytes_len).sum();
    }
}

/// Is a reader that was cut off still to get it?
fn is_owed(readers: &Readers, batch: &Batch) -> bool {
    readers
        .iter()
        .any(|reader| reader.position < batch.end && reader.cut.is_some_and(|cut| cut > batch.base))
}

impl Shard {
    /// Brings the window back into its bounds after a batch was pushed.
    pub(super) fn make_room(&mut self) {
        let bound = self.window_bound();
        while let Some(batch) = self.window.pop_over(bound) {
            if self.drops_new() {
                self.cut_off(&batch);
                if is_owed(&self.readers, &batch) {
                    self.kept.push(batch);
                }
            }
        }
        if let Storage::Memory { ring_bytes, .. } = self.options.storage
            && self.window.bytes() + self.kept.bytes() > ring_bytes
        {
            self.kept.sweep(&self.readers);
            while self.window.bytes() + self.kept.bytes() > ring_bytes
                && let Some(batch) = self.kept.pop()
            {
                self.take_away(&batch);
            }
        }
    }

    /// What the window may hold.
    fn window_bound(&self) -> u64 {
        match self.options.storage {
            Storage::Durable { .. } => self.options.limits.window_bytes,
            Storage::Memory {
                ring_bytes,
                reader_bytes,
                overflow: Overflow::DropNew,
            } => {
                // Half of the ring at most, so that there is room to keep what a slow reader is
                // owed.
                reader_bytes.min(ring_bytes / 2)
            }
            Storage::Memory {
                ring_bytes,
                reader_bytes,
                ..
            } => reader_bytes.min(ring_bytes),
        }
    }

    fn drops_new(&self) -> bool {
        matches!(
            self.options.storage,
            Storage::Memory {
                overflow: Overflow::DropNew,
                ..
            }
        )
    }

    /// A batch has left the window because a newer one came in: to a reader that still needs the
    /// old one, the new one is lost.
    fn cut_off(&mut self, batch: &Batch) {
        let Some(newest) = self.window.newest_base() else {
            return;
        };
        for reader in self.readers.iter_mut() {
            if reader.cut.is_none() && reader.position < batch.end {
                reader.cut = Some(newest);
            }
        }
    }

    /// The ring is full of what slow readers are owed: the oldest of it is lost to them as well.
    fn take_away(&mut self, batch: &Batch) {
        let end = self.committed;
        let mut lost = 0;
        for reader in self.readers.iter_mut() {
            if let Some(cut) = reader.cut
                && reader.position < batch.end
                && cut > batch.base
            {
                lost += reader.lose_until(if batch.end < cut { batch.end } else { end });
            }
        }
        self.stats.lost_records += lost;
    }

    /// Under `drop_old`: a reader that was overrun goes on with the oldest there is.
    pub(super) fn settle(&mut self, slot: u32) {
        if self.is_durable() || self.drops_new() {
            return;
        }
        let oldest = self.window.start();
        if let Some(reader) = self.reader_mut(slot)
            && reader.position < oldest
        {
            let lost = reader.lose_until(oldest);
            self.stats.lost_records += lost;
        }
    }

    /// Under `drop_new`: a reader that was cut off and has taken all it was owed goes on with what
    /// is published next.
    pub(super) fn rejoin(&mut self, slot: u32) {
        let end = self.committed;
        let Some(reader) = self.reader_mut(slot) else {
            return;
        };
        let Some(cut) = reader.cut else { return };
        if reader.position >= cut {
            let lost = reader.lose_until(end);
            self.stats.lost_records += lost;
        }
        self.kept.loosen();
    }

    /// Under `block`: can a batch be taken in without pushing out what a reader needs?
    pub(super) fn has_ring_room(&self, bytes: u64) -> bool {
        let over = (self.window.bytes() + bytes).saturating_sub(self.window_bound());
        if over == 0 {
            return true;
        }
        let needed = self.readers.iter().map(|reader| reader.position).min();
        let mut free = 0;
        let free_enough = |batch: &Arc<Batch>| {
            free += batch.bytes_len;
            free >= over
        };
        match needed {
            None => true,
            Some(needed) if needed >= self.committed => true,
            Some(needed) => self
                .window
                .iter()
                .take_while(|batch| batch.end <= needed)
                .any(free_enough),
        }
    }

    /// What readers lost that will be told when they come back.
    pub(super) fn lost_so_far(&self) -> u64 {
        self.readers
            .iter()
            .map(|reader| self.lost_so_far_by(reader))
            .sum()
    }

    pub(super) fn lost_so_far_by(&self, reader: &Reader) -> u64 {
        if self.is_durable() {
            return 0;
        }
        match reader.cut {
            Some(cut) => self.committed.0 - cut.0,
            None if self.drops_new() => 0,
            None => self.window.start().0.saturating_sub(reader.position.0),
        }
    }
}

impl Reader {
    /// Moves to `position` without having been given what lies before. Under `drop_new` that is
    /// also the end of having been cut off, if it leads beyond the cut.
    fn lose_until(&mut self, position: Offset) -> u64 {
        let lost = position.0.saturating_sub(self.position.0);
        self.position = position;
        self.lost += lost;
        self.lost_total += lost;
        if self.cut.is_some_and(|cut| position >= cut) {
            self.cut = None;
        }
        lost
    }
}
