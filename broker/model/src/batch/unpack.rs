//! Compressed records unfolded, never to more than [`crate::limits`] allow, and never with memory
//! reserved for more than the compressed bytes can unfold to.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::varint::{Cursor, VARINT_BYTES_MAX};
use super::{BatchRefused, Compression};
use crate::limits::{
    UNPACKED_BYTES_FREE, UNPACKED_BYTES_MAX, UNPACKED_RATIO_MAX, ZSTD_WINDOW_LOG_MAX,
};

mod blocks;
mod lz4;
mod snappy;

use blocks::BlockReader;

/// What is asked of a codec at a time.
const STEP_BYTES: usize = 16 * 1024;

/// What `packed` compressed bytes may unfold to.
fn limit_for(packed: usize) -> usize {
    packed
        .saturating_mul(UNPACKED_RATIO_MAX)
        .clamp(UNPACKED_BYTES_FREE, UNPACKED_BYTES_MAX)
}

/// Unfolds all of `packed` into one piece of memory, which grows as the codec yields.
pub(super) fn unpack(codec: Compression, packed: &[u8]) -> Result<Bytes, BatchRefused> {
    let mut source = Unpacker::new(codec, packed)?;
    // Most batches unfold to more than this, and it is no more than was received, four times.
    let mut out = Vec::with_capacity(packed.len().saturating_mul(4).min(UNPACKED_BYTES_MAX));
    while source.read_to(&mut out, STEP_BYTES)? > 0 {}
    Ok(Bytes::from(out))
}

/// A codec at work on one compressed block.
struct Unpacker<'a> {
    codec: Compression,
    source: Box<dyn Read + 'a>,
    packed: usize,
    unpacked: usize,
    limit: usize,
}

impl<'a> Unpacker<'a> {
    fn new(codec: Compression, packed: &'a [u8]) -> Result<Self, BatchRefused> {
        let limit = limit_for(packed.len());
        let source: Box<dyn Read + 'a> = match codec {
            Compression::None => Box::new(packed),
            Compression::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Compression::Snappy => Box::new(BlockReader::new(snappy::Blocks::new(packed, limit))),
            Compression::Lz4 => Box::new(BlockReader::new(lz4::Blocks::new(packed))),
            Compression::Zstd => Box::new(zstd_reader(packed).map_err(|_| undecodable(codec))?),
        };
        Ok(Self {
            codec,
            source,
            packed: packed.len(),
            unpacked: 0,
            limit,
        })
    }

    /// Appends up to `bytes` more to `out`; 0 means that there are no more.
    fn read_to(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<usize, BatchRefused> {
        let start = out.len();
        out.resize(start + bytes, 0);
        let space = out.get_mut(start..).unwrap_or_default();
        let outcome = self.source.read(space).map_err(|why| self.refusal(&why));
        out.truncate(start + outcome.as_ref().map_or(0, |read| *read));
        let read = outcome?;
        self.unpacked += read;
        if self.unpacked > self.limit {
            Err(self.bomb())
        } else {
            Ok(read)
        }
    }

    fn refusal(&self, why: &io::Error) -> BatchRefused {
        if why.kind() == blocks::OVER_LIMIT {
            self.bomb()
        } else {
            undecodable(self.codec)
        }
    }

    fn bomb(&self) -> BatchRefused {
        BatchRefused::Bomb {
            compressed: self.packed,
            limit: self.limit,
        }
    }
}

impl fmt::Debug for Unpacker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker")
            .field("codec", &self.codec)
            .field("packed", &self.packed)
            .field("unpacked", &self.unpacked)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

fn undecodable(codec: Compression) -> BatchRefused {
    BatchRefused::Undecodable {
        codec: codec.as_str(),
    }
}

/// The decoder reserves a frame's window before its first byte, so the window is bounded too.
fn zstd_reader(packed: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// The part of the unpacked records that is being looked at.
///
/// ```text
///            start
///   |  seen    |  visible        |  not yet unpacked …
///   '------- buffer -------------'
/// ```
#[derive(Debug)]
pub(super) struct Window<'a> {
    source: Unpacker<'a>,
    buffer: Vec<u8>,
    start: usize,
}

impl<'a> Window<'a> {
    pub(super) fn new(codec: Compression, packed: &'a [u8]) -> Result<Self, BatchRefused> {
        Ok(Self {
            source: Unpacker::new(codec, packed)?,
            buffer: Vec::new(),
            start: 0,
        })
    }

    /// Makes the next record visible as a whole, or as much of it as there is.
    pub(super) fn show_record(&mut self) -> Result<&[u8], BatchRefused> {
        self.show(VARINT_BYTES_MAX)?;
        let mut head = Cursor::new(self.visible());
        let before = head.left();
        // A length that cannot be read or is negative is for the walk to refuse.
        let length = head
            .varint()
            .ok()
            .and_then(|length| usize::try_from(length).ok());
        let field = before - head.left();
        self.show(length.unwrap_or(0).saturating_add(field))?;
        Ok(self.visible())
    }

    /// Moves on past what was looked at.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes).min(self.buffer.len());
    }

    /// How many bytes are left, as far as can be seen: 0 only when all were seen.
    pub(super) fn left(&mut self) -> Result<usize, BatchRefused> {
        self.show(1)?;
        Ok(self.visible().len())
    }

    fn visible(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Unpacks until `bytes` are visible or there are no more. Reserves nothing for `bytes`: it is a
    /// claim of the sender.
    fn show(&mut self, bytes: usize) -> Result<(), BatchRefused> {
        while self.visible().len() < bytes {
            // What was seen goes once it is as much as what is not: each byte moves once on average.
            if self.start >= STEP_BYTES && self.start * 2 >= self.buffer.len() {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            if self.source.read_to(&mut self.buffer, STEP_BYTES)? == 0 {
                return Ok(());
            }
        }
        Ok(())
    }
}
