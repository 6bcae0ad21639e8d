//! How far a walk over a segment has come, and the durable mark for that place.

use super::mark::{MARK_BYTES, Mark};
use super::scan::{Found, Scan};
use crate::disk::Disk;

/// A batch boundary in a segment and what lies before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The segment, by its first offset.
    pub(crate) segment: u64,
    /// Bytes before the boundary.
    pub(crate) bytes: u64,
    /// First offset after it.
    pub(crate) next: u64,
    /// Largest record time before it in this segment, or -1.
    pub(crate) max_timestamp: i64,
    /// Generation of the last batch before it.
    pub(crate) generation: u32,
}

impl End {
    /// The beginning of a segment.
    pub(crate) fn empty(segment: u64) -> Self {
        Self {
            segment,
            bytes: 0,
            next: segment,
            max_timestamp: -1,
            generation: 0,
        }
    }

    /// Moves past a batch that a scan has just found.
    pub(crate) fn grow(&mut self, found: &Found, scan: &Scan<'_>) {
        self.bytes = scan.position;
        self.next = scan.expected;
        self.max_timestamp = self.max_timestamp.max(found.header.max_timestamp);
        self.generation = u32::try_from(found.header.leader_epoch).unwrap_or(0);
    }

    /// The mark that says a log is durable up to here.
    pub(crate) fn mark(&self, disk: &dyn Disk) -> [u8; MARK_BYTES] {
        let mark = Mark {
            boot: disk.boot(),
            segment: self.segment,
            bytes: self.bytes,
            next: self.next,
            max_timestamp: self.max_timestamp,
            last_generation: self.generation,
        };
        mark.encode()
    }
}
