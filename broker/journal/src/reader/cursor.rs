//! Walking the batches of one segment from a place that the index knows.

use bytes::Bytes;
use felix_model::limits::BATCH_BYTES_MAX;
use felix_model::{BatchHeader, HEADER_BYTES, Offset, verify_checksum};

use super::{READ_BYTES_MIN, ReadRefused, Refused};
use crate::disk::{DiskFile, Doing, read_full};
use crate::limits;
use crate::log::{DamageKind, Segment, Shared};

/// A place in a segment and the bytes read from there on.
pub(super) struct Cursor<'a> {
    shared: &'a Shared,
    segment: &'a Segment,
    file: &'a dyn DiskFile,
    /// Where the next batch begins.
    position: u64,
    /// The offset that belongs there; none right after the index was asked, whose answer tells it.
    expected: Option<u64>,
    /// What the index said of the batch there: its last offset.
    promised: Option<u64>,
    /// Bytes of the file from `position` on.
    buffer: Bytes,
    /// Length of the segment when the cursor was made.
    end: u64,
}

impl<'a> Cursor<'a> {
    /// As near before `offset` as the index knows.
    pub(super) fn find(
        shared: &'a Shared,
        segment: &'a Segment,
        file: &'a dyn DiskFile,
        offset: u64,
    ) -> Result<Self, Refused> {
        let end = segment.bytes();
        let point = segment.point_before(shared, offset)?;
        let (position, expected, promised) = match point {
            Some(point) => (
                u64::from(point.position),
                None,
                Some(segment.base + u64::from(point.last)),
            ),
            None => (0, Some(segment.base), None),
        };
        let mut cursor = Self {
            shared,
            segment,
            file,
            position,
            expected,
            promised,
            buffer: Bytes::new(),
            end,
        };
        cursor.leave_sparse();
        Ok(cursor)
    }

    /// Past the front that compaction wrote, the offset that belongs there does not depend on the last batch in it.
    fn leave_sparse(&mut self) {
        if let Some(sparse) = self.segment.sparse
            && self.position >= sparse.bytes
        {
            self.expected = self.expected.map(|expected| expected.max(sparse.next));
        }
    }

    /// Whether a batch belongs at the position.
    fn follows(&self, header: &BatchHeader, base: u64) -> bool {
        let sparse = self.segment.sparse;
        match sparse.filter(|sparse| self.position < sparse.bytes) {
            Some(sparse) => {
                self.expected.is_none_or(|expected| expected <= base)
                    && header.next_offset().0 <= sparse.next
            }
            None => self.expected.is_none_or(|expected| expected == base),
        }
    }

    /// First offset of the next batch; none at the end of the segment.
    pub(super) fn next_base(&mut self) -> Result<Option<u64>, Refused> {
        if self.position >= self.end {
            return Ok(None);
        }
        if self.buffer.len() < HEADER_BYTES {
            self.fill(READ_BYTES_MIN)?;
        }
        let header = self.next_header()?;
        Ok(Some(u64::try_from(header.base_offset).unwrap_or(u64::MAX)))
    }

    /// Reads `bytes` from the position on, or what there is.
    pub(super) fn fill(&mut self, bytes: usize) -> Result<(), Refused> {
        let left = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let mut buffer = vec![0; bytes.min(left)];
        let read = read_full(self.file, &mut buffer, self.position)
            .doing("read", &self.segment.path(self.shared))
            .map_err(|error| Refused::Because(ReadRefused::Io(error)))?;
        buffer.truncate(read);
        self.buffer = Bytes::from(buffer);
        Ok(())
    }

    /// Makes sure that the next batch is in the buffer whole.
    pub(super) fn fill_for_next(&mut self) -> Result<(), Refused> {
        if self.whole().is_some_and(|total| total <= self.buffer.len()) {
            return Ok(());
        }
        self.fill(limits::INDEX_SPACING_BYTES as usize)?;
        match self.whole() {
            Some(total) if total > self.buffer.len() => self.fill(total),
            Some(_) | None => Ok(()),
        }
    }

