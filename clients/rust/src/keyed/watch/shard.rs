//! One shard of a watch, followed for as long as somebody listens.

use std::time::Duration;

use felix_wire::error::Failure;
use felix_wire::frame::Incoming;
use felix_wire::message::{CacheEvent, CacheWatch, CacheWatchStarted, Message};
use felix_wire::negotiate::Features;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::super::cache::Cache;
use super::{Change, Watch, WatchFrom, What};
use crate::backoff::{self, Backoff};
use crate::calls::{Answered, Call, unexpected};
use crate::error::{CallFailed, ReadFailed, Refused, Retry};
use crate::frames::{Frames, FramesEnded};
use crate::router::Claim;

/// What the task of a shard tells the watcher.
#[derive(Debug)]
pub(super) enum Told {
    Change(Change),
    /// The shard's current values have all come.
    CaughtUp,
    Resnapshot {
        shard: u32,
    },
    Failed(ReadFailed),
}

/// Follows one shard.
#[derive(Debug)]
pub(super) struct Follow {
    cache: Cache,
    what: What,
    shard: u32,
    from: WatchFrom,
    slot: usize,
    tell: mpsc::Sender<Told>,
}

/// A watch that stands, and its event stream.
#[derive(Debug)]
pub(super) struct Started {
    frames: Frames,
    started: CacheWatchStarted,
}

/// How far the current values of a watch have come.
enum Phase {
    /// This many are still to come, and then changes from `resume`.
    Retained {
        left: u64,
        resume: u64,
    },
    /// Current values come in place of history, up to `resume`.
    Resnapshot {
        resume: u64,
    },
    Live,
}

/// Why an event stream ended.
enum Ended {
    /// Watch again.
    Again,
    Deleted,
    Failed(ReadFailed),
    /// Nobody listens any more.
    Unheard,
}

impl Follow {
    pub(super) fn new(watch: &Watch, shard: u32, tell: mpsc::Sender<Told>) -> Self {
        Self {
            cache: watch.cache.clone(),
            what: watch.what.clone(),
            shard,
            from: watch.from,
            slot: watch.cache.client.inner.next_slot(),
            tell,
        }
    }

    pub(super) async fn begin(&self) -> Result<Started, ReadFailed> {
        self.attach(self.from).await
    }

    pub(super) async fn run(self, mut started: Started) {
        let mut from = self.from;
        let mut told_caught_up = false;
        loop {
            let ended = self.follow(started, &mut from, &mut told_caught_up).await;
            let failed = match ended {
                Ended::Again => match self.attach_again(from).await {
                    Ok(again) => {
                        started = again;
                        continue;
                    }
                    Err(failed) => failed,
                },
                Ended::Deleted | Ended::Unheard => return,
                Ended::Failed(failed) => failed,
            };
            // Without a listener there is nobody to tell.
            let _ = self.tell.send(Told::Failed(failed)).await;
            return;
        }
    }

    /// Hands on what comes, and keeps `from` at the first change that was not handed on.
    async fn follow(
        &self,
        started: Started,
        from: &mut WatchFrom,
        told_caught_up: &mut bool,
    ) -> Ended {
        let Started {
            mut frames,
            started,
        } = started;
        let resume = started.resume_offset;
        let mut phase = match started.retained_count {
            Some(left) => Phase::Retained { left, resume },
            None if started.resnapshot => Phase::Resnapshot { resume },
            None => Phase::Live,
        };
        if started.resnapshot && !self.say(Told::Resnapshot { shard: self.shard }).await {
            return Ended::Unheard;
        }
        if *from == WatchFrom::Now {
            *from = WatchFrom::Offset(resume);
        }
        loop {
            if let Phase::Retained { left: 0, resume } = phase {
                *from = WatchFrom::Offset(resume);
                phase = Phase::Live;
                if !std::mem::replace(told_caught_up, true) && !self.say(Told::CaughtUp).await {
                    return Ended::Unheard;
                }
            }
            let event = match said(frames.frame().await) {
                Ok(event) => event,
                Err(ended) => return ended,
            };
            let retained = match &mut phase {
                Phase::Retained { left, .. } => {
                    *left -= 1;
                    true
                }
                Phase::Resnapshot { resume } if event.offset < *resume => true,
                Phase::Resnapshot { .. } | Phase::Live => false,
            };
            let next = event.offset.saturating_add(1);
            if !self.say(Told::Change(self.change(event, retained))).await {
                return Ended::Unheard;
            }
            if !retained {
                // Current values are in no order of offsets: until the first change behind them is handed on, a
                // lost watch begins again where it began.
                *from = WatchFrom::Offset(next);
                phase = Phase::Live;
            }
        }
    }

