//! Caches and counters as the `requests` extension asks for them: many calls in a turn, answered in any order.

use std::sync::Arc;

use bytes::Bytes;
use felix_engine::cache::{CacheAnswer, CacheOp, Condition, Found, LIST_MAX, Tell};
use felix_model::{Offset, ShardIndex};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Refused;
use felix_wire::extension::requests::{
    Ask, CacheDeleted, CacheGetMany, CacheGot, CacheGotMany, CacheListed, CacheStored,
    Condition as Demanded, CounterValue, Entry, List, Listed, Reply, Slot, Text,
};

use super::call::{self, Of, Outcome, Place, shard_of};
use super::cell::Asked;
use super::{CacheHandle, Caches, admit, check};
use crate::conn::calls::{Caller, Turn};
use crate::conn::stream::StreamState;

/// Bytes of values in one page of a list or of many keys: well below a frame.
const PAGE_BYTES: u64 = 8 * 1024 * 1024;

/// What the values of many keys may take before it is known that they fit a page.
const AHEAD_BYTES: u64 = 16 * 1024 * 1024;

/// A call that waits for its outcome.
#[derive(Debug)]
pub(crate) struct Waiting {
    caller: Caller,
    asked: Kind,
}

/// What was asked, as far as the answer must know.
#[derive(Debug)]
enum Kind {
    Get,
    /// With the key, which a refusal names.
    Put(Text),
    Delete(Text),
    Add,
    Sum,
    List,
}

/// Carries out a turn's calls on one cache.
pub(crate) async fn turn(state: &mut StreamState, turn: Turn) {
    let Turn { names, asks } = turn;
    let id = match state.cache_id(names.tenant(), names.namespace(), names.stream()) {
        Ok(id) => id,
        Err(failure) => return refuse_all(asks, &failure),
    };
    let asks = allowed(state, &id, asks);
    if asks.is_empty() {
        return;
    }
    match state.cache(&id).await {
        Ok(handle) => carry_out(state, &handle, asks).await,
        Err(failure) => refuse_all(asks, &failure),
    }
}

/// The calls that the principal may make; the others are answered.
fn allowed(
    state: &StreamState,
    id: &felix_model::CacheId,
    asks: Vec<(Ask, Caller)>,
) -> Vec<(Ask, Caller)> {
    let mut allowed = Vec::with_capacity(asks.len());
    for (ask, caller) in asks {
        let may = |op: &CacheOp| check(&state.principal, id, op);
        let checked = if let Ask::CacheGetMany(many) = &ask {
            let mut keys = many.keys.iter();
            keys.try_for_each(|key| {
                may(&CacheOp::Get {
                    key: text_bytes(&key),
                })
            })
        } else {
            op(&ask).map_or(Ok(()), |(op, _)| may(&op))
        };
        match checked {
            Ok(()) => allowed.push((ask, caller)),
            Err(failure) => caller.fail(failure),
        }
    }
    allowed
}

async fn carry_out(state: &StreamState, handle: &Arc<CacheHandle>, asks: Vec<(Ask, Caller)>) {
    let caches = &state.conn.shared.caches;
    let shards = handle.spec().shards;
    let mut asked = Vec::with_capacity(asks.len());
    for (ask, caller) in asks {
        if let Ask::CacheGetMany(many) = ask {
            let (caches, handle) = (Arc::clone(caches), Arc::clone(handle));
            state.conn.tasks.spawn(async move {
                caller.answer(get_many(&caches, &handle, many).await);
            });
            continue;
        }
        let Some((op, kind)) = op(&ask) else {
            caller.fail(Failure::new(Code::InvalidRequest, "not a call of a cache"));
            continue;
        };
        if let Err(failure) = admit(state, &handle.spec().id, &op) {
            caller.fail(failure);
            continue;
        }
        let waiting = Waiting {
            caller,
            asked: kind,
        };
        match shard(&ask, &op, shards) {
            Ok(To::Shard(shard)) => {
                let place = Place::Call(waiting);
                asked.push((shard, Asked { op, place }));
            }
            Ok(To::List(of)) => {
                let done = Box::new(move |outcome| waiting.answer(outcome));
                call::list(caches, handle, (of, op), done).await;
            }
            Err(failure) => waiting.answer(Err(failure)),
        }
    }
    call::ask(caches, handle, asked).await;
}

