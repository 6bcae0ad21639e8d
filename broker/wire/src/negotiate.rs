//! What two peers may say to each other: the client's offer, the broker's grant.

use std::fmt;
use std::ops::BitOr;

use bytes::BytesMut;

use crate::ack::{Ack, AckForm};
use crate::error::{Code, Failure};
use crate::extension::Extensions;
use crate::flags::Flags;
use crate::message::{
    Auth, AuthOk, Message, NotLeader, ShardMoved, StreamDeleted, SubscriptionLagged, Unsupported,
};

/// A set of feature bits, both words in one: the second is the upper half.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

/// Marks that a second word exists. It is no feature and never part of a set.
const EXTENDED: u32 = 0x8000_0000;

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);
    /// Answers `topology`.
    pub const TOPOLOGY: Self = Self(0x0000_0001);
    /// The client reads `not_leader`.
    pub const REDIRECT: Self = Self(0x0000_0002);
    /// Answers `cache_delete`.
    pub const CACHE_DELETE: Self = Self(0x0000_0004);
    /// Answers `group_poll`, `group_ack`, `group_nack`.
    pub const CONSUMER_GROUP: Self = Self(0x0000_0008);
    /// Answers `group_dead_letters`, `group_discard`, `group_redrive`.
    pub const GROUP_DEAD_LETTERS: Self = Self(0x0000_0010);
    /// Answers `stream_shards`.
    pub const STREAM_SHARDS: Self = Self(0x0000_0020);
    /// Answers `cache_watch`.
    pub const CACHE_WATCH: Self = Self(0x0000_0040);
    /// Honours `retained` on a watch.
    pub const CACHE_WATCH_RETAINED: Self = Self(0x0000_0080);
    /// Answers `counter_add`, `counter_get`.
    pub const COUNTERS: Self = Self(0x0000_0100);
    /// Idempotent publishing, and the client reads `publish_refused`.
    pub const IDEMPOTENT_PRODUCER: Self = Self(0x0000_0200);
    /// Answers `cache_shards`.
    pub const CACHE_SHARDS: Self = Self(0x0000_0400);
    /// The client reads `code`, `retry` and `detail`.
    pub const ERROR_CODES: Self = Self(0x0000_0800);
    /// The client reads `shard_moved`.
    pub const SHARD_MOVED: Self = Self(0x0000_1000);
    /// Unknown requests are answered with `unsupported`, and the client reads it.
    pub const UNSUPPORTED: Self = Self(0x0000_2000);
    /// The client reads `sequence_reused`.
    pub const SEQUENCE_REUSED: Self = Self(0x0000_4000);
    /// Ordered answers and a publish window.
    pub const PUBLISH_PIPELINE: Self = Self(0x0000_8000);
    /// Answers `commit`, `state_get`.
    pub const ATOMIC_COMMIT: Self = Self(0x0001_0000);
    /// The publish window counts per stream.
    pub const STREAM_PUBLISH_WINDOW: Self = Self(0x0002_0000);
    /// Answers `shard_owners`.
    pub const SHARD_OWNERS: Self = Self(0x0004_0000);
    /// Publishes are answered only after the write, with offsets.
    pub const ACK_ON_COMMIT: Self = Self(0x0008_0000);
    /// Honours `consumer` and `reclaim` on a poll.
    pub const GROUP_CONSUMER: Self = Self(0x0010_0000);
    /// The client reads `subscription_lagged`.
    pub const SUBSCRIPTION_LAGGED: Self = Self(0x0020_0000);
    /// The client reads `skipped_before` on group records.
    pub const GROUP_SKIPPED: Self = Self(0x0040_0000);
    /// The client reads `publisher` on group records.
    pub const GROUP_PUBLISHER: Self = Self(0x0080_0000);
    /// Answers `group_seek`, `group_describe`, `group_delete`.
    pub const GROUP_ADMIN: Self = Self(0x0100_0000);
    /// Conditional cache writes; from a client, that it reads `version` on values.
    pub const CACHE_CONDITIONAL: Self = Self(0x0200_0000);
    /// Answers `offset_for_time`; from a client, that it reads times on group records.
    pub const RECORD_TIMESTAMPS: Self = Self(0x0400_0000);
    /// Answers `group_extend`, `group_dead_letter` and their companions.
    pub const GROUP_CLAIM_CONTROL: Self = Self(0x0800_0000);
    /// Answers `publish_if`, honours `expected_offset` on a commit.
    pub const PUBLISH_CONDITIONAL: Self = Self(0x1000_0000);
    /// Answers `stream_read`.
    pub const STREAM_READ: Self = Self(0x2000_0000);
    /// Honours `queue_capacity` on a subscribe.
    pub const SUBSCRIBE_QUEUE: Self = Self(0x4000_0000);
    /// Answers `shard_inspect`, `subscriptions_list`.
    pub const INSPECT: Self = Self(0x01 << 32);
    /// The client reads `stream_deleted`.
    pub const STREAM_DELETED: Self = Self(0x02 << 32);
    /// Accepts and enforces `publish_width`.
    pub const PUBLISH_WIDTH: Self = Self(0x04 << 32);
    /// Honours `shard` on publishes, commits and state reads.
    pub const EXPLICIT_SHARD: Self = Self(0x08 << 32);
    /// Answers `trim_before`; from a client, that it reads `trim_headers`.
    pub const HEAD_TRIM: Self = Self(0x10 << 32);

    /// Every feature of the first word.
    pub const FIRST_WORD: Self = Self(0x7fff_ffff);
    /// Every feature.
    pub const ALL: Self = Self(0x1f_7fff_ffff);

    /// What a broker says only to a client that said it first: the client's own abilities, given
    /// back as a sign that they are made use of, and promises that only an asking client gets.
    const ECHOED: Self = Self::REDIRECT
        .union(Self::ERROR_CODES)
        .union(Self::SHARD_MOVED)
        .union(Self::SEQUENCE_REUSED)
        .union(Self::PUBLISH_PIPELINE)
        .union(Self::ACK_ON_COMMIT)
        .union(Self::SUBSCRIPTION_LAGGED)
        .union(Self::GROUP_SKIPPED)
        .union(Self::GROUP_PUBLISHER)
        .union(Self::STREAM_DELETED);

    /// The features of the two fields of a message. The second counts only if the first has the
    /// marker; bits without a meaning are dropped.
    pub fn from_words(first: Option<u32>, second: Option<u32>) -> Self {
        // protocol: auth.10
        let first = first.unwrap_or_default();
        let second = if first & EXTENDED == 0 {
            0
        } else {
            second.unwrap_or_default()
        };
        Self(u64::from(second) << 32 | u64::from(first & !EXTENDED)).intersection(Self::ALL)
    }

    /// The two fields of a message. The marker is set, and the second word given, only if the
    /// second word is not empty and the peer reads it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of a u64 are cut apart on purpose"
    )]
    pub const fn words(self, reads_second: bool) -> (u32, Option<u32>) {
        let first = self.0 as u32 & !EXTENDED;
        let second = (self.0 >> 32) as u32;
        if second != 0 && reads_second {
            (first | EXTENDED, Some(second))
        } else {
            (first, None)
        }
    }

    /// Whether every feature of `other` is in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The features of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The features that both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These features without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#012x})", self.0)
    }
}

