//! Waiting for commits of several shards at once.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::shards::cell::{Cell, CommitWatch};

/// One who waits. Commits that came since it began to, or since it last woke, wake it at once.
#[derive(Debug)]
pub(super) struct Watch {
    waker: Arc<Notify>,
    _shards: Vec<CommitWatch>,
}

impl Watch {
    pub(super) fn new<'a>(cells: impl Iterator<Item = &'a Arc<Cell>>) -> Self {
        let waker = Arc::new(Notify::new());
        Self {
            _shards: cells.map(|cell| cell.watch(&waker)).collect(),
            waker,
        }
    }

    /// Waits for a commit. `false` when the time was over before.
    pub(super) async fn woken(&self, until: Instant) -> bool {
        timeout_at(until, self.waker.notified()).await.is_ok()
    }
}
