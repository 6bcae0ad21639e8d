//! The only way to change directory entries: each helper also syncs the directory, so that a power cut cannot
//! undo it or do it out of order.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskError, DiskFile, Doing};

/// Creates an empty file whose name survives a power cut.
///
/// # Errors
/// The disk's, `AlreadyExists` among them.
pub fn create(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, DiskError> {
    let file = disk.create(path).doing("create", path)?;
    sync_parent(disk, path)?;
    Ok(file)
}

/// Renames within one directory; durable when it returns.
///
/// # Errors
/// The disk's; after a failed sync either name may survive a power cut.
pub fn rename(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), DiskError> {
    disk.rename(from, to).doing("rename", from)?;
    sync_parent(disk, to)
}

/// Removes a file's name; durable when it returns. A file that is not there is removed already.
///
/// # Errors
/// The disk's.
pub fn unlink(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    match disk.unlink(path) {
        Ok(()) => sync_parent(disk, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DiskError::new("remove", path, &error)),
    }
}

/// Creates a directory and those above it that are missing, syncing each parent. Parents of those that are there
/// already are synced as well: whoever created them may have been interrupted before that.
///
/// # Errors
/// The disk's.
pub fn create_dirs(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Asking to create it says whether it is there, at the same price for a directory of ten thousand entries.
    let created = match (disk.create_dir(dir), parent) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_dirs(disk, parent)?;
            return match disk.create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(DiskError::new("create", dir, &error))
                }
                // Made here, or by somebody who was quicker and may not have synced yet.
                Ok(()) | Err(_) => sync_parent(disk, dir),
            };
        }
        (created, _) => created,
    };
    match created {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Only the way through an older directory may be open to us.
        Err(error) => {
            return match disk.list(dir) {
                Err(listed) if listed.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                Ok(_) => Ok(()),
                Err(_) => Err(DiskError::new("create", dir, &error)),
            };
        }
    }
    let Some(parent) = parent else { return Ok(()) };
    create_dirs(disk, parent)?;
    match disk.sync_dir(parent) {
        // What may not even be opened was not created here.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.doing("sync", parent),
    }
}

/// Puts `bytes` into a file so that a power cut leaves the old content or the new, never a mixture.
///
/// # Errors
/// The disk's; the old content then still holds.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    unlink(disk, &temporary)?;
    let file = disk.create(&temporary).doing("create", &temporary)?;
    file.write_at(&[IoSlice::new(bytes)], 0)
        .doing("write", &temporary)?;
    file.sync_data().doing("sync", &temporary)?;
    rename(disk, &temporary, path)
}

/// Ending of a file that is being written by [`replace`]; one that is found later was never finished.
pub const TEMPORARY: &str = ".tmp";

/// Reads a whole small file; none when it is not there.
///
/// # Errors
/// The disk's.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    let file = match disk.open_read_only(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::new("open", path, &error)),
    };
    let length = file.byte_len().doing("measure", path)?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let read = crate::disk::read_full(file.as_ref(), &mut bytes, 0).doing("read", path)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Removes a log's directory and all in it. The directory is renamed first, so that a crash half way leaves no
/// log with a hole, only a directory ending in `.dropped` that a second call removes.
///
/// # Errors
/// The disk's; asking again goes on where it stopped.
pub fn remove_log(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let mut dropped = dir.as_os_str().to_os_string();
    dropped.push(".dropped");
    let dropped = PathBuf::from(dropped);
    remove_tree(disk, &dropped)?;
    match disk.rename(dir, &dropped) {
        Ok(()) => sync_parent(disk, dir)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DiskError::new("rename", dir, &error)),
    }
    remove_tree(disk, &dropped)
}

/// Removes a directory and all below it; one that is not there is removed already.
///
/// # Errors
/// The disk's; asking again goes on where it stopped.
pub fn remove_tree(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    match disk.list(dir) {
        Ok(_) => remove_contents(disk, dir)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DiskError::new("list", dir, &error)),
    }
    disk.remove_dir(dir).doing("remove", dir)?;
    sync_parent(disk, dir)
}

/// Removes all that is in a directory.
///
/// # Errors
/// The disk's; asking again goes on where it stopped.
pub fn remove_contents(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    for entry in disk.list(dir).doing("list", dir)? {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            remove_tree(disk, &path)?;
        } else {
            unlink(disk, &path)?;
        }
    }
    Ok(())
}

/// Syncs the directory that holds `path`.
fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent).doing("sync", parent)
}

/// A change of directory entries that still has to be made durable by a [`sync_later`] of that directory: what a
/// segment roll uses, so that the writer does not wait for the disk.
#[derive(Debug)]
#[must_use = "the new name is not durable until the directory is synced"]
pub(crate) struct Unsynced;

/// Creates a file without waiting for its name to be durable.
pub(crate) fn create_unsynced(
    disk: &dyn Disk,
    path: &Path,
) -> Result<(Arc<dyn DiskFile>, Unsynced), DiskError> {
    Ok((disk.create(path).doing("create", path)?, Unsynced))
}

/// Renames without waiting for it to be durable.
pub(crate) fn rename_unsynced(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
) -> Result<Unsynced, DiskError> {
    disk.rename(from, to).doing("rename", from)?;
    Ok(Unsynced)
}

/// Makes earlier unsynced changes of a directory durable.
pub(crate) fn sync_later(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    disk.sync_dir(dir).doing("sync", dir)
}

/// Removes a derived file, which nothing is lost with: one that comes back in a power cut belongs to no segment and
/// is removed at the next open.
pub(crate) fn unlink_derived(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    match disk.unlink(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError::new("remove", path, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
