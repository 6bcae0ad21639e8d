//! The same calls in the messages of the published protocol, for brokers without the `requests` extension.
//!
//! What those have no message for is refused with [`CallFailed::Unsupported`] before anything is sent.

mod groups;

use std::sync::Arc;

use felix_wire::extension::Extension;
use felix_wire::extension::requests::{
    Ask, CacheDelete, CacheDeleted, CacheGot, CachePut, CacheStored, Call, Commit, Committed,
    Condition, CounterValue, Entry, Reply, StateGet, StateGot, Versioned,
};
use felix_wire::message::{self, Change, Message};
use felix_wire::negotiate::Features;
use felix_wire::publish::Names;

use super::{How, Repeat};
use crate::calls::{Call as Request, unexpected};
use crate::client::Inner;
use crate::error::{CallFailed, Refused};

/// Stands for the version of a write whose answer names none.
pub(crate) const UNKNOWN_VERSION: u64 = u64::MAX;

/// One call, and whom it concerns.
struct Asking<'a> {
    inner: &'a Arc<Inner>,
    tenant_id: String,
    namespace: String,
    object: String,
    how: How,
    request_id: u64,
}

type Asked = Result<Reply, CallFailed>;

impl Inner {
    pub(super) async fn ask_published(self: &Arc<Self>, call: &Call, how: How) -> Asked {
        let Call { names, ask } = call;
        if ask.kind().extension() == Extension::Raw {
            return Err(CallFailed::Unsupported { feature: "raw" });
        }
        let asking = Asking::new(self, names, how);
        match ask {
            Ask::CacheGet(ask) => asking.cache_get(ask.key.to_string()).await,
            Ask::CachePut(ask) => asking.cache_put(ask).await,
            Ask::CacheDelete(ask) => asking.cache_delete(ask).await,
            Ask::CounterAdd(ask) if ask.once.is_none() => {
                let value = asking.counter_add(ask.key.to_string(), ask.delta).await?;
                Ok(Reply::CounterAdd(value))
            }
            Ask::CounterGet(ask) => asking.counter_get(ask.key.to_string()).await,
            Ask::StateGet(ask) => asking.state_get(ask).await,
            Ask::Commit(ask) if ask.once.is_none() && ask.preconditions.is_none() => {
                asking.commit(ask).await
            }
            Ask::GroupPoll(ask) => asking.poll(ask).await,
            Ask::GroupAck(ask) => {
                let (shard, group) = (ask.shard, ask.group.to_string());
                asking
                    .settle(&ask.claims, |asking, claim| {
                        asking.ack(shard, group.clone(), claim)
                    })
                    .await
                    .map(Reply::GroupAck)
            }
            Ask::GroupNack(ask) => {
                let (shard, group, delay) = (ask.shard, ask.group.to_string(), ask.delay_ms);
                asking
                    .settle(&ask.claims, |asking, claim| {
                        asking.nack(shard, group.clone(), delay, claim)
                    })
                    .await
                    .map(Reply::GroupNack)
            }
            Ask::GroupSetAside(ask) => {
                let (shard, group) = (ask.shard, ask.group.to_string());
                asking
                    .settle(&ask.claims, |asking, claim| {
                        asking.dead_letter(shard, group.clone(), claim)
                    })
                    .await
                    .map(Reply::GroupSetAside)
            }
            Ask::GroupExtend(ask) => asking.extend(ask).await,
            Ask::GroupDeadLetters(ask) => {
                let offsets = asking.letters(ask.shard, ask.group.to_string()).await?;
                Asking::page(offsets, ask.after, ask.limit)
            }
            Ask::GroupRedrive(ask) => {
                let (shard, group) = (ask.shard, ask.group.to_string());
                let offsets = asking.chosen(shard, &group, ask.offsets.as_ref()).await?;
                let moved = asking.move_letters(offsets, |asking, offset| {
                    asking.redrive(shard, group.clone(), offset)
                });
                moved.await.map(Reply::GroupRedrive)
            }
            Ask::GroupDiscard(ask) => {
                let (shard, group) = (ask.shard, ask.group.to_string());
                let offsets = asking.chosen(shard, &group, ask.offsets.as_ref()).await?;
                let moved = asking.move_letters(offsets, |asking, offset| {
                    asking.discard(shard, group.clone(), offset)
                });
                moved.await.map(Reply::GroupDiscard)
            }
            Ask::GroupSeek(ask) => {
                let group = ask.group.to_string();
                asking.seek(ask.shard, group, ask.start, ask.if_new).await
            }
            Ask::GroupDescribe(ask) => asking.describe(ask.shard, ask.group.to_string()).await,
            Ask::GroupDelete(ask) => asking.delete(ask.shard, ask.group.to_string()).await,
            Ask::CacheGetMany(_)
            | Ask::CacheList(_)
            | Ask::CounterAdd(_)
            | Ask::StateList(_)
            | Ask::Commit(_)
            | Ask::GroupList(_)
            | Ask::MemberJoin(_)
            | Ask::MemberHeartbeat(_)
            | Ask::MemberLeave(_)
            | Ask::ScheduleAdd(_)
            | Ask::ScheduleCancel(_)
            | Ask::ScheduleList(_)
            | Ask::RawAppend(_)
            | Ask::RawFetch(_)
            | Ask::RawOffsets(_)
            | Ask::RawEpochEnd(_)
            | Ask::RawDeleteRecords(_)
            | Ask::RawProducerId(_)
            | Ask::RawDescribe(_)
            | Ask::KafkaJoin(_)
            | Ask::KafkaSync(_)
            | Ask::KafkaHeartbeat(_)
            | Ask::KafkaLeave(_)
            | Ask::KafkaCommit(_)
            | Ask::KafkaOffsets(_)
            | Ask::KafkaForget(_)
            | Ask::KafkaDescribe(_)
            | Ask::KafkaList(_)
            | Ask::KafkaDelete(_)
            | Ask::ConsumerHeartbeat(_)
            | Ask::ConsumerDescribe(_) => Err(CallFailed::Unsupported {
                feature: "requests",
            }),
        }
    }
}

