//! One shard of a watch, followed for as long as somebody listens.

use std::time::Duration;

use felix_wire::error::{Code, Failure};
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
    CaughtUp {
        shard: u32,
    },
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
    /// Whether the broker can say how many current values there are.
    counts: bool,
}

/// How far a watch has come.
struct Place {
    /// The first change that was not handed on.
    from: WatchFrom,
    /// Whoever watches has values that may be gone: that is said before current values come again.
    outdated: bool,
    told_caught_up: bool,
}

impl Place {
    /// History is missing: current values come in its place.
    fn begin_anew(&mut self) {
        self.from = WatchFrom::Retained;
        self.outdated = true;
    }
}

/// How far the current values of a watch have come.
enum Phase {
    /// This many are still to come, and then changes from `resume`.
    Retained {
        left: u64,
        resume: u64,
    },
    /// Current values come in place of history, and then changes from `resume`. How many is not known, and a value
    /// that was overwritten meanwhile is told with its newer version, so where changes begin is not known either.
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
        let mut place = Place {
            from: self.from,
            outdated: false,
            told_caught_up: false,
        };
        loop {
            let ended = match self.follow(started, &mut place).await {
                Ended::Again => match self.attach_again(&mut place).await {
                    Ok(again) => {
                        started = again;
                        continue;
                    }
                    Err(ended) => ended,
                },
                ended @ (Ended::Deleted | Ended::Unheard | Ended::Failed(_)) => ended,
            };
            if let Ended::Failed(failed) = ended {
                // Without a listener there is nobody to tell.
                let _ = self.tell.send(Told::Failed(failed)).await;
            }
            return;
        }
    }

    /// Hands on what comes, and keeps the place at the first change that was not handed on.
    async fn follow(&self, started: Started, place: &mut Place) -> Ended {
        let Started {
            mut frames,
            started,
            counts,
        } = started;
        let resume = started.resume_offset;
        if started.resnapshot && counts && place.from != WatchFrom::Retained {
            // The same values again, but counted, so that their end is known.
            place.begin_anew();
            return Ended::Again;
        }
        let mut phase = match started.retained_count {
            Some(left) => Phase::Retained { left, resume },
            None if started.resnapshot => Phase::Resnapshot { resume },
            None => Phase::Live,
        };
        let shard = self.shard;
        let outdated = std::mem::take(&mut place.outdated) || started.resnapshot;
        if outdated && !self.say(Told::Resnapshot { shard }).await {
            return Ended::Unheard;
        }
        if place.from == WatchFrom::Now {
            place.from = WatchFrom::Offset(resume);
        }
        loop {
            if let Phase::Retained { left: 0, resume } = phase {
                place.from = WatchFrom::Offset(resume);
                place.outdated = false;
                phase = Phase::Live;
                let told = std::mem::replace(&mut place.told_caught_up, true);
                if !told && !self.say(Told::CaughtUp { shard }).await {
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
                    // Lost before the rest came, they all come again, without those deleted meanwhile.
                    place.outdated = true;
                    true
                }
                Phase::Resnapshot { resume } => event.offset < *resume,
                Phase::Live => false,
            };
            let next = event.offset.saturating_add(1);
            if !self.say(Told::Change(self.change(event, retained))).await {
                return Ended::Unheard;
            }
            // Current values are in no order of offsets: a watch lost among them begins again where it began.
            if matches!(phase, Phase::Live) {
                place.from = WatchFrom::Offset(next);
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
        let counts = Features::CACHE_WATCH_RETAINED;
        let counts = link.granted.features.contains(counts);
        Ok(Started {
            frames,
            started,
            counts,
        })
    }

    /// Watches again, for as long as the reconnect policy says.
    async fn attach_again(&self, place: &mut Place) -> Result<Started, Ended> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(self.cache.client.inner.brokers.config.reconnect);
        loop {
            let failed = match self.attach(place.from).await {
                Ok(started) => return Ok(started),
                // The cache lost what it held, as one in memory does with its broker.
                Err(ReadFailed::InFuture { .. }) if place.from != WatchFrom::Retained => {
                    place.begin_anew();
                    continue;
                }
                Err(failed) if is_gone(failed.code()) => return Err(Ended::Deleted),
                Err(failed) => failed,
            };
            let at_least = match failed.retry() {
                Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown => Duration::ZERO,
                Retry::RetryAfter(after) => after,
                Retry::Fatal => return Err(Ended::Failed(failed)),
            };
            let wait = backoff.next(begun.elapsed(), at_least, backoff::random());
            let Some(wait) = wait else {
                return Err(Ended::Failed(failed));
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
    if is_gone(&refused.code) {
        Ended::Deleted
    } else if refused.retry.is_safe() {
        Ended::Again
    } else {
        Ended::Failed(ReadFailed::Ended(refused))
    }
}

/// Whether a cache that was there is not any more. One of the same name is another one.
fn is_gone(code: &str) -> bool {
    code == Code::NotFound.name()
}
