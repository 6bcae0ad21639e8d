//! Lanes stay small: a checkpoint says everything again, and what it supersedes is compacted away.

use std::ops::ControlFlow;
use std::sync::Arc;

use felix_engine::groups::Keeping;
use felix_journal::{CompactOptions, Keep, LogHandle};
use felix_model::{BatchHeader, Record};

use super::cell::GroupCell;
use crate::shards::Shards;

/// A lane is compacted when it is larger than this, and than so many times what is needed of it.
const COMPACT_FROM_BYTES: u64 = 1 << 20;
const COMPACT_FACTOR: u64 = 4;

/// Bytes read a second.
const COMPACT_BYTES_PER_SECOND: u64 = 64 << 20;

/// Why a lane was not compacted. It is tried again later.
#[derive(Debug, thiserror::Error)]
enum NotCompacted {
    #[error("the lane cannot be flushed: {0}")]
    Flush(felix_journal::SyncFailed),
    #[error("the lane's segment cannot be closed: {0}")]
    Roll(felix_journal::RollFailed),
    #[error(transparent)]
    Compact(#[from] felix_journal::CompactFailed),
}

impl Shards {
    /// Compacts the lanes that have grown beyond what is needed of them. Blocking.
    pub(crate) fn compact_lanes(&self) {
        for (spec, shard, cell) in self.open_shards() {
            let Some(groups) = cell.groups() else {
                continue;
            };
            let lane = groups.lane();
            let needed = groups.live_bytes().saturating_mul(COMPACT_FACTOR);
            if lane.reader().bytes() <= needed.max(COMPACT_FROM_BYTES) {
                continue;
            }
            match compact(&groups, &lane) {
                Ok((before, after)) => {
                    tracing::debug!(stream = %spec.id, shard, before, after, "a group lane was compacted");
                }
                Err(error) => {
                    tracing::warn!(stream = %spec.id, shard, %error, "a group lane was not compacted");
                }
            }
        }
    }
}

fn compact(groups: &Arc<GroupCell>, lane: &LogHandle) -> Result<(u64, u64), NotCompacted> {
    let before = lane.reader().bytes();
    let keeping = groups.checkpoint();
    // What is dropped below is superseded by the checkpoint, so that must be there first.
    lane.flush().map_err(NotCompacted::Flush)?;
    lane.roll().map_err(NotCompacted::Roll)?;
    let options = CompactOptions {
        below: keeping.from,
        bytes_per_second: Some(COMPACT_BYTES_PER_SECOND),
    };
    lane.compact(options, &mut Needed(keeping), &mut |_| {
        ControlFlow::Continue(())
    })?;
    Ok((before, lane.reader().bytes()))
}

struct Needed(Keeping);

impl Keep for Needed {
    fn keep(&mut self, _: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        stay.extend(records.iter().map(|record| self.0.keeps(record.offset)));
    }
}
