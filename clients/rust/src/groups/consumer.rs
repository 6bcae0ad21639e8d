//! A worker of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::delivery::Delivery;
use super::lane::{Handed, Lane};
use super::membership::Membership;
use super::{Group, PollOptions};
use crate::backoff::ReconnectPolicy;
use crate::error::{CallFailed, Retry};

/// A worker that is about to begin; await it. Made by [`Group::consumer`].
#[derive(Clone, Debug)]
#[must_use = "a consumer begins when this is awaited"]
pub struct ConsumerOptions {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) visibility: Duration,
    wait: Duration,
    session: Duration,
    max_records: u32,
    prefetch: usize,
}

impl ConsumerOptions {
    pub(super) fn new(group: Group, name: &str) -> Self {
        Self {
            group,
            name: name.to_owned(),
            visibility: Duration::from_secs(30),
            wait: Duration::from_secs(5),
            session: Duration::from_secs(10),
            max_records: 32,
            prefetch: 32,
        }
    }

    /// How long a record may be worked on before it is handed to another; 30 s unless said otherwise.
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// How long one poll waits for records; 5 s unless said otherwise. A shard is given back only between polls.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long this worker may be silent before its shards go to others; 10 s unless said otherwise.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = session;
        self
    }

    /// At most this many records of one poll; 32 unless said otherwise.
    pub fn max_records(mut self, max_records: u32) -> Self {
        self.max_records = max_records.max(1);
        self
    }

    /// How many records may wait for [`next`](Consumer::next) in this process; 32 unless said otherwise. They are
    /// claimed already, so few for slow work.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = prefetch.max(1);
        self
    }

    pub(super) fn poll(&self, reclaim: bool) -> PollOptions {
        PollOptions {
            max_records: self.max_records,
            wait: self.wait,
            visibility: self.visibility,
            consumer: Some(self.name.clone()),
            reclaim,
        }
    }

    pub(super) fn policy(&self) -> ReconnectPolicy {
        self.group.client.inner.brokers.config.reconnect
    }

    async fn begin(self) -> Result<Consumer, CallFailed> {
        let member = Membership::new(self.group.clone(), &self.name, self.session);
        let (out, handed) = mpsc::channel(self.prefetch);
        let (close, closing) = watch::channel(false);
        let mut desk = Desk {
            options: Arc::new(self),
            member,
            out,
            lanes: BTreeMap::new(),
            running: JoinSet::new(),
            renew_at: Instant::now(),
            holds_until: None,
        };
        // The first answer decides whether there is a consumer at all.
        desk.renew().await?;
        let task = tokio::spawn(desk.run(closing));
        Ok(Consumer {
            handed,
            close,
            task,
        })
    }
}

impl IntoFuture for ConsumerOptions {
    type Output = Result<Consumer, CallFailed>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin())
    }
}

