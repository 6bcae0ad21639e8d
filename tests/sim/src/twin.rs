//! Brokers that are broken on purpose. A checker that does not catch its twin proves nothing when it is silent.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use felix_journal::disk::Boot;
use felix_journal::{Disk, DiskFile, Entry, SimDisk, Space};

/// One way to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// Reports a batch as written and flushed when it is only queued.
    AckBeforeWrite,
    /// Reports a group as written and leaves its last batch out.
    DropWrite,
    /// Gives the offsets of an acknowledged batch away again after a write failed.
    ReuseOffset,
    /// Leaves out the first batch after a reader has caught up with history.
    JoinSkipsOne,
    /// Gives a reader one batch again.
    RepeatOne,
    /// Starts with an empty producer table.
    ForgetProducers,
    /// Runs on a disk that says it has synced and has not.
    LyingDisk,
    /// Changes a byte on its way to a reader.
    FlipByte,
    /// Waits for an operator when the end of the log is torn.
    RefuseTornTail,
    /// Never answers some appends.
    SwallowReply,
    /// Appends although the condition does not hold.
    IgnoreCondition,
    /// Refuses a batch and writes it all the same.
    WriteRefused,
    /// Is not raised to a new generation after a crash.
    KeepGeneration,
    /// Never wakes a reader that waits.
    ForgetReader,
    /// Lets something outside of the seed decide.
    OutsideChoice,
}

/// A disk whose syncs do nothing.
#[derive(Debug)]
pub(crate) struct LyingDisk(pub(crate) SimDisk);

#[derive(Debug)]
struct LyingFile(Arc<dyn DiskFile>);

fn lying(file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
    Arc::new(LyingFile(file))
}

impl Disk for LyingDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(path).map(lying)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open_read_only(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.create(path).map(lying)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.0.unlink(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(dir)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.0.space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.lock(path)
    }

    fn boot(&self) -> Option<Boot> {
        self.0.boot()
    }
}

impl DiskFile for LyingFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(into, position)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.0.write_at(buffers, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn byte_len(&self) -> io::Result<u64> {
        self.0.byte_len()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve(bytes)
    }
}
