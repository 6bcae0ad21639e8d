//! What can be refused, and what can go wrong.

use felix_model::Offset;

use crate::input::CloseReason;

/// How the journal failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// No space. Nothing of the batch remains and the journal goes on once there is space again.
    Full,
    /// A write failed and was undone. The shard stops all the same and is opened anew by recovery:
    /// a disk that fails writes is not to be trusted with acknowledgements.
    Io,
    /// A flush failed, or a failed write could not be undone. What is on disk is known only after
    /// recovery.
    Poisoned,
}

/// Why an append was refused.
///
/// Nothing was appended, with one exception: after [`AppendRefused::OutcomeUnknown`] recovery may
/// find the batch or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefused {
    /// The caller's: the condition of a conditional publish does not hold.
    #[error("the next offset is {tail}, not the expected one")]
    OffsetMismatch {
        /// The next offset, appends in flight included.
        tail: Offset,
    },
    /// The caller's: a sequence was left out.
    #[error("the next sequence of this producer is {expected}")]
    SequenceGap {
        /// The sequence that would be taken.
        expected: u64,
    },
    /// The caller's: the sequence is older than what is remembered.
    #[error("the sequence is older than the {remembered} that are remembered")]
    SequenceExpired {
        /// How many are.
        remembered: u32,
    },
    /// The caller's: the sequence is remembered with other payloads, at these offsets.
    #[error("the sequence was used for other payloads, at offset {base}")]
    SequenceReused {
        /// Of the first record of what was appended under the sequence.
        base: Offset,
        /// Exclusive.
        end: Offset,
    },
    /// The caller's: the producer is not known (any more) and the sequence is not 0.
    #[error("the producer is not known to this shard")]
    UnknownProducer,
    /// The caller's: the batch holds nothing.
    #[error("the batch holds no record")]
    Empty,
    /// The caller's: the batch could never be held.
    #[error("batch of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Of the batch.
        size: u64,
        /// Of the stream.
        limit: u64,
    },
    /// The producer's: of the Kafka protocol, a batch before this one is missing, or this is an old one.
    #[error("the next sequence of this producer is {expected}")]
    KafkaSequence {
        /// The sequence that would be appended.
        expected: i32,
    },
    /// The producer's: another one has taken its id over.
    #[error("a producer of epoch {epoch} has taken the id over")]
    ProducerFenced {
        /// The epoch that holds.
        epoch: i16,
    },
    /// Try again: too much is in flight to the journal.
    #[error("{in_flight} bytes are in flight, the limit is {limit}")]
    Busy {
        /// Bytes admitted and not yet committed.
        in_flight: u64,
        /// Of the shard.
        limit: u64,
    },
    /// Try again: readers of this in-memory stream are too slow and it was created to wait for
    /// them (`overflow: block`).
    #[error("readers are {held} batches behind what this stream may hold")]
    Blocked {
        /// Batches that wait for readers.
        held: u32,
    },
    /// Try again when there is space.
    #[error("the disk is full")]
    StorageFull,
    /// Try again: the shard stopped after a failed write and is to be reopened. Nothing of this
    /// batch is in the log.
    #[error("the shard failed to write and waits for recovery")]
    Poisoned,
    /// The batch was handed to the journal, and then a flush failed or a failed write could not be
    /// undone.
    #[error("a write failed; whether the batch is in the log is not known")]
    OutcomeUnknown,
    /// The shard takes no more appends here.
    #[error("the shard is closed here: {reason:?}")]
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a subscription did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeRefused {
    /// The caller's: the offset was removed by retention.
    #[error("the oldest offset is {oldest}")]
    TooOld {
        /// First offset that is still there.
        oldest: Offset,
    },
    /// The caller's: the offset lies beyond the end.
    #[error("the next offset is {next}")]
    InFuture {
        /// The committed mark.
        next: Offset,
    },
    /// The shard has as many readers as it may.
    #[error("the shard has {limit} readers, which is the limit")]
    TooManyReaders {
        /// [`Limits::readers_max`](crate::Limits::readers_max).
        limit: u32,
    },
    /// The shell's: this reader exists already. The existing one is not touched.
    #[error("the reader is subscribed already")]
    Duplicate,
    /// The shard serves no readers here any more.
    #[error("the shard is closed here: {reason:?}")]
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a subscription ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderEnd {
    /// Retention removed what the reader was to get next.
    TooOld {
        /// The first offset that was not delivered.
        position: Offset,
        /// The first offset that is still there: where to resume.
        oldest: Offset,
    },
    /// The journal cannot read what the reader was to get next.
    Unreadable {
        /// The first offset that was not delivered.
        position: Offset,
    },
    /// The shard closed.
    Closed {
        /// Why.
        reason: CloseReason,
        /// The first offset that was not delivered: where to resume.
        resume: Offset,
    },
}
