//! Everything a shard wants done.

use std::sync::Arc;

use felix_model::Offset;

use crate::batch::{Batch, Run};
use crate::input::{ReaderId, Ticket};
use crate::refused::{AppendRefused, ReaderEnd, SubscribeRefused};

/// How an append went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is in the log, at these offsets, as durable as the stream promises.
    Committed {
        /// Of its first record.
        base: Offset,
        /// Exclusive.
        end: Offset,
    },
    /// An earlier sending of the same batch is in the log, at these offsets. Nothing was appended.
    Duplicate {
        /// Of its first record.
        base: Offset,
        /// Exclusive.
        end: Offset,
    },
    /// It was given its place ([`AckWhen::Accepted`](crate::AckWhen::Accepted)); it may be lost.
    Accepted,
}

impl Appended {
    /// Offset of the first record, where the log has it.
    pub fn base(self) -> Option<Offset> {
        match self {
            Self::Committed { base, .. } | Self::Duplicate { base, .. } => Some(base),
            Self::Accepted => None,
        }
    }
}

/// One thing to do. Carry them out in the order in which they were pushed.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Hand [`Batch::log`] to the journal, which writes in this order. Durable streams only.
    Write {
        /// Patched with its base offset and generation.
        batch: Arc<Batch>,
        /// Where the log ends with it, exclusive.
        end: Offset,
    },
    /// Answer an append. They leave in the order in which the appends came in.
    Reply {
        /// Which.
        ticket: Ticket,
        /// What became of it.
        outcome: Result<Appended, AppendRefused>,
    },
    /// Answer a subscription: it begins.
    Subscribed {
        /// Which.
        reader: ReaderId,
        /// The first offset that will be delivered.
        start: Offset,
        /// Where history ends and live begins: the end of what was committed and visible when the
        /// reader was attached, never below `start`.
        live: Offset,
    },
    /// Answer a subscription: it does not begin, and the reader is not known afterwards.
    SubscribeRefused {
        /// Which.
        reader: ReaderId,
        /// Why.
        why: SubscribeRefused,
    },
    /// Answer a `Pull`.
    Deliver {
        /// Whom.
        reader: ReaderId,
        /// The first record to deliver. The first batch may begin below it and is cut there.
        from: Offset,
        /// At least one batch, contiguous. Shared between readers that get the same.
        batches: Run,
        /// How many offsets directly below `from` hold records that are never delivered.
        skipped_before: u64,
        /// How many records before `from` this reader lost since the last delivery because it was
        /// too slow. In-memory streams only; these are not part of `skipped_before`.
        lost: u64,
    },
    /// Read the journal and answer with [`Input::PageRead`](crate::Input::PageRead).
    Read {
        /// For whom.
        reader: ReaderId,
        /// First offset wanted.
        from: Offset,
        /// Bound of the page in bytes; a single batch may be larger.
        max_bytes: u32,
        /// The committed mark: nothing at or beyond it may be in the page. Exclusive.
        until: Offset,
    },
    /// The subscription is over and its reader is not known afterwards.
    ReaderEnded {
        /// Which.
        reader: ReaderId,
        /// Why, and where to go on.
        why: ReaderEnd,
    },
    /// The shard was told to close and nothing is in flight any more. Nothing else
    /// but refusals follows.
    Closed,
}
