//! JSON messages: one object with a `type`, one struct here for each.
//!
//! Fields are written in the order they are declared, optional ones only when present. Reading
//! ignores unknown fields, takes `null` for absent, and refuses a field that comes twice.

mod auth;
mod cache;
mod cluster;
mod commit;
mod group;
mod inspect;
mod publish;
mod read;
mod subscribe;
mod text;

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use self::auth::{Auth, AuthOk};
pub use self::cache::{
    CacheCondition, CacheConditionResult, CacheDelete, CacheDeleteIf, CacheEvent, CacheGet,
    CacheOk, CachePut, CachePutIf, CacheValue, CacheWatch, CacheWatchLagged, CacheWatchStarted,
    CounterAdd, CounterGet, CounterValue,
};
pub use self::cluster::{
    BrokerAddress, CacheShards, CacheShardsView, ExtensionRequest, NotLeader, ObjectKind,
    ROUTING_JUMP_HASH, ShardOwner, ShardOwners, ShardOwnersView, StreamShards, StreamShardsView,
    TopologyView, Unsupported,
};
pub use self::commit::{Change, Commit, CommitOk, StateGet, StateValue};
pub use self::group::{
    GroupAck, GroupDeadLetter, GroupDeadLetterList, GroupDeadLetters, GroupDelete, GroupDeleted,
    GroupDescribe, GroupDescription, GroupDiscard, GroupExtend, GroupExtended, GroupNack,
    GroupPoll, GroupPosition, GroupRecord, GroupRecords, GroupRedrive, GroupSeek,
};
pub use self::inspect::{
    ReplicaView, ShardAssignment, ShardFence, ShardInspect, ShardInspection, ShardLease, ShardView,
    SubscriptionCursor, SubscriptionFilter, SubscriptionView, SubscriptionsList, SubscriptionsPage,
};
pub use self::publish::{
    AckMode, ProducerInit, ProducerInitOk, PublishBatch, PublishError, PublishIdempotent,
    PublishIf, PublishOk, PublishOne, PublishRefused, PublishWidth, RefusedReason, TrimBefore,
    TrimOk,
};
pub use self::read::{OffsetForTime, OffsetValue, StreamRead, StreamRecord, StreamRecords};
pub use self::subscribe::{
    CursorReason, EventMany, EventOne, EventStreamHello, ShardMoved, Start, StreamDeleted,
    Subscribe, SubscribeCursorError, Subscribed, SubscriptionLagged,
};
pub use self::text::RawJson;
use crate::error::Failure;
use crate::flags::Flags;
use crate::frame::{HEADER_BYTES, Header, length_field};

/// Who says a message to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// A client, to a broker.
    Client,
    /// A broker, as the answer on the stream that asked.
    Broker,
    /// A broker, on an event stream.
    Event,
}

/// Writes the enum and everything that needs to name each message once.
macro_rules! messages {
    ($($(#[$doc:meta])* $speaker:ident $tag:literal $variant:ident $(($body:ty))?,)*) => {
        /// A JSON message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $variant $(($body))?,)*
            /// A `type` this library does not know.
            Unknown(Unknown),
        }

        impl Message {
            /// Every `type` there is, with who says it.
            pub const TYPES: &'static [(&'static str, Speaker)] =
                &[$(($tag, Speaker::$speaker)),*];

            /// The `type`.
            pub fn type_name(&self) -> &str {
                match self {
                    $(messages!(@pattern $variant $($body)?) => $tag,)*
                    Self::Unknown(unknown) => &unknown.request_type,
                }
            }

            /// Who says this message; nobody is known to say an unknown one.
            pub fn speaker(&self) -> Option<Speaker> {
                match self {
                    $(messages!(@pattern $variant $($body)?) => Some(Speaker::$speaker),)*
                    Self::Unknown(_) => None,
                }
            }

            fn decode_as(envelope: &Envelope<'_>, text: &str) -> serde_json::Result<Self> {
                match envelope.kind.as_ref() {
                    $($tag => messages!(@decode $variant text $($body)?),)*
                    _ => Ok(Self::Unknown(Unknown {
                        request_type: envelope.kind.as_ref().to_owned(),
                        request_id: envelope.request_id,
                    })),
                }
            }

            fn write_fields(&self, frame: &mut BytesMut) -> serde_json::Result<()> {
                match self {
                    $(messages!(@bind body $variant $($body)?) =>
                        messages!(@write body frame $($body)?),)*
                    Self::Unknown(unknown) => write_body(unknown, frame),
                }
            }
        }

        $($(
            impl From<$body> for Message {
                fn from(body: $body) -> Self {
                    Self::$variant(body)
                }
            }
        )?)*
    };
    (@pattern $variant:ident $body:ty) => { Self::$variant(_) };
    (@pattern $variant:ident) => { Self::$variant };
    (@bind $name:ident $variant:ident $body:ty) => { Self::$variant($name) };
    (@bind $name:ident $variant:ident) => { Self::$variant };
    (@decode $variant:ident $text:ident $body:ty) => {
        serde_json::from_str::<$body>($text).map(Self::$variant)
    };
    (@decode $variant:ident $text:ident) => { Ok(Self::$variant) };
    (@write $name:ident $frame:ident $body:ty) => { write_body($name, $frame) };
    (@write $name:ident $frame:ident) => { Ok(()) };
}

