//! Groups whose members share out partitions among themselves, as the Kafka protocol has had them
//! from the start: the broker knows who is in and hands round what the leader decided.

use bytes::Bytes;

use crate::extension::requests::field::{List, Text, item, layout};

item! {
    /// A way to share out partitions.
    Protocol {
        /// Its name.
        name: Text,
        /// What the member says of itself under it.
        metadata: Bytes,
    }
}

layout! {
    /// Joins a group, or joins again. Answered when everybody has, or their time is over.
    KafkaJoin {
        /// The group.
        group: Text,
        /// How long the member may be silent, in milliseconds.
        session_ms: u32,
        /// How long it may take to join again, in milliseconds.
        rebalance_ms: u32,
        /// The member; empty for a new one.
        member: Text,
        /// The member's own name across restarts.
        instance: Option<Text> = 0x0001,
        /// What kind of members these are.
        protocol_type: Text,
        /// What the member can do, the best first.
        protocols: List<Protocol>,
        /// What the member's program calls itself.
        client: Text,
        /// Where the member is.
        host: Text,
        /// A new member without a name of its own is given its id first and has to come back with it.
        id_first: bool = 0x0002,
        /// The member reads `skip_assignment`.
        reads_skip: bool = 0x0004,
    }
}

item! {
    /// A member as its leader sees it.
    Member {
        /// Its id.
        member: Text,
        /// Its own name.
        instance: Option<Text>,
        /// What it says of itself under the protocol that was chosen.
        metadata: Bytes,
    }
}

layout! {
    /// The member is in.
    KafkaJoined {
        /// 0, or what was wrong.
        error: i16,
        /// The generation; -1 with an error.
        generation: i64,
        /// What kind of members these are.
        protocol_type: Option<Text> = 0x0001,
        /// The protocol chosen.
        protocol: Option<Text> = 0x0002,
        /// The id of the member that shares out.
        leader: Text,
        /// The id of this member.
        member: Text,
        /// This member leads and need not share out: the assignment stands.
        skip_assignment: bool = 0x0004,
        /// Everybody, for the leader; nobody for the others.
        members: List<Member>,
    }
}

item! {
    /// What one member gets.
    Share {
        /// The member.
        member: Text,
        /// What it gets, in the members' own words.
        assignment: Bytes,
    }
}

layout! {
    /// Asks for the member's share, and hands in everybody's if the member leads.
    KafkaSync {
        /// The group.
        group: Text,
        /// The generation.
        generation: i64,
        /// The member.
        member: Text,
        /// The member's own name across restarts.
        instance: Option<Text> = 0x0001,
        /// What kind of members the sender takes these for.
        protocol_type: Option<Text> = 0x0002,
        /// The protocol that the sender takes for chosen.
        protocol: Option<Text> = 0x0004,
        /// From the leader.
        shares: List<Share>,
    }
}

layout! {
    /// The member's share.
    KafkaSynced {
        /// 0, or what was wrong.
        error: i16,
        /// What kind of members these are.
        protocol_type: Option<Text> = 0x0001,
        /// The protocol chosen.
        protocol: Option<Text> = 0x0002,
        /// Its share.
        assignment: Bytes,
    }
}

layout! {
    /// Says that a member is alive.
    KafkaHeartbeat {
        /// The group.
        group: Text,
        /// The generation.
        generation: i64,
        /// The member.
        member: Text,
        /// The member's own name across restarts.
        instance: Option<Text> = 0x0001,
    }
}

layout! {
    /// How things stand for the member.
    KafkaHeartbeaten {
        /// 0, or what the member has to do about it.
        error: i16,
    }
}

item! {
    /// A member that leaves.
    Leaving {
        /// Its id; empty when it is named by its own name.
        member: Text,
        /// Its own name.
        instance: Option<Text>,
    }
}

layout! {
    /// Leaves a group.
    KafkaLeave {
        /// The group.
        group: Text,
        /// Who leaves.
        members: List<Leaving>,
    }
}

item! {
    /// What became of a member that leaves.
    Left {
        /// Its id.
        member: Text,
        /// Its own name.
        instance: Option<Text>,
        /// 0, or what was wrong.
        error: i16,
    }
}

layout! {
    /// They are out.
    KafkaLeft {
        /// 0, or what was wrong with the call as a whole.
        error: i16,
        /// In the order of the call.
        members: List<Left>,
    }
}

layout! {
    /// Describes groups.
    KafkaDescribe {
        /// Which.
        groups: List<Text>,
    }
}

item! {
    /// A member of a group.
    KafkaMember {
        /// Its id.
        member: Text,
        /// Its own name.
        instance: Option<Text>,
        /// What its program calls itself.
        client: Text,
        /// Where it is.
        host: Text,
        /// What it says of itself under the protocol that was chosen.
        metadata: Bytes,
        /// Its share.
        assignment: Bytes,
    }
}

item! {
    /// A group.
    KafkaGroup {
        /// Its id.
        group: Text,
        /// 0, or what was wrong.
        error: i16,
        /// `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`.
        state: Text,
        /// What kind of members it has.
        protocol_type: Text,
        /// The protocol chosen.
        protocol: Text,
        /// Its members.
        members: List<KafkaMember>,
    }
}

layout! {
    /// The groups.
    KafkaDescribed {
        /// In the order of the call.
        groups: List<KafkaGroup>,
    }
}

layout! {
    /// Lists the groups of a tenant.
    KafkaList {
        /// Only those in one of these states; empty for every one.
        states: List<Text>,
        /// Only those of one of these types, `classic` or `consumer`; empty for both.
        types: List<Text>,
    }
}

item! {
    /// A group in a listing.
    KafkaListing {
        /// Its id.
        group: Text,
        /// What kind of members it has.
        protocol_type: Text,
        /// Its state.
        state: Text,
        /// `classic` or `consumer`.
        kind: Text,
    }
}

layout! {
    /// The groups of a tenant that the caller may see.
    KafkaListed {
        /// 0, or what was wrong.
        error: i16,
        /// By id.
        groups: List<KafkaListing>,
    }
}

layout! {
    /// Deletes groups that have no members.
    KafkaDelete {
        /// Which.
        groups: List<Text>,
    }
}

layout! {
    /// The groups are gone, durably.
    KafkaDeleted {
        /// 0 or what was wrong, in the order of the call.
        errors: List<i16>,
    }
}
