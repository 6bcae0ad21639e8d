//! Compaction of streams with `cleanup: compact`, in the background, one log at a time.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use felix_journal::compact::{NewestByKey, Remembered, is_due};
use felix_journal::{
    CompactFailed, CompactOptions, Compacted, Keep, LogHandle, ReadRefused, RollFailed, limits,
};
use felix_meta::Cleanup;
use felix_model::forms::Commit;
use felix_model::{BatchHeader, Offset, ProducerId, Record, StreamId};

use super::cell::{Cell, now};
use super::{Kind, Shards};
use crate::limits::COMPACTION_RETRY;

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
            let name = (spec.id.clone(), shard);
            if self.is_stopping() || !is_due(&log.reader()) || self.failed_lately(&name) {
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
                    self.metrics.compaction_failures.increment(1);
                    super::lock(&self.not_compacted).insert(name, Instant::now());
                }
            }
        }
    }

    /// Whether the last try failed so lately that another would only say the same again.
    fn failed_lately(&self, name: &(StreamId, u32)) -> bool {
        let mut failed = super::lock(&self.not_compacted);
        failed.retain(|_, at| at.elapsed() < COMPACTION_RETRY);
        failed.contains_key(name)
    }

    fn compact_stream(&self, cell: &Cell, log: &LogHandle) -> Result<Compacted, NotCompacted> {
        log.roll()?;
        let reader = log.reader();
        let options = CompactOptions {
            below: cell.marks().committed.min(reader.closed_end()),
            bytes_per_second: Some(limits::COMPACT_BYTES_PER_SECOND),
        };
        let gathered = NewestByKey::gather(&reader, options, &mut |_| self.go_on());
        let mut keep = gathered?
            .with_remembered(remembered(cell.produced()), now())
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
        let done = log.compact(options, keep, &mut |_| self.go_on())?;
        self.metrics.compactions.increment(1);
        self.metrics.compaction_in.increment(done.bytes_before);
        self.metrics.compaction_out.increment(done.bytes_after);
        Ok(done)
    }

    fn go_on(&self) -> ControlFlow<()> {
        if self.is_stopping() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
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

/// The batches by which producers are recognised, of those that are remembered: producer by producer, in order of offsets.
fn remembered(known: impl IntoIterator<Item = (ProducerId, Offset)>) -> Remembered {
    let mut remembered = Remembered::default();
    let mut before: Option<(ProducerId, Offset)> = None;
    for (producer, base) in known {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    use felix_engine::{Observed, Produced, ProducerTable, payload_digest};
    use felix_journal::{Log, LogOptions, SimDisk};
    use felix_model::{
        Generation, InternalHeaders, NativeProducer, Payloads, TimeMs, patch, records_from_payloads,
    };

    use super::*;
    use crate::shards::open::rebuild;

    /// Batch `number` of a producer: three payloads with one key.
    fn append(log: &mut Log, table: &mut ProducerTable, producer: u64, sequence: u64, time: i64) {
        let payloads = [sequence, producer, 7].map(|number| number.to_string());
        let payloads: Vec<&[u8]> = payloads.iter().map(String::as_bytes).collect();
        let sent = NativeProducer {
            producer: ProducerId(producer),
            sequence,
        };
        let headers = InternalHeaders {
            publisher: None,
            sequence: Some(sent),
        };
        let list = Payloads::build(payloads.iter().copied()).unwrap();
        let mut batch = records_from_payloads(&list, Some(b"k"), time, &headers).unwrap();
        let base = log.end();
        patch(&mut batch, base, Generation(1));
        log.append(&[batch.freeze()]).unwrap();
        table.observe(Observed {
            produced: Produced {
                producer: ProducerId(producer),
                sequence,
                digest: payload_digest(payloads),
            },
            base,
            end: log.end(),
        });
    }

    #[test]
    fn producers_are_recognised_after_compaction_by_their_last_batch_and_by_what_is_recent() {
        const HOUR: i64 = 60 * 60 * 1000;
        let path = Path::new("/log");
        let options = LogOptions::default();
        let (mut log, _) = Log::open(Arc::new(SimDisk::new(1)), path, options).unwrap();
        let mut table = ProducerTable::new(10);
        // The first goes silent early; the second sends until now.
        append(&mut log, &mut table, 1, 0, 0);
        append(&mut log, &mut table, 1, 1, 0);
        for sequence in 0..100 {
            let time = if sequence < 95 { 0 } else { HOUR };
            append(&mut log, &mut table, 2, sequence, time);
        }
        log.close_segment().unwrap();
        let known: Vec<_> = table
            .iter()
            .map(|seen| (seen.produced.producer, seen.base))
            .collect();
        let options = CompactOptions {
            below: log.end(),
            bytes_per_second: None,
        };
        let go_on = &mut |_| ControlFlow::Continue(());
        let mut keep = NewestByKey::gather(&log.reader(), options, go_on)
            .unwrap()
            .with_remembered(remembered(known), TimeMs(HOUR.unsigned_abs()));
        log.compact(options, &mut keep).unwrap();
        let mut again = ProducerTable::new(10);
        rebuild(&log.reader(), log.start(), log.end(), &mut again).unwrap();
        let wanted: BTreeSet<_> = table
            .iter()
            .filter(|seen| {
                let Produced {
                    producer, sequence, ..
                } = seen.produced;
                (producer, sequence) == (ProducerId(1), 1) || sequence >= 95
            })
            .map(|seen| format!("{seen:?}"))
            .collect();
        let found: BTreeSet<_> = again.iter().map(|seen| format!("{seen:?}")).collect();
        assert_eq!(found, wanted);
    }
}
