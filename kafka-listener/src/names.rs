//! What the catalogue says: which topics a tenant has, and which keys verify its tokens.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::{KeySet, PublicKey, Revocation, Revocations};
use felix_controlplane_client::{Follower, FollowerState};
use felix_meta::TenantEntry;
use felix_model::TenantId;

use crate::limits::{UNKNOWN_NAME_TTL, UNKNOWN_NAMES_MAX};
use crate::topics::{Place, TOPIC_BYTES_MAX, Topics, place};

/// Names, through the catalogue this listener follows.
#[derive(Debug)]
pub(crate) struct Names {
    follower: Follower,
    /// What was made of each tenant's entry, as long as the entry is the same.
    made: Mutex<HashMap<TenantId, Made>>,
    caught_up: Mutex<Option<Instant>>,
    /// Names that were asked for and not there, so that a misspelt one does not become load on the control plane.
    unknown: Mutex<Unknown>,
}

/// Names that were not there when they were asked for, and when that was.
#[derive(Debug, Default)]
struct Unknown(HashMap<TenantId, HashMap<String, Instant>>);

impl Unknown {
    /// Whether each of these was asked for a moment ago.
    fn has_all(&self, tenant: &TenantId, names: &HashSet<&str>) -> bool {
        let known = self.0.get(tenant);
        names.iter().all(|name| {
            let at = known.and_then(|known| known.get(*name));
            at.is_some_and(|at| at.elapsed() < UNKNOWN_NAME_TTL)
        })
    }

    /// Remembers names, as many as there is room for.
    fn add<'a>(&mut self, tenant: &TenantId, names: impl Iterator<Item = &'a str>) {
        for known in self.0.values_mut() {
            known.retain(|_, at| at.elapsed() < UNKNOWN_NAME_TTL);
        }
        self.0.retain(|_, known| !known.is_empty());
        let held: usize = self.0.values().map(HashMap::len).sum();
        let names = names.take(UNKNOWN_NAMES_MAX.saturating_sub(held));
        let names = names.map(|name| (name.to_owned(), Instant::now()));
        self.0.entry(tenant.clone()).or_default().extend(names);
    }
}

/// The names that no topic has and one may have soon, each once. One that is too long is nobody's.
fn missing<'a>(topics: &Topics, names: impl Iterator<Item = &'a str>) -> HashSet<&'a str> {
    let missing =
        names.filter(|name| name.len() <= TOPIC_BYTES_MAX && topics.named(name).is_none());
    missing.collect()
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
        let names = missing(&topics, names);
        if lock(&self.unknown).has_all(tenant, &names) {
            return topics;
        }
        self.refresh().await;
        let topics = self.topics(tenant);
        let names = missing(&topics, names.into_iter());
        lock(&self.unknown).add(tenant, names.into_iter());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_topic_can_have_are_not_remembered() {
        let (longest, longer) = ("x".repeat(TOPIC_BYTES_MAX), "x".repeat(TOPIC_BYTES_MAX + 1));
        let names = ["a", "b", "a", &longest, &longer];
        let missing = missing(&Topics::default(), names.into_iter());
        assert_eq!(missing, HashSet::from(["a", "b", longest.as_str()]));
    }

    #[test]
    fn so_many_unknown_names_are_remembered_over_all_tenants() {
        let tenants: [TenantId; 2] = ["one", "two"].map(|name| name.parse().unwrap());
        let names: Vec<String> = (0..UNKNOWN_NAMES_MAX).map(|n| n.to_string()).collect();
        let mut unknown = Unknown::default();
        for tenant in &tenants {
            unknown.add(tenant, names.iter().map(String::as_str));
        }
        let held: usize = unknown.0.values().map(HashMap::len).sum();
        assert_eq!(held, UNKNOWN_NAMES_MAX);
        assert!(!unknown.has_all(&tenants[1], &HashSet::from(["0"])));
    }
}
