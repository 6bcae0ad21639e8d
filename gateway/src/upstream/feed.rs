//! One subscription at the broker for all browsers of a stream.
//!
//! Whoever joins a feed has shown before that the broker lets him subscribe: with a subscription of his own, under his
//! own token. The feed runs on one such person's connection and token. When he goes or is refused, it goes on with the
//! next one's, from the same offset; when nobody is left, it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use felix_client::{Batch, Client, ReadFailed, Signal, Subscription};
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::crew::{Crew, Left};
use super::item::Item;
use super::ring::{End, Ring, Taken, poll_take};
use crate::limits::EVENTS_PER_FLUSH;

/// What a feed is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    /// The place in the scope file: events are written under its alias.
    pub(crate) stream: usize,
    pub(crate) name: String,
    pub(crate) shard: u32,
}

/// Every feed of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    all: Mutex<HashMap<Key, Arc<Feed>>>,
}

#[derive(Debug)]
struct Feed {
    key: Key,
    state: Mutex<State>,
    /// The one it ran on has left.
    left: Notify,
}

#[derive(Debug)]
struct State {
    ring: Ring<Item>,
    crew: Crew<Client>,
}

/// A browser's place in a feed. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Reader {
    feeds: Arc<Feeds>,
    feed: Arc<Feed>,
    id: u64,
    place: u64,
    waker: Arc<AtomicWaker>,
    /// The offset of the first event it gets; what lies before is for its own subscription to read. `None` on streams
    /// without a log.
    pub(crate) from: Option<u64>,
}

/// What comes of reading a feed.
#[derive(Debug)]
pub(crate) enum Read {
    Events(Vec<Arc<Item>>),
    /// The browser took events too slowly. What it has not had is in the log, or lost where there is none.
    Behind,
    End(End),
}

