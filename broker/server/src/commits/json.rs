//! The messages `commit` and `state_get`.

use bytes::Bytes;
use felix_engine::state::CommitOp;
use felix_model::Offset;
use felix_model::forms::{self, Change};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    self, Commit, CommitOk, Message, PublishRefused, RefusedReason, StateGet, StateValue,
};

use super::{Answer, Op, Refused, call};
use crate::conn::stream::StreamState;

/// Answers `commit`.
pub(crate) async fn commit(state: &StreamState, ask: Commit) -> Result<Message, Failure> {
    let id = state.name(&ask.tenant_id, &ask.namespace, &ask.stream)?;
    let changes = ask.changes.into_iter().map(|change| match change {
        message::Change::Put { key, value } => Change::Put {
            key: Bytes::from(key),
            value,
        },
        message::Change::Delete { key } => Change::Delete {
            key: Bytes::from(key),
        },
    });
    let op = CommitOp {
        commit: forms::Commit {
            entity: ask.entity_key,
            event: ask.event,
            changes: changes.collect(),
            idempotency: None,
        },
        preconditions: Vec::new(),
        expected: ask.expected_offset.map(Offset),
    };
    let op = Op::Commit {
        op,
        shard: ask.shard,
    };
    let request_id = ask.request_id;
    match call(&state.conn.shared, &state.principal, &id, op).await {
        Ok(Answer::Committed(committed)) => Ok(CommitOk {
            request_id,
            offset: committed.offset.0,
        }
        .into()),
        Err(Refused::OffsetMismatch { tail }) => Ok(PublishRefused {
            request_id,
            reason: RefusedReason::OffsetMismatch { tail: tail.0 },
            message: format!("the next offset is {tail}, not the expected one"),
        }
        .into()),
        other => Err(unexpected(other)),
    }
}

/// Answers `state_get`.
pub(crate) async fn state_get(state: &StreamState, ask: StateGet) -> Result<Message, Failure> {
    let id = state.name(&ask.tenant_id, &ask.namespace, &ask.stream)?;
    let op = Op::Get {
        entity: ask.entity_key,
        key: Bytes::from(ask.key),
        shard: ask.shard,
    };
    match call(&state.conn.shared, &state.principal, &id, op).await {
        Ok(Answer::Value { value, as_of }) => {
            let (version, value) = value.map(|value| (value.version.0, value.value)).unzip();
            Ok(StateValue {
                value,
                version,
                as_of: as_of.map(|offset| offset.0),
                request_id: ask.request_id,
            }
            .into())
        }
        other => Err(unexpected(other)),
    }
}

/// The failure of a call that did not go well.
fn unexpected(outcome: Result<Answer, Refused>) -> Failure {
    match outcome {
        Err(Refused::Failed(failure)) => failure,
        Err(Refused::VersionMismatch { .. } | Refused::OffsetMismatch { .. }) => Failure::new(
            Code::InvalidRequest,
            "a condition of the commit does not hold",
        ),
        Ok(_) => Failure::new(Code::Internal, "the answer is to something else"),
    }
}
