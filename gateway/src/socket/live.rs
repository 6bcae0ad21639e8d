//! What moves in a session: writes under way, questions, subscriptions, watches. `serve.rs` lets it move and talks to the
//! browser.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use felix_auth::Permissions;
use futures_util::Stream as _;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt as _};

use super::join::{Asks, Joined, Places};
use crate::app::App;
use crate::identity::{Granted, Refused, Secret, now};
use crate::session::answer::Answer;
use crate::session::fault::{Code, Fault};
use crate::session::features::Feature;
use crate::session::message::{Hidden, Message};
use crate::session::{Effect, Session, Subscribe};
use crate::upstream::calls::{Agreed, Answering, Beginning, Calls};
use crate::upstream::feed::Key;
use crate::upstream::reading::{Reading, Step};
use crate::upstream::watch::{self, Watching, watch};
use crate::upstream::watched;

/// Whether an answered question counts against a limit, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Refresh,
    Ask,
    Read,
}

type Asked = Pin<Box<dyn Future<Output = (Counted, String)> + Send>>;

/// A session and all that is under way for it.
pub(super) struct Live {
    pub(super) app: App,
    pub(super) session: Session,
    pub(super) granted: Arc<Granted>,
    asks: Asks,
    /// What the session's rights were read from.
    judged: Arc<Permissions>,
    calls: Calls,
    namespace: String,
    readings: Vec<Reading>,
    /// Those of them that were not answered yet, by number.
    unanswered: BTreeSet<u32>,
    /// The one whose turn it is, so that a busy stream does not hold up the others.
    turn: usize,
    watches: Vec<(usize, Watching)>,
    starting: Option<Beginning>,
    running: FuturesOrdered<Answering>,
    asked: FuturesUnordered<Asked>,
    pub(super) throttle: Option<f64>,
    pub(super) places: Places,
}

impl Live {
    pub(super) fn new(app: App, joined: Joined, asks: Asks) -> Self {
        let Joined {
            session,
            granted,
            client,
            namespace,
            value,
            places,
        } = joined;
        let agreed = Agreed {
            past_end: session.features.has(Feature::PastEnd),
            versions: session.features.has(Feature::CacheVersions),
        };
        let principal = Arc::clone(&session.principal);
        Self {
            calls: Calls::new(app.clone(), client, value, principal, agreed),
            judged: granted.rights(),
            app,
            session,
            granted,
            asks,
            places,
            namespace,
            readings: Vec::new(),
            unanswered: BTreeSet::new(),
            turn: 0,
            watches: Vec::new(),
            starting: None,
            running: FuturesOrdered::new(),
            asked: FuturesUnordered::new(),
            throttle: None,
        }
    }

    /// Takes in a message; what comes back is to be sent.
    pub(super) fn hear(&mut self, message: Result<Message, Fault>) -> Vec<String> {
        let metrics = &self.app.metrics;
        metrics.messages.increment(1);
        let now = self.app.uptime();
        let effects = self.session.hear(message, now, &self.app.people);
        effects
            .into_iter()
            .filter_map(|effect| self.apply(effect))
            .collect()
    }

    fn apply(&mut self, effect: Effect) -> Option<String> {
        let metrics = &self.app.metrics;
        match effect {
            Effect::Tell(fault) => {
                metrics.messages_bad.increment(1);
                return Some(fault.to_text());
            }
            Effect::Limited(why, fault) => {
                metrics.limited(why);
                metrics.writes_limited.increment(1);
                return Some(fault.to_text());
            }
            Effect::Subscribe(subscribe) => return self.subscribe(subscribe),
            Effect::Ask(ask) => {
                let asked = self.calls.ask(ask);
                self.asked.push(Box::pin(async move {
                    let (was_read, text) = asked.await;
                    (
                        if was_read {
                            Counted::Read
                        } else {
                            Counted::Ask
                        },
                        text,
                    )
                }));
            }
            Effect::Watch(place) => return self.watch(place),
            Effect::Throttle(bits) => self.throttle = bits,
            Effect::Refresh(token) => self.refresh(token),
            Effect::SignOut => self.granted.sign_out(),
        }
        None
    }

    /// Begins a subscription. One that it replaces is answered first, if it was not yet: each is answered once.
    fn subscribe(&mut self, subscribe: Subscribe) -> Option<String> {
        let sub = subscribe.sub;
        let replaced = self
            .readings
            .extract_if(.., |reading| reading.subscribe.sub == sub)
            .last();
        let answer = match self.unanswered.insert(sub) {
            true => None,
            false => replaced.map(|reading| {
                let message = "a newer subscription took its place";
                let fault = Fault::new(Code::SubscribeFailed, message);
                self.about(fault, &reading.subscribe).to_text()
            }),
        };
        let key = Key {
            namespace: self.namespace.clone(),
            stream: subscribe.stream,
            name: self.calls.stream_name(subscribe.stream),
            shard: subscribe.shard.unwrap_or(0),
        };
        let client = self.calls.client().clone();
        let feeds = Arc::clone(&self.app.feeds);
        self.readings
            .push(Reading::new(subscribe, key, client, feeds));
        answer
    }

    /// A fault of a subscription.
    pub(super) fn about(&self, fault: Fault, subscribe: &Subscribe) -> Fault {
        fault
            .stream(self.stream_alias(subscribe.stream))
            .subscription(subscribe.slot.as_deref(), subscribe.shard)
    }

