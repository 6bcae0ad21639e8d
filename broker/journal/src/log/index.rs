//! The sparse indexes of one segment, in Kafka's own layouts, so that Kafka's tools read them.
//!
//! ```text
//! .index      (offset - base) i32 | position i32            last offset of a batch, and where that batch begins
//! .timeindex  timestamp i64 | (offset - base) i32           a time no earlier record reached, and the last offset
//!                                                           of the batch that reached it
//! ```
//!
//! Both are derived: an index that is missing, short, stale or wrong costs a scan, never an answer. Each answer is
//! proved against the batch it points at; see `Segment::locate`.

use bytes::{Buf, BufMut, BytesMut};

use crate::limits;

/// An entry of the offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Last offset of a batch, less the segment's base.
    pub(crate) last: u32,
    /// Where that batch begins.
    pub(crate) position: u32,
}

/// An entry of the time index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The largest time so far.
    pub(crate) timestamp: i64,
    /// Last offset of the batch that reached it, less the segment's base.
    pub(crate) last: u32,
}

const POINT_BYTES: usize = 8;
const MOMENT_BYTES: usize = 12;

/// Both indexes of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Sparse offsets, increasing.
    pub(crate) points: Vec<Point>,
    /// Sparse running maxima, increasing.
    pub(crate) moments: Vec<Moment>,
    /// Where the newest point's batch begins; zero while there is none.
    indexed: u64,
    /// The running maximum and where it was reached.
    highest: Option<Moment>,
}

/// What an index needs to know of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Where it begins in the segment.
    pub(crate) position: u64,
    /// Its last offset, less the segment's base.
    pub(crate) last: u32,
    /// Its largest record time; negative when it has none.
    pub(crate) max_timestamp: i64,
}

impl Index {
    /// Takes note of the next batch.
    pub(crate) fn note(&mut self, batch: Placed) {
        if self
            .highest
            .is_none_or(|highest| batch.max_timestamp > highest.timestamp)
            && batch.max_timestamp >= 0
        {
            self.highest = Some(Moment {
                timestamp: batch.max_timestamp,
                last: batch.last,
            });
        }
        let due = self.indexed + u64::from(limits::INDEX_SPACING_BYTES);
        let Ok(position) = u32::try_from(batch.position) else {
            return;
        };
        if batch.position < due || i32::try_from(position).is_err() {
            return;
        }
        self.points.push(Point {
            last: batch.last,
            position,
        });
        self.indexed = batch.position;
        self.note_time();
    }

    /// Writes down the running maximum if it has grown.
    fn note_time(&mut self) {
        let Some(highest) = self.highest else { return };
        let newer = self
            .moments
            .last()
            .is_none_or(|last| highest.timestamp > last.timestamp && highest.last > last.last);
        if newer {
            self.moments.push(highest);
        }
    }

    /// Completes the indexes of a segment that takes no more batches.
    pub(crate) fn finish(&mut self) {
        self.note_time();
    }

    /// The newest point whose batch does not begin after `offset`: where a search for it starts.
    pub(crate) fn before(&self, offset: u32) -> Option<Point> {
        let after = self.points.partition_point(|point| point.last <= offset);
        self.points.get(after.checked_sub(1)?).copied()
    }

    /// The newest moment earlier than `timestamp`: no record up to it is of that time or later.
    pub(crate) fn earlier(&self, timestamp: i64) -> Option<Moment> {
        let after = self
            .moments
            .partition_point(|moment| moment.timestamp < timestamp);
        self.moments.get(after.checked_sub(1)?).copied()
    }

    /// Where the batches that the indexes know nothing of begin to be searched.
    pub(crate) fn tail(&self) -> Option<Point> {
        self.points.last().copied()
    }

    /// The bytes of the two files.
    pub(crate) fn encode(&self) -> (BytesMut, BytesMut) {
        let mut points = BytesMut::with_capacity(self.points.len() * POINT_BYTES);
        for point in &self.points {
            points.put_u32(point.last);
            points.put_u32(point.position);
        }
        let mut moments = BytesMut::with_capacity(self.moments.len() * MOMENT_BYTES);
        for moment in &self.moments {
            moments.put_i64(moment.timestamp);
            moments.put_u32(moment.last);
        }
        (points, moments)
    }

    /// The indexes in two files, if they can be those of a segment of `bytes`: whole entries, both columns
    /// increasing, inside the segment. Whether they are is proved at each use.
    pub(crate) fn decode(mut points: &[u8], mut moments: &[u8], bytes: u64) -> Option<Self> {
        if !points.len().is_multiple_of(POINT_BYTES) || !moments.len().is_multiple_of(MOMENT_BYTES)
        {
            return None;
        }
        let mut index = Self::default();
        while points.has_remaining() {
            let point = Point {
                last: points.get_u32(),
                position: points.get_u32(),
            };
            let grows = index
                .points
                .last()
                .is_none_or(|before| point.last > before.last && point.position > before.position);
            if !grows || u64::from(point.position) >= bytes || i32::try_from(point.last).is_err() {
                return None;
            }
            index.points.push(point);
        }
        while moments.has_remaining() {
            let moment = Moment {
                timestamp: moments.get_i64(),
                last: moments.get_u32(),
            };
            let grows = index.moments.last().is_none_or(|before| {
                moment.last > before.last && moment.timestamp > before.timestamp
            });
            if !grows || i32::try_from(moment.last).is_err() {
                return None;
            }
            index.moments.push(moment);
        }
        index.indexed = index
            .points
            .last()
            .map_or(0, |point| u64::from(point.position));
        index.highest = index.moments.last().copied();
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Index {
        let mut index = Index::default();
        for batch in 0..100_u32 {
            index.note(Placed {
                position: u64::from(batch) * 9000,
                last: batch * 10 + 9,
                max_timestamp: i64::from(if batch % 7 == 0 { batch } else { batch / 2 }),
            });
        }
        index.finish();
        index
    }

    #[test]
    fn an_index_has_a_point_per_spacing_and_survives_its_files() {
        let index = filled();
        assert_eq!(index.points.len(), 49);
        assert_eq!(index.before(0), None);
        assert_eq!(
            index.before(u32::MAX).map(|point| point.position),
            Some(98 * 9000)
        );
        let (points, moments) = index.encode();
        let read = Index::decode(&points, &moments, 900_000).unwrap();
        assert_eq!(
            (&read.points, &read.moments),
            (&index.points, &index.moments)
        );
        assert_eq!(Index::decode(&points[1..], &moments, 900_000), None);
        assert_eq!(Index::decode(&points, &moments, 9000), None);
    }

    #[test]
    fn moments_are_running_maxima() {
        let index = filled();
        assert!(
            index
                .moments
                .is_sorted_by(|a, b| a.timestamp < b.timestamp && a.last < b.last)
        );
        assert_eq!(index.moments.last().unwrap().timestamp, 98);
        assert_eq!(index.earlier(0), None);
        assert_eq!(index.earlier(i64::MAX).unwrap().timestamp, 98);
    }
}
