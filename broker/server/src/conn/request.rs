//! Every request that is not a binary publish.

use std::sync::Arc;

use felix_model::{Routing, StreamId};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    BrokerAddress, CacheShardsView, Message, ObjectKind, ProducerInitOk, PublishBatch,
    PublishIdempotent, PublishIf, PublishOne, ShardOwner, ShardOwners, ShardOwnersView,
    StreamShardsView, TopologyView,
};
use felix_wire::publish::Producer;

use super::publish::{Content, Reply, Request, json_reply, publish};
use super::stream::{Route, StreamState};
use super::{caches, groups, inspect, reads, subscribe};
use crate::caches::watch;
use crate::commits;

/// Carries a request out. `true` when the stream ends after its answers.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else there is on the wire is refused alike, also what is added to it"
)]
pub(crate) async fn answer(state: &mut StreamState, message: Message) -> bool {
    let publishes = matches!(
        message,
        Message::Publish(_) | Message::PublishBatch(_) | Message::PublishIdempotent(_)
    );
    // These are answered in a form of their own.
    if !publishes && let Some(failure) = state.refusal() {
        state.answers.push(state.peer.error(failure).encode());
        return false;
    }
    let answered = match message {
        Message::Publish(one) => publish_one(state, one).await,
        Message::PublishBatch(batch) => publish_batch(state, batch).await,
        Message::PublishIdempotent(batch) => publish_idempotent(state, batch).await,
        Message::PublishIf(batch) => publish_if(state, batch).await,
        Message::PublishWidth(width) => {
            state.declare_width(width);
            Ok(None)
        }
        Message::ProducerInit(init) => producer_id().map(|producer_id| {
            Some(
                ProducerInitOk {
                    request_id: init.request_id,
                    producer_id,
                }
                .into(),
            )
        }),
        Message::Topology => Ok(Some(topology(state))),
        Message::StreamShards(ask) => {
            match named(state, &ask.tenant_id, &ask.namespace, &ask.stream).await {
                Ok(spec) => Ok(Some(stream_shards(&spec, ask.request_id))),
                // A width of 0 says that there is no such stream, which the published client expects.
                Err(failure) if failure.code() == Some(Code::NotFound) => Ok(Some(
                    StreamShardsView {
                        shards: 0,
                        request_id: ask.request_id,
                        routing: None,
                    }
                    .into(),
                )),
                Err(failure) => Err(failure),
            }
        }
        Message::CacheShards(ask) => {
            cache_shards(state, &ask.tenant_id, &ask.namespace, &ask.cache)
                .await
                .map(|shards| {
                    Some(
                        CacheShardsView {
                            shards,
                            request_id: ask.request_id,
                        }
                        .into(),
                    )
                })
        }
        Message::ShardOwners(ask) => shard_owners(state, ask).await.map(Some),
        Message::Subscribe(ask) => {
            subscribe::subscribe(state, ask).await;
            Ok(None)
        }
        Message::OffsetForTime(ask) => reads::offset_for_time(state, ask).await.map(Some),
        Message::StreamRead(ask) => reads::stream_read(state, ask).await.map(Some),
        Message::ShardInspect(ask) => inspect::shard(state, ask).await.map(Some),
        Message::SubscriptionsList(ask) => inspect::subscriptions(state, &ask).map(Some),
        Message::Commit(ask) => commits::commit(state, ask).await.map(Some),
        Message::StateGet(ask) => commits::state_get(state, ask).await.map(Some),
        Message::CachePut(ask) => caches::put(state, ask).await.map(Some),
        Message::CacheGet(ask) => caches::get(state, ask).await.map(Some),
        Message::CacheDelete(ask) => caches::delete(state, ask).await.map(Some),
        Message::CachePutIf(ask) => caches::put_if(state, ask).await.map(Some),
        Message::CacheDeleteIf(ask) => caches::delete_if(state, ask).await.map(Some),
        Message::CounterAdd(ask) => caches::counter_add(state, ask).await.map(Some),
        Message::CounterGet(ask) => caches::counter_get(state, ask).await.map(Some),
        Message::CacheWatch(ask) => {
            watch::watch(state, ask).await;
            Ok(None)
        }
        message @ (Message::GroupPoll(_)
        | Message::GroupAck(_)
        | Message::GroupNack(_)
        | Message::GroupExtend(_)
        | Message::GroupDeadLetter(_)
        | Message::GroupDeadLetters(_)
        | Message::GroupDiscard(_)
        | Message::GroupRedrive(_)
        | Message::GroupSeek(_)
        | Message::GroupDescribe(_)
        | Message::GroupDelete(_)) => groups::answer(state, message).await.map(|()| None),
        Message::TrimBefore(_) => Err(not_enabled("head_trim", "trimming the head of a stream")),
        other => Err(not_served(&other)),
    };
    match answered {
        Ok(Some(message)) => state.answers.push(message.encode()),
        Ok(None) => {}
        Err(failure) => state.answers.push(state.peer.error(failure).encode()),
    }
    false
}

type Answered = Result<Option<Message>, Failure>;

/// The refusal of a request whose feature this broker does not have, and does not advertise.
fn not_served(message: &Message) -> Failure {
    let kind = message.type_name();
    let reason = kind.split('_').next().unwrap_or(kind);
    not_enabled(reason, kind)
}

