//! A running subscription to one shard.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use felix_wire::error::Failure;
use felix_wire::event::EventBatch;
use felix_wire::extension::{Answer, Extension, ExtensionFrame, Extensions};
use felix_wire::flags::Layout;
use felix_wire::frame::{Frame, Incoming};
use felix_wire::message::{self, Message, ShardMoved};
use tokio::task::JoinHandle;

use super::attach::{Attached, Wish};
use super::event::{Batch, Event, Signal};
use crate::error::{CallFailed, ReadFailed, Refused};
use crate::frames::{Frames, FramesEnded};

/// The records of one shard, in order.
///
/// Nothing is fetched ahead but what QUIC's flow control lets the broker send: who stops reading makes the broker
/// wait, and holds up nobody else. When the connection is lost, reading goes on at the next offset by itself. Every
/// way of reading is cancel-safe: a future that is dropped loses nothing, and a reconnection under way goes on.
#[derive(Debug)]
pub struct Subscription {
    wish: Arc<Wish>,
    source: Source,
    /// The offset after the last event handed out; `None` on in-memory streams.
    next: Option<u64>,
    live: Option<u64>,
    /// Events of the batch that [`next`](Self::next) is in.
    events: VecDeque<Event>,
    lost: u64,
}

#[derive(Debug)]
enum Source {
    Live(Frames),
    /// In a task of its own, so that it goes on when nobody polls.
    Seeking {
        attaching: Attaching,
        why: Why,
    },
    Ended,
}

#[derive(Debug)]
struct Attaching(JoinHandle<Result<Attached, ReadFailed>>);

/// Why a subscription begins again.
#[derive(Clone, Copy, Debug)]
enum Why {
    Disconnected,
    Moved,
    Lagged { lost: u64 },
}

/// What a frame says.
enum Said {
    Batch(Batch),
    Moved(ShardMoved),
    Lagged,
    Deleted,
    Failed(Failure),
}

type Signalled = Result<Option<Signal>, ReadFailed>;

impl Subscription {
    pub(super) fn new(wish: Wish, attached: Attached) -> Self {
        Self {
            wish: Arc::new(wish),
            source: Source::Live(attached.frames),
            next: attached.start,
            live: attached.live,
            events: VecDeque::new(),
            lost: 0,
        }
    }

    /// The next event; `None` when the stream was deleted or the broker ended the subscription in good order.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`ReadFailed`], once; then `None`.
    pub async fn next(&mut self) -> Result<Option<Event>, ReadFailed> {
        poll_fn(|cx| self.poll_next_event(cx)).await
    }

