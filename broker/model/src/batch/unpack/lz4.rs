//! The LZ4 frame format. Frames are read here and only the blocks by the library, because its frame
//! reader reserves what the frame header announces, up to 8 MiB for a batch of a hundred bytes.
//!
//! ```text
//! 04 22 4d 18 | FLG u8 | BD u8 | [content size u64] | header checksum u8
//! then blocks: size u32 (top bit: stored as it is) | bytes | [block checksum u32]
//! end: 0 u32 | [content checksum u32]
//!
//! FLG  bit 7 6      5            4               3             2                 1  0
//!      version 01   independent  block checksum  content size  content checksum  -  dictionary
//! BD   bits 6 to 4: largest block, 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB
//! ```
//!
//! All numbers are little-endian. The checksums of the format are passed over: the batch has its own,
//! over the very same bytes.

use std::io;

use super::blocks::{BlockSource, damaged, take, take_array};

const MAGIC: u32 = 0x184d_2204;
const FLG_INDEPENDENT: u8 = 1 << 5;
const FLG_BLOCK_CHECKSUM: u8 = 1 << 4;
const FLG_CONTENT_SIZE: u8 = 1 << 3;
const FLG_CONTENT_CHECKSUM: u8 = 1 << 2;
const FLG_DICTIONARY: u8 = 1;
/// Set in a block's size when its bytes are stored as they are.
const STORED: u32 = 1 << 31;
/// How far back a linked block may refer.
const HISTORY_BYTES: usize = 64 * 1024;
/// A sequence of the format yields at most 255 bytes for each byte it takes, and a few for the first.
const RATIO_MAX: usize = 255;
const RATIO_SLACK: usize = 64;

/// What a frame's header says.
#[derive(Clone, Copy)]
struct Frame {
    flags: u8,
    block_bytes_max: usize,
}

impl Frame {
    fn read(rest: &mut &[u8]) -> io::Result<Self> {
        let [flags, sizes] = take_array(rest)?;
        if flags >> 6 != 1 || flags & FLG_DICTIONARY != 0 {
            return Err(damaged());
        }
        let block_bytes_max = match (sizes >> 4) & 7 {
            4 => 64 * 1024,
            5 => 256 * 1024,
            6 => 1024 * 1024,
            7 => 4 * 1024 * 1024,
            _ => return Err(damaged()),
        };
        if flags & FLG_CONTENT_SIZE != 0 {
            take_array::<8>(rest)?;
        }
        take_array::<1>(rest)?;
        Ok(Self {
            flags,
            block_bytes_max,
        })
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    frame: Option<Frame>,
    /// The last bytes of what was unfolded, when blocks are linked.
    history: Vec<u8>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(packed: &'a [u8]) -> Self {
        Self {
            rest: packed,
            frame: None,
            history: Vec::new(),
        }
    }

    fn unfold(&mut self, frame: Frame, block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let can_be = block
            .len()
            .saturating_mul(RATIO_MAX)
            .saturating_add(RATIO_SLACK);
        out.clear();
        out.resize(frame.block_bytes_max.min(can_be), 0);
        let written = if self.history.is_empty() {
            lz4_flex::block::decompress_into(block, out)
        } else {
            lz4_flex::block::decompress_into_with_dict(block, out, &self.history)
        };
        out.truncate(written.map_err(|_| damaged())?);
        Ok(())
    }

    fn remember(&mut self, block: &[u8]) {
        self.history.extend_from_slice(block);
        let old = self.history.len().saturating_sub(HISTORY_BYTES);
        self.history.drain(..old);
    }
}

impl BlockSource for Blocks<'_> {
    fn next_block(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let frame = match self.frame {
            Some(frame) => frame,
            None if self.rest.is_empty() => return Ok(false),
            None => {
                if u32::from_le_bytes(take_array(&mut self.rest)?) != MAGIC {
                    return Err(damaged());
                }
                *self.frame.insert(Frame::read(&mut self.rest)?)
            }
        };
        let size = u32::from_le_bytes(take_array(&mut self.rest)?);
        out.clear();
        if size == 0 {
            if frame.has(FLG_CONTENT_CHECKSUM) {
                take_array::<4>(&mut self.rest)?;
            }
            self.frame = None;
            self.history.clear();
            return Ok(true);
        }
        let bytes = usize::try_from(size & !STORED).map_err(|_| damaged())?;
        if bytes > frame.block_bytes_max {
            return Err(damaged());
        }
        let block = take(&mut self.rest, bytes)?;
        if size & STORED == 0 {
            self.unfold(frame, block, out)?;
        } else {
            out.extend_from_slice(block);
        }
        if frame.has(FLG_BLOCK_CHECKSUM) {
            take_array::<4>(&mut self.rest)?;
        }
        if !frame.has(FLG_INDEPENDENT) {
            self.remember(out);
        }
        Ok(true)
    }
}
