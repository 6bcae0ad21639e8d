//! Entries and counters of a cache.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query};
use felix_client::{Condition, KeyEntry, ListOptions};
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::{ITEMS, PREVIEW_BYTES};
use super::refusal::Refusal;
use super::shown::{Listing, Shown, bytes_of, cut};

/// What a key holds; no value and no version when it holds nothing.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    key: String,
    value: Option<Shown>,
    version: Option<u64>,
    expires_at_ms: Option<u64>,
}

/// Which keys.
#[derive(Debug, Deserialize)]
pub(super) struct Keys {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<u32>,
}

/// Which key, and for a deletion under which version.
#[derive(Debug, Deserialize)]
pub(super) struct Key {
    pub(super) key: String,
    if_version: Option<u64>,
}

/// What a key is set to. A condition must be said: the version that was seen, or that the key held nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    key: String,
    value: String,
    ttl_ms: Option<u64>,
    if_version: Option<u64>,
    #[serde(default)]
    if_absent: bool,
}

/// The version that was written.
#[derive(Debug, Serialize)]
pub(super) struct Stored {
    version: Option<u64>,
}

/// What is added to a counter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Add {
    key: String,
    delta: i64,
}

/// A sum, as text: a page's numbers do not hold all of them.
#[derive(Debug, Serialize)]
pub(super) struct Sum {
    value: Option<String>,
}

type Names = Path<(String, String)>;

impl From<KeyEntry> for Entry {
    fn from(found: KeyEntry) -> Self {
        Self {
            key: found.key,
            value: Some(cut(&found.entry.value, PREVIEW_BYTES)),
            version: found.entry.version,
            expires_at_ms: found.entry.expires_at_ms,
        }
    }
}

/// Keys that begin so, with their entries.
pub(super) async fn keys(
    caller: Caller,
    Path((namespace, cache)): Names,
    Query(wanted): Query<Keys>,
) -> Result<Json<Listing<Entry>>, Refusal> {
    let cache = caller.client(&namespace).await?.cache(&cache)?;
    let options = ListOptions {
        prefix: wanted.prefix,
        after: wanted.after,
        limit: wanted.limit.unwrap_or(ITEMS).clamp(1, ITEMS),
        values: true,
    };
    let page = cache.list(options).await?;
    Ok(Json(Listing {
        items: page.entries.into_iter().map(Entry::from).collect(),
        next: page.next,
    }))
}

/// What one key holds, with all its bytes.
pub(super) async fn get(
    caller: Caller,
    Path((namespace, cache)): Names,
    Query(wanted): Query<Key>,
) -> Result<Json<Entry>, Refusal> {
    let cache = caller.client(&namespace).await?.cache(&cache)?;
    let found = cache.get(&wanted.key).await?;
    let found = found.as_ref();
    Ok(Json(Entry {
        key: wanted.key,
        value: found.map(|entry| cut(&entry.value, usize::MAX)),
        version: found.and_then(|entry| entry.version),
        expires_at_ms: found.and_then(|entry| entry.expires_at_ms),
    }))
}

/// Sets a key, if it is as it was seen.
pub(super) async fn put(
    caller: Caller,
    Path((namespace, cache)): Names,
    Json(wanted): Json<Put>,
) -> Result<Json<Stored>, Refusal> {
    let condition = match (wanted.if_version, wanted.if_absent) {
        (Some(version), false) => Condition::Version(version),
        (None, true) => Condition::Absent,
        (Some(_), true) | (None, false) => {
            let message = "say if_version or if_absent: what was not seen is not overwritten here";
            return Err(Refusal::invalid(message));
        }
    };
    let value = bytes_of(&wanted.value, "the value")?;
    let ttl = wanted.ttl_ms.map(Duration::from_millis);
    let cache = caller.client(&namespace).await?.cache(&cache)?;
    let version = cache.put_if(&wanted.key, value, condition, ttl).await?;
    Ok(Json(Stored { version }))
}

/// Removes a key, if it is as it was seen.
pub(super) async fn delete(
    caller: Caller,
    Path((namespace, cache)): Names,
    Query(wanted): Query<Key>,
) -> Result<Json<Stored>, Refusal> {
    let Some(version) = wanted.if_version else {
        return Err(Refusal::invalid(
            "say if_version: what was not seen is not removed here",
        ));
    };
    let cache = caller.client(&namespace).await?.cache(&cache)?;
    cache.delete_if(&wanted.key, version).await?;
    Ok(Json(Stored { version: None }))
}

/// The sum of a counter.
pub(super) async fn counter(
    caller: Caller,
    Path((namespace, cache)): Names,
    Query(wanted): Query<Key>,
) -> Result<Json<Sum>, Refusal> {
    let counter = caller.client(&namespace).await?.counter(&cache)?;
    let value = counter.get(&wanted.key).await?;
    Ok(Json(Sum {
        value: value.map(|value| value.to_string()),
    }))
}

/// Adds to a counter.
pub(super) async fn add(
    caller: Caller,
    Path((namespace, cache)): Names,
    Json(wanted): Json<Add>,
) -> Result<Json<Sum>, Refusal> {
    let counter = caller.client(&namespace).await?.counter(&cache)?;
    let value = counter.add(&wanted.key, wanted.delta).await?;
    Ok(Json(Sum {
        value: Some(value.to_string()),
    }))
}
