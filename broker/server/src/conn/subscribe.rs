//! Subscriptions: from a cursor in a shard to an event stream of the client's connection.

use std::sync::Arc;
use std::time::Duration;

use felix_auth::{Action, Principal, Resource};
use felix_engine::{CloseReason, ReaderEnd, ReaderId, Start, SubscribeRefused};
use felix_model::{Offset, StreamId};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Extension;
use felix_wire::flags::Flags;
use felix_wire::message::{
    self, CursorReason, EventStreamHello, Message, ShardMoved, StreamDeleted, Subscribe,
    SubscribeCursorError, Subscribed, SubscriptionLagged,
};
use felix_wire::negotiate::{Ending, Peer};
use quinn::SendStream;

use super::egress::{Barred, Rests, last_words};
use super::publish::closed;
use super::stream::{StreamState, forbidden};
use super::{Conn, OpenSubscription};
use crate::broker::Listing;
use crate::events::{Form, frames};
use crate::limits::PULL_BYTES;
use crate::shards::cell::Cell;
use crate::shards::mailbox::{Mailbox, Said};
use crate::shards::{Kind, StreamSpec};

/// How long a client may take to grant the event stream. Published clients grant a thousand ahead.
const EVENT_STREAM_WAIT: Duration = Duration::from_secs(5);

/// Answers `subscribe`, and starts the event stream.
pub(crate) async fn subscribe(state: &StreamState, ask: Subscribe) {
    match begin(state, &ask).await {
        Ok(subscription) => {
            state.answers.push(subscription.answer.encode());
            state.conn.tasks.spawn(subscription.egress.run());
        }
        Err(NotSubscribed::Cursor(error)) => {
            state.answers.push(Message::from(error).encode());
        }
        Err(NotSubscribed::Failed(failure)) => {
            state.answers.push(state.peer.error(failure).encode());
        }
    }
}

struct Subscription {
    answer: Message,
    egress: Egress,
}

enum NotSubscribed {
    Failed(Failure),
    Cursor(SubscribeCursorError),
}

impl From<Failure> for NotSubscribed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What reading a stream needs.
pub(crate) fn check_read(state: &StreamState, id: &StreamId) -> Result<(), Failure> {
    may_read(&state.principal, id)
}

fn may_read(principal: &Principal, id: &StreamId) -> Result<(), Failure> {
    let resource = Resource::Stream {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        stream: id.stream.as_str(),
    };
    if principal.allows(Action::StreamSubscribe, &resource) {
        Ok(())
    } else {
        Err(forbidden("stream.subscribe", id))
    }
}

/// The shard that a read names, opened.
pub(crate) async fn open_shard(
    state: &StreamState,
    id: &StreamId,
    shard: u32,
) -> Result<(Arc<StreamSpec>, Arc<Cell>), Failure> {
    let shared = &state.conn.shared;
    let handle = shared.stream(id, &state.principal).await?;
    let spec = handle.spec();
    if shard >= spec.shards {
        return Err(Failure::new(
            Code::InvalidRequest,
            format!(
                "shard {shard} is out of range: the stream has {} shards",
                spec.shards
            ),
        ));
    }
    let index = felix_model::ShardIndex(shard);
    let cell = match handle.open_cell(index) {
        Some(cell) => cell,
        None => shared
            .shards
            .open(&handle, index)
            .await
            .map_err(|error| error.failure())?,
    };
    Ok((spec, cell))
}

