//! Caches: those that the caller manages, and those that his rights name.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query};
use felix_auth::{Action, NamePattern, Object, Permissions, Resource};
use felix_controlplane_client::CallFailed;
use felix_meta::{CacheRecord, Consistency, SyncMode};
use serde::Serialize;

use super::caller::Caller;
use super::refusal::Refusal;
use super::shown::Listing;
use super::streams::Part;

/// One cache.
#[derive(Debug, Serialize)]
pub(super) struct Cache {
    cache: String,
    settings: Option<Settings>,
    may_read: bool,
    may_write: bool,
    may_add: bool,
}

/// What those who manage a cache see of it.
#[derive(Debug, Serialize)]
struct Settings {
    shards: u32,
    durable: bool,
    sync: SyncMode,
    consistency: Consistency,
    replication_factor: u32,
    memory_bytes: u64,
    max_record_bytes: u32,
}

/// The caches of a namespace, by name.
pub(super) async fn list(
    caller: Caller,
    Path(namespace): Path<String>,
    Query(part): Query<Part>,
) -> Result<Json<Listing<Cache>>, Refusal> {
    let claims = caller.person.claims().await?;
    let permissions = claims.permissions();
    let mut found: BTreeMap<String, Option<CacheRecord>> = named(&permissions, &namespace);
    for record in managed(&caller, &namespace).await? {
        found.insert(record.cache.as_ref().to_owned(), Some(record));
    }
    let limit = part.limit();
    let mut items: Vec<Cache> = found
        .into_iter()
        .filter(|(name, _)| part.after.as_ref().is_none_or(|after| name > after))
        .take(limit + 1)
        .map(|(name, record)| Cache::of(&permissions, &namespace, name, record.as_ref()))
        .collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items
        .last()
        .filter(|_| more)
        .map(|cache| cache.cache.clone());
    Ok(Json(Listing { items, next }))
}

/// One cache. Whether there is one is only known of those that the caller manages.
pub(super) async fn one(
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Cache>, Refusal> {
    let permissions = caller.person.claims().await?.permissions();
    let record = match caller.person.api(&caller.app.console).await? {
        None => None,
        Some(api) => {
            let names = (namespace.parse(), name.parse());
            let (Ok(space), Ok(cache)) = names else {
                return Err(Refusal::not_found(format!(
                    "there is no cache {name} in {namespace}"
                )));
            };
            match api.cache(caller.app.console.tenant(), &space, &cache).await {
                Ok(record) => Some(record),
                Err(CallFailed::Refused { status: 403, .. }) => None,
                Err(failed) => return Err(failed.into()),
            }
        }
    };
    let record = record.as_ref();
    Ok(Json(Cache::of(&permissions, &namespace, name, record)))
}

/// What the caller manages, as the control plane lists it.
async fn managed(caller: &Caller, namespace: &str) -> Result<Vec<CacheRecord>, Refusal> {
    let console = &caller.app.console;
    let (Some(api), Ok(namespace)) = (caller.person.api(console).await?, namespace.parse()) else {
        return Ok(Vec::new());
    };
    match api.caches(console.tenant(), &namespace).await {
        Ok(records) => Ok(records),
        // Who manages nothing here is not told what there is.
        Err(CallFailed::Refused {
            status: 403 | 404, ..
        }) => Ok(Vec::new()),
        Err(failed) => Err(failed.into()),
    }
}

/// Caches that a right names without a wildcard.
fn named(permissions: &Permissions, wanted: &str) -> BTreeMap<String, Option<CacheRecord>> {
    let exact = |pattern: &NamePattern| match pattern {
        NamePattern::Exact(name) => Some(name.to_string()),
        NamePattern::Any | NamePattern::Prefix(_) => None,
    };
    let name = |object: &Object| match object {
        Object::Cache {
            namespace, cache, ..
        } => exact(namespace)
            .filter(|name| name == wanted)
            .and_then(|_| exact(cache)),
        Object::CacheKey {
            namespace, cache, ..
        } => (&**namespace == wanted).then(|| cache.to_string()),
        Object::Cluster
        | Object::Node(_)
        | Object::Tenant(_)
        | Object::Namespace { .. }
        | Object::Stream { .. }
        | Object::Group { .. } => None,
    };
    let grants = permissions.grants().iter();
    grants
        .filter_map(|grant| Some((name(&grant.object)?, None)))
        .collect()
}

impl Cache {
    fn of(
        permissions: &Permissions,
        namespace: &str,
        cache: String,
        record: Option<&CacheRecord>,
    ) -> Self {
        let may = |action| {
            let tenant = permissions.tenant();
            let whole = Resource::Cache {
                tenant,
                namespace,
                cache: &cache,
            };
            permissions.allows(action, &whole)
                || on_some_key(permissions, action, namespace, &cache)
        };
        Self {
            may_read: may(Action::CacheRead),
            may_write: may(Action::CacheWrite),
            may_add: may(Action::CounterAdd),
            settings: record.map(Settings::of),
            cache,
        }
    }
}

/// Whether a right is about keys of this cache: then the page offers what the broker may refuse for others.
fn on_some_key(permissions: &Permissions, action: Action, wanted: &str, name: &str) -> bool {
    permissions.grants().iter().any(|grant| {
        let gives = grant.action == action || action.implied_by().contains(&grant.action);
        gives
            && matches!(&grant.object, Object::CacheKey { namespace, cache, .. }
                if &**namespace == wanted && &**cache == name)
    })
}

impl Settings {
    fn of(record: &CacheRecord) -> Self {
        Self {
            shards: record.shards,
            durable: record.durable,
            sync: record.sync,
            consistency: record.consistency,
            replication_factor: record.replication_factor,
            memory_bytes: record.memory_bytes,
            max_record_bytes: record.max_record_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_over_named_caches_list_them_and_others_do_not() {
        let rights = [
            "cache.read:cache:t/ns/config",
            "cache.write:cache:t/ns/state/room1/*",
            "cache.read:cache:t/other/x",
            "cache.read:cache:t/ns/*",
        ];
        let permissions = Permissions::compile_claim("t", rights);
        let names: Vec<String> = named(&permissions, "ns").into_keys().collect();
        assert_eq!(names, ["config", "state"]);
        let state = Cache::of(&permissions, "ns", "state".into(), None);
        assert!(state.may_read && state.may_write);
        assert!(!Cache::of(&permissions, "ns", "config".into(), None).may_write);
    }
}
