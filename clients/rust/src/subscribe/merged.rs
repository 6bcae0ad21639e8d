//! All shards of a stream at once.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinSet;

use super::attach::Start;
use super::event::{Batch, Event, Signal};
use super::subscription::Subscription;
use crate::client::Client;
use crate::error::{CallFailed, ReadFailed};
use crate::session::Wants;

/// Reading one shard failed; the others go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard}: {why}")]
#[non_exhaustive]
pub struct ShardFailed {
    /// The shard.
    pub shard: u32,
    /// What happened.
    #[source]
    pub why: ReadFailed,
}

/// A subscription to all shards that is about to begin; await it. Made by
/// [`Client::subscribe_all`](crate::Client::subscribe_all).
#[derive(Clone, Debug)]
#[must_use = "a subscription begins when this is awaited"]
pub struct SubscribeAll {
    client: Client,
    stream: String,
    start: Start,
    resume: BTreeMap<u32, u64>,
    wants: Wants,
}

impl SubscribeAll {
    pub(crate) fn new(client: Client, stream: &str) -> Self {
        Self {
            client,
            stream: stream.to_owned(),
            start: Start::Latest,
            resume: BTreeMap::new(),
            wants: Wants::default(),
        }
    }

    /// Begins here in every shard.
    pub fn from(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Begins with the oldest record of every shard.
    pub fn from_earliest(self) -> Self {
        self.from(Start::Earliest)
    }

    /// Goes on from these [positions](MergedSubscription::positions): the next offset of each shard (exclusive
    /// end of what was read). Shards that are not named begin where the others would.
    pub fn resume(mut self, positions: BTreeMap<u32, u64>) -> Self {
        self.resume = positions;
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

    async fn begin(self) -> Result<MergedSubscription, ReadFailed> {
        let width = self.client.stream_shards(&self.stream).await?;
        let mut beginning = JoinSet::new();
        for shard in 0..width.shards {
            let start = self
                .resume
                .get(&shard)
                .map_or(self.start, |next| Start::Offset(*next));
            let subscribe = self.client.subscribe(&self.stream);
            let subscribe = subscribe.with(self.wants).shard(shard).from(start);
            beginning.spawn(subscribe.into_future());
        }
        let mut shards = Vec::new();
        while let Some(begun) = beginning.join_next().await {
            let begun = begun.map_err(|error| CallFailed::Protocol {
                what: error.to_string(),
            })?;
            shards.push(begun?);
        }
        shards.sort_by_key(Subscription::shard);
        Ok(MergedSubscription { shards, turn: 0 })
    }
}

impl IntoFuture for SubscribeAll {
    type Output = Result<MergedSubscription, ReadFailed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin())
    }
}

/// The records of all shards of a stream: in order within a shard, in turns between shards.
#[derive(Debug)]
pub struct MergedSubscription {
    shards: Vec<Subscription>,
    /// Who is asked first, so that a busy shard does not starve the others.
    turn: usize,
}

impl MergedSubscription {
    /// The next event of any shard; `None` when all have ended. Cancel-safe.
    ///
    /// # Errors
    /// [`ShardFailed`], once for each shard; the others go on.
    pub async fn next(&mut self) -> Result<Option<Event>, ShardFailed> {
        poll_fn(|cx| self.poll_any(cx, Subscription::poll_next_event)).await
    }

    /// The next events of any shard. Cancel-safe.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_batch(&mut self) -> Result<Option<Batch>, ShardFailed> {
        loop {
            match self.next_signal().await? {
                Some((_, Signal::Batch(batch))) => return Ok(Some(batch)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next events of any shard, or what happened to it. Cancel-safe.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_signal(&mut self) -> Result<Option<(u32, Signal)>, ShardFailed> {
        poll_fn(|cx| {
            self.poll_any(cx, |shard, cx| {
                let number = shard.shard();
                let named = |signal: Option<Signal>| signal.map(|signal| (number, signal));
                shard.poll_signal(cx).map(|signal| signal.map(named))
            })
        })
        .await
    }

    /// The offset after the last event handed out, by shard: what [`SubscribeAll::resume`] takes.
    #[must_use]
    pub fn positions(&self) -> BTreeMap<u32, u64> {
        let position = |shard: &Subscription| Some((shard.shard(), shard.position()?));
        self.shards.iter().filter_map(position).collect()
    }

    /// How many events were missed so far, in all shards.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shards.iter().map(Subscription::lost).sum()
    }

    fn poll_any<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Subscription, &mut Context<'_>) -> Poll<Result<Option<T>, ReadFailed>>,
    ) -> Poll<Result<Option<T>, ShardFailed>> {
        let count = self.shards.len();
        let mut ended = 0;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let Some(shard) = self.shards.get_mut(index) else {
                continue;
            };
            match poll(shard, cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(None)) => ended += 1,
                Poll::Ready(Ok(found)) => {
                    self.turn = index + 1;
                    return Poll::Ready(Ok(found));
                }
                Poll::Ready(Err(why)) => {
                    let shard = shard.shard();
                    return Poll::Ready(Err(ShardFailed { shard, why }));
                }
            }
        }
        if ended == count {
            Poll::Ready(Ok(None))
        } else {
            Poll::Pending
        }
    }
}

impl futures_core::Stream for MergedSubscription {
    type Item = Result<Event, ShardFailed>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_any(cx, Subscription::poll_next_event)
            .map(Result::transpose)
    }
}
