//! One watch at the broker for all browsers that watch a cache.
//!
//! Whoever joins has shown before that the broker lets him watch: with a watch of his own, under his own token. The shared
//! one runs on one such person's connection and token, and what the cache holds is kept here, so that whoever comes later is
//! told everything without the broker being asked. When the person it runs on goes or is refused, the next one's watch
//! begins with what the cache holds then; what is different is told as changes. So nobody misses what a key holds in the
//! end; of a key that changed several times meanwhile only the last is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use felix_client::{Cache, Change, ReadFailed, WatchSignal, Watched as Source};
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::crew::{Crew, Left};
use super::ring::{End, Ring, Taken, Weighed, poll_take};
use crate::limits::{EVENTS_PER_FLUSH, WATCHED_BYTES_MAX};
use crate::session::answer::{Answer, Base64, CacheEntry};

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    /// The place in the scope file: changes are written under its alias.
    pub(crate) cache: usize,
    pub(crate) name: String,
}

/// Every shared watch of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: Mutex<HashMap<Key, Arc<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    key: Key,
    alias: String,
    state: Mutex<State>,
    /// The one it ran on has left.
    left: Notify,
}

#[derive(Debug)]
struct State {
    ring: Ring<Told>,
    crew: Crew<Cache>,
    /// What the cache holds; `None` until that is known.
    values: Option<Values>,
}

/// A change as browsers get it, written once for all of them.
#[derive(Debug)]
struct Told(Utf8Bytes);

impl Weighed for Told {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// What one key holds, or that it holds nothing any more.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Option<Bytes>,
    /// With the offset: its version.
    shard: u32,
    offset: u64,
    expires_at_ms: Option<u64>,
}

impl From<Change> for Entry {
    fn from(change: Change) -> Self {
        Self {
            key: change.key,
            value: change.value,
            shard: change.shard,
            offset: change.offset,
            expires_at_ms: change.expires_at_ms,
        }
    }
}

/// What a cache holds.
#[derive(Debug, Default)]
struct Values {
    held: BTreeMap<String, Entry>,
    bytes: usize,
}

/// A browser's place. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Watcher {
    watches: Arc<Watches>,
    shared: Arc<Shared>,
    id: u64,
    /// Before it was told what the cache holds there is none.
    place: Option<u64>,
    waker: Arc<AtomicWaker>,
}

/// What comes of watching.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Everything that the cache holds.
    All(Vec<CacheEntry>),
    Changes(Vec<Utf8Bytes>),
    /// The browser took changes too slowly, and some are not kept any more.
    Behind,
    End(End),
}

impl Watches {
    /// How many watches are shared now.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes a place among those who watch a cache. The broker has let this person watch it.
    pub(crate) fn join(self: &Arc<Self>, key: Key, alias: &str, cache: &Cache) -> Watcher {
        let mut all = self.lock();
        if let Some(shared) = all.get(&key)
            && let Some(watcher) = self.enter(shared, cache)
        {
            return watcher;
        }
        let shared = Arc::new(Shared {
            alias: alias.to_owned(),
            state: Mutex::new(State {
                ring: Ring::starting_at(None),
                crew: Crew::default(),
                values: None,
            }),
            left: Notify::new(),
            key: key.clone(),
        });
        all.insert(key, Arc::clone(&shared));
        let waker = Arc::new(AtomicWaker::new());
        let watcher = self.place(&shared, cache, waker);
        tokio::spawn(run(shared, Arc::clone(self)));
        watcher
    }

    /// A place in a watch that is not over.
    fn enter(self: &Arc<Self>, shared: &Arc<Shared>, cache: &Cache) -> Option<Watcher> {
        let is_over = shared.lock().ring.is_over();
        // A watch that ends now tells the one who comes as well.
        (!is_over).then(|| self.place(shared, cache, Arc::default()))
    }

