//! A data directory belongs to one node of one cluster, and to one process at a time.
//!
//! ```text
//! <root>/lock                                                        locked while a process uses it
//! <root>/identity.json                                               format, cluster, node
//! <root>/streams/<tenant>/<namespace>/<stream>@<incarnation>/<shard>/data/    one log
//! <root>/streams/<tenant>/<namespace>/<stream>@<incarnation>/<shard>/group/   its groups' lane, a log as well
//! <root>/caches/<tenant>/<namespace>/<cache>@<incarnation>/<shard>/data/      one log
//! <root>/caches/<tenant>/<namespace>/<cache>@<incarnation>/<shard>/index      what it came to, to start faster
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_model::{CacheId, ClusterId, Incarnation, NodeId, ShardIndex, StreamId};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskError, DiskFile, Doing};
use crate::durable;

/// Layout this build reads and writes. A newer one is refused, an older one is brought forward.
pub const FORMAT_VERSION: u32 = 1;

const LOCK: &str = "lock";
const IDENTITY: &str = "identity.json";
const STREAMS: &str = "streams";
const LANE: &str = "group";
const CACHES: &str = "caches";

/// What a file system puts into its own root.
const FILE_SYSTEM_OWN: &str = "lost+found";

/// Whose data a directory holds, and in which format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of the layout; see [`FORMAT_VERSION`].
    pub format: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
}

/// Why a data directory was not opened. Nothing in it was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataDirRefused {
    /// Another process has it.
    #[error("{} is in use by another process", root.display())]
    InUse {
        /// The directory.
        root: PathBuf,
    },
    /// It belongs to another cluster or node.
    #[error(
        "{} belongs to node {} of cluster {}, not to node {node} of cluster {cluster}",
        root.display(), found.node, found.cluster
    )]
    Foreign {
        /// The directory.
        root: PathBuf,
        /// Whose it is.
        found: Identity,
        /// The cluster of this process.
        cluster: ClusterId,
        /// The node of this process.
        node: NodeId,
    },
    /// A newer build wrote it.
    #[error("{} has format {found}; this build reads up to {supported}: start the newer build", root.display())]
    Newer {
        /// The directory.
        root: PathBuf,
        /// Its format.
        found: u32,
        /// The newest this build knows.
        supported: u32,
    },
    /// It holds files and does not say whose they are.
    #[error("{} holds {entry:?} but no {IDENTITY}: it is not a data directory, or has lost its identity", root.display())]
    NoIdentity {
        /// The directory.
        root: PathBuf,
        /// One of the files.
        entry: String,
    },
    /// Its identity cannot be understood.
    #[error("{} cannot be understood: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// A data directory that this process has locked. The lock goes with the value, also when the process is killed.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    identity: Identity,
    _lock: Arc<dyn DiskFile>,
}

/// A log found in a data directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The stream.
    pub stream: StreamId,
    /// Which stream of that name.
    pub incarnation: Incarnation,
    /// Which log of the stream.
    pub shard: ShardIndex,
    /// Where it is.
    pub dir: PathBuf,
}

/// The log of a cache's shard, found in a data directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachePlace {
    /// The cache.
    pub cache: CacheId,
    /// Which cache of that name.
    pub incarnation: Incarnation,
    /// Which log of the cache.
    pub shard: ShardIndex,
    /// Where it is.
    pub dir: PathBuf,
}

impl DataDir {
    /// Locks a data directory and checks whose it is. An empty or missing one becomes this node's.
    ///
    /// # Errors
    /// See [`DataDirRefused`].
    pub fn open(
        disk: &dyn Disk,
        root: &Path,
        cluster: &ClusterId,
        node: &NodeId,
    ) -> Result<Self, DataDirRefused> {
        durable::create_dirs(disk, root)?;
        let lock_path = root.join(LOCK);
        let lock = match disk.lock(&lock_path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(DataDirRefused::InUse {
                    root: root.to_path_buf(),
                });
            }
            Err(error) => return Err(DiskError::new("lock", &lock_path, &error).into()),
        };
        let identity = match read_identity(disk, root)? {
            Some(found) => check(found, root, cluster, node)?,
            None => claim(disk, root, cluster, node)?,
        };
        Ok(Self {
            root: root.to_path_buf(),
            identity,
            _lock: lock,
        })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whose it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the log of a shard is, or will be.
    #[must_use]
    pub fn log_dir(
        &self,
        stream: &StreamId,
        incarnation: Incarnation,
        shard: ShardIndex,
    ) -> PathBuf {
        log_dir(&self.root, stream, incarnation, shard)
    }

    /// The logs there are, in order. Directories that are not named like one are passed over with a warning.
    ///
    /// # Errors
    /// The disk's.
    pub fn logs(&self, disk: &dyn Disk) -> Result<Vec<LogPlace>, DiskError> {
        logs(disk, &self.root)
    }
}

