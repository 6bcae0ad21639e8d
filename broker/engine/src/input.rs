//! Everything that can happen to a shard.

use std::fmt;
use std::sync::Arc;

use felix_model::{Offset, ProducerId};

use crate::batch::{Batch, Draft};
use crate::refused::WriteFailure;

/// Names one append until it is answered. Chosen by the shell, never interpreted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names one subscription. Chosen by the shell; unique among the readers the shard has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReaderId(pub u64);

impl fmt::Display for ReaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// When the publisher wants to hear of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckWhen {
    /// Once the batch is below the committed mark. The answer carries its offsets.
    Committed,
    /// Once it was admitted and given its place in the order; it may still be lost. The answer
    /// carries no offsets, because the batch is not in the log yet.
    Accepted,
    /// Not at all, not even when it is refused.
    Never,
}

/// Where a batch stands among those of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// Who sent it.
    pub producer: ProducerId,
    /// From 0, one more with every batch for this shard.
    pub sequence: u64,
    /// [`payload_digest`](crate::payload_digest) of its payloads.
    pub digest: u64,
}

/// One batch on its way in.
#[derive(Debug)]
pub struct Append {
    /// Comes back in [`Effect::Reply`](crate::Effect::Reply).
    pub ticket: Ticket,
    /// What to append.
    pub batch: Draft,
    /// Append only if this is the next offset, appends in flight included.
    pub expected: Option<Offset>,
    /// For an idempotent producer. Such a batch should be acknowledged `Committed`.
    pub producer: Option<Produced>,
    /// When to answer.
    pub ack: AckWhen,
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the next batch to be committed.
    Latest,
    /// With the oldest that is still there.
    Earliest,
    /// With this offset, which must not lie below the oldest nor above the committed mark.
    Offset(Offset),
}

/// What reading the journal for one reader came to.
#[derive(Clone, Debug)]
pub enum Page {
    /// Whole batches in offset order without holes. The first may begin below what was asked for,
    /// but not end at or below it; there is at least one.
    Batches(Vec<Arc<Batch>>),
    /// The same from where the log was compacted: batches may be missing before, between and after
    /// those that are left, of which there may be none.
    Sparse {
        /// In offset order. None ends at or below what was asked for.
        batches: Vec<Arc<Batch>>,
        /// Where to go on: what lies between is in the batches or gone for good.
        next: Offset,
    },
    /// Retention took the position away in the meantime.
    BelowStart {
        /// The first offset that is still there.
        oldest: Offset,
    },
    /// The journal could not read it: an I/O error or damage on disk, logged by the shell.
    Unreadable,
}

/// Why a shard is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Another broker takes the shard over.
    Moved,
    /// The stream was deleted.
    Deleted,
    /// The broker is shutting down.
    Stopping,
    /// The journal failed and the shard is about to be opened anew by recovery.
    Reopening,
}

/// One thing that happened. [`Shard::handle`](crate::Shard::handle) takes them one by one.
#[derive(Debug)]
pub enum Input {
    /// Somebody publishes.
    Append(Append),
    /// The journal wrote everything below `end`. Marks that go back are ignored.
    Written {
        /// Exclusive.
        end: Offset,
    },
    /// The journal made everything below `end` survive power loss; it is written, too.
    Flushed {
        /// Exclusive.
        end: Offset,
    },
    /// The journal failed to write the batch at `from`, or to flush.
    ///
    /// The journal takes batches only where its end is, so those written behind a failed one are
    /// dropped by it without a further report, and the next it takes has base `from` again.
    WriteFailed {
        /// First offset that did not make it.
        from: Offset,
        /// What went wrong. Anything but [`WriteFailure::Full`] poisons the shard.
        why: WriteFailure,
    },
    /// Somebody wants to read. Answered with `Subscribed` or `SubscribeRefused`.
    Subscribe {
        /// Must not be one the shard already has.
        reader: ReaderId,
        /// Where to begin.
        start: Start,
    },
    /// The reader has room. Answered by one `Deliver` (now, after a page was read, or with the
    /// next commit) or by `ReaderEnded`. A second `Pull` before the answer only renews the bound.
    Pull {
        /// Who.
        reader: ReaderId,
        /// Bound of one delivery in [`Batch::bytes_len`]. One batch is delivered even when it is
        /// larger.
        max_bytes: u32,
    },
    /// Answers [`Effect::Read`](crate::Effect::Read).
    PageRead {
        /// For whom it was read.
        reader: ReaderId,
        /// The `from` of the `Read` it answers. A page for any other position than the one the
        /// reader waits at is ignored: it was read for somebody who had the same id before.
        from: Offset,
        /// What was read.
        page: Page,
    },
    /// The reader has gone. Nothing is said to it any more.
    Unsubscribe {
        /// Who.
        reader: ReaderId,
    },
    /// Retention removed everything below `start`. Durable streams only: what an in-memory stream
    /// holds is bounded by its ring, and anything else is ignored.
    Trimmed {
        /// The first offset that is still there.
        start: Offset,
    },
    /// [`Shard::next_timeout`](crate::Shard::next_timeout) has come.
    Timeout,
    /// Stop: new appends are refused and readers end now; appends in flight are still answered as
    /// the journal reports, and then [`Effect::Closed`](crate::Effect::Closed) follows. A shard that
    /// is closed already says so again; the first reason stands.
    Close {
        /// Told to publishers and readers.
        reason: CloseReason,
    },
}
