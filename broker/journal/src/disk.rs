//! What the journal needs of a disk, as a trait, so that the same code runs over a real file system and over
//! one that tears, loses and reorders what was not synced.
//!
//! Everything here blocks. Nothing here is durable by itself: `sync_data` makes a file's bytes durable and
//! `sync_dir` makes a directory's entries durable, and only the helpers in `durable` pair the two.

use std::fmt::Debug;
use std::io;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod real;
mod sim;

pub use real::RealDisk;
pub use sim::{Call, CallKind, Fault, Hook, SimDisk};

/// A file system seen by the journal.
pub trait Disk: Send + Sync + Debug + 'static {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` when there is no such file; any other error is the disk's.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading only; writing through it fails.
    ///
    /// # Errors
    /// As [`Disk::open`].
    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates an empty file. Its directory entry is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; any other error is the disk's.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file or directory a new name, replacing a file that had it.
    ///
    /// # Errors
    /// Whatever the disk says; the old name then still holds.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Open handles go on working.
    ///
    /// # Errors
    /// `NotFound` when there is no such file; any other error is the disk's.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, in no particular order.
    ///
    /// # Errors
    /// `NotFound` when there is no such directory; any other error is the disk's.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;

    /// Creates one directory, whose parent exists.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; any other error is the disk's.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes one empty directory.
    ///
    /// # Errors
    /// Whatever the disk says, also when the directory is not empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// Whatever the disk says; the entries may then be lost in a power cut.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// How much room the file system holding `dir` has.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn space(&self, dir: &Path) -> io::Result<Space>;

    /// Takes a file's lock, creating the file when missing. The lock goes with the handle, also when the process
    /// is killed.
    ///
    /// # Errors
    /// `WouldBlock` while another handle holds it; any other error is the disk's.
    fn lock(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Tells one run of the machine from the next: while it stays the same, what was written but not synced is
    /// still there. None when the machine cannot say.
    fn boot(&self) -> Option<Boot>;
}

/// Identity of one run of the machine, from power on to power off.
pub type Boot = [u8; 16];

/// An open file. All methods take `&self`: one writer and any number of readers share it.
pub trait DiskFile: Send + Sync + Debug {
    /// Reads at a position, up to the length of `into`. Fewer bytes mean the end of the file.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all buffers back to back, starting at a position.
    ///
    /// # Errors
    /// Whatever the disk says; any part of the bytes may then have been written.
    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    ///
    /// # Errors
    /// Whatever the disk says. The kernel may have dropped the bytes that could not be written, so that
    /// asking again would succeed without their being there: a caller must not ask again.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file; space reserved past the new length is given back.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn byte_len(&self) -> io::Result<u64>;

    /// Reserves space up to `bytes` from the start of the file without changing its length.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot; `StorageFull` when there is no room.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes; zero for a directory.
    pub bytes: u64,
}

/// Room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total: u64,
    /// What a process without special rights may still use.
    pub available: u64,
}

/// A disk operation that failed: what was being done, to which file, and what the disk said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {doing} {}: {message}", path.display())]
pub struct DiskError {
    /// The verb, such as `open` or `sync`.
    pub doing: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The kind the operating system reported.
    pub kind: io::ErrorKind,
    /// The operating system's own words.
    pub message: String,
}

impl DiskError {
    /// Wraps an error of the operating system.
    #[must_use]
    pub fn new(doing: &'static str, path: &Path, error: &io::Error) -> Self {
        Self {
            doing,
            path: path.to_path_buf(),
            kind: error.kind(),
            message: error.to_string(),
        }
    }

    /// Whether room on the disk is what was missing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(self.kind)
    }

    /// Whether the file was not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.kind == io::ErrorKind::NotFound
    }
}

/// Whether an error means that the disk, or this user's share of it, is full.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Adds what was being done to an `io::Result`.
pub(crate) trait Doing<T> {
    /// Names the verb and the file.
    fn doing(self, verb: &'static str, path: &Path) -> Result<T, DiskError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, verb: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(|error| DiskError::new(verb, path, &error))
    }
}

/// Reads until `into` is full or the file ends; says how many bytes there were.
pub(crate) fn read_full(file: &dyn DiskFile, into: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        let Some(rest) = into.get_mut(filled..) else {
            break;
        };
        match file.read_at(rest, position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