/// A message of the published protocol about the object of a call, with these fields of its own.
macro_rules! about_cache {
    ($asking:ident, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        message::$name {
            tenant_id: $asking.tenant_id.clone(),
            namespace: $asking.namespace.clone(),
            cache: $asking.object.clone(),
            $($field $(: $value)?),*
        }
    };
}

macro_rules! about_stream {
    ($asking:ident, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        message::$name {
            tenant_id: $asking.tenant_id.clone(),
            namespace: $asking.namespace.clone(),
            stream: $asking.object.clone(),
            $($field $(: $value)?),*
        }
    };
}

/// Takes the answer out of its message if it is of this type and to this request.
macro_rules! answer {
    ($asking:ident, $answer:expr, $variant:ident) => {
        match $answer {
            Message::$variant(answer) if answer.request_id == $asking.request_id => Ok(answer),
            other => Err(unexpected(&other)),
        }
    };
}

use {about_stream, answer};

impl<'a> Asking<'a> {
    fn new(inner: &'a Arc<Inner>, names: &Names, how: How) -> Self {
        Self {
            inner,
            tenant_id: names.tenant().to_owned(),
            namespace: names.namespace().to_owned(),
            object: names.stream().to_owned(),
            how,
            request_id: inner.next_request(),
        }
    }

    async fn send(
        &self,
        request: impl Into<Message>,
        features: Features,
        name: &'static str,
    ) -> Result<Message, CallFailed> {
        let call = if self.how.repeat == Repeat::Always {
            Request::read(request)
        } else {
            Request::change(request)
        };
        let call = Request {
            slot: self.how.slot,
            patience: self.how.patience,
            ..call.needs(features, name)
        };
        Ok(self.inner.call(call).await?.answer)
    }

    async fn cache_get(&self, key: String) -> Asked {
        let request_id = Some(self.request_id);
        let get = about_cache!(self, CacheGet { key, request_id });
        let answer = self.send(get, Features::NONE, "cache_get").await?;
        let value = self.cache_value(answer)?;
        let version = value.version.unwrap_or(UNKNOWN_VERSION);
        let entry = value.value.map(|value| Entry {
            version,
            expires_at_ms: 0,
            value,
        });
        Ok(Reply::CacheGet(CacheGot { entry }))
    }

    fn cache_value(&self, answer: Message) -> Result<message::CacheValue, CallFailed> {
        if let Message::CacheValue(value) = answer {
            if value.request_id == Some(self.request_id) {
                return Ok(value);
            }
            return Err(unexpected(&Message::CacheValue(value)));
        }
        Err(unexpected(&answer))
    }

    async fn cache_put(&self, ask: &CachePut) -> Asked {
        let (key, value) = (ask.key.to_string(), ask.value.clone());
        let ttl_ms = ask.ttl_ms;
        let Some(condition) = ask.condition else {
            let request_id = Some(self.request_id);
            let put = about_cache!(
                self,
                CachePut {
                    key,
                    value,
                    request_id,
                    ttl_ms
                }
            );
            let answer = self.send(put, Features::NONE, "cache_put").await?;
            answer!(self, answer, CacheOk)?;
            let version = UNKNOWN_VERSION;
            return Ok(Reply::CachePut(CacheStored { version }));
        };
        let condition = match condition {
            Condition::Absent => message::CacheCondition::Absent,
            Condition::Version(version) => message::CacheCondition::Version(version),
        };
        let request_id = self.request_id;
        let put = about_cache!(
            self,
            CachePutIf {
                key,
                value,
                ttl_ms,
                condition,
                request_id
            }
        );
        let result = self.conditional(put).await?;
        let version = result.version.unwrap_or(UNKNOWN_VERSION);
        Ok(Reply::CachePut(CacheStored { version }))
    }

