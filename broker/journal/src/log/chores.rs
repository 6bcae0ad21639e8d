//! Work beside the appends: preparing the next segment, sealing finished ones, letting an idle log rest.
//!
//! Each is split like a sync: captured while the log is held, run without it, finished while it is held again.

use std::io;
use std::sync::Arc;

use super::scan::Stop;
use super::seal::{FileSum, Seal};
use super::{Kind, Log, Segment, Shared, SyncFailed, durable, names, segment};
use crate::disk::{DiskError, DiskFile, Doing};
use crate::limits;

/// A rolled segment that has no seal yet.
#[derive(Debug)]
pub(crate) struct Unsealed {
    pub(crate) segment: Arc<Segment>,
    /// See `seal`; none when the segment has to be read for it.
    pub(crate) headers_crc: Option<u32>,
    /// Generation of its last batch.
    pub(crate) last_generation: u32,
    /// Whether a job is under way.
    pub(crate) sealing: bool,
}

/// Makes the file that the next roll will rename.
#[derive(Debug)]
pub struct PrepareJob {
    shared: Arc<Shared>,
    reserve: u64,
}

impl PrepareJob {
    /// Creates the file and reserves its space, while nobody has to wait for it. Its name is temporary, so nothing is synced.
    ///
    /// # Errors
    /// The disk's.
    pub fn run(&self) -> Result<Arc<dyn DiskFile>, DiskError> {
        let disk = self.shared.files.disk();
        let path = self.shared.dir.join(names::NEXT);
        let file = match disk.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                durable::unlink(disk.as_ref(), &path)?;
                disk.create(&path)
            }
            other => other,
        };
        let file = file.doing("create", &path)?;
        // Where the disk cannot, the file grows as it is written.
        let _ = file.reserve(self.reserve);
        Ok(file)
    }
}

/// Makes a rolled segment durable and writes what is derived from it.
#[derive(Debug)]
pub struct SealJob {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    headers_crc: Option<u32>,
    last_generation: u32,
}

impl SealJob {
    /// For a segment that was read at recovery.
    pub(crate) fn of_recovered(
        shared: Arc<Shared>,
        segment: Arc<Segment>,
        headers_crc: Option<u32>,
        last_generation: u32,
    ) -> Self {
        Self {
            shared,
            segment,
            headers_crc,
            last_generation,
        }
    }

    /// Waits for the disk. Only a failed sync matters: a missing seal is made again at the next open.
    ///
    /// # Errors
    /// The disk's, of the sync.
    pub fn run(&self) -> Result<(), DiskError> {
        let path = self.segment.path(&self.shared);
        let file = self.segment.live().file.clone();
        if let Some(file) = file {
            // Gives back what was reserved past the end; the length does not change.
            let _ = file.set_len(self.segment.bytes());
            self.shared.sync(|| file.sync_data().doing("sync", &path))?;
        }
        if let Err(error) = self.write_derived() {
            tracing::warn!(%error, "segment not sealed; the next open will read it");
        }
        Ok(())
    }

    fn write_derived(&self) -> Result<(), DiskError> {
        let Some(index) = self.index()? else {
            return Ok(());
        };
        let Some(headers_crc) = self.headers_crc()? else {
            return Ok(());
        };
        let (points, moments) = index.encode();
        let base = self.segment.base;
        let sums = (FileSum::of(&points), FileSum::of(&moments));
        let reach = self.segment.reach();
        let seal = Seal {
            base,
            next: reach.next,
            bytes: reach.bytes,
            max_timestamp: reach.max_timestamp,
            last_generation: self.last_generation,
            headers_crc,
            index: sums.0,
            time_index: sums.1,
        };
        segment::write_derived(&self.shared, &self.shared.path(base, Kind::Index), &points)?;
        segment::write_derived(
            &self.shared,
            &self.shared.path(base, Kind::TimeIndex),
            &moments,
        )?;
        segment::write_derived(
            &self.shared,
            &self.shared.path(base, Kind::Seal),
            &seal.encode(),
        )?;
        durable::sync_later(self.shared.files.disk().as_ref(), &self.shared.dir)?;
        let _ = self.segment.sums.set(sums);
        Ok(())
    }

    fn index(&self) -> Result<Option<super::index::Index>, DiskError> {
        let index = self.segment.live().index.clone();
        let index = match index {
            Some(index) => Ok(index),
            None => self.segment.build_index(&self.shared),
        };
        match index {
            Ok(mut index) => {
                index.finish();
                Ok(Some(index))
            }
            Err(segment::SearchFailed::Io(error)) => Err(error),
            Err(segment::SearchFailed::Gone) => Ok(None),
        }
    }

    /// The checksum, from the segment itself when it is not known. None when the segment does not pass.
    fn headers_crc(&self) -> Result<Option<u32>, DiskError> {
        if let Some(crc) = self.headers_crc {
            return Ok(Some(crc));
        }
        let path = self.segment.path(&self.shared);
        let file = self
            .shared
            .files
            .disk()
            .open_read_only(&path)
            .doing("open", &path)?;
        let mut scan = self.segment.scan(file.as_ref(), 0, self.segment.base);
        loop {
            match scan.next() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Some(scan.headers_crc)),
                Err(Stop::Bad(_)) => return Ok(None),
                Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error)),
            }
        }
    }
}

