//! Positions that groups commit.

use std::sync::Arc;

use felix_model::TimeMs;

use super::assign::Partition;
use crate::membership::Who;

/// Bytes of what a group may keep beside a position.
pub const METADATA_BYTES_MAX: usize = 4096;

/// Where a group is in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The next offset to read.
    pub offset: u64,
    /// The generation of the last record read; -1 when that is not known.
    pub generation: i64,
    /// Whatever the group keeps beside it.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub committed_at: TimeMs,
}

/// Somebody commits positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAsk {
    /// Who; the member id is empty for somebody who is in no group and only uses its name.
    pub who: Who,
    /// Of the classic assignment, or the member's epoch; negative for somebody who is in no group.
    pub generation: i64,
    /// What is committed.
    pub positions: Vec<(Partition, Position)>,
}

/// Why positions were not committed. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCommitted {
    /// The member's standing does not allow it.
    #[error(transparent)]
    Membership(#[from] crate::membership::MembershipRefused),
    /// The member's epoch is not the one it has.
    #[error("the member is at epoch {current}")]
    StaleEpoch {
        /// The one it has.
        current: i64,
    },
    /// There is no such group.
    #[error("there is no such group")]
    NoGroup,
}