    fn change(&self, event: CacheEvent, retained: bool) -> Change {
        Change {
            key: event.key,
            value: event.value,
            offset: event.offset,
            shard: self.shard,
            expires_at_ms: Some(event.expires_at_millis).filter(|&at| at != 0),
            retained,
        }
    }

    async fn say(&self, told: Told) -> bool {
        self.tell.send(told).await.is_ok()
    }

    async fn attach(&self, from: WatchFrom) -> Result<Started, ReadFailed> {
        let inner = &self.cache.client.inner;
        let names = &self.cache.names;
        let (key, prefix, shard) = match &self.what {
            What::Key(key) => (Some(key.clone()), None, None),
            What::Prefix(prefix) => (None, Some(prefix.clone()), Some(self.shard)),
        };
        let (from_offset, retained) = match from {
            WatchFrom::Now => (None, false),
            WatchFrom::Retained => (None, true),
            WatchFrom::Offset(offset) => (Some(offset), false),
        };
        let watch = CacheWatch {
            tenant_id: names.tenant().to_owned(),
            namespace: names.namespace().to_owned(),
            cache: names.stream().to_owned(),
            key,
            prefix,
            shard,
            from_offset,
            retained,
            subscription_id: None,
        };
        let call = Call {
            slot: self.slot,
            ..Call::read(watch)
        };
        let needs = if retained {
            Features::CACHE_WATCH_RETAINED
        } else {
            Features::CACHE_WATCH
        };
        let Answered { link, answer } = inner.call(call.needs(needs, "cache_watch")).await?;
        if let Message::SubscribeCursorError(error) = answer {
            return Err(error.into());
        }
        let Message::CacheWatchStarted(started) = answer else {
            return Err(unexpected(&answer).into());
        };
        let lost = |why: &str| CallFailed::Unanswered {
            why: why.to_owned(),
            changes: false,
        };
        let frames = match link.router.claim(started.subscription_id) {
            Claim::Here(frames) => frames,
            Claim::Later(later) => timeout(inner.brokers.config.request_timeout, later)
                .await
                .map_err(|_| lost("the event stream did not come in time"))?
                .map_err(|_| lost("the connection was lost before the event stream came"))?,
        };
        Ok(Started { frames, started })
    }

    /// Watches again, for as long as the reconnect policy says.
    async fn attach_again(&self, from: WatchFrom) -> Result<Started, ReadFailed> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(self.cache.client.inner.brokers.config.reconnect);
        loop {
            let failed = match self.attach(from).await {
                Ok(started) => return Ok(started),
                Err(failed) => failed,
            };
            let at_least = match failed.retry() {
                Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown => Duration::ZERO,
                Retry::RetryAfter(after) => after,
                Retry::Fatal => return Err(failed),
            };
            let wait = backoff.next(begun.elapsed(), at_least, backoff::random());
            let Some(wait) = wait else {
                return Err(failed);
            };
            sleep(wait).await;
        }
    }
}

/// The change in a frame, or the end of the stream.
fn said(frame: Result<Option<Incoming>, FramesEnded>) -> Result<CacheEvent, Ended> {
    let broken = |what: String| Ended::Failed(CallFailed::Protocol { what }.into());
    let payload = match frame {
        Ok(Some(Incoming::Published(frame))) => frame.payload,
        Ok(Some(Incoming::Extension(_))) => {
            let what = "a frame of an extension came on a watch".to_owned();
            return Err(broken(what));
        }
        // A plain end without a word is a broker that went away.
        Ok(None) | Err(FramesEnded::Lost(_) | FramesEnded::Cut) => return Err(Ended::Again),
        Err(error @ (FramesEnded::Refused(_) | FramesEnded::Message(_))) => {
            return Err(broken(error.to_string()));
        }
    };
    match Message::decode(&payload) {
        Ok(Message::CacheEvent(event)) => Ok(event),
        // Going on after the last change handed on misses nothing, whatever they say.
        Ok(Message::CacheWatchLagged(_) | Message::ShardMoved(_)) => Err(Ended::Again),
        Ok(Message::StreamDeleted(_)) => Err(Ended::Deleted),
        Ok(Message::Error(failure)) => Err(refused(failure)),
        Ok(other) => Err(broken(format!("{} came on a watch", other.type_name()))),
        Err(error) => Err(broken(error.to_string())),
    }
}

fn refused(failure: Failure) -> Ended {
    let refused = Refused::from(failure);
    if refused.retry.is_safe() {
        Ended::Again
    } else {
        Ended::Failed(ReadFailed::Ended(refused))
    }
}
