//! What a shard has for one reader, handed from the turn that made it to the task that writes it out.
//!
//! A reader has at most one pull outstanding, so the queue holds a delivery and at most its end behind it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use felix_engine::{ReaderEnd, Run, SubscribeRefused};
use felix_model::Offset;
use tokio::sync::Notify;

/// One thing a shard says to a reader.
#[derive(Debug)]
pub(crate) enum Said {
    /// The subscription begins.
    Subscribed { start: Offset, live: Offset },
    /// It does not.
    Refused(SubscribeRefused),
    /// The answer to a pull.
    Deliver(Delivery),
    /// The subscription is over.
    Ended(ReaderEnd),
}

/// Contiguous batches for one reader.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The first record to deliver; the first batch may begin below it.
    pub(crate) from: Offset,
    pub(crate) batches: Run,
    /// Offsets directly below `from` that hold nothing for readers.
    pub(crate) skipped_before: u64,
    /// Records this reader lost since the last delivery.
    pub(crate) lost: u64,
}

/// The way from a shard to one reader.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    said: Mutex<VecDeque<Said>>,
    arrived: Notify,
}

impl Mailbox {
    /// Puts something in. Never waits.
    pub(crate) fn put(&self, said: Said) {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(said);
        self.arrived.notify_one();
    }

    /// Takes the oldest, waiting for it. Cancel-safe.
    pub(crate) async fn take(&self) -> Said {
        loop {
            let oldest = self
                .said
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            if let Some(said) = oldest {
                return said;
            }
            self.arrived.notified().await;
        }
    }
}
