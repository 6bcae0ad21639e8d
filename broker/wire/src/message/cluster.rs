//! Discovery, widths, owners and redirects, and what is said to a request nobody knows.

use serde::{Deserialize, Serialize};

use super::text::RawJson;

/// A request this broker does not know; the stream stays usable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// The `type` of the request.
    pub request_type: String,
    /// The name of the extension, when the request was an `extension`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// The request's id, if it was an unsigned integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
}

/// Reserved by the published protocol for requests outside it; answered with `unsupported`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionRequest {
    /// Which extension is meant.
    pub name: String,
    /// Echoed in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// Whatever the extension says it is; kept as the text that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<RawJson>,
}

/// Another broker leads the shard. Only for clients that offered to read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// The broker that leads.
    pub node_id: String,
    /// Its client address, `host:port`, when it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// The generation in which it leads.
    pub generation: u64,
}

/// Where the brokers are that take new clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyView {
    /// The brokers, in no order that matters. Empty is valid.
    #[serde(deserialize_with = "super::text::list")]
    pub brokers: Vec<BrokerAddress>,
}

/// One broker of a `topology_view`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerAddress {
    /// The broker's id.
    pub node_id: String,
    /// Its client listener, `host:port`.
    pub addr: String,
}

/// Asks how many shards a stream has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamShards {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How wide a stream is and how keys choose a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamShardsView {
    /// Number of shards; 0 means the stream is unknown.
    pub shards: u32,
    /// The request's id.
    pub request_id: u64,
    /// Absent for modulo, otherwise [`ROUTING_JUMP_HASH`] or a name this library does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

/// The routing name that stands for jump consistent hashing.
pub const ROUTING_JUMP_HASH: &str = "jump_hash";

/// Asks how many shards a cache has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShards {
    /// Tenant of the cache.
    pub tenant_id: String,
    /// Namespace of the cache.
    pub namespace: String,
    /// Name of the cache.
    pub cache: String,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How wide a cache is. Caches always route by modulo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShardsView {
    /// Number of shards; 0 means the cache is unknown.
    pub shards: u32,
    /// The request's id.
    pub request_id: u64,
}

/// Which kind of thing a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A stream.
    Stream,
    /// A cache, with its counters.
    Cache,
}

/// Asks which broker leads each shard of a stream or cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOwners {
    /// Tenant of the object.
    pub tenant_id: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Whether it is a stream or a cache.
    pub kind: ObjectKind,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// The leaders of every shard, in shard order; empty when the object is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOwnersView {
    /// One entry a shard.
    #[serde(deserialize_with = "super::text::list")]
    pub owners: Vec<ShardOwner>,
    /// The request's id.
    pub request_id: u64,
}

/// Who leads one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOwner {
    /// The shard.
    pub shard: u32,
    /// The leader; absent when there is none, or when the broker stands alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The leader's client address, when it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// The generation in which it leads; 0 for a broker that stands alone.
    pub generation: u64,
    /// Why nobody serves the shard, in the words of `shard_unavailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}
