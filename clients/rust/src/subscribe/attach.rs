//! How a subscription begins, and begins again.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use felix_wire::message::{self, Message};
use tokio::time::{Instant, sleep, timeout};

use super::subscription::Subscription;
use crate::address::Address;
use crate::backoff::{self, Backoff};
use crate::calls::{Answered, Call, unexpected};
use crate::client::Client;
use crate::error::{CallFailed, ReadFailed, Retry};
use crate::frames::Frames;
use crate::publish::Target;
use crate::router::Claim;
use crate::session::Wants;

/// A name that was known a moment ago may be unknown to a broker that has just started, but not for long.
const NOT_FOUND_PATIENCE: Duration = Duration::from_secs(5);

/// Where reading begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the first record appended from now on.
    #[default]
    Latest,
    /// With the oldest record retained.
    Earliest,
    /// With this offset.
    Offset(u64),
    /// With the first record appended at or after this time.
    Time(SystemTime),
}

/// A subscription to one shard that is about to begin; await it. Made by
/// [`Client::subscribe`](crate::Client::subscribe).
#[derive(Clone, Debug)]
#[must_use = "a subscription begins when this is awaited"]
pub struct Subscribe {
    client: Client,
    stream: String,
    shard: u32,
    start: Start,
    wants: Wants,
}

impl Subscribe {
    pub(crate) fn new(client: Client, stream: &str) -> Self {
        let stream = stream.to_owned();
        Self {
            client,
            stream,
            shard: 0,
            start: Start::Latest,
            wants: Wants::default(),
        }
    }

    /// Begins here instead of with the newest records.
    pub fn from(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Begins with the oldest record retained.
    pub fn from_earliest(self) -> Self {
        self.from(Start::Earliest)
    }

    /// Begins with this offset.
    pub fn from_offset(self, offset: u64) -> Self {
        self.from(Start::Offset(offset))
    }

    /// Begins with the first record appended at or after this time.
    pub fn from_time(self, time: SystemTime) -> Self {
        self.from(Start::Time(time))
    }

    /// Reads this shard instead of the first.
    pub fn shard(mut self, shard: u32) -> Self {
        self.shard = shard;
        self
    }

    /// Delivers whole records: key, headers and time. Needs a broker with the `records` extension.
    pub fn records(mut self) -> Self {
        self.wants.records = true;
        self
    }

    /// Delivers who published each event, where the broker knows it.
    pub fn publishers(mut self) -> Self {
        self.wants.publishers = true;
        self
    }

    /// Delivers when each event was appended.
    pub fn timestamps(mut self) -> Self {
        self.wants.timestamps = true;
        self
    }

    pub(super) fn with(mut self, wants: Wants) -> Self {
        self.wants = wants;
        self
    }

    async fn begin(self) -> Result<Subscription, ReadFailed> {
        let target = self.client.named(&self.stream)?;
        let slot = self.client.inner.next_slot();
        let wish = Wish {
            client: self.client,
            target: Arc::new(target),
            shard: self.shard,
            wants: self.wants,
            slot,
        };
        let attached = wish.attach_at(self.start).await?;
        Ok(Subscription::new(wish, attached))
    }
}

impl IntoFuture for Subscribe {
    type Output = Result<Subscription, ReadFailed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin())
    }
}

/// What is subscribed to.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) client: Client,
    pub(super) target: Arc<Target>,
    pub(super) shard: u32,
    wants: Wants,
    slot: usize,
}

/// A subscription that stands.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) frames: Frames,
    pub(super) broker: String,
    /// The first offset that will be delivered; `None` on in-memory streams.
    pub(super) start: Option<u64>,
    /// Where the log ended when the subscription was attached; `None` on in-memory streams.
    pub(super) live: Option<u64>,
}

impl Wish {
    async fn attach_at(&self, start: Start) -> Result<Attached, ReadFailed> {
        match start {
            Start::Latest => self.attach(message::Start::Latest, None).await,
            Start::Earliest => self.attach(message::Start::Earliest, None).await,
            Start::Offset(offset) => self.attach(message::Start::Offset(offset), None).await,
            Start::Time(time) => self.attach_at_time(time).await,
        }
    }

    /// When nothing is that recent yet, the subscription stands at the end before the question is asked again: a
    /// record appended in between is not missed.
    async fn attach_at_time(&self, time: SystemTime) -> Result<Attached, ReadFailed> {
        let stream = self.target.stream.as_str();
        let ask = || self.client.offset_for_time(stream, self.shard, time);
        if let Some(offset) = ask().await? {
            return self.attach(message::Start::Offset(offset), None).await;
        }
        let latest = self.attach(message::Start::Latest, None).await?;
        match (ask().await?, latest.start) {
            (Some(offset), Some(start)) if offset < start => {
                self.attach(message::Start::Offset(offset), None).await
            }
            _ => Ok(latest),
        }
    }

    pub(super) async fn attach(
        &self,
        start: message::Start,
        at: Option<Address>,
    ) -> Result<Attached, ReadFailed> {
        let inner = &self.client.inner;
        if self.wants.records && !inner.brokers.entry(self.slot).await?.granted.records() {
            return Err(CallFailed::Unsupported { feature: "records" }.into());
        }
        let (tenant_id, namespace, stream) = self.target.strings();
        let request = message::Subscribe {
            tenant_id,
            namespace,
            stream,
            subscription_id: None,
            start: Some(start),
            shard: (self.shard != 0).then_some(self.shard),
            queue_capacity: None,
            records: self.wants.records,
        };
        let call = Call {
            wants: self.wants,
            at,
            slot: self.slot,
            ..Call::read(request)
        };
        let Answered { link, answer } = inner.call(call).await?;
        if let Message::SubscribeCursorError(error) = answer {
            return Err(error.into());
        }
        let Message::Subscribed(subscribed) = answer else {
            return Err(unexpected(&answer).into());
        };
        let lost = |why: &str| CallFailed::Unanswered {
            why: why.to_owned(),
            changes: false,
        };
        let frames = match link.router.claim(subscribed.subscription_id) {
            Claim::Here(frames) => frames,
            Claim::Later(later) => timeout(inner.brokers.config.request_timeout, later)
                .await
                .map_err(|_| lost("the event stream did not come in time"))?
                .map_err(|_| lost("the connection was lost before the event stream came"))?,
        };
        let broker = link.broker.to_string();
        Ok(Attached {
            frames,
            broker,
            start: subscribed.start_offset,
            live: subscribed.live_offset.or(subscribed.start_offset),
        })
    }

    /// Attaches again, for as long as the reconnect policy says.
    pub(super) async fn attach_again(
        &self,
        start: message::Start,
        mut at: Option<Address>,
    ) -> Result<Attached, ReadFailed> {
        let started = Instant::now();
        let mut backoff = Backoff::new(self.client.inner.brokers.config.reconnect);
        loop {
            let failed = match self.attach(start, at.take()).await {
                Ok(attached) => return Ok(attached),
                Err(failed) => failed,
            };
            let at_least = match failed.retry() {
                Retry::RetryAfter(after) => after,
                Retry::Retry | Retry::Redirect => Duration::ZERO,
                Retry::OutcomeUnknown | Retry::Fatal => return Err(failed),
            };
            let impatient = failed.code() == "not_found" && started.elapsed() > NOT_FOUND_PATIENCE;
            let wait = backoff.next(started.elapsed(), at_least, backoff::random());
            let Some(wait) = wait.filter(|_| !impatient) else {
                return Err(failed);
            };
            sleep(wait).await;
        }
    }
}
