//! Bounded reads and lookups by time.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Asks for the first record appended at or after a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetForTime {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Unix microseconds.
    pub at_micros: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Where the records of a time begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetValue {
    /// Absent when nothing is that recent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The request's id.
    pub request_id: u64,
}

/// Reads one page of committed records, without waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRead {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// First offset wanted.
    pub from: u64,
    /// Exclusive end; absent for the committed tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// At most this many records; 0 for the broker's cap.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub max_records: u32,
    /// About this many payload bytes; 0 for the broker's cap.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub max_bytes: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// One page of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRecords {
    /// The records, ascending.
    #[serde(deserialize_with = "super::text::list")]
    pub records: Vec<StreamRecord>,
    /// Where the next page begins; may pass over offsets that hold no event.
    pub next_offset: u64,
    /// The request's id.
    pub request_id: u64,
}

/// One record of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// The record.
    pub offset: u64,
    /// Its payload.
    #[serde(with = "super::text::bytes")]
    pub payload: Bytes,
    /// Who published it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// When it was appended, Unix microseconds.
    pub timestamp_micros: u64,
}