/// Where an op goes.
enum To {
    Shard(ShardIndex),
    /// A list.
    List(Of),
}

fn shard(ask: &Ask, op: &CacheOp, shards: u32) -> Result<To, Failure> {
    let Ask::CacheList(list) = ask else {
        return Ok(To::Shard(shard_of(op, shards)));
    };
    match list.shard {
        Some(shard) if shard >= shards => Err(Failure::new(
            Code::InvalidRequest,
            format!("shard {shard} is out of range: the cache has {shards} shards"),
        )),
        Some(shard) => Ok(To::List(Of::One(ShardIndex(shard)))),
        None => Ok(To::List(Of::All)),
    }
}

/// The op of a call; `None` when it is no call of a cache, or one of many keys.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else there is belongs to other parts of the broker"
)]
fn op(ask: &Ask) -> Option<(CacheOp, Kind)> {
    Some(match ask {
        Ask::CacheGet(get) => {
            let key = text_bytes(&get.key);
            (CacheOp::Get { key }, Kind::Get)
        }
        Ask::CachePut(put) => {
            let op = CacheOp::Put {
                key: text_bytes(&put.key),
                value: put.value.clone(),
                ttl_ms: put.ttl_ms,
                condition: put.condition.map(|condition| match condition {
                    Demanded::Absent => Condition::Absent,
                    Demanded::Version(version) => Condition::Version(Offset(version)),
                }),
            };
            (op, Kind::Put(put.key.clone()))
        }
        Ask::CacheDelete(delete) => {
            let tell = if delete.want_value {
                Tell::Removed
            } else {
                Tell::Done
            };
            let op = CacheOp::Delete {
                key: text_bytes(&delete.key),
                version: delete.version.map(Offset),
                tell,
            };
            (op, Kind::Delete(delete.key.clone()))
        }
        Ask::CacheList(list) => {
            let limit = match list.limit {
                0 => LIST_MAX,
                limit => limit,
            };
            let op = CacheOp::List {
                prefix: text_bytes(&list.prefix),
                after: list.after.as_ref().map(text_bytes),
                limit,
                value_bytes: if list.want_values { PAGE_BYTES } else { 0 },
            };
            (op, Kind::List)
        }
        Ask::CounterAdd(add) => {
            let op = CacheOp::Add {
                key: text_bytes(&add.key),
                delta: add.delta,
                id: add.once.clone(),
            };
            (op, Kind::Add)
        }
        Ask::CounterGet(get) => {
            let key = text_bytes(&get.key);
            (CacheOp::Sum { key }, Kind::Sum)
        }
        _ => return None,
    })
}

impl Waiting {
    /// Answers the call.
    pub(super) fn answer(self, outcome: Outcome) {
        let Self { caller, asked } = self;
        caller.answer(match outcome {
            Ok(answer) => reply(&asked, answer),
            Err(failure) => Err(failure.into()),
        });
    }
}

