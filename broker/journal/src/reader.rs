//! Reading a log while it is being written.

use std::sync::Arc;

use bytes::Bytes;
use felix_model::{BatchHeader, BatchRefused, Offset, Record, Records};

use crate::disk::DiskError;
use crate::limits;
use crate::log::{Damage, DamageKind, Kind, SearchFailed, Segment, Shared, Stop};

mod cursor;

use cursor::Cursor;

/// Some batches of a log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Whole batches, as written. The first may begin below the offset asked for.
    pub batches: Vec<Bytes>,
    /// Oldest offset the log held when the page was read.
    pub start: Offset,
    /// It was read where the log was compacted: batches may be missing before, between and after those of the page, and
    /// records from them.
    pub is_sparse: bool,
    /// Where to go on. All below it from the offset asked for on is in the page, or was compacted away.
    pub next: Offset,
}

/// Why nothing was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefused {
    /// Retention has removed that offset.
    #[error("offset is below the oldest one held, {oldest}")]
    BelowStart {
        /// Oldest offset held.
        oldest: Offset,
    },
    /// Nothing was written there yet.
    #[error("offset is past the end, {end}")]
    PastEnd {
        /// One past the newest offset readable (exclusive).
        end: Offset,
    },
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// What is on disk is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// The first record of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimePoint {
    /// Its offset.
    pub offset: Offset,
    /// Its time in unix ms, at or after the one asked for.
    pub timestamp_ms: i64,
}

/// What a full check of a log read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Batches that passed.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Reads a log from any thread while its writer appends, rolls and forgets. Blocking. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogReader {
    shared: Arc<Shared>,
}

/// How often a read starts anew because retention, or a wrong index, was in its way.
const ATTEMPTS: usize = 8;

