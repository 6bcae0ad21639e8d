//! Questions and single changes: one request, one answer.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use felix_model::Routing;
use felix_wire::message::{
    BrokerAddress, CursorReason, Message, ObjectKind, OffsetForTime, ProducerInit, PublishIf,
    RefusedReason, ShardInspect, ShardOwner, ShardOwners, ShardView, StreamRead, StreamRecord,
    StreamShards, SubscribeCursorError, SubscriptionCursor, SubscriptionFilter, SubscriptionView,
    SubscriptionsList,
};
use felix_wire::negotiate::Features;
use tokio::time::Instant;

use crate::calls::{Call, unexpected};
use crate::client::{Client, Inner};
use crate::error::{CallFailed, PublishFailed, ReadFailed};
use crate::limits::WIDTH_TTL;
use crate::publish::{IdempotentProducer, Prepared, Published, Purpose, Target};
use crate::record::Record;

/// How many shards a stream has and how keys choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Width {
    /// At least 1.
    pub shards: u32,
    /// What a key's shard is computed by.
    pub routing: Routing,
}

/// Widths that were asked for, by namespace and stream, with the time.
pub(crate) type Widths = BTreeMap<(String, String), (Instant, Width)>;

/// What a page of records may hold; 0 stands for the broker's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLimits {
    /// Exclusive end; `None` for the committed end of the log.
    pub end: Option<u64>,
    /// Most records.
    pub records: u32,
    /// Most payload bytes; a single record may exceed it.
    pub bytes: u64,
}

/// One page of a shard's records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Ascending.
    pub records: Vec<StreamRecord>,
    /// Where the next page begins; may pass over offsets that hold no event.
    pub next_offset: u64,
}

/// One page of live subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscriptions {
    /// The broker that answered, which lists only its own.
    pub node_id: String,
    /// By shard, then by subscriber.
    pub subscriptions: Vec<SubscriptionView>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<SubscriptionCursor>,
}

/// Takes the answer out of its message if it is of this type and to this request.
macro_rules! answer {
    ($answer:expr, $variant:ident, $id:expr) => {
        match $answer {
            Message::$variant(answer) if answer.request_id == $id => Ok(answer),
            other => Err(unexpected(&other)),
        }
    };
}

