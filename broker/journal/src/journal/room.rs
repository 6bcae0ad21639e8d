//! Room on the disk: looked at from time to time, so that writes can be refused before the disk is really full.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::disk::{Disk, DiskError, Doing, Space};
use crate::limits;

/// The room on one file system.
#[derive(Debug)]
pub(super) struct Room {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    total: AtomicU64,
    available: AtomicU64,
    full: AtomicBool,
    low: AtomicBool,
}

impl Room {
    /// Looks for the first time.
    pub(super) fn new(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, DiskError> {
        let space = disk.space(root).doing("measure", root)?;
        let room = Self {
            disk,
            root: root.to_path_buf(),
            total: AtomicU64::new(0),
            available: AtomicU64::new(0),
            full: AtomicBool::new(false),
            low: AtomicBool::new(false),
        };
        room.set(space);
        Ok(room)
    }

    pub(super) fn space(&self) -> Space {
        Space {
            total: self.total.load(Ordering::Relaxed),
            available: self.available.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Looks again. A disk that cannot tell is taken to be as it was.
    pub(super) fn look(&self) {
        match self.disk.space(&self.root) {
            Ok(space) => self.set(space),
            Err(error) => {
                tracing::warn!(%error, root = %self.root.display(), "room on the disk unknown")
            }
        }
    }

    fn set(&self, space: Space) {
        self.total.store(space.total, Ordering::Relaxed);
        self.available.store(space.available, Ordering::Relaxed);
        let (total, available) = (space.total, space.available);
        let full = is_full(space);
        if self.full.swap(full, Ordering::Relaxed) != full {
            if full {
                tracing::error!(total, available, "disk is nearly full; writes are refused");
            } else {
                tracing::info!(total, available, "disk has room again; writes are taken");
            }
        }
        let low = available < total / 100 * limits::LOW_DISK_WARN_PERCENT;
        if !self.low.swap(low, Ordering::Relaxed) && low {
            tracing::warn!(total, available, "disk is filling up");
        }
    }
}

/// Whether so little is left that writes are refused, to keep room for marks, seals and the operator.
fn is_full(space: Space) -> bool {
    let share = space.total / 100 * limits::LOW_DISK_REFUSE_PERCENT;
    space.available < share.min(limits::LOW_DISK_REFUSE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_at_two_percent_or_one_gibibyte_whichever_is_less() {
        const GIB: u64 = 1 << 30;
        for (total, available, full) in [
            (20_000_000, 400_000, false),
            (20_000_000, 399_999, true),
            (10_000 * GIB, GIB, false),
            (10_000 * GIB, GIB - 1, true),
        ] {
            assert_eq!(
                is_full(Space { total, available }),
                full,
                "{available} of {total}"
            );
        }
    }
}
