//! What someone wants changed.

use felix_model::{CacheName, Namespace, StreamName, TenantId};

use crate::record::{
    CachePatch, CacheSpec, Grouping, NamespaceSpec, Policy, StreamPatch, StreamSpec, TenantRecord,
    VerifyingKey,
};

/// A wish, already permitted. [`crate::Catalogue::decide`] says what it would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a tenant without keys.
    CreateTenant(TenantRecord),
    /// Delete a tenant and everything it owns.
    DeleteTenant(TenantId),
    /// Give a tenant its first key and administrators, making it if need be.
    InitializeTenant {
        /// The tenant.
        tenant: TenantRecord,
        /// Its first key.
        key: VerifyingKey,
        /// Its first rules.
        policies: Vec<Policy>,
        /// Its first gifts of roles.
        groupings: Vec<Grouping>,
    },
    /// Make a namespace.
    CreateNamespace(TenantId, NamespaceSpec),
    /// Delete a namespace and everything in it.
    DeleteNamespace(TenantId, Namespace),
    /// Make streams and caches, all of them or none.
    CreateResources {
        /// Whose.
        tenant_id: TenantId,
        /// Where.
        namespace: Namespace,
        /// Streams to make.
        streams: Vec<StreamSpec>,
        /// Caches to make.
        caches: Vec<CacheSpec>,
    },
    /// Change a stream.
    UpdateStream(TenantId, Namespace, StreamName, StreamPatch),
    /// Delete a stream.
    DeleteStream(TenantId, Namespace, StreamName),
    /// Change a cache.
    UpdateCache(TenantId, Namespace, CacheName, CachePatch),
    /// Delete a cache.
    DeleteCache(TenantId, Namespace, CacheName),
    /// Let a new key verify.
    StageKey(TenantId, VerifyingKey),
    /// Let a staged key sign.
    ActivateKey(TenantId, String),
    /// Let a key verify no more.
    RetireKey(TenantId, String),
    /// Add a rule.
    AddPolicy(TenantId, Policy),
    /// Remove a rule.
    RemovePolicy(TenantId, Policy),
    /// Give a role.
    AddGrouping(TenantId, Grouping),
    /// Take a role away.
    RemoveGrouping(TenantId, Grouping),
}
