//! What operators ask: one shard from the inside, and the live subscriptions.

use serde::{Deserialize, Serialize};

use super::cluster::ObjectKind;

/// Asks how a broker sees one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInspect {
    /// Tenant of the object.
    pub tenant_id: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Whether it is a stream or a cache.
    pub kind: ObjectKind,
    /// The shard.
    pub shard: u32,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// How this broker sees the shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInspection {
    /// The view.
    pub view: Box<ShardView>,
    /// The request's id.
    pub request_id: u64,
}

/// One shard as one broker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardView {
    /// The broker that answers.
    pub node_id: String,
    /// `leader`, `follower` or `none`.
    pub role: String,
    /// `unassigned`, `opening`, `fencing`, `active`, `draining`, `closed` or `failed`.
    pub phase: String,
    /// Number of shards of the object; 0 when unknown.
    pub shards: u32,
    /// Whether requests are served now.
    pub serving: bool,
    /// Why not, as a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why not, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The generation it leads or follows in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The log's next offset (exclusive end).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Everything below is committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
    /// The newest generation it has promised to obey.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_generation: Option<u64>,
    /// What the control plane wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<ShardAssignment>,
    /// How far a new leader is in stopping the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<ShardFence>,
    /// The leader's lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<ShardLease>,
    /// The other copies, as the leader sees them.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::optional_list"
    )]
    pub replicas: Vec<ReplicaView>,
}

/// What the control plane wants of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAssignment {
    /// The generation of the assignment.
    pub generation: u64,
    /// Who shall lead.
    pub leader: String,
    /// Who shall hold copies.
    #[serde(deserialize_with = "super::text::names")]
    pub replicas: Vec<String>,
    /// Whether the leader shall hand over.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub draining: bool,
    /// Who shall lead next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
}

/// How far a new leader is in stopping the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFence {
    /// Replicas that obey the new generation.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::names"
    )]
    pub took: Vec<String>,
    /// Replicas that have not answered.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::names"
    )]
    pub pending: Vec<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// The leader's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardLease {
    /// Whether it stands.
    pub held: bool,
    /// How long it stands without renewal, in milliseconds.
    pub remaining_ms: u64,
}

/// One copy as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// Who holds it.
    pub node_id: String,
    /// `follower` or `learner`.
    pub role: String,
    /// The copy's next offset (exclusive end).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// How many offsets it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Whether it obeys the current generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<bool>,
    /// `shipping`, `stalled`, `copying`, `rebuilding`, `halted` or `fencing`.
    pub state: String,
    /// Why it was halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
}

/// Asks for live subscriptions, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionsList {
    /// Which ones.
    #[serde(default, deserialize_with = "super::text::null_is_default")]
    pub filter: Box<SubscriptionFilter>,
    /// At most this many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Box<SubscriptionCursor>>,
    /// Echoed in the answer.
    pub request_id: u64,
}

/// Which subscriptions are wanted; what is absent matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionFilter {
    /// Of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Of this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Of this stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Of this shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Of this principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Only those that have lost records.
    #[serde(
        default,
        deserialize_with = "super::text::null_is_default",
        skip_serializing_if = "super::text::is_default"
    )]
    pub dropping: bool,
}

/// A place in the order of subscriptions: by shard, then by subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionCursor {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// The last subscriber of the page.
    pub subscriber_id: u64,
}

/// A page of live subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionsPage {
    /// The broker that answers.
    pub node_id: String,
    /// The subscriptions, by shard, then by subscriber.
    #[serde(deserialize_with = "super::text::list")]
    pub subscriptions: Vec<SubscriptionView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Box<SubscriptionCursor>>,
    /// The request's id.
    pub request_id: u64,
}

/// One live subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionView {
    /// Tenant of the stream.
    pub tenant_id: String,
    /// Namespace of the stream.
    pub namespace: String,
    /// Name of the stream.
    pub stream: String,
    /// The shard.
    pub shard: u32,
    /// Unique on the broker.
    pub subscriber_id: u64,
    /// Unique on the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<u64>,
    /// The connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// Where the connection comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Who reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `block`, `drop_new` or `drop_old`.
    pub policy: String,
    /// Batches waiting.
    pub depth: u64,
    /// Batches that may wait.
    pub capacity: u64,
    /// Records lost to slowness.
    pub dropped: u64,
    /// Next offset to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The shard's next offset (exclusive end).
    pub tail: u64,
    /// How long it has lasted, in milliseconds.
    pub age_ms: u64,
}
