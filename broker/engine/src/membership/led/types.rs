//! What goes into a group and what comes out.

use bytes::Bytes;

use super::super::{MemberId, MembershipRefused};
use crate::input::Ticket;

/// The bounds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedOptions {
    /// Shortest session a member may ask for, in milliseconds.
    pub session_ms_min: u64,
    /// Longest session a member may ask for, in milliseconds.
    pub session_ms_max: u64,
    /// Members the group may have, with those that were promised an id.
    pub members_max: usize,
    /// How long the first round waits for further members, in milliseconds; each that joins adds
    /// as much, up to the longest of their rebalance timeouts.
    pub initial_delay_ms: u64,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedState {
    /// Nobody is in it.
    Empty,
    /// Members are joining.
    Preparing,
    /// Everybody has joined; the leader is to say who gets what.
    Completing,
    /// Everybody works.
    Stable,
    /// The group is not here any more.
    Dead,
}

/// Who asks: a member id, and the instance id of a member that keeps its place over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Empty in a leave that names an instance only.
    pub member: MemberId,
    /// Absent for a member that is somebody new after a restart.
    pub instance: Option<MemberId>,
}

/// An assignment protocol, with what the member says about itself in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// `range`, `cooperative-sticky`, ….
    pub name: MemberId,
    /// Never read here.
    pub metadata: Bytes,
}

/// Somebody wants to be in the group, or to be in its next generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinLed {
    /// The member id is empty for somebody new.
    pub who: Who,
    /// The id a new member gets. Made by the caller, and never the same twice.
    pub fresh: MemberId,
    /// A new member must first be told its id and join again under it.
    pub id_required: bool,
    /// The member is given up for lost after this long without a sign, in milliseconds.
    pub session_ms: u64,
    /// How long it may take to join again, in milliseconds.
    pub rebalance_ms: u64,
    /// `consumer`, `connect`, ….
    pub protocol_type: MemberId,
    /// What it speaks, the one it likes best first.
    pub protocols: Vec<Protocol>,
}

/// Somebody asks for its assignment; the leader brings everybody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncLed {
    /// Who.
    pub who: Who,
    /// Of the join that was answered.
    pub generation: u32,
    /// As in the join's answer, from clients that say it.
    pub protocol_type: Option<MemberId>,
    /// As in the join's answer, from clients that say it.
    pub protocol: Option<MemberId>,
    /// Of everybody, from the leader.
    pub assignments: Vec<(MemberId, Bytes)>,
}

/// One thing that happened. [`Led::handle`](super::Led::handle) takes them one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedInput {
    /// Somebody joins. Answered when everybody has, or time is up.
    Join {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        join: JoinLed,
    },
    /// Somebody asks for its assignment. Answered when the leader has asked.
    Sync {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        sync: SyncLed,
    },
    /// Somebody is alive. Answered at once.
    Beat {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        who: Who,
        /// Of its assignment.
        generation: u32,
    },
    /// Some leave. Answered at once, one by one.
    Leave {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Who.
        members: Vec<Who>,
    },
    /// [`Led::next_deadline`](super::Led::next_deadline) has come.
    Tick,
    /// The group is coordinated elsewhere from now on.
    Close,
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Whose join it answers: the id it goes by.
    pub member: MemberId,
    /// The generation that begins.
    pub generation: u32,
    /// As the members have it.
    pub protocol_type: Option<MemberId>,
    /// The protocol that was chosen.
    pub protocol: Option<MemberId>,
    /// Who shares out.
    pub leader: MemberId,
    /// Everybody, for the leader; nobody, for all others.
    pub members: Vec<JoinedMember>,
    /// The leader came back and everybody keeps what it has.
    pub skip_assignment: bool,
}

/// A member as the leader is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its ids.
    pub who: Who,
    /// What it says about itself in the chosen protocol.
    pub metadata: Bytes,
}

/// How a request went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedAnswer {
    /// To a join.
    Joined(Joined),
    /// To a sync.
    Synced {
        /// As in the join's answer.
        protocol_type: Option<MemberId>,
        /// As in the join's answer.
        protocol: Option<MemberId>,
        /// What the leader assigned; empty when it assigned nothing.
        assignment: Bytes,
    },
    /// To a beat: go on.
    Alive,
    /// To a leave: what became of each, in the order of the request.
    Left(Vec<(Who, Result<(), MembershipRefused>)>),
}

/// An answer to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedEffect {
    /// To which request.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Result<LedAnswer, MembershipRefused>,
}