async fn begin(state: &StreamState, ask: &Subscribe) -> Result<Subscription, NotSubscribed> {
    let conn = &state.conn;
    let id = state.name(&ask.tenant_id, &ask.namespace, &ask.stream)?;
    check_read(state, &id)?;
    let shard = ask.shard.unwrap_or(0);
    let (spec, cell) = open_shard(state, &id, shard).await?;
    let open = conn.open_subscription(&state.used, state.user(id.namespace.as_str()))?;
    let start = match ask.start.unwrap_or(message::Start::Latest) {
        message::Start::Latest => Start::Latest,
        message::Start::Earliest => Start::Earliest,
        message::Start::Offset(offset) => Start::Offset(Offset(offset)),
    };
    let (reader, mailbox) = cell.subscribe(start);
    let reader = Reader {
        cell,
        id: reader,
        mailbox: Arc::clone(&mailbox),
    };
    let (start, live) = match mailbox.take().await {
        Said::Subscribed { start, live } => (start, live),
        Said::Refused(why) => return Err(not_subscribed(why, start)),
        Said::Deliver(_) | Said::Ended(_) => {
            return Err(Failure::new(Code::Internal, "the shard answered out of turn").into());
        }
    };
    // Not before the subscription stands: a stream that was opened and is dropped reaches the client as one that
    // ends without a hello.
    let stream = tokio::time::timeout(EVENT_STREAM_WAIT, conn.open_uni()).await;
    let Ok(Some(send)) = stream else {
        return Err(Failure::new(
            Code::LimitExceeded,
            "the client granted no stream to send events on",
        )
        .with_reason("event_streams")
        .into());
    };
    let durable = matches!(spec.kind, Kind::Durable { .. });
    let offsets = durable && state.peer.flags.contains(Flags::EVENT_OFFSETS);
    let listing = Listing::add(
        conn,
        &state.principal,
        &spec,
        shard,
        &reader.cell,
        (reader.id, start),
    );
    let subscription_id = listing.id();
    let answer = Subscribed {
        subscription_id,
        start_offset: offsets.then_some(start.0),
        live_offset: offsets.then_some(live.0),
        queue_capacity: ask.queue_capacity,
    };
    let records = ask.records && state.peer.extensions.contains(Extension::Records);
    let form = Form::choose(&state.peer, subscription_id, offsets, records, &spec.id);
    Ok(Subscription {
        answer: answer.into(),
        egress: Egress {
            conn: Arc::clone(conn),
            peer: state.peer,
            reader,
            mailbox,
            send,
            form,
            subscription_id,
            durable,
            position: start,
            rests: Rests::on(state, move |principal| may_read(principal, &id)),
            listing,
            open,
        },
    })
}

fn not_subscribed(why: SubscribeRefused, start: Start) -> NotSubscribed {
    let requested = match start {
        Start::Offset(offset) => offset.0,
        Start::Latest | Start::Earliest => 0,
    };
    let cursor = |reason, available: Offset| {
        NotSubscribed::Cursor(SubscribeCursorError {
            reason,
            requested,
            available: available.0,
            trim_headers: None,
        })
    };
    match why {
        SubscribeRefused::TooOld { oldest } => cursor(CursorReason::TooOld, oldest),
        SubscribeRefused::InFuture { next } => cursor(CursorReason::InFuture, next),
        SubscribeRefused::TooManyReaders { .. } => {
            Failure::new(Code::LimitExceeded, why.to_string())
                .with_reason("subscriptions")
                .into()
        }
        SubscribeRefused::Duplicate => Failure::new(Code::Internal, why.to_string()).into(),
        SubscribeRefused::Closed { reason } => closed(reason).into(),
    }
}

/// A reader of a shard; dropped, it unsubscribes.
struct Reader {
    cell: Arc<Cell>,
    id: ReaderId,
    mailbox: Arc<Mailbox>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cell.unsubscribe(self.id, &self.mailbox);
    }
}

/// Writes one subscription out.
struct Egress {
    conn: Arc<Conn>,
    peer: Peer,
    reader: Reader,
    mailbox: Arc<Mailbox>,
    send: SendStream,
    form: Form,
    subscription_id: u64,
    durable: bool,
    /// Everything below it was written. Exclusive.
    position: Offset,
    rests: Rests,
    listing: Listing,
    open: OpenSubscription,
}

