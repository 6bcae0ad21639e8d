//! One subscription of one browser: with his own token first, along with everybody else's once it has caught up.
//!
//! ```text
//! opening ──► own reading ──► feed
//!    ▲        up to the          │
//!    │        feed's place       │
//!    └───────────────────────────┘ too slow for the feed
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use felix_client::{Client, ReadFailed, Signal, Subscription};

use super::feed::{Feeds, Key, Read, Reader, items};
use super::item::Item;
use super::ring::End;
use crate::metrics::Metrics;
use crate::session::Subscribe;
use crate::session::message::Begin;

/// A subscription and where it stands.
pub(crate) struct Reading {
    pub(crate) subscribe: Subscribe,
    key: Key,
    client: Client,
    feeds: Arc<Feeds>,
    stage: Stage,
    /// The first offset the browser has not been sent; `None` on streams without a log.
    next: Option<u64>,
    /// Whether the browser has been told that it stands.
    told: bool,
}

type Attaching = Pin<Box<dyn Future<Output = Result<Subscription, ReadFailed>> + Send>>;

enum Stage {
    Opening(Attaching),
    Own {
        source: Box<Subscription>,
        /// The offset from which on it may read along with the others.
        caught_up_at: Option<u64>,
        /// Its place among them, once it has one: it reads by itself up to there.
        place: Option<Reader>,
    },
    Along(Reader),
    Over,
}

/// What a browser is to be told of a subscription.
#[derive(Debug)]
pub(crate) enum Step {
    Stands {
        start: Option<u64>,
        live: Option<u64>,
    },
    Events(Vec<Arc<Item>>),
    /// It did not begin.
    Refused(ReadFailed),
    /// It does not go on: records were deleted before they could be read.
    Trimmed {
        oldest: u64,
    },
    /// It does not go on.
    Ended {
        why: String,
    },
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading")
            .field("key", &self.key)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// Begins a subscription in this client's name.
    pub(crate) fn new(subscribe: Subscribe, key: Key, client: Client, feeds: Arc<Feeds>) -> Self {
        let from = match subscribe.from {
            Begin::Offset(offset) => Some(offset),
            Begin::Word(_) => None,
        };
        Self {
            stage: Stage::Opening(attach(&client, &key, from)),
            subscribe,
            key,
            client,
            feeds,
            next: None,
            told: false,
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>, metrics: &Metrics) -> Poll<Step> {
        loop {
            let step = match &mut self.stage {
                Stage::Opening(attaching) => {
                    let attached = ready!(attaching.as_mut().poll(cx));
                    self.attached(attached)
                }
                Stage::Own { .. } => ready!(self.poll_own(cx)),
                Stage::Along(reader) => {
                    let read = ready!(reader.poll_read(cx));
                    self.read_along(read, metrics)
                }
                Stage::Over => return Poll::Pending,
            };
            if let Some(step) = step {
                return Poll::Ready(step);
            }
        }
    }

    fn attached(&mut self, attached: Result<Subscription, ReadFailed>) -> Option<Step> {
        let source = match attached {
            Ok(source) => source,
            Err(failed) if !self.told => {
                self.stage = Stage::Over;
                return Some(Step::Refused(failed));
            }
            Err(failed) => return Some(self.failed(&failed)),
        };
        let (start, live) = (source.position(), source.live_offset());
        self.next = self.next.or(start);
        self.stage = Stage::Own {
            source: Box::new(source),
            caught_up_at: live,
            place: None,
        };
        if live.is_none() {
            // Without a log nothing can be read again: the place among the others is taken before the browser is told
            // that it stands, so that nothing which comes after that is missed between the two.
            self.step_over();
        }
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        Some(Step::Stands { start, live })
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        self.step_over();
        let Stage::Own { source, .. } = &mut self.stage else {
            return Poll::Ready(None);
        };
        let signal = ready!(source.poll_signal(cx));
        Poll::Ready(match signal {
            Ok(Some(Signal::Batch(batch))) => {
                self.next = batch.next_offset().or(self.next);
                Some(Step::Events(items(&batch)))
            }
            Ok(Some(Signal::Lagged {
                lost,
                at: Some(oldest),
            })) if lost > 0 => {
                self.stage = Stage::Over;
                Some(Step::Trimmed { oldest })
            }
            Ok(Some(Signal::Deleted) | None) => {
                self.stage = Stage::Over;
                let why = "the stream was deleted".to_owned();
                Some(Step::Ended { why })
            }
            Ok(Some(_)) => None,
            Err(failed) => Some(self.failed(&failed)),
        })
    }

    /// Takes a place in the feed once the log has been read up to it, and goes over to it once that place is reached.
    fn step_over(&mut self) {
        let next = self.next;
        let reached = |offset: Option<u64>| match (next, offset) {
            (Some(next), Some(offset)) => next >= offset,
            _ => true,
        };
        let Stage::Own {
            caught_up_at,
            place,
            ..
        } = &mut self.stage
        else {
            return;
        };
        let ready = match place {
            None => reached(*caught_up_at),
            Some(reader) => reached(reader.from),
        };
        if !ready {
            return;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Own {
            source,
            caught_up_at,
            place,
        } = stage
        else {
            return;
        };
        let (reader, left) = match place {
            Some(reader) => (reader, None),
            None => self
                .feeds
                .join(self.key.clone(), self.client.clone(), *source),
        };
        self.stage = match left {
            Some(source) if !reached(reader.from) => Stage::Own {
                source: Box::new(source),
                caught_up_at,
                place: Some(reader),
            },
            _ => Stage::Along(reader),
        };
    }

    fn read_along(&mut self, read: Read, metrics: &Metrics) -> Option<Step> {
        match read {
            Read::Events(mut events) => {
                if let Some(next) = self.next {
                    events.retain(|event| event.offset.is_none_or(|offset| offset >= next));
                }
                let last = events.last()?;
                self.next = last.offset.map(|offset| offset + 1).or(self.next);
                Some(Step::Events(events))
            }
            Read::Behind => {
                metrics.browsers_slow.increment(1);
                match self.next {
                    Some(next) => {
                        let attaching = attach(&self.client, &self.key, Some(next));
                        self.stage = Stage::Opening(attaching);
                    }
                    None => {
                        if let Stage::Along(reader) = &mut self.stage {
                            reader.skip_to_tail();
                        }
                    }
                }
                None
            }
            Read::End(end) => {
                self.stage = Stage::Over;
                Some(match end {
                    End::Trimmed { oldest } => Step::Trimmed { oldest },
                    End::Over { why } => Step::Ended { why },
                })
            }
        }
    }

    fn failed(&mut self, failed: &ReadFailed) -> Step {
        self.stage = Stage::Over;
        if let ReadFailed::TooOld { oldest, .. } = failed {
            return Step::Trimmed { oldest: *oldest };
        }
        Step::Ended {
            why: failed.to_string(),
        }
    }
}

fn attach(client: &Client, key: &Key, from: Option<u64>) -> Attaching {
    let subscribe = client.subscribe(&key.name).shard(key.shard).timestamps();
    Box::pin(async move {
        match from {
            Some(offset) => subscribe.from_offset(offset).await,
            None => subscribe.await,
        }
    })
}
