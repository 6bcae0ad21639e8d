//! Commits of an event with the state it changes, and that state.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use bytes::Bytes;
use felix_wire::extension::requests::{
    self as wire, Change, List, Precondition, StateGet, StateList, Text,
};
use felix_wire::publish::Names;

use super::unsendable;
use crate::asks::{How, Repeat, UNKNOWN_VERSION};
use crate::client::Client;
use crate::error::{CallFailed, CommitFailed};

/// A commit that is about to be sent; await it. Made by [`Client::commit`].
#[derive(Clone, Debug)]
#[must_use = "a commit is sent when this is awaited"]
pub struct Commit {
    client: Client,
    stream: String,
    entity: Bytes,
    event: Bytes,
    changes: Vec<Change>,
    expected_offset: Option<u64>,
    preconditions: Vec<Precondition>,
    shard: Option<u32>,
    once: Option<Bytes>,
}

/// A commit that landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The record's offset, which is the version of what it wrote.
    pub offset: u64,
    /// It had landed before, under the same idempotency key.
    pub repeated: bool,
}

/// The state of one entity. Made by [`Client::state`].
#[derive(Clone, Debug)]
pub struct State {
    client: Client,
    names: Names,
    entity: Bytes,
    shard: Option<u32>,
}

/// One key of an entity's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Offset of the commit that wrote it; `None` from a broker that does not tell.
    pub version: Option<u64>,
}

/// What a key of an entity's state held, and as of when.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateRead {
    /// What the key holds; `None` when it holds nothing.
    pub entry: Option<StateEntry>,
    /// Offset of the last commit of the shard that this reflects; `None` before the shard's first.
    pub as_of: Option<u64>,
}

impl Client {
    /// Begins a commit: one event of an entity, on the shard its key routes to, with the state it changes.
    pub fn commit(
        &self,
        stream: &str,
        entity: impl Into<Bytes>,
        event: impl Into<Bytes>,
    ) -> Commit {
        Commit {
            client: self.clone(),
            stream: stream.to_owned(),
            entity: entity.into(),
            event: event.into(),
            changes: Vec::new(),
            expected_offset: None,
            preconditions: Vec::new(),
            shard: None,
            once: None,
        }
    }

    /// The state that commits keep of an entity.
    ///
    /// # Errors
    /// When no stream can have this name.
    pub fn state(&self, stream: &str, entity: impl Into<Bytes>) -> Result<State, CallFailed> {
        Ok(State {
            client: self.clone(),
            names: self.object(stream)?,
            entity: entity.into(),
            shard: None,
        })
    }
}

impl Commit {
    /// Sets a key of the entity's state. Changes are applied in the order of these calls.
    pub fn put(mut self, key: &str, value: impl Into<Bytes>) -> Self {
        let value = Some(value.into());
        let key = key.into();
        self.changes.push(Change { key, value });
        self
    }

    /// Removes a key of the entity's state.
    pub fn delete(mut self, key: &str) -> Self {
        let key = key.into();
        self.changes.push(Change { key, value: None });
        self
    }

    /// Lands only if the record gets this offset in its shard.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.expected_offset = Some(offset);
        self
    }

    /// Lands only if a key has this version, or holds nothing. Needs a broker with the `requests` extension.
    pub fn if_version(mut self, key: &str, version: Option<u64>) -> Self {
        let key = key.into();
        self.preconditions.push(Precondition { key, version });
        self
    }

    /// Lands on this shard, whatever the entity's own is. Needs a broker with the `requests` extension.
    pub fn on_shard(mut self, shard: u32) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Lands once however often it is sent under this idempotency key, of 1 to 128 bytes; then it is repeated until
    /// it is answered. Needs a broker with the `requests` extension.
    pub fn once(mut self, key: impl Into<Bytes>) -> Self {
        self.once = Some(key.into());
        self
    }

    async fn send(self) -> Result<Committed, CommitFailed> {
        let names = self.client.object(&self.stream)?;
        let conditional = self.expected_offset.is_some() || !self.preconditions.is_empty();
        let repeat = match (&self.once, conditional) {
            (Some(_), _) => Repeat::Always,
            (None, true) => Repeat::Conditional,
            (None, false) => Repeat::Unapplied,
        };
        let preconditions = (!self.preconditions.is_empty())
            .then(|| List::build(self.preconditions))
            .transpose();
        let ask = wire::Commit {
            entity: self.entity,
            event: self.event,
            changes: List::build(self.changes).map_err(unsendable)?,
            expected_offset: self.expected_offset,
            preconditions: preconditions.map_err(unsendable)?,
            once: self.once,
            shard: self.shard,
        };
        let committed = self.client.inner.ask(&names, ask, How::new(repeat)).await?;
        Ok(Committed {
            offset: committed.offset,
            repeated: committed.repeated,
        })
    }
}

impl IntoFuture for Commit {
    type Output = Result<Committed, CommitFailed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl State {
    /// Looks on this shard, whatever the entity's own is. Needs a broker with the `requests` extension.
    #[must_use]
    pub fn on_shard(mut self, shard: u32) -> Self {
        self.shard = Some(shard);
        self
    }

    /// What a key holds; `None` when it holds nothing.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn get(&self, key: &str) -> Result<Option<StateEntry>, CallFailed> {
        Ok(self.read(key).await?.entry)
    }

    /// What a key holds, and the last commit that this reflects: a reader who goes on from there misses no change.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn read(&self, key: &str) -> Result<StateRead, CallFailed> {
        let ask = StateGet {
            entity: self.entity.clone(),
            key: key.into(),
            shard: self.shard,
        };
        let inner = &self.client.inner;
        let got = inner
            .ask(&self.names, ask, How::new(Repeat::Always))
            .await?;
        let entry = got.value.map(|versioned| StateEntry {
            key: key.to_owned(),
            value: versioned.value,
            version: Some(versioned.version).filter(|&version| version != UNKNOWN_VERSION),
        });
        let as_of = got.as_of;
        Ok(StateRead { entry, as_of })
    }

    /// Every key of the entity that begins so, ascending. Needs a broker with the `requests` extension.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<StateEntry>, CallFailed> {
        let mut entries: Vec<StateEntry> = Vec::new();
        loop {
            let last = entries.last();
            let ask = StateList {
                entity: self.entity.clone(),
                prefix: prefix.into(),
                limit: 0,
                after: last.map(|entry| Text::from(entry.key.as_str())),
                shard: self.shard,
            };
            let inner = &self.client.inner;
            let listed = inner
                .ask(&self.names, ask, How::new(Repeat::Always))
                .await?;
            let before = entries.len();
            entries.extend(listed.entries.iter().map(|entry| StateEntry {
                key: entry.key.to_string(),
                value: entry.value,
                version: Some(entry.version),
            }));
            if !listed.more || entries.len() == before {
                return Ok(entries);
            }
        }
    }
}
