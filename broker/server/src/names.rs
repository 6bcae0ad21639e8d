//! What the catalogue says about names, and how a broker that does not know one finds out at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::{KeySet, PublicKey, Revocation, Revocations};
use felix_controlplane_client::Follower;
use felix_engine::Overflow;
use felix_journal::{RetentionPolicy, SyncMode};
use felix_meta::{CacheRecord, Catalogue, StreamRecord, TenantEntry};
use felix_model::{StreamId, TenantId};

use crate::conn::standing::{Holder, Revoked};
use crate::limits::{UNKNOWN_NAME_TTL, UNKNOWN_NAMES_MAX};
use crate::shards::{Kind, StreamSpec};

/// Milliseconds between flushes of streams with `sync: periodic`.
const PERIODIC_SYNC_MS: u64 = 250;

/// Names, through the catalogue this broker follows.
#[derive(Debug)]
pub(crate) struct Names {
    follower: Follower,
    /// Names that were asked for and not there, so that a misspelt one does not become load on the control plane.
    unknown: Mutex<HashMap<String, Instant>>,
    /// Key sets as they were made from a tenant's entry.
    keys: Mutex<HashMap<TenantId, MadeKeys>>,
    /// What was revoked, as it was made from a tenant's entry.
    revoked: Mutex<HashMap<TenantId, MadeRevocations>>,
    caught_up: Mutex<Option<Instant>>,
}

/// A key set, and the entry it was made from.
type MadeKeys = (Arc<TenantEntry>, Arc<KeySet>);

/// The revocations, and the entry they were made from.
type MadeRevocations = (Arc<TenantEntry>, Arc<Revocations>);

impl Names {
    pub(crate) fn new(follower: Follower) -> Self {
        Self {
            follower,
            unknown: Mutex::default(),
            keys: Mutex::default(),
            revoked: Mutex::default(),
            caught_up: Mutex::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.follower.current()
    }

    pub(crate) fn follower(&self) -> &Follower {
        &self.follower
    }

    /// The keys that verify a tenant's tokens; none for a tenant nobody knows.
    pub(crate) fn keys(&self, tenant: &TenantId) -> Arc<KeySet> {
        let catalogue = self.catalogue();
        let Some(entry) = catalogue.tenant(tenant.as_str()) else {
            return Arc::new(KeySet::default());
        };
        let mut known = lock(&self.keys);
        if let Some((made_from, keys)) = known.get(tenant)
            && (Arc::ptr_eq(made_from, entry) || made_from.keys == entry.keys)
        {
            return Arc::clone(keys);
        }
        let public: Vec<PublicKey> = entry
            .keys
            .iter()
            .map(|key| PublicKey {
                kid: key.kid.clone(),
                x: key.x.clone(),
            })
            .collect();
        let keys = Arc::new(KeySet::new(&public));
        known.retain(|tenant, _| catalogue.tenant(tenant.as_str()).is_some());
        known.insert(tenant.clone(), (Arc::clone(entry), Arc::clone(&keys)));
        keys
    }

    /// What of that which a token rests on is gone, as the catalogue held here has it.
    pub(crate) fn revoked(&self, holder: &Holder) -> Option<Revoked> {
        let catalogue = self.catalogue();
        let Some(entry) = catalogue.tenant(holder.principal.tenant.as_str()) else {
            return Some(Revoked::Tenant);
        };
        if !entry.keys.iter().any(|key| *key.kid == *holder.key) {
            return Some(Revoked::Key);
        }
        let covered = self.revocations(&holder.principal.tenant, entry);
        let covered = covered.covers(&holder.principal);
        covered.map(|by| Revoked::Named(by.kind))
    }

    /// What of a tenant was revoked, compiled once for every change of it.
    fn revocations(&self, tenant: &TenantId, entry: &Arc<TenantEntry>) -> Arc<Revocations> {
        let mut known = lock(&self.revoked);
        if let Some((made_from, revocations)) = known.get(tenant)
            && (Arc::ptr_eq(made_from, entry) || made_from.revocations == entry.revocations)
        {
            return Arc::clone(revocations);
        }
        let records = entry.revocations.iter().map(|record| Revocation {
            kind: record.kind,
            id: &record.id,
            not_before_ms: record.not_before_ms,
        });
        let made = Arc::new(Revocations::new(records));
        let catalogue = self.catalogue();
        known.retain(|tenant, _| catalogue.tenant(tenant.as_str()).is_some());
        known.insert(tenant.clone(), (Arc::clone(entry), Arc::clone(&made)));
        made
    }

    /// Asks the control plane for what is new, at most once a second however often it is called. `true` when it was
    /// asked now.
    pub(crate) async fn catch_up(&self) -> bool {
        {
            let mut caught_up = lock(&self.caught_up);
            if caught_up.is_some_and(|at| at.elapsed() < UNKNOWN_NAME_TTL) {
                return false;
            }
            *caught_up = Some(Instant::now());
        }
        self.refresh().await
    }

    /// A stream as the catalogue has it, after asking the control plane once if it is not known here.
    pub(crate) async fn stream(&self, id: &StreamId) -> Option<StreamSpec> {
        self.find(&id.to_string(), |catalogue| {
            catalogue
                .stream(
                    id.tenant.as_str(),
                    id.namespace.as_str(),
                    id.stream.as_str(),
                )
                .map(|record| spec(record, catalogue))
        })
        .await
    }

    /// A cache as the catalogue has it, found in the same way.
    pub(crate) async fn cache(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
    ) -> Option<Arc<CacheRecord>> {
        self.find(
            &format!("cache {tenant}/{namespace}/{cache}"),
            |catalogue| catalogue.cache(tenant, namespace, cache).cloned(),
        )
        .await
    }

    async fn find<T>(&self, name: &str, look: impl Fn(&Catalogue) -> Option<T>) -> Option<T> {
        if let Some(found) = look(&self.catalogue()) {
            return Some(found);
        }
        if lock(&self.unknown)
            .get(name)
            .is_some_and(|at| at.elapsed() < UNKNOWN_NAME_TTL)
        {
            return None;
        }
        self.refresh().await;
        let found = look(&self.catalogue());
        if found.is_none() {
            let mut unknown = lock(&self.unknown);
            if unknown.len() >= UNKNOWN_NAMES_MAX {
                unknown.retain(|_, at| at.elapsed() < UNKNOWN_NAME_TTL);
            }
            if unknown.len() < UNKNOWN_NAMES_MAX {
                unknown.insert(name.to_owned(), Instant::now());
            }
        }
        found
    }

    async fn refresh(&self) -> bool {
        // Apart: a request to the control plane takes room that every stream's task would otherwise hold.
        match Box::pin(self.follower.refresh()).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "the control plane could not be asked; the catalogue held here decides");
                false
            }
        }
    }
}

