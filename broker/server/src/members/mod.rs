//! Members of consumer groups, and which shards of a stream each works on.
//!
//! A native group has one position per shard and no need of members; those who do not want to pick shards by hand join
//! it here. The groups live in this broker's memory: after a restart members join again and say what they hold. So that
//! nobody is given what somebody else still works on, a marker in the data directory says how long the longest session
//! was that anybody in a group has; for as long nothing unreported is given out after a start.

pub(crate) mod requests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use felix_auth::{Action, Principal, Resource};
use felix_engine::Ticket;
use felix_engine::membership::{
    Assigned, AssignedAnswer, AssignedEffect, AssignedInput, AssignedOptions, Assignment, Beat,
    Join, MemberId, MembershipRefused,
};
use felix_journal::{Disk, durable};
use felix_model::{Incarnation, StreamId, TimeMs};
use felix_wire::error::{Code, Failure, Retry};

use crate::broker::Shared;
use crate::limits::{GROUPS_WITH_MEMBERS_MAX, MEMBERS_PER_GROUP_MAX};
use crate::shards::{Kind, Shards};

/// Sessions that a member may ask for: a shorter one would take a slow network for a death, a longer one would leave
/// the shards of a dead member alone for too long.
const SESSION_MS_MIN: u64 = 1_000;
const SESSION_MS_MAX: u64 = 300_000;

/// How long a member may take to finish what it has in hand of a shard that goes to another.
const GIVE_UP_MS: u64 = 60_000;

/// How long the first member of a group waits for others that are just starting.
const INITIAL_DELAY_MS: u64 = 250;

/// How soon a member that waits for shards asks again.
const WAITING_BEAT_MS: u64 = 250;

/// Longest name of a group or a member.
const NAME_BYTES_MAX: usize = 128;

/// In the data directory: the longest session of those who may be members, in milliseconds.
const MARKER: &str = "members";

/// How often it is looked at whether the marker may say less.
const LOWER_EVERY_MS: u64 = 60_000;

/// The marker, as it stays while somebody joins.
type MutexLock<'a> = tokio::sync::MutexGuard<'a, u64>;

/// What a member may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// To be in, working on `held` already.
    Join { session_ms: u64, held: Vec<u32> },
    /// What it may work on now.
    Heartbeat { generation: u64, held: Vec<u32> },
    /// To be out; it has stopped.
    Leave,
}

/// How it went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It may work on these, and nothing else.
    Assigned {
        generation: u64,
        shards: u32,
        heartbeat_ms: u64,
        assigned: Vec<u32>,
    },
    /// It is out; `existed` says whether it was in.
    Left { existed: bool },
}

/// Who asks: a name is one process at a time, and a process is one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) connection: u64,
    /// What the member's token stands for on that connection.
    pub(crate) standing: u64,
    pub(crate) principal: &'a Principal,
    pub(crate) group: &'a str,
    pub(crate) member: &'a str,
}

/// Every group that has members here.
#[derive(Debug)]
pub(crate) struct Members {
    groups: Mutex<Groups>,
    /// Until when members of an earlier life of this broker may still be working, in time since its start.
    quiet_until: TimeMs,
    marker: Option<Marker>,
}

#[derive(Debug)]
struct Marker {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What it says. Held from then on until a member is in: the marker is not lowered in between.
    longest: tokio::sync::Mutex<u64>,
    /// When it is looked at next whether it may say less, in milliseconds since the start.
    look_at: AtomicU64,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<Name, Group>,
    sessions: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    stream: StreamId,
    incarnation: Incarnation,
    group: String,
}

#[derive(Debug)]
struct Group {
    core: Assigned,
    joined: HashMap<MemberId, Joined>,
}

/// How a member came in.
#[derive(Clone, Copy, Debug)]
struct Joined {
    connection: u64,
    /// The number of the joining.
    session: u64,
    /// What it spoke under last.
    standing: u64,
}

/// From where a member speaks: a connection, and what its token stands for there.
#[derive(Clone, Copy, Debug)]
struct Speaks {
    connection: u64,
    standing: u64,
}

