//! Frames off a stream: taken out of the received datagram where they lie in one piece, put together once where
//! they do not.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use felix_wire::extension::{self, ExtensionFrame};
use felix_wire::frame::{self, Frame, FrameRefused, Header, Incoming};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::message::{Message, MessageRefused};
use quinn::RecvStream;

use crate::limits::{CHUNKS_PER_READ, FRAME_FIRST_BYTES};

/// Why no further frame comes off a stream.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum FramesEnded {
    /// What came is no frame, or one that is not allowed here.
    #[error("{0}")]
    Refused(#[from] FrameRefused),
    /// The message in it cannot be read.
    #[error("{0}")]
    Message(#[from] MessageRefused),
    /// The stream ended inside a payload.
    #[error("the stream ended inside a frame")]
    Cut,
    /// The stream was reset, or the connection was lost.
    #[error("{0}")]
    Lost(#[from] quinn::ReadError),
}

/// A stream, read frame by frame.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: RecvStream,
    assembler: Assembler,
}

impl Frames {
    /// `extensions` says whether frames of our own extensions may come.
    pub(crate) fn new(stream: RecvStream, extensions: bool) -> Self {
        Self {
            stream,
            assembler: Assembler {
                extensions,
                ..Assembler::default()
            },
        }
    }

    /// Allows frames of our own extensions from here on.
    pub(crate) fn allow_extensions(&mut self) {
        self.assembler.extensions = true;
    }

    /// The next frame; `None` when the stream ended between two. Nothing is lost when the caller stops polling.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, FramesEnded>> {
        loop {
            if let Some(frame) = self.assembler.next()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            let mut chunks = [const { Bytes::new() }; CHUNKS_PER_READ];
            let read = pin!(self.stream.read_chunks(&mut chunks)).poll(cx);
            let Some(count) = ready!(read)? else {
                return Poll::Ready(if self.assembler.is_inside_payload() {
                    Err(FramesEnded::Cut)
                } else {
                    Ok(None)
                });
            };
            self.assembler.chunks.extend(chunks.into_iter().take(count));
        }
    }

    /// As [`Self::poll_frame`]. Cancel-safe.
    pub(crate) async fn frame(&mut self) -> Result<Option<Incoming>, FramesEnded> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The next frame, which must be a JSON message. Cancel-safe.
    pub(crate) async fn message(&mut self) -> Result<Option<Message>, FramesEnded> {
        match self.frame().await? {
            None => Ok(None),
            Some(Incoming::Published(Frame {
                flags: felix_wire::flags::Flags::NONE,
                payload,
            })) => Ok(Some(Message::decode(&payload)?)),
            Some(Incoming::Published(Frame { flags, .. })) => Err(FrameRefused::Flags(
                felix_wire::flags::FlagsRefused::Combination {
                    flags: flags.bits(),
                },
            )
            .into()),
            Some(Incoming::Extension(_)) => Err(FrameRefused::Magic {
                found: extension::MAGIC,
            }
            .into()),
        }
    }
}

/// Chunks in, frames out. Holds what was received and at most one frame's worth beyond it.
#[derive(Debug, Default)]
struct Assembler {
    extensions: bool,
    chunks: VecDeque<Bytes>,
    header: PartialHeader,
    body: Option<Body>,
}

#[derive(Debug, Default)]
struct PartialHeader {
    bytes: [u8; extension::HEADER_BYTES],
    have: usize,
}

#[derive(Debug)]
struct Body {
    head: Head,
    length: usize,
    /// Parts so far, when the payload does not lie in one chunk.
    parts: BytesMut,
}

#[derive(Clone, Copy, Debug)]
enum Head {
    Published(Header),
    Extension(ExtensionHead),
}

/// The header of a frame of ours, behind its magic.
#[derive(Clone, Copy, Debug)]
struct ExtensionHead {
    kind: u16,
    flags: u16,
    correlation: u64,
    length: u32,
}

impl Assembler {
    fn next(&mut self) -> Result<Option<Incoming>, FrameRefused> {
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                let Some(head) = self.header.fill(&mut self.chunks, self.extensions)? else {
                    return Ok(None);
                };
                let length = head.length()?;
                self.body.insert(Body {
                    head,
                    length,
                    parts: BytesMut::new(),
                })
            }
        };
        let Some(payload) = body.fill(&mut self.chunks) else {
            return Ok(None);
        };
        let head = body.head;
        self.body = None;
        Ok(Some(match head {
            Head::Published(header) => Incoming::Published(Frame {
                flags: header.flags,
                payload,
            }),
            Head::Extension(header) => {
                let ExtensionHead {
                    kind,
                    flags,
                    correlation,
                    ..
                } = header;
                Incoming::Extension(ExtensionFrame {
                    kind,
                    flags,
                    correlation,
                    body: payload,
                })
            }
        }))
    }

    /// A stream that ends before or inside a header ended cleanly, as far as the protocol is concerned.
    fn is_inside_payload(&self) -> bool {
        self.body.is_some()
    }
}

impl PartialHeader {
    fn fill(
        &mut self,
        chunks: &mut VecDeque<Bytes>,
        extensions: bool,
    ) -> Result<Option<Head>, FrameRefused> {
        loop {
            if let Some(head) = self.parse(extensions)? {
                self.have = 0;
                return Ok(Some(head));
            }
            let wanted = self.wanted();
            let Some(chunk) = chunks.front_mut() else {
                return Ok(None);
            };
            let take = chunk.len().min(wanted - self.have);
            if let Some(room) = self.bytes.get_mut(self.have..self.have + take) {
                chunk.copy_to_slice(room);
                self.have += take;
            }
            if chunk.is_empty() {
                chunks.pop_front();
            }
        }
    }

