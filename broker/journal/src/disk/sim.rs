//! A disk in memory that forgets, tears and reorders what was not synced, fails when told to, and fills up.
//!
//! One seed, one history: the same calls and the same seeds give the same bytes. What a power cut may do:
//! * a file's unsynced writes are lost, kept, or torn at 512-byte sectors, each write on its own, so that a later
//!   one can survive an earlier one; lost sectors inside the file read as zeros;
//! * a directory's unsynced entries are lost or kept, each on its own;
//! * nothing that was synced is touched.
//!
//! After a power cut or a kill every open handle is dead.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Boot, Disk, DiskFile, Entry, Space};

mod crash;
mod file;
mod node;
mod random;
mod tree;

use file::SimFile;
use node::{Link, Node, NodeId};
use random::Random;

/// What kind of call is made to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// Opening an existing file.
    Open,
    /// Reading from a file.
    Read,
    /// Listing a directory.
    List,
    /// Creating a file.
    Create,
    /// Writing to a file.
    Write,
    /// Changing a file's length.
    SetLen,
    /// Reserving space.
    Reserve,
    /// Syncing a file.
    Sync,
    /// Renaming.
    Rename,
    /// Removing a file's name.
    Unlink,
    /// Creating a directory.
    CreateDir,
    /// Removing a directory.
    RemoveDir,
    /// Syncing a directory.
    SyncDir,
}

impl CallKind {
    /// Whether the call changes what a crash can find. Only these are counted and can be made to fail.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List)
    }
}

/// One call, as a hook sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is asked.
    pub kind: CallKind,
    /// Of which file or directory (for a rename, the new name).
    pub path: PathBuf,
    /// Number of the call among those that change something, from 0; reads carry the number of the next change.
    pub number: u64,
}

/// How a call is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error. A failed write may have written part of its bytes; a failed sync drops the unsynced
    /// bytes, as Linux does, so that a second sync succeeds without them.
    Io,
    /// No space left.
    Full,
    /// The machine stops in the middle of this call; every later one fails until [`SimDisk::power_cut`] or
    /// [`SimDisk::kill`].
    Crash,
}

/// Sees every call before it is made, outside of any lock: it may wait (a slow disk) or record.
pub type Hook = Arc<dyn Fn(&Call) + Send + Sync>;

/// The simulated disk. Clones share it.
#[derive(Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.guard();
        formatter
            .debug_struct("SimDisk")
            .field("calls", &inner.calls)
            .field("epoch", &inner.epoch)
            .finish_non_exhaustive()
    }
}

struct Inner {
    nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
    random: Random,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    read_faults: Vec<PathBuf>,
    capacity: u64,
    /// Handles of an older epoch are dead.
    epoch: u64,
    stopped: bool,
    /// Power cuts so far: what [`Disk::boot`] is made of.
    boots: u64,
    locks: BTreeMap<PathBuf, Weak<dyn DiskFile>>,
    hook: Option<Hook>,
}

/// The root directory's node.
const ROOT: NodeId = 0;

