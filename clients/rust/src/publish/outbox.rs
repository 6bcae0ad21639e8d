//! Frames on their way to the transport, collected so that a busy stream is written in large pieces.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::limits::{COPY_BYTES_MAX, SCRATCH_BYTES};

/// Bytes to be written, in order. Heads and short payloads are copied together; long payloads stay where they
/// are and are referred to.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: Vec<Bytes>,
    /// Comes after `chunks`.
    scratch: BytesMut,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a copy.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.scratch.capacity() - self.scratch.len() < bytes.len() {
            self.scratch.reserve(bytes.len().max(SCRATCH_BYTES));
        }
        self.scratch.put_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Appends bytes that already are shared, copying only short ones.
    pub(crate) fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < COPY_BYTES_MAX {
            self.put(bytes);
            return;
        }
        self.seal();
        self.bytes += bytes.len();
        self.chunks.push(bytes.clone());
    }

    /// Everything, as the transport takes it. What it took is reported back with [`Self::took`].
    pub(crate) fn chunks(&mut self) -> &mut [Bytes] {
        self.seal();
        &mut self.chunks
    }

    /// The transport took `chunks` whole chunks and `bytes` bytes in all, and cut the next chunk itself.
    pub(crate) fn took(&mut self, chunks: usize, bytes: usize) {
        self.chunks.drain(..chunks.min(self.chunks.len()));
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn seal(&mut self) {
        if !self.scratch.is_empty() {
            self.chunks.push(self.scratch.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox) -> Vec<u8> {
        let chunks = outbox.chunks();
        let all: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_vec()).collect();
        let count = chunks.len();
        outbox.took(count, all.len());
        all
    }

    #[test]
    fn long_payloads_are_not_copied_and_order_is_kept() {
        let long = Bytes::from(vec![7u8; COPY_BYTES_MAX]);
        let mut outbox = Outbox::default();
        outbox.put(b"head");
        outbox.put_shared(&long);
        outbox.put(b"tail");
        outbox.put_shared(&Bytes::from_static(b"short"));
        assert_eq!(outbox.bytes(), 4 + long.len() + 9);
        let chunks = outbox.chunks();
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[1].as_ptr(), long.as_ptr());
        let all = drain(&mut outbox);
        assert_eq!(all, [b"head".as_slice(), &long, b"tailshort"].concat());
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_the_transport_did_not_take_stays() {
        let mut outbox = Outbox::default();
        outbox.put(b"abcdef");
        let chunks = outbox.chunks();
        chunks[0] = chunks[0].slice(2..);
        outbox.took(0, 2);
        outbox.put(b"gh");
        assert_eq!(outbox.bytes(), 6);
        assert_eq!(drain(&mut outbox), b"cdefgh");
    }
}
