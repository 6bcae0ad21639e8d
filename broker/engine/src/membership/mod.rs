//! Who is in a consumer group, and who of them works on which shard.
//!
//! Two state machines for two ways of sharing shards out; both hold one group, take inputs with a
//! time and push answers, and neither has a clock:
//!
//! | | who decides | used by |
//! |---|---|---|
//! | [`Assigned`] | the broker: sticky, balanced, cooperative | members of a native group |
//! | [`Led`] | one of the members, in bytes nobody else reads | Kafka's classic groups |
//!
//! A request that cannot be answered yet is parked under its [`Ticket`](crate::Ticket) and answered
//! by a later input. Whoever runs the machine calls `Tick` when its `next_deadline` has come.
//!
//! Neither knows positions: those belong to the shard (native groups) or to the group's own log
//! (Kafka groups), and are read anew on every assignment.

mod assign;
mod assigned;
mod led;

use std::fmt;
use std::sync::Arc;

use felix_model::TimeMs;

pub use assign::balance;
pub use assigned::{
    Assigned, AssignedAnswer, AssignedEffect, AssignedInput, AssignedOptions, Assignment, Beat,
    Join, MemberView,
};
pub use led::{
    JoinLed, Joined, JoinedMember, Led, LedAnswer, LedEffect, LedInput, LedOptions, LedState,
    Protocol, SyncLed, Who,
};

/// Names a member within its group. Native members choose it; Kafka's are given one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A client that has not been given an id yet sends an empty one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for MemberId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for MemberId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a group refused a member. Nothing changed, except where a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipRefused {
    /// The group does not have this member (any more): it stops its work and joins anew. Kafka's
    /// `UNKNOWN_MEMBER_ID`.
    #[error("the group has no such member; it was never there, left, or was silent for too long")]
    UnknownMember,
    /// Another process joined under the same name and took its place: this one stops for good.
    /// Kafka's `FENCED_INSTANCE_ID`.
    #[error("another process joined as this member and took its place")]
    Fenced,
    /// The caller acts on an assignment that is no more. Kafka's `ILLEGAL_GENERATION`.
    #[error("the group is in generation {current}, not {named}")]
    IllegalGeneration {
        /// The group's.
        current: u32,
        /// The caller's.
        named: u32,
    },
    /// The group is being shared out anew: join again. Kafka's `REBALANCE_IN_PROGRESS`.
    #[error("the group is being shared out anew")]
    RebalanceInProgress,
    /// The member speaks no assignment protocol that all others speak, or is of another kind of
    /// group. Kafka's `INCONSISTENT_GROUP_PROTOCOL`.
    #[error("the member has no protocol in common with the group")]
    InconsistentProtocol,
    /// The session timeout is out of bounds. Kafka's `INVALID_SESSION_TIMEOUT`.
    #[error("a session of {asked} ms is not within {min} to {max} ms")]
    InvalidSession {
        /// What was asked for.
        asked: u64,
        /// Inclusive.
        min: u64,
        /// Inclusive.
        max: u64,
    },
    /// The group has as many members as it may. Kafka's `GROUP_MAX_SIZE_REACHED`.
    #[error("the group has {limit} members, which is the limit")]
    Full {
        /// How many it may have.
        limit: usize,
    },
    /// The caller joins again under this id, which is kept for it for one session. Kafka's
    /// `MEMBER_ID_REQUIRED`.
    #[error("join again as {id}")]
    IdRequired {
        /// The id.
        id: MemberId,
    },
    /// The group is not here any more: ask who coordinates it. Kafka's `NOT_COORDINATOR`.
    #[error("the group is not coordinated here any more")]
    NotCoordinator,
}

/// The earlier of two times, either of which may be missing.
fn earlier(a: Option<TimeMs>, b: Option<TimeMs>) -> Option<TimeMs> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
