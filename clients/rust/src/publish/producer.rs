//! Publishing that may be repeated without doubling anything.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_wire::publish::Producer;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep};

use super::answer::{Answered, Outcome, Waiting};
use super::lane::{Accepted, Lane, Step};
use super::pipe::Pipe;
use super::prepared::{Prepared, Purpose, Stamp};
use super::publisher::Receipt;
use super::target::Target;
use super::{Ack, Published};
use crate::backoff::{self, Backoff};
use crate::client::Inner;
use crate::error::{ConnectFailed, PublishFailed};
use crate::limits::PRODUCER_WINDOW;
use crate::link::Link;
use crate::record::Record;

/// Publishes to one stream so that every batch is appended exactly once, in order, whatever happens to
/// connections and brokers: what was not acknowledged is sent again under the same sequence, and the broker knows
/// what it has. Up to 64 batches per shard are in flight.
///
/// The promise ends with the producer: a new one, in this process or another, is somebody else to the broker.
/// When the producer cannot go on (the broker forgot it, a batch was refused for good, no broker answered for as
/// long as the reconnect policy says), every batch not acknowledged fails, and so does everything after it to the
/// same shard.
#[derive(Clone)]
pub struct IdempotentProducer {
    shared: Arc<Shared>,
    shard: Option<u32>,
}

struct Shared {
    inner: Arc<Inner>,
    target: Arc<Target>,
    id: u64,
    slot: usize,
    lanes: Mutex<BTreeMap<u32, Arc<Shard>>>,
}

/// One shard's lane, and how it is driven.
struct Shard {
    window: Semaphore,
    state: Mutex<State>,
}

struct State {
    lane: Lane<Item>,
    /// Where batches flow. Only a round replaces it, so that order is kept.
    pipe: Option<Pipe>,
    /// Set while a round of resending runs.
    round: bool,
    /// What the round has to do before it goes on.
    due: Option<Due>,
    /// Since when nothing was acknowledged, and the waits so far.
    trouble: Option<(Instant, Backoff)>,
}

#[derive(Clone, Debug)]
struct Due {
    after: Duration,
    leader: Option<String>,
}

struct Item {
    prepared: Arc<Prepared>,
    told: oneshot::Sender<Result<Published, PublishFailed>>,
}

impl IdempotentProducer {
    pub(crate) fn new(inner: Arc<Inner>, target: Arc<Target>, id: u64, slot: usize) -> Self {
        let shared = Shared {
            inner,
            target,
            id,
            slot,
            lanes: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            shard: None,
        }
    }

    /// The id the brokers know this producer by.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Writes to this shard whatever the keys say.
    #[must_use]
    pub fn shard(mut self, shard: u32) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Publishes one record and waits until it is in the log.
    ///
    /// # Errors
    /// [`PublishFailed`]; after [`ProducerEnded`](PublishFailed::ProducerEnded) it may or may not have been
    /// appended, but not twice.
    pub async fn publish(&self, record: impl Into<Record>) -> Result<Published, PublishFailed> {
        self.send(record).await?.await
    }

    /// Publishes records of one key as one batch.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_batch<I>(&self, records: I) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.send_batch(records).await?.await
    }

    /// Publishes one record as soon as there is room for it. Cancelled before it returns, the record takes no part.
    ///
    /// # Errors
    /// When the record takes no part. What happens later is in the [`Receipt`].
    pub async fn send(&self, record: impl Into<Record>) -> Result<Receipt, PublishFailed> {
        self.send_records(vec![record.into()]).await
    }

    /// Publishes a batch as soon as there is room for it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_batch<I>(&self, records: I) -> Result<Receipt, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.send_records(records.into_iter().map(Into::into).collect())
            .await
    }

    async fn send_records(&self, records: Vec<Record>) -> Result<Receipt, PublishFailed> {
        let shared = &self.shared;
        let granted = shared.inner.brokers.pipe(shared.slot).await?.granted();
        let prepared = Prepared::new(
            records,
            self.shard,
            Purpose::Checked,
            &shared.target,
            granted,
        )?;
        let shard = match (prepared.shard(), prepared.key()) {
            (Some(shard), _) => shard,
            (None, None) => 0,
            (None, Some(key)) => shared.inner.shard_of(&shared.target, key).await?,
        };
        let shard = shared.shard(shard);
        shard.send(shared, Arc::new(prepared)).await
    }
}

