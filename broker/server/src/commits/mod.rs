//! Atomic commits and entity state, for every protocol that offers them.
//!
//! [`call`] is the one way in: the JSON messages (`json.rs`) and the binary calls both map to an [`Op`]. What a commit
//! means is decided in the engine; here it is admitted, routed and waited for.

mod json;
pub(crate) mod requests;

use std::sync::Arc;

use bytes::Bytes;
use felix_auth::{Action, Principal, Resource};
use felix_engine::state::{
    CommitOp, CommitRefused, Committed, ENTITY_BYTES_MAX, LIST_MAX, STATE_KEY_BYTES_MAX, StateFound,
};
use felix_engine::{AppendRefused, CloseReason};
use felix_model::forms::Change;
use felix_model::{Offset, ShardIndex, StreamId};
use felix_wire::error::{Code, Failure, Retry};
use tokio::sync::oneshot;

use crate::broker::Shared;
use crate::conn::publish::{NotPublished, closed, may_publish, not_appended};
use crate::conn::stream::forbidden;
use crate::quotas::User;
use crate::shards::cell::{Cell, read_commit};
use crate::shards::{Kind, Marker, StreamHandle, StreamSpec, state};

pub(crate) use json::{commit, state_get};

/// What may be asked.
#[derive(Debug)]
pub(crate) enum Op {
    /// One event and the changes that go with it.
    Commit {
        op: CommitOp,
        /// Instead of hashing the entity.
        shard: Option<u32>,
    },
    /// One key of an entity's state.
    Get {
        entity: Bytes,
        key: Bytes,
        shard: Option<u32>,
    },
    /// An entity's state in the order of its keys.
    List {
        entity: Bytes,
        /// Keys that begin so.
        prefix: Bytes,
        /// Only keys above it.
        after: Option<Bytes>,
        /// At most so many; 0 for as many as a page holds.
        limit: usize,
        shard: Option<u32>,
    },
}

/// How it went well.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed(Committed),
    Value {
        value: Option<Value>,
        as_of: Option<Offset>,
    },
    Page {
        rows: Vec<(Bytes, Value)>,
        more: bool,
        as_of: Option<Offset>,
    },
}

/// A value and the commit that wrote it.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) version: Offset,
    pub(crate) value: Bytes,
}

/// Why nothing was done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Anything that has a code.
    Failed(Failure),
    /// The shard's next offset is another than was expected.
    OffsetMismatch { tail: Offset },
    /// A precondition does not hold.
    VersionMismatch {
        /// Which, from 0.
        index: usize,
        /// What the key is at.
        current: Option<Offset>,
    },
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Bytes of values in one page of a list; a single row may be larger.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Carries out what a client asks of a stream's commits and their state.
///
/// # Errors
/// [`Refused`]; nothing was appended, unless its class says that this is not known.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    principal: &Principal,
    id: &StreamId,
    op: Op,
) -> Result<Answer, Refused> {
    match op {
        Op::Commit { op, shard } => {
            let (sender, heard) = oneshot::channel();
            let done = Box::new(move |outcome| {
                // Whoever stopped waiting does not need to know.
                let _ = sender.send(outcome);
            });
            submit(shared, principal, id, (op, shard), done).await?;
            match heard.await {
                Ok(outcome) => outcome.map(Answer::Committed),
                // The shard went away with the commit in it.
                Err(_) => Err(unheard().into()),
            }
        }
        Op::Get { entity, key, shard } => {
            may_read(principal, id)?;
            check(&entity, &key)?;
            let target = target(shared, principal, id, &entity, shard).await?;
            get(target.cell, entity, key).await
        }
        Op::List {
            entity,
            prefix,
            after,
            limit,
            shard,
        } => {
            may_read(principal, id)?;
            check(&entity, &prefix)?;
            let target = target(shared, principal, id, &entity, shard).await?;
            let limit = if limit == 0 { LIST_MAX } else { limit };
            list(target.cell, entity, prefix, after, limit).await
        }
    }
}

/// Reading state is reading the stream: what it says was published there.
fn may_read(principal: &Principal, id: &StreamId) -> Result<(), Failure> {
    let resource = Resource::Stream {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        stream: id.stream.as_str(),
    };
    if principal.allows(Action::StreamSubscribe, &resource) {
        Ok(())
    } else {
        Err(forbidden("stream.subscribe", id))
    }
}

