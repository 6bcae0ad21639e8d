//! The binary calls `member join`, `member heartbeat` and `member leave`.

use felix_model::StreamId;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::requests::{Ask, List, MemberAssigned, MemberLeft, Reply, Text};

use super::{Answer, Asker, Op, call};
use crate::conn::calls::Turn;
use crate::conn::stream::StreamState;

/// Carries out the calls on one stream that came in one turn, in their order.
pub(crate) async fn turn(state: &StreamState, turn: Turn) {
    let Turn { names, asks } = turn;
    let id = state.name(names.tenant(), names.namespace(), names.stream());
    for (ask, caller) in asks {
        let outcome = match &id {
            Ok(id) => one(state, id, ask).await,
            Err(failure) => Err(failure.clone()),
        };
        caller.answer(outcome.map_err(Into::into));
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "calls of other families are never handed over here"
)]
async fn one(state: &StreamState, id: &StreamId, ask: Ask) -> Result<Reply, Failure> {
    match ask {
        Ask::MemberJoin(ask) => {
            let op = Op::Join {
                session_ms: u64::from(ask.session_ms),
                held: ask.held.iter().collect(),
            };
            let answer = asked(state, id, (&ask.group, &ask.member), op).await?;
            assigned(answer).map(Reply::MemberJoin)
        }
        Ask::MemberHeartbeat(ask) => {
            let op = Op::Heartbeat {
                generation: ask.generation,
                held: ask.held.iter().collect(),
            };
            let answer = asked(state, id, (&ask.group, &ask.member), op).await?;
            assigned(answer).map(Reply::MemberHeartbeat)
        }
        Ask::MemberLeave(ask) => {
            match asked(state, id, (&ask.group, &ask.member), Op::Leave).await? {
                Answer::Left { existed } => Ok(Reply::MemberLeave(MemberLeft { existed })),
                Answer::Assigned { .. } => Err(mixed_up()),
            }
        }
        _ => Err(mixed_up()),
    }
}

async fn asked(
    state: &StreamState,
    id: &StreamId,
    (group, member): (&Text, &Text),
    op: Op,
) -> Result<Answer, Failure> {
    let asker = Asker {
        connection: state.conn.id,
        standing: state.standing.id,
        principal: &state.principal,
        group: group.as_str(),
        member: member.as_str(),
    };
    call(&state.conn.shared, id, asker, op).await
}

fn assigned(answer: Answer) -> Result<MemberAssigned, Failure> {
    match answer {
        Answer::Assigned {
            generation,
            shards,
            heartbeat_ms,
            assigned,
        } => Ok(MemberAssigned {
            generation,
            shards,
            heartbeat_ms: u32::try_from(heartbeat_ms).unwrap_or(u32::MAX),
            assigned: List::build(assigned)
                .map_err(|error| Failure::new(Code::Internal, error.to_string()))?,
        }),
        Answer::Left { .. } => Err(mixed_up()),
    }
}

fn mixed_up() -> Failure {
    Failure::new(Code::Internal, "the answer is to something else")
}