    /// Length of the next batch, if its header is in the buffer.
    fn whole(&self) -> Option<usize> {
        BatchHeader::parse(self.buffer.get(..HEADER_BYTES)?)
            .ok()
            .map(|header| header.total_bytes())
    }

    /// Moves to the batch that holds `offset`, by headers alone.
    pub(super) fn skip_to(&mut self, offset: u64, want: usize) -> Result<(), Refused> {
        loop {
            if self.position >= self.end {
                return Ok(());
            }
            if self.buffer.len() < HEADER_BYTES {
                self.fill(want)?;
            }
            let header = self.next_header()?;
            let next = header.next_offset().0;
            if next > offset {
                return Ok(());
            }
            self.advance(header.total_bytes(), next);
        }
    }

    /// The next header, checked against what is known of it.
    fn next_header(&self) -> Result<BatchHeader, Refused> {
        let bytes = self.buffer.get(..HEADER_BYTES);
        let parsed = bytes.ok_or_else(|| "the file ends inside a batch".to_owned());
        let parsed = parsed
            .and_then(|bytes| BatchHeader::parse(bytes).map_err(|refused| refused.to_string()));
        let promised = self.promised.map(|last| last + 1);
        let header = match parsed {
            Ok(header) => header,
            Err(_) if promised.is_some() => return Err(Refused::WrongIndex),
            Err(why) => return Err(self.damaged(DamageKind::Batch(why))),
        };
        let base = u64::try_from(header.base_offset).unwrap_or(u64::MAX);
        if promised.is_some_and(|next| header.next_offset().0 != next) {
            return Err(Refused::WrongIndex);
        }
        if !self.follows(&header, base) {
            let kind = DamageKind::Gap {
                expected: Offset(self.expected.unwrap_or(self.segment.base)),
                found: Offset(base),
            };
            return Err(self.damaged(kind));
        }
        Ok(header)
    }

    fn advance(&mut self, bytes: usize, next: u64) {
        self.position += bytes as u64;
        self.expected = Some(next);
        self.promised = None;
        self.leave_sparse();
        self.buffer = if bytes <= self.buffer.len() {
            self.buffer.slice(bytes..)
        } else {
            Bytes::new()
        };
    }

    /// The next batch, checked, if it ends at or below `until`. One that is not in the buffer whole is read only when
    /// it is `needed`.
    /// Answers where it ends as well.
    pub(super) fn take(
        &mut self,
        until: u64,
        needed: bool,
    ) -> Result<Option<(Bytes, Offset)>, Refused> {
        if self.position >= self.end {
            return Ok(None);
        }
        if self.buffer.len() < HEADER_BYTES {
            if !needed {
                return Ok(None);
            }
            self.fill(READ_BYTES_MIN)?;
        }
        let header = self.next_header()?;
        let total = header.total_bytes();
        if header.next_offset().0 > until {
            return Ok(None);
        }
        if total > BATCH_BYTES_MAX || self.position + total as u64 > self.end {
            let why = format!("a batch of {total} bytes does not fit the segment");
            return Err(self.damaged(DamageKind::Batch(why)));
        }
        if total > self.buffer.len() {
            if !needed {
                return Ok(None);
            }
            self.fill(total)?;
        }
        let Some(_) = self.buffer.get(..total) else {
            return Err(self.damaged(DamageKind::Batch("the file ends inside a batch".to_owned())));
        };
        let batch = self.buffer.slice(..total);
        if let Err(refused) = verify_checksum(&batch) {
            return Err(self.damaged(DamageKind::Batch(refused.to_string())));
        }
        self.advance(total, header.next_offset().0);
        Ok(Some((batch, header.next_offset())))
    }

    pub(super) fn header(&self, batch: &Bytes) -> Result<BatchHeader, Refused> {
        BatchHeader::parse(batch)
            .map_err(|refused| self.damaged(DamageKind::Batch(refused.to_string())))
    }

    fn damaged(&self, kind: DamageKind) -> Refused {
        let offset = self.expected.or(self.promised).unwrap_or(self.segment.base);
        let damage = self
            .segment
            .damage(self.shared, self.position, offset, kind);
        Refused::Because(ReadRefused::Damaged(damage))
    }
}
