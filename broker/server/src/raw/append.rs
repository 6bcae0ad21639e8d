//! Appending a batch as it came: judged, given its offsets, and written without being opened again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use felix_engine::{AppendRefused, Appended, Draft};
use felix_meta::{Cleanup, Timestamps};
use felix_model::{
    BatchHeader, BatchRefused, Offset, Records, ShardIndex, TimestampType, verify_from_client,
};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::raw::{RawAppend, RawAppended, RawError};
use felix_wire::extension::requests::Reply;
use felix_wire::publish::Names;

use super::{Shard, failure, same_generation};
use crate::broker::Shared;
use crate::conn::calls::Caller;
use crate::conn::publish::append_failure;
use crate::conn::stream::{Route, StreamState};
use crate::fair::Grant;
use crate::shards::cell::now;
use crate::shards::{Kind, Marker, StreamSpec};

/// An append whose outcome is still open. Whoever learns it settles it.
#[derive(Debug)]
pub(crate) struct RawWaiting {
    /// Empty once it was answered: an early answer is not the outcome.
    caller: Arc<Mutex<Option<Caller>>>,
    started: Instant,
    records: u32,
    bytes: u64,
    append_time_ms: i64,
    throttle_ms: u64,
    grant: Option<Grant>,
    shared: Arc<Shared>,
}

pub(super) async fn append(state: &mut StreamState, names: &Names, ask: RawAppend, caller: Caller) {
    let caller = Arc::new(Mutex::new(Some(caller)));
    let early = ask.early;
    match try_append(state, names, ask, &caller).await {
        Ok(start) if early => {
            // Unless its outcome is known already.
            if let Some(caller) = take(&caller) {
                caller.answer(Ok(Reply::RawAppend(RawAppended {
                    base_offset: None,
                    append_time_ms: -1,
                    start: start.0,
                    throttle_ms: 0,
                    repeated: false,
                })));
            }
        }
        // Whoever learns the outcome answers.
        Ok(_) => {}
        Err(failure) => {
            state.conn.shared.metrics.publish_refused.increment(1);
            if let Some(caller) = take(&caller) {
                caller.fail(failure);
            }
        }
    }
}