impl Client {
    /// The brokers that take new clients, as the entry broker knows them.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn topology(&self) -> Result<Vec<BrokerAddress>, CallFailed> {
        let call = Call::read(Message::Topology).needs(Features::TOPOLOGY, "topology");
        let answer = self.inner.call(call).await?.answer;
        let Message::TopologyView(view) = answer else {
            return Err(unexpected(&answer));
        };
        Ok(view.brokers)
    }

    /// How many shards a stream has and how keys choose one.
    ///
    /// # Errors
    /// [`CallFailed::Refused`] with `not_found` when the stream is unknown.
    pub async fn stream_shards(&self, stream: &str) -> Result<Width, CallFailed> {
        let target = self.named(stream)?;
        self.inner.ask_width(&target).await
    }

    /// Which broker leads each shard of a stream, in shard order. A broker that stands alone names nobody.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn shard_owners(&self, stream: &str) -> Result<Vec<ShardOwner>, CallFailed> {
        let (tenant_id, namespace, name) = self.named(stream)?.strings();
        let request_id = self.inner.next_request();
        let kind = ObjectKind::Stream;
        let ask = ShardOwners {
            tenant_id,
            namespace,
            name,
            kind,
            request_id,
        };
        let call = Call::read(ask).needs(Features::SHARD_OWNERS, "shard_owners");
        let answer = self.inner.call(call).await?.answer;
        answer!(answer, ShardOwnersView, request_id).map(|view| view.owners)
    }

    /// The first offset of a shard whose record was appended at or after `time`; `None` when nothing is that
    /// recent. For a time before everything retained, the oldest retained offset.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn offset_for_time(
        &self,
        stream: &str,
        shard: u32,
        time: SystemTime,
    ) -> Result<Option<u64>, CallFailed> {
        let (tenant_id, namespace, stream) = self.named(stream)?.strings();
        let request_id = self.inner.next_request();
        let at_micros = micros(time);
        let ask = OffsetForTime {
            tenant_id,
            namespace,
            stream,
            shard,
            at_micros,
            request_id,
        };
        let call = Call::read(ask).needs(Features::RECORD_TIMESTAMPS, "offset_for_time");
        let answer = self.inner.call(call).await?.answer;
        answer!(answer, OffsetValue, request_id).map(|value| value.offset)
    }

    /// One page of committed records from offset `from`, without waiting for more.
    ///
    /// # Errors
    /// [`ReadFailed::TooOld`] and [`ReadFailed::InFuture`] when the offset is outside the log.
    pub async fn stream_read(
        &self,
        stream: &str,
        shard: u32,
        from: u64,
        limits: PageLimits,
    ) -> Result<Page, ReadFailed> {
        let (tenant_id, namespace, stream) = self.named(stream)?.strings();
        let request_id = self.inner.next_request();
        let call = Call::read(StreamRead {
            tenant_id,
            namespace,
            stream,
            shard,
            from,
            end: limits.end,
            max_records: limits.records,
            max_bytes: limits.bytes,
            request_id,
        });
        let call = call.needs(Features::STREAM_READ, "stream_read");
        let answer = self.inner.call(call).await?.answer;
        if let Message::SubscribeCursorError(error) = answer {
            return Err(error.into());
        }
        let page = answer!(answer, StreamRecords, request_id)?;
        Ok(Page {
            records: page.records,
            next_offset: page.next_offset,
        })
    }

    /// Appends records of one key as one batch if the shard's next offset is `expected`, or not at all.
    ///
    /// # Errors
    /// [`PublishFailed::OffsetMismatch`] names the next offset; nothing was appended then.
    pub async fn publish_if<I>(
        &self,
        stream: &str,
        expected: u64,
        records: I,
    ) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.publish_if_to(stream, None, expected, records).await
    }

    /// As [`publish_if`](Self::publish_if), to a shard that is named instead of chosen by the key.
    ///
    /// # Errors
    /// As [`publish_if`](Self::publish_if).
    pub async fn publish_if_on_shard<I>(
        &self,
        stream: &str,
        shard: u32,
        expected: u64,
        records: I,
    ) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.publish_if_to(stream, Some(shard), expected, records)
            .await
    }

    async fn publish_if_to<I>(
        &self,
        stream: &str,
        shard: Option<u32>,
        expected: u64,
        records: I,
    ) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        let target = self.target(stream)?;
        let records: Vec<Record> = records.into_iter().map(Into::into).collect();
        let granted = self.inner.brokers.entry(0).await?.granted;
        let prepared = Prepared::new(records, shard, Purpose::Checked, &target, granted)?;
        let (tenant_id, namespace, stream) = target.strings();
        let request_id = self.inner.next_request();
        let ask = PublishIf {
            tenant_id,
            namespace,
            stream,
            payloads: prepared.payloads()?,
            key: prepared.key_bytes(),
            shard,
            expected_offset: expected,
            request_id,
        };
        let call = Call::change(ask).needs(Features::PUBLISH_CONDITIONAL, "publish_if");
        read_publish_if(self.inner.call(call).await?.answer, request_id, expected)
    }

    /// A producer whose batches are appended exactly once, in order.
    ///
    /// # Errors
    /// [`PublishFailed`] when no id could be had.
    pub async fn idempotent_producer(
        &self,
        stream: &str,
    ) -> Result<IdempotentProducer, PublishFailed> {
        let target = self.target(stream)?;
        let request_id = self.inner.next_request();
        // An id that was handed out and never arrived is one nobody uses: asking again does no harm.
        let call = Call::read(ProducerInit { request_id })
            .needs(Features::IDEMPOTENT_PRODUCER, "producer_init");
        let answer = self.inner.call(call).await?.answer;
        let id = answer!(answer, ProducerInitOk, request_id)?.producer_id;
        let slot = self.inner.next_slot();
        Ok(IdempotentProducer::new(
            Arc::clone(&self.inner),
            Arc::new(target),
            id,
            slot,
        ))
    }

    /// How the entry broker sees one shard of a stream from the inside. Needs the right to view nodes.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn inspect_shard(&self, stream: &str, shard: u32) -> Result<ShardView, CallFailed> {
        let (tenant_id, namespace, name) = self.named(stream)?.strings();
        let request_id = self.inner.next_request();
        let kind = ObjectKind::Stream;
        let ask = ShardInspect {
            tenant_id,
            namespace,
            name,
            kind,
            shard,
            request_id,
        };
        let call = Call::read(ask).needs(Features::INSPECT, "shard_inspect");
        let answer = self.inner.call(call).await?.answer;
        answer!(answer, ShardInspection, request_id).map(|inspection| *inspection.view)
    }

    /// One page of the entry broker's live subscriptions: `limit` of them, or as many as the broker likes for
    /// `None`. Needs the right to view nodes.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn subscriptions(
        &self,
        filter: SubscriptionFilter,
        limit: Option<u32>,
        cursor: Option<SubscriptionCursor>,
    ) -> Result<Subscriptions, CallFailed> {
        let request_id = self.inner.next_request();
        let (filter, cursor) = (Box::new(filter), cursor.map(Box::new));
        let ask = SubscriptionsList {
            filter,
            limit,
            cursor,
            request_id,
        };
        let call = Call::read(ask).needs(Features::INSPECT, "subscriptions_list");
        let answer = self.inner.call(call).await?.answer;
        let page = answer!(answer, SubscriptionsPage, request_id)?;
        Ok(Subscriptions {
            node_id: page.node_id,
            subscriptions: page.subscriptions,
            next: page.next_cursor.map(|cursor| *cursor),
        })
    }

    /// A name that is only asked about: one nobody can have is one nobody has.
    pub(crate) fn named(&self, stream: &str) -> Result<Target, CallFailed> {
        self.target(stream).map_err(|why| {
            let not_found = felix_wire::Code::NotFound;
            let failure = felix_wire::Failure::new(not_found, format!("no such stream: {why}"));
            CallFailed::Refused(failure.with_retry(felix_wire::Retry::Fatal).into())
        })
    }
}