/// A worker of a group: joined, polling its shards, settling in batches.
///
/// Shards come and go as others join and leave; a shard that goes is given back when what was handed out of it is
/// settled. Dropping it stops polling and leaves the group in the background; [`close`](Self::close) waits for that.
#[derive(Debug)]
pub struct Consumer {
    handed: mpsc::Receiver<Handed>,
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Consumer {
    /// The next record of any shard; `None` once the consumer is closed. Cancel-safe. A record whose claim lapsed
    /// while it waited here is passed over: it comes again.
    ///
    /// # Errors
    /// [`CallFailed`] when a shard cannot be polled, or the group not be joined. The consumer goes on trying, so this
    /// may be called again.
    pub async fn next(&mut self) -> Result<Option<Delivery>, CallFailed> {
        loop {
            match self.handed.recv().await.transpose()? {
                Some(delivery) if delivery.has_lapsed() => {}
                next => return Ok(next),
            }
        }
    }

    /// Stops polling, gives back what was not handed out, waits until what was is settled or lapses, and leaves the
    /// group.
    pub async fn close(mut self) {
        self.close.send_replace(true);
        // Lanes that wait for room to hand records out go on, and what they had is given back.
        while let Some(handed) = self.handed.recv().await {
            if let Ok(delivery) = handed {
                drop(delivery.nack(Duration::ZERO));
            }
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close.send_replace(true);
    }
}

/// Keeps the membership and the lanes in step.
#[derive(Debug)]
struct Desk {
    options: Arc<ConsumerOptions>,
    member: Membership,
    out: mpsc::Sender<Handed>,
    lanes: BTreeMap<u32, Held>,
    running: JoinSet<()>,
    renew_at: Instant,
    /// Until when the last answer holds.
    holds_until: Option<Instant>,
}

/// A shard that is held.
#[derive(Debug)]
struct Held {
    /// Tells its lane to stop.
    stop: watch::Sender<bool>,
    task: Id,
}

/// Waits until it is said, or nobody can say it any more. Cancel-safe.
pub(super) async fn is_set(said: &mut watch::Receiver<bool>) {
    let _ = said.wait_for(|said| *said).await;
}

impl Desk {
    async fn run(mut self, mut closing: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                () = is_set(&mut closing) => break,
                Some(ended) = self.running.join_next_with_id() => {
                    self.given_back(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = sleep_until(self.renew_at) => self.keep().await,
            }
        }
        self.stop_all();
        drop(self.out);
        while self.running.join_next().await.is_some() {}
        self.member.leave().await;
    }

    /// Renews the membership. When that is not answered while the last answer holds, the shards may be another's, so
    /// work on them stops.
    async fn keep(&mut self) {
        let renewed = match self.holds_until {
            Some(until) => timeout_at(until, self.renew()).await,
            None => Ok(self.renew().await),
        };
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(_) => {
                self.stop_all();
                self.renew().await
            }
        };
        if let Err(failed) = renewed {
            self.not_renewed(failed);
        }
    }

    fn stop_all(&self) {
        for held in self.lanes.values() {
            held.stop.send_replace(true);
        }
    }

    /// Tells what is held, and starts and stops lanes as the answer says.
    async fn renew(&mut self) -> Result<(), CallFailed> {
        let held: BTreeSet<u32> = self.lanes.keys().copied().collect();
        let asked = Instant::now();
        let assigned = self.member.renew(&held).await?;
        self.holds_until = assigned.holds.map(|holds| asked + holds);
        self.renew_at = Instant::now() + assigned.again;
        for (shard, held) in &self.lanes {
            if !assigned.shards.contains(shard) {
                held.stop.send_replace(true);
            }
        }
        for shard in assigned.shards {
            // One that is being given back starts again only after it was.
            self.lanes.entry(shard).or_insert_with(|| {
                let (stop, stopped) = watch::channel(false);
                let options = Arc::clone(&self.options);
                let lane = Lane::new(options, shard, self.out.clone(), stopped);
                let task = self.running.spawn(lane.run()).id();
                Held { stop, task }
            });
        }
        Ok(())
    }

    /// A lane ended, even by a panic. Telling the group so at once lets another begin.
    fn given_back(&mut self, task: Id) {
        self.lanes.retain(|_, held| held.task != task);
        self.renew_at = Instant::now();
    }

    fn not_renewed(&mut self, failed: CallFailed) {
        tracing::warn!(%failed, "the group could not be told that this consumer is alive");
        let now = Instant::now();
        let again = now + self.options.policy().longest;
        // What is held is given up on time.
        let holds_until = self.holds_until.filter(|until| *until > now);
        self.renew_at = holds_until.map_or(again, |until| until.min(again));
        if failed.retry() == Retry::Fatal {
            // Another may have its shards, so what it holds is finished and given back.
            self.stop_all();
            // If the consumer is busy it has records to work on, and hears of this the next time.
            let _ = self.out.try_send(Err(failed));
        }
    }
}
