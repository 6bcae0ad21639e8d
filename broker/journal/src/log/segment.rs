//! One segment as readers and the writer share it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use felix_model::Offset;

use super::index::{Index, Placed, Point};
use super::manifest::Sparse;
use super::names::{self, Kind};
use super::scan::{Found, Scan, Stop};
use super::seal::FileSum;
use super::shared::Shared;
use super::{Damage, DamageKind};
use crate::disk::{DiskError, DiskFile, Doing};
use crate::durable;

/// One segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its name in the cache of open files.
    pub(crate) id: u64,
    /// First offset.
    pub(crate) base: u64,
    /// The part of it that compaction wrote.
    pub(crate) sparse: Option<Sparse>,
    /// Its file still has the name that compaction gave it, with this serial. Only in a log that is looked at and not
    /// opened.
    pub(crate) swap: Option<u64>,
    /// Compaction put another file into its place: what is opened by its name is not its file any more.
    replaced: AtomicBool,
    /// Compaction reads it and will replace it: retention leaves it alone.
    busy: AtomicBool,
    bytes: AtomicU64,
    next: AtomicU64,
    max_timestamp: AtomicI64,
    /// Sums of its index files, once it is sealed.
    pub(crate) sums: OnceLock<(FileSum, FileSum)>,
    live: Mutex<Live>,
}

/// What the writer keeps open.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Held from the first write to the sync after the last: a file closed while dirty could lose its error.
    pub(crate) file: Option<Arc<dyn DiskFile>>,
    /// The indexes while they grow.
    pub(crate) index: Option<Index>,
}

/// How far a segment reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Length of the file.
    pub(crate) bytes: u64,
    /// First offset after it.
    pub(crate) next: u64,
    /// Largest record time, or -1.
    pub(crate) max_timestamp: i64,
}

/// Why a segment could not be searched.
#[derive(Debug)]
pub(crate) enum SearchFailed {
    /// The file is no longer there: retention was quicker, or compaction put another into its place.
    Gone,
    /// The disk failed.
    Io(DiskError),
}

impl Segment {
    pub(crate) fn new(id: u64, base: u64, reach: Reach) -> Self {
        Self {
            id,
            base,
            sparse: None,
            swap: None,
            replaced: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            bytes: AtomicU64::new(reach.bytes),
            next: AtomicU64::new(reach.next),
            max_timestamp: AtomicI64::new(reach.max_timestamp),
            sums: OnceLock::new(),
            live: Mutex::new(Live::default()),
        }
    }

    /// The same, the front of which compaction wrote.
    pub(crate) fn with_sparse(mut self, sparse: Option<Sparse>) -> Self {
        self.sparse = sparse;
        self
    }