fn reply(asked: &Kind, answer: CacheAnswer) -> Result<Reply, Refused> {
    Ok(match (asked, answer) {
        (Kind::Get, CacheAnswer::Value(found)) => {
            let entry = found.map(entry);
            Reply::CacheGet(CacheGot { entry })
        }
        (Kind::Put(_), CacheAnswer::Put { version }) => {
            let version = version.0;
            Reply::CachePut(CacheStored { version })
        }
        (Kind::Delete(_), CacheAnswer::Deleted(removed)) => {
            let removed = removed.map(entry);
            Reply::CacheDelete(CacheDeleted { removed })
        }
        (Kind::Put(key) | Kind::Delete(key), CacheAnswer::Unmet { current }) => {
            let current = current.map(|version| version.0);
            return Err(Refused::version_mismatch(key.as_str(), current));
        }
        (Kind::List, CacheAnswer::Page { rows, more, .. }) => {
            let listed = rows.into_iter().map(|(key, found)| Listed {
                key: String::from_utf8_lossy(&key).as_ref().into(),
                entry: entry(found),
            });
            Reply::CacheList(CacheListed {
                entries: List::build(listed).map_err(|error| too_long(&error))?,
                more,
            })
        }
        (Kind::Add, CacheAnswer::Sum { sum, repeated }) => Reply::CounterAdd(CounterValue {
            value: sum,
            repeated,
        }),
        (Kind::Sum, CacheAnswer::Sum { sum, .. }) => Reply::CounterGet(CounterValue {
            value: sum,
            repeated: false,
        }),
        (
            Kind::Get | Kind::Put(_) | Kind::Delete(_) | Kind::Add | Kind::Sum | Kind::List,
            CacheAnswer::Value(_)
            | CacheAnswer::Page { .. }
            | CacheAnswer::Put { .. }
            | CacheAnswer::Deleted(_)
            | CacheAnswer::Unmet { .. }
            | CacheAnswer::Sum { .. },
        ) => return Err(out_of_turn().into()),
    })
}

/// The values of many keys, a few at a time, so that a page of large values is not read many times over.
async fn get_many(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    many: CacheGetMany,
) -> Result<Reply, Refused> {
    let at_once = AHEAD_BYTES / u64::from(handle.spec().max_record_bytes).max(1);
    let at_once = usize::try_from(at_once).unwrap_or(usize::MAX).max(1);
    let mut slots: Vec<Slot> = Vec::new();
    let mut bytes = 0;
    let mut keys = many.keys.iter().peekable();
    while keys.peek().is_some() {
        for found in get_some(caches, handle, keys.by_ref().take(at_once)).await? {
            let entry = found.map(entry);
            bytes += entry.as_ref().map_or(0, |entry| entry.value.len() as u64);
            if bytes > PAGE_BYTES && !slots.is_empty() {
                return got(slots);
            }
            slots.push(Slot { entry });
        }
    }
    got(slots)
}

async fn get_some(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    keys: impl Iterator<Item = Text>,
) -> Result<Vec<Option<Found>>, Refused> {
    let (mut waiting, mut asked) = (Vec::new(), Vec::new());
    for key in keys {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        waiting.push(receiver);
        let op = CacheOp::Get {
            key: text_bytes(&key),
        };
        let shard = shard_of(&op, handle.spec().shards);
        let place = Place::Task(sender);
        asked.push((shard, Asked { op, place }));
    }
    call::ask(caches, handle, asked).await;
    let mut found = Vec::with_capacity(waiting.len());
    for outcome in waiting {
        let lost = |_| Failure::new(Code::Internal, "the outcome was lost");
        match outcome.await.map_err(lost)?? {
            CacheAnswer::Value(value) => found.push(value),
            CacheAnswer::Page { .. }
            | CacheAnswer::Put { .. }
            | CacheAnswer::Deleted(_)
            | CacheAnswer::Unmet { .. }
            | CacheAnswer::Sum { .. } => return Err(out_of_turn().into()),
        }
    }
    Ok(found)
}

fn got(slots: Vec<Slot>) -> Result<Reply, Refused> {
    let slots = List::build(slots).map_err(|error| too_long(&error))?;
    Ok(Reply::CacheGetMany(CacheGotMany { slots }))
}

/// An answer that belongs to another op.
fn out_of_turn() -> Failure {
    Failure::new(Code::Internal, "the cache answered out of turn")
}

fn too_long(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::LimitExceeded, error.to_string())
}

fn entry(found: Found) -> Entry {
    Entry {
        version: found.version.0,
        expires_at_ms: found.expires.map_or(0, |at| at.0),
        value: found.value.unwrap_or_default(),
    }
}

fn refuse_all(asks: Vec<(Ask, Caller)>, failure: &Failure) {
    for (_, caller) in asks {
        caller.fail(failure.clone());
    }
}

fn text_bytes(text: &Text) -> Bytes {
    text.bytes().clone()
}