    fn parse(&self, extensions: bool) -> Result<Option<Head>, FrameRefused> {
        if self.have < self.wanted() || self.have < frame::HEADER_BYTES {
            return Ok(None);
        }
        if self.is_extension() && extensions {
            return Ok(Some(Head::Extension(ExtensionHead::decode(&self.bytes))));
        }
        let Some(bytes) = self.bytes.first_chunk() else {
            return Ok(None);
        };
        Header::decode(bytes).map(|header| Some(Head::Published(header)))
    }

    /// Both kinds of header begin with four bytes of magic; only then is known how long it is.
    fn wanted(&self) -> usize {
        match self.have {
            0..4 => frame::MAGIC.len(),
            _ if self.is_extension() => extension::HEADER_BYTES,
            _ => frame::HEADER_BYTES,
        }
    }

    fn is_extension(&self) -> bool {
        self.bytes.starts_with(&extension::MAGIC)
    }
}

impl ExtensionHead {
    fn decode(bytes: &[u8; extension::HEADER_BYTES]) -> Self {
        let mut rest = bytes.as_slice();
        rest.advance(extension::MAGIC.len());
        Self {
            kind: rest.get_u16(),
            flags: rest.get_u16(),
            correlation: rest.get_u64(),
            length: rest.get_u32(),
        }
    }
}

impl Head {
    fn length(self) -> Result<usize, FrameRefused> {
        let length = match self {
            Self::Published(header) => header.length,
            Self::Extension(header) => header.length,
        };
        match usize::try_from(length) {
            Ok(bytes) if bytes <= PAYLOAD_BYTES_MAX => Ok(bytes),
            _ => Err(FrameRefused::TooLong {
                length,
                limit: PAYLOAD_BYTES_MAX,
            }),
        }
    }
}

impl Body {
    fn fill(&mut self, chunks: &mut VecDeque<Bytes>) -> Option<Bytes> {
        if self.length == 0 {
            return Some(Bytes::new());
        }
        while let Some(chunk) = chunks.front_mut() {
            if self.parts.is_empty() {
                if chunk.len() >= self.length {
                    return Some(chunk.split_to(self.length));
                }
                self.parts.reserve(self.length.min(FRAME_FIRST_BYTES));
            }
            let missing = self.length - self.parts.len();
            if chunk.len() >= missing {
                self.parts.extend_from_slice(&chunk.split_to(missing));
                return Some(std::mem::take(&mut self.parts).freeze());
            }
            self.parts.extend_from_slice(chunk);
            chunks.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use felix_wire::flags::Flags;

    use super::*;

    fn frame(payload: &[u8]) -> Bytes {
        Frame {
            flags: Flags::NONE,
            payload: Bytes::copy_from_slice(payload),
        }
        .encode()
    }

    fn published(frame: Option<Incoming>) -> Bytes {
        match frame {
            Some(Incoming::Published(frame)) => frame.payload,
            other => panic!("not a published frame: {other:?}"),
        }
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_were_cut() {
        let payloads = [b"".to_vec(), b"a".to_vec(), vec![7; 300]];
        let stream: Vec<u8> = payloads
            .iter()
            .flat_map(|payload| frame(payload).to_vec())
            .collect();
        for size in 1..=stream.len() {
            let mut assembler = Assembler::default();
            let mut seen = Vec::new();
            for chunk in stream.chunks(size) {
                assembler.chunks.push_back(Bytes::copy_from_slice(chunk));
                while let Some(frame) = assembler.next().unwrap() {
                    seen.push(published(Some(frame)).to_vec());
                }
            }
            assert_eq!(seen, payloads, "chunks of {size}");
            assert!(!assembler.is_inside_payload());
        }
    }

    #[test]
    fn a_payload_that_arrived_in_one_piece_is_not_copied() {
        let chunk = frame(&[7; 100]);
        let mut assembler = Assembler::default();
        assembler.chunks.push_back(chunk.clone());
        let payload = published(assembler.next().unwrap());
        assert_eq!(
            payload.as_ptr(),
            chunk.slice(frame::HEADER_BYTES..).as_ptr()
        );
    }

    #[test]
    fn a_length_alone_takes_no_memory_and_too_long_a_frame_is_refused() {
        let header = |length| {
            Bytes::copy_from_slice(
                &Header {
                    flags: Flags::NONE,
                    length,
                }
                .encode(),
            )
        };
        let mut assembler = Assembler::default();
        assembler.chunks.push_back(header(16 * 1024 * 1024));
        assert_eq!(assembler.next(), Ok(None));
        assembler.chunks.push_back(Bytes::from_static(b"x"));
        assert_eq!(assembler.next(), Ok(None));
        assert!(assembler.body.unwrap().parts.capacity() <= 2 * FRAME_FIRST_BYTES);
        let mut assembler = Assembler::default();
        assembler.chunks.push_back(header(16 * 1024 * 1024 + 1));
        assert!(matches!(
            assembler.next(),
            Err(FrameRefused::TooLong { .. })
        ));
    }

    #[test]
    fn frames_of_extensions_come_only_where_they_were_agreed_upon() {
        let sent = ExtensionFrame {
            kind: 1,
            flags: 2,
            correlation: 9,
            body: "hi".into(),
        };
        let bytes = sent.encode();
        for size in 1..=bytes.len() {
            let mut assembler = Assembler {
                extensions: true,
                ..Assembler::default()
            };
            assembler
                .chunks
                .extend(bytes.chunks(size).map(Bytes::copy_from_slice));
            let frame = assembler.next().unwrap();
            assert_eq!(frame, Some(Incoming::Extension(sent.clone())));
        }
        let mut assembler = Assembler::default();
        assembler.chunks.push_back(bytes);
        assert!(assembler.next().is_err());
    }
}