fn take(caller: &Mutex<Option<Caller>>) -> Option<Caller> {
    caller.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Hands a batch to its shard, and answers where the shard begins.
async fn try_append(
    state: &mut StreamState,
    names: &Names,
    ask: RawAppend,
    caller: &Arc<Mutex<Option<Caller>>>,
) -> Result<Offset, Failure> {
    let started = Instant::now();
    let shared = Arc::clone(&state.conn.shared);
    if shared.draining() {
        return Err(crate::conn::publish::closed(
            felix_engine::CloseReason::Stopping,
        ));
    }
    let handle = state.route_publish(Route::Names(names)).await?;
    let spec = handle.spec();
    let Judged {
        draft,
        header,
        append_time_ms,
    } = judge(&ask.batch, &spec)?;
    let bytes = ask.batch.len() as u64;
    drop(ask.batch);
    let records = header.records();
    let namespace = spec.id.namespace.as_str();
    let throttle_ms = state.writes_ahead(namespace, bytes, records.into())?;
    let index = ShardIndex(ask.shard);
    let shard = Shard {
        handle: Arc::clone(&handle),
        index,
    };
    let cell = shard.cell(&shared).await?;
    same_generation(ask.generation, &cell).map_err(|error| {
        let message = format!("the shard's generation is {}", cell.generation().0);
        failure(Code::NotLeader, error, message)
    })?;
    let durable = shard.is_durable();
    let grant = if durable {
        let share = shared.queue.acquire(&handle.tenant.id, bytes).await;
        Some(share.map_err(|full| {
            shared.metrics.queue_full.increment(1);
            Failure::new(Code::Overloaded, full.to_string())
                .with_reason("publish_queue_full")
                .with_retry_after_ms(full.retry_after_ms)
        })?)
    } else {
        None
    };
    if durable && header.producer().is_some() {
        shared
            .shards
            .mark(&handle, index, Marker::Producers)
            .await?;
    }
    let waiting = RawWaiting {
        caller: Arc::clone(caller),
        started,
        records,
        bytes,
        append_time_ms,
        throttle_ms,
        grant,
        shared,
    };
    Ok(cell.append_raw(draft, waiting))
}

/// Whether a batch may be appended, by its header, its checksum and its records.
fn judge(batch: &Bytes, spec: &StreamSpec) -> Result<Judged, Failure> {
    let mut log = None;
    let header = match verify_from_client(batch) {
        Ok(header) => header,
        // Some clients leave the field as it was for the first record. Looking up by time goes by it.
        Err(BatchRefused::LaterThanMax { found, .. }) => {
            let mut mended = BytesMut::from(batch.as_ref());
            felix_model::set_max_timestamp(&mut mended, found);
            let header = verify_from_client(&mended).map_err(|error| refused(&error))?;
            log = Some(mended);
            header
        }
        Err(error) => return Err(refused(&error)),
    };
    let invalid = |error, message: &str| Err(failure(Code::InvalidRequest, error, message));
    if header.is_transactional() {
        return invalid(
            RawError::InvalidTxnState,
            "transactions are not served: the batch belongs to one",
        );
    }
    if header.timestamp_type() == TimestampType::Append {
        return invalid(
            RawError::InvalidTimestamp,
            "only the broker says that a time is its own",
        );
    }
    if header.base_offset != 0 {
        return invalid(
            RawError::InvalidRecord,
            "the base offset of a new batch is 0",
        );
    }
    let sequenced = header.producer_epoch >= 0 && header.base_sequence >= 0;
    if header.producer_id >= 0 && !sequenced {
        return invalid(
            RawError::InvalidRecord,
            "a producer id without an epoch and a sequence",
        );
    }
    let limit = spec.max_record_bytes as usize;
    if batch.len() > limit && header.records() == 1 {
        let size = batch.len();
        let message = format!("a record of {size} bytes is over the stream's limit of {limit}");
        return Err(failure(
            Code::LimitExceeded,
            RawError::MessageTooLarge,
            message,
        ));
    }
    if is_compacted(spec) && !all_keyed(batch) {
        return invalid(
            RawError::InvalidRecord,
            "records of a compacted stream have keys",
        );
    }
    let mut log = log.unwrap_or_else(|| BytesMut::from(batch.as_ref()));
    let mut append_time_ms = -1;
    if spec.timestamps == Timestamps::Append {
        append_time_ms = i64::try_from(now().0).unwrap_or(i64::MAX);
        felix_model::set_append_time(&mut log, append_time_ms);
    }
    let draft = Draft::from_kafka(log).map_err(|error| refused(&error))?;
    Ok(Judged {
        draft,
        header,
        append_time_ms,
    })
}

/// A batch that may be appended.
struct Judged {
    draft: Draft,
    header: BatchHeader,
    /// The time that all its records have; -1 where they keep their own.
    append_time_ms: i64,
}

fn is_compacted(spec: &StreamSpec) -> bool {
    matches!(
        spec.kind,
        Kind::Durable {
            cleanup: Cleanup::Compact,
            ..
        }
    )
}

fn all_keyed(batch: &Bytes) -> bool {
    Records::new(batch).is_ok_and(|mut records| {
        records.all(|record| record.is_ok_and(|record| record.key.is_some()))
    })
}

/// What is wrong with a batch, as the Kafka protocol has it.
fn refused(refused: &BatchRefused) -> Failure {
    let error = match refused {
        BatchRefused::Short { .. }
        | BatchRefused::Length { .. }
        | BatchRefused::Checksum { .. }
        | BatchRefused::Undecodable { .. } => RawError::CorruptMessage,
        BatchRefused::Compression { .. } => RawError::UnsupportedCompression,
        BatchRefused::Bomb { .. } => RawError::MessageTooLarge,
        BatchRefused::LaterThanMax { .. } => RawError::InvalidTimestamp,
        BatchRefused::Trailing { .. }
        | BatchRefused::Magic { .. }
        | BatchRefused::Offsets { .. }
        | BatchRefused::Count { .. }
        | BatchRefused::Attributes { .. }
        | BatchRefused::Empty
        | BatchRefused::Sparse { .. }
        | BatchRefused::Record { .. }
        | BatchRefused::Leftover { .. }
        | BatchRefused::InternalHeader { .. } => RawError::InvalidRecord,
    };
    failure(Code::InvalidRequest, error, refused.to_string())
}

impl RawWaiting {
    /// Tells the caller what became of it, and gives back what it held. `start` is the shard's oldest offset.
    pub(crate) fn settle(self, outcome: Result<Appended, AppendRefused>, start: Offset) {
        let metrics = &self.shared.metrics;
        match &outcome {
            Ok(_) => {
                metrics
                    .published_messages
                    .increment(u64::from(self.records));
                metrics.published_bytes.increment(self.bytes);
            }
            Err(_) => metrics.publish_refused.increment(1),
        }
        if let Some(caller) = take(&self.caller) {
            caller.answer(match outcome {
                Ok(appended) => Ok(Reply::RawAppend(RawAppended {
                    base_offset: appended.base().map(|base| base.0),
                    append_time_ms: if matches!(appended, Appended::Duplicate { .. }) {
                        // That of the first time is in the log.
                        -1
                    } else {
                        self.append_time_ms
                    },
                    start: start.0,
                    throttle_ms: self.throttle_ms,
                    repeated: matches!(appended, Appended::Duplicate { .. }),
                })),
                Err(refused) => Err(append_failure(refused).into()),
            });
            metrics.publish_seconds.record(self.started.elapsed());
        } else if outcome.is_err() {
            metrics.acked_dropped.increment(u64::from(self.records));
        }
        drop(self.grant);
    }
}