messages! {
    /// First frame of a stream: who opens it.
    Client "auth" Auth(Auth),
    /// The token was good, and what was granted.
    Broker "auth_ok" AuthOk(AuthOk),
    /// The token was good; for clients older than negotiation.
    Broker "ok" Ok,
    /// A refusal or failure.
    Broker "error" Error(Failure),
    /// The broker does not know the request.
    Broker "unsupported" Unsupported(Unsupported),
    /// Reserved for requests outside the protocol.
    Client "extension" Extension(ExtensionRequest),
    /// Asks where the brokers are.
    Client "topology" Topology,
    /// Where the brokers are.
    Broker "topology_view" TopologyView(TopologyView),
    /// Asks how wide a stream is.
    Client "stream_shards" StreamShards(StreamShards),
    /// How wide a stream is.
    Broker "stream_shards_view" StreamShardsView(StreamShardsView),
    /// Asks how wide a cache is.
    Client "cache_shards" CacheShards(CacheShards),
    /// How wide a cache is.
    Broker "cache_shards_view" CacheShardsView(CacheShardsView),
    /// Asks who leads the shards of an object.
    Client "shard_owners" ShardOwners(ShardOwners),
    /// Who leads the shards of an object.
    Broker "shard_owners_view" ShardOwnersView(ShardOwnersView),
    /// Another broker leads the shard.
    Broker "not_leader" NotLeader(NotLeader),
    /// Appends one payload.
    Client "publish" Publish(PublishOne),
    /// Appends a batch.
    Client "publish_batch" PublishBatch(PublishBatch),
    /// A publish succeeded.
    Broker "publish_ok" PublishOk(PublishOk),
    /// A publish failed.
    Broker "publish_error" PublishError(PublishError),
    /// Declares the width used for keyed batches.
    Client "publish_width" PublishWidth(PublishWidth),
    /// Asks for a producer id.
    Client "producer_init" ProducerInit(ProducerInit),
    /// A producer id.
    Broker "producer_init_ok" ProducerInitOk(ProducerInitOk),
    /// Appends a batch once, however often it is sent.
    Client "publish_idempotent" PublishIdempotent(PublishIdempotent),
    /// Appends a batch at one offset or not at all.
    Client "publish_if" PublishIf(PublishIf),
    /// The log's state does not allow the append.
    Broker "publish_refused" PublishRefused(PublishRefused),
    /// Hides everything below an offset.
    Client "trim_before" TrimBefore(TrimBefore),
    /// The floor stands.
    Broker "trim_ok" TrimOk(TrimOk),
    /// Asks for the records of a shard.
    Client "subscribe" Subscribe(Subscribe),
    /// The subscription stands.
    Broker "subscribed" Subscribed(Subscribed),
    /// The start offset cannot be served.
    Broker "subscribe_cursor_error" SubscribeCursorError(SubscribeCursorError),
    /// First frame of an event stream.
    Event "event_stream_hello" EventStreamHello(EventStreamHello),
    /// One event.
    Event "event" Event(EventOne),
    /// Several events.
    Event "event_batch" EventBatch(EventMany),
    /// The subscription goes on elsewhere.
    Event "shard_moved" ShardMoved(ShardMoved),
    /// The reader was too slow.
    Event "subscription_lagged" SubscriptionLagged(SubscriptionLagged),
    /// The stream is gone.
    Event "stream_deleted" StreamDeleted(StreamDeleted),
    /// Sets a key.
    Client "cache_put" CachePut(CachePut),
    /// Reads a key.
    Client "cache_get" CacheGet(CacheGet),
    /// Removes a key.
    Client "cache_delete" CacheDelete(CacheDelete),
    /// A key's value.
    Broker "cache_value" CacheValue(CacheValue),
    /// Done.
    Broker "cache_ok" CacheOk(CacheOk),
    /// Sets a key if a condition holds.
    Client "cache_put_if" CachePutIf(CachePutIf),
    /// Removes a key if it has a version.
    Client "cache_delete_if" CacheDeleteIf(CacheDeleteIf),
    /// How a conditional write went.
    Broker "cache_condition_result" CacheConditionResult(CacheConditionResult),
    /// Adds to a counter.
    Client "counter_add" CounterAdd(CounterAdd),
    /// Reads a counter.
    Client "counter_get" CounterGet(CounterGet),
    /// A counter's sum.
    Broker "counter_value" CounterValue(CounterValue),
    /// Asks for a cache's changes.
    Client "cache_watch" CacheWatch(CacheWatch),
    /// The watch stands.
    Broker "cache_watch_started" CacheWatchStarted(CacheWatchStarted),
    /// A watched key changed.
    Event "cache_event" CacheEvent(CacheEvent),
    /// The watcher was too slow.
    Event "cache_watch_lagged" CacheWatchLagged(CacheWatchLagged),
    /// Appends an event and changes state, in one record.
    Client "commit" Commit(Commit),
    /// The commit is in the log.
    Broker "commit_ok" CommitOk(CommitOk),
    /// Reads state.
    Client "state_get" StateGet(StateGet),
    /// State.
    Broker "state_value" StateValue(StateValue),
    /// Asks for records to work on.
    Client "group_poll" GroupPoll(GroupPoll),
    /// Records to work on.
    Broker "group_records" GroupRecords(GroupRecords),
    /// Finishes a record.
    Client "group_ack" GroupAck(GroupAck),
    /// Gives a record back.
    Client "group_nack" GroupNack(GroupNack),
    /// Prolongs a claim.
    Client "group_extend" GroupExtend(GroupExtend),
    /// How long the claim lasts now.
    Broker "group_extended" GroupExtended(GroupExtended),
    /// Sets a record aside.
    Client "group_dead_letter" GroupDeadLetter(GroupDeadLetter),
    /// Asks what was set aside.
    Client "group_dead_letters" GroupDeadLetters(GroupDeadLetters),
    /// What was set aside.
    Broker "group_dead_letter_list" GroupDeadLetterList(GroupDeadLetterList),
    /// Drops a record that was set aside.
    Client "group_discard" GroupDiscard(GroupDiscard),
    /// Makes a record that was set aside owed again.
    Client "group_redrive" GroupRedrive(GroupRedrive),
    /// Moves a group.
    Client "group_seek" GroupSeek(GroupSeek),
    /// Where a group stands.
    Broker "group_position" GroupPosition(GroupPosition),
    /// Asks how a group is doing.
    Client "group_describe" GroupDescribe(GroupDescribe),
    /// How a group is doing.
    Broker "group_info" GroupDescription(GroupDescription),
    /// Forgets a group.
    Client "group_delete" GroupDelete(GroupDelete),
    /// Whether there was a group to forget.
    Broker "group_deleted" GroupDeleted(GroupDeleted),
    /// Asks where the records of a time begin.
    Client "offset_for_time" OffsetForTime(OffsetForTime),
    /// Where the records of a time begin.
    Broker "offset_value" OffsetValue(OffsetValue),
    /// Reads one page of records.
    Client "stream_read" StreamRead(StreamRead),
    /// One page of records.
    Broker "stream_records" StreamRecords(StreamRecords),
    /// Asks how a broker sees a shard.
    Client "shard_inspect" ShardInspect(ShardInspect),
    /// How a broker sees a shard.
    Broker "shard_inspect_info" ShardInspection(ShardInspection),
    /// Asks for live subscriptions.
    Client "subscriptions_list" SubscriptionsList(SubscriptionsList),
    /// Live subscriptions.
    Broker "subscriptions_list_info" SubscriptionsPage(SubscriptionsPage),
}

