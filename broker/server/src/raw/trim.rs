//! Deleting records below an offset.
//!
//! Only whole segments are forgotten by the journal. Where a shard begins within one stands in a small file beside its log,
//! which is written before anybody is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_auth::Action;
use felix_journal::{Disk, DiskError, RetentionPolicy, durable};
use felix_meta::Cleanup;
use felix_model::{Offset, ShardIndex};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::extension::raw::{RawDeleteRecords, RawError, RawRecordsDeleted};
use felix_wire::extension::requests::Reply;
use felix_wire::publish::Names;

use super::{Shard, answer, failure, may, own_tenant};
use crate::conn::calls::Caller;
use crate::conn::stream::{StreamState, forbidden};
use crate::shards::cell::{Cell, now};
use crate::shards::{Kind, Shards};

/// The file that says where a shard begins: the offset in eight bytes, and their CRC-32C in four (big-endian).
fn path(log_directory: &Path) -> PathBuf {
    log_directory.with_file_name("start")
}

/// Where the records of a log begin that were not deleted. A file that does not hold what was written stands for nothing.
///
/// # Errors
/// The disk's. A log is not opened then: what was deleted would be back.
pub(crate) fn kept_start(disk: &dyn Disk, log_directory: &Path) -> Result<Offset, DiskError> {
    let Some(bytes) = durable::read(disk, &path(log_directory))? else {
        return Ok(Offset::ZERO);
    };
    let whole = bytes.split_first_chunk::<8>();
    let whole =
        whole.filter(|(offset, sum)| *sum == felix_model::batch::checksum(*offset).to_be_bytes());
    let Some((offset, _)) = whole else {
        tracing::error!(directory = %log_directory.display(), "where a log begins cannot be read; deleted records may be back");
        return Ok(Offset::ZERO);
    };
    Ok(Offset(u64::from_be_bytes(*offset)))
}

/// Copies where a log begins beside a copy of the log.
pub(crate) fn copy_start(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), DiskError> {
    match durable::read(disk, &path(from))? {
        Some(bytes) => durable::replace(disk, &path(to), &bytes),
        None => Ok(()),
    }
}

pub(super) async fn delete_records(
    state: &mut StreamState,
    names: &Names,
    ask: &RawDeleteRecords,
    caller: Caller,
) {
    let outcome = delete(state, names, ask).await;
    answer(
        caller,
        outcome.map(|start| Reply::RawDeleteRecords(RawRecordsDeleted { start: start.0 })),
    );
}

async fn delete(
    state: &StreamState,
    names: &Names,
    ask: &RawDeleteRecords,
) -> Result<Offset, Failure> {
    own_tenant(state, names.tenant())?;
    let id = state.name(names.tenant(), names.namespace(), names.stream())?;
    let allowed = [Action::StreamTrim, Action::StreamManage];
    if !allowed
        .into_iter()
        .any(|action| may(&state.principal, action, &id))
    {
        return Err(forbidden("stream.trim", &id));
    }
    let shared = &state.conn.shared;
    let handle = shared.stream(&id, &state.principal).await?;
    let policy = |message| failure(Code::InvalidRequest, RawError::PolicyViolation, message);
    match handle.spec().kind {
        Kind::Memory { .. } => return Err(policy("what an in-memory stream holds is not deleted")),
        Kind::Durable {
            cleanup: Cleanup::Compact,
            ..
        } => {
            return Err(policy(
                "the stream is compacted: its keys are deleted one by one",
            ));
        }
        Kind::Durable { .. } => {}
    }
    let index = ShardIndex(ask.shard);
    let shard = Shard {
        handle: Arc::clone(&handle),
        index,
    };
    let cell = shard.cell(shared).await?;
    if cell.has_commits() {
        return Err(Failure::new(
            Code::StreamHasCommits,
            "the stream holds commits, and the state of their entities needs them all",
        ));
    }
    let marks = cell.marks();
    let before = ask.before.map_or(marks.committed, Offset);
    if before > marks.committed {
        let message = format!("the shard ends at {}", marks.committed);
        return Err(failure(
            Code::InvalidRequest,
            RawError::OffsetOutOfRange,
            message,
        ));
    }
    if before <= marks.start {
        return Ok(marks.start);
    }
    let shards = Arc::clone(&shared.shards);
    let spec = handle.spec();
    let forgetting = tokio::task::spawn_blocking(move || {
        let directory = shards.log_directory(&spec, index);
        forget(&shards, directory.as_deref(), &cell, before)
    });
    forgetting.await.map_err(|_| {
        Failure::new(Code::Internal, "the deletion was interrupted").with_retry(Retry::Retry)
    })?
}

/// Writes down where the shard begins from here on, and forgets what lies before. Blocking.
fn forget(
    shards: &Shards,
    directory: Option<&Path>,
    cell: &Arc<Cell>,
    before: Offset,
) -> Result<Offset, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(Code::Storage, error.to_string()).with_retry(Retry::Retry)
    };
    let (Some(store), Some(directory), Some(log)) = (&shards.store, directory, cell.log()) else {
        return Err(failed(&"the shard has no log"));
    };
    // One after the other, or the file could say less than was answered.
    let _one = cell.trimming();
    let start = cell.marks().start;
    if before <= start {
        return Ok(start);
    }
    let offset = before.0.to_be_bytes();
    let sum = felix_model::batch::checksum(&offset).to_be_bytes();
    let content = [&offset[..], &sum[..]].concat();
    durable::replace(store.disk.as_ref(), &path(directory), &content)
        .map_err(|error| failed(&error))?;
    cell.trimmed(before);
    let everything = RetentionPolicy {
        max_bytes: Some(0),
        max_age_ms: None,
    };
    // What is not removed now is removed by the next sweep; nobody sees it any more.
    if let Err(error) = log.retain(everything, now(), before) {
        tracing::warn!(%error, "segments of deleted records stay for now");
    }
    Ok(cell.marks().start)
}
