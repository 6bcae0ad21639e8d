//! Members of a group, and which shards of the stream each may poll.
//!
//! A shard changes hands in two steps: it is first missing from what its member is assigned, and is
//! assigned to another only when a heartbeat no longer lists it as held.

use super::field::{List, Text, layout};

layout! {
    /// Joins a group, or joins again after the broker forgot the member.
    MemberJoin {
        /// The group.
        group: Text,
        /// Unique within the group.
        member: Text,
        /// How long the member may be silent before its shards go to others, in milliseconds.
        session_ms: u32,
        /// Shards the member still holds from before.
        held: List<u32>,
    }
}

layout! {
    /// Says that a member is alive and which shards it holds.
    MemberHeartbeat {
        /// The group.
        group: Text,
        /// The member.
        member: Text,
        /// The generation of the assignment it knows.
        generation: u64,
        /// Shards it holds: those it was assigned and has not given back.
        held: List<u32>,
    }
}

layout! {
    /// What a member may poll.
    MemberAssigned {
        /// Grows with every change of the group's assignment.
        generation: u64,
        /// How many shards the stream has.
        shards: u32,
        /// How often to say that the member is alive, in milliseconds.
        heartbeat_ms: u32,
        /// Ascending. What a member holds and does not find here it finishes and gives back.
        assigned: List<u32>,
    }
}

layout! {
    /// Leaves a group; its shards go to others at once.
    MemberLeave {
        /// The group.
        group: Text,
        /// The member.
        member: Text,
    }
}

layout! {
    /// The member is gone.
    MemberLeft {
        /// Whether the group knew it.
        existed: bool = 0x0001,
    }
}
