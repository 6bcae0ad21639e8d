//! Offsets by time and by place, ends of generations, and what streams and shards are.

use std::sync::Arc;

use felix_auth::Action;
use felix_journal::{LogReader, ReadRefused};
use felix_meta::Cleanup;
use felix_model::{BatchHeader, Offset, ShardIndex, StreamId};
use felix_wire::error::Failure;
use felix_wire::extension::Refused;
use felix_wire::extension::raw::{
    DescribedShard, DescribedStream, EpochAsk, EpochEnd, OffsetAsk, OffsetFound, RawDescribe,
    RawDescribed, RawEpochEnd, RawEpochEnded, RawError, RawOffsets, RawOffsetsFound,
};
use felix_wire::extension::requests::{List, Reply};
use felix_wire::publish::Names;

use super::{Shard, answer, may, own_tenant, same_generation, signed};
use crate::broker::Shared;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;
use crate::shards::cell::Cell;
use crate::shards::{Kind, StreamSpec};

/// The special places that the Kafka protocol has instead of a time.
mod place {
    pub(super) const LATEST: i64 = -1;
    pub(super) const EARLIEST: i64 = -2;
    pub(super) const MAX_TIMESTAMP: i64 = -3;
    pub(super) const EARLIEST_LOCAL: i64 = -4;
}

/// Streams in one description of everything; a frame has room for many more.
const DESCRIBED_MAX: usize = 20_000;

pub(super) async fn offsets(
    state: &mut StreamState,
    names: &Names,
    ask: &RawOffsets,
    caller: Caller,
) {
    let Some((shards, caller)) = shards(
        state,
        names,
        ask.asks.iter().map(|ask| (ask.shard, ask)),
        caller,
    )
    .await
    else {
        return;
    };
    let shared = Arc::clone(&state.conn.shared);
    state.conn.tasks.spawn(async move {
        let mut found = Vec::with_capacity(shards.len());
        for (shard, ask) in shards {
            found.push(match offset(&shared, &shard, &ask).await {
                Ok(found) => found,
                Err(error) => OffsetFound {
                    error: error.number(),
                    offset: -1,
                    timestamp_ms: -1,
                    generation: -1,
                },
            });
        }
        answer(
            caller,
            list(found, |found| Reply::RawOffsets(RawOffsetsFound { found })),
        );
    });
}

pub(super) async fn epoch_end(
    state: &mut StreamState,
    names: &Names,
    ask: &RawEpochEnd,
    caller: Caller,
) {
    let Some((shards, caller)) = shards(
        state,
        names,
        ask.asks.iter().map(|ask| (ask.shard, ask)),
        caller,
    )
    .await
    else {
        return;
    };
    let shared = Arc::clone(&state.conn.shared);
    state.conn.tasks.spawn(async move {
        let mut ends = Vec::with_capacity(shards.len());
        for (shard, ask) in shards {
            ends.push(match end(&shared, &shard, &ask).await {
                Ok(end) => end,
                Err(error) => EpochEnd {
                    error: error.number(),
                    ..NO_END
                },
            });
        }
        answer(
            caller,
            list(ends, |ends| Reply::RawEpochEnd(RawEpochEnded { ends })),
        );
    });
}

fn list<T: felix_wire::extension::requests::Item>(
    items: Vec<T>,
    reply: impl FnOnce(List<T>) -> Reply,
) -> Result<Reply, Failure> {
    let list = List::build(items);
    list.map(reply)
        .map_err(|error| Failure::new(felix_wire::Code::LimitExceeded, error.to_string()))
}

/// The shards that a call names, once the caller may read the stream. A call that goes wrong as a whole is answered.
async fn shards<T>(
    state: &mut StreamState,
    names: &Names,
    asks: impl Iterator<Item = (u32, T)>,
    caller: Caller,
) -> Option<(Vec<(Shard, T)>, Caller)> {
    let routed = match own_tenant(state, names.tenant()) {
        Ok(()) => state.route_fetch(names.namespace(), names.stream()).await,
        Err(failure) => Err(failure),
    };
    match routed {
        Ok(handle) => {
            let shard = |shard| Shard {
                handle: Arc::clone(&handle),
                index: ShardIndex(shard),
            };
            let shards = asks.map(|(index, ask)| (shard(index), ask)).collect();
            Some((shards, caller))
        }
        Err(failure) => {
            caller.fail(failure);
            None
        }
    }
}

/// A look that failed, as the Kafka protocol has it.
fn unreadable(refused: &ReadRefused) -> RawError {
    match refused {
        ReadRefused::BelowStart { .. } | ReadRefused::PastEnd { .. } => RawError::OffsetOutOfRange,
        ReadRefused::Io(_) | ReadRefused::Damaged(_) => {
            tracing::error!(error = %refused, "a log cannot be looked into");
            RawError::StorageError
        }
    }
}

async fn cell(shared: &Shared, shard: &Shard) -> Result<Arc<Cell>, RawError> {
    let cell = shard.cell(shared).await;
    cell.map_err(|failure| RawError::of(&Refused::from(failure)))
}

async fn blocking<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, ReadRefused> + Send + 'static,
) -> Result<T, RawError> {
    let looked = tokio::task::spawn_blocking(look).await;
    looked
        .map_err(|_| RawError::StorageError)?
        .map_err(|refused| unreadable(&refused))
}

