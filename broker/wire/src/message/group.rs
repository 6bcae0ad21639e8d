//! Consumer groups: polling, settling, dead letters and administration.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::subscribe::Start;

/// Asks for records to work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPoll {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// At most this many records.
    pub max_records: u32,
    /// How long to wait for the first one, in milliseconds.
    pub wait_ms: u64,
    /// Echoed in the answer.
    pub request_id: u64,
    /// Which member asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// Hands over, first, the claims this member held on an older connection.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub reclaim: bool,
    /// How long the claims last, in milliseconds; 0 for the broker's default.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub visibility_ms: u64,
}

/// Records claimed by a poll; none when the wait was in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecords {
    /// The records, lowest offset first.
    #[serde(deserialize_with = "super::text::list")]
    pub records: Vec<GroupRecord>,
    /// The request's id.
    pub request_id: u64,
}

/// One claimed record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The record.
    pub offset: u64,
    /// Its payload.
    #[serde(with = "super::text::bytes")]
    pub payload: Bytes,
    /// How often it was handed out; 1 is the first time.
    pub attempts: u32,
    /// How many offsets directly below hold no event; only to clients that offered to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_before: Option<u64>,
    /// Who published it; only to clients that offered to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// When it was appended, Unix microseconds; only to clients that offered to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_micros: Option<u64>,
}

/// Finishes a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAck {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Gives a record back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupNack {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
    /// How long it rests before it is owed again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Which delivery is given back; 0 for whichever stands.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub attempts: u32,
}

/// Prolongs a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupExtend {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Which delivery is meant.
    pub attempts: u32,
    /// How long the claim shall last from now, in milliseconds.
    pub extend_ms: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How long the claim lasts now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupExtended {
    /// Granted, in milliseconds from now.
    pub visible_ms: u64,
    /// The request's id.
    pub request_id: u64,
}

/// Sets a record aside as one that cannot be processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDeadLetter {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Asks which records were set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDeadLetters {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// The records that were set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDeadLetterList {
    /// Their offsets, ascending.
    #[serde(deserialize_with = "super::text::list")]
    pub offsets: Vec<u64>,
    /// The request's id.
    pub request_id: u64,
}

/// Drops a record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDiscard {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Makes a record that was set aside owed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRedrive {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// The record.
    pub offset: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Moves a group's position and voids its claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSeek {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// Where to.
    pub start: Start,
    /// Only if the group has no position yet and nothing was handed out.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub if_new: bool,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Where a group stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPosition {
    /// Everything below is finished.
    pub offset: u64,
    /// Whether the seek moved it.
    pub moved: bool,
    /// The request's id.
    pub request_id: u64,
}

/// Asks how a group is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDescribe {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How a group is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDescription {
    /// Everything below is finished; absent before the first position was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
    /// The shard's next offset (exclusive end).
    pub tail: u64,
    /// Records out on a claim.
    pub in_flight: u64,
    /// Records waiting to be handed out again.
    pub owed: u64,
    /// Records set aside.
    pub dead_letters: u64,
    /// The request's id.
    pub request_id: u64,
}

/// Forgets a group: its position, claims and dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDelete {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Name of the group.
    pub group: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Whether there was something to forget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDeleted {
    /// Whether the group existed.
    pub existed: bool,
    /// The request's id.
    pub request_id: u64,
}
