//! The `requests` extension: calls of caches, counters, state, commits, groups, their members and
//! scheduled records, many of them unanswered on one stream.
//!
//! ```text
//! call:  tenant_len u16, tenant, namespace_len u16, namespace, object_len u16, object, fields
//! reply: fields
//! ```
//!
//! The names stand first and as in a publish, so that a broker finds what it remembers of them by
//! their bytes. Numbers are big-endian; text stands behind a length of two bytes, other bytes
//! behind one of four; a list is a count of four bytes and its items. A field that need not be
//! there has a bit of the frame's flags. Nothing may follow the last field. The kind of a reply is
//! that of its call with 0x0080 set.
//!
//! The calls of the `raw` extension are laid out in the same way and stand in the same table.

mod cache;
mod commit;
mod counter;
pub(in crate::extension) mod field;
mod group;
mod member;
mod schedule;
mod state;

use bytes::{BufMut as _, Bytes, BytesMut};

pub use self::cache::{
    CacheDelete, CacheDeleted, CacheGet, CacheGetMany, CacheGot, CacheGotMany, CacheList,
    CacheListed, CachePut, CacheStored, Condition, Entry, Listed, Slot,
};
pub use self::commit::{Change, Commit, Committed, Precondition};
pub use self::counter::{CounterAdd, CounterGet, CounterValue};
pub use self::field::{Item, List, Text};
pub use self::group::{
    Claim, Claimed, DeadLetter, DeadLetters, GroupAck, GroupDeadLetters, GroupDelete, GroupDeleted,
    GroupDescribe, GroupDescribed, GroupDiscard, GroupExtend, GroupExtended, GroupList,
    GroupListed, GroupListing, GroupNack, GroupPoll, GroupPolled, GroupRedrive, GroupSeek,
    GroupSetAside, GroupSought, GroupStanding, Header, LettersMoved, Settled, Unsettled,
};
pub use self::member::{MemberAssigned, MemberHeartbeat, MemberJoin, MemberLeave, MemberLeft};
pub use self::schedule::{
    ScheduleAdd, ScheduleCancel, ScheduleCancelled, ScheduleList, ScheduleListed, Scheduled,
    Waiting,
};
pub use self::state::{StateEntry, StateGet, StateGot, StateList, StateListed, Versioned};
use super::raw::{
    ConsumerDescribe, ConsumerDescribed, ConsumerHeartbeat, ConsumerHeld, KafkaCommit,
    KafkaCommits, KafkaCommitted, KafkaDelete, KafkaDeleted, KafkaDescribe, KafkaDescribed,
    KafkaForget, KafkaForgotten, KafkaHeartbeat, KafkaHeartbeaten, KafkaJoin, KafkaJoined,
    KafkaLeave, KafkaLeft, KafkaList, KafkaListed, KafkaOffsets, KafkaSync, KafkaSynced, RawAppend,
    RawAppended, RawDeleteRecords, RawDescribe, RawDescribed, RawEpochEnd, RawEpochEnded, RawFetch,
    RawFetched, RawOffsets, RawOffsetsFound, RawProducerGiven, RawProducerId, RawRecordsDeleted,
};
use super::{Extension, HEADER_BYTES, known_flags, put_header};
use crate::cursor::{Cursor, Malformed};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::publish::{Names, PublishTooLong};

/// Set in the kind of every reply.
const REPLY: u16 = 0x0080;

/// The fields of a call or a reply.
pub(in crate::extension) trait Body: Sized {
    const FLAGS: u16;
    /// Writes the fields and says which flags they have.
    fn put(&self, into: &mut BytesMut) -> Result<u16, PublishTooLong>;
    fn read(flags: u16, cursor: &mut Cursor) -> Result<Self, Malformed>;
}

/// A call together with what answers it.
pub trait Asks: Into<Ask> + Send + 'static {
    /// What answers it.
    type Reply: Send + 'static;

    /// Takes the answer out; `None` when the reply is to another kind of call.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