impl Members {
    /// Reads how long to wait for members of an earlier life.
    pub(crate) fn new(shards: &Shards) -> Self {
        let place = shards.store.as_ref();
        let path = place.map(|store| store.root.join(MARKER));
        let read = place
            .zip(path.as_ref())
            .and_then(|(store, path)| durable::read(store.disk.as_ref(), path).ok().flatten());
        // A marker that cannot be read says that there were members, and not how patient they are.
        let longest = read.map_or(0, |bytes| {
            let text = String::from_utf8(bytes).unwrap_or_default();
            text.trim().parse().unwrap_or(SESSION_MS_MAX)
        });
        Self {
            groups: Mutex::default(),
            quiet_until: TimeMs(longest),
            marker: place.zip(path).map(|(store, path)| Marker {
                disk: Arc::clone(&store.disk),
                path,
                longest: tokio::sync::Mutex::new(longest),
                // Before that, members of the earlier life may be at work.
                look_at: AtomicU64::new(longest.saturating_add(LOWER_EVERY_MS)),
            }),
        }
    }

    /// Lets time pass for everybody. Cheap when nothing is due. Blocking.
    pub(crate) fn tick(&self, now: TimeMs) {
        self.pass(now);
        self.lower(now);
    }

    /// Lets the marker say less once the members with the longest sessions are gone.
    fn lower(&self, now: TimeMs) {
        let Some(marker) = &self.marker else { return };
        if now.0 < marker.look_at.load(Ordering::Relaxed) {
            return;
        }
        // Somebody is joining; there will be another time.
        let Ok(mut longest) = marker.longest.try_lock() else {
            return;
        };
        let next = now.plus(LOWER_EVERY_MS);
        marker.look_at.store(next.0, Ordering::Relaxed);
        let sessions = |group: &Group| group.core.members().map(|member| member.session_ms).max();
        let alive = self.lock().by_name.values().filter_map(sessions).max();
        let alive = alive.unwrap_or(0);
        if alive >= *longest {
            return;
        }
        let text = alive.to_string();
        match durable::replace(marker.disk.as_ref(), &marker.path, text.as_bytes()) {
            Ok(()) => *longest = alive,
            Err(error) => tracing::warn!(%error, "the members' marker cannot be written"),
        }
    }

    fn pass(&self, now: TimeMs) {
        let mut effects = Vec::new();
        self.lock().by_name.retain(|_, group| {
            if group.core.next_deadline().is_some_and(|due| due <= now) {
                group.core.handle(now, AssignedInput::Tick, &mut effects);
                group.forget_lost();
            }
            !group.core.is_empty()
        });
    }

