//! Which ledger a configuration means, and its opening.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use felix_journal::{DataDir, RealDisk};
use felix_model::{ClusterId, NodeId};

use crate::config::{Config, StorageBackend};
use crate::ledger::{Address, DiskLedger, Ledger, MemoryLedger, PostgresLedger};
use crate::server::RunFailed;

/// The node id in a control plane's data directory. There is one control plane in a cluster, and a broker's directory
/// must not be taken for its.
const NODE: &str = "controlplane";

/// Opens the ledger of a kind with what the configuration says about that kind. Blocking.
pub(crate) fn open(config: &Config, kind: StorageBackend) -> Result<Box<dyn Ledger>, RunFailed> {
    Ok(match kind {
        StorageBackend::Memory => Box::new(MemoryLedger::new()),
        StorageBackend::Disk => Box::new(open_dir(&config.data_dir, &config.cluster_id)?),
        StorageBackend::Postgres => {
            let address = Address::parse(&config.postgres_url)?;
            Box::new(PostgresLedger::open(address, &config.cluster_id)?)
        }
    })
}

/// Opens, or makes, the ledger of a data directory.
pub(crate) fn open_dir(dir: &Path, cluster: &ClusterId) -> Result<DiskLedger, RunFailed> {
    private_dir(dir)?;
    let node = NodeId::new(NODE).map_err(|error| RunFailed::DataDir {
        dir: dir.display().to_string(),
        detail: error.to_string(),
    })?;
    let dir = DataDir::open(&RealDisk, dir, cluster, &node)?;
    Ok(DiskLedger::open(Arc::new(RealDisk), dir)?)
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