/// What a client says it can read, and would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Frame layouts it reads; `None` from a client older than negotiation.
    pub flags: Option<Flags>,
    /// Messages and fields it reads.
    pub features: Features,
    /// Whether it knows of a second word, however empty its own.
    pub reads_second_word: bool,
    /// Extensions it would like.
    pub extensions: Extensions,
}

impl Offer {
    /// The offer in a received `auth`. Read it before judging the token, so that a refusal can be
    /// put in the client's terms.
    pub fn of(auth: &Auth) -> Self {
        Self {
            flags: auth
                .client_flags
                .map(|bits| Flags::from_bits(bits) & Flags::ALL),
            features: Features::from_words(auth.client_features, auth.client_features_hi),
            reads_second_word: auth
                .client_features
                .is_some_and(|word| word & EXTENDED != 0),
            extensions: Extensions::from_names(&auth.extensions),
        }
    }

    /// The `auth` that makes this offer.
    pub fn auth(&self, tenant_id: impl Into<String>, token: impl Into<String>) -> Auth {
        let (first, second) = self.features.words(true);
        Auth {
            tenant_id: tenant_id.into(),
            token: token.into(),
            client_flags: self.flags.map(Flags::bits),
            client_features: self.flags.map(|_| first),
            client_features_hi: second.filter(|_| self.flags.is_some()),
            extensions: self.extensions.names(),
        }
    }

