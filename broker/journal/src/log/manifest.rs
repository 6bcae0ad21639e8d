//! Which segments compaction wrote, and what that took from the log.
//!
//! It is replaced as a whole, and replacing it is what commits a compaction: from then on the segments that were read are
//! no longer part of the log, whatever files are still there.
//!
//! ```text
//! magic "FXCM" u32 | version u16 | flags u16 | serial u64 | cleaned to u64 | tombstone floor u64 | segments u32 |
//! per segment: base u64 | next u64 | bytes u64 | serial u64 | crc32c u32                          (big-endian)
//! ```

use std::path::Path;

use bytes::{Buf, BufMut};
use felix_model::Offset;

use super::{Damage, DamageKind, names};
use crate::disk::{Disk, DiskError};
use crate::durable;

const MAGIC: u32 = u32::from_be_bytes(*b"FXCM");
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 36;
const ENTRY_BYTES: usize = 32;
const SUM_BYTES: usize = 4;

/// The front of a segment from which records may be missing. After its `bytes` the next offset is `next`, whatever its
/// last batch says, and from there on the segment is dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sparse {
    /// How long it is.
    pub(crate) bytes: u64,
    /// First offset after it.
    pub(crate) next: u64,
}

/// A segment that compaction wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its first offset, and the name of its file.
    pub(crate) base: u64,
    pub(crate) sparse: Sparse,
    /// Tells its file from every other that was made for this base; see [`names::cleaned`].
    pub(crate) serial: u64,
}

/// The manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Serial of the newest segment that was committed. None is given twice.
    pub(crate) serial: u64,
    /// Below it (exclusive) history is collapsed.
    pub(crate) cleaned_to: u64,
    /// Below it (exclusive) deletions may be gone.
    pub(crate) tombstone_floor: u64,
    /// In order of their bases.
    pub(crate) entries: Vec<Entry>,
}

impl Manifest {
    /// Reads the manifest of a log. A log that was never compacted has none.
    ///
    /// # Errors
    /// The disk's. One that cannot be read is damage, for it was never half written.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Result<Self, Damage>, DiskError> {
        let path = dir.join(names::MANIFEST);
        let Some(bytes) = durable::read(disk, &path)? else {
            return Ok(Ok(Self::default()));
        };
        Ok(Self::decode(&bytes).ok_or(Damage {
            file: path,
            position: 0,
            offset: Offset(0),
            kind: DamageKind::Manifest,
        }))
    }

    /// Puts it into its place; durable when it returns.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        durable::replace(disk, &dir.join(names::MANIFEST), &self.encode())
    }

    /// Whether there is anything to be written down.
    pub(crate) fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Takes a segment in that replaces all between its ends.
    pub(crate) fn put(&mut self, entry: Entry) {
        let replaced = entry.base..entry.sparse.next.max(entry.base + 1);
        self.entries.retain(|held| !replaced.contains(&held.base));
        let at = self.entries.partition_point(|held| held.base < entry.base);
        self.entries.insert(at, entry);
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(HEAD_BYTES + ENTRY_BYTES * self.entries.len() + SUM_BYTES);
        to.put_u32(MAGIC);
        to.put_u16(VERSION);
        to.put_u16(0);
        to.put_u64(self.serial);
        to.put_u64(self.cleaned_to);
        to.put_u64(self.tombstone_floor);
        to.put_u32(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        for entry in &self.entries {
            to.put_u64(entry.base);
            to.put_u64(entry.sparse.next);
            to.put_u64(entry.sparse.bytes);
            to.put_u64(entry.serial);
        }
        let sum = crc32c::crc32c(&to);
        to.put_u32(sum);
        to
    }

    fn decode(file: &[u8]) -> Option<Self> {
        let (body, mut sum) = file.split_at_checked(file.len().checked_sub(SUM_BYTES)?)?;
        if body.len() < HEAD_BYTES || crc32c::crc32c(body) != sum.get_u32() {
            return None;
        }
        let mut from = body;
        if from.get_u32() != MAGIC || from.get_u16() != VERSION || from.get_u16() != 0 {
            return None;
        }
        let mut manifest = Self {
            serial: from.get_u64(),
            cleaned_to: from.get_u64(),
            tombstone_floor: from.get_u64(),
            entries: Vec::new(),
        };
        let count = usize::try_from(from.get_u32()).ok()?;
        if from.len() != count.checked_mul(ENTRY_BYTES)? {
            return None;
        }
        let mut after = 0;
        while from.has_remaining() {
            let base = from.get_u64();
            let sparse = Sparse {
                next: from.get_u64(),
                bytes: from.get_u64(),
            };
            let serial = from.get_u64();
            if base < after || sparse.next < base || serial > manifest.serial {
                return None;
            }
            after = sparse.next;
            manifest.entries.push(Entry {
                base,
                sparse,
                serial,
            });
        }
        Some(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(base: u64, next: u64, serial: u64) -> Entry {
        let sparse = Sparse { bytes: 9, next };
        Entry {
            base,
            sparse,
            serial,
        }
    }

    #[test]
    fn a_manifest_survives_its_file_and_no_flipped_bit_does() {
        let manifest = Manifest {
            serial: 7,
            cleaned_to: 90,
            tombstone_floor: 80,
            entries: vec![entry(0, 40, 7), entry(60, 90, 3)],
        };
        let file = manifest.encode();
        assert_eq!(Manifest::decode(&file), Some(manifest));
        for length in 0..file.len() {
            assert_eq!(Manifest::decode(&file[..length]), None, "{length} bytes");
        }
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::decode(&bad), None, "bit {bit}");
        }
        let blank = Manifest::default();
        assert!(blank.is_blank());
        assert_eq!(Manifest::decode(&blank.encode()), Some(blank));
    }

    #[test]
    fn a_segment_takes_the_place_of_all_that_lie_in_it() {
        let mut manifest = Manifest::default();
        for held in [
            entry(0, 10, 1),
            entry(10, 20, 2),
            entry(20, 30, 3),
            entry(30, 40, 4),
        ] {
            manifest.put(held);
        }
        manifest.put(entry(10, 30, 5));
        assert_eq!(
            manifest.entries,
            [entry(0, 10, 1), entry(10, 30, 5), entry(30, 40, 4)]
        );
    }
}
