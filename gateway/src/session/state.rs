//! What a message means in this scope for this person: whether it may be, what it costs, and what has to be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::effect::{Ask, Effect, Rights, Shape, allowed, fits, plain_key, tell, unsupported};
use super::fault::{Code, Fault};
use super::features::{Feature, Features};
use super::message::{Message, Named, Publish};
use super::once::Page;
use super::writes::{Write, Writes};
use crate::limits::{ASKS_WAITING_MAX, BEGINS_BURST, BEGINS_PER_SECOND, READS_WAITING_MAX};
use crate::scope::buckets::{Buckets, Over, People, Rate, Rates};
use crate::scope::{Resource, Scope};

mod beginning;

/// A browser that has joined.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) scope: Arc<Scope>,
    pub(crate) features: Features,
    pub(crate) principal: Arc<str>,
    pub(crate) rights: Rights,
    pub(crate) writes: Writes,
    /// Set when the page may repeat what it publishes.
    page: Option<Page>,
    buckets: Buckets,
    /// Made when an alias with a limit of its own is first written to.
    alias_buckets: BTreeMap<(Kind, usize), Buckets>,
    /// Subscriptions in slots, by the number they were given.
    slots: BTreeMap<(usize, String), u32>,
    /// What is left of the subscriptions, watches and renewals that may be begun.
    begins: Buckets,
    asks: usize,
    reads: usize,
    /// A newer sign-in is being judged.
    refreshing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Stream,
    Cache,
    Counter,
}

type Heard = Result<Option<Effect>, Effect>;

/// How often something may be begun at the brokers or the control plane that is not a write.
const BEGINS: Rates = Rates {
    writes: Some(Rate {
        per_second: BEGINS_PER_SECOND,
        burst: BEGINS_BURST,
    }),
    bytes: None,
};

