//! New records on their way from the stream's shard to the polls of a group.

use std::collections::VecDeque;
use std::sync::Arc;

use felix_model::{Record, Records};

use super::io::FeedId;
use crate::batch::Batch;

/// A cursor of a group in the stream's shard, with what it delivered and nobody took yet.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) id: FeedId,
    /// The offset after the last record that was taken.
    pub(super) position: u64,
    pub(super) asked: Asked,
    batches: VecDeque<Arc<Batch>>,
    current: Option<Records>,
    /// Taken out, and handed back because there was no room for it.
    peeked: Option<Record>,
}

/// Whether the cursor was asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    Yes,
    /// It has nothing and waits for the next commit.
    Parked,
}

impl Feed {
    pub(super) fn new(id: FeedId, position: u64) -> Self {
        Self {
            id,
            position,
            asked: Asked::No,
            batches: VecDeque::new(),
            current: None,
            peeked: None,
        }
    }

    pub(super) fn push(&mut self, batches: Vec<Arc<Batch>>) {
        self.asked = Asked::No;
        self.batches.extend(batches);
    }

    /// The next record at or above the position.
    pub(super) fn next(&mut self) -> Option<Record> {
        if let Some(record) = self.peeked.take() {
            return Some(record);
        }
        loop {
            if self.current.is_none() {
                let batch = self.batches.pop_front()?;
                // A batch that cannot be read holds nothing for anybody: readers are not given it either.
                self.current = batch.log().and_then(|log| Records::new(log).ok());
            }
            match self.current.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) if record.offset.0 >= self.position => return Some(record),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.current = None,
            }
        }
    }

    pub(super) fn put_back(&mut self, record: Record) {
        self.peeked = Some(record);
    }
}