/// A message of a `type` this library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The `type`.
    #[serde(skip)]
    pub request_type: String,
    /// Its `request_id`, if that was an unsigned integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// When the payload is not an object with a `type`, or a field of a known type is missing,
    /// doubled or of the wrong kind.
    pub fn decode(payload: &[u8]) -> Result<Self, MessageRefused> {
        let text = std::str::from_utf8(payload)
            .map_err(|error| MessageRefused::unreadable(format!("not UTF-8: {error}")))?;
        let envelope: Envelope<'_> = serde_json::from_str(text)
            .map_err(|error| MessageRefused::unreadable(error.to_string()))?;
        Self::decode_as(&envelope, text).map_err(|error| MessageRefused {
            request_type: Some(envelope.kind.as_ref().into()),
            request_id: envelope.request_id,
            reason: error.to_string(),
        })
    }

    /// The message as a frame, header included.
    ///
    /// The caller keeps lists and payloads so small that the frame stays under
    /// [`PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX); a peer refuses a longer one.
    pub fn encode(&self) -> Bytes {
        let mut frame = BytesMut::with_capacity(256);
        self.encode_into(&mut frame);
        frame.freeze()
    }

    /// Appends the message as a frame to a buffer.
    pub fn encode_into(&self, buffer: &mut BytesMut) {
        let start = buffer.len();
        buffer.put_bytes(0, HEADER_BYTES);
        buffer.put_slice(br#"{"type":"#);
        let written = serde_json::to_writer((&mut *buffer).writer(), self.type_name())
            .and_then(|()| self.write_fields(buffer));
        #[expect(
            clippy::expect_used,
            reason = "memory takes every write, and no message has a map or a fallible field"
        )]
        written.expect("a message is always JSON");
        buffer.put_u8(b'}');
        let length = length_field(buffer.len() - start - HEADER_BYTES);
        let header = Header {
            flags: Flags::NONE,
            length,
        }
        .encode();
        if let Some(room) = buffer.get_mut(start..start + HEADER_BYTES) {
            room.copy_from_slice(&header);
        }
    }
}

