//! What a browser's writes and questions come to at the brokers, and the messages they are answered with.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_client::{
    Cache, CacheFailed, CallFailed, Client, Condition, Counter, PublishFailed, Publisher,
    ReadFailed, Receipt,
};

use crate::app::App;
use crate::scope::Scope;
use crate::session::answer::Answer;
use crate::session::fault::{Code, Fault};
use crate::session::message;
use crate::session::once::Once;
use crate::session::writes::Write;

/// What a write is answered with, if with anything.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A write on its way: done when the next one of its kind may follow.
pub(crate) type Beginning = Pin<Box<dyn Future<Output = Answering> + Send>>;

/// One session's side towards the brokers.
pub(crate) struct Calls {
    app: App,
    pub(super) scope: Arc<Scope>,
    /// The scope's value.
    value: String,
    principal: Arc<str>,
    pub(super) client: Client,
    /// Whether `past_end` and `cache_versions` were agreed on.
    pub(super) past_end: bool,
    pub(super) versions: bool,
    publishers: BTreeMap<usize, Publisher>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls")
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// What was agreed on that changes answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) past_end: bool,
    pub(crate) versions: bool,
}

impl Calls {
    pub(crate) fn new(
        app: App,
        client: Client,
        value: String,
        principal: Arc<str>,
        agreed: Agreed,
    ) -> Self {
        Self {
            scope: Arc::clone(&app.scope),
            app,
            value,
            principal,
            client,
            past_end: agreed.past_end,
            versions: agreed.versions,
            publishers: BTreeMap::new(),
        }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// The name of a stream of the scope, at the broker.
    pub(crate) fn stream_name(&self, place: usize) -> String {
        let stream = self.scope.streams.get(place);
        stream.map_or_else(String::new, |one| one.resource.name_in(&self.value))
    }

    /// Begins a write. A publish has begun when it is on its way; anything else when it is done.
    pub(crate) fn begin(&mut self, write: Write) -> Beginning {
        match write {
            Write::Publish {
                stream,
                payload,
                ack,
                id,
                once: None,
            } => self.publish(stream, &payload, (ack, id)),
            Write::Publish {
                stream,
                payload,
                ack,
                id,
                once: Some(once),
            } => self.publish_once(stream, &payload, once, (ack, id)),
            Write::Add {
                counter,
                key,
                delta,
                id,
            } => self.add(counter, key, delta, id),
            Write::Put {
                cache,
                key,
                payload,
            } => self.write(cache, None, move |cache, ttl| {
                Box::pin(async move {
                    match ttl {
                        Some(ttl) => cache.put_with_ttl(&key, payload, ttl).await,
                        None => cache.put(&key, payload).await,
                    }
                    .map(|_| None)
                })
            }),
            Write::Delete { cache, key } => self.write(cache, None, move |cache, _| {
                Box::pin(async move { cache.delete(&key).await.map(|_| None) })
            }),
            Write::PutIf {
                cache,
                key,
                payload,
                condition,
                id,
            } => self.put_if(cache, key, payload, condition, id),
            Write::DeleteIf {
                cache,
                key,
                version,
                id,
            } => self.delete_if(cache, key, version, id),
        }
    }

    #[expect(
        clippy::async_yields_async,
        reason = "it begins in turn and is answered later"
    )]
    fn publish(&mut self, place: usize, payload: &Bytes, (ack, id): (bool, u64)) -> Beginning {
        let (publisher, payload, alias) = match self.publisher(place, payload) {
            Ok(prepared) => prepared,
            Err(failed) => return told(publish_fault(&failed, id)),
        };
        let app = self.app.clone();
        Box::pin(async move {
            let began = Instant::now();
            match publisher.send(payload).await {
                Ok(receipt) => Box::pin(acknowledged(app, alias, receipt, began, (ack, id))),
                Err(failed) => ready(Some(publish_fault(&failed, id).to_text())),
            }
        })
    }

    /// Publishes what may come again: as a commit that changes nothing, which the broker knows by its key. It goes to the
    /// shard that other publishes of browsers go to.
    #[expect(
        clippy::async_yields_async,
        reason = "it begins in turn and is answered later"
    )]
    fn publish_once(
        &self,
        place: usize,
        payload: &Bytes,
        once: Once,
        (ack, id): (bool, u64),
    ) -> Beginning {
        let (payload, alias) = self.dressed(place, payload);
        let name = self.stream_name(place);
        let commit = self.client.commit(&name, once.entity, payload);
        let commit = commit.on_shard(0).once(once.key);
        let app = self.app.clone();
        Box::pin(async move {
            let began = Instant::now();
            ready(match commit.await {
                Ok(committed) => {
                    app.metrics.publish_ack(&alias, began.elapsed());
                    let offset = Some(committed.offset);
                    ack.then(|| Answer::Ack { id, offset }.to_text())
                }
                Err(failed) => {
                    let fault = fault(Code::PublishFailed, &failed);
                    Some(fault.id(Some(id)).to_text())
                }
            })
        })
    }

    fn publisher(
        &mut self,
        place: usize,
        payload: &Bytes,
    ) -> Result<(Publisher, Bytes, String), PublishFailed> {
        let name = self.stream_name(place);
        let publisher = match self.publishers.get(&place) {
            Some(publisher) => publisher.clone(),
            None => {
                let publisher = self.client.publisher(&name)?;
                self.publishers.insert(place, publisher.clone());
                publisher
            }
        };
        let (payload, alias) = self.dressed(place, payload);
        Ok((publisher, payload, alias))
    }

    /// A payload as it is published, and what browsers call its stream.
    fn dressed(&self, place: usize, payload: &Bytes) -> (Bytes, String) {
        let stream = self.scope.streams.get(place);
        let stamped = stream.is_some_and(|stream| stream.stamp_sender);
        let payload = match stamped {
            true => stamp(&self.principal, payload),
            false => payload.clone(),
        };
        let alias = stream.map_or_else(String::new, |stream| stream.resource.alias.clone());
        (payload, alias)
    }

    #[expect(
        clippy::async_yields_async,
        reason = "it begins in turn and is answered later"
    )]
    fn add(&self, place: usize, key: String, delta: i64, id: u64) -> Beginning {
        let counter = match self.counter(place) {
            Ok(counter) => counter,
            Err(failed) => return told(fault(Code::CounterFailed, &failed).id(Some(id))),
        };
        Box::pin(async move {
            let text = match counter.add(&key, delta).await {
                Ok(value) => Answer::Counter { id, value }.to_text(),
                Err(failed) => fault(Code::CounterFailed, &failed).id(Some(id)).to_text(),
            };
            ready(Some(text))
        })
    }

    fn put_if(
        &self,
        place: usize,
        key: String,
        payload: Bytes,
        condition: message::Condition,
        id: u64,
    ) -> Beginning {
        let condition = match condition {
            message::Condition::Absent => Condition::Absent,
            message::Condition::Version(version) => Condition::Version(version),
        };
        self.write(place, Some(id), move |cache, ttl| {
            Box::pin(async move {
                let (applied, version) = match cache.put_if(&key, payload, condition, ttl).await {
                    Ok(version) => (true, version),
                    Err(CacheFailed::VersionMismatch { current_version }) => {
                        (false, current_version)
                    }
                    Err(failed) => return Err(failed),
                };
                Ok(Some(Answer::CachePutResult {
                    id,
                    applied,
                    version,
                }))
            })
        })
    }

    fn delete_if(&self, place: usize, key: String, version: u64, id: u64) -> Beginning {
        self.write(place, Some(id), move |cache, _| {
            Box::pin(async move {
                let (applied, version) = match cache.delete_if(&key, version).await {
                    Ok(()) => (true, None),
                    Err(CacheFailed::VersionMismatch { current_version }) => {
                        (false, current_version)
                    }
                    Err(failed) => return Err(failed),
                };
                Ok(Some(Answer::CacheDeleteResult {
                    id,
                    applied,
                    version,
                }))
            })
        })
    }

    #[expect(
        clippy::async_yields_async,
        reason = "it begins in turn and is answered later"
    )]
    fn write(
        &self,
        place: usize,
        id: Option<u64>,
        work: impl FnOnce(Cache, Option<Duration>) -> Writing + Send + 'static,
    ) -> Beginning {
        let cache = match self.cache(place) {
            Ok(cache) => cache,
            Err(failed) => return told(self.cache_fault(place, &failed, id)),
        };
        let ttl = self.scope.caches.get(place).and_then(|cache| cache.ttl);
        let failure = self.cache_fault(place, &"", id);
        Box::pin(async move {
            ready(match work(cache, ttl).await {
                Ok(answer) => answer.map(|answer| answer.to_text()),
                Err(failed) => Some(
                    Fault {
                        message: failed.to_string(),
                        ..failure
                    }
                    .to_text(),
                ),
            })
        })
    }

    pub(super) fn cache_fault(
        &self,
        place: usize,
        failed: &dyn std::fmt::Display,
        id: Option<u64>,
    ) -> Fault {
        let alias = self
            .scope
            .caches
            .get(place)
            .map(|cache| cache.resource.alias.as_str());
        fault(Code::CacheFailed, failed)
            .cache(alias.unwrap_or_default())
            .id(id)
    }

    /// A cache of the scope.
    ///
    /// # Errors
    /// When its name cannot be one.
    pub(crate) fn cache(&self, place: usize) -> Result<Cache, CallFailed> {
        self.client.cache(&self.cache_name(place))
    }

    /// The name of a cache of the scope, at the broker.
    pub(crate) fn cache_name(&self, place: usize) -> String {
        let cache = self.scope.caches.get(place);
        cache.map_or_else(String::new, |one| one.resource.name_in(&self.value))
    }

    fn counter(&self, place: usize) -> Result<Counter, CallFailed> {
        let counter = self.scope.counters.get(place);
        let name = counter.map_or_else(String::new, |one| one.resource.name_in(&self.value));
        self.client.counter(&name)
    }
}

