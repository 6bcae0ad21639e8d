//! Copying a log while it is written, and bringing a copy back.
//!
//! A copy is a log directory like any other: segments up to a batch boundary, a durable mark, no indexes. It opens,
//! inspects and restores as one.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_model::Offset;

use crate::disk::{Disk, DiskError, DiskFile, Doing};
use crate::durable;
use crate::log::{
    Damage, End, Entry, Kind, LogOptions, Manifest, OpenFiles, OpenRefused, SearchFailed, Segment,
    Shared, Sparse, Stop, SyncFailed, mark_file, open_existing, segment_path,
};
use crate::reader::LogReader;

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Oldest offset in the copy.
    pub start: Offset,
    /// One past the newest offset in the copy (exclusive).
    pub end: Offset,
    /// Bytes of log in the copy.
    pub bytes: u64,
}

/// Why no copy was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyRefused {
    /// The place to copy to holds something already.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// There is no log to copy.
    #[error("{} holds no log", .0.display())]
    NoLog(PathBuf),
    /// What is to be copied is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// Retention removed segments as fast as they were copied.
    #[error("the log forgets faster than it can be copied")]
    TooFast,
    /// The log could not be made durable first.
    #[error(transparent)]
    NotDurable(#[from] SyncFailed),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// How often a copy starts anew because retention was quicker.
const ATTEMPTS: usize = 3;

/// How much is copied at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Copies everything durable that ends at or below `until` (exclusive) into an empty or missing directory. Every batch
/// is checked on the way. Blocking; writes to the log go on.
///
/// # Errors
/// See [`CopyRefused`]; what was copied so far is left for inspection.
pub fn copy(
    reader: &LogReader,
    disk: &dyn Disk,
    dir: &Path,
    until: Offset,
) -> Result<Copied, CopyRefused> {
    claim(disk, dir)?;
    let shared = reader.shared();
    let until = until.min(reader.durable_end());
    for _ in 0..ATTEMPTS {
        match copy_segments(shared, disk, dir, until.0) {
            Err(Failed::Gone) => durable::remove_contents(disk, dir)?,
            Err(Failed::Because(refused)) => return Err(refused),
            Ok(copied) => return Ok(copied),
        }
    }
    Err(CopyRefused::TooFast)
}

/// Brings a copy back: into an empty or missing directory, every batch checked on the way. Nothing may be using either.
///
/// # Errors
/// See [`CopyRefused`].
pub fn restore(
    disk: &Arc<dyn Disk>,
    from: &Path,
    to: &Path,
    until: Offset,
) -> Result<Copied, CopyRefused> {
    let files = OpenFiles::new(Arc::clone(disk), 1);
    let options = LogOptions {
        verify_bytes: u64::MAX,
        ..LogOptions::default()
    };
    let reader = match open_existing(&files, from, options) {
        Ok(Some(reader)) => reader,
        Ok(None) => return Err(CopyRefused::NoLog(from.to_path_buf())),
        Err(OpenRefused::Damaged(damage)) => return Err(damage.into()),
        Err(OpenRefused::Io(error)) => return Err(error.into()),
        Err(OpenRefused::InUse { dir }) => {
            let busy = io::ErrorKind::ResourceBusy.into();
            return Err(DiskError::new("open", &dir, &busy).into());
        }
    };
    copy(&reader, disk.as_ref(), to, until)
}

/// Makes sure that a directory is there and empty.
fn claim(disk: &dyn Disk, dir: &Path) -> Result<(), CopyRefused> {
    durable::create_dirs(disk, dir)?;
    if disk.list(dir).doing("list", dir)?.is_empty() {
        Ok(())
    } else {
        Err(CopyRefused::NotEmpty(dir.to_path_buf()))
    }
}

enum Failed {
    /// Retention was quicker.
    Gone,
    Because(CopyRefused),
}

impl From<DiskError> for Failed {
    fn from(error: DiskError) -> Self {
        Self::Because(error.into())
    }
}

fn copy_segments(
    shared: &Shared,
    disk: &dyn Disk,
    dir: &Path,
    until: u64,
) -> Result<Copied, Failed> {
    let segments: Vec<Arc<Segment>> = shared
        .segments()
        .iter()
        .filter(|segment| segment.base <= until)
        .cloned()
        .collect();
    let start = segments.first().map_or(until, |segment| segment.base);
    let mut copied = Copied {
        start: Offset(start),
        end: Offset(start),
        bytes: 0,
    };
    let mut place = None;
    let mut manifest = Manifest::default();
    for segment in &segments {
        let file = match segment.file(shared) {
            Ok(file) => file,
            Err(SearchFailed::Gone) => return Err(Failed::Gone),
            Err(SearchFailed::Io(error)) => return Err(error.into()),
        };
        let end = boundary(shared, segment, file.as_ref(), until)?;
        copy_bytes(
            file.as_ref(),
            disk,
            &segment_path(dir, segment.base, Kind::Log),
            end.bytes,
        )?;
        if let Some(sparse) = segment.sparse {
            manifest.put(entry_of(segment.base, sparse, &end));
        }
        copied.end = Offset(end.next);
        copied.bytes += end.bytes;
        place = Some(end);
    }
    manifest.cleaned_to = shared.cleaned_to().min(copied.end.0);
    manifest.tombstone_floor = shared.tombstone_floor().min(copied.end.0);
    if !manifest.is_blank() {
        manifest.write(disk, dir)?;
    }
    if let Some(place) = place {
        durable::replace(disk, &mark_file(dir), &place.mark(disk))?;
    }
    disk.sync_dir(dir).doing("sync", dir)?;
    Ok(copied)
}

/// What a copy's manifest says of a segment that ends there.
fn entry_of(base: u64, sparse: Sparse, end: &End) -> Entry {
    let copied = Sparse {
        bytes: end.bytes,
        next: end.next,
    };
    Entry {
        base,
        sparse: if end.bytes < sparse.bytes || end.next < sparse.next {
            copied
        } else {
            sparse
        },
        serial: 0,
    }
}

/// Where a segment's copy ends: the last batch boundary at or below `until`, with everything before it checked.
fn boundary(
    shared: &Shared,
    segment: &Segment,
    file: &dyn DiskFile,
    until: u64,
) -> Result<End, Failed> {
    let mut scan = segment.scan(file, 0, segment.base);
    let mut end = End::empty(segment.base);
    loop {
        match scan.next() {
            Ok(Some(found)) if found.next() > until => return Ok(end),
            Ok(Some(found)) => end.grow(&found, &scan),
            Ok(None) => {
                end.next = scan.expected.min(until);
                return Ok(end);
            }
            Err(Stop::Bad(kind)) => {
                let damage = segment.damage(shared, scan.position, scan.expected, kind);
                return Err(Failed::Because(damage.into()));
            }
            Err(Stop::Io(error)) => {
                return Err(DiskError::new("read", &segment.path(shared), &error).into());
            }
        }
    }
}

fn copy_bytes(
    from: &dyn DiskFile,
    disk: &dyn Disk,
    to: &Path,
    bytes: u64,
) -> Result<(), DiskError> {
    let file = durable::create(disk, to)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut position = 0;
    while position < bytes {
        let want = usize::try_from(bytes - position)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        let Some(chunk) = buffer.get_mut(..want) else {
            break;
        };
        let read = crate::disk::read_full(from, chunk, position).doing("read", to)?;
        if read < want {
            let error = io::ErrorKind::UnexpectedEof.into();
            return Err(DiskError::new("read", to, &error));
        }
        file.write_at(&[IoSlice::new(chunk)], position)
            .doing("write", to)?;
        position += want as u64;
    }
    file.sync_data().doing("sync", to)
}