impl Log {
    /// The next segment's file, when it is time to prepare it.
    pub fn begin_prepare(&mut self) -> Option<PrepareJob> {
        let due = self.active.bytes() >= self.options.segment_bytes / 2;
        if !due || self.preparing || self.prepared.is_some() || self.shared.is_poisoned() {
            return None;
        }
        self.preparing = true;
        let reserve = limits::RESERVE_AHEAD_BYTES.min(self.options.segment_bytes);
        Some(PrepareJob {
            shared: Arc::clone(&self.shared),
            reserve,
        })
    }

    /// Takes a prepared file. Failing to prepare one costs only speed.
    pub fn finish_prepare(&mut self, result: Result<Arc<dyn DiskFile>, DiskError>) {
        self.preparing = false;
        match result {
            Ok(file) => self.prepared = Some(file),
            Err(error) => tracing::warn!(%error, "next segment not prepared"),
        }
    }

    /// The oldest rolled segment that nobody seals yet.
    pub fn begin_seal(&mut self) -> Option<SealJob> {
        if self.shared.is_poisoned() {
            return None;
        }
        let unsealed = self
            .unsealed
            .iter_mut()
            .find(|unsealed| !unsealed.sealing)?;
        unsealed.sealing = true;
        Some(SealJob {
            shared: Arc::clone(&self.shared),
            segment: Arc::clone(&unsealed.segment),
            headers_crc: unsealed.headers_crc,
            last_generation: unsealed.last_generation,
        })
    }

    /// Takes note of a seal. A failed sync poisons the log, as any other.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn finish_seal(
        &mut self,
        job: &SealJob,
        result: Result<(), DiskError>,
    ) -> Result<(), SyncFailed> {
        if let Err(error) = result {
            return Err(self.sync_failed(error));
        }
        let id = job.segment.id;
        self.unsealed.retain(|unsealed| unsealed.segment.id != id);
        // A seal comes after a sync of the segment and of the directory that names it, so the oldest sealed segments
        // are durable although nobody synced the log.
        while let Some(oldest) = self
            .unsynced
            .first()
            .filter(|oldest| oldest.sums.get().is_some())
        {
            let reach = oldest.reach();
            let mark = self.mark_at(oldest.base, reach);
            if reach.next > self.shared.durable() {
                self.shared.set_durable(reach.next);
                self.raise_mark(&mark);
            }
            let oldest = self.unsynced.remove(0);
            self.release(&oldest);
        }
        self.release(&job.segment);
        Ok(())
    }

    /// Lets go of a rolled segment's file and index once it is both durable and sealed.
    pub(crate) fn release(&self, segment: &Segment) {
        let unsynced = self.unsynced.iter().any(|other| other.id == segment.id);
        let unsealed = self
            .unsealed
            .iter()
            .any(|other| other.segment.id == segment.id);
        if !unsynced && !unsealed {
            *segment.live() = segment::Live::default();
        }
    }

    /// Takes back what was begun and will not be finished by anybody else.
    pub(crate) fn take_back_chores(&mut self) {
        self.preparing = false;
        for unsealed in &mut self.unsealed {
            unsealed.sealing = false;
        }
    }

    /// Seals all rolled segments here and now.
    pub(crate) fn seal_all(&mut self) -> Result<(), SyncFailed> {
        while let Some(job) = self.begin_seal() {
            let result = job.run();
            self.finish_seal(&job, result)?;
        }
        Ok(())
    }

    /// Syncs, seals, writes the indexes, and lets files and memory go. The next append takes them up again.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn rest(&mut self) -> Result<(), SyncFailed> {
        self.sync()?;
        if self.prepared.take().is_some() {
            let next = self.shared.dir.join(names::NEXT);
            durable::unlink(self.shared.files.disk().as_ref(), &next).map_err(SyncFailed::Io)?;
        }
        let (file, index) = {
            let live = self.active.live();
            (live.file.clone(), live.index.clone())
        };
        if let Some(index) = index.filter(|index| !index.points.is_empty()) {
            let (points, moments) = index.encode();
            let written = [(Kind::Index, points), (Kind::TimeIndex, moments)]
                .into_iter()
                .try_for_each(|(kind, bytes)| {
                    segment::write_derived(
                        &self.shared,
                        &self.shared.path(self.active.base, kind),
                        &bytes,
                    )
                });
            if let Err(error) = written {
                tracing::warn!(%error, "index not written; it will be made again");
            }
        }
        if let Some(file) = file
            && self
                .reserved
                .is_some_and(|reserved| reserved > self.active.bytes())
        {
            let _ = file.set_len(self.active.bytes());
            self.reserved = Some(0);
        }
        if let Some(mark) = self.mark_file.take()
            && let Err(error) = mark.sync_data()
        {
            // The mark is a hint; the records themselves are durable.
            tracing::warn!(%error, dir = %self.shared.dir.display(), "durable mark not synced");
        }
        *self.active.live() = segment::Live::default();
        Ok(())
    }

    /// Syncs, writes the indexes and closes, so that the next open has nothing to check.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn close(mut self) -> Result<(), SyncFailed> {
        self.rest()
    }
}