    /// Takes out every member that speaks under a standing, as if it had left: it may not work any more.
    pub(crate) fn expel(&self, now: TimeMs, standing: u64) {
        self.lock().by_name.retain(|_, group| {
            let lost: Vec<_> = group
                .joined
                .iter()
                .filter(|(_, joined)| joined.standing == standing)
                .map(|(member, joined)| (member.clone(), joined.session))
                .collect();
            let mut effects = Vec::new();
            for (member, session) in lost {
                let leave = AssignedInput::Leave {
                    ticket: Ticket(0),
                    member,
                    session,
                };
                group.core.handle(now, leave, &mut effects);
            }
            group.forget_lost();
            !group.core.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers on disk that somebody has a session of this length. He must be in before what this returns is dropped.
    async fn remember(&self, session_ms: u64) -> Result<Option<MutexLock<'_>>, Failure> {
        let Some(marker) = &self.marker else {
            return Ok(None);
        };
        let mut longest = marker.longest.lock().await;
        if *longest >= session_ms {
            return Ok(Some(longest));
        }
        let (disk, path) = (Arc::clone(&marker.disk), marker.path.clone());
        let text = session_ms.to_string();
        let writing = tokio::task::spawn_blocking(move || {
            durable::replace(disk.as_ref(), &path, text.as_bytes())
        });
        let failed = |why: String| Failure::new(Code::Storage, why).with_retry(Retry::Retry);
        writing
            .await
            .map_err(|_| failed("the write was interrupted".into()))?
            .map_err(|error| failed(error.to_string()))?;
        *longest = session_ms;
        Ok(Some(longest))
    }
}

/// Carries out what a member asks.
///
/// # Errors
/// A coded refusal; nothing changed.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    id: &StreamId,
    asker: Asker<'_>,
    op: Op,
) -> Result<Answer, Failure> {
    may_consume(asker, id)?;
    check_names(asker)?;
    let handle = shared.stream(id, asker.principal).await?;
    let spec = handle.spec();
    if matches!(spec.kind, Kind::Memory { .. }) {
        let message = "a group needs a durable stream: this one is in memory";
        return Err(Failure::new(Code::InvalidRequest, message).with_reason("not_durable"));
    }
    match &op {
        Op::Join { held, .. } | Op::Heartbeat { held, .. } => check_held(held, spec.shards)?,
        Op::Leave => {}
    }
    let _remembered = match &op {
        Op::Join { session_ms, .. } if (SESSION_MS_MIN..=SESSION_MS_MAX).contains(session_ms) => {
            shared.members.remember(*session_ms).await?
        }
        Op::Join { .. } | Op::Heartbeat { .. } | Op::Leave => None,
    };
    let name = Name {
        stream: id.clone(),
        incarnation: spec.incarnation,
        group: asker.group.to_owned(),
    };
    let now = TimeMs(u64::try_from(shared.shards.elapsed().as_millis()).unwrap_or(u64::MAX));
    let from = Speaks {
        connection: asker.connection,
        standing: asker.standing,
    };
    let who = (from, asker.member);
    shared.members.turn(now, &name, spec.shards, who, op)
}

impl Members {
    /// One input to one group, with its answer.
    fn turn(
        &self,
        now: TimeMs,
        name: &Name,
        shards: u32,
        (from, member): (Speaks, &str),
        op: Op,
    ) -> Result<Answer, Failure> {
        let mut groups = self.lock();
        let Groups { by_name, sessions } = &mut *groups;
        let member = MemberId::from(member);
        if !by_name.contains_key(name) {
            match op {
                Op::Join { .. } => {}
                Op::Heartbeat { .. } => return Err(refusal(&MembershipRefused::UnknownMember)),
                Op::Leave => return Ok(Answer::Left { existed: false }),
            }
            if by_name.len() >= GROUPS_WITH_MEMBERS_MAX {
                let message = format!(
                    "{GROUPS_WITH_MEMBERS_MAX} groups have members here, which is the limit"
                );
                return Err(Failure::new(Code::LimitExceeded, message).with_reason("groups"));
            }
        }
        let group = by_name.entry(name.clone()).or_insert_with(|| Group {
            core: Assigned::new(self.options(), shards),
            joined: HashMap::new(),
        });
        let outcome = group.turn(now, sessions, from, member, op);
        group.forget_lost();
        let beat_ms = group.core.is_settling().then_some(WAITING_BEAT_MS);
        if group.core.is_empty() {
            by_name.remove(name);
        }
        match outcome {
            Ok(AssignedAnswer::Assignment(assignment)) => Ok(assigned(assignment, shards, beat_ms)),
            Ok(AssignedAnswer::Left) => Ok(Answer::Left { existed: true }),
            Err(refused) => Err(refusal(&refused)),
        }
    }

