//! The seal of a finished segment: what it holds, so that opening a log need not read it again.
//!
//! It is written only after the segment was synced. Missing, torn or stale, it is made again from the segment.
//!
//! ```text
//! magic "FXSL" u32 | version u16 | flags u16 | base offset u64 | next offset u64 | bytes u64 |
//! max timestamp i64 | last generation u32 | headers crc32c u32 |
//! index bytes u32 | index crc32c u32 | time index bytes u32 | time index crc32c u32 | crc32c u32
//! ```
//!
//! Big-endian, 68 bytes. The headers checksum runs over the first 21 bytes of every batch: each batch's own
//! checksum covers what follows them, so that together they cover every byte of the file.

use bytes::{Buf, BufMut};

const MAGIC: u32 = u32::from_be_bytes(*b"FXSL");
const VERSION: u16 = 1;

/// Length of the file.
pub(crate) const SEAL_BYTES: usize = 68;

/// Bytes at the start of a batch that its own checksum does not cover, the checksum included.
pub(crate) const UNCOVERED_BYTES: usize = 21;

/// What a finished segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// First offset.
    pub(crate) base: u64,
    /// First offset after it.
    pub(crate) next: u64,
    /// Length of the `.log` file.
    pub(crate) bytes: u64,
    /// Largest record time, or -1.
    pub(crate) max_timestamp: i64,
    /// Generation of its last batch.
    pub(crate) last_generation: u32,
    /// Checksum over what the batches' own checksums leave out.
    pub(crate) headers_crc: u32,
    /// Length and checksum of the `.index` file.
    pub(crate) index: FileSum,
    /// Length and checksum of the `.timeindex` file.
    pub(crate) time_index: FileSum,
}

/// Length and checksum of a small file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSum {
    /// Its length.
    pub(crate) bytes: u32,
    /// Its crc32c.
    pub(crate) crc: u32,
}

impl FileSum {
    /// Of these bytes.
    pub(crate) fn of(file: &[u8]) -> Self {
        Self {
            bytes: u32::try_from(file.len()).unwrap_or(u32::MAX),
            crc: crc32c::crc32c(file),
        }
    }
}

impl Seal {
    /// The file's bytes.
    pub(crate) fn encode(&self) -> [u8; SEAL_BYTES] {
        let mut file = [0; SEAL_BYTES];
        let mut to = file.as_mut_slice();
        to.put_u32(MAGIC);
        to.put_u16(VERSION);
        to.put_u16(0);
        to.put_u64(self.base);
        to.put_u64(self.next);
        to.put_u64(self.bytes);
        to.put_i64(self.max_timestamp);
        to.put_u32(self.last_generation);
        to.put_u32(self.headers_crc);
        to.put_u32(self.index.bytes);
        to.put_u32(self.index.crc);
        to.put_u32(self.time_index.bytes);
        to.put_u32(self.time_index.crc);
        if let Some((body, mut sum)) = file.split_at_mut_checked(SEAL_BYTES - 4) {
            sum.put_u32(crc32c::crc32c(body));
        }
        file
    }

    /// The seal, if the bytes are one and pass its checksum.
    pub(crate) fn decode(file: &[u8]) -> Option<Self> {
        if file.len() != SEAL_BYTES {
            return None;
        }
        let (body, mut sum) = file.split_at_checked(SEAL_BYTES - 4)?;
        if crc32c::crc32c(body) != sum.get_u32() {
            return None;
        }
        let mut from = body;
        if from.get_u32() != MAGIC || from.get_u16() != VERSION || from.get_u16() != 0 {
            return None;
        }
        Some(Self {
            base: from.get_u64(),
            next: from.get_u64(),
            bytes: from.get_u64(),
            max_timestamp: from.get_i64(),
            last_generation: from.get_u32(),
            headers_crc: from.get_u32(),
            index: FileSum {
                bytes: from.get_u32(),
                crc: from.get_u32(),
            },
            time_index: FileSum {
                bytes: from.get_u32(),
                crc: from.get_u32(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_survives_its_file_and_no_flipped_bit_does() {
        let seal = Seal {
            base: 40,
            next: 99,
            bytes: 1234,
            max_timestamp: 5,
            last_generation: 3,
            headers_crc: 0xABCD,
            index: FileSum::of(b"index"),
            time_index: FileSum::of(b""),
        };
        let file = seal.encode();
        assert_eq!(Seal::decode(&file), Some(seal));
        for bit in 0..SEAL_BYTES * 8 {
            let mut bad = file;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::decode(&bad), None, "bit {bit}");
        }
    }
}
