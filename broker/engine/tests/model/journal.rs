//! A journal that is as slow as one likes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use felix_engine::{Batch, WriteFailure};

/// What the journal has to say, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Report {
    Written(u64),
    Flushed(u64),
    Failed(u64, WriteFailure),
    Trimmed(u64),
}

/// A journal that is as slow as the operations want it to be.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) queue: VecDeque<Arc<Batch>>,
    pub(crate) written: Vec<Arc<Batch>>,
    /// Batches that compaction took, by their first offsets.
    pub(crate) gone: BTreeSet<u64>,
    pub(crate) flushed: u64,
    pub(crate) start: u64,
    /// It failed; batches are dropped until one begins at its end.
    dropping: bool,
    dead: bool,
    pub(crate) reports: VecDeque<Report>,
}

impl Disk {
    pub(crate) fn end(&self) -> u64 {
        self.written.last().map_or(0, |batch| batch.end.0)
    }

    pub(crate) fn write(&mut self, batches: usize, flush: bool) {
        for _ in 0..batches {
            let Some(batch) = self.queue.pop_front() else {
                break;
            };
            if self.dead || (self.dropping && batch.base.0 != self.end()) {
                continue;
            }
            assert_eq!(
                batch.base.0,
                self.end(),
                "the journal is handed a log without holes"
            );
            self.dropping = false;
            self.written.push(batch);
        }
        if self.dead {
            return;
        }
        self.reports.push_back(Report::Written(self.end()));
        if flush {
            self.flushed = self.end();
            self.reports.push_back(Report::Flushed(self.end()));
        }
    }

    pub(crate) fn fail(&mut self, why: WriteFailure) {
        let end = self.end();
        while self.dropping
            && self
                .queue
                .pop_front_if(|batch| batch.base.0 != end)
                .is_some()
        {}
        if self.dead || (why != WriteFailure::Poisoned && self.queue.is_empty()) {
            return;
        }
        let from = if why == WriteFailure::Poisoned {
            self.flushed
        } else {
            self.end()
        };
        // Queued batches fail one group at a time; those behind are dropped when their turn comes.
        self.queue.pop_front();
        self.dropping = true;
        self.dead = why != WriteFailure::Full;
        self.reports.push_back(Report::Failed(from, why));
    }
}