impl fmt::Debug for IdempotentProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentProducer")
            .field("stream", &self.shared.target.stream)
            .field("id", &self.shared.id)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn shard(&self, shard: u32) -> Arc<Shard> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(Shard {
                window: Semaphore::new(PRODUCER_WINDOW as usize),
                state: Mutex::new(State {
                    lane: Lane::new(),
                    pipe: None,
                    round: false,
                    due: None,
                    trouble: None,
                }),
            })
        };
        Arc::clone(lanes.entry(shard).or_insert_with(new))
    }

    async fn pipe(&self, leader: Option<&str>) -> Result<Pipe, ConnectFailed> {
        let Some(address) = leader.and_then(|leader| leader.parse().ok()) else {
            return self.inner.brokers.pipe(self.slot).await;
        };
        let link: Arc<Link> = match self.inner.brokers.to(address, self.slot).await {
            Ok(link) => link,
            // The broker that was named cannot be reached; the entry broker may know better by now.
            Err(_) => return self.inner.brokers.pipe(self.slot).await,
        };
        match link.open_pipe() {
            Some(pipe) => Ok(pipe),
            None => self.inner.brokers.pipe(self.slot).await,
        }
    }
}

impl Shard {
    async fn send(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        prepared: Arc<Prepared>,
    ) -> Result<Receipt, PublishFailed> {
        // A closed window leaves the reason to the lane.
        let permit = self.window.acquire().await.ok();
        let pipe = self.lock().pipe.clone();
        let pipe = match pipe {
            Some(pipe) => pipe,
            None => shared.pipe(None).await?,
        };
        let reserved = pipe.reserve(prepared.bytes).await.ok();
        let (told, outcome) = oneshot::channel();
        let mut state = self.lock();
        let item = Item {
            prepared: Arc::clone(&prepared),
            told,
        };
        let accepted = state.lane.accept(item).map_err(|(_, failed)| failed)?;
        if let Some(permit) = permit {
            permit.forget();
        }
        if let Accepted::Send { sequence, epoch } = accepted {
            let current = state.pipe.get_or_insert_with(|| pipe.clone());
            let reserved = reserved.filter(|_| current.is(&pipe));
            let sent = reserved.is_some_and(|reserved| {
                let answered = self.answered_in(shared, epoch);
                pipe.submit(
                    reserved,
                    Waiting::Producer(answered, sequence),
                    |id, outbox| {
                        prepared.encode(&shared.target, shared.stamp(id, sequence), outbox);
                    },
                )
                .is_ok()
            });
            if !sent {
                state.lane.recover();
                self.begin_round(
                    shared,
                    &mut state,
                    Due {
                        after: Duration::ZERO,
                        leader: None,
                    },
                );
            }
        }
        Ok(Receipt::of_producer(outcome))
    }

    fn answered_in(self: &Arc<Self>, shared: &Arc<Shared>, epoch: u32) -> Arc<dyn Answered> {
        Arc::new(Round {
            shared: Arc::clone(shared),
            shard: Arc::clone(self),
            epoch,
        })
    }

    fn begin_round(self: &Arc<Self>, shared: &Arc<Shared>, state: &mut State, due: Due) {
        state.due = Some(due);
        if !state.round {
            state.round = true;
            let (this, shared) = (Arc::clone(self), Arc::clone(shared));
            tokio::spawn(async move { this.run_round(&shared).await });
        }
    }