    /// The next events, as many as came in one frame: the way to read fast. `None` as for [`next`](Self::next).
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`ReadFailed`], once; then `None`.
    pub async fn next_batch(&mut self) -> Result<Option<Batch>, ReadFailed> {
        loop {
            match self.next_signal().await? {
                Some(Signal::Batch(batch)) => return Ok(Some(batch)),
                Some(Signal::Deleted) | None => return Ok(None),
                Some(Signal::Resumed { .. } | Signal::Moved { .. } | Signal::Lagged { .. }) => {}
            }
        }
    }

    /// The next events, or what happened to the subscription. Cancel-safe. Events that [`next`](Self::next) has
    /// not handed out yet are not repeated here.
    ///
    /// # Errors
    /// [`ReadFailed`], once; then `None`.
    pub async fn next_signal(&mut self) -> Signalled {
        poll_fn(|cx| self.poll_signal(cx)).await
    }

    /// The shard that is read.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.wish.shard
    }

    /// The offset after the last event handed out (exclusive): where to begin in order to go on from here. `None`
    /// on in-memory streams.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.events.front().map_or(self.next, |event| event.offset)
    }

    /// Where the log ended when the subscription began (exclusive): what lies before it is history. `None` on
    /// in-memory streams.
    #[must_use]
    pub fn live_offset(&self) -> Option<u64> {
        self.live
    }

    /// How many events were missed so far, because reading was too slow or they were deleted.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// As [`next`](Self::next), for hand-written futures.
    pub fn poll_next_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, ReadFailed>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Ok(Some(event)));
            }
            match ready!(self.poll_signal(cx))? {
                Some(Signal::Batch(batch)) => self.events.extend(batch.events()),
                Some(Signal::Deleted) | None => return Poll::Ready(Ok(None)),
                Some(Signal::Resumed { .. } | Signal::Moved { .. } | Signal::Lagged { .. }) => {}
            }
        }
    }

    /// As [`next_signal`](Self::next_signal), for hand-written futures.
    pub fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Signalled> {
        loop {
            let signal = match &mut self.source {
                Source::Live(frames) => match ready!(frames.poll_frame(cx)) {
                    Ok(Some(frame)) => self.hear(frame),
                    // A plain end is the end; who wants the reader to come back says so.
                    Ok(None) => self.end(Ok(None)),
                    Err(FramesEnded::Lost(_) | FramesEnded::Cut) => {
                        self.seek(Why::Disconnected, None, None);
                        continue;
                    }
                    Err(error @ (FramesEnded::Refused(_) | FramesEnded::Message(_))) => {
                        self.end(Err(CallFailed::Protocol {
                            what: error.to_string(),
                        }
                        .into()))
                    }
                },
                Source::Seeking { attaching, why } => {
                    let why = *why;
                    let attached = ready!(Pin::new(&mut attaching.0).poll(cx));
                    match attached {
                        Ok(attached) => self.attached(why, attached),
                        Err(error) => {
                            let what = format!("resuming failed: {error}");
                            self.end(Err(CallFailed::Protocol { what }.into()))
                        }
                    }
                }
                Source::Ended => Ok(None),
            };
            match signal {
                Ok(Some(Signal::Batch(batch))) if batch.is_empty() => {}
                Ok(None) if !matches!(self.source, Source::Ended) => {}
                signal => return Poll::Ready(signal),
            }
        }
    }

    /// Takes in one frame. `Ok(None)` while the subscription goes on means that there is nothing to tell.
    fn hear(&mut self, frame: Incoming) -> Signalled {
        match said(self.wish.shard, frame) {
            Ok(Said::Batch(batch)) => Ok(Some(Signal::Batch(self.account(batch)))),
            Ok(Said::Moved(moved)) => {
                self.seek(Why::Moved, moved.resume_from, moved.addr);
                Ok(None)
            }
            // Everything before `resume_from` was sent, so going on after the last event misses nothing that is
            // still in the log.
            Ok(Said::Lagged) => {
                self.seek(Why::Lagged { lost: 0 }, None, None);
                Ok(None)
            }
            Ok(Said::Deleted) => self.end(Ok(Some(Signal::Deleted))),
            Ok(Said::Failed(failure)) => self.end(Err(ReadFailed::Ended(Refused::from(failure)))),
            Err(failed) => self.end(Err(failed.into())),
        }
    }

    /// Counts what is missing before a batch and leaves out what was delivered before.
    fn account(&mut self, mut batch: Batch) -> Batch {
        if let (Some(first), Some(next)) = (batch.first_offset(), self.next) {
            if first < next {
                batch.cut_below(next);
            } else if batch.lost_before == 0 {
                batch.lost_before = first
                    .saturating_sub(next)
                    .saturating_sub(batch.skipped_before);
            }
        }
        self.lost = self.lost.saturating_add(batch.lost_before);
        if let Some(next) = batch.next_offset() {
            self.next = Some(self.next.map_or(next, |before| before.max(next)));
        }
        batch
    }

    fn seek(&mut self, why: Why, resume_from: Option<u64>, at: Option<String>) {
        let next = match (self.next, resume_from) {
            (Some(next), Some(from)) => Some(next.max(from)),
            (next, from) => next.or(from),
        };
        self.next = next;
        let start = next.map_or(message::Start::Latest, message::Start::Offset);
        let at = at.and_then(|at| at.parse().ok());
        let wish = Arc::clone(&self.wish);
        let attaching = tokio::spawn(async move { wish.attach_again(start, at).await });
        self.source = Source::Seeking {
            attaching: Attaching(attaching),
            why,
        };
    }

    fn attached(&mut self, why: Why, attached: Result<Attached, ReadFailed>) -> Signalled {
        let attached = match attached {
            Ok(attached) => attached,
            // Retention overtook the reader while it was away: it goes on with what there is, and is told.
            Err(ReadFailed::TooOld { requested, oldest }) if oldest > requested => {
                let lost = oldest - requested;
                self.lost = self.lost.saturating_add(lost);
                self.next = Some(oldest);
                self.seek(Why::Lagged { lost }, None, None);
                return Ok(None);
            }
            Err(failed) => return self.end(Err(failed)),
        };
        self.source = Source::Live(attached.frames);
        self.next = self.next.or(attached.start);
        let at = self.next;
        Ok(Some(match why {
            Why::Disconnected => Signal::Resumed { at },
            Why::Moved => Signal::Moved {
                at,
                broker: attached.broker,
            },
            Why::Lagged { lost } => Signal::Lagged { lost, at },
        }))
    }

    fn end(&mut self, last: Signalled) -> Signalled {
        self.source = Source::Ended;
        last
    }
}