fn check(entity: &[u8], key: &[u8]) -> Result<(), Failure> {
    if entity.len() > ENTITY_BYTES_MAX || key.len() > STATE_KEY_BYTES_MAX {
        let message = format!(
            "entity and key of {} and {} bytes are over the limits of {ENTITY_BYTES_MAX} and {STATE_KEY_BYTES_MAX}",
            entity.len(),
            key.len()
        );
        return Err(Failure::new(Code::LimitExceeded, message).with_reason("key_bytes"));
    }
    Ok(())
}

/// The shard of an entity, opened.
struct Target {
    handle: Arc<StreamHandle>,
    spec: Arc<StreamSpec>,
    shard: ShardIndex,
    cell: Arc<Cell>,
}

async fn target(
    shared: &Arc<Shared>,
    principal: &Principal,
    id: &StreamId,
    entity: &[u8],
    shard: Option<u32>,
) -> Result<Target, Failure> {
    if shared.draining() {
        return Err(closed(CloseReason::Stopping));
    }
    let handle = shared.stream(id, principal).await?;
    let spec = handle.spec();
    if matches!(spec.kind, Kind::Memory { .. }) {
        let message = "commits and their state need a durable stream: this one is in memory";
        return Err(Failure::new(Code::InvalidRequest, message).with_reason("not_durable"));
    }
    let shard = match shard {
        Some(shard) if shard >= spec.shards => {
            let message = format!(
                "shard {shard} is out of range: the stream has {} shards",
                spec.shards
            );
            return Err(Failure::new(Code::InvalidRequest, message));
        }
        Some(shard) => ShardIndex(shard),
        None => spec.routing.shard(Some(entity), spec.shards),
    };
    let cell = match handle.open_cell(shard) {
        Some(cell) => cell,
        None => {
            let opening = shared.shards.open(&handle, shard).await;
            opening.map_err(|error| error.failure())?
        }
    };
    Ok(Target {
        handle,
        spec,
        shard,
        cell,
    })
}

/// Hears what became of a commit, on whatever thread finished it. It must not block. Dropped unheard when the shard
/// goes away with the commit in it.
type Done = Box<dyn FnOnce(Result<Committed, Refused>) + Send>;

fn unheard() -> Failure {
    Failure::new(Code::Storage, "the shard was closed while it committed")
        .with_retry(Retry::OutcomeUnknown)
}

/// Hands a commit to its shard. Commits that are handed over one after the other are judged in that order.
async fn submit(
    shared: &Arc<Shared>,
    principal: &Principal,
    id: &StreamId,
    (op, shard): (CommitOp, Option<u32>),
    done: Done,
) -> Result<(), Failure> {
    if !may_publish(principal, id) {
        return Err(forbidden("stream.publish", id));
    }
    let Target {
        handle,
        spec,
        shard,
        cell,
    } = target(shared, principal, id, &op.commit.entity, shard).await?;
    let options = state::options(&spec);
    // Before the marker: what is refused anyway leaves nothing behind.
    if let Err(refused) = op.check(options.commit_bytes_max) {
        shared.metrics.publish_refused.increment(1);
        done(Err(refusal(&refused)));
        return Ok(());
    }
    let bytes = bytes(&op);
    let by = User {
        namespace: id.namespace.as_str(),
        principal: &principal.subject,
    };
    shared
        .used(&id.tenant)
        .write(by, bytes, 1)
        .map_err(|exceeded| shared.exceeded(exceeded))?;
    let grant = shared.queue.acquire(&handle.tenant.id, bytes).await;
    let grant = grant.map_err(|full| {
        shared.metrics.queue_full.increment(1);
        Failure::new(Code::Overloaded, full.to_string())
            .with_reason("publish_queue_full")
            .with_retry_after_ms(full.retry_after_ms)
    })?;
    shared.shards.mark(&handle, shard, Marker::Commits).await?;
    let metrics = Arc::clone(&shared.metrics);
    let counted = move |outcome: Result<Committed, CommitRefused>| {
        match &outcome {
            Ok(Committed { repeated, .. }) if !repeated => {
                metrics.published_messages.increment(1);
                metrics.published_bytes.increment(bytes);
            }
            Ok(_) => {}
            Err(_) => metrics.publish_refused.increment(1),
        }
        done(outcome.map_err(|refused| refusal(&refused)));
    };
    cell.commit(op, options, grant, Box::new(counted));
    Ok(())
}