type Writing = Pin<Box<dyn Future<Output = Result<Option<Answer>, CacheFailed>> + Send>>;

async fn acknowledged(
    app: App,
    alias: String,
    receipt: Receipt,
    began: Instant,
    (ack, id): (bool, u64),
) -> Option<String> {
    match receipt.await {
        Ok(published) => {
            app.metrics.publish_ack(&alias, began.elapsed());
            let offset = published.offset;
            ack.then(|| Answer::Ack { id, offset }.to_text())
        }
        Err(failed) => Some(publish_fault(&failed, id).to_text()),
    }
}

/// Puts the publisher in front of a payload: two bytes of length, big endian, and his name.
fn stamp(principal: &str, payload: &[u8]) -> Bytes {
    let mut stamped = BytesMut::with_capacity(2 + principal.len() + payload.len());
    stamped.put_u16(u16::try_from(principal.len()).unwrap_or(u16::MAX));
    stamped.put_slice(principal.as_bytes());
    stamped.put_slice(payload);
    stamped.freeze()
}

/// What a subscription or a page is refused with.
pub(crate) fn read_fault(failed: &ReadFailed, code: Code, past_end: bool) -> Fault {
    if let ReadFailed::TooOld { oldest, .. } = failed {
        let mut fault = fault(Code::Trimmed, failed);
        fault.oldest = Some(*oldest);
        return fault;
    }
    if past_end && let ReadFailed::InFuture { next, .. } = failed {
        let mut fault = fault(Code::PastEnd, failed);
        fault.tail = Some(*next);
        return fault;
    }
    fault(code, failed)
}

