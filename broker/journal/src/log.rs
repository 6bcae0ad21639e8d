//! One shard's log: a row of segments, of which the last takes appends.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use felix_model::limits::BATCH_BYTES_MAX;
use felix_model::{BatchHeader, Offset};

use crate::disk::{Disk, DiskError, DiskFile, Doing};
use crate::reader::LogReader;
use crate::{durable, limits};

mod chores;
mod compact;
mod end;
mod files;
mod index;
mod listing;
mod manifest;
mod mark;
mod names;
mod outcome;
mod plan;
mod recover;
mod retain;
mod scan;
mod seal;
mod segment;
mod shared;
mod sync;

pub use chores::{PrepareJob, SealJob};
pub use compact::{CompactFailed, CompactJob, CompactOptions, Compacted, Keep, RollFailed};
pub use files::OpenFiles;
pub use outcome::{
    AppendFailed, Damage, DamageKind, LogOptions, OpenRefused, Recovered, SyncFailed,
};
pub use retain::{RetainJob, RetentionPolicy, TruncateRefused};
pub use sync::SyncJob;

pub(crate) use compact::Pace;
pub(crate) use end::End;
pub(crate) use index::Index;
pub(crate) use listing::{Held, Listing};
pub(crate) use manifest::{Entry, Manifest, Sparse};
pub(crate) use names::{Kind, path as segment_path};
pub(crate) use plan::{Cut, plan, read_mark, read_seal};
pub(crate) use recover::open_existing;
pub(crate) use scan::{Scan, Stop, valid_after};
pub(crate) use segment::{SearchFailed, Segment};
pub(crate) use shared::Shared;

/// Where a log's durable mark is.
pub(crate) fn mark_file(dir: &Path) -> PathBuf {
    dir.join(names::MARK)
}

use index::Placed;
use segment::Reach;

/// One shard's log. Single writer; blocking.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    options: LogOptions,
    /// The segment that takes appends: the last of `shared.segments`.
    active: Arc<Segment>,
    /// Checksum of the active segment's headers (see `seal`); none when it was opened without reading it all.
    headers_crc: Option<u32>,
    last_generation: u32,
    /// Bytes of the active segment's file that have space reserved; none where the disk cannot.
    reserved: Option<u64>,
    /// An empty file that the next roll only has to rename.
    prepared: Option<Arc<dyn DiskFile>>,
    preparing: bool,
    /// Rolled segments not known to be durable, oldest first.
    unsynced: Vec<Arc<Segment>>,
    /// Rolled segments without a seal, oldest first.
    unsealed: Vec<chores::Unsealed>,
    /// Renames and creations in the directory, and how many of them are durable.
    entries_changed: u64,
    entries_synced: u64,
    mark_file: Option<Arc<dyn DiskFile>>,
}

impl Log {
    /// Opens the log in a directory, creating both when missing, and recovers it.
    ///
    /// # Errors
    /// See [`OpenRefused`].
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(Self, Recovered), OpenRefused> {
        Self::open_in(&OpenFiles::new(disk, limits::OPEN_FILES), dir, options)
    }

    /// What [`Recovered::lost_durable_bytes`] would be if the log in a directory were opened now. Changes nothing, so that what
    /// was lost can be noted before its traces are.
    ///
    /// # Errors
    /// See [`OpenRefused`].
    pub fn lost_durable_bytes(
        disk: &dyn Disk,
        dir: &Path,
        options: LogOptions,
    ) -> Result<u64, OpenRefused> {
        Ok(plan(disk, dir, options.verify_bytes)?.lost_durable_bytes())
    }

