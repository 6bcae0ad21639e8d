//! What streams and shards are.

use std::sync::Arc;

use felix_auth::Action;
use felix_meta::Cleanup;
use felix_model::{ShardIndex, StreamId};
use felix_wire::extension::raw::{
    DescribedShard, DescribedStream, RawDescribe, RawDescribed, RawError,
};
use felix_wire::extension::requests::{List, Reply};
use felix_wire::publish::Names;

use super::lookup::{cell, list};
use super::{Shard, answer, may, own_tenant};
use crate::broker::Shared;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;
use crate::shards::{Kind, StreamSpec};

/// Streams in one description of everything; a frame has room for many more.
const DESCRIBED_MAX: usize = 20_000;

pub(super) async fn describe(
    state: &mut StreamState,
    names: &Names,
    ask: &RawDescribe,
    caller: Caller,
) {
    if let Err(failure) = own_tenant(state, names.tenant()) {
        return caller.fail(failure);
    }
    let specs = match &ask.streams {
        Some(named) => {
            let mut specs = Vec::new();
            for name in named.iter().take(DESCRIBED_MAX) {
                let (namespace, stream) = (name.namespace.as_str(), name.stream.as_str());
                let found = find(state, namespace, stream).await;
                specs.push(((name.namespace.clone(), name.stream.clone()), found));
            }
            specs
        }
        None => visible(state),
    };
    let (shared, principal) = (Arc::clone(&state.conn.shared), Arc::clone(&state.principal));
    let want_shards = ask.want_shards;
    state.conn.tasks.spawn(async move {
        let mut streams = Vec::with_capacity(specs.len());
        for ((namespace, stream), spec) in specs {
            let mut described = match &spec {
                Ok(spec) => of_spec(&principal, spec),
                Err(error) => nothing(*error),
            };
            if let Ok(spec) = spec
                && want_shards
            {
                described.shards = shards_of(&shared, spec).await;
            }
            streams.push(DescribedStream {
                namespace,
                stream,
                ..described
            });
        }
        answer(
            caller,
            list(streams, |streams| {
                Reply::RawDescribe(RawDescribed { streams })
            }),
        );
    });
}

type Name = (
    felix_wire::extension::requests::Text,
    felix_wire::extension::requests::Text,
);

/// A stream by name. Whether one exists that the caller may do nothing to is not told.
async fn find(state: &StreamState, namespace: &str, stream: &str) -> Result<StreamSpec, RawError> {
    let tenant = state.principal.tenant.as_str();
    let id = StreamId::new(tenant, namespace, stream);
    let id = id.map_err(|_| RawError::UnknownTopicOrPartition)?;
    if !is_visible(&state.principal, &id) {
        return Err(RawError::TopicAuthorizationFailed);
    }
    let found = state.conn.shared.find(&id).await;
    let handle = found.ok_or(RawError::UnknownTopicOrPartition)?;
    Ok(StreamSpec::clone(&handle.spec()))
}

fn visible(state: &StreamState) -> Vec<(Name, Result<StreamSpec, RawError>)> {
    let catalogue = state.conn.shared.names.catalogue();
    let Some(entry) = catalogue.tenant(state.principal.tenant.as_str()) else {
        return Vec::new();
    };
    let streams = entry
        .namespaces
        .values()
        .flat_map(|namespace| namespace.streams.values());
    streams
        .map(|record| crate::names::spec(record, &catalogue))
        .filter(|spec| is_visible(&state.principal, &spec.id))
        .take(DESCRIBED_MAX)
        .map(|spec| {
            let name = (
                spec.id.namespace.as_str().into(),
                spec.id.stream.as_str().into(),
            );
            (name, Ok(spec))
        })
        .collect()
}

fn is_visible(principal: &felix_auth::Principal, id: &StreamId) -> bool {
    [
        Action::StreamPublish,
        Action::StreamSubscribe,
        Action::StreamManage,
    ]
    .into_iter()
    .any(|action| may(principal, action, id))
}

fn nothing(error: RawError) -> DescribedStream {
    DescribedStream {
        namespace: "".into(),
        stream: "".into(),
        error: error.number(),
        incarnation: 0,
        shard_count: 0,
        flags: 0,
        max_record_bytes: 0,
        retention_ms: -1,
        retention_bytes: -1,
        shards: List::default(),
    }
}

fn of_spec(principal: &felix_auth::Principal, spec: &StreamSpec) -> DescribedStream {
    let mut flags = 0;
    for (bit, action) in [
        (DescribedStream::MAY_PUBLISH, Action::StreamPublish),
        (DescribedStream::MAY_SUBSCRIBE, Action::StreamSubscribe),
        (DescribedStream::MAY_MANAGE, Action::StreamManage),
    ] {
        if may(principal, action, &spec.id) {
            flags |= bit;
        }
    }
    let bound = |bound: Option<u64>| bound.map_or(-1, |bound| i64::try_from(bound).unwrap_or(-1));
    let (mut retention_ms, mut retention_bytes) = (-1, -1);
    if let Kind::Durable {
        retention, cleanup, ..
    } = spec.kind
    {
        flags |= DescribedStream::DURABLE;
        if cleanup == Cleanup::Compact {
            flags |= DescribedStream::COMPACTED;
        }
        retention_ms = bound(retention.max_age_ms);
        retention_bytes = bound(retention.max_bytes);
    }
    DescribedStream {
        incarnation: spec.incarnation.0,
        shard_count: spec.shards,
        flags,
        max_record_bytes: spec.max_record_bytes,
        retention_ms,
        retention_bytes,
        error: 0,
        ..nothing(RawError::UnknownTopicId)
    }
}

async fn shards_of(shared: &Shared, spec: StreamSpec) -> List<DescribedShard> {
    let handle = shared.shards.stream(spec);
    let mut shards = Vec::new();
    for index in 0..handle.spec().shards {
        let shard = Shard {
            handle: Arc::clone(&handle),
            index: ShardIndex(index),
        };
        shards.push(match cell(shared, &shard).await {
            Ok(cell) => {
                let marks = cell.marks();
                DescribedShard {
                    error: 0,
                    generation: cell.generation().0.into(),
                    start: marks.start.0,
                    high_watermark: marks.committed.0,
                    bytes: cell.log().map_or(0, |log| log.reader().bytes()),
                }
            }
            Err(error) => DescribedShard {
                error: error.number(),
                generation: 0,
                start: 0,
                high_watermark: 0,
                bytes: 0,
            },
        });
    }
    List::build(shards).unwrap_or_default()
}
