//! Compaction: closed segments are written again without what nobody needs, and take the place of what was read.
//!
//! ```text
//!   read one or several neighbours -> <base>.<serial>.cleaned, synced
//!   all that was written to the log until now synced: what replaces a record must not be lost after it
//!   manifest replaced                             the commit: from here on the new file is the log
//!   its seal removed, renamed to <base>.log       readers that are inside an old file go on reading it
//!   index, time index and seal written, the other files that were read removed
//! ```
//!
//! A crash before the commit leaves a file that belongs to nothing; one after it leaves a change that the next open
//! finishes. Offsets never change: a batch keeps its first and last offset, and where batches are gone the manifest says so.

use std::ops::ControlFlow;
use std::sync::Arc;

use felix_model::{BatchHeader, Offset, Record};

use super::manifest::Manifest;
use super::scan::Stop;
use super::segment::Segment;
use super::shared::Shared;
use super::{Damage, DiskError, Log, SyncFailed, durable};
use crate::disk::Doing;
use crate::limits;

mod output;
mod pace;
mod place;
mod sift;

use output::Output;
pub(crate) use pace::Pace;
use sift::{Sifted, Sifter};

/// Says what stays of a log that is compacted. Called batch by batch in order of offsets, off the runtime; it may lock
/// for a moment.
pub trait Keep {
    /// Answers, in `stay`, for each record of a batch whether it stays. `stay` comes in empty; a record without an
    /// answer stays.
    fn keep(&mut self, batch: &BatchHeader, records: &[Record], stay: &mut Vec<bool>);

    /// All the deletions that it let go while they were the newest of their key lie below this offset (exclusive). What
    /// remains of the log does not tell that those keys were deleted.
    fn deletions_below(&self) -> Offset {
        Offset::ZERO
    }
}

/// How far to compact, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactOptions {
    /// What lies at or above stays as it is, so it is never past what is committed (exclusive).
    pub below: Offset,
    /// Bytes read a second; none for as fast as the disk is.
    pub bytes_per_second: Option<u64>,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of the segments that were replaced.
    pub bytes_before: u64,
    /// Bytes of those that took their place.
    pub bytes_after: u64,
    /// Bytes read, also of segments that were left as they are.
    pub bytes_read: u64,
    /// Segments that were replaced.
    pub segments: usize,
    /// Records that are gone.
    pub records_dropped: u64,
    /// Below it (exclusive) history is collapsed.
    pub cleaned_to: Offset,
}

