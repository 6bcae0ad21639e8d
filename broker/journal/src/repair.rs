//! What an operator may do with a log that was refused: cut it at a place he names, or drop it. Offline: nothing may be
//! using the log.

use std::path::Path;

use felix_model::Offset;

use crate::disk::{Disk, DiskError, Doing};
use crate::durable;
use crate::log::{
    Damage, DamageKind, End, Held, Kind, Listing, Scan, Sparse, Stop, mark_file, segment_path,
};

/// What a repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// One past the newest offset kept (exclusive).
    pub end: Offset,
    /// Bytes of log cut off, later segments included.
    pub cut_bytes: u64,
    /// Segments removed whole.
    pub removed_segments: usize,
}

/// Why nothing was repaired. Nothing was changed, unless the disk failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairRefused {
    /// The place named is not where the good batches of that segment end or a batch begins.
    #[error(
        "segment {segment} has no batch boundary at byte {position}; the nearest before it is at {nearest}"
    )]
    NotABoundary {
        /// The segment, by its first offset.
        segment: Offset,
        /// The place asked for.
        position: u64,
        /// The last boundary before it.
        nearest: u64,
    },
    /// There is no such segment.
    #[error("there is no segment {segment}")]
    NoSegment {
        /// First offset asked for.
        segment: Offset,
    },
    /// Something before that place is damaged as well, so that cutting there would not help.
    #[error("damaged before that place: {0}")]
    DamagedBefore(Damage),
    /// The disk failed; asking again goes on where it stopped.
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// Cuts a log at a byte of a segment: everything before it stays, everything after it, later segments included, goes.
/// The place is the one an inspection or a refused open named, so that nobody cuts by guess.
///
/// # Errors
/// See [`RepairRefused`].
pub fn cut(
    disk: &dyn Disk,
    dir: &Path,
    segment: Offset,
    position: u64,
) -> Result<Repaired, RepairRefused> {
    let listing = Listing::read(disk, dir)?;
    if let Some(damage) = listing.bad_manifest {
        return Err(RepairRefused::DamagedBefore(damage));
    }
    let Some(at) = listing.logs.iter().position(|held| held.base == segment.0) else {
        return Err(RepairRefused::NoSegment { segment });
    };
    let mut end = End::empty(segment.0);
    let mut before: Option<u64> = None;
    for held in listing.logs.iter().take(at + 1) {
        let base = held.base;
        if let Some(expected) = before.filter(|expected| *expected != base) {
            let kind = DamageKind::MissingSegment {
                expected: Offset(expected),
                found: Offset(base),
            };
            return Err(damaged(dir, base, 0, expected, kind));
        }
        let limit = if base == segment.0 {
            position.min(held.bytes)
        } else {
            held.bytes
        };
        end = good_until(disk, dir, held, limit, end.generation)?;
        before = Some(end.next);
    }
    if end.bytes != position {
        return Err(RepairRefused::NotABoundary {
            segment,
            position,
            nearest: end.bytes,
        });
    }
    apply(disk, dir, &listing, at, &end)
}

/// Reads a segment up to a place; damage before it is refused, unless it is where the place itself is.
fn good_until(
    disk: &dyn Disk,
    dir: &Path,
    held: &Held,
    limit: u64,
    generation: u32,
) -> Result<End, RepairRefused> {
    let (base, path) = (held.base, held.path(dir));
    let file = disk.open_read_only(&path).doing("open", &path)?;
    let mut scan = Scan::new(file.as_ref(), 0, base, limit).sparse(held.sparse);
    let mut end = End {
        generation,
        ..End::empty(base)
    };
    loop {
        match scan.next() {
            Ok(Some(found)) => end.grow(&found, &scan),
            Ok(None) => {
                end.next = scan.expected;
                return Ok(end);
            }
            Err(Stop::Bad(kind)) => {
                return Err(damaged(dir, base, scan.position, scan.expected, kind));
            }
            Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error).into()),
        }
    }
}

fn damaged(dir: &Path, base: u64, position: u64, offset: u64, kind: DamageKind) -> RepairRefused {
    let file = segment_path(dir, base, Kind::Log);
    RepairRefused::DamagedBefore(Damage {
        file,
        position,
        offset: Offset(offset),
        kind,
    })
}

/// The mark first, then the newest segment, so that a crash half way leaves a log that is longer, not one with a hole.
fn apply(
    disk: &dyn Disk,
    dir: &Path,
    listing: &Listing,
    at: usize,
    end: &End,
) -> Result<Repaired, RepairRefused> {
    durable::replace(disk, &mark_file(dir), &end.mark(disk))?;
    let later = listing.logs.get(at + 1..).unwrap_or_default();
    let mut cut_bytes = 0;
    for held in later.iter().rev() {
        durable::unlink(disk, &held.path(dir))?;
        for kind in [Kind::Log, Kind::Seal, Kind::TimeIndex, Kind::Index] {
            durable::unlink(disk, &segment_path(dir, held.base, kind))?;
        }
        cut_bytes += held.bytes;
    }
    let held = listing.logs.get(at);
    let path = held.map_or_else(
        || segment_path(dir, end.segment, Kind::Log),
        |held| held.path(dir),
    );
    let length = held.map_or(0, |held| held.bytes);
    shorten_manifest(disk, dir, listing, end)?;
    for kind in [Kind::Seal, Kind::TimeIndex, Kind::Index] {
        durable::unlink(disk, &segment_path(dir, end.segment, kind))?;
    }
    let file = disk.open(&path).doing("open", &path)?;
    file.set_len(end.bytes).doing("cut", &path)?;
    file.sync_data().doing("sync", &path)?;
    cut_bytes += length.saturating_sub(end.bytes);
    Ok(Repaired {
        end: Offset(end.next),
        cut_bytes,
        removed_segments: later.len(),
    })
}

/// Lets the manifest say no more than will be there. Nothing that follows the cut was compacted.
fn shorten_manifest(
    disk: &dyn Disk,
    dir: &Path,
    listing: &Listing,
    end: &End,
) -> Result<(), DiskError> {
    let mut manifest = listing.manifest.clone();
    manifest.entries.retain(|entry| entry.base <= end.segment);
    if let Some(entry) = manifest.entries.last_mut()
        && entry.base == end.segment
        && entry.sparse.bytes > end.bytes
    {
        entry.sparse = Sparse {
            bytes: end.bytes,
            next: end.next,
        };
    }
    manifest.cleaned_to = manifest.cleaned_to.min(end.next);
    manifest.tombstone_floor = manifest.tombstone_floor.min(end.next);
    if manifest == listing.manifest {
        return Ok(());
    }
    manifest.write(disk, dir)
}

/// Removes a log for good, whatever state it is in.
///
/// # Errors
/// The disk's; asking again goes on where it stopped.
pub fn drop_log(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    durable::remove_log(disk, dir)
}
