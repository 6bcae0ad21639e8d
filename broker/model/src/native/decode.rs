//! From a batch to payload lists and what was kept beside them.

use bytes::Bytes;

use super::digest::Digest;
use super::encode::low_31_bits;
use super::payloads::ListWriter;
use super::{HEADER_PUBLISHER, HEADER_SEQUENCE, InternalHeaders, NativeProducer, Payloads};
use crate::Offset;
use crate::batch::varint::Cursor;
use crate::batch::{
    BatchHeader, BatchRefused, Body, Compression, HEADER_BYTES, Progress, RecordRef, Walk,
};
use crate::limits::PUBLISHER_BYTES_MAX;

/// Payloads at consecutive offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first payload.
    pub base: Offset,
    /// The payloads; never empty. A tombstone reads as an empty payload, which is the nearest thing the
    /// native protocol has.
    pub payloads: Payloads,
    /// When they were made or appended.
    pub times: Times,
}

impl Run {
    /// The first offset after the run (exclusive).
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base.plus(u64::from(self.payloads.count))
    }
}

/// The times of a run, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Times {
    /// All the same, as in every native batch.
    Same(i64),
    /// One for each payload.
    Each(Vec<i64>),
}

/// The runs of one batch from some offset on.
#[derive(Clone, Debug)]
pub struct Runs {
    header: BatchHeader,
    body: Body,
    from: Offset,
}

/// Reads the records of `batch` at or above `from` as payload lists, one for each stretch without a
/// hole. A batch that was never compacted has one. A control batch has none: its records are not data.
/// The checksum is not looked at, as in [`crate::Records`].
///
/// # Errors
/// When the header is not plausible, the batch is cut off, or the records cannot be unpacked. The
/// iteration may yield one more error, as its last item, when a record is malformed.
pub fn payloads_from_records(batch: &Bytes, from: Offset) -> Result<Runs, BatchRefused> {
    let header = BatchHeader::parse(batch)?;
    let body = Body::new(&header, batch)?;
    Ok(Runs { header, body, from })
}

impl Runs {
    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
}

impl Iterator for Runs {
    type Item = Result<Run, BatchRefused>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.header.is_control() {
            return None;
        }
        let below = self.from.since(self.header.base());
        let Body { bytes, progress } = &mut self.body;
        // The first pass measures the run and the second copies it, so that its list is allocated once
        // and at its size.
        match Extent::measure(bytes, progress, below)? {
            Ok(extent) => Some(extent.copy(bytes, progress, self.header.base())),
            Err(why) => Some(Err(why)),
        }
    }
}

/// How far a run goes and what it takes.
struct Extent {
    first_delta: u32,
    count: u32,
    list_bytes: usize,
    /// The time of the first payload, and whether all have it.
    time: i64,
    same_time: bool,
}

impl Extent {
    /// Looks ahead to the end of the run that begins at or above the offset delta `below`. Afterwards
    /// `progress` stands before the run's first record.
    fn measure(
        bytes: &[u8],
        progress: &mut Progress,
        below: u64,
    ) -> Option<Result<Self, BatchRefused>> {
        let mut ahead = *progress;
        let first = loop {
            match ahead.next(bytes)? {
                Ok(record) if u64::from(record.offset_delta) >= below => break record,
                Ok(_) => *progress = ahead,
                Err(why) => {
                    *progress = ahead;
                    return Some(Err(why));
                }
            }
        };
        let mut extent = Self::of(&first);
        loop {
            match ahead.next(bytes) {
                Some(Ok(record)) if extent.goes_on_with(&record) => extent.add(&record),
                Some(Ok(_)) | None => return Some(Ok(extent)),
                Some(Err(why)) => {
                    *progress = ahead;
                    return Some(Err(why));
                }
            }
        }
    }

    fn of(first: &RecordRef<'_>) -> Self {
        Self {
            first_delta: first.offset_delta,
            count: 1,
            list_bytes: ListWriter::EMPTY_BYTES + ListWriter::entry_bytes(payload(first)),
            time: first.timestamp_ms,
            same_time: true,
        }
    }

    fn goes_on_with(&self, record: &RecordRef<'_>) -> bool {
        record.offset_delta - self.first_delta == self.count
    }

