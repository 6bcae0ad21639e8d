//! A record in a worker's hands.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::settle::{Op, Outstanding, Settle, Settler};
use super::{Claim, GroupRecord};
use crate::error::{CallFailed, SettleFailed};

/// A record to work on, and to settle: [`ack`](Self::ack), [`nack`](Self::nack) or [`set_aside`](Self::set_aside).
/// One that is dropped unsettled comes again when its claim lapses.
#[derive(Debug)]
pub struct Delivery {
    record: GroupRecord,
    settler: Arc<Settler>,
    outstanding: Outstanding,
    lapses: Instant,
}

/// The outcome of settling a record; await it, or drop it: the record is settled all the same, with others of its
/// shard in one request.
#[derive(Debug)]
pub struct Settled(oneshot::Receiver<Result<(), SettleFailed>>);

impl Delivery {
    pub(super) fn new(record: GroupRecord, settler: &Arc<Settler>, lapses: Instant) -> Self {
        Self {
            record,
            outstanding: Outstanding::new(settler),
            settler: Arc::clone(settler),
            lapses,
        }
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &GroupRecord {
        &self.record
    }

    /// Whether the claim has lapsed by this process's clock, so that another may have the record by now.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        Instant::now() >= self.lapses
    }

    /// Finishes the record.
    pub fn ack(self) -> Settled {
        self.settle(Settle::Ack)
    }

    /// Gives the record back, to be handed out again after a delay. At the attempt limit it is set aside instead.
    pub fn nack(self, delay: Duration) -> Settled {
        self.settle(Settle::Nack(delay))
    }

    /// Sets the record aside as one that cannot be processed.
    pub fn set_aside(self, reason: &str) -> Settled {
        self.settle(Settle::SetAside(reason.to_owned()))
    }

    /// Keeps the record this long from now.
    ///
    /// # Errors
    /// [`SettleFailed::Stale`] when the claim no longer stands: another may have the record.
    pub async fn extend(&mut self, visibility: Duration) -> Result<(), SettleFailed> {
        let asked = Instant::now();
        let outstanding = Outstanding::new(&self.settler);
        self.push(Settle::Extend(visibility), outstanding).await?;
        self.lapses = asked.checked_add(visibility).unwrap_or(self.lapses);
        Ok(())
    }

    fn settle(self, settle: Settle) -> Settled {
        let claim = self.claim();
        let Self {
            settler,
            outstanding,
            ..
        } = self;
        push(&settler, claim, settle, outstanding)
    }

    fn push(&self, settle: Settle, outstanding: Outstanding) -> Settled {
        push(&self.settler, self.claim(), settle, outstanding)
    }

    fn claim(&self) -> Claim {
        Claim {
            offset: self.record.offset,
            attempts: self.record.attempts,
        }
    }
}

fn push(settler: &Settler, claim: Claim, settle: Settle, outstanding: Outstanding) -> Settled {
    let (done, settled) = oneshot::channel();
    settler.push(Op {
        claim,
        settle,
        done,
        outstanding,
    });
    Settled(settled)
}

impl Deref for Delivery {
    type Target = GroupRecord;

    fn deref(&self) -> &GroupRecord {
        &self.record
    }
}

impl Future for Settled {
    type Output = Result<(), SettleFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|settled| {
            settled.unwrap_or_else(|_| {
                let why = "the consumer ended first".to_owned();
                let changes = true;
                Err(CallFailed::Unanswered { why, changes }.into())
            })
        })
    }
}