    /// As [`Log::open`], sharing a bounded set of open files with other logs.
    ///
    /// # Errors
    /// See [`OpenRefused`].
    pub fn open_in(
        files: &Arc<OpenFiles>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(Self, Recovered), OpenRefused> {
        recover::open(files, dir, options)
    }

    /// Appends batches that already carry their final offsets and continue the log, in one write (two at a roll).
    ///
    /// # Errors
    /// See [`AppendFailed`].
    pub fn append(&mut self, batches: &[Bytes]) -> Result<(), AppendFailed> {
        if self.shared.is_poisoned() {
            return Err(AppendFailed::Poisoned);
        }
        let headers = self.check(batches)?;
        self.wake()?;
        let mut rest = (batches, headers.as_slice());
        while !rest.0.is_empty() {
            let fitting = self.fitting(rest.1);
            if fitting == 0 {
                self.roll()?;
                continue;
            }
            let (Some((now, later)), Some((headers, later_headers))) = (
                rest.0.split_at_checked(fitting),
                rest.1.split_at_checked(fitting),
            ) else {
                break;
            };
            self.write(now, headers)?;
            rest = (later, later_headers);
        }
        Ok(())
    }

    /// Headers of batches that continue the log.
    fn check(&self, batches: &[Bytes]) -> Result<Vec<BatchHeader>, AppendFailed> {
        let mut expected = self.end();
        let mut headers = Vec::with_capacity(batches.len());
        for batch in batches {
            let header = BatchHeader::parse(batch)
                .map_err(|refused| AppendFailed::Malformed(refused.to_string()))?;
            if header.total_bytes() != batch.len() || batch.len() > BATCH_BYTES_MAX {
                let length = batch.len();
                return Err(AppendFailed::Malformed(format!(
                    "{length} bytes given, {} declared",
                    header.total_bytes()
                )));
            }
            let found = Offset(u64::try_from(header.base_offset).unwrap_or(u64::MAX));
            if found != expected {
                return Err(AppendFailed::NotContiguous { expected, found });
            }
            expected = header.next_offset();
            headers.push(header);
        }
        Ok(headers)
    }

    /// How many batches still go into the active segment. An empty segment takes at least one, however large.
    fn fitting(&self, headers: &[BatchHeader]) -> usize {
        let mut bytes = self.active.bytes();
        let mut fitting = 0;
        for header in headers {
            let empty = bytes == 0;
            bytes += header.total_bytes() as u64;
            let offsets = header.next_offset().0 - self.active.base;
            if !empty && (bytes > self.options.segment_bytes || offsets > i32::MAX as u64) {
                break;
            }
            fitting += 1;
        }
        fitting
    }

    /// Writes batches at the end of the active segment; undoes a write that failed.
    fn write(&mut self, batches: &[Bytes], headers: &[BatchHeader]) -> Result<(), AppendFailed> {
        let position = self.active.bytes();
        let total: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
        let Some(file) = self.active.live().file.clone() else {
            return Err(AppendFailed::Poisoned);
        };
        self.reserve(file.as_ref(), position + total);
        let buffers: Vec<IoSlice<'_>> = batches.iter().map(|batch| IoSlice::new(batch)).collect();
        if let Err(error) = file.write_at(&buffers, position) {
            let path = self.active.path(&self.shared);
            let error = DiskError::new("write", &path, &error);
            tracing::error!(%error, position, "write failed");
            if let Err(undo) = self.undo(file.as_ref(), &path, position, error.is_full()) {
                tracing::error!(error = %undo, "failed write cannot be undone");
                self.shared.poison();
            }
            self.reserved = self.reserved.map(|_| position);
            return Err(if error.is_full() {
                AppendFailed::Full
            } else {
                AppendFailed::Io(error)
            });
        }
        self.note(batches, headers);
        Ok(())
    }

    /// Takes back what a failed write left behind. Whoever is told that there was no room is told that nothing was
    /// written: that must hold after a power cut, too, which could bring the bytes back and forget the cut.
    fn undo(
        &self,
        file: &dyn DiskFile,
        path: &Path,
        position: u64,
        is_final: bool,
    ) -> Result<(), DiskError> {
        file.set_len(position)
            .map_err(|error| DiskError::new("set_len", path, &error))?;
        if !is_final {
            return Ok(());
        }
        self.shared.sync(|| {
            file.sync_data()
                .map_err(|error| DiskError::new("sync", path, &error))
        })
    }

    /// Takes what was written into the indexes and shows it to readers.
    fn note(&mut self, batches: &[Bytes], headers: &[BatchHeader]) {
        let mut reach = self.active.reach();
        let mut live = self.active.live();
        for (batch, header) in batches.iter().zip(headers) {
            let next = header.next_offset().0;
            if let Some(index) = live.index.as_mut() {
                index.note(Placed {
                    position: reach.bytes,
                    last: self.active.relative(next - 1),
                    max_timestamp: header.max_timestamp,
                });
            }
            let uncovered = batch.get(..seal::UNCOVERED_BYTES).unwrap_or_default();
            self.headers_crc = self
                .headers_crc
                .map(|crc| crc32c::crc32c_append(crc, uncovered));
            self.last_generation = u32::try_from(header.leader_epoch).unwrap_or(0);
            reach.bytes += batch.len() as u64;
            reach.next = next;
            reach.max_timestamp = reach.max_timestamp.max(header.max_timestamp);
        }
        drop(live);
        self.active.publish(reach);
        self.shared.set_end(reach.next);
    }

    /// Reserves space ahead of the writer while a log is young, so that its file does not grow in crumbs.
    fn reserve(&mut self, file: &dyn DiskFile, upto: u64) {
        let Some(reserved) = self.reserved else {
            return;
        };
        let young = (limits::RESERVE_FROM_BYTES..limits::RESERVE_UPTO_BYTES).contains(&upto);
        if !young || upto <= reserved {
            return;
        }
        let ahead = upto + upto.max(limits::RESERVE_STEP_BYTES);
        let ahead = ahead.min(self.options.segment_bytes.max(upto));
        // A disk that cannot, or is nearly full, is asked no more for this segment; the write itself decides.
        self.reserved = file.reserve(ahead).is_ok().then_some(ahead);
    }

    /// Opens what an append needs and an idle log has let go.
    fn wake(&mut self) -> Result<(), AppendFailed> {
        let io = |error: DiskError| {
            if error.is_full() {
                AppendFailed::Full
            } else {
                AppendFailed::Io(error)
            }
        };
        let path = self.active.path(&self.shared);
        let mut live = self.active.live();
        if live.file.is_some() && live.index.is_some() && self.mark_file.is_some() {
            return Ok(());
        }
        if live.file.is_none() {
            let file = self
                .shared
                .files
                .disk()
                .open(&path)
                .doing("open", &path)
                .map_err(io)?;
            live.file = Some(file);
        }
        let indexed = live.index.is_some();
        drop(live);
        if !indexed {
            let index = self
                .active
                .load_index(&self.shared)
                .map_err(|failed| match failed {
                    SearchFailed::Io(error) => io(error),
                    SearchFailed::Gone => io(DiskError::new(
                        "open",
                        &path,
                        &std::io::ErrorKind::NotFound.into(),
                    )),
                })?;
            self.active.live().index.get_or_insert(index);
        }
        if self.mark_file.is_none() {
            let mark = self.shared.dir.join(names::MARK);
            let file = self
                .shared
                .files
                .disk()
                .open(&mark)
                .doing("open", &mark)
                .map_err(io)?;
            self.mark_file = Some(file);
        }
        Ok(())
    }

    /// Begins a new segment. Nothing is synced here: the next sync takes care of the old one and of the new name.
    fn roll(&mut self) -> Result<(), AppendFailed> {
        let io = |error: DiskError| {
            if error.is_full() {
                AppendFailed::Full
            } else {
                AppendFailed::Io(error)
            }
        };
        let disk = Arc::clone(self.shared.files.disk());
        let base = self.end().0;
        let path = self.shared.path(base, Kind::Log);
        let mut reserved = Some(0);
        let file = match self.prepared.take() {
            Some(file) => {
                // All that could be reserved for it is.
                reserved = Some(self.options.segment_bytes);
                let next = self.shared.dir.join(names::NEXT);
                let durable::Unsynced =
                    durable::rename_unsynced(disk.as_ref(), &next, &path).map_err(io)?;
                file
            }
            None => {
                let (file, durable::Unsynced) =
                    durable::create_unsynced(disk.as_ref(), &path).map_err(io)?;
                file
            }
        };
        self.entries_changed += 1;
        let reach = Reach {
            bytes: 0,
            next: base,
            max_timestamp: -1,
        };
        let segment = Arc::new(Segment::new(self.shared.files.new_id(), base, reach));
        *segment.live() = segment::Live {
            file: Some(file),
            index: Some(Index::default()),
        };
        let full = std::mem::replace(&mut self.active, Arc::clone(&segment));
        self.unsealed.push(chores::Unsealed {
            segment: Arc::clone(&full),
            headers_crc: self.headers_crc.replace(0),
            last_generation: self.last_generation,
            sealing: false,
        });
        self.unsynced.push(full);
        self.reserved = reserved;
        self.shared.segments_mut().push(segment);
        Ok(())
    }

    /// A reader of this log, for any thread.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.shared))
    }

    /// Oldest offset held.
    #[must_use]
    pub fn start(&self) -> Offset {
        Offset(self.shared.start())
    }

    /// One past the newest offset written (exclusive).
    #[must_use]
    pub fn end(&self) -> Offset {
        Offset(self.shared.end())
    }

    /// One past the newest offset known to be durable (exclusive).
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        Offset(self.shared.durable())
    }

    /// Whether a disk failure left the log in doubt, so that it takes no more writes.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Bytes of log held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }
}