    fn options(&self) -> AssignedOptions {
        AssignedOptions {
            session_ms_min: SESSION_MS_MIN,
            session_ms_max: SESSION_MS_MAX,
            members_max: MEMBERS_PER_GROUP_MAX,
            initial_delay_ms: INITIAL_DELAY_MS,
            quiet_until: self.quiet_until,
        }
    }
}

impl Group {
    fn turn(
        &mut self,
        now: TimeMs,
        sessions: &mut u64,
        from: Speaks,
        member: MemberId,
        op: Op,
    ) -> Result<AssignedAnswer, MembershipRefused> {
        let ticket = Ticket(0);
        let joined = self.joined.get(&member).copied();
        let is_join = matches!(op, Op::Join { .. });
        let input = match (op, joined) {
            (Op::Join { session_ms, held }, _) => {
                *sessions += 1;
                let join = Join {
                    member: member.clone(),
                    session: *sessions,
                    session_ms,
                    rebalance_ms: GIVE_UP_MS,
                    owned: held,
                };
                AssignedInput::Join { ticket, join }
            }
            (Op::Heartbeat { .. } | Op::Leave, None) => {
                return Err(MembershipRefused::UnknownMember);
            }
            (Op::Heartbeat { .. } | Op::Leave, Some(joined))
                if joined.connection != from.connection =>
            {
                return Err(MembershipRefused::Fenced);
            }
            (Op::Heartbeat { generation, held }, Some(Joined { session, .. })) => {
                if let Some(joined) = self.joined.get_mut(&member) {
                    joined.standing = from.standing;
                }
                let beat = Beat {
                    member: member.clone(),
                    session,
                    generation,
                    owned: held,
                    wait_ms: 0,
                };
                AssignedInput::Beat { ticket, beat }
            }
            (Op::Leave, Some(Joined { session, .. })) => AssignedInput::Leave {
                ticket,
                member: member.clone(),
                session,
            },
        };
        let mut effects = Vec::new();
        self.core.handle(now, input, &mut effects);
        // Nothing waits here, so the only answer is the one to this.
        let answer = effects.pop();
        let outcome = answer.map_or(
            Err(MembershipRefused::UnknownMember),
            |AssignedEffect { outcome, .. }| outcome,
        );
        if is_join && outcome.is_ok() {
            let joined = Joined {
                connection: from.connection,
                session: *sessions,
                standing: from.standing,
            };
            self.joined.insert(member, joined);
        }
        outcome
    }

    /// Forgets the connections of members that are out.
    fn forget_lost(&mut self) {
        if self.joined.len() > self.core.len() {
            let core = &self.core;
            self.joined.retain(|member, _| core.has(member));
        }
    }
}

fn assigned(assignment: Assignment, shards: u32, beat_ms: Option<u64>) -> Answer {
    let waits = (assignment.pending > 0).then_some(WAITING_BEAT_MS);
    let soon = beat_ms.or(waits).unwrap_or(u64::MAX);
    Answer::Assigned {
        generation: assignment.generation,
        shards,
        heartbeat_ms: assignment.beat_ms.min(soon),
        assigned: assignment.shards,
    }
}

fn may_consume(asker: Asker<'_>, id: &StreamId) -> Result<(), Failure> {
    let resource = Resource::Group {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        stream: id.stream.as_str(),
        group: asker.group,
    };
    if asker.principal.allows(Action::GroupConsume, &resource) {
        return Ok(());
    }
    let message = format!(
        "the token does not allow group.consume on group:{id}/{}",
        asker.group
    );
    Err(Failure::new(Code::Forbidden, message))
}

fn check_names(asker: Asker<'_>) -> Result<(), Failure> {
    for (what, name) in [("group", asker.group), ("member", asker.member)] {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            let message = format!(
                "the name of a {what} has 1 to {NAME_BYTES_MAX} bytes, this one {}",
                name.len()
            );
            return Err(Failure::new(Code::InvalidRequest, message));
        }
    }
    Ok(())
}

fn check_held(held: &[u32], shards: u32) -> Result<(), Failure> {
    if held.len() > shards as usize || held.iter().any(|shard| *shard >= shards) {
        let message = format!(
            "{} shards are said to be held of a stream that has {shards}",
            held.len()
        );
        return Err(Failure::new(Code::InvalidRequest, message));
    }
    Ok(())
}

fn refusal(refused: &MembershipRefused) -> Failure {
    let message = refused.to_string();
    let coded = |code, reason| Failure::new(code, message.clone()).with_reason(reason);
    match refused {
        MembershipRefused::UnknownMember => {
            coded(Code::StaleClaim, "unknown_member").with_retry(Retry::Fatal)
        }
        MembershipRefused::Fenced => {
            coded(Code::StaleClaim, "member_replaced").with_retry(Retry::Fatal)
        }
        MembershipRefused::InvalidSession { .. } => coded(Code::InvalidRequest, "session"),
        MembershipRefused::Full { .. } => coded(Code::LimitExceeded, "members"),
        MembershipRefused::NotCoordinator => coded(Code::ShardUnavailable, "not_ready"),
        // Of groups that a member shares out, which are not served here.
        MembershipRefused::IllegalGeneration { .. }
        | MembershipRefused::RebalanceInProgress
        | MembershipRefused::InconsistentProtocol
        | MembershipRefused::IdRequired { .. } => Failure::new(Code::Internal, message),
    }
}

#[cfg(test)]
mod tests;
