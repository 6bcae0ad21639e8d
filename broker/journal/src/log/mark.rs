//! The durable mark: how far a log is known to have been synced, and in which run of the machine.
//!
//! It is rewritten in place after each sync and not synced itself: an older mark only makes recovery assume less.
//! One sector is written whole or not at all, and the mark fits in one.
//!
//! ```text
//! magic "FXDM" u32 | version u16 | flags u16 | boot 16 bytes | segment base u64 | bytes u64 |
//! next offset u64 | max timestamp i64 | last generation u32 | crc32c u32          (big-endian, 64 bytes)
//! ```
//!
//! flags bit 0: `boot` is given.

use bytes::{Buf, BufMut};

use crate::disk::Boot;

const MAGIC: u32 = u32::from_be_bytes(*b"FXDM");
const VERSION: u16 = 1;
const BOOT_GIVEN: u16 = 1;

/// Length of the file.
pub(crate) const MARK_BYTES: usize = 64;

/// Everything before this place has been synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The run of the machine in which it was written.
    pub(crate) boot: Option<Boot>,
    /// The segment, by its first offset. All older segments are durable whole.
    pub(crate) segment: u64,
    /// Durable bytes of that segment.
    pub(crate) bytes: u64,
    /// First offset after them.
    pub(crate) next: u64,
    /// Largest record time among those bytes, or -1.
    pub(crate) max_timestamp: i64,
    /// The newest generation under which batches may have been appended, whether or not any of them is left.
    pub(crate) last_generation: u32,
}

impl Mark {
    /// The file's bytes.
    pub(crate) fn encode(&self) -> [u8; MARK_BYTES] {
        let mut file = [0; MARK_BYTES];
        let mut to = file.as_mut_slice();
        to.put_u32(MAGIC);
        to.put_u16(VERSION);
        to.put_u16(if self.boot.is_some() { BOOT_GIVEN } else { 0 });
        to.put_slice(&self.boot.unwrap_or_default());
        to.put_u64(self.segment);
        to.put_u64(self.bytes);
        to.put_u64(self.next);
        to.put_i64(self.max_timestamp);
        to.put_u32(self.last_generation);
        if let Some((body, mut sum)) = file.split_at_mut_checked(MARK_BYTES - 4) {
            sum.put_u32(crc32c::crc32c(body));
        }
        file
    }

    /// The mark, if the bytes are one and pass its checksum.
    pub(crate) fn decode(file: &[u8]) -> Option<Self> {
        let (body, mut sum) = file.get(..MARK_BYTES)?.split_at_checked(MARK_BYTES - 4)?;
        if crc32c::crc32c(body) != sum.get_u32() {
            return None;
        }
        let mut from = body;
        if from.get_u32() != MAGIC || from.get_u16() != VERSION {
            return None;
        }
        let given = from.get_u16() & BOOT_GIVEN != 0;
        let mut boot = Boot::default();
        from.copy_to_slice(&mut boot);
        Some(Self {
            boot: given.then_some(boot),
            segment: from.get_u64(),
            bytes: from.get_u64(),
            next: from.get_u64(),
            max_timestamp: from.get_i64(),
            last_generation: from.get_u32(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_file_and_no_flipped_bit_does() {
        let mark = Mark {
            boot: Some([7; 16]),
            segment: 40,
            bytes: 1234,
            next: 99,
            max_timestamp: -1,
            last_generation: 3,
        };
        let file = mark.encode();
        assert_eq!(Mark::decode(&file), Some(mark));
        assert_eq!(Mark::decode(&file[..MARK_BYTES - 1]), None);
        for bit in 0..MARK_BYTES * 8 {
            let mut bad = file;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&bad), None, "bit {bit}");
        }
    }
}
