//! Consumer groups: polling, settling in batches, dead letters and administration.
//!
//! Every call names a shard of the stream and a group. Claims are named by offset and attempt, so
//! that a late answer for an earlier delivery settles nothing.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::field::{Field, List, Text, item, layout};
use crate::cursor::{Cursor, Malformed};
use crate::message::Start;
use crate::publish::PublishTooLong;

layout! {
    /// Asks for records to work on.
    GroupPoll {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// At most this many records.
        max_records: u32,
        /// At most this many bytes of records, beyond the first; 0 for the broker's own bound.
        max_bytes: u32,
        /// How long to wait for the first record, in milliseconds.
        wait_ms: u32,
        /// How long the claims last, in milliseconds; 0 for the broker's default.
        visibility_ms: u32,
        /// Who asks. Claims of a named consumer can be settled by it alone.
        consumer: Option<Text> = 0x0001,
        /// Hands over, first, the claims this consumer held on an older connection.
        reclaim: bool = 0x0002,
    }
}

item! {
    /// A header of a record.
    Header {
        /// Its name; any bytes.
        key: Bytes,
        /// Its value.
        value: Option<Bytes>,
    }
}

item! {
    /// One claimed record.
    Claimed {
        /// The record.
        offset: u64,
        /// How often it was handed out; 1 is the first time.
        attempts: u32,
        /// How many offsets directly below hold no event.
        skipped_before: u64,
        /// When it was appended, Unix milliseconds.
        timestamp_ms: i64,
        /// Its key.
        key: Option<Bytes>,
        /// Its headers, in order.
        headers: List<Header>,
        /// Its value; absent for a deletion.
        value: Option<Bytes>,
    }
}

layout! {
    /// Records claimed by a poll; none when the wait was in vain.
    GroupPolled {
        /// Owed ones first, then new ones, each lowest offset first.
        records: List<Claimed>,
    }
}

item! {
    /// One delivery of one record.
    Claim {
        /// The record.
        offset: u64,
        /// Which of its deliveries; 0 for whichever stands.
        attempts: u32,
    }
}

layout! {
    /// Finishes records.
    GroupAck {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// The deliveries.
        claims: List<Claim>,
        /// Who holds them, if they were polled under a name.
        consumer: Option<Text> = 0x0001,
    }
}

layout! {
    /// Gives records back.
    GroupNack {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// How long they rest before they are owed again, in milliseconds.
        delay_ms: u64,
        /// The deliveries.
        claims: List<Claim>,
        /// Who holds them, if they were polled under a name.
        consumer: Option<Text> = 0x0001,
    }
}

layout! {
    /// Sets records aside as ones that cannot be processed.
    GroupSetAside {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// Why, for whoever looks at the dead letters.
        reason: Text,
        /// The deliveries.
        claims: List<Claim>,
        /// Who holds them, if they were polled under a name.
        consumer: Option<Text> = 0x0001,
    }
}

item! {
    /// A delivery that was not settled, and why.
    Unsettled {
        /// The record.
        offset: u64,
        /// The delivery that was named.
        attempts: u32,
        /// The number of a code; nothing was changed for this record.
        code: u16,
    }
}

layout! {
    /// The deliveries are settled, durably, but for those listed.
    Settled {
        /// Empty when all were.
        unsettled: List<Unsettled>,
    }
}

layout! {
    /// Prolongs claims.
    GroupExtend {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// How long they shall last from now, in milliseconds. More than 0.
        extend_ms: u64,
        /// The deliveries.
        claims: List<Claim>,
        /// Who holds them, if they were polled under a name.
        consumer: Option<Text> = 0x0001,
    }
}

layout! {
    /// How long the claims last now.
    GroupExtended {
        /// Granted, in milliseconds from now.
        visible_ms: u64,
        /// Claims that no longer stand.
        unsettled: List<Unsettled>,
    }
}

layout! {
    /// Lists what was set aside.
    GroupDeadLetters {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// At most this many; 0 for as many as a page holds.
        limit: u32,
        /// Only offsets greater than this one.
        after: Option<u64> = 0x0001,
        /// Whether to send keys, headers and values too.
        want_values: bool = 0x0002,
    }
}