/// Smallest read: the disk would not be faster with less.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Largest read at once, unless a single batch is larger.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whole batches from the one holding `from` on, that end at or below `until` (exclusive), at most `max_bytes` but
    /// at least one if there is one. Where the log was compacted, batches may be missing before, between and after them.
    ///
    /// A page ends with its segment, so it may be shorter than `max_bytes` although more follows: [`Page::next`] says where
    /// to go on.
    ///
    /// # Errors
    /// See [`ReadRefused`].
    pub fn read(&self, from: Offset, max_bytes: usize, until: Offset) -> Result<Page, ReadRefused> {
        let mut attempts = ATTEMPTS;
        let mut position = from;
        while attempts > 0 {
            let start = Offset(self.shared.start());
            let end = Offset(self.shared.readable_end());
            if from < start {
                return Err(ReadRefused::BelowStart { oldest: start });
            }
            if from > end {
                return Err(ReadRefused::PastEnd { end });
            }
            let until = until.min(end);
            if position >= until {
                return Ok(Page {
                    batches: Vec::new(),
                    start,
                    is_sparse: position > from,
                    next: position,
                });
            }
            let Some(segment) = self.shared.segment_of(position.0) else {
                attempts -= 1;
                continue;
            };
            match self.read_segment(&segment, position, max_bytes, until) {
                Ok(Found { batches, next }) if !batches.is_empty() || next == position => {
                    return Ok(Page {
                        batches,
                        start,
                        is_sparse: position > from || segment.sparse.is_some(),
                        next,
                    });
                }
                // What is left of this segment was compacted away.
                Ok(Found { next, .. }) => position = next,
                Err(refused) => {
                    attempts -= 1;
                    self.try_again(&segment, refused)?;
                }
            }
        }
        // Only a log that forgets faster than it is read comes here; it has forgotten `from` as well.
        Err(ReadRefused::BelowStart {
            oldest: Offset(self.shared.start()),
        })
    }

    /// The record at an offset; none when compaction has removed it.
    ///
    /// # Errors
    /// See [`ReadRefused`]; the end itself is past the end. A batch whose records cannot be read is damage.
    pub fn record(&self, offset: Offset) -> Result<Option<Record>, ReadRefused> {
        let end = Offset(self.shared.readable_end());
        if offset >= end {
            return Err(ReadRefused::PastEnd { end });
        }
        let page = self.read(offset, 1, end)?;
        let Some(batch) = page.batches.first() else {
            return Ok(None);
        };
        let records = Records::new(batch).map_err(|refused| self.unreadable(offset, &refused))?;
        for record in records {
            let record = record.map_err(|refused| self.unreadable(offset, &refused))?;
            if record.offset >= offset {
                return Ok(Some(record).filter(|record| record.offset == offset));
            }
        }
        Ok(None)
    }

    /// A batch that passed its checksum and whose records do not.
    fn unreadable(&self, offset: Offset, refused: &BatchRefused) -> ReadRefused {
        let base = self
            .shared
            .segment_of(offset.0)
            .map_or(0, |segment| segment.base);
        ReadRefused::Damaged(Damage {
            file: self.shared.path(base, Kind::Log),
            position: 0,
            offset,
            kind: DamageKind::Batch(refused.to_string()),
        })
    }

    /// Whether it is worth asking again: the segment has gone, or its index was wrong and is made again.
    fn try_again(&self, segment: &Segment, refused: Refused) -> Result<(), ReadRefused> {
        match refused {
            Refused::Gone => Ok(()),
            Refused::WrongIndex => match segment.rebuild_index(&self.shared) {
                Ok(()) | Err(SearchFailed::Gone) => Ok(()),
                Err(SearchFailed::Io(error)) => Err(error.into()),
            },
            Refused::Because(refused) => Err(refused),
        }
    }

    fn read_segment(
        &self,
        segment: &Segment,
        from: Offset,
        max_bytes: usize,
        until: Offset,
    ) -> Result<Found, Refused> {
        let file = segment.file(&self.shared)?;
        let mut cursor = Cursor::find(&self.shared, segment, file.as_ref(), from.0)?;
        let want = max_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        cursor.fill(want + limits::INDEX_SPACING_BYTES as usize)?;
        cursor.skip_to(from.0, want)?;
        let mut found = Found {
            batches: Vec::new(),
            next: from,
        };
        let mut bytes = 0;
        loop {
            match cursor.take(until.0, found.batches.is_empty()) {
                Ok(Some((batch, next)))
                    if found.batches.is_empty() || bytes + batch.len() <= max_bytes =>
                {
                    bytes += batch.len();
                    found.batches.push(batch);
                    found.next = next;
                }
                Ok(None) if found.batches.is_empty() => {
                    let base = cursor.next_base()?.unwrap_or_else(|| segment.next());
                    found.next = from.max(Offset(base).min(until));
                    return Ok(found);
                }
                Ok(_) => return Ok(found),
                // What is good before a bad batch is delivered; the next read begins at the bad one.
                Err(_) if !found.batches.is_empty() => return Ok(found),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// The first record below `until` (exclusive) whose time is at or after `time_ms`, however times go back and
    /// forth; none when there is no such record.
    ///
    /// # Errors
    /// See [`ReadRefused`].
    pub fn offset_for_time(
        &self,
        time_ms: i64,
        until: Offset,
    ) -> Result<Option<TimePoint>, ReadRefused> {
        let until = until.min(Offset(self.shared.readable_end()));
        let mut attempts = ATTEMPTS;
        let mut from = 0;
        while let Some(segment) = self.late_enough(from, time_ms, until) {
            match self.time_in(&segment, time_ms, until) {
                Ok(Some(found)) => return Ok(Some(found).filter(|found| found.offset < until)),
                Err(refused) if attempts > 0 => {
                    attempts -= 1;
                    self.try_again(&segment, refused)?;
                }
                Err(Refused::Because(refused)) => return Err(refused),
                Ok(None) | Err(Refused::Gone | Refused::WrongIndex) => from = segment.next(),
            }
        }
        Ok(None)
    }

    /// The first segment from an offset on that begins below `until` and whose largest time is late enough: it holds
    /// the first such record.
    fn late_enough(&self, from: u64, time_ms: i64, until: Offset) -> Option<Arc<Segment>> {
        let segments = self.shared.segments();
        let mut later = segments.iter().filter(|segment| segment.base >= from);
        later
            .find(|segment| segment.max_timestamp() >= time_ms)
            .filter(|segment| segment.base < until.0)
            .cloned()
    }

    fn time_in(
        &self,
        segment: &Segment,
        time_ms: i64,
        until: Offset,
    ) -> Result<Option<TimePoint>, Refused> {
        let earlier = segment.with_index(&self.shared, |index| index.earlier(time_ms))?;
        let file = segment.file(&self.shared)?;
        let from = earlier.map_or(segment.base, |moment| segment.base + u64::from(moment.last));
        let mut cursor = Cursor::find(&self.shared, segment, file.as_ref(), from)?;
        cursor.fill(limits::INDEX_SPACING_BYTES as usize)?;
        cursor.skip_to(from, limits::INDEX_SPACING_BYTES as usize)?;
        let mut promised = earlier.map(|moment| (moment.timestamp, from));
        loop {
            cursor.fill_for_next()?;
            // What the index says is proved wherever its batch lies, also past `until`.
            let limit = if promised.is_some() {
                u64::MAX
            } else {
                until.0
            };
            let Some((batch, next)) = cursor.take(limit, true)? else {
                return if promised.is_some() {
                    Err(Refused::WrongIndex)
                } else {
                    Ok(None)
                };
            };
            let header = cursor.header(&batch)?;
            if promised
                .take()
                .is_some_and(|told| told != (header.max_timestamp, next.0 - 1))
            {
                return Err(Refused::WrongIndex);
            }
            if next > until {
                return Ok(None);
            }
            if header.max_timestamp >= time_ms {
                return Ok(Some(first_in(&batch, &header, time_ms)));
            }
        }
    }

    /// Checks every batch that is readable now, reading at the pace the caller sets through `pause`, which is called
    /// with the bytes read after each segment.
    ///
    /// # Errors
    /// See [`ReadRefused`].
    pub fn scrub(&self, mut pause: impl FnMut(u64)) -> Result<Scrubbed, ReadRefused> {
        let segments: Vec<Arc<Segment>> = self.shared.segments().clone();
        let mut total = Scrubbed::default();
        for segment in segments {
            let file = match segment.file(&self.shared) {
                Ok(file) => file,
                Err(SearchFailed::Gone) => continue,
                Err(SearchFailed::Io(error)) => return Err(error.into()),
            };
            let bytes = segment.bytes();
            let mut scan = segment.scan(file.as_ref(), 0, segment.base);
            loop {
                match scan.next() {
                    Ok(Some(found)) => {
                        total.batches += 1;
                        total.bytes += found.bytes();
                    }
                    Ok(None) => break,
                    Err(Stop::Bad(kind)) => {
                        return Err(segment
                            .damage(&self.shared, scan.position, scan.expected, kind)
                            .into());
                    }
                    Err(Stop::Io(error)) => {
                        let path = self.shared.path(segment.base, Kind::Log);
                        return Err(DiskError::new("read", &path, &error).into());
                    }
                }
            }
            pause(bytes);
        }
        Ok(total)
    }

    /// Oldest offset held.
    #[must_use]
    pub fn start(&self) -> Offset {
        Offset(self.shared.start())
    }

    /// One past the newest offset that can be read (exclusive).
    #[must_use]
    pub fn end(&self) -> Offset {
        Offset(self.shared.readable_end())
    }

    /// One past the newest offset known to be durable (exclusive).
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        Offset(self.shared.durable())
    }

    /// Below it (exclusive) compaction has collapsed the history: of each key only the newest record is left.
    #[must_use]
    pub fn cleaned_to(&self) -> Offset {
        Offset(self.shared.cleaned_to())
    }

    /// Below it (exclusive) deletions may be gone: whoever resumes below it may not hear of a key that was deleted.
    #[must_use]
    pub fn tombstone_floor(&self) -> Offset {
        Offset(self.shared.tombstone_floor())
    }

    /// Where the segment that takes appends begins: what lies below can be compacted.
    #[must_use]
    pub fn closed_end(&self) -> Offset {
        let segments = self.shared.segments();
        Offset(segments.last().map_or(0, |segment| segment.base))
    }

    /// Bytes of the segments that reach past [`LogReader::cleaned_to`].
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let cleaned_to = self.shared.cleaned_to();
        let segments = self.shared.segments();
        let dirty = segments
            .iter()
            .filter(|segment| segment.next() > cleaned_to);
        dirty.map(|segment| segment.bytes()).sum()
    }

    /// Bytes of log held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    /// Largest record time held in unix ms, or -1 when there is none.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.shared
            .segments()
            .iter()
            .map(|segment| segment.max_timestamp())
            .max()
            .unwrap_or(-1)
    }

    /// How many segments the log has.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.shared.segments().len()
    }
}

/// Part of a page.
struct Found {
    batches: Vec<Bytes>,
    next: Offset,
}

/// Why a segment was not read.
enum Refused {
    /// Retention removed it in the meantime, or compaction put another into its place.
    Gone,
    /// Its index said something untrue.
    WrongIndex,
    Because(ReadRefused),
}

impl From<SearchFailed> for Refused {
    fn from(failed: SearchFailed) -> Self {
        match failed {
            SearchFailed::Gone => Self::Gone,
            SearchFailed::Io(error) => Self::Because(ReadRefused::Io(error)),
        }
    }
}

/// The first record of a batch at or after a time. Records that cannot be read leave the batch as the answer.
fn first_in(batch: &Bytes, header: &BatchHeader, time_ms: i64) -> TimePoint {
    let whole = TimePoint {
        offset: Offset(u64::try_from(header.base_offset).unwrap_or(0)),
        timestamp_ms: header.max_timestamp,
    };
    let Ok(records) = Records::new(batch) else {
        return whole;
    };
    for record in records {
        let Ok(record) = record else { return whole };
        if record.timestamp_ms >= time_ms {
            return TimePoint {
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
            };
        }
    }
    whole
}
