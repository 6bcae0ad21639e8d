//! The `reauth` extension: a fresh token in place of one that runs out, on streams that stay open.
//!
//! Streams and subscriptions that were opened with one token on one connection share an *identity*, which has a number.
//! A stream that was granted the extension hears of every identity of its own principal on its connection before the
//! token behind it runs out, and brings the next token for it.
//!
//! ```text
//! expiring  broker  correlation: the identity     left_ms u64
//! renew     client  correlation: of its choice    identity u64, token_len u16, token
//! renewed   broker  correlation: the request's    left_ms u64
//! ```

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{ExtensionFrame, HEADER_BYTES, Kind, known_flags, put_header};
use crate::cursor::{Cursor, Malformed};

/// A token is about to run out. Times are relative, so that clocks need not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// Milliseconds for which what was opened with the token goes on.
    pub left_ms: u64,
}

/// Brings the next token for an identity.
#[derive(Clone, PartialEq, Eq)]
pub struct Renew {
    /// The identity, as the broker numbered it.
    pub identity: u64,
    /// The next token: of the same tenant, principal and actor.
    pub token: String,
}

/// The token was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Milliseconds for which the identity is good now.
    pub left_ms: u64,
}

impl fmt::Debug for Renew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Expiring {
    /// The notice as a frame.
    #[must_use]
    pub fn encode(self, identity: u64) -> Bytes {
        left(Kind::Expiring, identity, self.left_ms)
    }

    pub(super) fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        read_left(flags, body).map(|left_ms| Self { left_ms })
    }
}

impl Renewed {
    /// The answer as a frame.
    #[must_use]
    pub fn encode(self, correlation: u64) -> Bytes {
        left(Kind::Renewed, correlation, self.left_ms)
    }

    pub(super) fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        read_left(flags, body).map(|left_ms| Self { left_ms })
    }
}

impl Renew {
    /// The request as a frame; `None` when the token is longer than 65,535 bytes, which no broker would take.
    #[must_use]
    pub fn encode(&self, correlation: u64) -> Option<Bytes> {
        let length = u16::try_from(self.token.len()).ok()?;
        let mut body = BytesMut::with_capacity(10 + self.token.len());
        body.put_u64(self.identity);
        body.put_u16(length);
        body.put_slice(self.token.as_bytes());
        let frame = ExtensionFrame {
            kind: Kind::Renew.number(),
            flags: 0,
            correlation,
            body: body.freeze(),
        };
        Some(frame.encode())
    }

    pub(super) fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        known_flags(flags, 0)?;
        let mut cursor = Cursor(body);
        let identity = cursor.u64("identity")?;
        let token = cursor.string("token")?;
        end(&cursor)?;
        Ok(Self { identity, token })
    }
}

fn left(kind: Kind, correlation: u64, left_ms: u64) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + 8);
    put_header(&mut frame, kind.number(), 0, correlation, 8);
    frame.put_u64(left_ms);
    frame.freeze()
}

fn read_left(flags: u16, body: Bytes) -> Result<u64, Malformed> {
    known_flags(flags, 0)?;
    let mut cursor = Cursor(body);
    let left_ms = cursor.u64("left_ms")?;
    end(&cursor)?;
    Ok(left_ms)
}

fn end(cursor: &Cursor) -> Result<(), Malformed> {
    match cursor.0.len() {
        0 => Ok(()),
        bytes => Err(Malformed::Behind { bytes }),
    }
}