    fn place(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        cache: &Cache,
        waker: Arc<AtomicWaker>,
    ) -> Watcher {
        let mut state = shared.lock();
        let id = state.crew.enter(cache.clone());
        state.ring.enter(id, Arc::clone(&waker));
        drop(state);
        Watcher {
            watches: Arc::clone(self),
            shared: Arc::clone(shared),
            id,
            place: None,
            waker,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Shared>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(all: &mut HashMap<Key, Arc<Shared>>, shared: &Arc<Shared>) {
    if all
        .get(&shared.key)
        .is_some_and(|other| Arc::ptr_eq(other, shared))
    {
        all.remove(&shared.key);
    }
}

impl Watcher {
    pub(crate) fn poll_seen(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        let Self {
            shared,
            place,
            waker,
            ..
        } = self;
        poll_take(waker, cx, || shared.lock().look(place))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Under both locks, so that nobody joins a watch that its last browser is leaving.
        let mut all = self.watches.lock();
        let mut state = self.shared.lock();
        state.ring.leave(self.id);
        let Left {
            was_runner,
            is_last,
        } = state.crew.leave(self.id);
        drop(state);
        if is_last {
            forget(&mut all, &self.shared);
        }
        drop(all);
        if was_runner || is_last {
            self.shared.left.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what the cache holds now into the place of what it held, and tells what is different.
    fn loaded(&self, fresh: Values) {
        let mut state = self.lock();
        let before = state.values.take();
        if let Some(before) = before {
            let changes = before.changes_to(&fresh);
            let told = changes.into_iter().map(|entry| self.told(entry));
            state.ring.push(told, None);
        }
        state.values = Some(fresh);
        state.ring.wake();
    }

    fn changed(&self, entry: Entry) -> Result<(), TooLarge> {
        let told = self.told(entry.clone());
        let mut state = self.lock();
        if let Some(values) = &mut state.values {
            values.apply(entry)?;
        }
        state.ring.push([told], None);
        Ok(())
    }

    fn told(&self, entry: Entry) -> Arc<Told> {
        let answer = Answer::CacheChange {
            cache: self.alias.clone(),
            expires_in_ms: entry.expires_in(),
            payload: entry.value.map(Base64),
            key: entry.key,
        };
        Arc::new(Told(answer.to_text().into()))
    }
}

impl State {
    /// Everything first, and from then on what changed since.
    fn look(&self, place: &mut Option<u64>) -> Option<Seen> {
        if let Some(place) = place {
            return self.ring.take(place, EVENTS_PER_FLUSH).map(Seen::from);
        }
        match &self.values {
            Some(values) => {
                *place = Some(self.ring.tail());
                Some(Seen::All(values.entries()))
            }
            None => self.ring.take(&mut self.ring.tail(), 1).map(Seen::from),
        }
    }
}

impl From<Taken<Told>> for Seen {
    fn from(taken: Taken<Told>) -> Self {
        match taken {
            Taken::Events(told) => Self::Changes(told.iter().map(|one| one.0.clone()).collect()),
            Taken::Behind => Self::Behind,
            Taken::End(end) => Self::End(end),
        }
    }
}

/// A cache holds more than browsers can be told at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cache holds more than {WATCHED_BYTES_MAX} bytes, which is more than a browser can watch"
)]
struct TooLarge;

impl Entry {
    fn deleted(&self) -> Self {
        Self {
            value: None,
            ..self.clone()
        }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    fn expires_in(&self) -> Option<u64> {
        let at = self.value.as_ref().and(self.expires_at_ms)?;
        Some(at.saturating_sub(crate::identity::now().0))
    }
}

impl Values {
    fn apply(&mut self, entry: Entry) -> Result<(), TooLarge> {
        let before = match entry.value {
            Some(_) => {
                self.bytes += entry.bytes();
                self.held.insert(entry.key.clone(), entry)
            }
            None => self.held.remove(&entry.key),
        };
        self.bytes -= before.as_ref().map_or(0, Entry::bytes);
        match self.bytes <= WATCHED_BYTES_MAX {
            true => Ok(()),
            false => Err(TooLarge),
        }
    }

    /// Forgets a shard, of which everything comes again.
    fn drop_shard(&mut self, shard: u32) {
        self.held.retain(|_, one| one.shard != shard);
        self.bytes = self.held.values().map(Entry::bytes).sum();
    }

    /// What makes of these values those.
    fn changes_to(&self, fresh: &Self) -> Vec<Entry> {
        let gone = |old: &&Entry| !fresh.held.contains_key(&old.key);
        let deleted = self.held.values().filter(gone).map(Entry::deleted);
        let written = fresh.held.values().filter(|new| {
            let old = self.held.get(&new.key);
            old.is_none_or(|old| (old.shard, old.offset) != (new.shard, new.offset))
        });
        deleted.chain(written.cloned()).collect()
    }

    /// What has expired holds nothing any more, even while its deletion is on its way.
    fn entries(&self) -> Vec<CacheEntry> {
        let now = crate::identity::now().0;
        let stands = |held: &&Entry| held.expires_at_ms.is_none_or(|at| now < at);
        let entry = |held: &Entry| {
            Some(CacheEntry {
                expires_in_ms: held.expires_in(),
                payload: Base64(held.value.clone()?),
                key: held.key.clone(),
            })
        };
        self.held
            .values()
            .filter(stands)
            .filter_map(entry)
            .collect()
    }
}

/// Why a watch does not go on.
enum Stopped {
    /// Whoever it ran on has left.
    Left,
    /// Changes were lost: what the cache holds is asked for again.
    Again,
    /// The broker ended it, or refused whoever it ran on.
    Failed(ReadFailed),
    Over(String),
}

/// The life of a shared watch.
async fn run(shared: Arc<Shared>, watches: Arc<Watches>) {
    let mut why = None;
    let why = loop {
        let next = shared.lock().crew.next_runner();
        let Some((id, cache)) = next else {
            let nobody = || "nobody may watch this cache any more".to_owned();
            break why.unwrap_or_else(nobody);
        };
        match carry(&shared, id, &cache).await {
            Stopped::Left | Stopped::Again => {}
            Stopped::Failed(failed) => {
                let name = &shared.key.name;
                tracing::debug!(cache = name, %failed, "a shared watch goes on with another token");
                why = Some(failed.to_string());
                shared.lock().crew.pass_over(id);
            }
            Stopped::Over(why) => break why,
        }
    };
    shared.lock().ring.end(End::Over { why });
    forget(&mut watches.lock(), &shared);
}

/// Watches in somebody's name until that stops.
async fn carry(shared: &Shared, id: u64, cache: &Cache) -> Stopped {
    let stopped = tokio::select! {
        () = gone(shared, id) => return Stopped::Left,
        begun = begin(cache) => begun,
    };
    let (mut source, values) = match stopped {
        Ok(begun) => begun,
        Err(stopped) => return stopped,
    };
    shared.loaded(values);
    loop {
        let signal = tokio::select! {
            () = gone(shared, id) => return Stopped::Left,
            signal = source.next_signal() => signal,
        };
        match signal {
            Ok(Some(WatchSignal::Change(change))) => {
                if let Err(large) = shared.changed(change.into()) {
                    return Stopped::Over(large.to_string());
                }
            }
            Ok(Some(WatchSignal::Resnapshot { .. })) => return Stopped::Again,
            // Signals of later clients say nothing about values.
            Ok(Some(_)) => {}
            Ok(None) => return Stopped::Over("the cache was deleted".to_owned()),
            Err(failed) => return Stopped::Failed(failed),
        }
    }
}

/// Waits until this one is not there any more.
async fn gone(shared: &Shared, id: u64) {
    while shared.lock().crew.has(id) {
        shared.left.notified().await;
    }
}

/// Reads until every current value of every shard has come. Changes that come meanwhile are part of it.
async fn begin(cache: &Cache) -> Result<(Source, Values), Stopped> {
    let watch = cache.watch_prefix("").retained();
    let mut source = watch.await.map_err(Stopped::Failed)?;
    let mut values = Values::default();
    loop {
        match source.next_signal().await.map_err(Stopped::Failed)? {
            Some(WatchSignal::Change(change)) => {
                let applied = values.apply(change.into());
                applied.map_err(|large| Stopped::Over(large.to_string()))?;
            }
            Some(WatchSignal::Resnapshot { shard }) => values.drop_shard(shard),
            Some(WatchSignal::CaughtUp { .. }) => return Ok((source, values)),
            Some(_) => {}
            None => return Err(Stopped::Over("the cache was deleted".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, offset: u64, value: Option<&'static str>) -> Entry {
        Entry {
            key: key.to_owned(),
            value: value.map(|text| Bytes::from_static(text.as_bytes())),
            shard: 0,
            offset,
            expires_at_ms: None,
        }
    }

    fn values(entries: &[Entry]) -> Values {
        let mut values = Values::default();
        for entry in entries {
            values.apply(entry.clone()).unwrap();
        }
        values
    }

    fn shared() -> Shared {
        Shared {
            key: Key {
                namespace: "default".into(),
                cache: 0,
                name: "board-7-presence".into(),
            },
            alias: "presence".into(),
            state: Mutex::new(State {
                ring: Ring::starting_at(None),
                crew: Crew::default(),
                values: None,
            }),
            left: Notify::new(),
        }
    }

    fn keys(seen: Option<Seen>) -> Vec<String> {
        let key = |text: &Utf8Bytes| {
            let told: serde_json::Value = serde_json::from_str(text).unwrap();
            format!("{}={}", told["key"].as_str().unwrap(), told["payload"])
        };
        match seen {
            Some(Seen::All(entries)) => entries.into_iter().map(|entry| entry.key).collect(),
            Some(Seen::Changes(changes)) => changes.iter().map(key).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_comes_is_told_everything_once_and_then_what_changes() {
        let shared = shared();
        let (mut early, mut late) = (None, None);
        assert!(shared.lock().look(&mut early).is_none(), "nothing is known");
        shared.loaded(values(&[entry("a", 1, Some("1"))]));
        assert_eq!(keys(shared.lock().look(&mut early)), ["a"]);
        assert!(shared.lock().look(&mut early).is_none());
        shared.changed(entry("b", 2, Some("2"))).unwrap();
        assert_eq!(keys(shared.lock().look(&mut late)), ["a", "b"]);
        shared.changed(entry("a", 3, None)).unwrap();
        assert_eq!(
            keys(shared.lock().look(&mut early)),
            [r#"b="Mg==""#, "a=null"]
        );
        assert_eq!(keys(shared.lock().look(&mut late)), ["a=null"]);
        assert!(shared.lock().look(&mut late).is_none());
    }

    #[test]
    fn whoever_comes_is_not_told_what_has_expired() {
        let expired = Entry {
            expires_at_ms: Some(1),
            ..entry("a", 1, Some("1"))
        };
        let lasting = Entry {
            expires_at_ms: Some(u64::MAX),
            ..entry("b", 2, Some("2"))
        };
        let told = values(&[expired, lasting]).entries();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].key, "b");
    }

    #[test]
    fn a_watch_that_changed_hands_tells_what_is_different_and_nothing_else() {
        let shared = shared();
        shared.loaded(values(&[
            entry("same", 1, Some("s")),
            entry("gone", 2, Some("g")),
            entry("newer", 3, Some("n")),
        ]));
        let mut place = None;
        shared.lock().look(&mut place);
        shared.loaded(values(&[
            entry("same", 1, Some("s")),
            entry("newer", 5, Some("m")),
            entry("fresh", 6, Some("f")),
        ]));
        assert_eq!(
            keys(shared.lock().look(&mut place)),
            ["gone=null", r#"fresh="Zg==""#, r#"newer="bQ==""#]
        );
    }

    #[test]
    fn who_is_too_slow_or_watches_too_much_is_told() {
        let shared = shared();
        shared.loaded(Values::default());
        let mut place = None;
        shared.lock().look(&mut place);
        for offset in 0..=crate::limits::EVENTS_HELD_MAX as u64 {
            shared.changed(entry("k", offset, Some("v"))).unwrap();
        }
        assert!(matches!(shared.lock().look(&mut place), Some(Seen::Behind)));
        let mut values = Values::default();
        let large = |key: &str| Entry {
            value: Some(vec![0; WATCHED_BYTES_MAX / 2].into()),
            ..entry(key, 1, None)
        };
        values.apply(large("a")).unwrap();
        values.apply(large("a")).unwrap();
        assert_eq!(values.apply(large("b")), Err(TooLarge));
        values.apply(entry("b", 2, None)).unwrap();
        values.drop_shard(0);
        assert_eq!(values.bytes, 0);
    }
}
