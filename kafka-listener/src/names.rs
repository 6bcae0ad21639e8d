//! What the catalogue says: which topics a tenant has, and which keys verify its tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::{KeySet, PublicKey, Revocation, Revocations};
use felix_controlplane_client::{Follower, FollowerState};
use felix_meta::TenantEntry;
use felix_model::TenantId;

use crate::limits::{UNKNOWN_NAME_TTL, UNKNOWN_NAMES_MAX};
use crate::topics::{Place, Topics, place};

/// Names, through the catalogue this listener follows.
#[derive(Debug)]
pub(crate) struct Names {
    follower: Follower,
    /// What was made of each tenant's entry, as long as the entry is the same.
    made: Mutex<HashMap<TenantId, Made>>,
    caught_up: Mutex<Option<Instant>>,
    /// Names that were asked for and not there, so that a misspelt one does not become load on the control plane.
    unknown: Mutex<HashMap<(TenantId, String), Instant>>,
}

/// What a login rests on: the keys of its tenant, and what of it was revoked.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) keys: Arc<KeySet>,
    pub(crate) revocations: Arc<Revocations>,
}

impl Standing {
    /// Whether nothing changed between the two.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) && Arc::ptr_eq(&self.revocations, &other.revocations)
    }
}

#[derive(Clone, Debug)]
struct Made {
    entry: Arc<TenantEntry>,
    keys: Arc<KeySet>,
    revocations: Arc<Revocations>,
    topics: Arc<Topics>,
}

impl Names {
    pub(crate) fn new(follower: Follower) -> Self {
        Self {
            follower,
            made: Mutex::default(),
            caught_up: Mutex::default(),
            unknown: Mutex::default(),
        }
    }

    /// The keys that verify a tenant's tokens; none for a tenant nobody knows.
    pub(crate) fn keys(&self, tenant: &TenantId) -> Arc<KeySet> {
        self.made(tenant)
            .map_or_else(Arc::default, |made| made.keys)
    }

    /// What logins of a tenant rest on; `None` once nobody knows the tenant.
    pub(crate) fn standing(&self, tenant: &TenantId) -> Option<Standing> {
        self.made(tenant).map(|made| Standing {
            keys: made.keys,
            revocations: made.revocations,
        })
    }

    /// The topics of a tenant as far as they are known here; none for a tenant nobody knows.
    pub(crate) fn topics(&self, tenant: &TenantId) -> Arc<Topics> {
        self.made(tenant)
            .map_or_else(Arc::default, |made| made.topics)
    }

    /// Where a topic that does not exist belongs; `None` when no stream can have its name.
    pub(crate) fn place(&self, tenant: &TenantId, topic: &str) -> Option<Place> {
        let entry = self.made(tenant)?.entry;
        place(&entry, topic).ok()
    }

    /// The topics of a tenant, after asking the control plane if one of these is not known here: what was created a
    /// moment ago is there. A name that is not there either is not asked for again for a second.
    pub(crate) async fn topics_with<'a>(
        &self,
        tenant: &TenantId,
        names: impl Iterator<Item = &'a str>,
    ) -> Arc<Topics> {
        let topics = self.topics(tenant);
        let missing: Vec<&str> = names.filter(|name| topics.named(name).is_none()).collect();
        let asks = {
            let unknown = lock(&self.unknown);
            missing.iter().any(|name| {
                let at = unknown.get(&(tenant.clone(), (*name).to_owned()));
                at.is_none_or(|at| at.elapsed() >= UNKNOWN_NAME_TTL)
            })
        };
        if !asks {
            return topics;
        }
        self.refresh().await;
        let topics = self.topics(tenant);
        let mut unknown = lock(&self.unknown);
        unknown.retain(|_, at| at.elapsed() < UNKNOWN_NAME_TTL);
        for name in missing
            .into_iter()
            .filter(|name| topics.named(name).is_none())
        {
            if unknown.len() < UNKNOWN_NAMES_MAX {
                unknown.insert((tenant.clone(), name.to_owned()), Instant::now());
            }
        }
        topics
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

    /// Asks the control plane for what is new; whoever just changed something sees the change afterwards.
    pub(crate) async fn refresh(&self) -> bool {
        match self.follower.refresh().await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "the control plane could not be asked; the catalogue held here decides");
                false
            }
        }
    }

    /// Whether a catalogue is held that this build understands.
    pub(crate) fn state(&self) -> FollowerState {
        self.follower.state().borrow().clone()
    }

    fn made(&self, tenant: &TenantId) -> Option<Made> {
        let catalogue = self.follower.current();
        let entry = catalogue.tenant(tenant.as_str())?;
        let mut known = lock(&self.made);
        if let Some(made) = known.get(tenant)
            && Arc::ptr_eq(&made.entry, entry)
        {
            return Some(made.clone());
        }
        // Most changes are to streams: what logins rest on is made again only when it changed.
        let before = known.get(tenant);
        let made = Made {
            keys: before
                .filter(|before| before.entry.keys == entry.keys)
                .map_or_else(|| Arc::new(keys(entry)), |before| Arc::clone(&before.keys)),
            revocations: before
                .filter(|before| before.entry.revocations == entry.revocations)
                .map_or_else(
                    || Arc::new(revocations(entry)),
                    |before| Arc::clone(&before.revocations),
                ),
            topics: Arc::new(Topics::of(entry)),
            entry: Arc::clone(entry),
        };
        known.retain(|tenant, _| catalogue.tenant(tenant.as_str()).is_some());
        known.insert(tenant.clone(), made.clone());
        Some(made)
    }
}

fn keys(entry: &TenantEntry) -> KeySet {
    let public = entry.keys.iter().map(|key| PublicKey {
        kid: key.kid.clone(),
        x: key.x.clone(),
    });
    KeySet::new(&public.collect::<Vec<_>>())
}

fn revocations(entry: &TenantEntry) -> Revocations {
    let records = entry.revocations.iter().map(|record| Revocation {
        kind: record.kind,
        id: &record.id,
        not_before_ms: record.not_before_ms,
    });
    Revocations::new(records)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