impl Inner {
    /// The shard a key goes to.
    pub(crate) async fn shard_of(
        self: &Arc<Self>,
        target: &Target,
        key: &[u8],
    ) -> Result<u32, CallFailed> {
        let name = (
            target.namespace.as_str().to_owned(),
            target.stream.as_str().to_owned(),
        );
        let known = {
            let widths = self.widths.lock().unwrap_or_else(PoisonError::into_inner);
            widths
                .get(&name)
                .filter(|(since, _)| since.elapsed() < WIDTH_TTL)
                .map(|(_, width)| *width)
        };
        let width = match known {
            Some(width) => width,
            None => self.ask_width(target).await?,
        };
        Ok(width.routing.shard(Some(key), width.shards).0)
    }

    /// Asks how wide a stream is, and remembers the answer for a while.
    pub(crate) async fn ask_width(self: &Arc<Self>, target: &Target) -> Result<Width, CallFailed> {
        let (tenant_id, namespace, stream) = target.strings();
        let name = (namespace.clone(), stream.clone());
        let request_id = self.next_request();
        let ask = StreamShards {
            tenant_id,
            namespace,
            stream,
            request_id,
        };
        let call = Call::read(ask).needs(Features::STREAM_SHARDS, "stream_shards");
        let answer = self.call(call).await?.answer;
        let view = answer!(answer, StreamShardsView, request_id)?;
        if view.shards == 0 {
            let message = format!("the broker knows no stream {}/{}", name.0, name.1);
            let failure = felix_wire::Failure::new(felix_wire::Code::NotFound, message);
            return Err(CallFailed::Refused(failure.into()));
        }
        let routing = view
            .routing
            .as_deref()
            .map_or(Ok(Routing::Modulo), str::parse);
        let routing = routing.map_err(|_| CallFailed::Unsupported {
            feature: "this stream's routing of keys",
        })?;
        let width = Width {
            shards: view.shards,
            routing,
        };
        let mut widths = self.widths.lock().unwrap_or_else(PoisonError::into_inner);
        widths.retain(|_, (since, _)| since.elapsed() < WIDTH_TTL);
        widths.insert(name, (Instant::now(), width));
        Ok(width)
    }
}

fn read_publish_if(
    answer: Message,
    request_id: u64,
    expected: u64,
) -> Result<Published, PublishFailed> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other message is no answer here"
    )]
    match answer {
        Message::PublishOk(ok) if ok.request_id == request_id => {
            Ok(Published { offset: ok.offset })
        }
        Message::PublishError(error) if error.request_id == request_id => {
            Err(CallFailed::Refused(error.into_failure().into()).into())
        }
        Message::PublishRefused(refused) if refused.request_id == request_id => {
            match refused.reason {
                RefusedReason::OffsetMismatch { tail } => Err(PublishFailed::OffsetMismatch {
                    next: tail,
                    expected,
                }),
                RefusedReason::NotLeader { .. }
                | RefusedReason::UnknownProducer
                | RefusedReason::SequenceExpired
                | RefusedReason::SequenceReused
                | RefusedReason::SequenceGap { .. } => {
                    let what = format!("{:?} does not answer publish_if", refused.reason);
                    Err(CallFailed::Protocol { what }.into())
                }
            }
        }
        other => Err(unexpected(&other).into()),
    }
}

impl From<SubscribeCursorError> for ReadFailed {
    fn from(error: SubscribeCursorError) -> Self {
        let SubscribeCursorError {
            reason,
            requested,
            available,
            ..
        } = error;
        match reason {
            CursorReason::TooOld => Self::TooOld {
                requested,
                oldest: available,
            },
            CursorReason::InFuture => Self::InFuture {
                requested,
                next: available,
            },
        }
    }
}

/// Unix microseconds; times before 1970 are as old as everything.
fn micros(time: SystemTime) -> u64 {
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