    /// What may be said to this client before, or without, granting it anything.
    pub fn peer(&self) -> Peer {
        Peer {
            flags: self.flags.unwrap_or(Flags::ORIGINAL),
            features: self.features,
            extensions: Extensions::NONE,
            publish_window: None,
        }
    }
}

/// What a broker serves. The server fills it in once, from what it has built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Frame layouts it reads and writes.
    pub flags: Flags,
    /// Requests it answers, and messages it knows how to send.
    pub features: Features,
    /// Unanswered publishes it takes per stream; 0 for no such promise.
    pub publish_window: u32,
    /// Every UDP port of the host that serves clients, if there is more than one.
    pub listener_ports: Vec<u16>,
    /// Extensions it serves.
    pub extensions: Extensions,
}

impl Served {
    /// The answer to a good token, and what follows from it for the stream.
    pub fn grant(&self, offer: &Offer) -> Grant {
        // protocol: auth.11
        let pipelined = self.publish_window > 0
            && offer.flags.is_some()
            && self
                .features
                .intersection(offer.features)
                .contains(Features::PUBLISH_PIPELINE);
        let publish_window = pipelined.then_some(self.publish_window);
        let mut served = self.features;
        if !pipelined {
            served = served.without(Features::PUBLISH_PIPELINE | Features::STREAM_PUBLISH_WINDOW);
        }
        let extensions = match offer.flags {
            Some(_) => self.extensions.intersection(offer.extensions),
            None => Extensions::NONE,
        };
        // protocol: auth.7
        let peer = Peer {
            flags: offer
                .flags
                .map_or(Flags::ORIGINAL, |flags| flags & self.flags),
            features: served.intersection(offer.features),
            extensions,
            publish_window,
        };
        // protocol: auth.4
        if offer.flags.is_none() {
            return Grant {
                answer: Message::Ok,
                peer,
            };
        }
        // protocol: auth.9
        let told = served.without(Features::ECHOED.without(offer.features));
        let (first, second) = told.words(offer.reads_second_word);
        let answer = AuthOk {
            server_flags: self.flags.bits(),
            server_features: Some(first),
            server_features_hi: second,
            listener_ports: self.listener_ports.clone(),
            publish_window,
            extensions: extensions.names(),
        };
        Grant {
            answer: answer.into(),
            peer,
        }
    }
}

/// The answer to a good token, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What to answer: `auth_ok`, or `ok` to a client older than negotiation. On a stream that
    /// goes one way nothing is answered.
    pub answer: Message,
    /// What may be said to the client on this stream and on event streams that come of it.
    pub peer: Peer,
}

/// What may be said to a client. Everything a broker sends goes through here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Frame layouts that may be used.
    pub flags: Flags,
    /// Features that both sides have.
    pub features: Features,
    /// Extensions granted.
    pub extensions: Extensions,
    /// Answers to publishes come in order, and this many may be due.
    pub publish_window: Option<u32>,
}

/// In which form events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventForm {
    /// Binary batches, the same bytes for every subscriber.
    Shared,
    /// Binary batches that name the subscription (legacy).
    PerSubscription,
    /// JSON `event` and `event_batch` (legacy).
    Json,
}

/// Why a subscription ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It goes on at another broker, or at this one with a fresh token.
    Moved(ShardMoved),
    /// The reader was too slow.
    Lagged(SubscriptionLagged),
    /// The stream is gone.
    Deleted(StreamDeleted),
    /// Something else, such as a revoked token.
    Failed(Failure),
}

impl Peer {
    /// Whether every one of these features is there on both sides.
    pub const fn has(&self, features: Features) -> bool {
        self.features.contains(features)
    }

    /// A failure in terms the client reads: without its code if need be.
    #[must_use]
    pub fn failure(&self, failure: Failure) -> Failure {
        // protocol: error.1
        if self.has(Features::ERROR_CODES) {
            failure
        } else {
            failure.without_code()
        }
    }

    /// A failure as `error`.
    pub fn error(&self, failure: Failure) -> Message {
        Message::Error(self.failure(failure))
    }

