//! One shard that a consumer polls.
//!
//! Every end of a poll — records, nothing, a refusal, a lost connection, no answer in time — leads to the next poll
//! while the shard is the consumer's. What goes wrong is told and tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::consumer::{ConsumerOptions, is_set};
use super::delivery::Delivery;
use super::settle::{Closing, Settler};
use crate::backoff::{self, Backoff, ReconnectPolicy};
use crate::error::{CallFailed, Retry};

/// What a lane hands to the consumer.
pub(super) type Handed = Result<Delivery, CallFailed>;

/// A shard as its consumer holds it.
#[derive(Debug)]
pub(super) struct Lane {
    options: Arc<ConsumerOptions>,
    shard: u32,
    out: mpsc::Sender<Handed>,
    /// Becomes true when the shard is to be given back.
    stop: watch::Receiver<bool>,
}

impl Lane {
    pub(super) fn new(
        options: Arc<ConsumerOptions>,
        shard: u32,
        out: mpsc::Sender<Handed>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            options,
            shard,
            out,
            stop,
        }
    }

    /// Polls until it is told to stop, and then waits until what it handed out is settled or has lapsed.
    /// The shard may be given back then.
    pub(super) async fn run(mut self) {
        let settler = Arc::new(Settler::default());
        let _closing = Closing(&settler);
        let options = Arc::clone(&self.options);
        let settling = settler.run(&options.group, self.shard, &options.name);
        let polling = async {
            self.poll_on(&settler).await;
            // A claim that has lapsed is not this consumer's any more, so there is nothing to wait for.
            settler.finish().await;
        };
        tokio::select! {
            () = settling => {}
            () = polling => {}
        }
    }

    /// Polls until it is told to stop.
    async fn poll_on(&mut self, settler: &Arc<Settler>) {
        let mut backoff = Backoff::new(forever(self.options.policy()));
        let mut reclaim = true;
        while !*self.stop.borrow() && !self.out.is_closed() {
            let polled = self
                .options
                .group
                .poll(self.shard, &self.options.poll(reclaim))
                .await;
            let records = match polled {
                Ok(records) => records,
                Err(failed) => {
                    self.report(failed, &mut backoff).await;
                    continue;
                }
            };
            backoff = Backoff::new(forever(self.options.policy()));
            reclaim = false;
            let lapses = Instant::now() + self.options.visibility;
            if !records.is_empty() {
                settler.lasts_until(lapses);
            }
            for record in records {
                let delivery = Delivery::new(record, settler, lapses);
                if self.out.send(Ok(delivery)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Tells what trying again at once will not help, and waits before the next poll.
    async fn report(&mut self, failed: CallFailed, backoff: &mut Backoff) {
        let at_least = match failed.retry() {
            Retry::RetryAfter(after) => after,
            Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown | Retry::Fatal => Duration::ZERO,
        };
        tracing::debug!(%failed, shard = self.shard, "a poll failed; polling again");
        if failed.retry() == Retry::Fatal {
            let told = self.out.send(Err(failed));
            tokio::select! {
                _ = told => {}
                () = is_set(&mut self.stop) => return,
            }
        }
        let wait = backoff.next(Duration::ZERO, at_least, backoff::random());
        tokio::select! {
            () = sleep(wait.unwrap_or_default()) => {}
            () = is_set(&mut self.stop) => {}
        }
    }
}

/// The waits of a policy, without its end.
fn forever(policy: ReconnectPolicy) -> ReconnectPolicy {
    policy.give_up_after(Duration::MAX)
}
