//! Atomic commits and the state they keep.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Appends an event and changes an entity's state in one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The entity; routes to a shard like a publish key.
    #[serde(with = "super::text::bytes")]
    pub entity_key: Bytes,
    /// What subscribers see.
    #[serde(with = "super::text::bytes")]
    pub event: Bytes,
    /// State changes, applied in order.
    #[serde(deserialize_with = "super::text::list")]
    pub changes: Vec<Change>,
    /// Echoed in the answer.
    pub request_id: u64,
    /// The offset the record must get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_offset: Option<u64>,
    /// Shard to write to instead of hashing the entity key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
}

/// One change of an entity's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", try_from = "ChangeFields")]
pub enum Change {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        #[serde(with = "super::text::bytes")]
        value: Bytes,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// The fields of a change as they arrive. Reading them flat avoids the buffer that serde needs
/// for a tag inside an object, which would cost many times the bytes received.
#[derive(Deserialize)]
struct ChangeFields {
    op: Op,
    key: String,
    #[serde(default, with = "super::text::optional_bytes")]
    value: Option<Bytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Put,
    Delete,
}

impl TryFrom<ChangeFields> for Change {
    type Error = &'static str;

    fn try_from(fields: ChangeFields) -> Result<Self, Self::Error> {
        let ChangeFields { op, key, value } = fields;
        match op {
            Op::Put => value
                .map(|value| Self::Put { key, value })
                .ok_or("missing field `value`"),
            Op::Delete => Ok(Self::Delete { key }),
        }
    }
}

/// The commit is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitOk {
    /// The request's id.
    pub request_id: u64,
    /// The record's offset.
    pub offset: u64,
}

/// Reads a key of an entity's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateGet {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The entity.
    #[serde(with = "super::text::bytes")]
    pub entity_key: Bytes,
    /// The key within its state.
    pub key: String,
    /// Echoed in the answer.
    pub request_id: u64,
    /// Shard to read instead of hashing the entity key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
}

/// A key of an entity's state, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateValue {
    /// The value. Always written, `null` for none.
    // protocol: message.7
    #[serde(with = "super::text::optional_bytes")]
    pub value: Option<Bytes>,
    /// Offset of the commit that wrote the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Offset of the last commit reflected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// The request's id.
    pub request_id: u64,
}
