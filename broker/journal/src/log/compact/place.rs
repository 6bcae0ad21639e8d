//! Putting a new segment into the place of those that were read.

use std::sync::Arc;

use super::super::manifest::{Entry, Sparse};
use super::super::seal::FileSum;
use super::super::segment::{self, Segment};
use super::super::shared::Shared;
use super::super::{DiskError, Kind, durable, names};
use super::{Ended, Output, Run};
use crate::disk::Doing;

impl Run<'_> {
    /// Makes the output the segment that all segments taken were.
    pub(super) fn commit(
        &mut self,
        mut output: Output,
        taken: &[Arc<Segment>],
    ) -> Result<(), Ended> {
        let shared = &self.job.shared;
        let finished = output.finish().map_err(Ended::from);
        let settled = finished.and_then(|()| (self.settle)().map_err(Ended::from));
        if let Err(ended) = settled {
            output.abandon(shared);
            return Err(ended);
        }
        let next = taken.last().map_or(output.base, |segment| segment.next());
        let sparse = Sparse {
            bytes: output.bytes(),
            next,
        };
        self.note(&output, sparse);
        let placed = self
            .manifest
            .write(shared.files.disk().as_ref(), &shared.dir)
            .and_then(|()| {
                // Before anybody can read what has no deletions any more.
                shared.raise_floor(self.manifest.tombstone_floor);
                swap(shared, &output, sparse, taken)
            });
        // Whether it is committed is for the next open to say.
        let segment = placed.inspect_err(|_| shared.poison())?;
        shared.show(self.manifest);
        self.done.segments += taken.len();
        self.done.bytes_before += taken.iter().map(|segment| segment.bytes()).sum::<u64>();
        self.done.bytes_after += output.bytes();
        if let Err(error) = write_derived(shared, &output, &segment, self.generation) {
            tracing::warn!(%error, "compacted segment not sealed; the next open will read it");
        }
        let removed = remove(shared, taken);
        segment.set_busy(false);
        removed.map_err(Ended::from)
    }

    /// What the manifest says once the output is the log.
    fn note(&mut self, output: &Output, sparse: Sparse) {
        let start = self.job.shared.start();
        // Retention has removed those.
        self.manifest.entries.retain(|entry| entry.base >= start);
        self.manifest.serial = output.serial;
        self.manifest.put(Entry {
            base: output.base,
            sparse,
            serial: output.serial,
        });
        let floor = self.sifter.deletions_below().0;
        self.manifest.tombstone_floor = self.manifest.tombstone_floor.max(floor);
    }
}

/// Gives the file its name and shows the segment to readers. Those that hold an old file open go on reading it.
fn swap(
    shared: &Shared,
    output: &Output,
    sparse: Sparse,
    taken: &[Arc<Segment>],
) -> Result<Arc<Segment>, DiskError> {
    let disk = shared.files.disk().as_ref();
    // It could fit the new file as well.
    durable::unlink(disk, &shared.path(output.base, Kind::Seal))?;
    let id = shared.files.new_id();
    let segment =
        Segment::new(id, output.base, output.reach(sparse.next)).with_sparse(Some(sparse));
    let segment = Arc::new(segment);
    // Until the files that it replaces are gone, retention must not take it away from before them.
    segment.set_busy(true);
    let path = shared.path(output.base, Kind::Log);
    {
        let mut segments = shared.segments_mut();
        for old in taken {
            old.set_replaced();
        }
        let durable::Unsynced = durable::rename_unsynced(disk, output.path(), &path)?;
        let first = segments.partition_point(|held| held.base < output.base);
        let after = segments.partition_point(|held| held.base < sparse.next.max(output.base + 1));
        segments.splice(first..after, [Arc::clone(&segment)]);
    }
    for old in taken {
        shared.files.forget(old.id);
    }
    shared.sync(|| durable::sync_later(disk, &shared.dir))?;
    if shared.files.open(id, &path).is_ok() {
        shared.files.keep_index(id, Arc::new(output.index.clone()));
    }
    Ok(segment)
}

/// Writes what is derived from the new segment.
fn write_derived(
    shared: &Shared,
    output: &Output,
    segment: &Segment,
    generation: u32,
) -> Result<(), DiskError> {
    let (points, moments) = output.index.encode();
    let sums = (FileSum::of(&points), FileSum::of(&moments));
    let seal = output.seal(segment.next(), generation, sums).encode();
    for (kind, bytes) in [
        (Kind::Index, points.as_ref()),
        (Kind::TimeIndex, moments.as_ref()),
        (Kind::Seal, seal.as_slice()),
    ] {
        segment::write_derived(shared, &shared.path(output.base, kind), bytes)?;
    }
    durable::sync_later(shared.files.disk().as_ref(), &shared.dir)?;
    let _ = segment.sums.set(sums);
    Ok(())
}

/// Removes the files that were read and have another name. What cannot be removed now goes before retention removes
/// what replaced it, so that it never comes back.
fn remove(shared: &Shared, taken: &[Arc<Segment>]) -> Result<(), DiskError> {
    let mut waiting: Vec<_> = taken.iter().skip(1).cloned().collect();
    let result = waiting.iter().try_for_each(|old| {
        let disk = shared.files.disk().as_ref();
        disk.unlink(&old.path(shared))
            .doing("remove", &old.path(shared))?;
        for kind in names::DERIVED {
            durable::unlink_derived(disk, &shared.path(old.base, kind))?;
        }
        Ok(())
    });
    let result =
        result.and_then(|()| durable::sync_later(shared.files.disk().as_ref(), &shared.dir));
    if result.is_err() {
        shared.forgotten().append(&mut waiting);
    }
    result
}
