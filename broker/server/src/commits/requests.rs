//! The binary calls `commit`, `state get` and `state list`.

use std::sync::Arc;

use felix_engine::state::{CHANGES_MAX, CommitOp, PRECONDITIONS_MAX, Precondition};
use felix_model::forms::{self, Change};
use felix_model::{Offset, StreamId};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::extension::Refused as WireRefused;
use felix_wire::extension::requests::{
    Ask, Commit, Committed, List, Reply, StateEntry, StateGot, StateListed, Text, Versioned,
};

use super::{Answer, Op, Refused, Value, call, submit};
use crate::conn::calls::{Caller, Turn};
use crate::conn::stream::StreamState;

/// Carries out the calls on one stream that came in one turn. Commits are on their way when it returns, in their order.
pub(crate) async fn turn(state: &StreamState, turn: Turn) {
    let Turn { names, asks } = turn;
    let id = state.name(names.tenant(), names.namespace(), names.stream());
    for (ask, caller) in asks {
        match &id {
            Ok(id) => one(state, id, ask, caller).await,
            Err(failure) => caller.fail(failure.clone()),
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "calls of other families are never handed over here"
)]
async fn one(state: &StreamState, id: &StreamId, ask: Ask, caller: Caller) {
    match ask {
        Ask::Commit(ask) => commit(state, id, ask, caller).await,
        Ask::StateGet(ask) => {
            let op = Op::Get {
                entity: ask.entity,
                key: ask.key.bytes().clone(),
                shard: ask.shard,
            };
            read(state, id, op, caller);
        }
        Ask::StateList(ask) => {
            let op = Op::List {
                entity: ask.entity,
                prefix: ask.prefix.bytes().clone(),
                after: ask.after.map(|after| after.bytes().clone()),
                limit: ask.limit as usize,
                shard: ask.shard,
            };
            read(state, id, op, caller);
        }
        _ => caller.fail(Failure::new(
            Code::Internal,
            "the call is not about commits",
        )),
    }
}

async fn commit(state: &StreamState, id: &StreamId, ask: Commit, caller: Caller) {
    let shard = ask.shard;
    let op = match op(ask) {
        Ok(op) => op,
        Err(failure) => return caller.fail(failure),
    };
    // A mismatch is told by the key's name.
    let keys: Vec<_> = op
        .preconditions
        .iter()
        .map(|condition| condition.key.clone())
        .collect();
    // The refusal of a hand-over and the outcome of the commit exclude each other.
    let place = Arc::new(std::sync::Mutex::new(Some(caller)));
    let take = |place: &std::sync::Mutex<Option<Caller>>| {
        place
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    };
    let outcome = Arc::clone(&place);
    let done = Box::new(move |committed: Result<_, Refused>| {
        if let Some(caller) = take(&outcome) {
            caller.answer(
                committed
                    .map(|committed: felix_engine::state::Committed| {
                        Reply::Commit(Committed {
                            offset: committed.offset.0,
                            repeated: committed.repeated,
                        })
                    })
                    .map_err(|refused| refusal(refused, &keys)),
            );
        }
    });
    let shared = &state.conn.shared;
    if let Err(failure) = submit(shared, &state.principal, id, (op, shard), done).await
        && let Some(caller) = take(&place)
    {
        caller.fail(failure);
    }
}

fn op(ask: Commit) -> Result<CommitOp, Failure> {
    let conditions = ask.preconditions.unwrap_or_default();
    // Before memory is taken for each of them.
    if ask.changes.len() > CHANGES_MAX || conditions.len() > PRECONDITIONS_MAX {
        let message = format!(
            "{} changes and {} preconditions are over the limits of {CHANGES_MAX} and {PRECONDITIONS_MAX}",
            ask.changes.len(),
            conditions.len()
        );
        return Err(Failure::new(Code::LimitExceeded, message).with_reason("changes"));
    }
    let changes = ask.changes.iter().map(|change| {
        let key = change.key.bytes().clone();
        match change.value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        }
    });
    Ok(CommitOp {
        commit: forms::Commit {
            entity: ask.entity,
            event: ask.event,
            changes: changes.collect(),
            idempotency: ask.once,
        },
        preconditions: conditions
            .iter()
            .map(|condition| Precondition {
                key: condition.key.bytes().clone(),
                version: condition.version.map(Offset),
            })
            .collect(),
        expected: ask.expected_offset.map(Offset),
    })
}

/// Reads may have to go to the disk, so they do not hold up the calls behind them.
fn read(state: &StreamState, id: &StreamId, op: Op, caller: Caller) {
    let (shared, principal) = (Arc::clone(&state.conn.shared), Arc::clone(&state.principal));
    let id = id.clone();
    state.conn.tasks.spawn(async move {
        let answer = call(&shared, &principal, &id, op).await;
        let reply = answer
            .map_err(|refused| refusal(refused, &[]))
            .and_then(reply);
        caller.answer(reply);
    });
}

fn reply(answer: Answer) -> Result<Reply, WireRefused> {
    let offset = |offset: Option<Offset>| offset.map(|offset| offset.0);
    Ok(match answer {
        Answer::Committed(committed) => Reply::Commit(Committed {
            offset: committed.offset.0,
            repeated: committed.repeated,
        }),
        Answer::Value { value, as_of } => Reply::StateGet(StateGot {
            as_of: offset(as_of),
            value: value.map(|Value { version, value }| Versioned {
                version: version.0,
                value,
            }),
        }),
        Answer::Page { rows, more, as_of } => {
            let entries = rows.into_iter().map(|(key, Value { version, value })| {
                Ok(StateEntry {
                    key: text(&key)?,
                    version: version.0,
                    value,
                })
            });
            Reply::StateList(StateListed {
                entries: List::build(entries.collect::<Result<Vec<_>, WireRefused>>()?)
                    .map_err(|error| Failure::new(Code::LimitExceeded, error.to_string()))?,
                more,
                as_of: offset(as_of),
            })
        }
    })
}

/// Every way in takes text for a state key.
fn text(key: &[u8]) -> Result<Text, WireRefused> {
    let text = std::str::from_utf8(key).map_err(|_| {
        Failure::new(Code::Internal, "a state key is not text").with_retry(Retry::Fatal)
    })?;
    Ok(text.into())
}

fn refusal(refused: Refused, keys: &[bytes::Bytes]) -> WireRefused {
    match refused {
        Refused::Failed(failure) => failure.into(),
        Refused::OffsetMismatch { tail } => WireRefused::offset_mismatch(tail.0),
        Refused::VersionMismatch { index, current } => {
            let key = keys.get(index).map(|key| String::from_utf8_lossy(key));
            let key = key.unwrap_or_default();
            WireRefused::version_mismatch(&key, current.map(|version| version.0))
        }
    }
}