item! {
    /// A record that was set aside.
    DeadLetter {
        /// The record.
        offset: u64,
        /// How often it was handed out.
        attempts: u32,
        /// Why it was set aside.
        reason: Text,
        /// When it was set aside, Unix milliseconds.
        set_aside_at_ms: i64,
        /// When it was appended, Unix milliseconds.
        timestamp_ms: i64,
        /// Its key.
        key: Option<Bytes>,
        /// Its headers, in order.
        headers: List<Header>,
        /// Its value.
        value: Option<Bytes>,
    }
}

layout! {
    /// One page of dead letters.
    DeadLetters {
        /// Ascending by offset.
        letters: List<DeadLetter>,
        /// Whether there is more after the last offset of the page.
        more: bool = 0x0001,
    }
}

layout! {
    /// Makes records that were set aside owed again.
    GroupRedrive {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// Which; absent for all.
        offsets: Option<List<u64>> = 0x0001,
    }
}

layout! {
    /// Drops records that were set aside.
    GroupDiscard {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// Which; absent for all.
        offsets: Option<List<u64>> = 0x0001,
    }
}

layout! {
    /// What became of dead letters.
    LettersMoved {
        /// How many were made owed or dropped.
        count: u64,
        /// Offsets that are no dead letters of the group.
        missing: List<u64>,
    }
}

layout! {
    /// Moves a group's position and voids its claims; with `if_new`, creates the group there.
    GroupSeek {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
        /// Where to.
        start: Start,
        /// Only if the group has no position yet and nothing was handed out.
        if_new: bool = 0x0001,
    }
}

layout! {
    /// Where a group stands.
    GroupSought {
        /// Everything below is finished.
        offset: u64,
        /// Whether the seek moved it.
        moved: bool = 0x0001,
    }
}

layout! {
    /// Asks how a group is doing.
    GroupDescribe {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
    }
}

item! {
    /// How a group is doing on one shard.
    GroupStanding {
        /// Everything below is finished; absent before the first position was written.
        committed: Option<u64>,
        /// The shard's next offset (exclusive end).
        tail: u64,
        /// Records that were never handed out.
        lag: u64,
        /// Records out on a claim.
        in_flight: u64,
        /// Records waiting to be handed out again.
        owed: u64,
        /// Records set aside.
        dead_letters: u64,
    }
}

layout! {
    /// How a group is doing.
    GroupDescribed {
        /// On the shard that was asked for.
        standing: GroupStanding,
    }
}

layout! {
    /// Forgets a group: its position, claims and dead letters.
    GroupDelete {
        /// The shard.
        shard: u32,
        /// The group.
        group: Text,
    }
}

layout! {
    /// Whether there was something to forget.
    GroupDeleted {
        /// Whether the group existed.
        existed: bool = 0x0001,
    }
}

layout! {
    /// Lists the groups of a shard in the order of their names.
    GroupList {
        /// The shard.
        shard: u32,
        /// At most this many; 0 for as many as a page holds.
        limit: u32,
        /// Only names greater than this one.
        after: Option<Text> = 0x0001,
    }
}

item! {
    /// One group of a list.
    GroupListing {
        /// Its name.
        group: Text,
        /// How it is doing.
        standing: GroupStanding,
    }
}

layout! {
    /// One page of groups.
    GroupListed {
        /// Ascending by name.
        groups: List<GroupListing>,
        /// Whether there is more after the last name of the page.
        more: bool = 0x0001,
    }
}

/// A byte, and for an offset the offset.
impl Field for Start {
    fn put(&self, into: &mut BytesMut, _field: &'static str) -> Result<(), PublishTooLong> {
        match *self {
            Self::Latest => into.put_u8(0),
            Self::Earliest => into.put_u8(1),
            Self::Offset(offset) => {
                into.put_u8(2);
                into.put_u64(offset);
            }
        }
        Ok(())
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        match cursor.u8(field)? {
            0 => Ok(Self::Latest),
            1 => Ok(Self::Earliest),
            2 => cursor.u64(field).map(Self::Offset),
            other => Err(Malformed::Value {
                field,
                value: other.into(),
            }),
        }
    }
}
