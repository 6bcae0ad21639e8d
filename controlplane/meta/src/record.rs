//! What is stored, and the bodies that create and change it.
//!
//! Field names and the mix of spellings are those of the published API. A `Spec` is a create body, a `Patch` a change,
//! a `Record` what exists. Specs and patches refuse fields they do not know, so that a misspelt setting is an error
//! and not a default.

use felix_model::limits::RECORD_BYTES_DEFAULT;
use felix_model::{CacheName, Incarnation, Namespace, Routing, StreamName, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantRecord {
    /// Its name.
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// Its name for people.
    pub display_name: String,
}

/// A namespace of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceRecord {
    /// The tenant it belongs to.
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// Its name.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name for people.
    pub display_name: String,
}

/// The body that creates a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Its name.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name for people; the name itself when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// What a stream is used for. Only `Stream` means something; the others are accepted for old callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum StreamKind {
    /// A stream.
    #[default]
    Stream,
    /// Left over from earlier versions of the API.
    Queue,
    /// Left over from earlier versions of the API.
    Cache,
}

/// When a record counts as written, as far as copies go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Consistency {
    /// When the leader has it.
    #[default]
    Leader,
    /// When a majority of the copies has it.
    Quorum,
}

/// A published field without an effect of its own; what a reader misses or sees twice follows from how he reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Delivery {
    /// At most once.
    AtMostOnce,
    /// At least once.
    #[default]
    AtLeastOnce,
}

/// When a durable stream asks the disk to make records safe from a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// Before a record is acknowledged.
    OnCommit,
    /// Every quarter of a second, in the background.
    #[default]
    Periodic,
    /// Whenever the operating system likes.
    None,
}

/// What an in-memory stream does when a reader does not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The reader loses the oldest records he has not read.
    DropOld,
    /// The reader loses the newest records.
    #[default]
    DropNew,
    /// Publishers wait for the reader. One slow reader slows everybody.
    Block,
}

/// What happens to old records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// Retention deletes them.
    #[default]
    Delete,
    /// The latest record of every key stays.
    Compact,
}

/// Whose clock says when a record of Kafka's protocol came to be. Native records have the broker's always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// The publisher's.
    #[default]
    Create,
    /// The broker's, when it appended the record.
    Append,
}

impl Timestamps {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How long records are kept. Each bound is per shard; null leaves it to the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Oldest record kept, in seconds; not 0.
    #[serde(default)]
    pub max_age_seconds: Option<u64>,
    /// Bytes of log kept; not 0.
    #[serde(default)]
    pub max_size_bytes: Option<u64>,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamRecord {
    /// The tenant it belongs to.
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// The namespace it is in.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name.
    #[schema(value_type = String)]
    pub stream: StreamName,
    /// Always `Stream` for a stream that means something.
    pub kind: StreamKind,
    /// Logs it is spread over. Fixed at creation.
    pub shards: u32,
    /// Copies of each shard, the leader included. Fixed at creation.
    pub replication_factor: u32,
    /// How long records are kept.
    pub retention: Retention,
    /// When a record counts as written.
    pub consistency: Consistency,
    /// A published field without an effect.
    pub delivery: Delivery,
    /// Whether it is kept on disk.
    pub durable: bool,
    /// The region it lives in, if one was named. Fixed at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// How keys choose a shard. Fixed at creation; left out when `modulo`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(value_type = Option<String>)]
    pub routing: Routing,
    /// When the disk is asked to make records safe from a power cut.
    #[serde(default)]
    pub sync: SyncMode,
    /// What an in-memory stream does with a slow reader.
    #[serde(default)]
    pub overflow: Overflow,
    /// What happens to old records.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Whose time records of Kafka's protocol have.
    #[serde(default, skip_serializing_if = "Timestamps::is_default")]
    pub timestamps: Timestamps,
    /// Largest record in bytes, key and headers included.
    pub max_record_bytes: u32,
    /// Tells this stream from earlier ones of the same name. It is the revision that created it.
    #[schema(value_type = u64)]
    pub incarnation: Incarnation,
}

/// The body that creates a stream. A field left out takes its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Its name.
    #[schema(value_type = String)]
    pub stream: StreamName,
    /// `Stream`.
    pub kind: StreamKind,
    /// Logs it is spread over, from 1.
    pub shards: u32,
    /// Copies of each shard.
    #[serde(default = "one")]
    pub replication_factor: u32,
    /// How long records are kept.
    pub retention: Retention,
    /// When a record counts as written.
    pub consistency: Consistency,
    /// A published field without an effect.
    pub delivery: Delivery,
    /// Whether it is kept on disk.
    pub durable: bool,
    /// The region to live in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// How keys choose a shard: `modulo`, `jump_hash` or `murmur2`; default `modulo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub routing: Option<Routing>,
    /// Default `periodic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncMode>,
    /// Default `drop_new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
    /// Default `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// Default `create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    /// Default 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_record_bytes: Option<u32>,
}