/// Why a log was not compacted, or not to the end. What was done before stays done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactFailed {
    /// There is no room for the new file beside the old ones.
    #[error("{needed} bytes are needed and {available} are available")]
    Full {
        /// What it may take.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// The log is damaged; what is damaged is not written again.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The disk failed. Unless the log is poisoned by it, nothing was changed.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// A disk failure left the log in doubt.
    #[error(transparent)]
    NotDurable(#[from] SyncFailed),
}

/// One compaction, ready to run.
#[derive(Debug)]
pub struct CompactJob {
    shared: Arc<Shared>,
    segments: Vec<Arc<Segment>>,
    options: CompactOptions,
    segment_bytes: u64,
}

impl Log {
    /// What could be compacted now: the closed segments that are durable and sealed, from the oldest on, as far as they
    /// begin below `options.below`. Retention leaves them alone until the job is dropped.
    ///
    /// # Errors
    /// After an earlier disk failure; see [`SyncFailed::Poisoned`].
    pub fn begin_compact(&mut self, options: CompactOptions) -> Result<CompactJob, SyncFailed> {
        if self.shared.is_poisoned() {
            return Err(SyncFailed::Poisoned);
        }
        let segments = self.shared.segments();
        let closed = segments.len().saturating_sub(1);
        let settled = |segment: &&Arc<Segment>| {
            let unsealed = self
                .unsealed
                .iter()
                .any(|other| other.segment.id == segment.id);
            let unsynced = self.unsynced.iter().any(|other| other.id == segment.id);
            !unsealed && !unsynced && !segment.is_busy() && segment.base < options.below.0
        };
        let segments: Vec<_> = segments
            .iter()
            .take(closed)
            .take_while(settled)
            .cloned()
            .collect();
        for segment in &segments {
            segment.set_busy(true);
        }
        Ok(CompactJob {
            shared: Arc::clone(&self.shared),
            segments,
            options,
            segment_bytes: self.options.segment_bytes,
        })
    }

    /// Compacts what is closed; see [`Log::begin_compact`] and [`CompactJob::run`].
    ///
    /// # Errors
    /// See [`CompactFailed`].
    pub fn compact(
        &mut self,
        options: CompactOptions,
        keep: &mut dyn Keep,
    ) -> Result<Compacted, CompactFailed> {
        let job = self.begin_compact(options)?;
        let settle = &mut || self.sync_records().map(drop);
        job.run(keep, settle, &mut |_| ControlFlow::Continue(()))
    }

    /// Closes the active segment, makes it durable and seals it, so that it can be compacted. Answers where the new one
    /// begins. An empty one is left as it is.
    ///
    /// # Errors
    /// See [`RollFailed`].
    pub fn close_segment(&mut self) -> Result<Offset, RollFailed> {
        self.begin_close_segment()?;
        self.sync()?;
        Ok(Offset(self.active.base))
    }

    /// The same without waiting for the disk.
    pub(crate) fn begin_close_segment(&mut self) -> Result<(), super::AppendFailed> {
        if self.shared.is_poisoned() {
            return Err(super::AppendFailed::Poisoned);
        }
        if self.active.bytes() == 0 {
            return Ok(());
        }
        self.wake()?;
        self.roll()
    }
}

/// Why the active segment was not closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RollFailed {
    /// There is no new one.
    #[error(transparent)]
    Append(#[from] super::AppendFailed),
    /// The old one could not be made durable.
    #[error(transparent)]
    Sync(#[from] SyncFailed),
}

impl Drop for CompactJob {
    fn drop(&mut self) {
        for segment in &self.segments {
            segment.set_busy(false);
        }
    }
}

impl CompactJob {
    /// Bytes of the segments that would be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// Reads the segments and replaces those of which something goes, or which are small and lie side by side. Blocking;
    /// appends and reads go on. `settle` is called before each commit and makes durable all that was written until then:
    /// what replaces a record must not be lost after the record has gone. `pause` is called with the bytes read since its last call, four times a mebibyte; it may
    /// wait, and may end the compaction, which keeps what was committed.
    ///
    /// # Errors
    /// See [`CompactFailed`].
    pub fn run(
        &self,
        keep: &mut dyn Keep,
        settle: &mut dyn FnMut() -> Result<(), SyncFailed>,
        pause: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Compacted, CompactFailed> {
        let mut manifest = self.shared.manifest();
        if self.shared.is_poisoned() {
            return Err(SyncFailed::Poisoned.into());
        }
        // The names of the segments that follow: without one, the newest compacted segment would be the end of the log.
        let disk = self.shared.files.disk().as_ref();
        self.shared
            .sync(|| durable::sync_later(disk, &self.shared.dir))?;
        let mut run = Run {
            job: self,
            sifter: Sifter::new(self.options.below, keep),
            pace: Pace::new(self.options.bytes_per_second, pause),
            settle,
            manifest: &mut manifest,
            generation: 0,
            done: Compacted::default(),
        };
        let ended = run.all();
        run.finish(ended)
    }
}

/// Why a run ended early.
enum Ended {
    /// Whoever was asked said so.
    Stopped,
    Failed(CompactFailed),
}

impl<T: Into<CompactFailed>> From<T> for Ended {
    fn from(failed: T) -> Self {
        Self::Failed(failed.into())
    }
}

/// A compaction under way.
struct Run<'a> {
    job: &'a CompactJob,
    sifter: Sifter<'a>,
    pace: Pace<'a>,
    settle: &'a mut dyn FnMut() -> Result<(), SyncFailed>,
    manifest: &'a mut Manifest,
    /// Of the last batch that was seen.
    generation: u32,
    done: Compacted,
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), Ended> {
        let mut rest = self.job.segments.as_slice();
        while !rest.is_empty() {
            let taken = self.group(rest)?.max(1);
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Compacts the first segments of a row; answers how many. They become one segment.
    fn group(&mut self, row: &[Arc<Segment>]) -> Result<usize, Ended> {
        let base = row.first().map_or(0, |segment| segment.base);
        let mut output: Option<Output> = None;
        let mut taken: Vec<Arc<Segment>> = Vec::new();
        for segment in row {
            if !taken.is_empty() {
                if !self.goes_on(&taken, output.as_ref(), segment) {
                    break;
                }
                if output.is_none() {
                    output = Some(self.begin_output(base, &taken)?);
                }
            }
            taken.push(Arc::clone(segment));
            if let Err(ended) = self.sift(&taken, &mut output) {
                if let Some(output) = output {
                    output.abandon(&self.job.shared);
                }
                return Err(ended);
            }
        }
        self.manifest_reaches(&taken);
        let count = taken.len();
        if let Some(output) = output {
            self.commit(output, &taken)?;
        }
        Ok(count)
    }

    /// Whether the next segment joins those that were taken.
    fn goes_on(&self, taken: &[Arc<Segment>], output: Option<&Output>, next: &Segment) -> bool {
        let Some(first) = taken.first() else {
            return true;
        };
        let target = self.job.segment_bytes;
        let read: u64 = taken.iter().map(|segment| segment.bytes()).sum::<u64>() + next.bytes();
        let offsets = next.next() - first.base;
        if offsets > i32::MAX as u64 || read > target.saturating_mul(GROUP_SEGMENTS_MAX) {
            return false;
        }
        match output {
            // Nothing has gone so far: only worth while for crumbs.
            None => read <= target / 2,
            Some(output) => {
                let bytes = output.bytes() + next.bytes();
                output.bytes() < target / 2
                    && bytes <= target.saturating_mul(3) / 2
                    && bytes <= limits::SEGMENT_BYTES_MAX
            }
        }
    }

    /// A new file with all that is in the segments taken so far, of which nothing goes.
    fn begin_output(&mut self, base: u64, taken: &[Arc<Segment>]) -> Result<Output, Ended> {
        let shared = &self.job.shared;
        let needed = self.job.segment_bytes.saturating_mul(3) / 2;
        let needed = needed.min(self.job.bytes()) + ROOM_LEFT_BYTES;
        let space = shared
            .files
            .disk()
            .space(&shared.dir)
            .doing("measure", &shared.dir)?;
        if space.available < needed {
            let available = space.available;
            return Err(CompactFailed::Full { needed, available }.into());
        }
        let mut output = Output::create(shared, base, self.manifest.serial + 1)?;
        for segment in taken {
            if let Err(failed) = output.copy(shared, segment, segment.bytes()) {
                output.abandon(shared);
                return Err(failed.into());
            }
        }
        Ok(output)
    }

    /// Reads the segment that was taken last into the output, which begins where something goes for the first time.
    fn sift(&mut self, taken: &[Arc<Segment>], output: &mut Option<Output>) -> Result<(), Ended> {
        let (shared, Some((segment, before))) = (&self.job.shared, taken.split_last()) else {
            return Ok(());
        };
        let path = segment.path(shared);
        let file = shared
            .files
            .disk()
            .open_read_only(&path)
            .doing("open", &path)?;
        let mut scan = segment.scan(file.as_ref(), 0, segment.base);
        loop {
            let found = match scan.next() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(()),
                Err(Stop::Bad(kind)) => {
                    return Err(segment
                        .damage(shared, scan.position, scan.expected, kind)
                        .into());
                }
                Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error).into()),
            };
            self.generation = u32::try_from(found.header.leader_epoch).unwrap_or(0);
            let batch = scan.batch(&found);
            self.done.bytes_read += found.bytes();
            let sifted = self.sifter.sift(&found.header, &batch);
            if output.is_none() && !matches!(sifted, Sifted::Whole) {
                let base = before.first().unwrap_or(segment).base;
                let mut begun = self.begin_output(base, before)?;
                let copied = begun.copy(shared, segment, found.position);
                // What was created has to be abandoned by whoever hears of the failure.
                *output = Some(begun);
                copied?;
            }
            if let Some(output) = output {
                match sifted {
                    Sifted::Whole => output.push(&found.header, &batch)?,
                    Sifted::Thin(header, thinned) => output.push(&header, &thinned)?,
                    Sifted::Gone => {}
                }
            }
            if self.pace.spend(found.bytes()).is_break() {
                return Err(Ended::Stopped);
            }
        }
    }

    /// Takes note of how far history is collapsed once the segments taken are done.
    fn manifest_reaches(&mut self, taken: &[Arc<Segment>]) {
        let next = taken.last().map_or(0, |segment| segment.next());
        let next = next.min(self.job.options.below.0);
        self.manifest.cleaned_to = self.manifest.cleaned_to.max(next);
    }

    /// Writes down what no commit has, and says what was done.
    fn finish(mut self, ended: Result<(), Ended>) -> Result<Compacted, CompactFailed> {
        let shared = &self.job.shared;
        self.done.records_dropped = self.sifter.dropped();
        match ended {
            Ok(()) | Err(Ended::Stopped) => {}
            Err(Ended::Failed(failed)) => {
                // What was not written down is not so.
                self.manifest.cleaned_to = shared.cleaned_to();
                self.manifest.tombstone_floor = shared.tombstone_floor();
                return Err(failed);
            }
        }
        if self.manifest.cleaned_to > shared.cleaned_to() {
            self.manifest
                .write(shared.files.disk().as_ref(), &shared.dir)?;
            shared.show(self.manifest);
        }
        self.done.cleaned_to = Offset(shared.cleaned_to());
        Ok(self.done)
    }
}

/// How many segments' worth is read for one new segment: what an interruption makes to be read again.
const GROUP_SEGMENTS_MAX: u64 = 8;

/// What compaction leaves free on the disk.
const ROOM_LEFT_BYTES: u64 = 1024 * 1024;