/// Whose a data directory is, without locking it; none when it does not say.
///
/// # Errors
/// `Unreadable`, or the disk's.
pub fn read_identity(disk: &dyn Disk, root: &Path) -> Result<Option<Identity>, DataDirRefused> {
    let file = root.join(IDENTITY);
    let Some(bytes) = durable::read(disk, &file)? else {
        return Ok(None);
    };
    // The format is read on its own first: a newer build may have added fields.
    let format: Format =
        serde_json::from_slice(&bytes).map_err(|error| DataDirRefused::Unreadable {
            file: file.clone(),
            why: error.to_string(),
        })?;
    if format.format > FORMAT_VERSION {
        return Err(DataDirRefused::Newer {
            root: root.to_path_buf(),
            found: format.format,
            supported: FORMAT_VERSION,
        });
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| DataDirRefused::Unreadable {
            file,
            why: error.to_string(),
        })
}

/// Where the log of a shard is under `root`, or will be.
#[must_use]
pub fn log_dir(
    root: &Path,
    stream: &StreamId,
    incarnation: Incarnation,
    shard: ShardIndex,
) -> PathBuf {
    let StreamId {
        tenant,
        namespace,
        stream,
    } = stream;
    root.join(STREAMS)
        .join(tenant.as_ref() as &str)
        .join(namespace.as_ref() as &str)
        .join(format!("{stream}@{incarnation}"))
        .join(shard.to_string())
        .join("data")
}

/// Where the lane of a shard's groups is under `root`, or will be: a log beside the shard's.
#[must_use]
pub fn lane_dir(
    root: &Path,
    stream: &StreamId,
    incarnation: Incarnation,
    shard: ShardIndex,
) -> PathBuf {
    lane_beside(&log_dir(root, stream, incarnation, shard))
}

/// Where the lane beside a shard's log is.
#[must_use]
pub fn lane_beside(log_dir: &Path) -> PathBuf {
    log_dir.with_file_name(LANE)
}

/// The lanes of groups under `root`, in the order of [`logs`].
///
/// # Errors
/// The disk's.
pub fn lanes(disk: &dyn Disk, root: &Path) -> Result<Vec<LogPlace>, DiskError> {
    let mut found = Vec::new();
    for place in logs(disk, root)? {
        let dir = lane_beside(&place.dir);
        if !directories_or_files(disk, &dir)?.is_empty() {
            found.push(LogPlace { dir, ..place });
        }
    }
    Ok(found)
}

/// Where the log of a cache's shard is under `root`, or will be.
#[must_use]
pub fn cache_log_dir(
    root: &Path,
    cache: &CacheId,
    incarnation: Incarnation,
    shard: ShardIndex,
) -> PathBuf {
    let CacheId {
        tenant,
        namespace,
        cache,
    } = cache;
    root.join(CACHES)
        .join(tenant.as_ref() as &str)
        .join(namespace.as_ref() as &str)
        .join(format!("{cache}@{incarnation}"))
        .join(shard.to_string())
        .join("data")
}

/// The logs under `root`, in order; see [`DataDir::logs`].
///
/// # Errors
/// The disk's.
pub fn logs(disk: &dyn Disk, root: &Path) -> Result<Vec<LogPlace>, DiskError> {
    walk(disk, &root.join(STREAMS), place)
}

/// The logs of caches under `root`, in order. Directories that are not named like one are passed over with a warning.
///
/// # Errors
/// The disk's.
pub fn cache_logs(disk: &dyn Disk, root: &Path) -> Result<Vec<CachePlace>, DiskError> {
    walk(disk, &root.join(CACHES), cache_place)
}

/// What the directories four levels below `top` are called, and where the log of each is.
type Place<T> = fn(&str, &str, &str, &str, &Path) -> Option<T>;

