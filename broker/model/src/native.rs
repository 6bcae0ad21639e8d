//! The payload lists of the native frames, and how they become batches and come back.
//!
//! A publish frame carries a list of payloads and at most one key; the log keeps each payload as a
//! record with that key. Event frames carry the same kind of list, so a batch that is read from the log
//! is written to subscribers as one list again.
//!
//! What the native protocol knows beyond key and payload travels in internal headers on the first record
//! of the batch, and the batch is then marked [`ATTR_INTERNAL`](crate::ATTR_INTERNAL):
//!
//! ```text
//! "@"  the publisher's name, UTF-8
//! "#"  the native sequence, u64 big-endian; the producer's id is in the batch header, whose base sequence
//!      holds the low 31 bits of it
//! ```

mod decode;
mod digest;
mod encode;
mod payloads;

pub use decode::{Run, Runs, Times, digest_from_records, internal_headers, payloads_from_records};
pub use digest::payload_digest;
pub use encode::records_from_payloads;
pub use payloads::{Payloads, PayloadsIter, PayloadsRefused};

use crate::ProducerId;

/// Key of the header that names the publisher.
pub(crate) const HEADER_PUBLISHER: &[u8] = b"@";
/// Key of the header that holds the native sequence.
const HEADER_SEQUENCE: &[u8] = b"#";

/// What the broker keeps about a native publish beside its payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalHeaders<'a> {
    /// Who published, for streams that pass it on; at most
    /// [`PUBLISHER_BYTES_MAX`](crate::limits::PUBLISHER_BYTES_MAX) bytes.
    pub publisher: Option<&'a str>,
    /// The idempotent producer and its sequence of this batch.
    pub sequence: Option<NativeProducer>,
}

/// Who sent a native batch idempotently, and which of his batches it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeProducer {
    /// Who.
    pub producer: ProducerId,
    /// His batches to this shard, counted from 0.
    pub sequence: u64,
}

impl InternalHeaders<'_> {
    /// Whether there is nothing to keep, so that the batch needs no mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.publisher.is_none() && self.sequence.is_none()
    }
}