/// One line per call: its number, what asks, what answers.
macro_rules! calls {
    ($( $(#[$meta:meta])* $number:literal $name:ident => $reply:ident, )*) => {
        /// A kind of call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum CallKind {
            $( $(#[$meta])* $name = $number, )*
        }

        impl CallKind {
            /// Every kind of call, in the order of their numbers.
            pub const ALL: &[Self] = &[$( Self::$name, )*];
        }

        /// What is asked.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Ask {
            $( $(#[$meta])* $name($name), )*
        }

        impl Ask {
            /// Which kind of call it is.
            pub const fn kind(&self) -> CallKind {
                match self {
                    $( Self::$name(_) => CallKind::$name, )*
                }
            }

            fn put(&self, into: &mut BytesMut) -> Result<u16, PublishTooLong> {
                match self {
                    $( Self::$name(ask) => ask.put(into), )*
                }
            }

            fn read(kind: CallKind, flags: u16, cursor: &mut Cursor) -> Result<Self, Malformed> {
                match kind {
                    $( CallKind::$name => body(flags, cursor).map(Self::$name), )*
                }
            }
        }

        /// What is answered.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply {
            $(
                #[doc = concat!("To [`", stringify!($name), "`].")]
                $name($reply),
            )*
        }

        impl Reply {
            /// Which kind of call it answers.
            pub const fn kind(&self) -> CallKind {
                match self {
                    $( Self::$name(_) => CallKind::$name, )*
                }
            }

            fn put(&self, into: &mut BytesMut) -> Result<u16, PublishTooLong> {
                match self {
                    $( Self::$name(reply) => reply.put(into), )*
                }
            }

            pub(super) fn read(
                kind: CallKind,
                flags: u16,
                body: Bytes,
            ) -> Result<Self, Malformed> {
                let mut cursor = Cursor(body);
                let reply = match kind {
                    $( CallKind::$name => self::body(flags, &mut cursor).map(Self::$name), )*
                }?;
                end(&cursor)?;
                Ok(reply)
            }
        }

        $(
            impl From<$name> for Ask {
                fn from(ask: $name) -> Self {
                    Self::$name(ask)
                }
            }

            impl Asks for $name {
                type Reply = $reply;

                fn reply(reply: Reply) -> Option<$reply> {
                    match reply {
                        Reply::$name(reply) => Some(reply),
                        _ => None,
                    }
                }
            }
        )*
    };
}

calls! {
    /// Reads one key of a cache.
    0x0201 CacheGet => CacheGot,
    /// Reads many keys of a cache.
    0x0202 CacheGetMany => CacheGotMany,
    /// Sets a key of a cache.
    0x0203 CachePut => CacheStored,
    /// Removes a key of a cache.
    0x0204 CacheDelete => CacheDeleted,
    /// Lists a cache.
    0x0205 CacheList => CacheListed,
    /// Adds to a counter.
    0x0211 CounterAdd => CounterValue,
    /// Reads a counter.
    0x0212 CounterGet => CounterValue,
    /// Reads a key of an entity's state.
    0x0221 StateGet => StateGot,
    /// Lists an entity's state.
    0x0222 StateList => StateListed,
    /// Appends an event and changes state.
    0x0231 Commit => Committed,
    /// Claims records for work.
    0x0241 GroupPoll => GroupPolled,
    /// Finishes records.
    0x0242 GroupAck => Settled,
    /// Gives records back.
    0x0243 GroupNack => Settled,
    /// Prolongs claims.
    0x0244 GroupExtend => GroupExtended,
    /// Sets records aside.
    0x0245 GroupSetAside => Settled,
    /// Lists what was set aside.
    0x0246 GroupDeadLetters => DeadLetters,
    /// Makes what was set aside owed again.
    0x0247 GroupRedrive => LettersMoved,
    /// Drops what was set aside.
    0x0248 GroupDiscard => LettersMoved,
    /// Moves a group.
    0x0249 GroupSeek => GroupSought,
    /// Asks how a group is doing.
    0x024a GroupDescribe => GroupDescribed,
    /// Forgets a group.
    0x024b GroupDelete => GroupDeleted,
    /// Lists groups.
    0x024c GroupList => GroupListed,
    /// Joins a group.
    0x0251 MemberJoin => MemberAssigned,
    /// Says that a member is alive.
    0x0252 MemberHeartbeat => MemberAssigned,
    /// Leaves a group.
    0x0253 MemberLeave => MemberLeft,
    /// Schedules a record.
    0x0261 ScheduleAdd => Scheduled,
    /// Takes a scheduled record back.
    0x0262 ScheduleCancel => ScheduleCancelled,
    /// Lists scheduled records.
    0x0263 ScheduleList => ScheduleListed,
    /// Appends a record batch as it is.
    0x0301 RawAppend => RawAppended,
    /// Fetches record batches as they are.
    0x0302 RawFetch => RawFetched,
    /// Looks for offsets.
    0x0303 RawOffsets => RawOffsetsFound,
    /// Asks where generations ended.
    0x0304 RawEpochEnd => RawEpochEnded,
    /// Forgets records below an offset.
    0x0305 RawDeleteRecords => RawRecordsDeleted,
    /// Asks for a producer id.
    0x0306 RawProducerId => RawProducerGiven,
    /// Describes streams and shards.
    0x0307 RawDescribe => RawDescribed,
    /// Joins a Kafka group.
    0x0341 KafkaJoin => KafkaJoined,
    /// Asks for a member's share.
    0x0342 KafkaSync => KafkaSynced,
    /// Says that a member is alive.
    0x0343 KafkaHeartbeat => KafkaHeartbeaten,
    /// Leaves a Kafka group.
    0x0344 KafkaLeave => KafkaLeft,
    /// Commits positions of a Kafka group.
    0x0345 KafkaCommit => KafkaCommits,
    /// Asks for positions of a Kafka group.
    0x0346 KafkaOffsets => KafkaCommitted,
    /// Forgets positions of a Kafka group.
    0x0347 KafkaForget => KafkaForgotten,
    /// Describes Kafka groups.
    0x0348 KafkaDescribe => KafkaDescribed,
    /// Lists Kafka groups.
    0x0349 KafkaList => KafkaListed,
    /// Deletes Kafka groups.
    0x034a KafkaDelete => KafkaDeleted,
    /// Says that a member is alive, of a group in which the broker shares out.
    0x0351 ConsumerHeartbeat => ConsumerHeld,
    /// Describes groups in which the broker shares out.
    0x0352 ConsumerDescribe => ConsumerDescribed,
}

impl CallKind {
    /// The extension that it belongs to.
    pub const fn extension(self) -> Extension {
        match self.number() >> 8 {
            0x03 => Extension::Raw,
            _ => Extension::Requests,
        }
    }

    /// The number in the header of the call.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The number in the header of its reply.
    pub const fn reply_number(self) -> u16 {
        self.number() | REPLY
    }

    /// The kind of call of a number; `None` for one this library does not know.
    pub fn from_number(number: u16) -> Option<Self> {
        let at = Self::ALL.binary_search_by_key(&number, |kind| kind.number());
        at.ok().and_then(|at| Self::ALL.get(at).copied())
    }

    /// The kind of call that a reply of this number answers.
    pub fn from_reply_number(number: u16) -> Option<Self> {
        (number & REPLY != 0)
            .then(|| Self::from_number(number & !REPLY))
            .flatten()
    }
}

/// A call: whom it concerns, and what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Tenant, namespace, and the stream or cache.
    pub names: Names,
    /// What is asked.
    pub ask: Ask,
}

impl Call {
    /// Appends the call as a frame to a buffer.
    ///
    /// # Errors
    /// When a field is too long for its length, or the frame for a peer to take. The buffer is as
    /// it was then.
    pub fn encode_into(&self, correlation: u64, into: &mut BytesMut) -> Result<(), PublishTooLong> {
        frame_into(self.ask.kind().number(), correlation, into, |into| {
            into.put_slice(self.names.raw());
            self.ask.put(into)
        })
    }

    pub(super) fn read(kind: CallKind, flags: u16, body: Bytes) -> Result<Self, Malformed> {
        let mut cursor = Cursor(body);
        let names = Names::decode(&mut cursor)?;
        let ask = Ask::read(kind, flags, &mut cursor)?;
        end(&cursor)?;
        Ok(Self { names, ask })
    }
}

impl Reply {
    /// Appends the reply as a frame to a buffer.
    ///
    /// # Errors
    /// As for [`Call::encode_into`].
    pub fn encode_into(&self, correlation: u64, into: &mut BytesMut) -> Result<(), PublishTooLong> {
        frame_into(self.kind().reply_number(), correlation, into, |into| {
            self.put(into)
        })
    }
}

fn body<B: Body>(flags: u16, cursor: &mut Cursor) -> Result<B, Malformed> {
    known_flags(flags, B::FLAGS)?;
    B::read(flags, cursor)
}

/// Writes a frame in place: the header once with a length that is put right afterwards.
fn frame_into(
    kind: u16,
    correlation: u64,
    into: &mut BytesMut,
    body: impl FnOnce(&mut BytesMut) -> Result<u16, PublishTooLong>,
) -> Result<(), PublishTooLong> {
    let start = into.len();
    put_header(into, kind, 0, correlation, 0);
    let written = body(into).and_then(|flags| {
        let length = into.len() - start - HEADER_BYTES;
        if length > PAYLOAD_BYTES_MAX {
            let limit = PAYLOAD_BYTES_MAX;
            return Err(PublishTooLong::Frame { length, limit });
        }
        Ok((flags, length))
    });
    let (flags, length) = written.inspect_err(|_| into.truncate(start))?;
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    put_header(&mut header, kind, flags, correlation, length);
    if let Some(place) = into.get_mut(start..start + HEADER_BYTES) {
        place.copy_from_slice(&header);
    }
    Ok(())
}

/// Refuses what stands behind the last field.
fn end(cursor: &Cursor) -> Result<(), Malformed> {
    match cursor.0.len() {
        0 => Ok(()),
        behind => Err(Malformed::Behind { bytes: behind }),
    }
}
