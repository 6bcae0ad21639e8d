//! Groups in which the broker shares out partitions (KIP-848): a member says what it reads and what
//! it holds, and is told what it may hold.

use super::StreamName;
use crate::extension::requests::field::{List, Text, item, layout};

item! {
    /// Shards of a stream, named by its number.
    ConsumerTopic {
        /// The stream's number, [`felix_model::Incarnation::number`].
        number: u64,
        /// The shards, ascending.
        shards: List<u32>,
    }
}

layout! {
    /// Says that a member is alive, and what has changed with it.
    ConsumerHeartbeat {
        /// The group.
        group: Text,
        /// The member; chosen by itself.
        member: Text,
        /// 0 joins, -1 leaves, -2 leaves for a while under its own name; else the epoch it has.
        epoch: i64,
        /// The member's own name across restarts.
        instance: Option<Text> = 0x0001,
        /// Where it stands, for who shares out.
        rack: Option<Text> = 0x0002,
        /// How long it may take to give shards back, in milliseconds.
        rebalance_ms: Option<u32> = 0x0004,
        /// The streams it reads, all of them; absent when nothing changed. A pattern is resolved by
        /// who sends this.
        streams: Option<List<StreamName>> = 0x0008,
        /// Who shares out: `uniform` or `range`; absent when it is all the same.
        assignor: Option<Text> = 0x0010,
        /// What it holds; absent when nothing changed.
        held: Option<List<ConsumerTopic>> = 0x0020,
        /// What the member's program calls itself.
        client: Text,
        /// Where the member is.
        host: Text,
    }
}

layout! {
    /// How things stand for the member.
    ConsumerHeld {
        /// 0, or what was wrong.
        error: i16,
        /// What was wrong, for people.
        message: Option<Text> = 0x0001,
        /// Its epoch.
        epoch: i64,
        /// How often to say that it is alive, in milliseconds.
        heartbeat_ms: u32,
        /// What it may hold; absent when nothing changed.
        assigned: Option<List<ConsumerTopic>> = 0x0002,
    }
}

layout! {
    /// Describes groups.
    ConsumerDescribe {
        /// Which.
        groups: List<Text>,
    }
}

item! {
    /// A member of a group.
    ConsumerMember {
        /// Its id.
        member: Text,
        /// Its own name.
        instance: Option<Text>,
        /// Where it stands.
        rack: Option<Text>,
        /// Its epoch.
        epoch: i64,
        /// What its program calls itself.
        client: Text,
        /// Where it is.
        host: Text,
        /// The streams it reads.
        streams: List<StreamName>,
        /// What it holds.
        assigned: List<ConsumerTopic>,
        /// What it is to hold.
        target: List<ConsumerTopic>,
    }
}

item! {
    /// A group.
    ConsumerGroup {
        /// Its id.
        group: Text,
        /// 0, or what was wrong.
        error: i16,
        /// `Empty`, `Assigning`, `Reconciling`, `Stable` or `Dead`.
        state: Text,
        /// Its epoch.
        epoch: i64,
        /// The epoch of what is to be held.
        target_epoch: i64,
        /// Who shares out.
        assignor: Text,
        /// Its members.
        members: List<ConsumerMember>,
    }
}

layout! {
    /// The groups.
    ConsumerDescribed {
        /// In the order of the call.
        groups: List<ConsumerGroup>,
    }
}
