//! The segment that compaction writes.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use felix_model::BatchHeader;

use super::super::index::{Index, Placed};
use super::super::scan::Stop;
use super::super::seal::{FileSum, Seal, UNCOVERED_BYTES};
use super::super::segment::{Reach, Segment};
use super::super::shared::Shared;
use super::super::{DiskError, durable, names};
use super::CompactFailed;
use crate::disk::{DiskFile, Doing};

/// Bytes gathered for one write.
const WRITE_BYTES: usize = 1024 * 1024;

/// Bytes written between two syncs, so that the last one is not the whole segment.
const SYNC_BYTES: u64 = 16 * 1024 * 1024;

/// A file under its temporary name, and what it holds so far.
pub(super) struct Output {
    pub(super) base: u64,
    pub(super) serial: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    pub(super) index: Index,
    headers_crc: u32,
    max_timestamp: i64,
}

impl Output {
    /// Creates the file. A leftover of its name is removed first.
    pub(super) fn create(shared: &Shared, base: u64, serial: u64) -> Result<Self, DiskError> {
        let disk = shared.files.disk().as_ref();
        let path = names::cleaned(&shared.dir, base, serial);
        durable::unlink(disk, &path)?;
        let file = durable::create(disk, &path)?;
        Ok(Self {
            base,
            serial,
            path,
            file,
            buffer: Vec::with_capacity(WRITE_BYTES),
            written: 0,
            synced: 0,
            index: Index::default(),
            headers_crc: 0,
            max_timestamp: -1,
        })
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds a batch.
    pub(super) fn push(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), DiskError> {
        let last = header.next_offset().0.saturating_sub(1);
        self.index.note(Placed {
            position: self.bytes(),
            last: u32::try_from(last.saturating_sub(self.base)).unwrap_or(u32::MAX),
            max_timestamp: header.max_timestamp,
        });
        let uncovered = batch.get(..UNCOVERED_BYTES).unwrap_or_default();
        self.headers_crc = crc32c::crc32c_append(self.headers_crc, uncovered);
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
        self.buffer.extend_from_slice(batch);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds the batches of a segment that end at or before a position.
    pub(super) fn copy(
        &mut self,
        shared: &Shared,
        segment: &Segment,
        until: u64,
    ) -> Result<(), CompactFailed> {
        let path = segment.path(shared);
        let file = shared
            .files
            .disk()
            .open_read_only(&path)
            .doing("open", &path)?;
        let mut scan = segment.scan(file.as_ref(), 0, segment.base);
        while scan.position < until {
            match scan.next() {
                Ok(Some(found)) => self.push(&found.header, &scan.batch(&found))?,
                Ok(None) => break,
                Err(Stop::Bad(kind)) => {
                    let (position, offset) = (scan.position, scan.expected);
                    return Err(segment.damage(shared, position, offset, kind).into());
                }
                Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error).into()),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.file
            .write_at(&[IoSlice::new(&self.buffer)], self.written)
            .doing("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync_data().doing("sync", &self.path)?;
        self.synced = self.written;
        Ok(())
    }

    /// Makes all of it durable.
    pub(super) fn finish(&mut self) -> Result<(), DiskError> {
        self.flush()?;
        self.sync()?;
        self.index.finish();
        Ok(())
    }

    /// Removes the file: it became nothing. Left behind, it is removed at the next open.
    pub(super) fn abandon(self, shared: &Shared) {
        if let Err(error) = durable::unlink_derived(shared.files.disk().as_ref(), &self.path) {
            tracing::warn!(%error, "unfinished compaction left behind");
        }
    }

    /// Its file under the temporary name.
    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// How far it reaches when the next segment begins at `next`.
    pub(super) fn reach(&self, next: u64) -> Reach {
        Reach {
            bytes: self.bytes(),
            next,
            max_timestamp: self.max_timestamp,
        }
    }

    /// Its seal, for indexes with these sums.
    pub(super) fn seal(&self, next: u64, generation: u32, sums: (FileSum, FileSum)) -> Seal {
        Seal {
            base: self.base,
            next,
            bytes: self.bytes(),
            max_timestamp: self.max_timestamp,
            last_generation: generation,
            headers_crc: self.headers_crc,
            index: sums.0,
            time_index: sums.1,
        }
    }
}