/// What serving a stream needs to know of it.
pub(crate) fn spec(record: &StreamRecord, catalogue: &Catalogue) -> StreamSpec {
    let (tenant, namespace) = (record.tenant_id.as_str(), record.namespace.as_str());
    let quota = catalogue.effective(tenant, Some(namespace), None);
    let max_bytes = [
        record.retention.max_size_bytes,
        quota.stream_retention_bytes,
    ];
    let kind = if record.durable {
        Kind::Durable {
            sync: sync_mode(record.sync),
            retention: RetentionPolicy {
                max_bytes: max_bytes.into_iter().flatten().min(),
                max_age_ms: record
                    .retention
                    .max_age_seconds
                    .map(|age| age.saturating_mul(1000)),
            },
            cleanup: record.cleanup,
        }
    } else {
        Kind::Memory {
            overflow: match record.overflow {
                felix_meta::Overflow::DropNew => Overflow::DropNew,
                felix_meta::Overflow::DropOld => Overflow::DropOld,
                felix_meta::Overflow::Block => Overflow::Block,
            },
        }
    };
    StreamSpec {
        id: StreamId {
            tenant: record.tenant_id.clone(),
            namespace: record.namespace.clone(),
            stream: record.stream.clone(),
        },
        incarnation: record.incarnation,
        shards: record.shards,
        routing: record.routing,
        max_record_bytes: record.max_record_bytes,
        timestamps: record.timestamps,
        kind,
    }
}

/// When logs are flushed, as the journal takes it.
pub(crate) fn sync_mode(mode: felix_meta::SyncMode) -> SyncMode {
    match mode {
        felix_meta::SyncMode::OnCommit => SyncMode::OnCommit,
        felix_meta::SyncMode::Periodic => SyncMode::Periodic {
            ms: PERIODIC_SYNC_MS,
        },
        felix_meta::SyncMode::None => SyncMode::None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
