//! Watching a cache for a browser: everything in it, then every change.

use std::collections::BTreeMap;
use std::pin::Pin;

use felix_client::{Cache, Change, ReadFailed, WatchSignal, Watched};
use futures_core::Stream;

use crate::session::answer::{Answer, Base64, CacheEntry};
use crate::session::fault::{Code, Fault};

/// The messages of one watch, until it ends.
pub(crate) type Watching = Pin<Box<dyn Stream<Item = String> + Send>>;

enum Stage {
    Begin(Cache),
    Follow(Box<Watched>),
    Over,
}

/// Begins to watch the whole of a cache, over all its shards. Ends after a `watch_failed`.
pub(crate) fn watch(cache: Cache, alias: String) -> Watching {
    let step = move |stage| {
        let alias = alias.clone();
        async move {
            match stage {
                Stage::Begin(cache) => Some(begin(cache, &alias).await),
                Stage::Follow(watched) => Some(follow(watched, &alias).await),
                Stage::Over => None,
            }
        }
    };
    Box::pin(futures_util::stream::unfold(Stage::Begin(cache), step))
}

async fn begin(cache: Cache, alias: &str) -> (String, Stage) {
    match collect(cache).await {
        Ok((watched, values)) => {
            let entries = values.into_values().filter_map(entry).collect();
            let cache = alias.to_owned();
            let text = Answer::CacheEntries { cache, entries }.to_text();
            (text, Stage::Follow(Box::new(watched)))
        }
        Err(failed) => (failure(alias, failed.to_string()), Stage::Over),
    }
}

/// Reads until every current value of every shard has come. Changes that come meanwhile are part of it.
async fn collect(cache: Cache) -> Result<(Watched, BTreeMap<String, Change>), ReadFailed> {
    let mut watched = cache.watch_prefix("").retained().await?;
    let mut values: BTreeMap<String, Change> = BTreeMap::new();
    loop {
        match watched.next_signal().await? {
            Some(WatchSignal::Change(change)) => drop(values.insert(change.key.clone(), change)),
            Some(WatchSignal::Resnapshot { shard }) => values.retain(|_, held| held.shard != shard),
            Some(WatchSignal::CaughtUp { .. }) | None => return Ok((watched, values)),
            // Signals of later clients say nothing about values.
            Some(_) => {}
        }
    }
}

async fn follow(mut watched: Box<Watched>, alias: &str) -> (String, Stage) {
    let why = match watched.next_signal().await {
        Ok(Some(WatchSignal::Change(change))) => {
            let text = Answer::CacheChange {
                cache: alias.to_owned(),
                expires_in_ms: expires_in(&change),
                payload: change.value.map(Base64),
                key: change.key,
            }
            .to_text();
            return (text, Stage::Follow(watched));
        }
        Ok(Some(_)) => "changes were lost; watch again for what there is".to_owned(),
        Ok(None) => "the cache was deleted".to_owned(),
        Err(failed) => failed.to_string(),
    };
    (failure(alias, why), Stage::Over)
}

fn entry(change: Change) -> Option<CacheEntry> {
    let expires_in_ms = expires_in(&change);
    Some(CacheEntry {
        payload: Base64(change.value?),
        key: change.key,
        expires_in_ms,
    })
}

fn expires_in(change: &Change) -> Option<u64> {
    let now = crate::identity::now().0;
    let at = change.value.as_ref().and(change.expires_at_ms)?;
    Some(at.saturating_sub(now))
}

fn failure(alias: &str, why: String) -> String {
    Fault::new(Code::WatchFailed, why).cache(alias).to_text()
}