    fn add(&mut self, record: &RecordRef<'_>) {
        self.count += 1;
        self.list_bytes += ListWriter::entry_bytes(payload(record));
        self.same_time &= record.timestamp_ms == self.time;
    }

    /// Copies the run that was measured; `progress` then stands after it.
    fn copy(
        &self,
        bytes: &[u8],
        progress: &mut Progress,
        base: Offset,
    ) -> Result<Run, BatchRefused> {
        let mut list = ListWriter::with_capacity(self.list_bytes);
        let mut each = Vec::with_capacity(if self.same_time {
            0
        } else {
            self.count as usize
        });
        for _ in 0..self.count {
            let Some(record) = progress.next(bytes) else {
                break;
            };
            let record = record?;
            list.push(payload(&record));
            if !self.same_time {
                each.push(record.timestamp_ms);
            }
        }
        let times = if self.same_time {
            Times::Same(self.time)
        } else {
            Times::Each(each)
        };
        let base = base.plus(u64::from(self.first_delta));
        Ok(Run {
            base,
            payloads: list.finish(),
            times,
        })
    }
}

fn payload<'a>(record: &RecordRef<'a>) -> &'a [u8] {
    record.value.unwrap_or_default()
}

/// The digest of the payloads a batch was made from: what
/// [`payload_digest`](super::payload_digest) gave when it was
/// appended.
///
/// # Errors
/// When the batch cannot be read to its end.
pub fn digest_from_records(batch: &Bytes) -> Result<u64, BatchRefused> {
    let header = BatchHeader::parse(batch)?;
    let Body {
        bytes,
        mut progress,
    } = Body::new(&header, batch)?;
    let mut digest = Digest::new();
    while let Some(record) = progress.next(&bytes) {
        digest.push(payload(&record?));
    }
    Ok(digest.finish())
}

/// What the broker kept beside the payloads of a native batch. Batches without the mark have nothing,
/// whatever their headers are called.
///
/// # Errors
/// When the header is not plausible, the first record cannot be read, or an internal header is not what
/// the broker writes. Marked batches are never compressed, so a compressed one is refused.
pub fn internal_headers(batch: &[u8]) -> Result<InternalHeaders<'_>, BatchRefused> {
    let header = BatchHeader::parse(batch)?;
    let mut found = InternalHeaders::default();
    if !header.is_internal() || header.records() == 0 {
        return Ok(found);
    }
    let codec = header.compression()?;
    if codec != Compression::None {
        return Err(BatchRefused::Undecodable {
            codec: codec.as_str(),
        });
    }
    let need = header.total_bytes();
    let records = batch.get(HEADER_BYTES..need).ok_or(BatchRefused::Short {
        have: batch.len(),
        need,
    })?;
    let first = Walk::new(&header).next(&mut Cursor::new(records))?;
    let mut fields = Cursor::new(first.headers);
    for _ in 0..first.header_count {
        let key = fields.nullable().map_err(|why| why.at(0))?;
        let value = fields.nullable().map_err(|why| why.at(0))?;
        if key == Some(HEADER_PUBLISHER) {
            found.publisher = Some(read_publisher(value)?);
        } else if key == Some(HEADER_SEQUENCE) {
            found.sequence = Some(read_sequence(&header, value)?);
        }
    }
    Ok(found)
}

fn read_publisher(value: Option<&[u8]>) -> Result<&str, BatchRefused> {
    value
        .filter(|name| name.len() <= PUBLISHER_BYTES_MAX)
        .and_then(|name| std::str::from_utf8(name).ok())
        .ok_or(BatchRefused::InternalHeader { name: "@" })
}

/// The sequence counts only together with a producer, and must agree with what the batch header has of
/// it.
fn read_sequence(
    header: &BatchHeader,
    value: Option<&[u8]>,
) -> Result<NativeProducer, BatchRefused> {
    let sequence = value
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_be_bytes);
    header
        .producer()
        .zip(sequence)
        .filter(|(_, sequence)| low_31_bits(*sequence) == header.base_sequence)
        .map(|(producer, sequence)| NativeProducer { producer, sequence })
        .ok_or(BatchRefused::InternalHeader { name: "#" })
}