async fn offset(shared: &Shared, shard: &Shard, ask: &OffsetAsk) -> Result<OffsetFound, RawError> {
    let cell = cell(shared, shard).await?;
    same_generation(ask.generation, &cell)?;
    let marks = cell.marks();
    let at = |offset: Offset| OffsetFound {
        error: 0,
        offset: signed(offset),
        timestamp_ms: -1,
        generation: i64::from(cell.generation().0),
    };
    let none = OffsetFound {
        error: 0,
        offset: -1,
        timestamp_ms: -1,
        generation: -1,
    };
    let reader = cell.log().map(|log| log.reader());
    match (ask.at, reader) {
        (place::LATEST, _) => Ok(at(marks.committed)),
        (place::EARLIEST | place::EARLIEST_LOCAL, None) => Ok(at(marks.start)),
        (place::EARLIEST | place::EARLIEST_LOCAL, Some(reader)) => {
            let (start, end) = (marks.start, marks.committed);
            let found = blocking(move || generation_at(&reader, start, end)).await?;
            Ok(OffsetFound {
                generation: found.map_or(i64::from(cell.generation().0), i64::from),
                ..at(start)
            })
        }
        (place::MAX_TIMESTAMP, Some(reader)) => {
            let time = reader.max_timestamp();
            if time < 0 {
                return Ok(none);
            }
            Ok(by_time(reader, time, marks.start, marks.committed)
                .await?
                .unwrap_or(none))
        }
        (time @ 0.., Some(reader)) => Ok(by_time(reader, time, marks.start, marks.committed)
            .await?
            .unwrap_or(none)),
        // In memory there are no times, and nothing was moved elsewhere.
        _ => Ok(none),
    }
}

async fn by_time(
    reader: LogReader,
    time: i64,
    start: Offset,
    end: Offset,
) -> Result<Option<OffsetFound>, RawError> {
    blocking(move || {
        let Some(point) = reader.offset_for_time(time, end)? else {
            return Ok(None);
        };
        // What was deleted in the middle of a segment is still in its file.
        let point = match point.offset < start {
            true => first_from(&reader, start, end, time)?,
            false => Some((point.offset, point.timestamp_ms)),
        };
        let Some((offset, timestamp_ms)) = point else {
            return Ok(None);
        };
        let generation = generation_at(&reader, offset, end)?.map_or(-1, i64::from);
        Ok(Some(OffsetFound {
            error: 0,
            offset: signed(offset),
            timestamp_ms,
            generation,
        }))
    })
    .await
}

/// The first record from `start` on whose time is at or after `time`.
fn first_from(
    reader: &LogReader,
    start: Offset,
    end: Offset,
    time: i64,
) -> Result<Option<(Offset, i64)>, ReadRefused> {
    let mut from = start;
    while from < end {
        let page = reader.read(from, 1024 * 1024, end)?;
        for batch in &page.batches {
            let records = felix_model::Records::new(batch).into_iter().flatten();
            let mut late = records
                .flatten()
                .filter(|record| record.offset >= start && record.timestamp_ms >= time);
            if let Some(record) = late.next() {
                return Ok(Some((record.offset, record.timestamp_ms)));
            }
        }
        if page.next <= from {
            return Ok(None);
        }
        from = page.next;
    }
    Ok(None)
}

/// The header of the batch that holds an offset, or of the next one if it was compacted away.
fn header_at(
    reader: &LogReader,
    offset: Offset,
    end: Offset,
) -> Result<Option<BatchHeader>, ReadRefused> {
    if offset >= end {
        return Ok(None);
    }
    let page = reader.read(offset, 1, end)?;
    let batch = page.batches.first();
    Ok(batch.and_then(|batch| BatchHeader::parse(batch).ok()))
}

fn generation_at(
    reader: &LogReader,
    offset: Offset,
    end: Offset,
) -> Result<Option<u32>, ReadRefused> {
    let header = header_at(reader, offset, end)?;
    Ok(header.and_then(|header| header.generation().map(|generation| generation.0)))
}

const NO_END: EpochEnd = EpochEnd {
    error: 0,
    generation: -1,
    end: -1,
};

async fn end(shared: &Shared, shard: &Shard, ask: &EpochAsk) -> Result<EpochEnd, RawError> {
    let cell = cell(shared, shard).await?;
    same_generation(ask.generation, &cell)?;
    let (marks, current) = (cell.marks(), u64::from(cell.generation().0));
    let of = ask.of;
    if of == current {
        return Ok(EpochEnd {
            error: 0,
            generation: i64::try_from(current).unwrap_or(i64::MAX),
            end: signed(marks.committed),
        });
    }
    let Some(log) = cell.log().filter(|_| of < current) else {
        return Ok(NO_END);
    };
    let reader = log.reader();
    blocking(move || end_of(&reader, of, marks.start, marks.committed)).await
}

/// Where the last generation that is not above `of` ended. Generations do not fall along a log, so halving finds it.
fn end_of(
    reader: &LogReader,
    of: u64,
    start: Offset,
    end: Offset,
) -> Result<EpochEnd, ReadRefused> {
    let is_above = |header: &BatchHeader| {
        let generation = header.generation();
        generation.is_some_and(|generation| u64::from(generation.0) > of)
    };
    // The first offset whose batch is above lies in `low..=high`.
    let (mut low, mut high) = (start, end);
    while low < high {
        let middle = Offset(low.0 + (high.0 - low.0) / 2);
        match header_at(reader, middle, end)? {
            Some(header) if !is_above(&header) => low = header.next_offset().max(middle.plus(1)),
            Some(header) => high = header.base().max(low).min(middle),
            None => high = middle,
        }
    }
    let before = match low > start {
        true => generation_at(reader, Offset(low.0 - 1), end)?,
        false => None,
    };
    Ok(EpochEnd {
        error: 0,
        generation: before.map_or_else(|| i64::try_from(of).unwrap_or(-1), i64::from),
        end: signed(low),
    })
}

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
