//! What the catalogue says: which topics a tenant has, and which keys verify its tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::{KeySet, PublicKey};
use felix_controlplane_client::{Follower, FollowerState};
use felix_meta::{Revision, TenantEntry};
use felix_model::TenantId;

use crate::limits::UNKNOWN_NAME_TTL;
use crate::topics::{Place, Topics, place};

/// Names, through the catalogue this listener follows.
#[derive(Debug)]
pub(crate) struct Names {
    follower: Follower,
    /// What was made of each tenant's entry, as long as the entry is the same.
    made: Mutex<HashMap<TenantId, Made>>,
    caught_up: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
struct Made {
    entry: Arc<TenantEntry>,
    keys: Arc<KeySet>,
    topics: Arc<Topics>,
}

impl Names {
    pub(crate) fn new(follower: Follower) -> Self {
        Self {
            follower,
            made: Mutex::default(),
            caught_up: Mutex::default(),
        }
    }

    /// The keys that verify a tenant's tokens; none for a tenant nobody knows.
    pub(crate) fn keys(&self, tenant: &TenantId) -> Arc<KeySet> {
        self.made(tenant)
            .map_or_else(Arc::default, |made| made.keys)
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

    /// How new the catalogue held here is.
    pub(crate) fn revision(&self) -> Revision {
        self.follower.current().revision()
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
        let public: Vec<PublicKey> = entry
            .keys
            .iter()
            .map(|key| PublicKey {
                kid: key.kid.clone(),
                x: key.x.clone(),
            })
            .collect();
        let made = Made {
            entry: Arc::clone(entry),
            keys: Arc::new(KeySet::new(&public)),
            topics: Arc::new(Topics::of(entry)),
        };
        known.retain(|tenant, _| catalogue.tenant(tenant.as_str()).is_some());
        known.insert(tenant.clone(), made.clone());
        Some(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