impl SimDisk {
    /// An empty disk of 1 TiB whose choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::directory())]);
        Self {
            inner: Arc::new(Mutex::new(Inner {
                nodes,
                next_node: ROOT + 1,
                random: Random::new(seed),
                calls: 0,
                faults: BTreeMap::new(),
                read_faults: Vec::new(),
                capacity: 1 << 40,
                epoch: 0,
                stopped: false,
                boots: 0,
                locks: BTreeMap::new(),
                hook: None,
            })),
        }
    }

    /// How many calls changed something so far. The next one has this number.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.guard().calls
    }

    /// Makes the call with this number fail; see [`SimDisk::calls`].
    pub fn fail(&self, number: u64, fault: Fault) {
        self.guard().faults.insert(number, fault);
    }

    /// Forgets the faults that were asked for and did not happen yet.
    pub fn heal(&self) {
        let mut inner = self.guard();
        inner.faults.clear();
        inner.read_faults.clear();
    }

    /// Makes every read of a file fail, until [`SimDisk::heal`].
    pub fn fail_reads(&self, path: &Path) {
        self.guard().read_faults.push(path.to_path_buf());
    }

    /// Sets how many bytes the disk holds; writes past that find it full.
    pub fn full(&self, capacity: u64) {
        self.guard().capacity = capacity;
    }

    /// Calls `hook` before every call from now on, or no longer.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.guard().hook = hook;
    }

    /// Flips one bit of a file, on the medium and in the cache.
    ///
    /// # Errors
    /// `NotFound` when there is no such file; `UnexpectedEof` when it is shorter.
    pub fn flip(&self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        let mut inner = self.guard();
        let id = inner.find(path)?;
        inner.node_mut(id)?.flip(byte, bit)
    }

    /// The process ends; what it wrote stays, synced or not. Open handles are dead.
    pub fn kill(&self) {
        let mut inner = self.guard();
        inner.epoch += 1;
        inner.stopped = false;
        inner.locks.clear();
    }

    /// The power fails: unsynced bytes and directory entries are lost, kept or torn as `seed` has it. Open handles
    /// are dead.
    pub fn power_cut(&self, seed: u64) {
        let mut inner = self.guard();
        let mut random = Random::new(seed);
        crash::power_cut(&mut inner.nodes, ROOT, &mut random);
        inner.epoch += 1;
        inner.boots += 1;
        inner.stopped = false;
        inner.locks.clear();
        inner.faults.clear();
    }

    /// A copy of the disk as it is, with its own future.
    #[must_use]
    pub fn fork(&self) -> Self {
        let inner = self.guard();
        Self {
            inner: Arc::new(Mutex::new(Inner {
                nodes: inner.nodes.clone(),
                next_node: inner.next_node,
                random: inner.random.clone(),
                calls: inner.calls,
                faults: inner.faults.clone(),
                read_faults: inner.read_faults.clone(),
                capacity: inner.capacity,
                epoch: inner.epoch,
                stopped: inner.stopped,
                boots: inner.boots,
                locks: BTreeMap::new(),
                hook: None,
            })),
        }
    }

    /// The bytes of a file as a process would read them now.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let inner = self.guard();
        let id = inner.find(path)?;
        Ok(inner.node(id)?.bytes()?.to_vec())
    }

    fn guard(&self) -> MutexGuard<'_, Inner> {
        // A test that panics while holding the lock has already failed; the state itself is always whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the hook, counts the call, and answers the fault it shall have.
    fn enter(
        &self,
        kind: CallKind,
        path: &Path,
        epoch: Option<u64>,
    ) -> io::Result<(MutexGuard<'_, Inner>, Option<Fault>)> {
        let hook = self.guard().hook.clone();
        if let Some(hook) = hook {
            let number = self.guard().calls;
            hook(&Call {
                kind,
                path: path.to_path_buf(),
                number,
            });
        }
        let mut inner = self.guard();
        if inner.stopped || epoch.is_some_and(|epoch| epoch != inner.epoch) {
            return Err(io::Error::other("the machine has stopped"));
        }
        if !kind.changes() {
            if kind == CallKind::Read && inner.read_faults.iter().any(|bad| bad == path) {
                return Err(io_error());
            }
            return Ok((inner, None));
        }
        let number = inner.calls;
        inner.calls += 1;
        let fault = inner.faults.remove(&number);
        if fault == Some(Fault::Crash) {
            inner.stopped = true;
        }
        Ok((inner, fault))
    }

    /// As [`SimDisk::enter`], for calls that either happen or do not.
    fn enter_whole(&self, kind: CallKind, path: &Path) -> io::Result<MutexGuard<'_, Inner>> {
        let (mut inner, fault) = self.enter(kind, path, None)?;
        match fault {
            None => Ok(inner),
            // Whether a call that the crash interrupts has happened is for the seed to say.
            Some(Fault::Crash) if inner.random.coin() => Ok(inner),
            Some(fault) => Err(fault.error()),
        }
    }

    fn handle(&self, inner: &Inner, id: NodeId, path: &Path, writable: bool) -> Arc<dyn DiskFile> {
        Arc::new(SimFile {
            disk: self.clone(),
            id,
            path: path.to_path_buf(),
            epoch: inner.epoch,
            writable,
        })
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Io => io_error(),
            Self::Full => io::Error::from(io::ErrorKind::StorageFull),
            Self::Crash => io::Error::other("the machine has stopped"),
        }
    }
}

