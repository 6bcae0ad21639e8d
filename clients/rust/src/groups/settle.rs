//! Settling in batches: whatever has gathered while the last request was under way goes in the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_wire::Code;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{Claim, Group, Unsettled};
use crate::error::{CallFailed, SettleFailed};

/// Claims settled in one request.
const CLAIMS_PER_REQUEST: usize = 1_000;

/// What to do with a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Settle {
    Ack,
    Nack(Duration),
    SetAside(String),
    Extend(Duration),
}

/// One delivery to settle, and whom to tell.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) claim: Claim,
    pub(super) settle: Settle,
    pub(super) done: oneshot::Sender<Result<(), SettleFailed>>,
    /// Counts until the broker has answered.
    pub(super) outstanding: Outstanding,
}

/// What is to be settled on one shard, and how much there is out.
#[derive(Debug, Default)]
pub(super) struct Settler {
    state: Mutex<State>,
    work: Notify,
    /// Nothing is out, or nothing is unanswered, any more.
    quieter: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Op>,
    outstanding: usize,
    /// Operations that wait or are under way.
    unanswered: usize,
    /// When the last claim lapses, as far as it was prolonged. `None` before there was one.
    lapses: Option<Instant>,
    /// Nobody settles any more.
    closed: bool,
}

/// Closes a settler when it goes, however its lane ends.
#[derive(Debug)]
pub(super) struct Closing<'a>(pub(super) &'a Settler);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for op in waiting {
            op.refuse();
        }
    }
}

impl Op {
    /// Answers that the claim is not this consumer's any more.
    fn refuse(self) {
        let Claim { offset, attempts } = self.claim;
        let code = Code::StaleClaim.name().to_owned();
        let _ = self.done.send(Err(SettleFailed::Stale {
            offset,
            attempts,
            code,
        }));
    }
}

/// Counts a record that is out or being settled.
#[derive(Debug)]
pub(super) struct Outstanding(Arc<Settler>);

impl Outstanding {
    pub(super) fn new(settler: &Arc<Settler>) -> Self {
        settler.lock().outstanding += 1;
        Self(Arc::clone(settler))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.outstanding = state.outstanding.saturating_sub(1);
        let idle = state.outstanding == 0;
        drop(state);
        if idle {
            self.0.quieter.notify_one();
        }
    }
}