impl futures_core::Stream for Subscription {
    type Item = Result<Event, ReadFailed>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_event(cx).map(Result::transpose)
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn said(shard: u32, frame: Incoming) -> Result<Said, CallFailed> {
    match frame {
        Incoming::Published(frame) => said_in_frame(shard, frame),
        Incoming::Extension(frame) => said_in_extension(shard, frame),
    }
}

fn said_in_frame(shard: u32, frame: Frame) -> Result<Said, CallFailed> {
    let broken = |what: String| CallFailed::Protocol { what };
    match frame.layout() {
        Ok(Layout::Events) => {
            let batch = EventBatch::decode(frame.flags, frame.payload)
                .map_err(|error| broken(error.to_string()))?;
            Ok(Said::Batch(Batch::plain(shard, batch)))
        }
        Ok(Layout::Json) => {
            let message = Message::decode(&frame.payload);
            said_in_message(shard, message.map_err(|error| broken(error.to_string()))?)
        }
        Ok(Layout::Publish | Layout::Ack) | Err(_) => Err(broken(
            "a frame that holds no events came on an event stream".to_owned(),
        )),
    }
}

fn said_in_message(shard: u32, message: Message) -> Result<Said, CallFailed> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other message has no place here"
    )]
    match message {
        Message::Event(one) => Ok(Said::Batch(Batch::listed(shard, one.offset, [one.payload]))),
        Message::EventBatch(many) => {
            let payloads = many
                .payloads
                .iter()
                .map(|payload| many.payloads.bytes.slice_ref(payload));
            Ok(Said::Batch(Batch::listed(
                shard,
                many.base_offset,
                payloads,
            )))
        }
        Message::ShardMoved(moved) => Ok(Said::Moved(moved)),
        Message::SubscriptionLagged(_) => Ok(Said::Lagged),
        Message::StreamDeleted(_) => Ok(Said::Deleted),
        Message::Error(failure) => Ok(Said::Failed(failure)),
        other => {
            let what = format!("{} came on an event stream", other.type_name());
            Err(CallFailed::Protocol { what })
        }
    }
}

fn said_in_extension(shard: u32, frame: ExtensionFrame) -> Result<Said, CallFailed> {
    let granted: Extensions = [Extension::Records].into_iter().collect();
    match frame.answer(granted) {
        Ok(Answer::Deliver(deliver)) => Batch::records(shard, deliver).map(Said::Batch),
        Ok(Answer::Refused(refused)) => Ok(Said::Failed(refused.failure)),
        Ok(Answer::Published(_) | Answer::Reply(_) | Answer::Expiring(_) | Answer::Renewed(_)) => {
            let what = "an answer to a request came on an event stream".to_owned();
            Err(CallFailed::Protocol { what })
        }
        Err(refused) => Err(CallFailed::Protocol {
            what: refused.to_string(),
        }),
    }
}
