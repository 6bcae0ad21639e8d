//! The open files of a data directory: as many as are allowed, least recently used closed first.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::index::Index;
use crate::disk::{Disk, DiskFile};

/// The files of one data directory that are open for reading, with their indexes. A file that a reader still
/// holds stays open until it lets go; the bound is on what is kept besides.
#[derive(Debug)]
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    capacity: usize,
    next_id: AtomicU64,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    slots: BTreeMap<u64, Slot>,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    file: Arc<dyn DiskFile>,
    index: Option<Arc<Index>>,
    used: u64,
}

impl OpenFiles {
    /// Over a disk, keeping at most `files` open.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, files: usize) -> Arc<Self> {
        Arc::new(Self {
            disk,
            capacity: files.max(1),
            next_id: AtomicU64::new(0),
            cache: Mutex::new(Cache::default()),
        })
    }

    /// How many files are kept open now.
    #[must_use]
    pub fn open_now(&self) -> usize {
        self.cache().slots.len()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// An identity for a segment, never given twice.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The file of a segment, opened when it is not.
    pub(crate) fn open(&self, id: u64, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(slot) = self.cache().touch(id) {
            return Ok(Arc::clone(&slot.file));
        }
        // The lock is not held while the disk works: two readers may open the same file, and one is kept.
        let file = self.disk.open(path)?;
        self.cache().keep(id, Arc::clone(&file), self.capacity);
        Ok(file)
    }

    /// The index of a segment, if it is in memory.
    pub(crate) fn index(&self, id: u64) -> Option<Arc<Index>> {
        self.cache().touch(id)?.index.clone()
    }

    /// Keeps the index of a segment as long as its file stays open.
    pub(crate) fn keep_index(&self, id: u64, index: Arc<Index>) {
        if let Some(slot) = self.cache().touch(id) {
            slot.index = Some(index);
        }
    }

    /// Lets a segment's file go.
    pub(crate) fn forget(&self, id: u64) {
        self.cache().slots.remove(&id);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to repair.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn touch(&mut self, id: u64) -> Option<&mut Slot> {
        self.clock += 1;
        let slot = self.slots.get_mut(&id)?;
        slot.used = self.clock;
        Some(slot)
    }

    fn keep(&mut self, id: u64, file: Arc<dyn DiskFile>, capacity: usize) {
        self.clock += 1;
        self.slots.insert(
            id,
            Slot {
                file,
                index: None,
                used: self.clock,
            },
        );
        while self.slots.len() > capacity {
            let oldest = self
                .slots
                .iter()
                .min_by_key(|(_, slot)| slot.used)
                .map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            self.slots.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn the_file_unused_for_longest_is_closed_first() {
        let disk = SimDisk::new(1);
        let paths = ["/a", "/b", "/c"].map(Path::new);
        for path in paths {
            disk.create(path).unwrap();
        }
        let files = OpenFiles::new(Arc::new(disk), 2);
        files.open(0, paths[0]).unwrap();
        files.open(1, paths[1]).unwrap();
        files.keep_index(0, Arc::default());
        files.keep_index(1, Arc::default());
        assert!(files.index(0).is_some());
        files.open(2, paths[2]).unwrap();
        assert_eq!(files.open_now(), 2);
        assert!(files.index(0).is_some());
        assert!(files.index(1).is_none());
    }
}
