//! Bodies that the API and its clients speak and that are stored nowhere.

mod tokens;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::audit::{AuditItem, ChainHead};
use crate::catalogue::{Catalogue, Revision};
use crate::event::Entry;
use crate::identity::{IssuerRecord, QuotaLimits, RevokedKind, kind_schema};
use crate::record::{CacheRecord, CacheSpec, Grouping, Policy, StreamRecord, StreamSpec};

pub use tokens::{
    DelegateAnswer, DelegateSpec, ExchangeSpec, GRANT_TYPE_EXCHANGE, Hidden, Issuers, RefreshSpec,
    RevokeTokenSpec, ServiceAccountItem, ServiceAccountPatch, ServiceAccountSpec, ServiceKeyAnswer,
    ServiceKeyItem, ServiceKeySpec, ServiceKeys, SessionItem, TOKEN_TYPE_JWT,
};

/// The one body of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, for programs. A code never changes its meaning.
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
    /// The id of the request, as the log and the audit have it; null when the server gave it none.
    pub request_id: Option<String>,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in order of their names.
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A part of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// The lines, in the order in which they were written.
    pub items: Vec<AuditItem>,
    /// The number after which to go on; absent when there is no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u64>,
    /// The end of the chain as it is now.
    pub head: ChainHead,
}

/// The batch that makes streams and caches, all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourcesSpec {
    /// Streams to make.
    #[serde(default)]
    pub streams: Vec<StreamSpec>,
    /// Caches to make.
    #[serde(default)]
    pub caches: Vec<CacheSpec>,
}

/// What became of one item of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// It is new.
    Created,
    /// It was there, exactly as asked.
    Unchanged,
}

/// A stream of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamItem {
    /// What became of it.
    pub status: ItemStatus,
    /// The stream as it is now.
    #[schema(value_type = StreamRecord)]
    pub stream: Arc<StreamRecord>,
}

/// A cache of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheItem {
    /// What became of it.
    pub status: ItemStatus,
    /// The cache as it is now.
    #[schema(value_type = CacheRecord)]
    pub cache: Arc<CacheRecord>,
}

/// The answer to a batch, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourcesAnswer {
    /// Its streams.
    pub streams: Vec<StreamItem>,
    /// Its caches.
    pub caches: Vec<CacheItem>,
}

/// The keys of a tenant, by id. Every call about keys answers with this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SigningKeys {
    /// The key that signs new tokens.
    pub current: String,
    /// All keys that verify.
    pub verifying: Vec<String>,
}

/// A quota as it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaItem {
    /// `tenant`, `namespace` or `principal`.
    pub scope: String,
    /// The namespace or the principal; the tenant itself otherwise.
    pub name: String,
    /// What it allows.
    pub limits: QuotaLimits,
}

/// The body that takes something back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevocationSpec {
    /// What.
    #[schema(schema_with = kind_schema)]
    pub kind: RevokedKind,
    /// Which; for a tenant its own name.
    pub id: String,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
}

/// The body that ends the sessions of a principal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeSpec {
    /// Whose.
    pub principal_id: String,
}

/// How many sessions were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokeAnswer {
    /// How many refresh tokens are good no more.
    pub revoked: u64,
}

/// The body that gives a tenant its first key and administrators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitializeSpec {
    /// The tenant's name for people.
    #[serde(default)]
    pub display_name: String,
    /// Identity providers whose tokens the tenant trusts.
    #[serde(default)]
    pub idp_issuers: Vec<IssuerRecord>,
    /// Who administers the tenant first.
    #[serde(default)]
    pub initial_admin_principals: Vec<String>,
    /// Further rules. Only here may rules over the cluster and nodes be written.
    #[serde(default)]
    pub policies: Vec<Policy>,
    /// Further gifts of roles.
    #[serde(default)]
    pub groupings: Vec<Grouping>,
}

/// The answer to the first initialisation of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InitializeAnswer {
    /// The tenant.
    pub tenant_id: String,
    /// The id of its first key.
    pub kid: String,
    /// Where its public keys are.
    pub jwks_url: String,
    /// Always `initialized`.
    pub status: String,
}

/// The body that asks for a token without an identity provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DevTokenSpec {
    /// Whose token.
    pub principal: String,
    /// Keep only these actions; empty keeps all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<String>,
    /// Narrow to these objects; empty keeps all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Narrow to these `action:object` pairs; empty keeps all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<String>,
    /// `felix-broker`, the default, or `felix-controlplane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// How long it is good for; default 900, at most 30 days. A longer life than an hour makes the token good only on
    /// connections from the same machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// A minted token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenAnswer {
    /// The token.
    pub felix_token: String,
    /// Seconds it is good for.
    pub expires_in: u64,
    /// Always `Bearer`.
    pub token_type: String,
    /// What continues the session, once; absent for a token without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Seconds the session can be continued for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_expires_in: Option<u64>,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TokenAnswer")
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

/// The whole catalogue, for a follower that begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueSnapshot {
    /// The form of what follows, as of an entry.
    pub version: u16,
    /// Everything that exists.
    pub catalogue: Catalogue,
}

/// What happened after a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueChanges {
    /// The entries, each making the next revision; empty when nothing happened, or when `resync` is set.
    pub entries: Vec<Entry>,
    /// The newest revision. When it is past the last entry, there is more to fetch.
    pub revision: Revision,
    /// The revision asked for is no longer, or not yet, in the feed: take a snapshot.
    #[serde(default)]
    pub resync: bool,
}
