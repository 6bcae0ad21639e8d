//! What goes into a group in which the broker shares out, and what comes out.

use std::collections::BTreeSet;

use super::super::assign::{Assignor, Partition};
use crate::membership::{MembershipRefused, Who};

/// The bounds of such a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// How long a member may be silent, in milliseconds.
    pub session_ms: u64,
    /// How often it is to be heard, in milliseconds.
    pub heartbeat_ms: u32,
    /// Members the group may have.
    pub members_max: usize,
}

/// A stream by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    /// The namespace.
    pub namespace: String,
    /// The stream.
    pub stream: String,
}

/// What a stream's name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The stream's number, [`felix_model::Incarnation::number`].
    pub number: u64,
    /// How many shards it has.
    pub width: u32,
}

/// A member says that it is alive, and what has changed with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Who. The member chose its id itself.
    pub who: Who,
    /// 0 joins, -1 leaves, -2 leaves for a while under its instance; else the epoch it has.
    pub epoch: i64,
    /// Where it stands; never read here.
    pub rack: Option<String>,
    /// How long it may take to give partitions back, in milliseconds.
    pub rebalance_ms: Option<u64>,
    /// What it reads; absent when nothing changed.
    pub reads: Option<Vec<TopicName>>,
    /// Who is to share out; absent when it is all the same.
    pub assignor: Option<Assignor>,
    /// What it holds; absent when nothing changed.
    pub held: Option<BTreeSet<Partition>>,
    /// What its program calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
}

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its epoch.
    pub epoch: i64,
    /// What it may hold; absent when that has not changed since it was told.
    pub assigned: Option<BTreeSet<Partition>>,
}

/// Why a member was told nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// As in other groups.
    #[error(transparent)]
    Membership(#[from] MembershipRefused),
    /// The member's epoch is another than it says: it gives everything up and joins again.
    #[error("the member is at epoch {current}")]
    FencedEpoch {
        /// The one it has.
        current: i64,
    },
    /// The instance belongs to a member that has not left.
    #[error("the instance is in use")]
    Unreleased,
    /// A member that joins says what it reads, and holds nothing.
    #[error("a member that joins says what it reads and how long it needs, and holds nothing")]
    Incomplete,
    /// The group's members share out among themselves.
    #[error("the group is of another kind")]
    OtherKind,
}

/// Where such a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerState {
    /// Nobody is in it.
    Empty,
    /// Members are on their way to their shares.
    Reconciling,
    /// Everybody has its share.
    Stable,
}

/// A member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMemberView {
    /// Who.
    pub who: Who,
    /// Where it stands.
    pub rack: Option<String>,
    /// Its epoch.
    pub epoch: i64,
    /// What its program calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// What it reads.
    pub reads: Vec<TopicName>,
    /// What it may hold.
    pub assigned: BTreeSet<Partition>,
    /// What it is to hold.
    pub target: BTreeSet<Partition>,
}