/// What a commit weighs.
fn bytes(op: &CommitOp) -> u64 {
    let commit = &op.commit;
    let changes = commit.changes.iter().map(|change| match change {
        Change::Put { key, value } => key.len() + value.len(),
        Change::Delete { key } => key.len(),
    });
    (commit.entity.len() + commit.event.len() + changes.sum::<usize>()) as u64
}

fn refusal(refused: &CommitRefused) -> Refused {
    let message = refused.to_string();
    let limit = |reason| Failure::new(Code::LimitExceeded, message.clone()).with_reason(reason);
    match *refused {
        CommitRefused::EntityLength { .. } | CommitRefused::KeyLength { .. } => {
            limit("key_bytes").into()
        }
        CommitRefused::TooMany { .. } => limit("changes").into(),
        CommitRefused::TooLarge { .. } => limit("record_bytes").into(),
        CommitRefused::IdLength { .. } => Failure::new(Code::InvalidRequest, message)
            .with_reason("idempotency_key")
            .into(),
        CommitRefused::IdReused { .. } => Failure::new(Code::InvalidRequest, message)
            .with_reason("idempotency_key_reused")
            .into(),
        CommitRefused::IdsFull { .. } => Failure::new(Code::Overloaded, message)
            .with_reason("idempotency_keys")
            .with_retry_after_ms(60_000)
            .into(),
        CommitRefused::VersionMismatch { index, current } => {
            Refused::VersionMismatch { index, current }
        }
        CommitRefused::Append(AppendRefused::OffsetMismatch { tail }) => {
            Refused::OffsetMismatch { tail }
        }
        CommitRefused::Append(refused) => match not_appended(refused) {
            NotPublished::Failed(failure) => failure.into(),
            NotPublished::Refused(_, message) => Failure::new(Code::InvalidRequest, message).into(),
        },
    }
}

async fn get(cell: Arc<Cell>, entity: Bytes, key: Bytes) -> Result<Answer, Refused> {
    let (found, as_of) = cell.state_get(&entity, &key);
    let value = match found {
        None => None,
        Some(found) => Some(value(&cell, &key, found).await?),
    };
    Ok(Answer::Value { value, as_of })
}

async fn list(
    cell: Arc<Cell>,
    entity: Bytes,
    prefix: Bytes,
    after: Option<Bytes>,
    limit: usize,
) -> Result<Answer, Refused> {
    let (found, mut more, as_of) = cell.state_list(&entity, &prefix, after.as_deref(), limit);
    let mut rows = Vec::with_capacity(found.len());
    let mut room = PAGE_BYTES;
    for (key, found) in found {
        let bytes = key.len() + found.length as usize;
        if bytes > room && !rows.is_empty() {
            more = true;
            break;
        }
        room = room.saturating_sub(bytes);
        let value = value(&cell, &key, found).await?;
        rows.push((key, value));
    }
    Ok(Answer::Page { rows, more, as_of })
}

/// The value as it was found, read from the log when it is not in memory.
async fn value(cell: &Arc<Cell>, key: &Bytes, found: StateFound) -> Result<Value, Failure> {
    let version = found.version;
    if let Some(value) = found.value {
        return Ok(Value { version, value });
    }
    let log = cell.log().ok_or_else(|| closed(CloseReason::Reopening))?;
    let reading = tokio::task::spawn_blocking(move || read_commit(&log, version));
    let read = reading.await.map_err(|_| {
        Failure::new(Code::Internal, "the read was interrupted").with_retry(Retry::Retry)
    })?;
    let unreadable = |what: String| Failure::new(Code::Storage, what).with_retry(Retry::Retry);
    let commit = read
        .map_err(|error| unreadable(error.to_string()))?
        .ok_or_else(|| unreadable(format!("there is no commit at offset {version}")))?;
    cell.state_learn(version, &commit);
    let value = commit.changes.iter().rev().find_map(|change| match change {
        Change::Put { key: put, value } if put == key => Some(value.clone()),
        Change::Put { .. } | Change::Delete { .. } => None,
    });
    let value = value
        .ok_or_else(|| unreadable(format!("the commit at offset {version} has no such key")))?;
    Ok(Value { version, value })
}
