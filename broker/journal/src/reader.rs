//! Reading a log while it is being written.

use std::sync::Arc;

use bytes::Bytes;
use felix_model::{BatchHeader, Offset, Records};

use crate::disk::DiskError;
use crate::limits;
use crate::log::{Damage, Kind, Scan, SearchFailed, Segment, Shared, Stop};

mod cursor;

use cursor::Cursor;

/// Some consecutive batches of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Whole batches, as written. The first may begin below the offset asked for.
    pub batches: Vec<Bytes>,
    /// Oldest offset the log held when the page was read.
    pub start: Offset,
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
    /// at least one. Empty when `from` is the end or at `until`.
    ///
    /// A page ends with its segment, so it may be shorter than `max_bytes` although more follows.
    ///
    /// # Errors
    /// See [`ReadRefused`].
    pub fn read(&self, from: Offset, max_bytes: usize, until: Offset) -> Result<Page, ReadRefused> {
        for _ in 0..ATTEMPTS {
            let start = Offset(self.shared.start());
            let end = Offset(self.shared.readable_end());
            if from < start {
                return Err(ReadRefused::BelowStart { oldest: start });
            }
            if from > end {
                return Err(ReadRefused::PastEnd { end });
            }
            let until = until.min(end);
            if from >= until {
                return Ok(Page {
                    batches: Vec::new(),
                    start,
                });
            }
            let Some(segment) = self.shared.segment_of(from.0) else {
                continue;
            };
            match self.read_segment(&segment, from, max_bytes, until) {
                Ok(batches) => return Ok(Page { batches, start }),
                Err(Refused::Gone) => {}
                Err(Refused::WrongIndex) => match segment.rebuild_index(&self.shared) {
                    Ok(()) | Err(SearchFailed::Gone) => {}
                    Err(SearchFailed::Io(error)) => return Err(error.into()),
                },
                Err(Refused::Because(refused)) => return Err(refused),
            }
        }
        // Only a log that forgets faster than it is read comes here; it has forgotten `from` as well.
        Err(ReadRefused::BelowStart {
            oldest: Offset(self.shared.start()),
        })
    }

    fn read_segment(
        &self,
        segment: &Segment,
        from: Offset,
        max_bytes: usize,
        until: Offset,
    ) -> Result<Vec<Bytes>, Refused> {
        let file = segment.file(&self.shared)?;
        let mut cursor = Cursor::find(&self.shared, segment, file.as_ref(), from.0)?;
        let want = max_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        cursor.fill(want + limits::INDEX_SPACING_BYTES as usize)?;
        cursor.skip_to(from.0, want)?;
        let mut batches = Vec::new();
        let mut bytes = 0;
        loop {
            match cursor.take(until.0, batches.is_empty()) {
                Ok(Some(batch)) if batches.is_empty() || bytes + batch.len() <= max_bytes => {
                    bytes += batch.len();
                    batches.push(batch);
                }
                Ok(_) => return Ok(batches),
                // What is good before a bad batch is delivered; the next read begins at the bad one.
                Err(_) if !batches.is_empty() => return Ok(batches),
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
        let segments: Vec<Arc<Segment>> = self.shared.segments().clone();
        for segment in segments {
            if segment.base >= until.0 {
                return Ok(None);
            }
            // The first segment whose largest time is late enough holds the first such record.
            if segment.max_timestamp() < time_ms {
                continue;
            }
            match self.time_in(&segment, time_ms, until) {
                Ok(Some(found)) => return Ok(Some(found).filter(|found| found.offset < until)),
                Ok(None) | Err(Refused::Gone) => {}
                Err(Refused::WrongIndex) => {
                    match segment.rebuild_index(&self.shared) {
                        Ok(()) | Err(SearchFailed::Gone) => {}
                        Err(SearchFailed::Io(error)) => return Err(error.into()),
                    }
                    match self.time_in(&segment, time_ms, until) {
                        Ok(Some(found)) => {
                            return Ok(Some(found).filter(|found| found.offset < until));
                        }
                        Ok(None) | Err(Refused::Gone | Refused::WrongIndex) => {}
                        Err(Refused::Because(refused)) => return Err(refused),
                    }
                }
                Err(Refused::Because(refused)) => return Err(refused),
            }
        }
        Ok(None)
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
            let Some(batch) = cursor.take(limit, true)? else {
                return if promised.is_some() {
                    Err(Refused::WrongIndex)
                } else {
                    Ok(None)
                };
            };
            let header = cursor.header(&batch)?;
            let next = header.next_offset();
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
            let mut scan = Scan::new(file.as_ref(), 0, segment.base, bytes);
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

/// Why a segment was not read.
enum Refused {
    /// Retention removed it in the meantime.
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
