//! Frames off one QUIC stream.

use bytes::{Bytes, BytesMut};
use felix_wire::frame::{Accepts, FrameRefused, Incoming, split};
use quinn::{ReadError, RecvStream};

/// Chunks taken from the transport at once: a busy stream has many datagrams waiting.
const CHUNKS_PER_READ: usize = 16;

/// Reads frames; what arrived of the next one stays buffered.
#[derive(Debug)]
pub(crate) struct Frames {
    recv: RecvStream,
    buffer: BytesMut,
    accepts: Accepts,
    ended: bool,
}

/// Why no further frame comes from a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FramesEnded {
    /// The bytes are no frame that is accepted here.
    #[error(transparent)]
    Refused(#[from] FrameRefused),
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame")]
    Cut,
    /// The transport is gone or the client reset the stream.
    #[error(transparent)]
    Lost(#[from] ReadError),
}

impl Frames {
    pub(crate) fn new(recv: RecvStream, accepts: Accepts) -> Self {
        Self {
            recv,
            buffer: BytesMut::new(),
            accepts,
            ended: false,
        }
    }

    /// Changes what is accepted from the next frame on.
    pub(crate) fn accept(&mut self, accepts: Accepts) {
        self.accepts = accepts;
    }

    /// A frame that is here already.
    pub(crate) fn buffered(&mut self) -> Result<Option<Incoming>, FramesEnded> {
        Ok(split(&mut self.buffer, self.accepts)?)
    }

    /// Waits for more bytes. `false` once the client has finished its side. Cancel-safe: bytes are taken only
    /// when there is no further wait.
    pub(crate) async fn fill(&mut self) -> Result<bool, FramesEnded> {
        if self.ended {
            return std::future::pending().await;
        }
        if self.buffer.is_empty() {
            // A stream that waits keeps no room from what it heard before.
            self.buffer = BytesMut::new();
        }
        let mut chunks = [const { Bytes::new() }; CHUNKS_PER_READ];
        match self.recv.read_chunks(&mut chunks).await? {
            Some(count) => {
                for chunk in chunks.iter().take(count) {
                    self.buffer.extend_from_slice(chunk);
                }
                Ok(true)
            }
            // A stream that ends before or inside a header has ended cleanly, as published clients read it too.
            None if self.buffer.len() <= felix_wire::frame::HEADER_BYTES => {
                self.ended = true;
                Ok(false)
            }
            None => Err(FramesEnded::Cut),
        }
    }

    /// The next frame, waiting for it. `None` when the client has finished.
    pub(crate) async fn next(&mut self) -> Result<Option<Incoming>, FramesEnded> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Tells the client that nothing more is read.
    pub(crate) fn stop(&mut self) {
        // A stream that is finished already has nothing to stop.
        let _ = self.recv.stop(quinn::VarInt::from_u32(0));
    }
}
