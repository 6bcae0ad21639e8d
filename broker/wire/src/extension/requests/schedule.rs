//! Records that become visible at a given time.

use bytes::Bytes;

use super::field::{List, Text, item, layout};
use super::group::Header;

layout! {
    /// Schedules one record.
    ScheduleAdd {
        /// When it is appended, Unix milliseconds on the broker's clock; at once if that has passed.
        due_ms: u64,
        /// Routes it to a shard, and is its key.
        key: Option<Bytes>,
        /// Its headers, in order.
        headers: List<Header>,
        /// Its value.
        value: Bytes,
        /// Names it, so that scheduling it again changes nothing; absent for a name of the broker's.
        id: Option<Text> = 0x0001,
        /// The shard instead of hashing the key.
        shard: Option<u32> = 0x0002,
    }
}

layout! {
    /// The record is scheduled, durably.
    Scheduled {
        /// Its name.
        id: Text,
        /// The shard it will be on.
        shard: u32,
        /// When it is due, Unix milliseconds.
        due_ms: u64,
        /// It had been scheduled before, as it stands.
        repeated: bool = 0x0001,
    }
}

layout! {
    /// Takes a scheduled record back.
    ScheduleCancel {
        /// Its name.
        id: Text,
        /// The shard it would be on; absent to look on every one.
        shard: Option<u32> = 0x0001,
    }
}

layout! {
    /// The record will not be appended.
    ScheduleCancelled {
        /// False when no such record waits: it was appended, taken back, or never there.
        existed: bool = 0x0001,
    }
}

layout! {
    /// Lists records that wait for their time.
    ScheduleList {
        /// At most this many; 0 for as many as a page holds.
        limit: u32,
        /// The shard; absent for every one.
        shard: Option<u32> = 0x0001,
        /// Where the page before ended, as its answer said.
        cursor: Option<Bytes> = 0x0002,
        /// Whether to send headers and values too.
        want_values: bool = 0x0004,
    }
}

item! {
    /// A record that waits for its time.
    Waiting {
        /// Its name.
        id: Text,
        /// The shard it will be on.
        shard: u32,
        /// When it is due, Unix milliseconds.
        due_ms: u64,
        /// Its key.
        key: Option<Bytes>,
        /// Its headers, in order.
        headers: List<Header>,
        /// Its value; absent where values were not asked for.
        value: Option<Bytes>,
    }
}

layout! {
    /// One page of records that wait.
    ScheduleListed {
        /// The soonest of a shard first, shard by shard.
        records: List<Waiting>,
        /// Where the page ends; absent when nothing follows.
        cursor: Option<Bytes> = 0x0001,
    }
}
