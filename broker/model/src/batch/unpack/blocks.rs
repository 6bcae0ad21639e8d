//! Formats that unfold block by block, read as a stream.

use std::io::{self, Read};

/// A sequence of blocks, each unfolded as a whole.
pub(super) trait BlockSource {
    /// Replaces `out` by the next block; `false` at the end. A block may be empty.
    fn next_block(&mut self, out: &mut Vec<u8>) -> io::Result<bool>;
}

/// Reads the blocks one after the other.
pub(super) struct BlockReader<S> {
    source: S,
    block: Vec<u8>,
    read: usize,
}

impl<S: BlockSource> BlockReader<S> {
    pub(super) fn new(source: S) -> Self {
        Self {
            source,
            block: Vec::new(),
            read: 0,
        }
    }
}

impl<S: BlockSource> Read for BlockReader<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut rest = self.block.get(self.read..).unwrap_or_default();
            if !rest.is_empty() {
                let read = rest.read(out)?;
                self.read += read;
                return Ok(read);
            }
            self.read = 0;
            if !self.source.next_block(&mut self.block)? {
                self.block.clear();
                return Ok(0);
            }
        }
    }
}

/// The block is damaged; which codec it was is added further up.
pub(super) fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// How a source says that the next block would unfold to more than the whole may.
pub(super) const OVER_LIMIT: io::ErrorKind = io::ErrorKind::FileTooLarge;

/// Takes `bytes` off the front of `rest`.
pub(super) fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> io::Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or_else(damaged)?;
    *rest = left;
    Ok(taken)
}

/// Takes a fixed number of bytes off the front of `rest`.
pub(super) fn take_array<const N: usize>(rest: &mut &[u8]) -> io::Result<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or_else(damaged)?;
    *rest = left;
    Ok(*taken)
}