impl Egress {
    async fn run(mut self) {
        // The hello is the first thing on the stream and goes out in one write: a client waits for it before it
        // looks at any other stream.
        let hello = EventStreamHello {
            subscription_id: self.subscription_id,
        };
        let mut chunks = vec![Message::from(hello).encode()];
        let stopped = self.send.stopped();
        tokio::pin!(stopped);
        let standing = Arc::clone(self.rests.standing());
        let moved = standing.changed();
        tokio::pin!(moved);
        loop {
            if !chunks.is_empty() && self.rests.write(&mut self.send, &mut chunks).await.is_err() {
                return;
            }
            self.reader.cell.pull(self.reader.id, PULL_BYTES);
            let said = loop {
                if let Err(barred) = self.rests.look() {
                    return self.barred(barred).await;
                }
                tokio::select! {
                    biased;
                    said = self.mailbox.take() => break said,
                    () = &mut moved => moved.set(standing.changed()),
                    _ = &mut stopped => return,
                }
            };
            match said {
                Said::Deliver(delivery) => match frames(&self.form, &delivery, &mut chunks) {
                    Ok(delivered) => {
                        self.position = delivered.next;
                        self.listing.delivered(delivered.next, delivery.lost);
                        let metrics = &self.conn.shared.metrics;
                        metrics.delivered_messages.increment(delivered.records);
                        metrics.delivered_bytes.increment(delivered.bytes);
                        if delivery.lost > 0 {
                            metrics.dropped.increment(delivery.lost);
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "a stored batch cannot be delivered");
                        let failure = Failure::new(Code::Storage, error.to_string());
                        return self.end(Ending::Failed(failure)).await;
                    }
                },
                // What was revoked with a deletion is told as revoked.
                Said::Ended(why) => match self.rests.look() {
                    Err(barred) => return self.barred(barred).await,
                    Ok(()) => return self.ended(why).await,
                },
                Said::Subscribed { .. } | Said::Refused(_) => return,
            }
        }
    }

    async fn barred(self, why: Barred) {
        let ending = match why {
            Barred::Expired => self.goes_on_at(self.position),
            Barred::Refused(failure) => Ending::Failed(failure),
        };
        self.end(ending).await;
    }

    /// The client is to subscribe again here, from this offset.
    fn goes_on_at(&self, offset: Offset) -> Ending {
        Ending::Moved(ShardMoved {
            subscription_id: self.subscription_id,
            resume_from: self.durable.then_some(offset.0),
            node_id: Some(self.conn.shared.config.node_id.clone()),
            addr: None,
            generation: 0,
        })
    }

    async fn ended(self, why: ReaderEnd) {
        let subscription_id = self.subscription_id;
        let ending = match why {
            ReaderEnd::TooOld { position, .. } => Ending::Lagged(SubscriptionLagged {
                subscription_id,
                resume_from: position.0,
            }),
            ReaderEnd::Unreadable { position } => Ending::Failed(
                Failure::new(
                    Code::Storage,
                    format!("the log cannot be read at offset {position}"),
                )
                .with_reason("unreadable"),
            ),
            ReaderEnd::Closed {
                reason: CloseReason::Deleted,
                ..
            } => Ending::Deleted(StreamDeleted { subscription_id }),
            // The connection is about to be closed, which is what makes a client resume elsewhere; a finished
            // stream would mean the end.
            ReaderEnd::Closed {
                reason: CloseReason::Stopping,
                ..
            } => {
                self.conn.closed().await;
                return;
            }
            ReaderEnd::Closed {
                reason: CloseReason::Moved | CloseReason::Reopening,
                resume: offset,
            } => self.goes_on_at(offset),
        };
        self.end(ending).await;
    }

    async fn end(mut self, ending: Ending) {
        let last = self.peer.ending(ending).map(|last| last.encode());
        last_words(&mut self.send, last).await;
        drop(self.open);
    }
}
