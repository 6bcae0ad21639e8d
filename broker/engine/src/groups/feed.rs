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
    /// Where what was delivered ends.
    end: u64,
    /// Bytes of what nobody took yet.
    bytes: u64,
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
            end: position,
            bytes: 0,
            batches: VecDeque::new(),
            current: None,
            peeked: None,
        }
    }

    pub(super) fn push(&mut self, batches: Vec<Arc<Batch>>) {
        self.asked = Asked::No;
        if let Some(last) = batches.last() {
            self.end = last.end.0;
        }
        self.bytes += batches.iter().map(|batch| batch.bytes_len).sum::<u64>();
        self.batches.extend(batches);
    }

    /// Whether a poll for so many records should wait for another delivery, because there are more and fewer than it
    /// asks for are at hand.
    pub(super) fn is_short(&self, most: usize, bytes_max: u64, tail: u64) -> bool {
        let at_hand = self.end.saturating_sub(self.position);
        self.asked != Asked::Parked
            && self.end < tail
            && at_hand < most as u64
            && self.bytes < bytes_max
    }

    /// The next record at or above the position.
    pub(super) fn next(&mut self) -> Option<Record> {
        if let Some(record) = self.peeked.take() {
            return Some(record);
        }
        loop {
            if self.current.is_none() {
                let batch = self.batches.pop_front()?;
                self.bytes = self.bytes.saturating_sub(batch.bytes_len);
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
