//! Watches: the changes of a key, or of all keys with a prefix, on an event stream.
//!
//! A watch is a reader of the shard's log with a filter. Current values come first when they were asked for, or when
//! compaction collapsed the history that was asked for; they are those whose records lie below the offset the reader
//! was attached at, and whatever changed since follows from the log, so nothing is missed in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_auth::{Action, Principal};
use felix_engine::cache::Found;
use felix_engine::keyed::{Entry, Key};
use felix_engine::{CloseReason, ReaderEnd, ReaderId, Start, SubscribeRefused};
use felix_journal::LogReader;
use felix_model::{CacheId, Offset, Record, Records, ShardIndex};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    CacheWatch, CacheWatchLagged, CacheWatchStarted, CursorReason, EventStreamHello, Message,
    ShardMoved, SubscribeCursorError,
};
use felix_wire::negotiate::{Ending, Peer};
use quinn::SendStream;

use super::call::{read_current, shard_of_key, unreadable, value_of};
use super::cell::Cell;
use super::events::{Filter, event, events};
use super::{CacheHandle, CacheSpec, Kind, closed, forbidden, may_key, may_prefix};
use crate::conn::egress::{Barred, Rests, last_words};
use crate::conn::stream::StreamState;
use crate::conn::{Conn, OpenSubscription};
use crate::limits::PULL_BYTES;
use crate::shards::cell::now;
use crate::shards::mailbox::{Delivery, Mailbox, Said};

/// How long a client may take to grant the event stream. Published clients grant a thousand ahead.
const EVENT_STREAM_WAIT: Duration = Duration::from_secs(5);

/// Current values one watch may begin with: what is to be sent is listed before the first of it is.
const RETAINED_MAX: usize = 2_000_000;

/// Entries taken at once under the shard's mutex.
const ROWS_PER_STEP: usize = 2048;

/// Current values written out at once.
const RETAINED_PER_WRITE: usize = 256;

/// Bytes read ahead for current values that are not in memory and lie close together.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// Answers `cache_watch`, and starts the event stream.
pub(crate) async fn watch(state: &mut StreamState, ask: CacheWatch) {
    match begin(state, ask).await {
        Ok((answer, egress)) => {
            state.answers.push(answer.encode());
            state.conn.tasks.spawn(egress.run());
        }
        Err(NotWatched::Cursor(error)) => state.answers.push(Message::from(error).encode()),
        Err(NotWatched::Failed(failure)) => {
            state.answers.push(state.peer.error(failure).encode());
        }
    }
}

enum NotWatched {
    Failed(Failure),
    Cursor(SubscribeCursorError),
}

