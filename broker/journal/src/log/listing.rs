//! The files of a log's directory, and which of them are the log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::manifest::{Manifest, Sparse};
use super::{Damage, Kind, names};
use crate::disk::{Disk, DiskError, Entry};
use crate::durable;

/// A segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// First offset.
    pub(crate) base: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// The part that compaction wrote.
    pub(crate) sparse: Option<Sparse>,
    /// Compaction committed it, but it still has the name that it was written with, with this serial.
    pub(crate) swap: Option<u64>,
}

impl Held {
    /// Where the file is.
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        match self.swap {
            Some(serial) => names::cleaned(dir, self.base, serial),
            None => names::path(dir, self.base, Kind::Log),
        }
    }
}

/// The files of a log directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Segments, oldest first.
    pub(crate) logs: Vec<Held>,
    /// What an interrupted change left behind.
    pub(crate) leftovers: Vec<String>,
    pub(crate) exists: bool,
    /// What compaction did; blank when that cannot be read.
    pub(crate) manifest: Manifest,
    /// Why that cannot be read.
    pub(crate) bad_manifest: Option<Damage>,
}

impl Listing {
    /// Looks into a directory, which may be missing.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let entries = match disk.list(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(DiskError::new("list", dir, &error)),
        };
        let (manifest, bad_manifest) = match Manifest::read(disk, dir)? {
            Ok(manifest) => (manifest, None),
            Err(damage) => (Manifest::default(), Some(damage)),
        };
        let mut found = Found::of(&entries);
        found.follow(&manifest);
        let leftovers = entries.iter().filter(|entry| found.is_leftover(entry));
        Ok(Self {
            leftovers: leftovers.map(|entry| entry.name.clone()).collect(),
            logs: found.logs.into_values().collect(),
            exists: true,
            manifest,
            bad_manifest,
        })
    }
}

/// The files that can be segments.
struct Found {
    logs: BTreeMap<u64, Held>,
    /// Base and serial of what compaction wrote, and its length.
    cleaned: BTreeMap<(u64, u64), u64>,
    /// Segments that compaction replaced by one that begins before them.
    replaced: BTreeSet<u64>,
}

impl Found {
    fn of(entries: &[Entry]) -> Self {
        let mut found = Self {
            logs: BTreeMap::new(),
            cleaned: BTreeMap::new(),
            replaced: BTreeSet::new(),
        };
        for entry in entries {
            if let Some((base, Kind::Log)) = names::parse(&entry.name) {
                let held = Held {
                    base,
                    bytes: entry.bytes,
                    sparse: None,
                    swap: None,
                };
                found.logs.insert(base, held);
            } else if let Some(cleaned) = names::parse_cleaned(&entry.name) {
                found.cleaned.insert(cleaned, entry.bytes);
            }
        }
        found
    }

    /// Believes the manifest. A segment of it that is not there at all was removed by retention later.
    fn follow(&mut self, manifest: &Manifest) {
        for entry in &manifest.entries {
            let written = self.cleaned.remove(&(entry.base, entry.serial));
            let there = self.logs.get(&entry.base).map(|held| held.bytes);
            let Some(bytes) = written.or(there) else {
                continue;
            };
            let held = Held {
                base: entry.base,
                bytes,
                sparse: Some(entry.sparse),
                swap: written.map(|_| entry.serial),
            };
            self.logs.insert(entry.base, held);
            let inside: Vec<u64> = self
                .logs
                .range(entry.base + 1..entry.sparse.next.max(entry.base + 1))
                .map(|(base, _)| *base)
                .collect();
            for base in inside {
                self.logs.remove(&base);
                self.replaced.insert(base);
            }
        }
    }

    /// Whether a file is what an interrupted change left behind.
    fn is_leftover(&self, entry: &Entry) -> bool {
        match names::parse(&entry.name) {
            Some((base, Kind::Log)) => self.replaced.contains(&base),
            Some((base, _)) => !self.logs.contains_key(&base),
            None => {
                entry.name == names::NEXT
                    || entry.name.ends_with(durable::TEMPORARY)
                    || names::parse_cleaned(&entry.name)
                        .is_some_and(|cleaned| self.cleaned.contains_key(&cleaned))
            }
        }
    }
}