    async fn cache_delete(&self, ask: &CacheDelete) -> Asked {
        let key = ask.key.to_string();
        let removed = if let Some(version) = ask.version {
            let request_id = self.request_id;
            let delete = about_cache!(
                self,
                CacheDeleteIf {
                    key,
                    version,
                    request_id
                }
            );
            self.conditional(delete).await?;
            let value = bytes::Bytes::new();
            Some((version, value))
        } else {
            let request_id = Some(self.request_id);
            let delete = about_cache!(self, CacheDelete { key, request_id });
            let needs = Features::CACHE_DELETE;
            let answer = self.send(delete, needs, "cache_delete").await?;
            let value = self.cache_value(answer)?.value;
            value.map(|value| (UNKNOWN_VERSION, value))
        };
        let removed = removed.map(|(version, value)| Entry {
            version,
            expires_at_ms: 0,
            value,
        });
        Ok(Reply::CacheDelete(CacheDeleted { removed }))
    }

    async fn conditional(
        &self,
        request: impl Into<Message>,
    ) -> Result<message::CacheConditionResult, CallFailed> {
        let needs = Features::CACHE_CONDITIONAL;
        let answer = self.send(request, needs, "conditional writes").await?;
        let result = answer!(self, answer, CacheConditionResult)?;
        if result.applied {
            return Ok(result);
        }
        let refused = felix_wire::extension::Refused::version_mismatch("the key", result.version);
        Err(Refused::from(refused).into())
    }

    async fn counter_add(&self, key: String, delta: i64) -> Result<CounterValue, CallFailed> {
        let request_id = self.request_id;
        let add = about_cache!(
            self,
            CounterAdd {
                key,
                delta,
                request_id
            }
        );
        let answer = self.send(add, Features::COUNTERS, "counters").await?;
        let value = answer!(self, answer, CounterValue)?.value;
        let repeated = false;
        Ok(CounterValue { value, repeated })
    }

    async fn counter_get(&self, key: String) -> Asked {
        let request_id = self.request_id;
        let get = about_cache!(self, CounterGet { key, request_id });
        let answer = self.send(get, Features::COUNTERS, "counters").await?;
        let value = answer!(self, answer, CounterValue)?.value;
        let repeated = false;
        Ok(Reply::CounterGet(CounterValue { value, repeated }))
    }

    async fn state_get(&self, ask: &StateGet) -> Asked {
        let get = about_stream!(
            self,
            StateGet {
                entity_key: ask.entity.clone(),
                key: ask.key.to_string(),
                request_id: self.request_id,
                shard: ask.shard,
            }
        );
        let answer = self
            .send(get, Features::ATOMIC_COMMIT, "atomic_commit")
            .await?;
        let state = answer!(self, answer, StateValue)?;
        let version = state.version.unwrap_or(UNKNOWN_VERSION);
        let value = state.value.map(|value| Versioned { version, value });
        let as_of = state.as_of;
        Ok(Reply::StateGet(StateGot { as_of, value }))
    }

    async fn commit(&self, ask: &Commit) -> Asked {
        let changes = ask.changes.iter().map(|change| {
            let key = change.key.to_string();
            match change.value {
                Some(value) => Change::Put { key, value },
                None => Change::Delete { key },
            }
        });
        let commit = about_stream!(
            self,
            Commit {
                entity_key: ask.entity.clone(),
                event: ask.event.clone(),
                changes: changes.collect(),
                request_id: self.request_id,
                expected_offset: ask.expected_offset,
                shard: ask.shard,
            }
        );
        let needs = Features::ATOMIC_COMMIT;
        let answer = self.send(commit, needs, "atomic_commit").await?;
        if let Message::PublishRefused(refused) = &answer
            && let message::RefusedReason::OffsetMismatch { tail } = refused.reason
        {
            let refused = felix_wire::extension::Refused::offset_mismatch(tail);
            return Err(Refused::from(refused).into());
        }
        let offset = answer!(self, answer, CommitOk)?.offset;
        let repeated = false;
        Ok(Reply::Commit(Committed { offset, repeated }))
    }

    /// The same about the same object, under a number of its own.
    fn next(&self) -> Self {
        Self {
            inner: self.inner,
            tenant_id: self.tenant_id.clone(),
            namespace: self.namespace.clone(),
            object: self.object.clone(),
            how: self.how,
            request_id: self.inner.next_request(),
        }
    }
}