impl From<Failure> for NotWatched {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn invalid(message: &str) -> Failure {
    Failure::new(Code::InvalidRequest, message)
}

fn filter(ask: &CacheWatch) -> Result<Filter, Failure> {
    if ask.retained && ask.from_offset.is_some() {
        return Err(invalid(
            "a watch begins with current values or at an offset, not both",
        ));
    }
    match (&ask.key, &ask.prefix) {
        (Some(key), None) => Ok(Filter::Key(Bytes::copy_from_slice(key.as_bytes()))),
        (None, Some(prefix)) => Ok(Filter::Prefix(Bytes::copy_from_slice(prefix.as_bytes()))),
        (Some(_), Some(_)) | (None, None) => Err(invalid("a watch names either a key or a prefix")),
    }
}

fn check(principal: &Principal, id: &CacheId, filter: &Filter) -> Result<(), Failure> {
    let allowed = match filter {
        Filter::Key(key) => may_key(principal, Action::CacheWatch, id, key),
        Filter::Prefix(prefix) => may_prefix(principal, Action::CacheWatch, id, prefix),
    };
    if allowed {
        Ok(())
    } else {
        Err(forbidden("cache.watch", id))
    }
}

fn shard(spec: &CacheSpec, filter: &Filter, asked: Option<u32>) -> Result<ShardIndex, Failure> {
    let shards = spec.shards;
    match (filter, asked) {
        (Filter::Key(key), _) => Ok(shard_of_key(key, shards)),
        (Filter::Prefix(_), Some(shard)) if shard < shards => Ok(ShardIndex(shard)),
        (Filter::Prefix(_), Some(shard)) => Err(invalid(&format!(
            "shard {shard} is out of range: the cache has {shards} shards"
        ))),
        (Filter::Prefix(_), None) if shards == 1 => Ok(ShardIndex(0)),
        (Filter::Prefix(_), None) => Err(invalid(&format!(
            "a prefix of a cache with {shards} shards is watched shard by shard; name one"
        ))
        .with_reason("shard")),
    }
}

async fn begin(state: &mut StreamState, ask: CacheWatch) -> Result<(Message, Egress), NotWatched> {
    let filter = filter(&ask)?;
    let id = state.cache_id(&ask.tenant_id, &ask.namespace, &ask.cache)?;
    check(&state.principal, &id, &filter)?;
    let handle = state.cache(&id).await?;
    let shard = shard(handle.spec(), &filter, ask.shard)?;
    let cell = open(state, &handle, shard).await?;
    let conn = &state.conn;
    let open = conn.open_subscription(&state.used, state.user(id.namespace.as_str()))?;
    let attached = attach(&cell, ask.from_offset.map(Offset)).await?;
    let with_values = ask.retained || attached.resnapshot;
    let retained = if with_values {
        current(&cell, &filter, attached.live).await?
    } else {
        Vec::new()
    };
    // Not before the watch stands: a stream that was opened and is dropped reaches the client as one that ends
    // without a hello.
    let stream = tokio::time::timeout(EVENT_STREAM_WAIT, conn.open_uni()).await;
    let Ok(Some(send)) = stream else {
        return Err(Failure::new(
            Code::LimitExceeded,
            "the client granted no stream to send events on",
        )
        .with_reason("event_streams")
        .into());
    };
    let subscription_id = conn.shared.subscriptions.next_id();
    let answer = CacheWatchStarted {
        subscription_id,
        resume_offset: attached.live.0,
        resnapshot: attached.resnapshot,
        retained_count: ask.retained.then_some(retained.len() as u64),
    };
    conn.shared.metrics.cache_watches.increment(1.0);
    let watched = filter.clone();
    let egress = Egress {
        conn: Arc::clone(conn),
        peer: state.peer,
        durable: matches!(handle.spec().kind, Kind::Durable { .. }),
        position: attached.from,
        log: cell.log().map(|log| log.reader()),
        reader: attached.reader,
        mailbox: attached.mailbox,
        send,
        filter,
        retained: retained.into(),
        subscription_id,
        rests: Rests::on(state, move |principal| check(principal, &id, &watched)),
        _open: open,
    };
    Ok((answer.into(), egress))
}

async fn open(
    state: &StreamState,
    handle: &Arc<CacheHandle>,
    shard: ShardIndex,
) -> Result<Arc<Cell>, Failure> {
    match handle.open_cell(shard) {
        Some(cell) => Ok(cell),
        None => {
            let opening = state.conn.shared.caches.open(handle, shard);
            opening.await.map_err(|error| error.failure())
        }
    }
}

/// A reader that stands where a watch is to begin.
struct Attached {
    reader: Reader,
    mailbox: Arc<Mailbox>,
    /// Where it begins to read.
    from: Offset,
    /// What comes from here on is live. Exclusive end of what was committed.
    live: Offset,
    /// The history that was asked for is not whole any more: current values come in its place.
    resnapshot: bool,
}

async fn attach(cell: &Arc<Cell>, from: Option<Offset>) -> Result<Attached, NotWatched> {
    let is_collapsed = || from.is_some_and(|from| from < cell.history_start());
    let collapsed = is_collapsed();
    let start = match from {
        Some(from) if !collapsed => Start::Offset(from),
        Some(_) | None => Start::Latest,
    };
    let attached = match subscribe(cell, start).await {
        // Compaction came by meanwhile.
        Ok(_) if !collapsed && is_collapsed() => Err(SubscribeRefused::TooOld {
            oldest: cell.history_start(),
        }),
        attached => attached,
    };
    match attached {
        Err(SubscribeRefused::TooOld { .. }) => {
            let attached = subscribe(cell, Start::Latest).await;
            let attached = attached.map_err(|why| refused(why, from))?;
            Ok(Attached {
                resnapshot: true,
                ..attached
            })
        }
        Err(why) => Err(refused(why, from)),
        Ok(attached) => Ok(Attached {
            resnapshot: collapsed,
            ..attached
        }),
    }
}

async fn subscribe(cell: &Arc<Cell>, start: Start) -> Result<Attached, SubscribeRefused> {
    let (id, mailbox) = cell.subscribe(start);
    let reader = Reader {
        cell: Arc::clone(cell),
        id,
    };
    match mailbox.take().await {
        Said::Subscribed { start, live } => Ok(Attached {
            reader,
            mailbox,
            from: start,
            live,
            resnapshot: false,
        }),
        Said::Refused(why) => Err(why),
        // Nothing is delivered to a reader that did not ask.
        Said::Deliver(_) | Said::Ended(_) => Err(SubscribeRefused::Closed {
            reason: CloseReason::Reopening,
        }),
    }
}

fn refused(why: SubscribeRefused, from: Option<Offset>) -> NotWatched {
    let requested = from.map_or(0, |from| from.0);
    let cursor = |reason, available: Offset| {
        NotWatched::Cursor(SubscribeCursorError {
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

/// The live entries of the watched keys whose records lie below `until`, in order of these.
async fn current(
    cell: &Arc<Cell>,
    filter: &Filter,
    until: Offset,
) -> Result<Vec<(Key, Entry)>, Failure> {
    let (cell, filter) = (Arc::clone(cell), filter.clone());
    let listing = tokio::task::spawn_blocking(move || list(&cell, &filter, until));
    listing.await.unwrap_or_else(|_| {
        Err(Failure::new(
            Code::Internal,
            "listing the current values was interrupted",
        ))
    })
}

fn list(cell: &Cell, filter: &Filter, until: Offset) -> Result<Vec<(Key, Entry)>, Failure> {
    let mut found: Vec<(Key, Entry)> = Vec::new();
    if let Filter::Key(key) = filter {
        let entry = cell.current(key).map(|(entry, _)| entry);
        let entry = entry.filter(|entry| entry.is_live(now()) && entry.offset < until);
        return Ok(entry
            .map(|entry| (Key::from(key.as_ref()), entry))
            .into_iter()
            .collect());
    }
    let mut after: Option<Key> = None;
    loop {
        let rows = cell.walk(filter.prefix(), after.as_ref(), ROWS_PER_STEP);
        let Some((last, _)) = rows.last() else { break };
        after = Some(Key::clone(last));
        let now = now();
        found.extend(
            rows.into_iter()
                .filter(|(_, entry)| entry.is_live(now) && entry.offset < until),
        );
        if found.len() > RETAINED_MAX {
            return Err(Failure::new(
                Code::LimitExceeded,
                format!("more than {RETAINED_MAX} current values; watch shorter pieces"),
            )
            .with_reason("retained"));
        }
    }
    found.sort_unstable_by_key(|(_, entry)| entry.offset);
    Ok(found)
}

/// A reader of a shard; dropped, it unsubscribes.
struct Reader {
    cell: Arc<Cell>,
    id: ReaderId,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cell.unsubscribe(self.id);
    }
}

/// Writes one watch out.
struct Egress {
    conn: Arc<Conn>,
    peer: Peer,
    durable: bool,
    reader: Reader,
    mailbox: Arc<Mailbox>,
    /// Everything below it was delivered. Exclusive.
    position: Offset,
    /// Of a durable cache.
    log: Option<LogReader>,
    send: SendStream,
    filter: Filter,
    /// Current values still to be sent.
    retained: VecDeque<(Key, Entry)>,
    subscription_id: u64,
    rests: Rests,
    _open: OpenSubscription,
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.conn.shared.metrics.cache_watches.decrement(1.0);
    }
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
            if !self.retained.is_empty() {
                // Current values are in no order to resume in: who is to come back has them all.
                if let Err(Barred::Refused(failure)) = self.rests.look_ahead() {
                    return self.end(Some(Ending::Failed(failure))).await;
                }
                match self.next_retained().await {
                    Ok(frames) => chunks = frames,
                    Err(failure) => return self.end(Some(Ending::Failed(failure))).await,
                }
                continue;
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
                Said::Deliver(delivery) if delivery.lost > 0 => {
                    let first = Offset(delivery.from.0.saturating_sub(delivery.lost));
                    return self.lagged(first).await;
                }
                // Compaction overtook the watch: deletions may be missing from what was read, and from what follows.
                Said::Deliver(_) if is_overtaken(self.position, self.log.as_ref()) => {
                    let position = self.position;
                    return self.lagged(position).await;
                }
                Said::Deliver(delivery) => {
                    if let Err(error) = self.deliver(&delivery, &mut chunks) {
                        tracing::error!(%error, "a stored batch of a cache cannot be delivered");
                        let failure = Failure::new(Code::Storage, error.to_string());
                        return self.end(Some(Ending::Failed(failure))).await;
                    }
                    if let Some(last) = delivery.batches.iter().last() {
                        self.position = last.end;
                    }
                }
                // What was revoked with a deletion is told as revoked.
                Said::Ended(why) => match self.rests.look() {
                    Err(barred) => return self.barred(barred).await,
                    Ok(()) => return self.ended(why).await,
                },
                Said::Subscribed { .. } | Said::Refused(_) => return,
            }
        }
    }

    fn deliver(
        &self,
        delivery: &Delivery,
        chunks: &mut Vec<Bytes>,
    ) -> Result<(), felix_model::BatchRefused> {
        let now = now();
        for batch in delivery.batches.iter() {
            events(batch, delivery.from, &self.filter, now, chunks)?;
        }
        let metrics = &self.conn.shared.metrics;
        metrics.delivered_messages.increment(chunks.len() as u64);
        Ok(())
    }

    /// The frames of some of the current values.
    async fn next_retained(&mut self) -> Result<Vec<Bytes>, Failure> {
        let step = self.retained.len().min(RETAINED_PER_WRITE);
        let rows: Vec<_> = self.retained.drain(..step).collect();
        let cell = Arc::clone(&self.reader.cell);
        let reading = tokio::task::spawn_blocking(move || retained_frames(&cell, rows));
        reading.await.unwrap_or_else(|_| {
            Err(Failure::new(
                Code::Internal,
                "reading the current values was interrupted",
            ))
        })
    }

    async fn barred(self, why: Barred) {
        let ending = match why {
            Barred::Expired => self.goes_on_at(self.position),
            Barred::Refused(failure) => Ending::Failed(failure),
        };
        self.end(Some(ending)).await;
    }

    /// The client is to watch again here, from this offset.
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
        match why {
            ReaderEnd::TooOld { position, .. } => self.lagged(position).await,
            ReaderEnd::Unreadable { position } => {
                let failure = unreadable(position, &"see the broker's own log");
                let failure = failure.with_reason("unreadable");
                self.end(Some(Ending::Failed(failure))).await;
            }
            // The connection is about to be closed, which is what makes a client resume elsewhere; a finished stream
            // would mean the end.
            ReaderEnd::Closed {
                reason: CloseReason::Stopping,
                ..
            } => {
                self.conn.closed().await;
            }
            ReaderEnd::Closed {
                reason: reason @ CloseReason::Deleted,
                ..
            } => self.end(Some(Ending::Failed(closed(reason)))).await,
            ReaderEnd::Closed {
                reason: CloseReason::Moved | CloseReason::Reopening,
                resume,
            } => {
                let moved = self.goes_on_at(resume);
                self.end(Some(moved)).await;
            }
        }
    }