impl StreamSpec {
    /// A durable stream with one shard and every other setting at its default.
    #[must_use]
    pub fn new(stream: StreamName) -> Self {
        Self {
            stream,
            kind: StreamKind::Stream,
            shards: 1,
            replication_factor: 1,
            retention: Retention::default(),
            consistency: Consistency::default(),
            delivery: Delivery::default(),
            durable: true,
            region: None,
            routing: None,
            sync: None,
            overflow: None,
            cleanup: None,
            timestamps: None,
            max_record_bytes: None,
        }
    }
}

/// A change to a stream. What is left out stays; `retention` is replaced whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamPatch {
    /// Both bounds together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// When a record counts as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// A published field without an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Whether it is kept on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// When the disk is asked to make records safe from a power cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncMode>,
    /// What an in-memory stream does with a slow reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
    /// What happens to old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// Whose time records of Kafka's protocol have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    /// Largest record in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_record_bytes: Option<u32>,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheRecord {
    /// The tenant it belongs to.
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// The namespace it is in.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name.
    #[schema(value_type = String)]
    pub cache: CacheName,
    /// Its name for people.
    pub display_name: String,
    /// Logs it is spread over. Fixed at creation.
    pub shards: u32,
    /// Copies of each shard. Fixed at creation.
    pub replication_factor: u32,
    /// When a write counts as done. Fixed at creation.
    pub consistency: Consistency,
    /// Whether it is kept on disk. Fixed at creation.
    #[serde(default = "yes")]
    pub durable: bool,
    /// When the disk is asked to make writes safe from a power cut. Fixed at creation.
    #[serde(default)]
    pub sync: SyncMode,
    /// What a shard of a cache in memory may hold, in bytes; beyond it entries are evicted. Fixed at
    /// creation.
    #[serde(default = "cache_memory")]
    pub memory_bytes: u64,
    /// Largest key and value together, in bytes. Fixed at creation.
    #[serde(default = "record_bytes")]
    pub max_record_bytes: u32,
    /// Tells this cache from earlier ones of the same name.
    #[schema(value_type = u64)]
    pub incarnation: Incarnation,
}

/// The body that creates a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Its name.
    #[schema(value_type = String)]
    pub cache: CacheName,
    /// Its name for people; the name itself when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Logs it is spread over; 0 means 1.
    #[serde(default = "one")]
    pub shards: u32,
    /// Copies of each shard.
    #[serde(default = "one")]
    pub replication_factor: u32,
    /// When a write counts as done.
    #[serde(default)]
    pub consistency: Consistency,
    /// Whether it is kept on disk; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// Default `periodic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncMode>,
    /// What a shard of a cache in memory may hold, in bytes; default 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Default 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_record_bytes: Option<u32>,
}

/// What a shard of a cache in memory holds when nothing else is said.
pub const CACHE_MEMORY_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

impl CacheSpec {
    /// A cache with one shard and every other setting at its default.
    #[must_use]
    pub const fn new(cache: CacheName) -> Self {
        Self {
            cache,
            display_name: None,
            shards: 1,
            replication_factor: 1,
            consistency: Consistency::Leader,
            durable: None,
            sync: None,
            memory_bytes: None,
            max_record_bytes: None,
        }
    }
}

/// A change to a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePatch {
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// The public half of a key that signs tokens of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyingKey {
    /// The id that tokens name.
    pub kid: String,
    /// The Ed25519 point, 32 bytes in base64url without padding.
    pub x: String,
}

/// A rule: whoever has this subject may do this to that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// A role, or a principal named directly.
    pub subject: String,
    /// An object of the permission grammar.
    pub object: String,
    /// An action.
    pub action: String,
}

/// A gift of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grouping {
    /// Who receives: a principal, a group of an identity provider, or another role.
    pub user: String,
    /// The role given.
    pub role: String,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

const fn cache_memory() -> u64 {
    CACHE_MEMORY_BYTES_DEFAULT
}

const fn record_bytes() -> u32 {
    RECORD_BYTES_DEFAULT as u32
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