impl Session {
    pub(crate) fn new(
        scope: Arc<Scope>,
        features: Features,
        principal: Arc<str>,
        rights: Rights,
        page: Option<Page>,
        now: Duration,
    ) -> Self {
        Self {
            page,
            buckets: Buckets::new(scope.limits.session, now),
            scope,
            features,
            principal,
            rights,
            writes: Writes::default(),
            alias_buckets: BTreeMap::new(),
            slots: BTreeMap::new(),
            begins: Buckets::new(BEGINS, now),
            asks: 0,
            reads: 0,
            refreshing: false,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        if self.features.has(Feature::Binary) {
            Shape::Binary
        } else if self.features.has(Feature::BinaryEvents) {
            Shape::BinaryEvents
        } else {
            Shape::Text
        }
    }

    /// Whether nothing more should be read from the socket for now.
    pub(crate) fn is_full(&self) -> bool {
        self.writes.is_full() || self.asks >= ASKS_WAITING_MAX
    }

    /// A question was answered.
    pub(crate) fn answered(&mut self, was_read: bool) {
        self.asks = self.asks.saturating_sub(1);
        if was_read {
            self.reads = self.reads.saturating_sub(1);
        }
    }

    /// A newer sign-in was judged.
    pub(crate) fn refreshed(&mut self) {
        self.refreshing = false;
    }

    /// Takes in a message. Writes go into the queue; all else is told.
    pub(crate) fn hear(
        &mut self,
        message: Result<Message, Fault>,
        now: Duration,
        people: &People,
    ) -> Vec<Effect> {
        let message = match message {
            Ok(message) => message,
            Err(fault) => return vec![Effect::Tell(fault)],
        };
        if let Message::SubscribeMany { wanted } = message {
            return self.subscribe_many(wanted, now);
        }
        match self.judge(message, now, people) {
            Ok(effect) => effect.into_iter().collect(),
            Err(refusal) => vec![refusal],
        }
    }

    fn judge(&mut self, message: Message, now: Duration, people: &People) -> Heard {
        match message {
            Message::Subscribe { wanted } => self.subscribe(wanted, now).map(Some),
            Message::SubscribeMany { .. } => Ok(None),
            Message::Publish(publish) => self.publish(publish, now, people),
            Message::CounterAdd {
                counter,
                key,
                delta,
                id,
            } => {
                let named = self.counter(&counter);
                let counter = named.map_err(|fault| tell(fault.id(Some(id))))?;
                plain_key(&key).map_err(|fault| tell(fault.id(Some(id))))?;
                let fault = Fault::new(Code::CounterFailed, "").id(Some(id));
                self.charge((Kind::Counter, counter), 0, fault, now, people)?;
                self.writes.push(Write::Add {
                    counter,
                    key,
                    delta,
                    id,
                });
                Ok(None)
            }
            Message::CachePut {
                cache: alias,
                key,
                payload,
            } => {
                let cache = self.cache_to_write(&alias, &key, payload.len());
                let cache = cache.map_err(|refusal| refusal.with(|fault| fault.cache(&alias)))?;
                let fault = Fault::new(Code::CacheFailed, "").cache(&alias);
                self.charge((Kind::Cache, cache), payload.len(), fault, now, people)?;
                self.writes.push(Write::Put {
                    cache,
                    key,
                    payload,
                });
                Ok(None)
            }
            Message::CacheDelete { cache: alias, key } => {
                let cache = self.cache_to_write(&alias, &key, 0);
                let cache = cache.map_err(|refusal| refusal.with(|fault| fault.cache(&alias)))?;
                let fault = Fault::new(Code::CacheFailed, "").cache(&alias);
                self.charge((Kind::Cache, cache), 0, fault, now, people)?;
                self.writes.push(Write::Delete { cache, key });
                Ok(None)
            }
            Message::CachePutIf {
                cache: alias,
                key,
                payload,
                condition,
                id,
            } => {
                self.needs(Feature::CacheVersions, "cache_put_if", Some(id))?;
                let marked = |fault: Fault| fault.cache(&alias).id(Some(id));
                let cache = self.cache_to_write(&alias, &key, payload.len());
                let cache = cache.map_err(|refusal| refusal.with(marked))?;
                let fault = marked(Fault::new(Code::CacheFailed, ""));
                self.charge((Kind::Cache, cache), payload.len(), fault, now, people)?;
                self.writes.push(Write::PutIf {
                    cache,
                    key,
                    payload,
                    condition,
                    id,
                });
                Ok(None)
            }
            Message::CacheDeleteIf {
                cache: alias,
                key,
                version,
                id,
            } => {
                self.needs(Feature::CacheVersions, "cache_delete_if", Some(id))?;
                let marked = |fault: Fault| fault.cache(&alias).id(Some(id));
                let cache = self.cache_to_write(&alias, &key, 0);
                let cache = cache.map_err(|refusal| refusal.with(marked))?;
                let fault = marked(Fault::new(Code::CacheFailed, ""));
                self.charge((Kind::Cache, cache), 0, fault, now, people)?;
                self.writes.push(Write::DeleteIf {
                    cache,
                    key,
                    version,
                    id,
                });
                Ok(None)
            }
            Message::CacheGet {
                cache: alias,
                key,
                id,
            } => {
                let cache = self.cache(&alias, "read", |rights| &rights.read);
                let cache = cache.and_then(|cache| plain_key(&key).map(|()| cache));
                let cache = cache.map_err(|fault| tell(fault.cache(&alias).id(Some(id))))?;
                self.ask(Ask::CacheGet { cache, key, id })
            }
            Message::CacheWatch { cache: alias } => {
                let cache = self.cache(&alias, "watch", |rights| &rights.watch);
                let cache = cache.map_err(|fault| tell(fault.cache(&alias)))?;
                self.begin(now, Fault::new(Code::WatchFailed, "").cache(&alias))?;
                Ok(Some(Effect::Watch(cache)))
            }
            Message::StateGet {
                stream,
                key,
                entity,
                shard,
                id,
            } => {
                self.needs(Feature::State, "state_get", Some(id))?;
                let stream = self.readable(&stream, shard, id)?;
                let printable = key.bytes().all(|byte| byte.is_ascii_graphic());
                if !(1..=256).contains(&key.len()) || !printable {
                    let fault = Fault::bad_request("`key` must be 1 to 256 printable characters");
                    return Err(tell(fault.id(Some(id))));
                }
                if shard.is_some() && !entity.is_empty() {
                    let fault = Fault::bad_request("`entity` and `shard` exclude each other");
                    return Err(tell(fault.id(Some(id))));
                }
                self.ask(Ask::StateGet {
                    stream,
                    key,
                    entity,
                    shard,
                    id,
                })
            }
            Message::Read {
                stream,
                from,
                end,
                most,
                shard,
                id,
            } => {
                self.needs(Feature::Read, "read", Some(id))?;
                let stream = self.readable(&stream, shard, id)?;
                let shard = shard.unwrap_or(0);
                self.read(
                    Ask::Read {
                        stream,
                        from,
                        end,
                        most,
                        shard,
                        id,
                    },
                    id,
                )
            }
            Message::OffsetForTime {
                stream,
                at_us,
                shard,
                id,
            } => {
                self.needs(Feature::Time, "offset_for_time", Some(id))?;
                let stream = self.readable(&stream, shard, id)?;
                let shard = shard.unwrap_or(0);
                self.read(
                    Ask::OffsetForTime {
                        stream,
                        at_us,
                        shard,
                        id,
                    },
                    id,
                )
            }
            Message::Throttle { bits_per_second } => self.throttle(bits_per_second),
            Message::Refresh { token } => {
                self.needs(Feature::Refresh, "refresh", None)?;
                if self.refreshing {
                    let message = "a newer sign-in is being judged already";
                    return Err(tell(Fault::bad_request(message)));
                }
                self.begin(now, Fault::new(Code::Unavailable, ""))?;
                self.refreshing = true;
                Ok(Some(Effect::Refresh(token)))
            }
            Message::SignOut => {
                self.needs(Feature::Refresh, "sign_out", None)?;
                Ok(Some(Effect::SignOut))
            }
        }
    }

    fn publish(&mut self, publish: Publish, now: Duration, people: &People) -> Heard {
        let Publish {
            stream,
            payload,
            ack,
            id,
            seq,
        } = publish;
        let place = match &stream {
            Named::Alias(alias) => self.stream(alias, "publish", |rights| &rights.publish),
            Named::Number(_) if !self.features.has(Feature::Binary) => {
                Err(unsupported("a binary publish"))
            }
            Named::Number(number) => self.stream_numbered(*number),
        };
        let stream = place.map_err(|fault| tell(fault.id(Some(id))))?;
        let most = self
            .scope
            .streams
            .get(stream)
            .map_or(0, |one| one.payload_bytes_max);
        fits(payload.len(), most).map_err(|refusal| refusal.with(|fault| fault.id(Some(id))))?;
        let fault = Fault::new(Code::PublishFailed, "").id(Some(id));
        self.charge((Kind::Stream, stream), payload.len(), fault, now, people)?;
        self.writes.push(Write::Publish {
            stream,
            payload,
            ack,
            id,
            once: self.page.zip(seq).map(|(page, seq)| page.once(seq)),
        });
        Ok(None)
    }

    fn stream_numbered(&self, number: u32) -> Result<usize, Fault> {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(stream) = self.scope.streams.get(place) else {
            return Err(Fault::bad_request(format!("there is no stream {number}")));
        };
        self.stream(&stream.resource.alias, "publish", |rights| &rights.publish)
    }

    fn throttle(&self, bits_per_second: Option<f64>) -> Heard {
        if !self.scope.allow_throttle {
            return Err(tell(unsupported("`throttle`")));
        }
        match bits_per_second {
            Some(bits) if !bits.is_finite() || bits < 1.0 => Err(tell(Fault::bad_request(
                "`bits_per_second` must be at least 1, or null",
            ))),
            bits => Ok(Some(Effect::Throttle(bits))),
        }
    }

    fn ask(&mut self, ask: Ask) -> Heard {
        self.asks += 1;
        Ok(Some(Effect::Ask(ask)))
    }

    fn read(&mut self, ask: Ask, id: u64) -> Heard {
        if self.reads >= READS_WAITING_MAX {
            let message = format!("{READS_WAITING_MAX} reads wait already");
            return Err(tell(Fault::new(Code::ReadFailed, message).id(Some(id))));
        }
        self.reads += 1;
        self.ask(ask)
    }

    fn readable(&self, alias: &str, shard: Option<u32>, id: u64) -> Result<usize, Effect> {
        let stream = self.stream(alias, "subscribe", |rights| &rights.subscribe);
        let stream = stream.and_then(|stream| self.shard_named(shard).map(|()| stream));
        stream.map_err(|fault| tell(fault.stream(alias).id(Some(id))))
    }

    fn shard_named(&self, shard: Option<u32>) -> Result<(), Fault> {
        match shard {
            Some(_) if !self.features.has(Feature::Shards) => Err(unsupported("`shard`")),
            _ => Ok(()),
        }
    }

    fn needs(&self, feature: Feature, what: &str, id: Option<u64>) -> Result<(), Effect> {
        if self.features.has(feature) {
            return Ok(());
        }
        Err(tell(unsupported(what).id(id)))
    }

    fn cache_to_write(&self, alias: &str, key: &str, bytes: usize) -> Result<usize, Effect> {
        let cache = self
            .cache(alias, "write", |rights| &rights.write)
            .map_err(tell)?;
        plain_key(key).map_err(tell)?;
        let most = self
            .scope
            .caches
            .get(cache)
            .map_or(0, |one| one.payload_bytes_max);
        fits(bytes, most)?;
        Ok(cache)
    }

    fn stream(
        &self,
        alias: &str,
        action: &str,
        list: fn(&Rights) -> &Vec<bool>,
    ) -> Result<usize, Fault> {
        let place = self.scope.stream(alias);
        allowed(place, list(&self.rights), ("stream", alias, action))
    }

    fn cache(
        &self,
        alias: &str,
        action: &str,
        list: fn(&Rights) -> &Vec<bool>,
    ) -> Result<usize, Fault> {
        let place = self.scope.cache(alias);
        allowed(place, list(&self.rights), ("cache", alias, action))
    }

    fn counter(&self, alias: &str) -> Result<usize, Fault> {
        allowed(
            self.scope.counter(alias),
            &self.rights.add,
            ("counter", alias, "add"),
        )
    }

    /// Takes a write from every limit it counts against. `fault` is what it fails with, without words.
    fn charge(
        &mut self,
        (kind, place): (Kind, usize),
        bytes: usize,
        fault: Fault,
        now: Duration,
        people: &People,
    ) -> Result<(), Effect> {
        let rate = self
            .resource(kind, place)
            .map(|one| one.rate)
            .unwrap_or_default();
        let mut none = Buckets::default();
        let alias = match rate.writes {
            Some(_) => {
                let fresh = || Buckets::new(rate, now);
                self.alias_buckets
                    .entry((kind, place))
                    .or_insert_with(fresh)
            }
            None => &mut none,
        };
        let charged = people.charge(&self.principal, now, bytes, [&mut self.buckets, alias]);
        charged.map_err(|over| Effect::Limited(over.why, self.over(over, fault)))
    }

    fn over(&self, over: Over, mut fault: Fault) -> Fault {
        fault.message = format!(
            "too much at once; the next may come in {} ms",
            over.wait.as_millis()
        );
        if self.features.has(Feature::RateLimited) {
            fault.code = Code::RateLimited;
            fault = fault.retry_after(over.wait);
        }
        fault
    }

    fn resource(&self, kind: Kind, place: usize) -> Option<&Resource> {
        match kind {
            Kind::Stream => self.scope.streams.get(place).map(|one| &one.resource),
            Kind::Cache => self.scope.caches.get(place).map(|one| &one.resource),
            Kind::Counter => self.scope.counters.get(place).map(|one| &one.resource),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