    async fn lagged(mut self, resume: Offset) {
        let lagged = CacheWatchLagged {
            resume_from: resume.0,
        };
        // A client that is gone needs no ending.
        let _ = self.send.write_chunk(Message::from(lagged).encode()).await;
        self.end(None).await;
    }

    async fn end(mut self, ending: Option<Ending>) {
        let last = ending.and_then(|ending| self.peer.ending(ending));
        last_words(&mut self.send, last.map(|last| last.encode())).await;
    }
}

/// Whether deletions that a watch has not seen yet may be gone from the log. Asked after a page was read: what is read
/// from compacted files is read after the floor was raised.
fn is_overtaken(position: Offset, log: Option<&LogReader>) -> bool {
    log.is_some_and(|log| position < log.tombstone_floor())
}

/// The events of current values, which are in order of their offsets. One that was overwritten and compacted away
/// meanwhile is told as the key's value of now, so that there are as many as were announced. Blocking.
fn retained_frames(cell: &Cell, rows: Vec<(Key, Entry)>) -> Result<Vec<Bytes>, Failure> {
    let log = cell.log().map(|log| log.reader());
    let mut ahead = Ahead::default();
    let mut frames = Vec::with_capacity(rows.len());
    for (key, entry) in rows {
        let mut value = cell.value(entry.offset);
        if let (None, Some(log)) = (&value, &log) {
            value = ahead.value(log, &key, entry.offset)?;
        }
        let found = Found {
            version: entry.offset,
            expires: entry.expires,
            length: entry.length,
            value,
        };
        let found = read_current(cell, log.as_ref(), &key, found)?;
        let version = found.as_ref().map_or(entry.offset, |found| found.version);
        let value = found.and_then(|found| Some((found.value?, found.expires)));
        frames.push(event(&key, value, version, now()));
    }
    Ok(frames)
}

/// Records read ahead, for rows that lie close together.
#[derive(Default)]
struct Ahead(VecDeque<Record>);

impl Ahead {
    fn value(
        &mut self,
        log: &LogReader,
        key: &[u8],
        offset: Offset,
    ) -> Result<Option<Bytes>, Failure> {
        let last = self.0.back().map(|record| record.offset);
        if last.is_none_or(|last| last < offset) {
            self.0.clear();
            let page = log
                .read(offset, READ_AHEAD_BYTES, log.end())
                .map_err(|error| unreadable(offset, &error))?;
            for batch in &page.batches {
                for record in Records::new(batch).map_err(|error| unreadable(offset, &error))? {
                    self.0
                        .push_back(record.map_err(|error| unreadable(offset, &error))?);
                }
            }
        }
        while self
            .0
            .pop_front_if(|record| record.offset < offset)
            .is_some()
        {}
        let found = self.0.front().filter(|record| record.offset == offset);
        match found {
            Some(record) => value_of(record.clone(), key),
            None => Ok(None),
        }
    }
}