fn walk<T: Ord>(disk: &dyn Disk, top: &Path, place: Place<T>) -> Result<Vec<T>, DiskError> {
    let mut found = Vec::new();
    for tenant in directories(disk, top)? {
        for namespace in directories(disk, &top.join(&tenant))? {
            let in_namespace = top.join(&tenant).join(&namespace);
            for name in directories(disk, &in_namespace)? {
                for shard in directories(disk, &in_namespace.join(&name))? {
                    let dir = in_namespace.join(&name).join(&shard).join("data");
                    match place(&tenant, &namespace, &name, &shard, &dir) {
                        Some(place) if !directories_or_files(disk, &dir)?.is_empty() => {
                            found.push(place)
                        }
                        Some(_) => {}
                        None => tracing::warn!(dir = %dir.display(), "not the directory of a log"),
                    }
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

fn cache_place(
    tenant: &str,
    namespace: &str,
    cache: &str,
    shard: &str,
    dir: &Path,
) -> Option<CachePlace> {
    let (cache, incarnation) = cache.rsplit_once('@')?;
    Some(CachePlace {
        cache: CacheId {
            tenant: tenant.parse().ok()?,
            namespace: namespace.parse().ok()?,
            cache: cache.parse().ok()?,
        },
        incarnation: Incarnation(incarnation.parse().ok()?),
        shard: ShardIndex(shard.parse().ok()?),
        dir: dir.to_path_buf(),
    })
}

fn place(tenant: &str, namespace: &str, stream: &str, shard: &str, dir: &Path) -> Option<LogPlace> {
    let (stream, incarnation) = stream.rsplit_once('@')?;
    Some(LogPlace {
        stream: StreamId::on_disk(tenant, namespace, stream).ok()?,
        incarnation: Incarnation(incarnation.parse().ok()?),
        shard: ShardIndex(shard.parse().ok()?),
        dir: dir.to_path_buf(),
    })
}

fn directories(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, DiskError> {
    let entries = directories_or_files(disk, dir)?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.is_dir)
        .map(|entry| entry.name)
        .collect())
}

fn directories_or_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<crate::disk::Entry>, DiskError> {
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.doing("list", dir),
    }
}

/// Only the version, whatever else is there.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn check(
    found: Identity,
    root: &Path,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Identity, DataDirRefused> {
    if found.cluster == *cluster && found.node == *node {
        return Ok(found);
    }
    Err(DataDirRefused::Foreign {
        root: root.to_path_buf(),
        found,
        cluster: cluster.clone(),
        node: node.clone(),
    })
}

/// Makes an empty directory this node's.
fn claim(
    disk: &dyn Disk,
    root: &Path,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Identity, DataDirRefused> {
    let entries = disk.list(root).doing("list", root)?;
    let unfinished = format!("{IDENTITY}{}", durable::TEMPORARY);
    let ours = [LOCK, FILE_SYSTEM_OWN, unfinished.as_str()];
    if let Some(foreign) = entries
        .into_iter()
        .find(|entry| !ours.contains(&entry.name.as_str()))
    {
        return Err(DataDirRefused::NoIdentity {
            root: root.to_path_buf(),
            entry: foreign.name,
        });
    }
    let identity = Identity {
        format: FORMAT_VERSION,
        cluster: cluster.clone(),
        node: node.clone(),
    };
    let text =
        serde_json::to_vec_pretty(&identity).map_err(|error| DataDirRefused::Unreadable {
            file: root.join(IDENTITY),
            why: error.to_string(),
        })?;
    durable::replace(disk, &root.join(IDENTITY), &text)?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{RealDisk, SimDisk};

    fn ids() -> (ClusterId, NodeId) {
        ("c1".parse().unwrap(), "n1".parse().unwrap())
    }

    #[test]
    fn a_data_directory_is_used_by_one_process_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let (cluster, node) = ids();
        let root = root.path().join("a/b");
        let first = DataDir::open(&RealDisk, &root, &cluster, &node).unwrap();
        let second = DataDir::open(&RealDisk, &root, &cluster, &node).unwrap_err();
        assert_eq!(second, DataDirRefused::InUse { root: root.clone() });
        drop(first);
        assert!(DataDir::open(&RealDisk, &root, &cluster, &node).is_ok());
    }

    #[test]
    fn another_nodes_directory_is_refused_with_both_names() {
        let disk = SimDisk::new(1);
        let (cluster, node) = ids();
        drop(DataDir::open(&disk, Path::new("/data"), &cluster, &node).unwrap());
        let other = "n2".parse().unwrap();
        let refused = DataDir::open(&disk, Path::new("/data"), &cluster, &other).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/data belongs to node n1 of cluster c1, not to node n2 of cluster c1"
        );
    }

    #[test]
    fn a_newer_format_is_refused_whatever_else_it_says() {
        let disk = SimDisk::new(1);
        let (cluster, node) = ids();
        durable::create_dirs(&disk, Path::new("/data")).unwrap();
        durable::replace(
            &disk,
            Path::new("/data/identity.json"),
            b"{\"format\":2,\"x\":1}",
        )
        .unwrap();
        let refused = DataDir::open(&disk, Path::new("/data"), &cluster, &node).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/data has format 2; this build reads up to 1: start the newer build"
        );
    }

    #[test]
    fn a_directory_with_files_and_no_identity_is_not_claimed() {
        let disk = SimDisk::new(1);
        let (cluster, node) = ids();
        durable::create_dirs(&disk, Path::new("/data/streams")).unwrap();
        let refused = DataDir::open(&disk, Path::new("/data"), &cluster, &node).unwrap_err();
        assert!(
            matches!(refused, DataDirRefused::NoIdentity { .. }),
            "{refused}"
        );
    }

    #[test]
    fn logs_are_found_again_by_their_names() {
        let disk = SimDisk::new(1);
        let (cluster, node) = ids();
        let data = DataDir::open(&disk, Path::new("/data"), &cluster, &node).unwrap();
        let stream = StreamId {
            tenant: "t".parse().unwrap(),
            namespace: "ns".parse().unwrap(),
            stream: "a.b".parse().unwrap(),
        };
        let dir = data.log_dir(&stream, Incarnation(7), ShardIndex(2));
        assert_eq!(dir, Path::new("/data/streams/t/ns/a.b@7/2/data"));
        durable::create_dirs(&disk, &dir).unwrap();
        assert_eq!(data.logs(&disk).unwrap(), []);
        durable::create(&disk, &dir.join("durable.mark")).unwrap();
        let place = LogPlace {
            stream,
            incarnation: Incarnation(7),
            shard: ShardIndex(2),
            dir,
        };
        assert_eq!(data.logs(&disk).unwrap(), [place]);
    }
}
