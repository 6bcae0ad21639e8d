//! Watching a cache for a browser: everything in it, then every change. The broker is asked with the browser's own token
//! whether it may; from then on it watches along with all others.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use felix_client::Cache;
use futures_core::Stream;

use super::ring::End;
use super::watched::{Key, Seen, Watcher, Watches};
use crate::session::answer::Answer;
use crate::session::fault::{Code, Fault};

/// The messages of one watch, until it ends.
pub(crate) type Watching = Pin<Box<dyn Stream<Item = Utf8Bytes> + Send>>;

/// What a browser watches.
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// What browsers call it.
    pub(crate) alias: String,
    /// The cache in this person's name.
    pub(crate) cache: Cache,
}

enum Stage {
    Begin,
    Follow(Watcher, VecDeque<Utf8Bytes>),
    Over,
}

/// Begins to watch the whole of a cache, over all its shards. Ends after a `watch_failed`.
pub(crate) fn watch(wanted: Wanted, watches: Arc<Watches>) -> Watching {
    let step = move |(stage, wanted): (Stage, Wanted)| {
        let watches = Arc::clone(&watches);
        async move {
            let (text, stage) = match stage {
                Stage::Begin => begin(&wanted, &watches).await,
                Stage::Follow(watcher, told) => follow(watcher, told, &wanted.alias).await,
                Stage::Over => return None,
            };
            Some((text, (stage, wanted)))
        }
    };
    Box::pin(futures_util::stream::unfold((Stage::Begin, wanted), step))
}

async fn begin(wanted: &Wanted, watches: &Arc<Watches>) -> (Utf8Bytes, Stage) {
    let Wanted { key, alias, cache } = wanted;
    // It is held until there is a place in the shared one, and asks for no values.
    let own = match cache.watch_prefix("").await {
        Ok(own) => own,
        Err(failed) => return failure(alias, &failed),
    };
    let mut watcher = watches.join(key.clone(), alias, cache);
    drop(own);
    match poll_fn(|cx| watcher.poll_seen(cx)).await {
        Seen::All(entries) => {
            let cache = alias.clone();
            let text = Answer::CacheEntries { cache, entries }.to_text();
            (text.into(), Stage::Follow(watcher, VecDeque::new()))
        }
        Seen::End(end) => over(alias, end),
        // Nothing is a change before everything was told.
        Seen::Changes(_) | Seen::Behind => failure(alias, &LOST),
    }
}

/// What a browser is told that took changes too slowly. What the cache holds is told anew when it watches again.
const LOST: &str = "changes were lost; watch again for what there is";

async fn follow(
    mut watcher: Watcher,
    mut told: VecDeque<Utf8Bytes>,
    alias: &str,
) -> (Utf8Bytes, Stage) {
    loop {
        if let Some(text) = told.pop_front() {
            return (text, Stage::Follow(watcher, told));
        }
        match poll_fn(|cx| watcher.poll_seen(cx)).await {
            Seen::Changes(changes) => told = changes.into(),
            Seen::End(end) => return over(alias, end),
            Seen::All(_) | Seen::Behind => return failure(alias, &LOST),
        }
    }
}

fn over(alias: &str, end: End) -> (Utf8Bytes, Stage) {
    match end {
        End::Over { why } => failure(alias, &why),
        End::Trimmed { .. } => failure(alias, &LOST),
    }
}

fn failure(alias: &str, why: &dyn std::fmt::Display) -> (Utf8Bytes, Stage) {
    let fault = Fault::new(Code::WatchFailed, why.to_string()).cache(alias);
    (fault.to_text().into(), Stage::Over)
}