fn not_enabled(reason: &str, what: &str) -> Failure {
    Failure::new(
        Code::FeatureNotEnabled,
        format!("this broker does not serve {what}"),
    )
    .with_reason(reason)
}

async fn publish_one(state: &mut StreamState, one: PublishOne) -> Answered {
    let reply = json_reply(one.ack, one.request_id)?;
    let payloads = felix_model::Payloads::build([one.payload.as_ref()])
        .map_err(|error| Failure::new(Code::InvalidRequest, error.to_string()))?;
    let request = json(payloads, one.key, one.shard, reply);
    publish(
        state,
        Route::Text(&one.tenant_id, &one.namespace, &one.stream),
        request,
    )
    .await;
    Ok(None)
}

async fn publish_batch(state: &mut StreamState, batch: PublishBatch) -> Answered {
    let reply = json_reply(batch.ack, batch.request_id)?;
    let request = json(batch.payloads, batch.key, batch.shard, reply);
    publish(
        state,
        Route::Text(&batch.tenant_id, &batch.namespace, &batch.stream),
        request,
    )
    .await;
    Ok(None)
}

async fn publish_idempotent(state: &mut StreamState, batch: PublishIdempotent) -> Answered {
    let reply = Some(Reply::Json {
        request_id: batch.request_id,
    });
    let mut request = json(batch.payloads, batch.key, batch.shard, reply);
    request.producer = Some(Producer {
        id: batch.producer_id,
        sequence: batch.sequence,
    });
    publish(
        state,
        Route::Text(&batch.tenant_id, &batch.namespace, &batch.stream),
        request,
    )
    .await;
    Ok(None)
}

async fn publish_if(state: &mut StreamState, batch: PublishIf) -> Answered {
    let reply = Some(Reply::Json {
        request_id: batch.request_id,
    });
    let mut request = json(batch.payloads, batch.key, batch.shard, reply);
    request.expected = Some(batch.expected_offset);
    let spec = named(state, &batch.tenant_id, &batch.namespace, &batch.stream).await?;
    if matches!(spec.kind, crate::shards::Kind::Memory { .. }) {
        return Err(Failure::new(
            Code::InvalidRequest,
            "a conditional publish needs a durable stream: this one is in memory",
        )
        .with_reason("not_durable"));
    }
    publish(
        state,
        Route::Text(&batch.tenant_id, &batch.namespace, &batch.stream),
        request,
    )
    .await;
    Ok(None)
}

fn json(
    payloads: felix_model::Payloads,
    key: Option<bytes::Bytes>,
    shard: Option<u32>,
    reply: Option<Reply>,
) -> Request {
    Request {
        key,
        shard,
        content: Content::Payloads(payloads),
        producer: None,
        expected: None,
        reply,
    }
}

/// A producer id: random, so that brokers need not agree on a counter, and 63 bits wide.
pub(crate) fn producer_id() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    Ok((u64::from_be_bytes(bytes) >> 1).max(1))
}

fn topology(state: &StreamState) -> Message {
    let shared = &state.conn.shared;
    let brokers = if shared.draining() {
        Vec::new()
    } else {
        vec![BrokerAddress {
            node_id: shared.config.node_id.clone(),
            addr: shared.advertised(state.conn.local_ip()),
        }]
    };
    TopologyView { brokers }.into()
}

/// What the catalogue says of a stream of the caller's own tenant. Widths are no secret inside a tenant.
async fn named(
    state: &StreamState,
    tenant: &str,
    namespace: &str,
    stream: &str,
) -> Result<Arc<crate::shards::StreamSpec>, Failure> {
    let id = state.name(tenant, namespace, stream)?;
    Ok(state
        .conn
        .shared
        .stream(&id, &state.principal)
        .await?
        .spec())
}

fn stream_shards(spec: &crate::shards::StreamSpec, request_id: u64) -> Message {
    let routing = (spec.routing != Routing::Modulo).then(|| spec.routing.to_string());
    StreamShardsView {
        shards: spec.shards,
        request_id,
        routing,
    }
    .into()
}

async fn cache_shards(
    state: &StreamState,
    tenant: &str,
    namespace: &str,
    cache: &str,
) -> Result<u32, Failure> {
    // A cache's name has the form of a stream's.
    let StreamId {
        tenant,
        namespace,
        stream,
    } = state.name(tenant, namespace, cache)?;
    let found = state
        .conn
        .shared
        .names
        .cache(tenant.as_str(), namespace.as_str(), stream.as_str());
    // A width of 0 says that there is no such cache, which the published client expects as an answer.
    Ok(found.await.map_or(0, |cache| cache.shards))
}

async fn shard_owners(state: &StreamState, ask: ShardOwners) -> Result<Message, Failure> {
    let shards = match ask.kind {
        ObjectKind::Stream => named(state, &ask.tenant_id, &ask.namespace, &ask.name)
            .await
            .map_or(0, |spec| spec.shards),
        ObjectKind::Cache => cache_shards(state, &ask.tenant_id, &ask.namespace, &ask.name).await?,
    };
    // A single broker names no owner, so that clients stay on the connection they have.
    let owners = (0..shards)
        .map(|shard| ShardOwner {
            shard,
            node_id: None,
            addr: None,
            generation: 0,
            unavailable: None,
        })
        .collect();
    Ok(ShardOwnersView {
        owners,
        request_id: ask.request_id,
    }
    .into())
}
