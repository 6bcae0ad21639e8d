//! A copy of every shard log of a running broker.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::LogHandle;
use felix_journal::backup::CopyRefused;
use felix_journal::data_dir::lane_beside;
use felix_model::ShardIndex;
use serde::Serialize;

use crate::broker::Shared;
use crate::shards::Marker;

/// The file in which the journal keeps whose data a directory is.
const IDENTITY: &str = "identity.json";

/// What a backup holds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    node_id: String,
    directory: PathBuf,
    shards: Vec<Copied>,
}

#[derive(Debug, Serialize)]
struct Copied {
    stream: String,
    incarnation: u64,
    shard: u32,
    start: u64,
    /// The first offset that is not in the copy.
    end: u64,
    bytes: u64,
}

/// Why there is no backup. What was written of it is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupRefused {
    #[error("this broker has no data directory: there is nothing to copy")]
    NoStore,
    #[error("shard {shard} of {stream}: {source}")]
    Copy {
        stream: String,
        shard: u32,
        source: CopyRefused,
    },
    #[error("shard {shard} of {stream} cannot be flushed: {reason}")]
    Flush {
        stream: String,
        shard: u32,
        reason: String,
    },
    #[error("{0}")]
    Directory(String),
    #[error("the copy was interrupted")]
    Interrupted,
}

impl BackupRefused {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NoStore => "no_storage",
            Self::Copy { .. } | Self::Flush { .. } => "copy_failed",
            Self::Directory(_) => "bad_directory",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Copies a consistent prefix of every log below `to`, which must be empty or absent. A record that was
/// acknowledged before the call is in the copy.
pub(crate) async fn write(shared: &Arc<Shared>, to: PathBuf) -> Result<Report, BackupRefused> {
    let shared = Arc::clone(shared);
    // Every log on disk is copied, also of streams that nobody has used since the start.
    shared.verify_shards().await;
    tokio::task::spawn_blocking(move || copy(&shared, to))
        .await
        .map_err(|_| BackupRefused::Interrupted)?
}

fn copy(shared: &Shared, to: PathBuf) -> Result<Report, BackupRefused> {
    let store = shared.shards.store.as_ref().ok_or(BackupRefused::NoStore)?;
    let directory = |error: &dyn std::fmt::Display| BackupRefused::Directory(error.to_string());
    if store
        .disk
        .list(&to)
        .is_ok_and(|entries| !entries.is_empty())
    {
        return Err(BackupRefused::Directory(format!(
            "{} is not empty",
            to.display()
        )));
    }
    felix_journal::durable::create_dirs(store.disk.as_ref(), &to).map_err(|e| directory(&e))?;
    let mut shards = Vec::new();
    for (spec, shard, cell) in shared.shards.open_shards() {
        let Some(log) = cell.log() else { continue };
        let stream = spec.id.to_string();
        let copy_log = |log: &LogHandle, target: &Path| {
            let until = log.flush().map_err(|error| BackupRefused::Flush {
                stream: stream.clone(),
                shard,
                reason: error.to_string(),
            })?;
            log.copy_to(target, until)
                .map_err(|source| BackupRefused::Copy {
                    stream: stream.clone(),
                    shard,
                    source,
                })
        };
        let place = |root: &Path| {
            felix_journal::data_dir::log_dir(root, &spec.id, spec.incarnation, ShardIndex(shard))
        };
        let target = place(&to);
        // Before the stream's own log, so that no group in the copy has finished what the copy does not hold.
        if let Some(groups) = cell.groups() {
            copy_log(&groups.lane(), &lane_beside(&target))?;
        }
        let copied = copy_log(&log, &target)?;
        let origin = place(&store.root);
        for marker in Marker::ALL {
            if marker.is_at(store, &origin) {
                felix_journal::durable::create(store.disk.as_ref(), &marker.path(&target))
                    .map_err(|e| directory(&e))?;
            }
        }
        crate::raw::copy_start(store.disk.as_ref(), &origin, &target).map_err(|e| directory(&e))?;
        shards.push(Copied {
            stream,
            incarnation: spec.incarnation.0,
            shard,
            start: copied.start.0,
            end: copied.end.0,
            bytes: copied.bytes,
        });
    }
    copy_caches(shared, &to, &mut shards)?;
    // A copy that says whose it is can be started from.
    let identity = felix_journal::durable::read(store.disk.as_ref(), &store.root.join(IDENTITY))
        .map_err(|e| directory(&e))?;
    if let Some(identity) = identity {
        felix_journal::durable::replace(store.disk.as_ref(), &to.join(IDENTITY), &identity)
            .map_err(|e| directory(&e))?;
    }
    Ok(Report {
        version: 1,
        node_id: shared.config.node_id.clone(),
        directory: to,
        shards,
    })
}

/// The logs of caches. What they come to is read from them at the first start.
fn copy_caches(shared: &Shared, to: &Path, shards: &mut Vec<Copied>) -> Result<(), BackupRefused> {
    for (handle, shard, cell) in shared.caches.open_shards() {
        let Some(log) = cell.log() else { continue };
        let spec = handle.spec();
        let name = format!("cache {}", spec.id);
        let until = log.flush().map_err(|error| BackupRefused::Flush {
            stream: name.clone(),
            shard: shard.0,
            reason: error.to_string(),
        })?;
        let place = |root: &Path| {
            felix_journal::data_dir::cache_log_dir(root, &spec.id, spec.incarnation, shard)
        };
        let copied = log
            .copy_to(&place(to), until)
            .map_err(|source| BackupRefused::Copy {
                stream: name.clone(),
                shard: shard.0,
                source,
            })?;
        shards.push(Copied {
            stream: name,
            incarnation: spec.incarnation.0,
            shard: shard.0,
            start: copied.start.0,
            end: copied.end.0,
            bytes: copied.bytes,
        });
    }
    Ok(())
}