    fn watch(&mut self, place: usize) -> Option<String> {
        let alias = self.cache_alias(place);
        self.watches.retain(|(other, _)| *other != place);
        match self.calls.cache(place) {
            Ok(cache) => {
                let key = watched::Key {
                    namespace: self.namespace.clone(),
                    cache: place,
                    name: self.calls.cache_name(place),
                };
                let wanted = watch::Wanted { key, alias, cache };
                let watches = Arc::clone(&self.app.watches);
                self.watches.push((place, watch(wanted, watches)));
                None
            }
            Err(failed) => {
                let fault = Fault::new(Code::WatchFailed, failed.to_string());
                Some(fault.cache(&alias).to_text())
            }
        }
    }

    fn refresh(&self, token: Hidden) {
        let (app, granted) = (self.app.clone(), Arc::clone(&self.granted));
        self.asked.push(Box::pin(async move {
            let renewed = granted
                .renew_with(&app.door.identity, Secret::new(token.0))
                .await;
            let text = match renewed {
                Ok(until) => {
                    let expires_in_ms = until.0.saturating_sub(now().0);
                    Answer::Refreshed { expires_in_ms }.to_text()
                }
                // Whoever cannot be judged now is not signed out, and may try again.
                Err(refused) => {
                    let code = match refused {
                        Refused::Unavailable(_) => Code::Unavailable,
                        Refused::SignedOut(_) | Refused::Forbidden(_) => Code::SignedOut,
                    };
                    Fault::new(code, refused.to_string()).to_text()
                }
            };
            (Counted::Refresh, text)
        }));
    }

    /// The next write that is answered; `None` inside when it is answered with nothing.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        loop {
            if self.starting.is_none()
                && let Some(write) = self.session.writes.next()
            {
                self.app.metrics.writes.increment(1);
                self.starting = Some(self.calls.begin(write));
            }
            if let Some(starting) = &mut self.starting
                && let Poll::Ready(answering) = starting.as_mut().poll(cx)
            {
                self.starting = None;
                self.running.push_back(answering);
                continue;
            }
            // An empty list is always ready with nothing.
            if self.running.is_empty() {
                return Poll::Pending;
            }
            let answer = ready!(Pin::new(&mut self.running).poll_next(cx));
            self.session.writes.answered();
            return Poll::Ready(answer.flatten());
        }
    }

    /// The next question that is answered.
    pub(super) fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        if self.asked.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.asked.poll_next_unpin(cx)) {
            Some((counted, text)) => {
                match counted {
                    Counted::Refresh => self.session.refreshed(),
                    Counted::Ask | Counted::Read => {
                        self.session.answered(counted == Counted::Read);
                    }
                }
                Poll::Ready(text)
            }
            None => Poll::Pending,
        }
    }

    /// What comes of the next subscription that has something.
    pub(super) fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<(Subscribe, Step)> {
        let count = self.readings.len();
        for offset in 0..count {
            let place = (self.turn + offset) % count;
            let Some(reading) = self.readings.get_mut(place) else {
                continue;
            };
            if let Poll::Ready(step) = reading.poll_step(cx, &self.app.metrics) {
                let subscribe = reading.subscribe.clone();
                self.unanswered.remove(&subscribe.sub);
                self.turn = place + 1;
                if reading.is_over() {
                    self.readings.swap_remove(place);
                }
                return Poll::Ready((subscribe, step));
            }
        }
        Poll::Pending
    }

    /// The next message of a watch.
    pub(super) fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Utf8Bytes> {
        let mut place = 0;
        while let Some((_, watching)) = self.watches.get_mut(place) {
            match watching.as_mut().poll_next(cx) {
                Poll::Ready(Some(text)) => return Poll::Ready(text),
                Poll::Ready(None) => drop(self.watches.swap_remove(place)),
                Poll::Pending => place += 1,
            }
        }
        Poll::Pending
    }

    /// Looks whether the person's rights have changed, and ends what they do not cover any more.
    pub(super) fn judge(&mut self) -> Vec<String> {
        let rights = self.granted.rights();
        if Arc::ptr_eq(&rights, &self.judged) {
            return Vec::new();
        }
        self.judged = rights;
        self.session.rights = self.asks.rights(&self.granted);
        let allowed = &self.session.rights;
        let mut texts = Vec::new();
        let scope = &self.app.scope;
        let may =
            |reading: &Reading| allowed.subscribe.get(reading.subscribe.stream) == Some(&true);
        let over: Vec<Reading> = self.readings.extract_if(.., |one| !may(one)).collect();
        for Reading { subscribe, .. } in over {
            let code = match self.unanswered.remove(&subscribe.sub) {
                true => Code::SubscribeFailed,
                false => Code::SubscriptionEnded,
            };
            let fault = Fault::new(code, "no longer allowed");
            texts.push(self.about(fault, &subscribe).to_text());
        }
        self.watches.retain(|(place, _)| {
            let may = allowed.watch.get(*place) == Some(&true);
            if !may {
                let alias = scope
                    .caches
                    .get(*place)
                    .map_or("", |one| &one.resource.alias);
                let fault = Fault::new(Code::WatchFailed, "no longer allowed");
                texts.push(fault.cache(alias).to_text());
            }
            may
        });
        texts
    }

    pub(super) fn stream_alias(&self, place: usize) -> &str {
        let stream = self.app.scope.streams.get(place);
        stream.map_or("", |one| &one.resource.alias)
    }

    fn cache_alias(&self, place: usize) -> String {
        let cache = self.app.scope.caches.get(place);
        cache.map_or_else(String::new, |one| one.resource.alias.clone())
    }

    /// Lets go of everything but the writes, and waits for those.
    pub(super) async fn finish(mut self, most: Duration) {
        self.readings.clear();
        self.watches.clear();
        self.asked.clear();
        let finished = async {
            while !self.session.writes.is_empty() {
                std::future::poll_fn(|cx| self.poll_write(cx)).await;
            }
        };
        if tokio::time::timeout(most, finished).await.is_err() {
            tracing::warn!("writes of a browser that left were not answered in time");
        }
    }
}
