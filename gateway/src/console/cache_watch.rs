//! Changes of a cache: those to come, and those of one key that its log still holds.

use std::collections::VecDeque;
use std::future::pending;

use axum::Json;
use axum::extract::{Path, Query};
use axum::response::Response;
use felix_client::{Cache, ReadFailed, WatchFrom, WatchSignal, Watched};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::caller::{Caller, Onlooker};
use super::entries::Key;
use super::limits::{CALL_TIMEOUT, HISTORY_QUIET, PREVIEW_BYTES, VERSIONS};
use super::live::{self, Teller, Told};
use super::refusal::Refusal;
use super::shown::{Shown, cut};

/// One change.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    key: String,
    value: Option<Shown>,
    version: u64,
    shard: u32,
    expires_at_ms: Option<u64>,
    retained: bool,
}

/// Versions of a key.
#[derive(Debug, Serialize)]
pub(super) struct History {
    /// The newest of them, ascending.
    changes: VecDeque<Change>,
    /// Whether older ones are gone, or not shown.
    compacted: bool,
}

/// Which keys.
#[derive(Debug, Deserialize)]
pub(super) struct Keys {
    #[serde(default)]
    prefix: String,
    /// Whether what the keys hold now comes first.
    #[serde(default)]
    retained: bool,
}

impl From<felix_client::Change> for Change {
    fn from(change: felix_client::Change) -> Self {
        Self {
            value: change
                .value
                .as_deref()
                .map(|value| cut(value, PREVIEW_BYTES)),
            version: change.offset,
            shard: change.shard,
            expires_at_ms: change.expires_at_ms,
            retained: change.retained,
            key: change.key,
        }
    }
}

/// Follows keys that begin so.
pub(super) async fn watch(
    who: Onlooker,
    Path((namespace, cache)): Path<(String, String)>,
    Query(wanted): Query<Keys>,
) -> Result<Response, Refusal> {
    let cache = who
        .person
        .client(&who.app, &namespace)
        .await?
        .cache(&cache)?;
    let from = if wanted.retained {
        WatchFrom::Retained
    } else {
        WatchFrom::Now
    };
    let mut watched = cache.watch_prefix(&wanted.prefix).from(from).await?;
    let (tell, told) = live::channel();
    let work = tokio::spawn(async move {
        let mut teller = Teller::new(tell);
        let end = loop {
            match watched.next().await {
                Ok(Some(change)) => teller.item(Change::from(change), None),
                Ok(None) => break Refusal::not_found("the cache was deleted"),
                Err(failed) => break failed.into(),
            }
        };
        teller.must(Told::End(end)).await;
    });
    Ok(live::answer(who, "changes", told, work))
}

/// The versions of a key that the log still holds.
pub(super) async fn history(
    caller: Caller,
    Path((namespace, cache)): Path<(String, String)>,
    Query(wanted): Query<Key>,
) -> Result<Json<History>, Refusal> {
    let cache = caller.client(&namespace).await?.cache(&cache)?;
    let current = cache
        .get(&wanted.key)
        .await?
        .and_then(|entry| entry.version);
    let (watched, compacted) = begin(&cache, &wanted.key).await?;
    let mut history = History {
        changes: VecDeque::new(),
        compacted,
    };
    // What was read when the time is over is shown.
    let _ = timeout(CALL_TIMEOUT, history.read(watched, current)).await;
    Ok(Json(history))
}

/// Begins at the oldest change that there is, and says whether there were older ones.
async fn begin(cache: &Cache, key: &str) -> Result<(Watched, bool), Refusal> {
    match cache.watch(key).from(WatchFrom::Offset(0)).await {
        Ok(watched) => Ok((watched, false)),
        Err(ReadFailed::TooOld { oldest, .. }) => {
            let from = WatchFrom::Offset(oldest);
            Ok((cache.watch(key).from(from).await?, true))
        }
        Err(failed) => Err(failed.into()),
    }
}

impl History {
    /// Reads up to the version that the key has now. A key that holds nothing has none: then silence is the end.
    async fn read(&mut self, mut watched: Watched, current: Option<u64>) {
        loop {
            let quiet = async {
                match current {
                    Some(_) => pending().await,
                    None => sleep(HISTORY_QUIET).await,
                }
            };
            let signal = tokio::select! {
                signal = watched.next_signal() => signal,
                () = quiet => return,
            };
            match signal {
                Ok(Some(WatchSignal::Change(change))) => {
                    let version = change.offset;
                    self.changes.push_back(change.into());
                    if self.changes.len() > VERSIONS {
                        self.changes.pop_front();
                        self.compacted = true;
                    }
                    if current.is_some_and(|current| version >= current) {
                        return;
                    }
                }
                Ok(Some(WatchSignal::Resnapshot { .. })) => self.compacted = true,
                Ok(Some(WatchSignal::CaughtUp { .. } | _)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}
