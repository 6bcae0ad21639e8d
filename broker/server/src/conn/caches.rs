//! Caches and counters as the published protocol asks for them: one request, one answer, in JSON.

use bytes::Bytes;
use felix_engine::cache::{CacheAnswer, CacheOp, Condition, Found, Tell};
use felix_model::Offset;
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    CacheCondition, CacheConditionResult, CacheDelete, CacheDeleteIf, CacheGet, CacheOk, CachePut,
    CachePutIf, CacheValue, CounterAdd, CounterGet, CounterValue, Message,
};
use felix_wire::negotiate::Features;

use super::stream::StreamState;
use crate::caches::{admit, call, check};

type Answered = Result<Message, Failure>;

/// The three names of a cache as a request has them.
type Names<'a> = (&'a str, &'a str, &'a str);

/// Carries one op out and waits for its outcome, which keeps the answers of a stream in the order of its requests.
async fn one(
    state: &mut StreamState,
    (tenant, namespace, cache): Names<'_>,
    op: CacheOp,
) -> Result<CacheAnswer, Failure> {
    let id = state.cache_id(tenant, namespace, cache)?;
    check(&state.principal, &id, &op)?;
    let handle = state.cache(&id).await?;
    admit(state, &id, &op)?;
    call::one(&state.conn.shared.caches, &handle, op).await
}

/// An answer that belongs to another op.
fn out_of_turn() -> Failure {
    Failure::new(Code::Internal, "the cache answered out of turn")
}

fn bytes(text: String) -> Bytes {
    Bytes::from(text.into_bytes())
}

pub(super) async fn put(state: &mut StreamState, ask: CachePut) -> Answered {
    let op = CacheOp::Put {
        key: bytes(ask.key),
        value: ask.value,
        ttl_ms: ask.ttl_ms,
        condition: None,
    };
    one(state, (&ask.tenant_id, &ask.namespace, &ask.cache), op).await?;
    let request_id = ask.request_id.unwrap_or_default();
    Ok(CacheOk { request_id }.into())
}

pub(super) async fn get(state: &mut StreamState, ask: CacheGet) -> Answered {
    let op = CacheOp::Get {
        key: Bytes::copy_from_slice(ask.key.as_bytes()),
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    let CacheAnswer::Value(found) = one(state, names, op).await? else {
        return Err(out_of_turn());
    };
    let tells_version = state.peer.features.contains(Features::CACHE_CONDITIONAL);
    let version = found.as_ref().filter(|_| tells_version);
    Ok(CacheValue {
        version: version.map(|found| found.version.0),
        value: value(found),
        tenant_id: ask.tenant_id,
        namespace: ask.namespace,
        cache: ask.cache,
        key: ask.key,
        request_id: ask.request_id,
    }
    .into())
}

pub(super) async fn delete(state: &mut StreamState, ask: CacheDelete) -> Answered {
    let op = CacheOp::Delete {
        key: Bytes::copy_from_slice(ask.key.as_bytes()),
        version: None,
        tell: Tell::Removed,
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    let CacheAnswer::Deleted(found) = one(state, names, op).await? else {
        return Err(out_of_turn());
    };
    Ok(CacheValue {
        version: None,
        value: value(found),
        tenant_id: ask.tenant_id,
        namespace: ask.namespace,
        cache: ask.cache,
        key: ask.key,
        request_id: ask.request_id,
    }
    .into())
}

fn value(found: Option<Found>) -> Option<Bytes> {
    found.and_then(|found| found.value)
}

pub(super) async fn put_if(state: &mut StreamState, ask: CachePutIf) -> Answered {
    let condition = match ask.condition {
        CacheCondition::Absent => Condition::Absent,
        CacheCondition::Version(version) => Condition::Version(Offset(version)),
    };
    let op = CacheOp::Put {
        key: bytes(ask.key),
        value: ask.value,
        ttl_ms: ask.ttl_ms,
        condition: Some(condition),
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    conditional(&one(state, names, op).await?, ask.request_id)
}

pub(super) async fn delete_if(state: &mut StreamState, ask: CacheDeleteIf) -> Answered {
    let op = CacheOp::Delete {
        key: bytes(ask.key),
        version: Some(Offset(ask.version)),
        tell: Tell::Done,
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    conditional(&one(state, names, op).await?, ask.request_id)
}

fn conditional(answer: &CacheAnswer, request_id: u64) -> Answered {
    let (applied, version) = match answer {
        CacheAnswer::Put { version } => (true, Some(*version)),
        CacheAnswer::Deleted(_) => (true, None),
        CacheAnswer::Unmet { current } => (false, *current),
        CacheAnswer::Value(_) | CacheAnswer::Page { .. } | CacheAnswer::Sum { .. } => {
            return Err(out_of_turn());
        }
    };
    Ok(CacheConditionResult {
        applied,
        version: version.map(|version| version.0),
        request_id,
    }
    .into())
}

pub(super) async fn counter_add(state: &mut StreamState, ask: CounterAdd) -> Answered {
    let op = CacheOp::Add {
        key: bytes(ask.key),
        delta: ask.delta,
        id: None,
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    sum(&one(state, names, op).await?, ask.request_id)
}

pub(super) async fn counter_get(state: &mut StreamState, ask: CounterGet) -> Answered {
    let op = CacheOp::Sum {
        key: bytes(ask.key),
    };
    let names = (&*ask.tenant_id, &*ask.namespace, &*ask.cache);
    sum(&one(state, names, op).await?, ask.request_id)
}

fn sum(answer: &CacheAnswer, request_id: u64) -> Answered {
    let CacheAnswer::Sum { sum, .. } = answer else {
        return Err(out_of_turn());
    };
    Ok(CounterValue {
        value: *sum,
        request_id,
    }
    .into())
}
