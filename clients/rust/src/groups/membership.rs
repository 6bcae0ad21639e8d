//! Which shards a consumer may poll: joining, staying and leaving.

use std::collections::BTreeSet;
use std::time::Duration;

use felix_wire::extension::requests::{
    List, MemberAssigned, MemberHeartbeat, MemberJoin, MemberLeave, Text,
};

use super::{Group, millis_u32};
use crate::asks::{How, Repeat};
use crate::error::{CallFailed, Refused};
use crate::keyed::unsendable;

/// Shortest time between two heartbeats, whatever the broker says.
const HEARTBEAT_MIN: Duration = Duration::from_millis(50);

/// How a consumer comes by its shards.
#[derive(Debug)]
pub(super) struct Membership {
    group: Group,
    member: Text,
    session: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Out,
    /// Joined, on this connection.
    In {
        generation: u64,
        connection: Option<usize>,
    },
    /// The broker assigns nothing: every consumer polls every shard, and claims keep them apart.
    Alone,
}

/// What a member may poll, and when it is to ask again.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) shards: BTreeSet<u32>,
    pub(super) again: Duration,
    /// How long the answer holds from when it was asked for: after that the shards may be another's.
    pub(super) holds: Option<Duration>,
}

impl Membership {
    pub(super) fn new(group: Group, member: &str, session: Duration) -> Self {
        Self {
            group,
            member: member.into(),
            session,
            state: State::Out,
        }
    }

    /// Says which shards are held, joining first where needed. Answers which may be.
    pub(super) async fn renew(&mut self, held: &BTreeSet<u32>) -> Result<Assigned, CallFailed> {
        loop {
            let answered = match self.state {
                State::Alone => return self.alone().await,
                State::Out => self.ask_to_join(held).await,
                State::In { generation, .. } => self.heartbeat(generation, held).await,
            };
            let connection = self.group.client.inner.brokers.current_connection();
            match answered {
                Ok(assigned) => {
                    self.state = State::In {
                        generation: assigned.generation,
                        connection: self.joined_on().or(connection),
                    };
                    let again = Duration::from_millis(assigned.heartbeat_ms.into());
                    return Ok(Assigned {
                        shards: assigned.assigned.iter().collect(),
                        again: again.max(HEARTBEAT_MIN),
                        holds: Some(self.session),
                    });
                }
                Err(CallFailed::Unsupported { .. }) => self.state = State::Alone,
                Err(CallFailed::Refused(refused)) if refused.code == "feature_not_enabled" => {
                    self.state = State::Alone;
                }
                Err(CallFailed::Refused(refused))
                    if refused.code == "stale_claim"
                        && self.may_join_again(&refused, connection) =>
                {
                    self.state = State::Out;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    fn joined_on(&self) -> Option<usize> {
        match self.state {
            State::In { connection, .. } => connection,
            State::Out | State::Alone => None,
        }
    }

    /// The broker has forgotten this member: it was silent for too long, the broker is another, or the connection it
    /// joined on is gone. On the same connection it is another process that took its name.
    fn may_join_again(&self, refused: &Refused, connection: Option<usize>) -> bool {
        let replaced = refused.reason.as_deref() == Some("member_replaced");
        matches!(self.state, State::In { .. }) && (!replaced || self.joined_on() != connection)
    }

    async fn ask_to_join(&self, held: &BTreeSet<u32>) -> Result<MemberAssigned, CallFailed> {
        let ask = MemberJoin {
            group: self.group.name.clone(),
            member: self.member.clone(),
            session_ms: millis_u32(self.session),
            held: List::build(held.iter().copied()).map_err(unsendable)?,
        };
        let inner = &self.group.client.inner;
        let how = How::new(Repeat::Always);
        inner.ask(&self.group.names, ask, how).await
    }

    async fn heartbeat(
        &self,
        generation: u64,
        held: &BTreeSet<u32>,
    ) -> Result<MemberAssigned, CallFailed> {
        let ask = MemberHeartbeat {
            group: self.group.name.clone(),
            member: self.member.clone(),
            generation,
            held: List::build(held.iter().copied()).map_err(unsendable)?,
        };
        let inner = &self.group.client.inner;
        let how = How::new(Repeat::Always);
        inner.ask(&self.group.names, ask, how).await
    }

    async fn alone(&self) -> Result<Assigned, CallFailed> {
        let shards = self.group.shards().await?;
        Ok(Assigned {
            shards: (0..shards).collect(),
            again: self.session,
            holds: None,
        })
    }

    /// Leaves; the shards go to others at once.
    pub(super) async fn leave(self) {
        if !matches!(self.state, State::In { .. }) {
            return;
        }
        let ask = MemberLeave {
            group: self.group.name.clone(),
            member: self.member.clone(),
        };
        let inner = &self.group.client.inner;
        let how = How::new(Repeat::Always);
        if let Err(failed) = inner.ask(&self.group.names, ask, how).await {
            tracing::debug!(%failed, "leaving the group failed; the session ends by itself");
        }
    }
}