impl Feeds {
    /// How many subscriptions are shared now.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes a place in the feed of a stream. `own` is what the broker has granted this person; when there is no feed,
    /// it becomes one, and else it comes back to read what lies before the place.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "who comes gives himself to the feed"
    )]
    pub(crate) fn join(
        self: &Arc<Self>,
        key: Key,
        client: Client,
        own: Subscription,
    ) -> (Reader, Option<Subscription>) {
        let mut all = self.lock();
        if let Some(feed) = all.get(&key)
            && let Some(reader) = self.enter(feed, &client)
        {
            return (reader, Some(own));
        }
        let feed = Arc::new(Feed {
            state: Mutex::new(State {
                ring: Ring::starting_at(own.position()),
                crew: Crew::default(),
            }),
            left: Notify::new(),
            key: key.clone(),
        });
        all.insert(key, Arc::clone(&feed));
        // A feed that was just made is not over.
        let reader = self
            .enter(&feed, &client)
            .unwrap_or_else(|| self.outside(&feed));
        tokio::spawn(run(Arc::clone(&feed), Arc::clone(self), own));
        (reader, None)
    }

    fn enter(self: &Arc<Self>, feed: &Arc<Feed>, client: &Client) -> Option<Reader> {
        let mut state = feed.lock();
        if state.ring.is_over() {
            return None;
        }
        let id = state.crew.enter(client.clone());
        let waker = Arc::new(AtomicWaker::new());
        state.ring.enter(id, Arc::clone(&waker));
        Some(Reader {
            id,
            place: state.ring.tail(),
            from: state.ring.next_offset(),
            waker,
            feeds: Arc::clone(self),
            feed: Arc::clone(feed),
        })
    }

    fn outside(self: &Arc<Self>, feed: &Arc<Feed>) -> Reader {
        Reader {
            id: 0,
            place: 0,
            from: None,
            waker: Arc::default(),
            feeds: Arc::clone(self),
            feed: Arc::clone(feed),
        }
    }

    fn remove(&self, feed: &Arc<Feed>) {
        forget(&mut self.lock(), feed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Feed>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(all: &mut HashMap<Key, Arc<Feed>>, feed: &Arc<Feed>) {
    if all
        .get(&feed.key)
        .is_some_and(|other| Arc::ptr_eq(other, feed))
    {
        all.remove(&feed.key);
    }
}

impl Reader {
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        let Self {
            feed, place, waker, ..
        } = self;
        let look = || feed.lock().ring.take(place, EVENTS_PER_FLUSH);
        poll_take(waker, cx, look).map(|taken| match taken {
            Taken::Events(events) => Read::Events(events),
            Taken::Behind => Read::Behind,
            Taken::End(end) => Read::End(end),
        })
    }

    /// Gives up what it has missed.
    pub(crate) fn skip_to_tail(&mut self) {
        self.place = self.feed.lock().ring.tail();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Under both locks, so that nobody joins a feed that its last browser is leaving.
        let mut all = self.feeds.lock();
        let mut state = self.feed.lock();
        state.ring.leave(self.id);
        let Left {
            was_runner,
            is_last,
        } = state.crew.leave(self.id);
        drop(state);
        if is_last {
            forget(&mut all, &self.feed);
        }
        drop(all);
        if was_runner || is_last {
            self.feed.left.notify_one();
        }
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the subscription of a feed does not go on.
enum Stopped {
    /// Whoever it ran on has left.
    Left,
    /// The broker ended it, or refused whoever it ran on.
    Failed(ReadFailed),
    Over(End),
}

/// The life of a feed.
async fn run(feed: Arc<Feed>, feeds: Arc<Feeds>, first: Subscription) {
    let mut source = first;
    let end = loop {
        let refused = match carry(&feed, &mut source).await {
            Stopped::Left => None,
            Stopped::Failed(failed) => {
                // He keeps his place; his own session learns of it by itself.
                let mut state = feed.lock();
                let runner = state.crew.runner();
                state.crew.pass_over(runner);
                Some(failed)
            }
            Stopped::Over(end) => break end,
        };
        match hand_over(&feed, refused).await {
            Ok(Some(next)) => source = next,
            Ok(None) => {}
            Err(end) => break end,
        }
    };
    feed.lock().ring.end(end);
    feeds.remove(&feed);
}

/// Finds somebody else for the feed to run on; `None`: the one it runs on is still there. The earlier subscription is
/// dropped only after that. Where there is a log nothing is missing or repeated; where there is none, what came in between
/// is lost, as it is to any reader who was away.
async fn hand_over(feed: &Feed, refused: Option<ReadFailed>) -> Result<Option<Subscription>, End> {
    let mut why = refused.map(|failed| failed.to_string());
    let before = feed.lock().crew.runner();
    loop {
        let next = feed.lock().crew.next_runner();
        let Some((id, client)) = next else {
            let nobody = || "nobody may read this stream any more".to_owned();
            return Err(End::Over {
                why: why.unwrap_or_else(nobody),
            });
        };
        if id == before {
            return Ok(None);
        }
        match attach(feed, &client).await {
            Ok(attached) => return Ok(Some(attached)),
            Err(ReadFailed::TooOld { oldest, .. }) => return Err(End::Trimmed { oldest }),
            Err(failed) => {
                tracing::debug!(stream = feed.key.name, %failed, "a shared subscription goes on with another token");
                feed.lock().crew.pass_over(id);
                why = Some(failed.to_string());
            }
        }
    }
}

async fn attach(feed: &Feed, client: &Client) -> Result<Subscription, ReadFailed> {
    let key = &feed.key;
    let subscribe = client.subscribe(&key.name).shard(key.shard).timestamps();
    let next = feed.lock().ring.next_offset();
    match next {
        Some(offset) => subscribe.from_offset(offset).await,
        None => subscribe.await,
    }
}

/// Moves events from the broker to the ring until that stops.
async fn carry(feed: &Feed, source: &mut Subscription) -> Stopped {
    loop {
        let signal = tokio::select! {
            () = feed.left.notified() => return Stopped::Left,
            signal = source.next_signal() => signal,
        };
        match signal {
            Ok(Some(Signal::Batch(batch))) => {
                let next = batch.next_offset();
                feed.lock().ring.push(items(&batch), next);
            }
            Ok(Some(Signal::Lagged {
                lost,
                at: Some(oldest),
            })) if lost > 0 => {
                return Stopped::Over(End::Trimmed { oldest });
            }
            Ok(Some(Signal::Deleted) | None) => {
                let why = "the stream was deleted".to_owned();
                return Stopped::Over(End::Over { why });
            }
            Ok(Some(_)) => {}
            Err(failed) => return Stopped::Failed(failed),
        }
    }
}

/// The events of a batch, as browsers get them.
pub(crate) fn items(batch: &Batch) -> Vec<Arc<Item>> {
    let arrived = Instant::now();
    let mut skipped = batch.skipped_before();
    let of_event = |event: felix_client::Event| {
        let mut item = Item::new(event.offset, event.payload, arrived);
        item.time_us = event.timestamp_micros.unwrap_or(0);
        item.skipped_before = std::mem::take(&mut skipped);
        Arc::new(item)
    };
    batch.events().map(of_event).collect()
}
