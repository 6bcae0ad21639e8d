//! What the writer, the readers and the background work of a log share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::files::OpenFiles;
use super::manifest::Manifest;
use super::names::{self, Kind};
use super::segment::Segment;
use crate::disk::DiskError;

/// What the writer and the readers of a log share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The log's directory.
    pub(crate) dir: PathBuf,
    /// Where its files are opened.
    pub(crate) files: Arc<OpenFiles>,
    /// Oldest first; never empty.
    segments: RwLock<Vec<Arc<Segment>>>,
    /// First offset not written.
    end: AtomicU64,
    /// First offset not known to be durable. Invariant: durable <= end.
    durable: AtomicU64,
    /// Set by a disk failure that leaves the log in doubt: readers then stop at `durable`.
    poisoned: AtomicBool,
    /// Forgotten segments whose files are still there, oldest first. They go in this order, whoever removes them, so
    /// that a crash never leaves an older one behind a hole.
    forgotten: Mutex<Vec<Arc<Segment>>>,
    /// Held while files are synced; see [`Shared::sync`].
    syncing: Mutex<()>,
    /// What compaction did. Held by whoever changes which closed segments there are, but for retention.
    manifest: Mutex<Manifest>,
    /// The manifest's offsets, to look without waiting.
    cleaned_to: AtomicU64,
    tombstone_floor: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        dir: PathBuf,
        files: Arc<OpenFiles>,
        segments: Vec<Arc<Segment>>,
        end: u64,
        manifest: Manifest,
    ) -> Self {
        Self {
            dir,
            files,
            segments: RwLock::new(segments),
            end: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            poisoned: AtomicBool::new(false),
            forgotten: Mutex::default(),
            syncing: Mutex::default(),
            cleaned_to: AtomicU64::new(manifest.cleaned_to),
            tombstone_floor: AtomicU64::new(manifest.tombstone_floor),
            manifest: Mutex::new(manifest),
        }
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cleaned_to(&self) -> u64 {
        self.cleaned_to.load(Ordering::Acquire)
    }

    pub(crate) fn tombstone_floor(&self) -> u64 {
        self.tombstone_floor.load(Ordering::Acquire)
    }

    /// Shows what a manifest says that was written.
    pub(crate) fn show(&self, manifest: &Manifest) {
        self.cleaned_to
            .store(manifest.cleaned_to, Ordering::Release);
        self.tombstone_floor
            .store(manifest.tombstone_floor, Ordering::Release);
    }

    /// Says that deletions below `floor` (exclusive) may be gone.
    pub(crate) fn raise_floor(&self, floor: u64) {
        self.tombstone_floor.fetch_max(floor, Ordering::AcqRel);
    }

    pub(crate) fn forgotten(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.forgotten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments(&self) -> RwLockReadGuard<'_, Vec<Arc<Segment>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments_mut(&self) -> RwLockWriteGuard<'_, Vec<Arc<Segment>>> {
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self) -> u64 {
        self.segments()
            .first()
            .map_or_else(|| self.end(), |segment| segment.base)
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn set_durable(&self, durable: u64) {
        self.durable.store(durable, Ordering::Release);
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Syncs something of this log, one caller at a time. The kernel tells of a lost write once: whoever syncs the same
    /// file after the one who was told would take it for durable, so the log is poisoned before anybody else can ask.
    pub(crate) fn sync(
        &self,
        sync: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_poisoned() {
            let earlier = std::io::Error::other("an earlier sync failed");
            return Err(DiskError::new("sync", &self.dir, &earlier));
        }
        sync().inspect_err(|_| self.poison())
    }

    /// First offset a reader must not see.
    pub(crate) fn readable_end(&self) -> u64 {
        if self.is_poisoned() {
            self.durable()
        } else {
            self.end()
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments().iter().map(|segment| segment.bytes()).sum()
    }

    /// The segment that holds `offset`, or would.
    pub(crate) fn segment_of(&self, offset: u64) -> Option<Arc<Segment>> {
        let segments = self.segments();
        let after = segments.partition_point(|segment| segment.base <= offset);
        segments.get(after.checked_sub(1)?).cloned()
    }

    pub(crate) fn path(&self, base: u64, kind: Kind) -> PathBuf {
        names::path(&self.dir, base, kind)
    }
}
