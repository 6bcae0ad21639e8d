//! Snappy, in the two forms that producers send: one raw block, or the framing of the Java library.
//!
//! ```text
//! raw      one block: varint unpacked length, then its bytes
//! xerial   82 53 4e 41 50 50 59 00 | version i32 | oldest compatible version i32
//!          then, until the end: block length i32, block
//! ```

use std::io;

use super::blocks::{BlockSource, OVER_LIMIT, damaged, take, take_array};

/// What every xerial stream begins with. No raw block does: it would claim to unfold to more than
/// follows.
const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// Magic and the two versions.
const XERIAL_HEADER_BYTES: usize = 16;

/// The longest copy of the format yields 64 bytes and takes 3.
const RATIO_MAX: usize = 22;

pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    framed: bool,
    limit: usize,
    decoder: snap::raw::Decoder,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(packed: &'a [u8], limit: usize) -> Self {
        let framed = packed.starts_with(&XERIAL_MAGIC) && packed.len() >= XERIAL_HEADER_BYTES;
        let start = if framed { XERIAL_HEADER_BYTES } else { 0 };
        let rest = packed.get(start..).unwrap_or_default();
        Self {
            rest,
            framed,
            limit,
            decoder: snap::raw::Decoder::new(),
        }
    }
}

impl BlockSource for Blocks<'_> {
    fn next_block(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let block = if self.framed {
            let length = i32::from_be_bytes(take_array(&mut self.rest)?);
            take(
                &mut self.rest,
                usize::try_from(length).map_err(|_| damaged())?,
            )?
        } else {
            std::mem::take(&mut self.rest)
        };
        let unpacked = snap::raw::decompress_len(block).map_err(|_| damaged())?;
        if unpacked > block.len().saturating_mul(RATIO_MAX) {
            return Err(damaged());
        }
        if unpacked > self.limit {
            return Err(OVER_LIMIT.into());
        }
        out.clear();
        out.resize(unpacked, 0);
        let written = self.decoder.decompress(block, out).map_err(|_| damaged())?;
        out.truncate(written);
        Ok(true)
    }
}
