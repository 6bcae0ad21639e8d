//! What goes into a group and what comes out.

use felix_model::TimeMs;

use super::super::{MemberId, MembershipRefused};
use crate::input::Ticket;

/// The bounds of a group, and what is known of the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedOptions {
    /// Shortest session a member may ask for, in milliseconds.
    pub session_ms_min: u64,
    /// Longest session a member may ask for, in milliseconds.
    pub session_ms_max: u64,
    /// Members the group may have.
    pub members_max: usize,
    /// How long the first member waits for others before shards are shared out, in milliseconds.
    /// Each further one adds as much, up to three times as much in all.
    pub initial_delay_ms: u64,
    /// Until when members of an earlier life of this broker may still be working on shards. What
    /// nobody reports is given to nobody before. [`TimeMs::ZERO`]: there was no such life.
    pub quiet_until: TimeMs,
}

/// A member comes in, for the first time or after it lost its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its name. A process that joins under the name of another takes its place and its shards.
    pub member: MemberId,
    /// Tells this joining from any other of the same name. The caller makes it unique, and larger
    /// than those of earlier joinings.
    pub session: u64,
    /// The member is given up for lost after this long without a beat, in milliseconds.
    pub session_ms: u64,
    /// How long it may take to give up a shard, in milliseconds, counted from when it sent the last
    /// beat whose answer still let it have the shard. After that the shard is given on all the same, so
    /// the member must have stopped.
    pub rebalance_ms: u64,
    /// What it is working on. It goes on with what nobody else holds.
    pub owned: Vec<u32>,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Who.
    pub member: MemberId,
    /// Of its joining.
    pub session: u64,
    /// The generation of the assignment it follows now.
    pub generation: u64,
    /// What it is working on.
    pub owned: Vec<u32>,
    /// How long the answer may wait for news, in milliseconds; at most a third of the session.
    pub wait_ms: u64,
}

/// One thing that happened. [`Assigned::handle`](super::Assigned::handle) takes them one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignedInput {
    /// Somebody joins. Answered at once.
    Join {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        join: Join,
    },
    /// Somebody is alive. Answered when there is news for it or the wait is over.
    Beat {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        beat: Beat,
    },
    /// Somebody leaves, having stopped all work. Answered at once.
    Leave {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        member: MemberId,
        /// Of its joining.
        session: u64,
    },
    /// The stream has this many shards now.
    Shards {
        /// How many.
        count: u32,
    },
    /// [`Assigned::next_deadline`](super::Assigned::next_deadline) has come.
    Tick,
    /// The group is coordinated elsewhere from now on, or its stream is gone.
    Close,
}

/// What a member may work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Of its joining; its beats carry it.
    pub session: u64,
    /// Of two answers the one with the larger generation counts; its beats carry it.
    pub generation: u64,
    /// Exactly these, in order. What else it works on it gives up, and says so by a beat without
    /// it.
    pub shards: Vec<u32>,
    /// How many more it will get once others have given them up.
    pub pending: u32,
    /// When the next beat is due, in milliseconds.
    pub beat_ms: u64,
}

/// How a request went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignedAnswer {
    /// The member is in and may work.
    Assignment(Assignment),
    /// The member is out.
    Left,
}

/// An answer to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedEffect {
    /// To which request.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Result<AssignedAnswer, MembershipRefused>,
}

/// One member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub member: MemberId,
    /// What it may work on.
    pub shards: Vec<u32>,
    /// What it was told to give up and has not.
    pub gives_up: Vec<u32>,
    /// When it was last heard of.
    pub heard: TimeMs,
    /// How long it may be silent, in milliseconds.
    pub session_ms: u64,
}