impl Settler {
    /// Settles this with what else gathers. Answered at once when the consumer has given up its claims.
    pub(super) fn push(&self, op: Op) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            op.refuse();
            return;
        }
        state.waiting.push(op);
        state.unanswered += 1;
        drop(state);
        self.work.notify_one();
    }

    /// There is a claim that lasts until then.
    pub(super) fn lasts_until(&self, lapses: Instant) {
        let mut state = self.lock();
        state.lapses = state.lapses.max(Some(lapses));
    }

    /// Waits until nothing is out, or everything that is out has lapsed and what was asked before is answered.
    /// Nothing is settled after that. Cancel-safe.
    pub(super) async fn finish(&self) {
        while let Some(lapses) = self.close_if_finished() {
            let quieter = self.quieter.notified();
            match lapses {
                Some(lapses) => drop(timeout_at(lapses, quieter).await),
                None => quieter.await,
            }
        }
    }

    /// `None` when it is closed, else when to look again: at this time, or when it is quieter.
    fn close_if_finished(&self) -> Option<Option<Instant>> {
        let mut state = self.lock();
        let lapses = state.lapses.filter(|lapses| *lapses > Instant::now());
        let lapsed = lapses.is_none() && state.unanswered == 0;
        state.closed |= state.outstanding == 0 || lapsed;
        (!state.closed).then_some(lapses)
    }

    /// Settles what comes, until it is dropped.
    pub(super) async fn run(&self, group: &Group, shard: u32, consumer: &str) {
        loop {
            self.work.notified().await;
            loop {
                let waiting = std::mem::take(&mut self.lock().waiting);
                if waiting.is_empty() {
                    break;
                }
                for (settle, ops) in by_kind(waiting) {
                    for ops in chunks(ops) {
                        let count = ops.len();
                        self.settle_all(group, shard, consumer, &settle, ops).await;
                        self.answered(count);
                    }
                }
            }
        }
    }

    async fn settle_all(
        &self,
        group: &Group,
        shard: u32,
        consumer: &str,
        settle: &Settle,
        ops: Vec<Op>,
    ) {
        let claims: Vec<Claim> = ops.iter().map(|op| op.claim).collect();
        let consumer = Some(consumer);
        let outcome = match settle {
            Settle::Ack => group.ack(shard, &claims, consumer).await,
            Settle::Nack(delay) => group.nack(shard, &claims, *delay, consumer).await,
            Settle::SetAside(reason) => group.set_aside(shard, &claims, reason, consumer).await,
            Settle::Extend(by) => {
                let asked = Instant::now();
                let extended = group.extend(shard, &claims, *by, consumer).await;
                extended.map(|(_, unsettled)| {
                    let until = asked.checked_add(*by);
                    if let Some(until) = until.filter(|_| unsettled.len() < claims.len()) {
                        self.lasts_until(until);
                    }
                    unsettled
                })
            }
        };
        tell(ops, outcome);
    }

    fn answered(&self, count: usize) {
        let mut state = self.lock();
        state.unanswered = state.unanswered.saturating_sub(count);
        let quieter = state.unanswered == 0;
        drop(state);
        if quieter {
            self.quieter.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations that one kind of request carries, in the order in which their kinds came.
fn by_kind(ops: Vec<Op>) -> Vec<(Settle, Vec<Op>)> {
    let mut kinds: Vec<(Settle, Vec<Op>)> = Vec::new();
    for op in ops {
        match kinds.iter_mut().find(|(settle, _)| *settle == op.settle) {
            Some((_, same)) => same.push(op),
            None => kinds.push((op.settle.clone(), vec![op])),
        }
    }
    kinds
}

fn chunks(mut ops: Vec<Op>) -> Vec<Vec<Op>> {
    let mut chunks = Vec::new();
    while ops.len() > CLAIMS_PER_REQUEST {
        let rest = ops.split_off(CLAIMS_PER_REQUEST);
        chunks.push(std::mem::replace(&mut ops, rest));
    }
    chunks.push(ops);
    chunks
}

fn tell(ops: Vec<Op>, outcome: Result<Vec<Unsettled>, CallFailed>) {
    let unsettled = match outcome {
        Ok(unsettled) => unsettled,
        Err(failed) => {
            tracing::warn!(%failed, records = ops.len(), "records were not settled");
            for op in ops {
                let _ = op.done.send(Err(failed.clone().into()));
            }
            return;
        }
    };
    let mut stale: HashMap<u64, String> = unsettled
        .into_iter()
        .map(|unsettled| (unsettled.claim.offset, unsettled.code))
        .collect();
    for op in ops {
        let Claim { offset, attempts } = op.claim;
        let settled = match stale.remove(&offset) {
            None => Ok(()),
            Some(code) => Err(SettleFailed::Stale {
                offset,
                attempts,
                code,
            }),
        };
        // Whoever does not wait for the outcome does not want it.
        let _ = op.done.send(settled);
        drop(op.outstanding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(
        settler: &Arc<Settler>,
        offset: u64,
        settle: Settle,
    ) -> (Op, oneshot::Receiver<Result<(), SettleFailed>>) {
        let (done, told) = oneshot::channel();
        let claim = Claim {
            offset,
            attempts: 1,
        };
        let outstanding = Outstanding::new(settler);
        let op = Op {
            claim,
            settle,
            done,
            outstanding,
        };
        (op, told)
    }

    #[test]
    fn what_is_alike_goes_in_one_request() {
        let settler = Arc::new(Settler::default());
        let nack = Settle::Nack(Duration::from_secs(1));
        let kinds = [Settle::Ack, nack.clone(), Settle::Ack];
        let ops = kinds.into_iter().enumerate();
        let ops = ops.map(|(offset, settle)| op(&settler, offset as u64, settle).0);
        let kinds: Vec<_> = by_kind(ops.collect())
            .into_iter()
            .map(|(settle, ops)| (settle, ops.iter().map(|op| op.claim.offset).collect()))
            .collect();
        assert_eq!(kinds, [(Settle::Ack, vec![0, 2]), (nack, vec![1])]);
    }

    #[test]
    fn a_claim_that_does_not_stand_fails_alone() {
        let settler = Arc::new(Settler::default());
        let (first, mut told_first) = op(&settler, 1, Settle::Ack);
        let (second, mut told_second) = op(&settler, 2, Settle::Ack);
        let unsettled = Unsettled {
            claim: second.claim,
            code: "stale_claim".to_owned(),
        };
        tell(vec![first, second], Ok(vec![unsettled]));
        assert_eq!(told_first.try_recv(), Ok(Ok(())));
        let failed = told_second.try_recv().unwrap().unwrap_err();
        assert_eq!(failed.code(), "stale_claim");
        assert_eq!(settler.lock().outstanding, 0);
    }

    #[test]
    fn what_is_settled_after_the_end_is_answered_at_once() {
        let settler = Arc::new(Settler::default());
        let closing = Closing(&settler);
        let (before, mut told_before) = op(&settler, 1, Settle::Ack);
        settler.push(before);
        drop(closing);
        let (after, mut told_after) = op(&settler, 2, Settle::Ack);
        settler.push(after);
        for told in [&mut told_before, &mut told_after] {
            let failed = told.try_recv().unwrap().unwrap_err();
            assert_eq!(failed.code(), "stale_claim");
        }
        assert_eq!(Arc::strong_count(&settler), 1);
    }

    #[test]
    fn a_large_batch_goes_in_several_requests() {
        let settler = Arc::new(Settler::default());
        let ops = (0..2_500).map(|offset| op(&settler, offset, Settle::Ack).0);
        let sizes: Vec<usize> = chunks(ops.collect()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1_000, 1_000, 500]);
    }
}
