//! The positions that groups of the Kafka protocol commit.

use crate::extension::requests::field::{List, Text, item, layout};

item! {
    /// A position in a shard.
    OffsetOf {
        /// The shard.
        shard: u32,
        /// The next offset to read.
        offset: u64,
        /// The generation of the last record read; -1 when that is not known.
        generation: i64,
        /// Whatever the group wants to keep beside it.
        metadata: Option<Text>,
    }
}

item! {
    /// Positions in the shards of one stream.
    OffsetsOf {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
        /// The positions.
        shards: List<OffsetOf>,
    }
}

layout! {
    /// Commits positions of a group. Answered when they are durable.
    KafkaCommit {
        /// The group.
        group: Text,
        /// The generation, or the member's epoch; -1 from who is no member.
        generation: i64,
        /// The member; empty from who is none.
        member: Text,
        /// The member's own name across restarts.
        instance: Option<Text> = 0x0001,
        /// The positions.
        streams: List<OffsetsOf>,
    }
}

layout! {
    /// The positions are committed, durably.
    KafkaCommits {
        /// 0, or what was wrong with the call as a whole.
        error: i16,
        /// One for every shard, in the order of the call.
        errors: List<i16>,
    }
}

item! {
    /// Some shards of one stream.
    ShardsOf {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
        /// The shards.
        shards: List<u32>,
    }
}

layout! {
    /// Asks for the positions of a group.
    KafkaOffsets {
        /// The group.
        group: Text,
        /// Absent for every position that the group has.
        streams: Option<List<ShardsOf>> = 0x0001,
        /// Who asks, if it is a member of a group whose members have epochs.
        member: Option<Text> = 0x0002,
        /// That member's epoch; -1 from who is none.
        epoch: i64,
        /// Positions of transactions that are open yet are refused.
        stable: bool = 0x0004,
    }
}

item! {
    /// A position in a shard.
    CommittedShard {
        /// The shard.
        shard: u32,
        /// 0, or what was wrong.
        error: i16,
        /// The next offset to read; -1 when none was committed.
        offset: i64,
        /// The generation of the last record read; -1 when that is not known.
        generation: i64,
        /// What the group keeps beside it.
        metadata: Text,
    }
}

item! {
    /// Positions in the shards of one stream.
    CommittedStream {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
        /// The positions.
        shards: List<CommittedShard>,
    }
}

layout! {
    /// The positions of a group.
    KafkaCommitted {
        /// 0, or what was wrong with the call as a whole.
        error: i16,
        /// Those asked for in the order of the call, or every one by name.
        streams: List<CommittedStream>,
    }
}

layout! {
    /// Forgets positions of a group, where no member reads the stream.
    KafkaForget {
        /// The group.
        group: Text,
        /// The positions.
        streams: List<ShardsOf>,
    }
}

layout! {
    /// The positions are forgotten, durably.
    KafkaForgotten {
        /// 0, or what was wrong with the call as a whole.
        error: i16,
        /// One for every shard, in the order of the call.
        errors: List<i16>,
    }
}
