//! The disk of one life of a member: dead when that life ends, and broken where a twin wants it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use felix_journal::disk::Boot;
use felix_journal::{Disk, DiskFile, Entry, SimDisk, Space};

use super::Twin;

/// A disk as one process sees it. What a process still does after its end reaches nothing.
#[derive(Clone, Debug)]
pub(crate) struct LifeDisk {
    pub(crate) disk: SimDisk,
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) twin: Twin,
}

impl LifeDisk {
    fn alive(&self) -> io::Result<()> {
        match self.alive.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(io::Error::other("this process has ended")),
        }
    }

    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let of_raft_log = path.to_string_lossy().contains("/raft/log-");
        match self.twin {
            Twin::AckBeforeFlush if of_raft_log => Arc::new(LyingFile {
                file,
                is_mark: path.file_name().is_some_and(|name| name == "durable.mark"),
            }),
            Twin::Sound
            | Twin::AckBeforeFlush
            | Twin::WipedVotes
            | Twin::ConfirmFromLocal
            | Twin::ForgetVotes => file,
        }
    }
}

impl Disk for LifeDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        Ok(self.file(path, self.disk.open(path)?))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        self.disk.open_read_only(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        Ok(self.file(path, self.disk.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?;
        let is_vote = to.file_name().is_some_and(|name| name == "vote.json");
        // The first one makes the file; without it the directory would be refused.
        if self.twin == Twin::ForgetVotes && is_vote && self.disk.contents(to).is_ok() {
            return Ok(());
        }
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.unlink(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.alive()?;
        self.disk.list(dir)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.sync_dir(dir)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        self.disk.lock(path)
    }

    fn boot(&self) -> Option<Boot> {
        self.disk.boot()
    }
}

/// A file of the raft log that says it is synced and is not; nor does the log's mark tell how far it went.
#[derive(Debug)]
struct LyingFile {
    file: Arc<dyn DiskFile>,
    is_mark: bool,
}

impl DiskFile for LyingFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(into, position)
    }

    fn write_at(&self, buffers: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        match self.is_mark && self.file.byte_len()? > 0 {
            true => Ok(()),
            false => self.file.write_at(buffers, position),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.is_mark {
            true => self.file.sync_data(),
            false => Ok(()),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn byte_len(&self) -> io::Result<u64> {
        self.file.byte_len()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }
}
