//! Small files beside a log that say what is in it, so that only such logs are read through when they are opened.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use felix_journal::durable;
use felix_model::ShardIndex;
use felix_wire::error::{Code, Failure, Retry};

use super::open::log_directory;
use super::{Shards, Store, StreamHandle};

/// What a log holds beside plain records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Batches of idempotent producers.
    Producers,
    /// Commits with entity state.
    Commits,
}

/// Which markers of a shard are known to be on disk.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// Held while a marker is written: the first writers of a shard often come together.
    writing: Mutex<()>,
    producers: AtomicBool,
    commits: AtomicBool,
}

impl Marked {
    fn of(&self, marker: Marker) -> &AtomicBool {
        match marker {
            Marker::Producers => &self.producers,
            Marker::Commits => &self.commits,
        }
    }
}

impl Marker {
    /// Every kind.
    pub(crate) const ALL: [Self; 2] = [Self::Producers, Self::Commits];

    /// Where it is: beside the log, so that removing the log's files does not touch it.
    pub(crate) fn path(self, log_directory: &Path) -> PathBuf {
        log_directory.with_file_name(match self {
            Self::Producers => "producers",
            Self::Commits => "commits",
        })
    }

    pub(crate) fn is_at(self, store: &Store, log_directory: &Path) -> bool {
        let path = self.path(log_directory);
        store.disk.open_read_only(&path).is_ok()
    }
}

impl StreamHandle {
    /// Whether a marker is known to be on disk. There is none to be written of a shard that does not exist.
    fn is_marked(&self, shard: ShardIndex, marker: Marker) -> bool {
        let slot = self.slots.get(shard.0 as usize);
        slot.is_none_or(|slot| slot.marked.of(marker).load(Ordering::Acquire))
    }

    /// Takes away a marker of what a log was found not to hold, while the shard is opened: what would need the marker
    /// comes to the shard later, and asks for it again. Blocking.
    pub(super) fn unmark(&self, store: &Store, shard: ShardIndex, marker: Marker) {
        let Some(slot) = self.slots.get(shard.0 as usize) else {
            return;
        };
        let writing = slot.marked.writing.lock();
        let _writing = writing.unwrap_or_else(PoisonError::into_inner);
        slot.marked.of(marker).store(false, Ordering::Release);
        let path = marker.path(&log_directory(store, &self.spec(), shard.0));
        if let Err(error) = durable::unlink(store.disk.as_ref(), &path) {
            tracing::warn!(path = %path.display(), %error, "a marker that is of no use cannot be removed");
        }
    }
}

impl Shards {
    /// Remembers, before the first such append, what the log of a shard holds.
    ///
    /// # Errors
    /// `storage` or `overloaded`, retryable: nothing was appended.
    pub(crate) async fn mark(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: ShardIndex,
        marker: Marker,
    ) -> Result<(), Failure> {
        if handle.is_marked(shard, marker) {
            return Ok(());
        }
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        let marking = tokio::task::spawn_blocking(move || {
            let slot = handle.slots.get(shard.0 as usize)?;
            let writing = slot.marked.writing.lock();
            let _writing = writing.unwrap_or_else(PoisonError::into_inner);
            if handle.is_marked(shard, marker) {
                return None;
            }
            let store = shards.store.as_ref()?;
            let directory = log_directory(store, &handle.spec(), shard.0);
            // Also when it is there: whoever made it may have failed before its name was durable.
            let written = durable::replace(store.disk.as_ref(), &marker.path(&directory), b"");
            if written.is_ok() {
                slot.marked.of(marker).store(true, Ordering::Release);
            }
            written.err()
        });
        match marking.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) if error.is_full() => {
                Err(Failure::new(Code::Overloaded, "the disk is full").with_reason("storage_full"))
            }
            Ok(Some(error)) => {
                Err(Failure::new(Code::Storage, error.to_string()).with_retry(Retry::Retry))
            }
            Err(_) => {
                Err(Failure::new(Code::Internal, "marking was interrupted")
                    .with_retry(Retry::Retry))
            }
        }
    }
}
