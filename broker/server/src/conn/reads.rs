//! Bounded reads and lookups by time.

use std::sync::Arc;

use felix_journal::{LogHandle, ReadRefused};
use felix_model::native::Times;
use felix_model::{Offset, StreamId, payloads_from_records};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::message::{
    CursorReason, Message, OffsetForTime, OffsetValue, StreamRead, StreamRecord, StreamRecords,
    SubscribeCursorError,
};

use super::stream::StreamState;
use super::subscribe::{check_read, open_shard};
use crate::events::{NotDeliverable, micros};
use crate::limits::{READ_BYTES_MAX, READ_RECORDS_MAX};
use crate::shards::cell::Cell;

/// Answers `offset_for_time`.
pub(crate) async fn offset_for_time(
    state: &StreamState,
    ask: OffsetForTime,
) -> Result<Message, Failure> {
    let id = state.name(&ask.tenant_id, &ask.namespace, &ask.stream)?;
    let (cell, log) = durable_shard(state, &id, ask.shard).await?;
    let committed = cell.marks().committed;
    // A record counts from the millisecond it was appended in.
    let time_ms = i64::try_from(ask.at_micros.div_ceil(1000)).unwrap_or(i64::MAX);
    let found = blocking(move || log.reader().offset_for_time(time_ms, committed)).await?;
    let offset = found.map_err(unreadable)?.map(|point| point.offset.0);
    Ok(OffsetValue {
        offset,
        request_id: ask.request_id,
    }
    .into())
}

/// Answers `stream_read`.
pub(crate) async fn stream_read(state: &StreamState, ask: StreamRead) -> Result<Message, Failure> {
    let id = state.name(&ask.tenant_id, &ask.namespace, &ask.stream)?;
    let (cell, log) = durable_shard(state, &id, ask.shard).await?;
    let marks = cell.marks();
    let cursor = |reason, available: Offset| {
        Message::from(SubscribeCursorError {
            reason,
            requested: ask.from,
            available: available.0,
            trim_headers: None,
        })
    };
    let from = Offset(ask.from);
    if from > marks.committed {
        return Ok(cursor(CursorReason::InFuture, marks.committed));
    }
    if from < marks.start {
        return Ok(cursor(CursorReason::TooOld, marks.start));
    }
    let until = ask
        .end
        .map_or(marks.committed, |end| Offset(end).min(marks.committed));
    let mut page = Page {
        records: Vec::new(),
        next: from,
        until,
        committed: marks.committed,
        records_max: bound(u64::from(ask.max_records), READ_RECORDS_MAX),
        bytes_left: bound(ask.max_bytes, READ_BYTES_MAX),
    };
    if from < until {
        let read = blocking(move || page.fill(&log).map(|()| page)).await?;
        page = match read {
            Ok(page) => page,
            Err(PageFailed::Read(ReadRefused::BelowStart { oldest })) => {
                return Ok(cursor(CursorReason::TooOld, oldest));
            }
            Err(error) => return Err(unreadable(error)),
        };
    }
    let Page { records, next, .. } = page;
    Ok(StreamRecords {
        records,
        next_offset: next.0,
        request_id: ask.request_id,
    }
    .into())
}

fn bound(asked: u64, cap: usize) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => cap,
        Ok(asked) => asked.min(cap),
    }
}

/// One answer as it fills up.
struct Page {
    records: Vec<StreamRecord>,
    next: Offset,
    /// Exclusive end of what is wanted; it may lie inside a batch.
    until: Offset,
    /// Exclusive end of what may be read, which no batch crosses.
    committed: Offset,
    records_max: usize,
    bytes_left: usize,
}

#[derive(Debug, thiserror::Error)]
enum PageFailed {
    #[error(transparent)]
    Read(#[from] ReadRefused),
    #[error(transparent)]
    Batch(#[from] NotDeliverable),
}

impl Page {
    fn fill(&mut self, log: &LogHandle) -> Result<(), PageFailed> {
        let page = log
            .reader()
            .read(self.next, self.bytes_left, self.committed)?;
        for batch in page.batches {
            let runs = payloads_from_records(&batch, self.next).map_err(NotDeliverable::from)?;
            let end = runs.header().next_offset();
            for run in runs {
                let run = run.map_err(NotDeliverable::from)?;
                for (index, payload) in run.payloads.iter().enumerate() {
                    let offset = run.base.plus(index as u64);
                    if offset >= self.until || !self.has_room(payload.len()) {
                        return Ok(());
                    }
                    let time = match &run.times {
                        Times::Same(time) => *time,
                        Times::Each(times) => times.get(index).copied().unwrap_or_default(),
                    };
                    self.records.push(StreamRecord {
                        offset: offset.0,
                        payload: bytes::Bytes::copy_from_slice(payload),
                        publisher: None,
                        timestamp_micros: micros(time),
                    });
                    self.bytes_left = self.bytes_left.saturating_sub(payload.len());
                    self.next = offset.plus(1);
                }
            }
            self.next = self.next.max(end.min(self.until));
        }
        // What was compacted away is passed over.
        self.next = self.next.max(page.next.min(self.until));
        Ok(())
    }

    /// A record larger than the whole budget comes back alone.
    fn has_room(&self, bytes: usize) -> bool {
        self.records.is_empty()
            || (self.records.len() < self.records_max && bytes <= self.bytes_left)
    }
}

async fn durable_shard(
    state: &StreamState,
    id: &StreamId,
    shard: u32,
) -> Result<(Arc<Cell>, LogHandle), Failure> {
    check_read(state, id)?;
    let (_, cell) = open_shard(state, id, shard).await?;
    let log = cell.log().ok_or_else(|| {
        Failure::new(
            Code::InvalidRequest,
            "the stream is in memory and has no log to read",
        )
        .with_reason("not_durable")
    })?;
    Ok((cell, log))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        Failure::new(Code::Internal, "the read was interrupted").with_retry(Retry::Retry)
    })
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Storage, error.to_string()).with_retry(Retry::Retry)
}
