//! Publishing in JSON: batches, their answers, idempotent and conditional appends, trims.

use bytes::Bytes;
use felix_model::Payloads;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Detail, Failure, NamedCode, Retry};

/// When a JSON publish wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckMode {
    /// Never, not even on failure.
    None,
    /// Once a payload; one frame is one batch, so the answer is one too.
    PerMessage,
    /// Once a batch.
    PerBatch,
}

/// Appends one payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishOne {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payload.
    #[serde(with = "super::text::bytes")]
    pub payload: Bytes,
    /// Routing key; an empty key is a key.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub key: Option<Bytes>,
    /// Shard to write to instead of hashing the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Required when an answer is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// Absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<AckMode>,
}

/// Appends several payloads as one batch with contiguous offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishBatch {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payloads.
    #[serde(with = "super::text::payloads")]
    pub payloads: Payloads,
    /// Routing key of the whole batch; an empty key is a key.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub key: Option<Bytes>,
    /// Shard to write to instead of hashing the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Required when an answer is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// Absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<AckMode>,
}

/// A batch is in the log, or accepted, as the stream promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishOk {
    /// The request's id.
    pub request_id: u64,
    /// Offset of the batch's first record; only to clients that offered to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// A batch was not taken, or nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishError {
    /// The request's id.
    pub request_id: u64,
    /// For people.
    pub message: String,
    /// For programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<NamedCode>,
    /// Whether trying again can help; absent means the code's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

impl PublishError {
    /// Names the request a failure belongs to.
    pub fn new(request_id: u64, failure: Failure) -> Self {
        let Failure {
            message,
            code,
            retry,
            detail,
        } = failure;
        Self {
            request_id,
            message,
            code,
            retry,
            detail,
        }
    }

    /// The failure without its request.
    pub fn into_failure(self) -> Failure {
        let Self {
            message,
            code,
            retry,
            detail,
            ..
        } = self;
        Failure {
            message,
            code,
            retry,
            detail,
        }
    }

    /// Whether the failure carries this code.
    pub fn is(&self, code: Code) -> bool {
        self.code == Some(NamedCode::Known(code))
    }
}

/// Declares which width and routing the client used for the keyed batches that follow. Never
/// answered; lasts until the next declaration on the same stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishWidth {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The width used.
    pub shards: u32,
    /// Absent for modulo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

/// Asks for a producer id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerInit {
    /// Echoed in the answer.
    pub request_id: u64,
}

/// A producer id nobody else has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerInitOk {
    /// The request's id.
    pub request_id: u64,
    /// The id.
    pub producer_id: u64,
}

/// Appends a batch that a resend cannot append twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishIdempotent {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payloads.
    #[serde(with = "super::text::payloads")]
    pub payloads: Payloads,
    /// Routing key of the whole batch; an empty key is a key.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub key: Option<Bytes>,
    /// Shard to write to instead of hashing the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Echoed in the answer.
    pub request_id: u64,
    /// From `producer_init_ok`.
    pub producer_id: u64,
    /// Counts batches of this producer on this shard, from 0.
    pub sequence: u64,
}

/// Appends only if the shard's next offset is the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishIf {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payloads.
    #[serde(with = "super::text::payloads")]
    pub payloads: Payloads,
    /// Routing key of the whole batch; an empty key is a key.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub key: Option<Bytes>,
    /// Shard to write to instead of hashing the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// The offset the first record must get.
    pub expected_offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// An idempotent or conditional append that the log's state does not allow. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRefused {
    /// The request's id.
    pub request_id: u64,
    /// What stands in the way.
    pub reason: RefusedReason,
    /// For people.
    pub message: String,
}

/// What stood in the way of an idempotent or conditional append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedReason {
    /// The shard does not know the producer and the sequence is not 0.
    UnknownProducer,
    /// The sequence is older than what the shard remembers.
    SequenceExpired,
    /// The sequence was used before, with other payloads.
    SequenceReused,
    /// The sequence leaves a gap.
    SequenceGap {
        /// The sequence the shard waits for.
        expected: u64,
    },
    /// The shard's next offset is another.
    OffsetMismatch {
        /// The shard's next offset (exclusive end).
        tail: u64,
    },
    /// Another broker leads the shard.
    NotLeader {
        /// The broker that leads.
        node_id: String,
        /// Its client address, `ip:port`, when it is published.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addr: Option<String>,
    },
}

/// Hides everything below an offset, if the shard's next offset is the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimBefore {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// First offset that stays readable.
    pub before: u64,
    /// The offset the trim record must get.
    pub expected_offset: u64,
    /// Opaque words shown to readers who come too late.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub headers: Option<Bytes>,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// The floor stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimOk {
    /// The request's id.
    pub request_id: u64,
    /// Where the trim record landed; absent when nothing had to be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// First readable offset now.
    pub oldest: u64,
}