/// Appends a struct's fields, each with a comma before it, to an object that has its `type`.
fn write_body(body: &impl Serialize, frame: &mut BytesMut) -> serde_json::Result<()> {
    let start = frame.len();
    serde_json::to_writer((&mut *frame).writer(), body)?;
    // The struct was written as an object of its own: `{"a":1}`, or `{}` without fields.
    frame.truncate(frame.len() - 1);
    if frame.len() == start + 1 {
        frame.truncate(start);
    } else if let Some(brace) = frame.get_mut(start) {
        *brace = b',';
    }
    Ok(())
}

/// What can be said of every message before its fields are read. The rest is walked over, not
/// kept.
struct Envelope<'a> {
    kind: Cow<'a, str>,
    request_id: Option<u64>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a `type`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut kind = None;
                let mut request_id = None;
                while let Some(name) = fields.next_key::<FieldName>()? {
                    match name {
                        // protocol: message.2
                        FieldName::Type if kind.is_some() => {
                            return Err(A::Error::duplicate_field("type"));
                        }
                        FieldName::Type => kind = Some(fields.next_value::<Borrowable<'de>>()?.0),
                        FieldName::RequestId => {
                            let raw: &RawValue = fields.next_value()?;
                            request_id = raw.get().parse().ok();
                        }
                        // protocol: message.2
                        FieldName::Other => {
                            fields.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                // protocol: message.1
                let kind = kind.ok_or_else(|| A::Error::missing_field("type"))?;
                Ok(Envelope { kind, request_id })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum FieldName {
    Type,
    RequestId,
    #[serde(other)]
    Other,
}

/// Text that is borrowed from the payload unless it has escapes.
#[derive(Deserialize)]
struct Borrowable<'a>(#[serde(borrow)] Cow<'a, str>);

/// A payload that is not a message.
///
/// The reason may quote what was received: answer it to the peer, but keep it out of logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {reason}")]
pub struct MessageRefused {
    /// The `type`, if it could be read.
    pub request_type: Option<Box<str>>,
    /// The `request_id`, if it could be read; the request can then be answered by name.
    pub request_id: Option<u64>,
    /// What is wrong, for people.
    pub reason: String,
}

impl MessageRefused {
    fn unreadable(reason: String) -> Self {
        Self {
            request_type: None,
            request_id: None,
            reason,
        }
    }
}