fn publish_fault(failed: &PublishFailed, id: u64) -> Fault {
    fault(Code::PublishFailed, failed).id(Some(id))
}

pub(super) fn fault(code: Code, failed: &dyn std::fmt::Display) -> Fault {
    Fault::new(code, failed.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the fault")]
fn told(fault: Fault) -> Beginning {
    let text = fault.to_text();
    Box::pin(std::future::ready(ready(Some(text))))
}

fn ready(text: Option<String>) -> Answering {
    Box::pin(std::future::ready(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_length_and_the_name_in_front() {
        assert_eq!(&stamp("ann", b"hi")[..], b"\x00\x03annhi");
    }

    #[test]
    fn a_deleted_offset_is_trimmed_and_one_to_come_is_past_the_end_where_that_was_agreed_on() {
        let old = ReadFailed::TooOld {
            requested: 1,
            oldest: 5,
        };
        let fault = read_fault(&old, Code::SubscribeFailed, false);
        assert_eq!((fault.code, fault.oldest), (Code::Trimmed, Some(5)));
        let future = ReadFailed::InFuture {
            requested: 9,
            next: 5,
        };
        let fault = read_fault(&future, Code::SubscribeFailed, true);
        assert_eq!((fault.code, fault.tail), (Code::PastEnd, Some(5)));
        assert_eq!(
            read_fault(&future, Code::SubscribeFailed, false).code,
            Code::SubscribeFailed
        );
    }
}