    /// Sends the client to another broker: `not_leader`, or `error` if it does not read that.
    pub fn redirect(&self, to: NotLeader) -> Message {
        if self.has(Features::REDIRECT) {
            Message::NotLeader(to)
        } else {
            let message = format!("node {} leads this shard", to.node_id);
            self.error(Failure::new(Code::NotLeader, message))
        }
    }

    /// Answers a request nobody here knows; `None` when the client does not read that answer and
    /// the stream has to end.
    pub fn unsupported(&self, answer: Unsupported) -> Option<Message> {
        self.has(Features::UNSUPPORTED).then(|| answer.into())
    }

    /// Appends the answer to an acknowledged publish, with what the client reads of it.
    pub fn ack_into(&self, mut ack: Ack, form: AckForm, buffer: &mut BytesMut) {
        match form {
            AckForm::Binary => ack.encode_into(self.flags, buffer),
            AckForm::Json => {
                ack.outcome = match ack.outcome {
                    Ok(offset) => Ok(offset.filter(|_| self.flags.contains(Flags::ACK_OFFSET))),
                    Err(failure) => Err(self.failure(failure)),
                };
                ack.into_message().encode_into(buffer);
            }
        }
    }

    /// In which form events are sent.
    pub const fn event_form(&self) -> EventForm {
        // protocol: subscribe.12
        if self.flags.contains(Flags::EVENT_SHARED) {
            EventForm::Shared
        } else if self.flags.contains(Flags::EVENT) {
            EventForm::PerSubscription
        } else {
            EventForm::Json
        }
    }

    /// The last message of an event stream; `None` when the client reads none for this ending and
    /// the stream just finishes.
    pub fn ending(&self, ending: Ending) -> Option<Message> {
        // protocol: subscribe.15
        match ending {
            Ending::Moved(moved) => self.has(Features::SHARD_MOVED).then(|| moved.into()),
            Ending::Lagged(lagged) => {
                let readable = self.has(Features::SUBSCRIPTION_LAGGED)
                    && self.flags.contains(Flags::EVENT_OFFSETS);
                readable.then(|| lagged.into())
            }
            Ending::Deleted(deleted) => self.has(Features::STREAM_DELETED).then(|| deleted.into()),
            Ending::Failed(failure) => Some(self.error(failure)),
        }
    }
}

/// What a broker said to the token, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Frame layouts the broker reads.
    pub flags: Flags,
    /// Features the broker has.
    pub features: Features,
    /// Unanswered publishes allowed; present only with [`Features::PUBLISH_PIPELINE`].
    pub publish_window: Option<u32>,
    /// Every UDP port of the host that serves clients; empty if it is the one dialled.
    pub listener_ports: Vec<u16>,
    /// Extensions granted.
    pub extensions: Extensions,
}

impl Welcome {
    /// Reads the answer to `auth`.
    ///
    /// # Errors
    /// When it is a refusal, or no answer to `auth` at all.
    pub fn read(answer: Message) -> Result<Self, NotWelcome> {
        if let Message::AuthOk(granted) = answer {
            return Ok(Self::granted(granted));
        }
        if let Message::Error(failure) = answer {
            return Err(NotWelcome::Refused(failure));
        }
        if answer != Message::Ok {
            return Err(NotWelcome::Unexpected {
                received: answer.type_name().to_owned(),
            });
        }
        // protocol: auth.8
        Ok(Self {
            flags: Flags::ORIGINAL,
            features: Features::NONE,
            publish_window: None,
            listener_ports: Vec::new(),
            extensions: Extensions::NONE,
        })
    }

    fn granted(granted: AuthOk) -> Self {
        let features = Features::from_words(granted.server_features, granted.server_features_hi);
        let pipelined = features.contains(Features::PUBLISH_PIPELINE);
        Self {
            flags: Flags::from_bits(granted.server_flags) & Flags::ALL,
            features,
            publish_window: granted.publish_window.filter(|&size| pipelined && size > 0),
            extensions: Extensions::from_names(&granted.extensions),
            listener_ports: granted.listener_ports,
        }
    }
}

/// Why a client may not use a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWelcome {
    /// The broker refused.
    #[error("the broker refused: {0}")]
    Refused(Failure),
    /// The broker answered something else.
    #[error("the broker answered `auth` with `{received}`")]
    Unexpected {
        /// The `type` of the answer.
        received: String,
    },
}
