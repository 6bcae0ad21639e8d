//! Which ledger a configuration means, and its opening.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use felix_journal::{DataDir, RealDisk};
use felix_model::{ClusterId, NodeId};

use crate::config::{Config, StorageBackend};
use crate::ledger::raft::{Core, RAFT, RaftLedger};
use crate::ledger::{Address, DiskLedger, Ledger, MemoryLedger, PostgresLedger};
use crate::raft_config;
use crate::server::RunFailed;

/// The node id in a control plane's data directory. There is one control plane in a cluster, and a broker's directory
/// must not be taken for its.
const NODE: &str = "controlplane";

/// Opens the ledger of a kind with what the configuration says about that kind. Blocking.
pub(crate) fn open(config: &Config, kind: StorageBackend) -> Result<Box<dyn Ledger>, RunFailed> {
    Ok(open_with_member(config, kind)?.0)
}

/// A ledger, with the member of a raft ledger that this process is.
type Opened = (Box<dyn Ledger>, Option<Arc<Core>>);

/// As [`open`], with the member.
pub(crate) fn open_with_member(config: &Config, kind: StorageBackend) -> Result<Opened, RunFailed> {
    Ok(match kind {
        StorageBackend::Memory => (Box::new(MemoryLedger::new()), None),
        StorageBackend::Disk => {
            no_raft_in(&config.data_dir)?;
            let ledger = open_dir(&config.data_dir, &config.cluster_id)?;
            (Box::new(ledger), None)
        }
        StorageBackend::Raft => {
            let (options, peers) = raft_config::member(config)?;
            let dir = data_dir(&config.data_dir, &config.cluster_id)?;
            let ledger = RaftLedger::open(Arc::new(RealDisk), dir, options, peers)?;
            let core = Arc::clone(ledger.core());
            (Box::new(ledger), Some(core))
        }
        StorageBackend::Postgres => {
            let address = Address::parse(&config.postgres_url)?;
            (
                Box::new(PostgresLedger::open(address, &config.cluster_id)?),
                None,
            )
        }
    })
}

/// Opens, or makes, the ledger of a data directory.
pub(crate) fn open_dir(dir: &Path, cluster: &ClusterId) -> Result<DiskLedger, RunFailed> {
    Ok(DiskLedger::open(
        Arc::new(RealDisk),
        data_dir(dir, cluster)?,
    )?)
}

/// A directory whose ledger was taken over by a raft ledger has nothing that counts beside it, and what was written there
/// would be a second history.
fn no_raft_in(dir: &Path) -> Result<(), RunFailed> {
    match dir.join(RAFT).exists() {
        false => Ok(()),
        true => Err(RunFailed::DataDir {
            dir: dir.display().to_string(),
            detail: "it holds a raft ledger (storage_backend = \"raft\")".into(),
        }),
    }
}

/// Opens, or makes, a data directory, and locks it.
fn data_dir(dir: &Path, cluster: &ClusterId) -> Result<DataDir, RunFailed> {
    private_dir(dir)?;
    let node = NodeId::new(NODE).map_err(|error| RunFailed::DataDir {
        dir: dir.display().to_string(),
        detail: error.to_string(),
    })?;
    Ok(DataDir::open(&RealDisk, dir, cluster, &node)?)
}

/// Makes the directory, and makes sure that nobody else can read it: private keys are in there.
fn private_dir(dir: &Path) -> Result<(), RunFailed> {
    let failed = |error: std::io::Error| RunFailed::DataDir {
        dir: dir.display().to_string(),
        detail: error.to_string(),
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    let mut permissions = std::fs::metadata(dir).map_err(failed)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o700);
        std::fs::set_permissions(dir, permissions).map_err(failed)?;
    }
    Ok(())
}
