//! Frames: a header that says what follows and how long it is, and a payload.
//!
//! ```text
//! published   46 4C 58 31 | version u16 = 1 | flags u16 | length u32 | payload
//! our own     46 58 58 31 | kind u16 | flags u16 | correlation u64 | length u32 | body
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::extension::{self, ExtensionFrame};
use crate::flags::{Flags, FlagsRefused, Layout};

/// Length of a published frame's header, in bytes.
pub const HEADER_BYTES: usize = 12;

/// First four bytes of a published frame.
pub const MAGIC: [u8; 4] = *b"FLX1";

/// The only version there is.
pub const VERSION: u16 = 1;

/// A published frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the payload is laid out. Known and fitting together.
    pub flags: Flags,
    /// Length of the payload, in bytes.
    pub length: u32,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// When the magic or version is another, or the flags stand for no layout.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameRefused> {
        // protocol: frame.1
        let mut rest = bytes.as_slice();
        let magic = rest.get_u32().to_be_bytes();
        if magic != MAGIC {
            return Err(FrameRefused::Magic { found: magic });
        }
        let version = rest.get_u16();
        if version != VERSION {
            return Err(FrameRefused::Version { found: version });
        }
        let flags = Flags::from_bits(rest.get_u16());
        flags.layout()?;
        Ok(Self {
            flags,
            length: rest.get_u32(),
        })
    }

    /// Writes a header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut rest = bytes.as_mut_slice();
        rest.put_slice(&MAGIC);
        rest.put_u16(VERSION);
        rest.put_u16(self.flags.bits());
        rest.put_u32(self.length);
        bytes
    }
}

/// A published frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How the payload is laid out.
    pub flags: Flags,
    /// The payload.
    pub payload: Bytes,
}

impl Frame {
    /// How the payload is laid out.
    ///
    /// # Errors
    /// Never for a frame that was read, only for one put together by hand.
    pub fn layout(&self) -> Result<Layout, FlagsRefused> {
        self.flags.layout()
    }

    /// The frame as bytes.
    pub fn encode(&self) -> Bytes {
        let mut frame = begin(self.flags, self.payload.len());
        frame.extend_from_slice(&self.payload);
        frame.freeze()
    }
}

/// Starts a frame: its header, and room for a payload of `length` bytes in the same buffer.
pub(crate) fn begin(flags: Flags, length: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + length);
    frame.put_slice(
        &Header {
            flags,
            length: length_field(length),
        }
        .encode(),
    );
    frame
}

/// A length as the header carries it. What memory holds in one piece and a peer would accept is
/// far below the field's limit; anything else is refused by the peer as too long.
pub(crate) fn length_field(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// One frame of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A frame of the published protocol.
    Published(Frame),
    /// A frame of one of our own extensions.
    Extension(ExtensionFrame),
}

/// Which frames a reader accepts at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// The longest payload, in bytes.
    pub payload_bytes_max: usize,
    /// Whether our own frames may come, because an extension was granted.
    pub extensions: bool,
}

/// Takes the first frame off a buffer; `None` when it has not arrived completely.
///
/// A frame is refused as soon as its header shows why, so no more than one accepted frame is ever
/// held back waiting.
///
/// # Errors
/// When the bytes are no frame, or one that is not accepted. The stream is unreadable from here.
pub fn split(buffer: &mut BytesMut, accepts: Accepts) -> Result<Option<Incoming>, FrameRefused> {
    let Some(magic) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    // protocol: extension.1
    if *magic == extension::MAGIC && accepts.extensions {
        return extension::split(buffer, accepts.payload_bytes_max)
            .map(|frame| frame.map(Incoming::Extension));
    }
    if *magic != MAGIC {
        return Err(FrameRefused::Magic { found: *magic });
    }
    let Some(header) = buffer.first_chunk() else {
        return Ok(None);
    };
    let Header { flags, length } = Header::decode(header)?;
    let payload = take(buffer, HEADER_BYTES, length, accepts.payload_bytes_max)?;
    Ok(payload.map(|payload| Incoming::Published(Frame { flags, payload })))
}

/// Takes a header and the payload behind it off a buffer.
pub(crate) fn take(
    buffer: &mut BytesMut,
    header_bytes: usize,
    length: u32,
    limit: usize,
) -> Result<Option<Bytes>, FrameRefused> {
    // protocol: frame.2
    let wanted = length as usize;
    if wanted > limit {
        return Err(FrameRefused::TooLong { length, limit });
    }
    if buffer.len() < header_bytes + wanted {
        return Ok(None);
    }
    buffer.advance(header_bytes);
    Ok(Some(buffer.split_to(wanted).freeze()))
}

/// Why bytes are not a frame this reader takes. Nothing after them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameRefused {
    /// Not the start of a frame.
    #[error("a frame cannot start with {found:02x?}")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A version this library does not know.
    #[error("frame version {found} is not {VERSION}")]
    Version {
        /// The version field.
        found: u16,
    },
    /// Flags that stand for no layout.
    #[error(transparent)]
    Flags(#[from] FlagsRefused),
    /// Longer than this reader takes.
    #[error("a payload of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// The length field.
        length: u32,
        /// The limit that was passed.
        limit: usize,
    },
}
