//! Everything that can happen to the groups of a shard, and everything they want done.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use felix_model::{Offset, Record, TimeMs};

use super::ask::{Answer, Ask, ScheduleId, Ticket};
use crate::batch::Batch;
use crate::refused::{AppendRefused, WriteFailure};

/// Names one cursor of a group in the stream's shard. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId(pub u64);

/// Names one read of records. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// What the shell knows when it hands in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time by a clock that only goes forward: leases, waits and rests go by it.
    pub now: TimeMs,
    /// The time of day. It may be set, also back: schedules go by it.
    pub wall: TimeMs,
    /// Oldest offset the stream's log holds.
    pub start: Offset,
    /// Committed mark of the stream's log. Exclusive.
    pub tail: Offset,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the log of the stream.
    Data,
    /// In the lane, among what the groups keep.
    Lane,
}

/// One record that must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Want {
    /// Which log.
    pub place: Place,
    /// Where in it.
    pub at: Offset,
}

/// What reading one record came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The record.
    Record(Record),
    /// There is none at that offset (any more).
    Nothing,
    /// The log could not be read there.
    Unreadable,
}

/// Why a cursor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEnd {
    /// Retention took what was to come next.
    TooOld {
        /// Oldest offset held.
        oldest: Offset,
    },
    /// The log cannot be read there.
    Unreadable {
        /// Where.
        position: Offset,
    },
    /// The shard takes no more readers, or is closing.
    Closed,
}

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// Somebody asks. Answered by [`Effect::Answer`], sooner or later.
    Ask {
        /// Comes back with the answer.
        ticket: Ticket,
        /// What.
        ask: Ask,
    },
    /// Nobody waits for an answer any more. A poll that still waits takes nothing.
    Forget {
        /// Which.
        ticket: Ticket,
    },
    /// The stream's shard delivers to a cursor.
    Fed {
        /// Which.
        feed: FeedId,
        /// The batches, ascending; the first may begin below what was asked for.
        batches: Vec<Arc<Batch>>,
    },
    /// A cursor that was pulled has nothing, and delivers with the next commit.
    FeedParked {
        /// Which.
        feed: FeedId,
    },
    /// A cursor ended.
    FeedEnded {
        /// Which.
        feed: FeedId,
        /// Why.
        why: FeedEnd,
    },
    /// Answers [`Effect::Read`]. Wants that are left out were not read for want of room.
    Read {
        /// Which.
        read: ReadId,
        /// In the order of the wants.
        found: Vec<(Want, Found)>,
    },
    /// The lane wrote everything below `end`.
    LaneWritten {
        /// Exclusive.
        end: Offset,
    },
    /// The lane made everything below `end` survive power loss; it is written, too.
    LaneFlushed {
        /// Exclusive.
        end: Offset,
    },
    /// The lane failed. The groups stop and must be opened anew from it.
    LaneFailed {
        /// How.
        why: WriteFailure,
    },
    /// Answers [`Effect::Append`].
    Appended {
        /// Which.
        id: ScheduleId,
        /// What became of it.
        outcome: Result<(), AppendRefused>,
    },
    /// [`Groups::next_timeout`](super::Groups::next_timeout) has come.
    Timeout,
    /// Write the whole state into the lane, so that what is older can go.
    Checkpoint,
    /// Stop: whoever waits is refused.
    Close,
}

/// One thing to do. Carry them out in the order in which they were pushed.
#[derive(Debug)]
pub enum Effect {
    /// Hand a batch to the lane, which writes in this order.
    Write {
        /// Patched with its base offset and generation.
        batch: Bytes,
        /// Where the lane ends with it, exclusive.
        end: Offset,
    },
    /// Answer a question.
    Answer {
        /// Which.
        ticket: Ticket,
        /// The answer.
        answer: Answer,
    },
    /// Attach a cursor to the stream's shard. Answered by [`Input::Fed`] after pulls, or by [`Input::FeedEnded`].
    Feed {
        /// Its name.
        feed: FeedId,
        /// Where it begins.
        from: Offset,
    },
    /// Let a cursor deliver once.
    Pull {
        /// Which.
        feed: FeedId,
    },
    /// Take a cursor away. Nothing is expected of it any more.
    Unfeed {
        /// Which.
        feed: FeedId,
    },
    /// Read records. Answered by [`Input::Read`].
    Read {
        /// Its name.
        read: ReadId,
        /// Which records, ascending within each log.
        wants: Vec<Want>,
        /// Stop when so many bytes were read; one record is read even when it is larger.
        max_bytes: usize,
    },
    /// Append a scheduled record to the stream. Answered by [`Input::Appended`].
    Append {
        /// Which.
        id: ScheduleId,
        /// A record batch v2 of one record, marked internal.
        batch: BytesMut,
    },
    /// The groups were told to close, and everybody has heard.
    Closed,
}
