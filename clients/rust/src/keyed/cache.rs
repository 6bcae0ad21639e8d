//! One cache: entries by key.

use std::time::Duration;

use bytes::Bytes;
use felix_wire::extension::requests::{
    self as wire, CacheDelete, CacheGet, CacheGetMany, CacheList, CachePut, List, Text,
};
use felix_wire::publish::Names;

use super::unsendable;
use super::watch::Watch;
use crate::asks::{How, Repeat, UNKNOWN_VERSION};
use crate::client::Client;
use crate::error::{CacheFailed, CallFailed};

/// A cache of the client's namespace. Cheap to make and to clone.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) client: Client,
    pub(super) names: Names,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The value; empty where values were not asked for.
    pub value: Bytes,
    /// Which write set it; growing in one shard. `None` from a broker that does not tell.
    pub version: Option<u64>,
    /// When it expires, Unix milliseconds; `None` for never, and from a broker that does not tell.
    pub expires_at_ms: Option<u64>,
}

/// An entry and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyEntry {
    /// The key.
    pub key: String,
    /// What it holds.
    pub entry: Entry,
}

/// What must hold for a write to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key holds nothing.
    Absent,
    /// The key's entry has exactly this version.
    Version(u64),
}

/// Which entries a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Keys that begin so.
    pub prefix: String,
    /// Only keys greater than this one.
    pub after: Option<String>,
    /// At most this many a page; 0 for as many as the broker sends at once.
    pub limit: u32,
    /// Whether values come too.
    pub values: bool,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachePage {
    /// Ascending by key, of all shards.
    pub entries: Vec<KeyEntry>,
    /// What to list after for the next page; `None` on the last one.
    pub next: Option<String>,
}

impl Client {
    /// A cache. Whether it exists is seen by the first request.
    ///
    /// # Errors
    /// When no cache can have this name.
    pub fn cache(&self, name: &str) -> Result<Cache, CallFailed> {
        Ok(Cache {
            client: self.clone(),
            names: self.object(name)?,
        })
    }
}

impl Cache {
    /// What a key holds; `None` when it holds nothing.
    ///
    /// # Errors
    /// [`CacheFailed::Call`].
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, CacheFailed> {
        let ask = CacheGet { key: key.into() };
        let got = self.ask(ask, Repeat::Always).await?;
        Ok(got.entry.map(Entry::from))
    }

    /// What many keys hold, in their order. One request and a few more if the values are large; one for each key
    /// where the broker speaks the published protocol only.
    ///
    /// # Errors
    /// [`CacheFailed::Call`].
    pub async fn get_many<K>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Entry>>, CacheFailed>
    where
        K: AsRef<str>,
    {
        let keys: Vec<Text> = keys.into_iter().map(|key| key.as_ref().into()).collect();
        let mut entries = Vec::with_capacity(keys.len());
        while let Some(rest) = keys.get(entries.len()..).filter(|rest| !rest.is_empty()) {
            let keys = List::build(rest.iter().take(GET_MANY_KEYS).cloned());
            let keys = keys.map_err(unsendable)?;
            let got = match self.ask(CacheGetMany { keys }, Repeat::Always).await {
                Err(CallFailed::Unsupported { .. }) => return self.get_each(&keys_of(rest)).await,
                got => got?,
            };
            if got.slots.is_empty() {
                let what = "a broker answered none of the keys it was asked for".to_owned();
                return Err(CallFailed::Protocol { what }.into());
            }
            let slots = got.slots.iter().take(rest.len());
            entries.extend(slots.map(|slot| slot.entry.map(Entry::from)));
        }
        Ok(entries)
    }

