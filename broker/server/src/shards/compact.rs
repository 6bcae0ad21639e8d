//! Compaction of streams with `cleanup: compact`, in the background, one log at a time.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use felix_journal::compact::{NewestByKey, Remembered, is_due};
use felix_journal::{
    CompactFailed, CompactOptions, Compacted, Keep, LogHandle, ReadRefused, RollFailed, limits,
};
use felix_meta::Cleanup;
use felix_model::forms::Commit;
use felix_model::{BatchHeader, Offset, Record};

use super::cell::{Cell, now};
use super::{Kind, Shards};

/// Why a log was not compacted. It is tried again later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCompacted {
    #[error(transparent)]
    Roll(#[from] RollFailed),
    #[error(transparent)]
    Read(#[from] ReadRefused),
    #[error(transparent)]
    Compact(#[from] CompactFailed),
}

impl Shards {
    /// Compacts every open shard that is to be compacted and worth it. Blocking, and slow on purpose.
    pub(crate) fn compact(&self) {
        for (spec, shard, cell) in self.open_shards() {
            let Kind::Durable {
                cleanup: Cleanup::Compact,
                ..
            } = spec.kind
            else {
                continue;
            };
            let Some(log) = cell.log() else { continue };
            if self.is_stopping() || !is_due(&log.reader()) {
                continue;
            }
            match self.compact_stream(&cell, &log) {
                Ok(done) => tracing::info!(
                    stream = %spec.id, shard, bytes_before = done.bytes_before, bytes_after = done.bytes_after,
                    records = done.records_dropped, cleaned_to = done.cleaned_to.0, "compacted"
                ),
                Err(NotCompacted::Read(ReadRefused::BelowStart { .. })) => {}
                Err(error) => {
                    tracing::warn!(stream = %spec.id, shard, %error, "a log was not compacted");
                }
            }
        }
    }

    fn compact_stream(&self, cell: &Cell, log: &LogHandle) -> Result<Compacted, NotCompacted> {
        log.roll()
            .inspect_err(|_| self.metrics.compaction_failures.increment(1))?;
        let reader = log.reader();
        let options = CompactOptions {
            below: cell.marks().committed.min(reader.closed_end()),
            bytes_per_second: Some(limits::COMPACT_BYTES_PER_SECOND),
        };
        let gathered = NewestByKey::gather(&reader, options, &mut |_| self.go_on());
        let mut keep = gathered?
            .with_remembered(cell.remembered(), now())
            .with_deletions_until(now(), limits::DELETION_GRACE_MS);
        let options = CompactOptions {
            below: keep.covered(),
            ..options
        };
        if cell.has_commits() {
            let mut keep = CommitsToo { newest: keep, cell };
            return Ok(self.compact_log(log, options, &mut keep)?);
        }
        Ok(self.compact_log(log, options, &mut keep)?)
    }

    /// Compacts one log by any rule, until the broker stops; counts what it came to. Blocking.
    ///
    /// # Errors
    /// See [`LogHandle::compact`].
    pub(crate) fn compact_log(
        &self,
        log: &LogHandle,
        options: CompactOptions,
        keep: &mut dyn Keep,
    ) -> Result<Compacted, CompactFailed> {
        let done = log.compact(options, keep, &mut |_| self.go_on());
        match &done {
            Ok(done) => {
                self.metrics.compactions.increment(1);
                self.metrics.compaction_in.increment(done.bytes_before);
                self.metrics.compaction_out.increment(done.bytes_after);
            }
            Err(_) => self.metrics.compaction_failures.increment(1),
        }
        done
    }

    fn go_on(&self) -> ControlFlow<()> {
        if self.is_stopping() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Lets commits go whose changes and idempotency keys are of no use any more, as records of their keys go.
struct CommitsToo<'a> {
    newest: NewestByKey,
    cell: &'a Cell,
}

impl Keep for CommitsToo<'_> {
    fn keep(&mut self, batch: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        self.newest.keep(batch, records, stay);
        if !batch.is_internal() {
            return;
        }
        for (record, stays) in records.iter().zip(stay) {
            if *stays
                && !self.newest.is_newest(record)
                && let Ok(Some(commit)) = Commit::read(record)
            {
                *stays = self.cell.state_keeps(record.offset, &commit);
            }
        }
    }

    fn deletions_below(&self) -> Offset {
        self.newest.deletions_below()
    }
}

impl Cell {
    /// The batches by which the producers of this shard are recognised.
    fn remembered(&self) -> Remembered {
        let mut remembered = Remembered::default();
        let mut before: Option<(felix_model::ProducerId, Offset)> = None;
        for (producer, base) in self.produced() {
            if let Some((other, last)) = before.replace((producer, base)) {
                let bases = if other == producer {
                    &mut remembered.earlier
                } else {
                    &mut remembered.last
                };
                bases.insert(last);
            }
        }
        remembered.last.extend(before.map(|(_, base)| base));
        remembered
    }
}
