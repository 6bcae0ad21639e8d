//! Publishing to one stream.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::answer::{Lost, NotPublished, Outcome, Waiting};
use super::pipe::Pipe;
use super::prepared::{Prepared, Purpose, Stamp};
use super::target::Target;
use super::{Ack, Published};
use crate::client::Inner;
use crate::error::{CallFailed, PublishFailed};
use crate::record::Record;

/// Publishes to one stream. Cheap to clone; everything published through one handle (and its clones) to one shard
/// is appended in the order of the calls, as long as the connection lasts.
///
/// [`publish`](Self::publish) waits for the answer. [`send`](Self::send) only waits for room, and gives back a
/// [`Receipt`] to be awaited later: that is how to have many publishes in flight.
///
/// A publish that was sent and whose connection was lost fails with an unknown outcome; it is never sent twice.
/// One that was not sent yet waits for the next connection. Who wants resending without doubles takes an
/// [`IdempotentProducer`](super::IdempotentProducer).
#[derive(Clone)]
pub struct Publisher {
    inner: Arc<Inner>,
    target: Arc<Target>,
    slot: usize,
    ack: Ack,
    shard: Option<u32>,
    /// The stream that was used last, so that the usual publish looks nothing up.
    pipe: Arc<Mutex<Option<Pipe>>>,
}

impl Publisher {
    pub(crate) fn new(inner: Arc<Inner>, target: Arc<Target>, slot: usize) -> Self {
        Self {
            inner,
            target,
            slot,
            ack: Ack::default(),
            shard: None,
            pipe: Arc::default(),
        }
    }

    /// When publishes count as done.
    #[must_use]
    pub fn ack(mut self, ack: Ack) -> Self {
        self.ack = ack;
        self
    }

    /// Writes to this shard whatever the keys say; they are kept.
    #[must_use]
    pub fn shard(mut self, shard: u32) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Publishes one record and waits until it counts as done.
    ///
    /// # Errors
    /// [`PublishFailed`] says whether it may have been appended.
    pub async fn publish(&self, record: impl Into<Record>) -> Result<Published, PublishFailed> {
        self.send(record).await?.await
    }

    /// Publishes records as one batch: contiguous offsets, one answer. They go to one shard, so they have one
    /// key, unless [`shard`](Self::shard) names it.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); all of it is appended or nothing.
    pub async fn publish_batch<I>(&self, records: I) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.send_batch(records).await?.await
    }

    /// Publishes one record as soon as there is room for it, in the order of the calls. Cancelled before it
    /// returns, nothing was sent.
    ///
    /// # Errors
    /// When nothing was sent. What happens later is in the [`Receipt`].
    pub async fn send(&self, record: impl Into<Record>) -> Result<Receipt, PublishFailed> {
        let record = record.into();
        if record.is_rich() || self.shard.is_some() {
            return self.send_records(vec![record]).await;
        }
        let prepared = Prepared::one(record.payload, record.key, &self.target)?;
        let pipe = self.pipe().await?;
        self.submit(pipe, prepared).await
    }

    /// Publishes a batch as soon as there is room for it. As [`send`](Self::send).
    ///
    /// # Errors
    /// When nothing was sent.
    pub async fn send_batch<I>(&self, records: I) -> Result<Receipt, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.send_records(records.into_iter().map(Into::into).collect())
            .await
    }

    async fn send_records(&self, records: Vec<Record>) -> Result<Receipt, PublishFailed> {
        let pipe = self.pipe().await?;
        let prepared = Prepared::new(
            records,
            self.shard,
            Purpose::Plain,
            &self.target,
            pipe.granted(),
        )?;
        self.submit(pipe, prepared).await
    }

    async fn submit(&self, mut pipe: Pipe, prepared: Prepared) -> Result<Receipt, PublishFailed> {
        loop {
            match self.submit_on(&pipe, &prepared).await {
                Ok(receipt) => return Ok(receipt),
                // Nothing was sent, so the next stream may have it.
                Err(lost) => {
                    tracing::debug!(why = %lost.why, "publishing on another stream");
                    pipe = self.pipe().await?;
                }
            }
        }
    }

    async fn submit_on(&self, pipe: &Pipe, prepared: &Prepared) -> Result<Receipt, Lost> {
        if self.ack == Ack::None {
            let reserved = pipe.reserve_unanswered(prepared.bytes).await?;
            let stamp = Stamp {
                request: None,
                producer: None,
            };
            pipe.submit_unanswered(reserved, |outbox| {
                prepared.encode(&self.target, stamp, outbox);
            })?;
            return Ok(Receipt(Awaiting::Nothing));
        }
        let reserved = pipe.reserve(prepared.bytes).await?;
        let (told, outcome) = oneshot::channel();
        pipe.submit(reserved, Waiting::Caller(told), |id, outbox| {
            let stamp = Stamp {
                request: Some((id, self.ack)),
                producer: None,
            };
            prepared.encode(&self.target, stamp, outbox);
        })?;
        Ok(Receipt(Awaiting::Answer(outcome)))
    }

    async fn pipe(&self) -> Result<Pipe, PublishFailed> {
        if let Some(pipe) = self.cached().as_ref().filter(|pipe| !pipe.is_lost()) {
            return Ok(pipe.clone());
        }
        let pipe = self.inner.brokers.pipe(self.slot).await?;
        *self.cached() = Some(pipe.clone());
        Ok(pipe)
    }

    fn cached(&self) -> MutexGuard<'_, Option<Pipe>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("stream", &self.target.stream)
            .field("ack", &self.ack)
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

/// The answer to a publish, to be awaited. Dropping it only means not to want to know.
#[derive(Debug)]
#[must_use = "a publish may fail after it was sent"]
pub struct Receipt(Awaiting);

#[derive(Debug)]
enum Awaiting {
    Nothing,
    Answer(oneshot::Receiver<Outcome>),
    Producer(oneshot::Receiver<Result<Published, PublishFailed>>),
}

impl Receipt {
    pub(crate) fn of_producer(told: oneshot::Receiver<Result<Published, PublishFailed>>) -> Self {
        Self(Awaiting::Producer(told))
    }
}

impl Future for Receipt {
    type Output = Result<Published, PublishFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            Awaiting::Nothing => return Poll::Ready(Ok(Published { offset: None })),
            Awaiting::Answer(answer) => ready!(Pin::new(answer).poll(cx)),
            Awaiting::Producer(told) => {
                let told = ready!(Pin::new(told).poll(cx));
                let gone = || Lost::because(true, "the client was dropped").into();
                return Poll::Ready(told.unwrap_or_else(|_| Err(gone())));
            }
        };
        let outcome = answer.unwrap_or_else(|_| {
            Err(NotPublished::Lost(Lost::because(
                true,
                "the client was dropped",
            )))
        });
        Poll::Ready(
            outcome
                .map(|offset| Published { offset })
                .map_err(Into::into),
        )
    }
}

impl From<NotPublished> for PublishFailed {
    fn from(why: NotPublished) -> Self {
        match why {
            NotPublished::Refused(failure) => CallFailed::Refused(failure.into()).into(),
            NotPublished::OutOfPlace(reason, message) => {
                let what = format!("{reason:?} answers an ordinary publish: {message}");
                CallFailed::Protocol { what }.into()
            }
            NotPublished::Lost(lost) => lost.into(),
        }
    }
}

impl From<Lost> for PublishFailed {
    fn from(lost: Lost) -> Self {
        let why = lost.why.to_string();
        if lost.sent {
            CallFailed::Unanswered { why, changes: true }.into()
        } else {
            CallFailed::NotSent { why }.into()
        }
    }
}