fn io_error() -> io::Error {
    io::Error::other("input/output error")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let (inner, _) = self.enter(CallKind::Open, path, None)?;
        let id = inner.find(path)?;
        inner.node(id)?.bytes()?;
        Ok(self.handle(&inner, id, path, true))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let (inner, _) = self.enter(CallKind::Open, path, None)?;
        let id = inner.find(path)?;
        inner.node(id)?.bytes()?;
        Ok(self.handle(&inner, id, path, false))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.enter_whole(CallKind::Create, path)?;
        let id = inner.add(path, Node::file())?;
        Ok(self.handle(&inner, id, path, true))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.enter_whole(CallKind::Rename, to)?;
        let id = inner.find(from)?;
        let (from_dir, from_name) = inner.split(from)?;
        let (to_dir, to_name) = inner.split(to)?;
        if from_dir == to_dir {
            return inner.node_mut(to_dir)?.link(Link::Rename {
                from: from_name,
                to: to_name,
                id,
            });
        }
        inner
            .node_mut(to_dir)?
            .link(Link::Add { name: to_name, id })?;
        inner
            .node_mut(from_dir)?
            .link(Link::Remove { name: from_name })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.enter_whole(CallKind::Unlink, path)?;
        let id = inner.find(path)?;
        inner.node(id)?.bytes()?;
        let (dir, name) = inner.split(path)?;
        inner.node_mut(dir)?.link(Link::Remove { name })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let (inner, _) = self.enter(CallKind::List, dir, None)?;
        let id = inner.find(dir)?;
        let mut entries = Vec::new();
        for (name, id) in inner.node(id)?.entries()? {
            let node = inner.node(*id)?;
            let bytes = node.bytes().map_or(0, |bytes| bytes.len() as u64);
            entries.push(Entry {
                name: name.clone(),
                is_dir: node.is_dir(),
                bytes,
            });
        }
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.enter_whole(CallKind::CreateDir, path)?;
        inner.add(path, Node::directory()).map(|_| ())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.enter_whole(CallKind::RemoveDir, path)?;
        let id = inner.find(path)?;
        if !inner.node(id)?.entries()?.is_empty() {
            return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
        }
        let (dir, name) = inner.split(path)?;
        inner.node_mut(dir)?.link(Link::Remove { name })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let (mut inner, fault) = self.enter(CallKind::SyncDir, dir, None)?;
        let id = inner.find(dir)?;
        match fault {
            None => inner.node_mut(id)?.sync(),
            Some(Fault::Crash) if inner.random.coin() => inner.node_mut(id)?.sync(),
            Some(fault) => return Err(fault.error()),
        }
        if inner.stopped {
            Err(Fault::Crash.error())
        } else {
            Ok(())
        }
    }

    fn space(&self, _dir: &Path) -> io::Result<Space> {
        let inner = self.guard();
        let used = inner.used();
        Ok(Space {
            total: inner.capacity,
            available: inner.capacity.saturating_sub(used),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = match self.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open(path)?,
            other => other?,
        };
        let mut inner = self.guard();
        if inner
            .locks
            .get(path)
            .is_some_and(|held| held.strong_count() > 0)
        {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        inner
            .locks
            .insert(path.to_path_buf(), Arc::downgrade(&file));
        Ok(file)
    }

    fn boot(&self) -> Option<Boot> {
        Some(u128::from(self.guard().boots).to_be_bytes())
    }
}
