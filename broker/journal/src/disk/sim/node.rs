//! Files and directories with what was synced and what was done since.

use std::collections::BTreeMap;
use std::io;

/// Identity of a file or directory, whatever its names.
pub(super) type NodeId = u64;

/// Something done to a file since its last sync.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes written at a position.
    Write { position: u64, bytes: Vec<u8> },
    /// A new length.
    SetLen(u64),
}

impl Change {
    /// Does the change to a file's bytes.
    pub(super) fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { position, bytes } => {
                let from = usize::try_from(*position).unwrap_or(usize::MAX);
                let end = from + bytes.len();
                if to.len() < end && !bytes.is_empty() {
                    to.resize(end, 0);
                }
                if let Some(place) = to.get_mut(from..end) {
                    place.copy_from_slice(bytes);
                }
            }
            Self::SetLen(length) => to.resize(usize::try_from(*length).unwrap_or(usize::MAX), 0),
        }
    }
}

/// Something done to a directory since its last sync.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// A new name.
    Add { name: String, id: NodeId },
    /// A name removed.
    Remove { name: String },
    /// A name changed inside the directory: both names or neither.
    Rename {
        from: String,
        to: String,
        id: NodeId,
    },
}

impl Link {
    /// Does the change to a directory's entries.
    pub(super) fn apply(&self, to: &mut BTreeMap<String, NodeId>) {
        match self {
            Self::Add { name, id } => {
                to.insert(name.clone(), *id);
            }
            Self::Remove { name } => {
                to.remove(name);
            }
            Self::Rename { from, to: name, id } => {
                to.remove(from);
                to.insert(name.clone(), *id);
            }
        }
    }
}

/// A file or a directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// What a process sees, what is on the medium, and the changes between.
    File {
        now: Vec<u8>,
        medium: Vec<u8>,
        unsynced: Vec<Change>,
    },
    /// The same for entries.
    Directory {
        now: BTreeMap<String, NodeId>,
        medium: BTreeMap<String, NodeId>,
        unsynced: Vec<Link>,
    },
}

impl Node {
    pub(super) fn file() -> Self {
        Self::File {
            now: Vec::new(),
            medium: Vec::new(),
            unsynced: Vec::new(),
        }
    }

    pub(super) fn directory() -> Self {
        Self::Directory {
            now: BTreeMap::new(),
            medium: BTreeMap::new(),
            unsynced: Vec::new(),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    pub(super) fn bytes(&self) -> io::Result<&Vec<u8>> {
        match self {
            Self::File { now, .. } => Ok(now),
            Self::Directory { .. } => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        }
    }

    pub(super) fn entries(&self) -> io::Result<&BTreeMap<String, NodeId>> {
        match self {
            Self::Directory { now, .. } => Ok(now),
            Self::File { .. } => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    pub(super) fn change(&mut self, change: Change) -> io::Result<()> {
        match self {
            Self::File { now, unsynced, .. } => {
                change.apply(now);
                unsynced.push(change);
                Ok(())
            }
            Self::Directory { .. } => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        }
    }

    pub(super) fn link(&mut self, link: Link) -> io::Result<()> {
        match self {
            Self::Directory { now, unsynced, .. } => {
                link.apply(now);
                unsynced.push(link);
                Ok(())
            }
            Self::File { .. } => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    /// What was done so far is on the medium.
    pub(super) fn sync(&mut self) {
        match self {
            Self::File {
                medium, unsynced, ..
            } => {
                for change in unsynced.drain(..) {
                    change.apply(medium);
                }
            }
            Self::Directory {
                now,
                medium,
                unsynced,
            } => {
                medium.clone_from(now);
                unsynced.clear();
            }
        }
    }

    /// What was done so far is not on the medium and never will be, though a process still reads it.
    pub(super) fn sync_failed(&mut self) {
        match self {
            Self::File { unsynced, .. } => unsynced.clear(),
            Self::Directory { unsynced, .. } => unsynced.clear(),
        }
    }

    pub(super) fn flip(&mut self, byte: u64, bit: u8) -> io::Result<()> {
        let Self::File {
            now,
            medium,
            unsynced,
        } = self
        else {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        };
        // Rot is on the medium, so what a process wrote before it has to be there first.
        for change in unsynced.drain(..) {
            change.apply(medium);
        }
        let at = usize::try_from(byte).unwrap_or(usize::MAX);
        let mut found = false;
        for bytes in [now, medium] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
                found = true;
            }
        }
        if found {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof))
        }
    }
}
