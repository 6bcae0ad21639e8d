//! Whose disk a directory is, and what lies where.
//!
//! ```text
//!   <data_dir>/raft/member.json       cluster, member and storage id; written last, so that it says: all else is there
//!   <data_dir>/raft/vote.json         the vote, and the storage id
//!   <data_dir>/raft/log.json          which log directory counts, where it begins, how far it is purged; storage id
//!   <data_dir>/raft/log-<n>/          the raft log, a log of felix-journal: one entry per batch
//!   <data_dir>/raft/records/          the record log: revision r is the record at offset r - 1
//!   <data_dir>/raft/applied.json      membership, and how far the records go at least
//!   <data_dir>/raft/installing.json   a snapshot that is complete and being installed
//!   <data_dir>/raft/incoming          a snapshot that is being received
//!   <data_dir>/raft/lost              there when the disk lost part of the raft log that was durable
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::{Disk, DiskError, durable};
use felix_model::{ClusterId, batch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::types::StorageId;

/// Directory of a raft ledger inside a data directory.
pub const RAFT: &str = "raft";

/// Version of the layout above.
const FORMAT: u32 = 1;

/// Draws numbers: storage ids, proposal ids, election timeouts. Everything that is random in a member comes from here.
pub type Draw = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Whose a directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// The member's number.
    pub member: u64,
    /// The disk's name.
    pub storage: StorageId,
}

/// Why a directory is not used. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceRefused {
    /// It belongs to somebody else.
    #[error(
        "{} belongs to member {} of cluster {}, not to member {member} of cluster {cluster}",
        dir.display(), found.member, found.cluster
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        found: Box<Identity>,
        /// Who asked.
        member: u64,
        /// Of which cluster.
        cluster: ClusterId,
    },
    /// A newer build wrote it.
    #[error("{} has format {found}; this build reads up to {FORMAT}: start the newer build", dir.display())]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Part of it is missing or is another disk's.
    #[error(
        "{}: {file} is missing or another disk's, so that this member may have forgotten what it promised. Where there are \
         others, remove the directory, and it is counted in again as an empty one; where it is alone, restore a backup",
        dir.display()
    )]
    Partial {
        /// The directory.
        dir: PathBuf,
        /// The file that is not as it was.
        file: &'static str,
    },
    /// A file cannot be understood.
    #[error("{}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Files of one raft ledger.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
}

impl Place {
    /// The raft ledger inside a data directory.
    pub(crate) fn new(disk: Arc<dyn Disk>, data_dir: &Path) -> Self {
        Self {
            disk,
            root: data_dir.join(RAFT),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Reads a small file that [`Self::write`] wrote; none when it is not there.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, PlaceRefused> {
        let file = self.file(name);
        let Some(bytes) = durable::read(&*self.disk, &file)? else {
            return Ok(None);
        };
        let unreadable = |why: String| PlaceRefused::Unreadable {
            file: file.clone(),
            why,
        };
        let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
        let json = lines.next().unwrap_or_default();
        // Earlier builds wrote no sum.
        if lines
            .next()
            .is_some_and(|sum| sum != sum_of(json).as_bytes())
        {
            return Err(unreadable("it is damaged: its sum is another".into()));
        }
        let read = serde_json::from_slice(json);
        read.map(Some)
            .map_err(|error| unreadable(error.to_string()))
    }

    /// Replaces a small file: JSON in one line, and its sum in the next, because another digit in a vote is as good JSON as
    /// the right one. Durable when it returns.
    pub(crate) fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), PlaceRefused> {
        let file = self.file(name);
        let mut bytes = serde_json::to_vec(value).map_err(|error| PlaceRefused::Unreadable {
            file: file.clone(),
            why: error.to_string(),
        })?;
        let sum = sum_of(&bytes);
        bytes.push(b'\n');
        bytes.extend_from_slice(sum.as_bytes());
        Ok(durable::replace(&*self.disk, &file, &bytes)?)
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), PlaceRefused> {
        Ok(durable::unlink(&*self.disk, &self.file(name))?)
    }

    /// Whose this directory is; none when it was never finished, which is as good as empty: nothing was promised from it.
    pub(crate) fn identity(
        &self,
        cluster: &ClusterId,
        member: u64,
    ) -> Result<Option<Identity>, PlaceRefused> {
        let Some(format) = self.read::<Format>(MEMBER)? else {
            return Ok(None);
        };
        let dir = self.root.clone();
        if format.format > FORMAT {
            return Err(PlaceRefused::Newer {
                dir,
                found: format.format,
            });
        }
        let Some(found) = self.read::<Identity>(MEMBER)? else {
            return Ok(None);
        };
        if found.cluster != *cluster || found.member != member {
            return Err(PlaceRefused::Foreign {
                dir,
                found: Box::new(found),
                member,
                cluster: cluster.clone(),
            });
        }
        Ok(Some(found))
    }

    /// Makes the directory this member's. All other files must be there already.
    pub(crate) fn claim(
        &self,
        cluster: &ClusterId,
        member: u64,
        storage: StorageId,
    ) -> Result<Identity, PlaceRefused> {
        let identity = Identity {
            format: FORMAT,
            cluster: cluster.clone(),
            member,
            storage,
        };
        self.write(MEMBER, &identity)?;
        Ok(identity)
    }
}

fn sum_of(json: &[u8]) -> String {
    format!("{:08x}\n", batch::checksum(json))
}

/// Who a directory says it belongs to, if it says so.
///
/// # Errors
/// [`PlaceRefused`].
pub fn member_of(disk: Arc<dyn Disk>, data_dir: &Path) -> Result<Option<Identity>, PlaceRefused> {
    Place::new(disk, data_dir).read(MEMBER)
}

const MEMBER: &str = "member.json";

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[cfg(test)]
mod tests {
    use felix_journal::SimDisk;

    use super::*;

    #[test]
    fn a_file_in_which_any_bit_changed_is_refused_and_never_another_one() {
        let disk = SimDisk::new(1);
        let at = |disk: &SimDisk| Place::new(Arc::new(disk.fork()), Path::new("/data"));
        let place = Place::new(Arc::new(disk.clone()), Path::new("/data"));
        durable::create_dirs(&disk, &place.root).unwrap();
        let value = (7_u64, "voted for", 12_u64);
        place.write("vote.json", &value).unwrap();
        let file = place.file("vote.json");
        let bits = disk.contents(&file).unwrap().len() as u64 * 8;
        for bit in 0..bits {
            let rotten = disk.fork();
            rotten.flip(&file, bit / 8, (bit % 8) as u8).unwrap();
            let read = at(&rotten).read::<(u64, String, u64)>("vote.json");
            assert!(
                matches!(read, Err(PlaceRefused::Unreadable { .. })),
                "bit {bit}: {read:?}"
            );
        }
        let read = at(&disk).read::<(u64, String, u64)>("vote.json");
        assert_eq!(read, Ok(Some((7, "voted for".to_owned(), 12))));
    }

    #[test]
    fn a_file_of_a_build_that_wrote_no_sum_is_read() {
        let disk = SimDisk::new(1);
        let place = Place::new(Arc::new(disk.fork()), Path::new("/data"));
        durable::create_dirs(&*place.disk, &place.root).unwrap();
        durable::replace(&*place.disk, &place.file("old.json"), b"[7]").unwrap();
        assert_eq!(place.read("old.json"), Ok(Some(vec![7])));
    }
}
