//! Caches, counters and watches.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Sets a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePut {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// The value.
    #[serde(with = "super::text::bytes")]
    pub value: Bytes,
    /// Echoed in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// How long the value lives, in milliseconds of the broker's clock. Always written, `null` for
    /// ever.
    // protocol: message.7
    pub ttl_ms: Option<u64>,
}

/// Reads a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGet {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// Echoed in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
}

/// Removes a key; answered with what was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDelete {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// Echoed in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
}

/// A key's value, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheValue {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// The value. Always written, `null` for none.
    // protocol: message.7
    #[serde(with = "super::text::optional_bytes")]
    pub value: Option<Bytes>,
    /// The request's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// Which write set the value; only on a hit of a get, to clients that offered to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Done; the answer to puts and to the settling of group records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOk {
    /// The request's id.
    pub request_id: u64,
}

/// What must hold for a conditional put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheCondition {
    /// No live entry.
    Absent,
    /// A live entry of exactly this version.
    Version(u64),
}

/// Sets a key if a condition holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePutIf {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// The value.
    #[serde(with = "super::text::bytes")]
    pub value: Bytes,
    /// How long the value lives, in milliseconds of the broker's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// What must hold.
    pub condition: CacheCondition,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Removes a key if it still has a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDeleteIf {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// The version it must have.
    pub version: u64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How a conditional write went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheConditionResult {
    /// Whether the condition held and the write was made.
    pub applied: bool,
    /// After a put the version written; after a refusal the current one, absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The request's id.
    pub request_id: u64,
}

/// Adds to a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterAdd {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The counter's key, in a name space apart from values.
    pub key: String,
    /// What to add.
    pub delta: i64,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Reads a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterGet {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// The counter's key.
    pub key: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// A counter's sum, with the delta in it after an add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterValue {
    /// Absent when the counter was never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// The request's id.
    pub request_id: u64,
}

/// Asks for the changes of a key or of all keys with a prefix, on an event stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheWatch {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// Exactly one of `key` and `prefix` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// An empty prefix means every key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The shard a prefix watch reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// First change not yet seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_offset: Option<u64>,
    /// Asks for the current values first; not together with `from_offset`.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub retained: bool,
    /// Accepted and ignored: the broker assigns the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<u64>,
}

/// The watch stands; its event stream is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheWatchStarted {
    /// Unique among the connection's subscriptions.
    pub subscription_id: u64,
    /// First offset that is live.
    pub resume_offset: u64,
    /// Compaction had collapsed the range asked for, so current values come instead.
    #[serde(default, deserialize_with = "super::text::null_is_default")]
    pub resnapshot: bool,
    /// How many current values come first; present exactly when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retained_count: Option<u64>,
}

/// One change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEvent {
    /// The key.
    pub key: String,
    /// The new value; absent when the key was deleted or expired.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::text::optional_bytes"
    )]
    pub value: Option<Bytes>,
    /// Where the change stands in the shard's log; ascending, with gaps.
    pub offset: u64,
    /// When the value expires, Unix milliseconds; 0 for never.
    pub expires_at_millis: u64,
}

/// The watcher was too slow; watch again from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheWatchLagged {
    /// First change that was dropped.
    pub resume_from: u64,
}