    /// A walk over its batches from a position, where `expected` is the offset that belongs there.
    pub(crate) fn scan<'file>(
        &self,
        file: &'file dyn DiskFile,
        position: u64,
        expected: u64,
    ) -> Scan<'file> {
        Scan::new(file, position, expected, self.bytes()).sparse(self.sparse)
    }

    /// Says that its name will lead to another file.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::SeqCst);
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    pub(crate) fn max_timestamp(&self) -> i64 {
        self.max_timestamp.load(Ordering::Acquire)
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach {
            bytes: self.bytes(),
            next: self.next(),
            max_timestamp: self.max_timestamp(),
        }
    }

    /// Shows readers what was written. The length goes last: it is what they go by.
    pub(crate) fn publish(&self, reach: Reach) {
        self.max_timestamp
            .store(reach.max_timestamp, Ordering::Release);
        self.next.store(reach.next, Ordering::Release);
        self.bytes.store(reach.bytes, Ordering::Release);
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, shared: &Shared) -> PathBuf {
        match self.swap {
            Some(serial) => names::cleaned(&shared.dir, self.base, serial),
            None => shared.path(self.base, Kind::Log),
        }
    }

    /// The file, opened when it is not.
    pub(crate) fn file(&self, shared: &Shared) -> Result<Arc<dyn DiskFile>, SearchFailed> {
        if let Some(file) = &self.live().file {
            return Ok(Arc::clone(file));
        }
        let path = self.path(shared);
        let file = shared.files.open(self.id, &path).map_err(|error| {
            match DiskError::new("open", &path, &error) {
                error if error.is_missing() => SearchFailed::Gone,
                error => SearchFailed::Io(error),
            }
        })?;
        // Asked after opening, and said before the name changes: a file that passes is the right one.
        if self.replaced.load(Ordering::SeqCst) {
            shared.files.forget(self.id);
            return Err(SearchFailed::Gone);
        }
        Ok(file)
    }

    /// Offset less the base, as the indexes have it.
    pub(crate) fn relative(&self, offset: u64) -> u32 {
        u32::try_from(offset.saturating_sub(self.base)).unwrap_or(u32::MAX)
    }

    /// Asks the indexes, wherever they are.
    pub(crate) fn with_index<T>(
        &self,
        shared: &Shared,
        ask: impl FnOnce(&Index) -> T,
    ) -> Result<T, SearchFailed> {
        if let Some(index) = &self.live().index {
            return Ok(ask(index));
        }
        if let Some(index) = shared.files.index(self.id) {
            return Ok(ask(&index));
        }
        let index = Arc::new(self.load_index(shared)?);
        shared.files.keep_index(self.id, Arc::clone(&index));
        Ok(ask(&index))
    }

    /// Where to start looking for `offset`: the point is not proved yet.
    pub(crate) fn point_before(
        &self,
        shared: &Shared,
        offset: u64,
    ) -> Result<Option<Point>, SearchFailed> {
        let relative = self.relative(offset);
        self.with_index(shared, |index| index.before(relative))
    }

    /// Reads the indexes from their files, or makes them again from the segment.
    pub(crate) fn load_index(&self, shared: &Shared) -> Result<Index, SearchFailed> {
        let file = self.file(shared)?;
        if let Some(index) = self.read_index(shared).map_err(SearchFailed::Io)? {
            if self.sums.get().is_some() {
                return Ok(index);
            }
            // An index without a seal may be short; what is missing is added from its last point on.
            if let Some(index) = self.extend(index, file.as_ref()) {
                return Ok(index);
            }
        }
        self.build_index(shared)
    }

    fn read_index(&self, shared: &Shared) -> Result<Option<Index>, DiskError> {
        let disk = shared.files.disk().as_ref();
        let points = durable::read(disk, &shared.path(self.base, Kind::Index))?;
        let moments = durable::read(disk, &shared.path(self.base, Kind::TimeIndex))?;
        let (Some(points), Some(moments)) = (points, moments) else {
            return Ok(None);
        };
        let sums = (FileSum::of(&points), FileSum::of(&moments));
        if self.sums.get().is_some_and(|sealed| *sealed != sums) {
            return Ok(None);
        }
        Ok(Index::decode(&points, &moments, self.bytes()))
    }

    /// Adds to an index what lies after its last point; none when that point is not true.
    fn extend(&self, mut index: Index, file: &dyn DiskFile) -> Option<Index> {
        let (position, expected) = match index.tail() {
            None => (0, self.base),
            Some(point) => {
                let header = read_header(file, u64::from(point.position)).ok()??;
                let base = u64::try_from(header.base_offset).ok()?;
                let last = header.next_offset().0.checked_sub(1)?;
                if last != self.base + u64::from(point.last) {
                    return None;
                }
                (u64::from(point.position), base)
            }
        };
        let mut scan = self.scan(file, position, expected);
        let known = index.tail().map(|point| point.last);
        while let Some(found) = scan.next().ok()? {
            let placed = self.placed(&found);
            if known.is_none_or(|known| placed.last > known) {
                index.note(placed);
            }
        }
        Some(index)
    }

    /// Makes the indexes from the segment. Damage ends them early: what lies before it can still be found.
    pub(crate) fn build_index(&self, shared: &Shared) -> Result<Index, SearchFailed> {
        let file = self.file(shared)?;
        let mut index = Index::default();
        let mut scan = self.scan(file.as_ref(), 0, self.base);
        loop {
            match scan.next() {
                Ok(Some(found)) => index.note(self.placed(&found)),
                Ok(None) | Err(Stop::Bad(_)) => break,
                Err(Stop::Io(error)) => {
                    return Err(SearchFailed::Io(DiskError::new(
                        "read",
                        &self.path(shared),
                        &error,
                    )));
                }
            }
        }
        index.finish();
        Ok(index)
    }

    /// Replaces an index that gave a false answer.
    pub(crate) fn rebuild_index(&self, shared: &Shared) -> Result<(), SearchFailed> {
        tracing::warn!(segment = %self.path(shared).display(), "index is wrong and is rebuilt");
        let index = self.build_index(shared)?;
        let mut live = self.live();
        if live.index.is_some() {
            live.index = Some(index);
            return Ok(());
        }
        drop(live);
        shared.files.keep_index(self.id, Arc::new(index));
        Ok(())
    }

    /// What the indexes note of a batch.
    pub(crate) fn placed(&self, found: &Found) -> Placed {
        Placed {
            position: found.position,
            last: self.relative(found.next().saturating_sub(1)),
            max_timestamp: found.header.max_timestamp,
        }
    }

    pub(crate) fn damage(
        &self,
        shared: &Shared,
        position: u64,
        offset: u64,
        kind: DamageKind,
    ) -> Damage {
        Damage {
            file: self.path(shared),
            position,
            offset: Offset(offset),
            kind,
        }
    }
}

/// The batch header at a position; none when there is none.
fn read_header(
    file: &dyn DiskFile,
    position: u64,
) -> std::io::Result<Option<felix_model::BatchHeader>> {
    let mut bytes = [0; felix_model::HEADER_BYTES];
    let read = crate::disk::read_full(file, &mut bytes, position)?;
    let header = bytes.get(..read).unwrap_or_default();
    Ok(felix_model::BatchHeader::parse(header).ok())
}

/// Writes a derived file: in place and unsynced, for nothing is lost with it.
pub(crate) fn write_derived(shared: &Shared, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let disk = shared.files.disk();
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let (file, durable::Unsynced) = durable::create_unsynced(disk.as_ref(), path)?;
            file
        }
        Err(error) => return Err(DiskError::new("open", path, &error)),
    };
    file.write_at(&[std::io::IoSlice::new(bytes)], 0)
        .doing("write", path)?;
    file.set_len(bytes.len() as u64).doing("cut", path)
}