    async fn get_each(&self, keys: &[&str]) -> Result<Vec<Option<Entry>>, CacheFailed> {
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            entries.push(self.get(key).await?);
        }
        Ok(entries)
    }

    /// Sets a key, for good. Answers the version; `None` from a broker that does not tell.
    ///
    /// # Errors
    /// [`CacheFailed::Call`]. With [`Retry::OutcomeUnknown`](crate::Retry::OutcomeUnknown) the key may be set: a
    /// put without a condition is not repeated, because another's may have come in between.
    pub async fn put(
        &self,
        key: &str,
        value: impl Into<Bytes>,
    ) -> Result<Option<u64>, CacheFailed> {
        self.write(key, value.into(), None, None).await
    }

    /// Sets a key for this long, on the broker's clock.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_with_ttl(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<Option<u64>, CacheFailed> {
        self.write(key, value.into(), Some(ttl), None).await
    }

    /// Sets a key if a condition holds, for good or for a time.
    ///
    /// # Errors
    /// [`CacheFailed::VersionMismatch`] with the version that stands; nothing was changed.
    pub async fn put_if(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        condition: Condition,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, CacheFailed> {
        self.write(key, value.into(), ttl, Some(condition)).await
    }

    async fn write(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
        condition: Option<Condition>,
    ) -> Result<Option<u64>, CacheFailed> {
        let repeat = match condition {
            Some(_) => Repeat::Conditional,
            None => Repeat::Unapplied,
        };
        let ask = CachePut {
            key: key.into(),
            value,
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            condition: condition.map(|condition| match condition {
                Condition::Absent => wire::Condition::Absent,
                Condition::Version(version) => wire::Condition::Version(version),
            }),
        };
        let stored = self.ask(ask, repeat).await?;
        Ok(known(stored.version))
    }

    /// Removes a key. Answers what was removed; `None` when it held nothing.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn delete(&self, key: &str) -> Result<Option<Entry>, CacheFailed> {
        let ask = CacheDelete {
            key: key.into(),
            version: None,
            want_value: true,
        };
        let deleted = self.ask(ask, Repeat::Unapplied).await?;
        Ok(deleted.removed.map(Entry::from))
    }

    /// Removes a key if its entry has exactly this version.
    ///
    /// # Errors
    /// [`CacheFailed::VersionMismatch`] with the version that stands; nothing was changed.
    pub async fn delete_if(&self, key: &str, version: u64) -> Result<(), CacheFailed> {
        let ask = CacheDelete {
            key: key.into(),
            version: Some(version),
            want_value: false,
        };
        self.ask(ask, Repeat::Conditional).await?;
        Ok(())
    }

    /// One page of live entries in the order of their keys. Needs a broker with the `requests` extension.
    ///
    /// # Errors
    /// [`CacheFailed::Call`].
    pub async fn list(&self, options: ListOptions) -> Result<CachePage, CacheFailed> {
        let ask = CacheList {
            prefix: options.prefix.into(),
            limit: options.limit,
            after: options.after.map(Text::from),
            want_values: options.values,
            shard: None,
        };
        let listed = self.ask(ask, Repeat::Always).await?;
        let entries: Vec<KeyEntry> = listed
            .entries
            .iter()
            .map(|listed| KeyEntry {
                key: listed.key.to_string(),
                entry: listed.entry.into(),
            })
            .collect();
        let last = entries.last().filter(|_| listed.more);
        let next = last.map(|last| last.key.clone());
        Ok(CachePage { entries, next })
    }

    /// Begins to watch one key.
    pub fn watch(&self, key: &str) -> Watch {
        Watch::key(self.clone(), key)
    }

    /// Begins to watch every key that begins so, in all shards; an empty prefix is all keys.
    pub fn watch_prefix(&self, prefix: &str) -> Watch {
        Watch::prefix(self.clone(), prefix)
    }

    pub(super) async fn ask<A: wire::Asks>(
        &self,
        ask: A,
        repeat: Repeat,
    ) -> Result<A::Reply, CallFailed> {
        let inner = &self.client.inner;
        inner.ask(&self.names, ask, How::new(repeat)).await
    }
}

/// Keys asked for in one request.
const GET_MANY_KEYS: usize = 1_000;

fn keys_of(keys: &[Text]) -> Vec<&str> {
    keys.iter().map(Text::as_str).collect()
}

fn known(version: u64) -> Option<u64> {
    Some(version).filter(|&version| version != UNKNOWN_VERSION)
}

impl From<wire::Entry> for Entry {
    fn from(entry: wire::Entry) -> Self {
        Self {
            value: entry.value,
            version: known(entry.version),
            expires_at_ms: Some(entry.expires_at_ms).filter(|&at| at != 0),
        }
    }
}
