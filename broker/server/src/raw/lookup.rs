//! Offsets by time and by place, and ends of generations.

use std::sync::Arc;

use felix_journal::{LogReader, ReadRefused};
use felix_model::{BatchHeader, Offset, ShardIndex};
use felix_wire::error::Failure;
use felix_wire::extension::Refused;
use felix_wire::extension::raw::{
    EpochAsk, EpochEnd, OffsetAsk, OffsetFound, RawEpochEnd, RawEpochEnded, RawError, RawOffsets,
    RawOffsetsFound,
};
use felix_wire::extension::requests::{List, Reply};
use felix_wire::publish::Names;

use super::{Shard, answer, own_tenant, same_generation, signed};
use crate::broker::Shared;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;
use crate::shards::cell::Cell;

/// The special places that the Kafka protocol has instead of a time.
mod place {
    pub(super) const LATEST: i64 = -1;
    pub(super) const EARLIEST: i64 = -2;
    pub(super) const MAX_TIMESTAMP: i64 = -3;
    pub(super) const EARLIEST_LOCAL: i64 = -4;
}

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

pub(super) fn list<T: felix_wire::extension::requests::Item>(
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

pub(super) async fn cell(shared: &Shared, shard: &Shard) -> Result<Arc<Cell>, RawError> {
    let cell = shard.cell(shared).await;
    cell.map_err(|failure| RawError::of(&Refused::from(failure)))
}

pub(super) async fn blocking<T: Send + 'static>(
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
                generation: found.map_or_else(|| i64::from(cell.generation().0), i64::from),
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
pub(super) fn end_of(
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
