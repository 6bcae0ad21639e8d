//! Walking the batches of a segment file, checking each.

use std::io;

use bytes::Bytes;
use felix_model::limits::BATCH_BYTES_MAX;
use felix_model::{BatchHeader, HEADER_BYTES, verify_checksum};

use super::DamageKind;
use super::manifest::Sparse;
use super::seal::UNCOVERED_BYTES;
use crate::disk::{DiskFile, read_full};

/// How much is read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// One good batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Its header.
    pub(crate) header: BatchHeader,
    /// Where it begins.
    pub(crate) position: u64,
}

impl Found {
    /// First offset.
    pub(crate) fn base(&self) -> u64 {
        u64::try_from(self.header.base_offset).unwrap_or(0)
    }

    /// First offset after it.
    pub(crate) fn next(&self) -> u64 {
        self.header.next_offset().0
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.header.total_bytes() as u64
    }
}

/// Why a walk stopped before the end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What is at the scan's position is not the batch that belongs there.
    Bad(DamageKind),
    /// The disk failed.
    Io(io::Error),
}

/// A walk over a segment file, batch by batch.
#[derive(Debug)]
pub(crate) struct Scan<'file> {
    file: &'file dyn DiskFile,
    /// Where the next batch begins.
    pub(crate) position: u64,
    /// Where the walk ends.
    end: u64,
    /// The offset that belongs there.
    pub(crate) expected: u64,
    /// Checksum over the bytes that the batches' own leave out; see `seal`.
    pub(crate) headers_crc: u32,
    /// Where offsets may be missing.
    sparse: Option<Sparse>,
    buffer: Vec<u8>,
    /// File position of the buffer's first byte.
    buffer_at: u64,
}

impl<'file> Scan<'file> {
    /// From a position, where `expected` is the offset that belongs there, up to `end`.
    pub(crate) fn new(file: &'file dyn DiskFile, position: u64, expected: u64, end: u64) -> Self {
        Self {
            file,
            position,
            end,
            expected,
            headers_crc: 0,
            sparse: None,
            buffer: Vec::new(),
            buffer_at: position,
        }
    }

    /// The same where offsets may be missing from the front of the segment.
    pub(crate) fn sparse(mut self, sparse: Option<Sparse>) -> Self {
        self.sparse = sparse;
        self.leave_sparse();
        self
    }

    /// Past the front that compaction wrote, the offset that belongs there does not depend on the last batch in it.
    fn leave_sparse(&mut self) {
        if let Some(sparse) = self.sparse.filter(|sparse| self.position >= sparse.bytes) {
            self.expected = self.expected.max(sparse.next);
        }
    }

    /// Whether a batch belongs at the position.
    fn follows(&self, found: &Found) -> bool {
        match self.sparse.filter(|sparse| self.position < sparse.bytes) {
            Some(sparse) => found.base() >= self.expected && found.next() <= sparse.next,
            None => found.base() == self.expected,
        }
    }

    /// The bytes of the batch that was found last.
    pub(crate) fn batch(&self, found: &Found) -> Bytes {
        let from = usize::try_from(found.position - self.buffer_at).unwrap_or(usize::MAX);
        let bytes = from
            .checked_add(found.header.total_bytes())
            .and_then(|end| self.buffer.get(from..end));
        Bytes::copy_from_slice(bytes.unwrap_or_default())
    }

    /// The next batch, checked; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Stop> {
        if self.position >= self.end {
            return Ok(None);
        }
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        if left < HEADER_BYTES {
            return Err(bad(format!("{left} bytes are too few for a batch")));
        }
        let header = parse(self.bytes(HEADER_BYTES).map_err(Stop::Io)?)?;
        let total = header.total_bytes();
        if total > left {
            return Err(bad(format!(
                "a batch of {total} bytes, but only {left} are left"
            )));
        }
        if total > BATCH_BYTES_MAX {
            return Err(bad(format!(
                "a batch of {total} bytes is larger than any that is written"
            )));
        }
        let crc_before = self.headers_crc;
        let bytes = self.bytes(total).map_err(Stop::Io)?;
        verify_checksum(bytes).map_err(|refused| bad(refused.to_string()))?;
        let uncovered = bytes.get(..UNCOVERED_BYTES).unwrap_or_default();
        let headers_crc = crc32c::crc32c_append(crc_before, uncovered);
        let found = Found {
            header,
            position: self.position,
        };
        if header.base_offset < 0 || header.last_offset_delta < 0 || !self.follows(&found) {
            return Err(Stop::Bad(DamageKind::Gap {
                expected: felix_model::Offset(self.expected),
                found: felix_model::Offset(found.base()),
            }));
        }
        self.headers_crc = headers_crc;
        self.position += total as u64;
        self.expected = found.next();
        self.leave_sparse();
        Ok(Some(found))
    }

    /// The `count` bytes at the position.
    fn bytes(&mut self, count: usize) -> io::Result<&[u8]> {
        let from = usize::try_from(self.position - self.buffer_at).unwrap_or(usize::MAX);
        if from.saturating_add(count) > self.buffer.len() {
            let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
            let want = count.max(CHUNK_BYTES).min(left.max(count));
            self.buffer.resize(want, 0);
            let read = read_full(self.file, &mut self.buffer, self.position)?;
            self.buffer.truncate(read);
            self.buffer_at = self.position;
            return self
                .buffer
                .get(..count)
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer
            .get(from..from + count)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads a header.
pub(crate) fn parse(bytes: &[u8]) -> Result<BatchHeader, Stop> {
    BatchHeader::parse(bytes).map_err(|refused| bad(refused.to_string()))
}

fn bad(why: String) -> Stop {
    Stop::Bad(DamageKind::Batch(why))
}

/// Position of the first good batch that begins after `position` and before `end`, with an offset of at least
/// `expected`. This is what tells damage in the middle from a torn end.
pub(crate) fn valid_after(
    file: &dyn DiskFile,
    position: u64,
    expected: u64,
    end: u64,
) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK_BYTES + HEADER_BYTES];
    let mut at = position + 1;
    while at + HEADER_BYTES as u64 <= end {
        let read = read_full(file, &mut buffer, at)?;
        let window = buffer.get(..read).unwrap_or_default();
        for (index, header) in window.windows(HEADER_BYTES).enumerate().take(CHUNK_BYTES) {
            if !plausible(header, expected) {
                continue;
            }
            let start = at + index as u64;
            if is_batch(file, header, start, end)? {
                return Ok(Some(start));
            }
        }
        at += CHUNK_BYTES as u64;
    }
    Ok(None)
}

/// Whether a header could be that of a later batch: cheap, and false for nearly all byte strings.
fn plausible(header: &[u8], expected: u64) -> bool {
    // The magic byte first: it alone rules out runs of zeros and most payload bytes.
    if header.get(16) != Some(&2) {
        return false;
    }
    let Ok(header) = BatchHeader::parse(header) else {
        return false;
    };
    let Ok(base) = u64::try_from(header.base_offset) else {
        return false;
    };
    base >= expected && base - expected <= i32::MAX as u64
}

fn is_batch(file: &dyn DiskFile, header: &[u8], start: u64, end: u64) -> io::Result<bool> {
    let Ok(header) = BatchHeader::parse(header) else {
        return Ok(false);
    };
    let total = header.total_bytes();
    if total > BATCH_BYTES_MAX || start + total as u64 > end {
        return Ok(false);
    }
    let mut bytes = vec![0; total];
    let read = read_full(file, &mut bytes, start)?;
    Ok(read == total && verify_checksum(&bytes).is_ok())
}