    /// Sends again what is not acknowledged, until batches flow or nothing helps.
    async fn run_round(self: Arc<Self>, shared: &Arc<Shared>) {
        loop {
            let due = self.lock().due.take();
            if let Some(due) = due
                && let Err(why) = self.prepare_round(shared, due).await
            {
                return self.give_up(&why);
            }
            let (pipe, sequence, epoch, prepared) = {
                let mut state = self.lock();
                if state.due.is_some() {
                    continue;
                }
                let State {
                    lane, pipe, round, ..
                } = &mut *state;
                match (lane.resend(), pipe) {
                    (Some((sequence, epoch, item)), Some(pipe)) => {
                        (pipe.clone(), sequence, epoch, Arc::clone(&item.prepared))
                    }
                    (None, _) | (_, None) => {
                        *round = false;
                        return;
                    }
                }
            };
            let Ok(reserved) = pipe.reserve(prepared.bytes).await else {
                self.lock().again();
                continue;
            };
            let mut state = self.lock();
            if state.due.is_some() || state.lane.epoch() != epoch {
                continue;
            }
            let answered = self.answered_in(shared, epoch);
            let sent = pipe.submit(
                reserved,
                Waiting::Producer(answered, sequence),
                |id, outbox| {
                    prepared.encode(&shared.target, shared.stamp(id, sequence), outbox);
                },
            );
            match sent {
                Ok(()) => state.lane.resent(sequence),
                Err(_) => state.again(),
            }
        }
    }

    /// Waits as long as is due and finds the stream to go on with.
    async fn prepare_round(&self, shared: &Arc<Shared>, due: Due) -> Result<(), String> {
        let wait = {
            let mut state = self.lock();
            match &mut state.trouble {
                None => {
                    let policy = shared.inner.brokers.config.reconnect;
                    state.trouble = Some((Instant::now(), Backoff::new(policy)));
                    due.after
                }
                Some((since, backoff)) => {
                    let wait = backoff.next(since.elapsed(), due.after, backoff::random());
                    wait.ok_or("nothing was acknowledged for too long")?
                }
            }
        };
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let pipe = shared
            .pipe(due.leader.as_deref())
            .await
            .map_err(|failed| failed.to_string())?;
        self.lock().pipe = Some(pipe);
        Ok(())
    }

    fn give_up(&self, why: &str) {
        let items = {
            let mut state = self.lock();
            state.round = false;
            state.lane.give_up(why)
        };
        self.window.close();
        for item in items {
            let why = why.to_owned();
            let _ = item.told.send(Err(PublishFailed::ProducerEnded { why }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn again(&mut self) {
        self.lane.recover();
        self.due = Some(Due {
            after: Duration::ZERO,
            leader: None,
        });
    }
}

impl Shared {
    fn stamp(&self, request_id: u64, sequence: u64) -> Stamp {
        Stamp {
            request: Some((request_id, Ack::Batch)),
            producer: Some(Producer {
                id: self.id,
                sequence,
            }),
        }
    }
}

/// Answers to what was sent in one epoch.
struct Round {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    epoch: u32,
}

impl Answered for Round {
    fn answered(&self, sequence: u64, outcome: Outcome) {
        let mut state = self.shard.lock();
        let why = match outcome {
            Ok(offset) => {
                state.trouble = None;
                if let Some(item) = state.lane.acknowledged(sequence) {
                    self.shard.window.add_permits(1);
                    drop(state);
                    let _ = item.told.send(Ok(Published { offset }));
                }
                return;
            }
            Err(why) => why,
        };
        match state.lane.failed(self.epoch, sequence, why) {
            Step::Ignore => {}
            Step::Recover { after, leader } => {
                self.shard
                    .begin_round(&self.shared, &mut state, Due { after, leader });
            }
            Step::End {
                refused,
                first,
                others,
                why,
            } => {
                drop(state);
                self.shard.window.close();
                if let Some(item) = first {
                    let _ = item.told.send(Err(refused));
                }
                for item in others {
                    let why = why.clone();
                    let _ = item.told.send(Err(PublishFailed::ProducerEnded { why }));
                }
            }
        }
    }
}
