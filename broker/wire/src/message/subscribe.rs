//! Subscribing, and the JSON frames of an event stream.

use bytes::Bytes;
use felix_model::Payloads;
use serde::{Deserialize, Serialize};

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the first record appended from now on.
    Latest,
    /// With the oldest record retained.
    Earliest,
    /// With this offset.
    Offset(u64),
}

/// Asks for the records of one shard, on an event stream the broker opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// Accepted and ignored: the broker assigns the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<u64>,
    /// Absent means latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Absent means shard 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Wanted queue length in batches, a hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_capacity: Option<u32>,
    /// Asks for `deliver` frames of the `records` extension instead of event batches. Counts only
    /// on a stream that was granted the extension.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub records: bool,
}

/// The subscription stands; its event stream is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// Unique among the connection's subscriptions.
    pub subscription_id: u64,
    /// First offset that will be delivered; absent for in-memory streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_offset: Option<u64>,
    /// Tail when the reader was attached: below it is history. Never below `start_offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_offset: Option<u64>,
    /// The queue length granted, in batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_capacity: Option<u32>,
}

/// Why a start offset cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CursorReason {
    /// Retention has passed it.
    TooOld,
    /// It lies beyond the tail. The tail itself is a valid start.
    InFuture,
}

/// The start offset cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeCursorError {
    /// On which side of the log it lies.
    pub reason: CursorReason,
    /// The offset asked for.
    pub requested: u64,
    /// The oldest retained offset, or the tail (exclusive end).
    pub available: u64,
    /// Headers of the trim that hid the offset; only to clients that offered to read them.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub trim_headers: Option<Bytes>,
}

/// The first frame of every event stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStreamHello {
    /// The subscription or watch whose events follow.
    pub subscription_id: u64,
}

/// One event, in the oldest form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventOne {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payload.
    #[serde(with = "super::text::bytes")]
    pub payload: Bytes,
    /// Its offset; absent for in-memory streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// Several events with contiguous offsets, in the oldest form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMany {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The payloads.
    #[serde(with = "super::text::payloads")]
    pub payloads: Payloads,
    /// Offset of the first; absent for in-memory streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_offset: Option<u64>,
}

/// The subscription ends here and goes on at another broker, or at this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMoved {
    /// The subscription.
    pub subscription_id: u64,
    /// First offset this broker did not offer; absent for in-memory streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<u64>,
    /// Who leads now, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Its client address, when it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// The generation in which it leads.
    pub generation: u64,
}

/// The reader was too slow and the subscription ends with a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionLagged {
    /// The subscription.
    pub subscription_id: u64,
    /// First offset that was dropped; everything before it was sent.
    pub resume_from: u64,
}

/// The stream is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDeleted {
    /// The subscription.
    pub subscription_id: u64,
}
