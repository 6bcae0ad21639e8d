//! What an event means for each published feed.

use std::sync::Arc;

use felix_model::{CacheName, Namespace, StreamName, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::catalogue::{Catalogue, NamespaceEntry};
use crate::event::Event;
use crate::record::{CacheRecord, NamespaceRecord, StreamRecord, TenantRecord};

/// What happened to one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// It came to be.
    Created,
    /// Its settings changed.
    Updated,
    /// It is gone.
    Deleted,
}

/// One thing that changed, with what it is now; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A tenant.
    Tenant(TenantId, Option<TenantRecord>),
    /// A namespace.
    Namespace(TenantId, Namespace, Option<NamespaceRecord>),
    /// A stream.
    Stream(TenantId, Namespace, StreamName, Option<Arc<StreamRecord>>),
    /// A cache.
    Cache(TenantId, Namespace, CacheName, Option<Arc<CacheRecord>>),
}

/// One change of one feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub op: Op,
    /// To what.
    pub changed: Changed,
}

/// The changes that an event, applied to `before`, brings to the published feeds. A thing that owned others takes them
/// with it, innermost first; keys and rules are in no feed.
#[must_use]
pub fn changes(before: &Catalogue, event: &Event) -> Vec<Change> {
    match event {
        Event::TenantCreated { tenant } | Event::TenantInitialized { tenant, .. } => {
            vec![tenant_set(before, tenant)]
        }
        Event::TenantDeleted { tenant_id } => tenant_gone(before, tenant_id),
        Event::NamespaceCreated { namespace } => vec![Change {
            op: Op::Created,
            changed: Changed::Namespace(
                namespace.tenant_id.clone(),
                namespace.namespace.clone(),
                Some(namespace.clone()),
            ),
        }],
        Event::NamespaceDeleted {
            tenant_id,
            namespace,
        } => before
            .namespace(tenant_id.as_ref(), namespace.as_ref())
            .map_or_else(Vec::new, |space| {
                namespace_gone(tenant_id, namespace, space)
            }),
        Event::ResourcesCreated { streams, caches }
        | Event::RoomOpened {
            streams, caches, ..
        } => streams
            .iter()
            .map(|stream| stream_set(Op::Created, stream))
            .chain(caches.iter().map(|cache| cache_set(Op::Created, cache)))
            .collect(),
        Event::StreamUpdated { stream } => vec![stream_set(Op::Updated, stream)],
        Event::CacheUpdated { cache } => vec![cache_set(Op::Updated, cache)],
        Event::StreamDeleted {
            tenant_id,
            namespace,
            stream,
            ..
        } => {
            vec![stream_gone(tenant_id, namespace, stream)]
        }
        Event::CacheDeleted {
            tenant_id,
            namespace,
            cache,
            ..
        } => {
            vec![cache_gone(tenant_id, namespace, cache)]
        }
        Event::TemplateSet { .. }
        | Event::TemplateRemoved { .. }
        | Event::KeyStaged { .. }
        | Event::KeyActivated { .. }
        | Event::KeyRetired { .. }
        | Event::PolicyAdded { .. }
        | Event::PolicyRemoved { .. }
        | Event::GroupingAdded { .. }
        | Event::GroupingRemoved { .. }
        | Event::KeyReplaced { .. }
        | Event::IssuerSet { .. }
        | Event::IssuerRemoved { .. }
        | Event::PrincipalRecorded { .. }
        | Event::ServiceAccountCreated { .. }
        | Event::ServiceAccountDeleted { .. }
        | Event::ServiceAccountDisabled { .. }
        | Event::ServiceKeyAdded { .. }
        | Event::ServiceKeyRemoved { .. }
        | Event::SessionOpened { .. }
        | Event::SessionRefreshed { .. }
        | Event::SessionEnded { .. }
        | Event::SessionsExpired { .. }
        | Event::Revoked { .. }
        | Event::QuotaSet { .. }
        | Event::QuotaRemoved { .. }
        | Event::Audited { .. }
        | Event::Withheld { .. } => Vec::new(),
    }
}

fn tenant_set(before: &Catalogue, tenant: &TenantRecord) -> Change {
    let known = before.tenant(tenant.tenant_id.as_ref()).is_some();
    Change {
        op: if known { Op::Updated } else { Op::Created },
        changed: Changed::Tenant(tenant.tenant_id.clone(), Some(tenant.clone())),
    }
}

fn tenant_gone(before: &Catalogue, tenant: &TenantId) -> Vec<Change> {
    let Some(entry) = before.tenant(tenant.as_ref()) else {
        return Vec::new();
    };
    entry
        .namespaces
        .iter()
        .flat_map(|(namespace, space)| namespace_gone(tenant, namespace, space))
        .chain([Change {
            op: Op::Deleted,
            changed: Changed::Tenant(tenant.clone(), None),
        }])
        .collect()
}

fn namespace_gone(tenant: &TenantId, namespace: &Namespace, space: &NamespaceEntry) -> Vec<Change> {
    let streams = space
        .streams
        .keys()
        .map(|stream| stream_gone(tenant, namespace, stream));
    let caches = space
        .caches
        .keys()
        .map(|cache| cache_gone(tenant, namespace, cache));
    let itself = Changed::Namespace(tenant.clone(), namespace.clone(), None);
    streams
        .chain(caches)
        .chain([Change {
            op: Op::Deleted,
            changed: itself,
        }])
        .collect()
}

fn stream_set(op: Op, stream: &Arc<StreamRecord>) -> Change {
    let (tenant, namespace) = (stream.tenant_id.clone(), stream.namespace.clone());
    let now = Some(Arc::clone(stream));
    Change {
        op,
        changed: Changed::Stream(tenant, namespace, stream.stream.clone(), now),
    }
}

fn cache_set(op: Op, cache: &Arc<CacheRecord>) -> Change {
    let (tenant, namespace) = (cache.tenant_id.clone(), cache.namespace.clone());
    let now = Some(Arc::clone(cache));
    Change {
        op,
        changed: Changed::Cache(tenant, namespace, cache.cache.clone(), now),
    }
}

fn stream_gone(tenant: &TenantId, namespace: &Namespace, stream: &StreamName) -> Change {
    let changed = Changed::Stream(tenant.clone(), namespace.clone(), stream.clone(), None);
    Change {
        op: Op::Deleted,
        changed,
    }
}

fn cache_gone(tenant: &TenantId, namespace: &Namespace, cache: &CacheName) -> Change {
    let changed = Changed::Cache(tenant.clone(), namespace.clone(), cache.clone(), None);
    Change {
        op: Op::Deleted,
        changed,
    }
}
