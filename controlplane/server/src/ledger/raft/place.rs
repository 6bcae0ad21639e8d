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
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::{Disk, DiskError, durable};
use felix_model::ClusterId;
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
        "{}: {file} is missing or another disk's, so that this member may have forgotten what it promised. Remove the \
         directory; the member is counted in again as an empty one",
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

    /// Reads a small JSON file; none when it is not there.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, PlaceRefused> {
        let file = self.file(name);
        let Some(bytes) = durable::read(&*self.disk, &file)? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| PlaceRefused::Unreadable {
                file,
                why: error.to_string(),
            })
    }

    /// Replaces a small JSON file; durable when it returns.
    pub(crate) fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), PlaceRefused> {
        let file = self.file(name);
        let bytes = serde_json::to_vec(value).map_err(|error| PlaceRefused::Unreadable {
            file: file.clone(),
            why: error.to_string(),
        })?;
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
