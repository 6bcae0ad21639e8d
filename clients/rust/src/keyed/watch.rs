//! Watching keys: changes as they are committed, over every shard of the cache.
//!
//! Each shard is followed by a task of its own, which watches again by itself from the first change it has not
//! handed on. What waits for the watcher is bounded; then the broker waits, as for a slow subscription.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use bytes::Bytes;
use felix_wire::message::{CacheShards, Message};
use felix_wire::negotiate::Features;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::shard::{Follow, Told};
use super::cache::Cache;
use crate::calls::{Call, unexpected};
use crate::error::{CallFailed, ReadFailed};
use crate::limits::CHANGES_WAITING;

mod shard;

/// Where watching begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchFrom {
    /// With the first change from now on.
    #[default]
    Now,
    /// With the current values, and every change after them.
    Retained,
    /// With the change of this offset; for one key, or a cache of one shard.
    Offset(u64),
}

/// A watch that is about to begin; await it. Made by [`Cache::watch`] and [`Cache::watch_prefix`].
#[derive(Clone, Debug)]
#[must_use = "a watch begins when this is awaited"]
pub struct Watch {
    cache: Cache,
    what: What,
    from: WatchFrom,
}

/// Which keys are watched.
#[derive(Clone, Debug)]
enum What {
    Key(String),
    Prefix(String),
}

/// One change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The key.
    pub key: String,
    /// The value; `None` when the key was deleted or expired.
    pub value: Option<Bytes>,
    /// Where the change stands in its shard's log, which is the version of the value.
    pub offset: u64,
    /// The shard.
    pub shard: u32,
    /// When the value expires, Unix milliseconds; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// Whether it is a current value that was there before the watch, not a change.
    pub retained: bool,
}

/// A change, or what happened to a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchSignal {
    /// A key changed, or this is what it holds.
    Change(Change),
    /// Every current value of every shard has been handed out, this many; what follows are changes. Comes once,
    /// for watches that begin with them.
    CaughtUp {
        /// How many.
        values: u64,
    },
    /// The shard's current values come again, and keys that are not among them may have been deleted: history was
    /// compacted away before it was handed out, the cache lost what it held, or the watch was interrupted among
    /// current values.
    Resnapshot {
        /// The shard.
        shard: u32,
    },
}

/// A watch that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Watched {
    told: mpsc::Receiver<Told>,
    /// Shards whose current values are still coming, and how many came.
    catching_up: BTreeMap<u32, u64>,
    /// How many came of the other shards.
    values: u64,
    /// Ends with the watch.
    _follows: JoinSet<()>,
}

impl Watch {
    pub(super) fn key(cache: Cache, key: &str) -> Self {
        let what = What::Key(key.to_owned());
        let from = WatchFrom::Now;
        Self { cache, what, from }
    }

    pub(super) fn prefix(cache: Cache, prefix: &str) -> Self {
        let what = What::Prefix(prefix.to_owned());
        let from = WatchFrom::Now;
        Self { cache, what, from }
    }

    /// Begins here instead of with the first change from now on.
    pub fn from(mut self, from: WatchFrom) -> Self {
        self.from = from;
        self
    }

    /// Begins with the current values.
    pub fn retained(self) -> Self {
        self.from(WatchFrom::Retained)
    }

    async fn begin(self) -> Result<Watched, ReadFailed> {
        let shards = match self.what {
            // The broker finds the shard of a key.
            What::Key(_) => 1,
            What::Prefix(_) => shards(&self.cache).await?,
        };
        let (tell, told) = mpsc::channel(CHANGES_WAITING);
        let mut beginning = JoinSet::new();
        for shard in 0..shards {
            let follow = Follow::new(&self, shard, tell.clone());
            beginning.spawn(async move {
                let started = follow.begin().await?;
                Ok::<_, ReadFailed>((follow, started))
            });
        }
        let mut follows = JoinSet::new();
        while let Some(begun) = beginning.join_next().await {
            let (follow, started) = begun.map_err(|error| CallFailed::Protocol {
                what: error.to_string(),
            })??;
            follows.spawn(follow.run(started));
        }
        let catching_up = match self.from {
            WatchFrom::Retained => (0..shards).map(|shard| (shard, 0)).collect(),
            WatchFrom::Now | WatchFrom::Offset(_) => BTreeMap::new(),
        };
        Ok(Watched {
            told,
            catching_up,
            values: 0,
            _follows: follows,
        })
    }
}

/// How many shards a cache has.
async fn shards(cache: &Cache) -> Result<u32, CallFailed> {
    let inner = &cache.client.inner;
    let request_id = inner.next_request();
    let ask = CacheShards {
        tenant_id: cache.names.tenant().to_owned(),
        namespace: cache.names.namespace().to_owned(),
        cache: cache.names.stream().to_owned(),
        request_id,
    };
    let call = Call::read(ask).needs(Features::CACHE_SHARDS, "cache_shards");
    let answer = inner.call(call).await?.answer;
    let Message::CacheShardsView(view) = &answer else {
        return Err(unexpected(&answer));
    };
    if view.request_id != request_id {
        return Err(unexpected(&answer));
    }
    if view.shards == 0 {
        let message = format!("no such cache: {}", cache.names.stream());
        let failure = felix_wire::Failure::new(felix_wire::Code::NotFound, message);
        let failure = failure.with_retry(felix_wire::Retry::Fatal);
        return Err(CallFailed::Refused(failure.into()));
    }
    Ok(view.shards)
}

impl IntoFuture for Watch {
    type Output = Result<Watched, ReadFailed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin())
    }
}

impl Watched {
    /// The next change or current value of any shard; `None` when the cache was deleted. Cancel-safe.
    ///
    /// # Errors
    /// [`ReadFailed`] when a shard cannot be followed any more; the others go on.
    pub async fn next(&mut self) -> Result<Option<Change>, ReadFailed> {
        loop {
            match self.next_signal().await? {
                Some(WatchSignal::Change(change)) => return Ok(Some(change)),
                Some(WatchSignal::CaughtUp { .. } | WatchSignal::Resnapshot { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next change, or what happened to the watch. Cancel-safe.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_signal(&mut self) -> Result<Option<WatchSignal>, ReadFailed> {
        loop {
            let Some(told) = self.told.recv().await else {
                return Ok(None);
            };
            match told {
                Told::Change(change) => {
                    if let Some(came) = self.catching_up.get_mut(&change.shard) {
                        *came += u64::from(change.retained);
                    }
                    return Ok(Some(WatchSignal::Change(change)));
                }
                Told::CaughtUp { shard } => {
                    if let Some(came) = self.catching_up.remove(&shard) {
                        self.values += came;
                        if self.catching_up.is_empty() {
                            let values = self.values;
                            return Ok(Some(WatchSignal::CaughtUp { values }));
                        }
                    }
                }
                Told::Resnapshot { shard } => {
                    if let Some(came) = self.catching_up.get_mut(&shard) {
                        *came = 0;
                    }
                    return Ok(Some(WatchSignal::Resnapshot { shard }));
                }
                Told::Failed(failed) => return Err(failed),
            }
        }
    }
}
