//! Answers to publishes, in binary or JSON as the request wants.
//!
//! ```text
//! status u8 (0 ok, 1 error), request_id u64, message_len u16, message
//! [code:   number u16, retry u8]                         failures only
//! [detail: reason_len u16, reason, retry_after_ms u64]   failures only, with code
//! [owner:  node_id_len u16, node_id, addr_len u16, addr, generation u64]
//! [offset: u64]                                          successes only
//! ```

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cursor::{Cursor, Malformed};
use crate::error::{Detail, Failure, NamedCode, Retry};
use crate::flags::Flags;
use crate::frame::{HEADER_BYTES, Header, length_field};
use crate::message::{Message, PublishError, PublishOk};

/// The broker that leads the shard a forwarded batch went to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub node_id: String,
    /// Its client address, when it is published.
    pub addr: Option<String>,
    /// The generation in which it leads.
    pub generation: u64,
}

/// The answer to one acknowledged publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The request's id.
    pub request_id: u64,
    /// The offset of the batch's first record, where there is one; or why it was not taken.
    pub outcome: Result<Option<u64>, Failure>,
    /// Present when the batch was forwarded.
    pub owner: Option<Owner>,
}

/// In which form an answer is given: that of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckForm {
    /// A binary acknowledgement.
    Binary,
    /// `publish_ok` or `publish_error`.
    Json,
}

impl AckForm {
    /// How a publish with these flags is answered. Idempotent ones are answered in JSON, because
    /// their refusals exist in JSON only.
    pub const fn of(flags: Flags) -> Self {
        // protocol: publish.11
        if flags.contains(Flags::PUBLISH) && !flags.contains(Flags::PUBLISH_IDEMPOTENT) {
            Self::Binary
        } else {
            Self::Json
        }
    }
}

impl Ack {
    /// Reads a binary answer. The flags are those of its frame.
    ///
    /// # Errors
    /// When the payload is not laid out as the flags say, the status is neither success nor
    /// failure, or a failure has an offset.
    pub fn decode(flags: Flags, payload: Bytes) -> Result<Self, Malformed> {
        let mut cursor = Cursor(payload);
        let status = cursor.u8("status")?;
        let request_id = cursor.u64("request_id")?;
        let message = cursor.string("message")?;
        // protocol: publish.15
        let failed = match status {
            0 => false,
            1 if flags.contains(Flags::ACK_OFFSET) => {
                return Err(Malformed::Value {
                    field: "status",
                    value: 1,
                });
            }
            1 => true,
            other => {
                return Err(Malformed::Value {
                    field: "status",
                    value: other.into(),
                });
            }
        };
        let mut failure = Failure::uncoded(message);
        if flags.contains(Flags::ACK_CODE) {
            failure.code = Some(NamedCode::from_number(cursor.u16("code")?));
            failure.retry = Some(Retry::from_byte(cursor.u8("retry")?));
        }
        if flags.contains(Flags::ACK_DETAIL) {
            let reason = Some(cursor.string("reason")?).filter(|reason| !reason.is_empty());
            let retry_after_ms = Some(cursor.u64("retry_after_ms")?).filter(|&ms| ms != 0);
            failure.detail = Some(Detail {
                reason,
                retry_after_ms,
            });
        }
        let owner = if flags.contains(Flags::ACK_OWNER) {
            Some(Owner::decode(&mut cursor)?)
        } else {
            None
        };
        let offset = if flags.contains(Flags::ACK_OFFSET) {
            Some(cursor.u64("offset")?)
        } else {
            None
        };
        let outcome = if failed { Err(failure) } else { Ok(offset) };
        Ok(Self {
            request_id,
            outcome,
            owner,
        })
    }

    /// Appends the answer as a binary frame, with those fields the peer can read.
    pub fn encode_into(&self, reads: Flags, buffer: &mut BytesMut) {
        let start = buffer.len();
        buffer.put_bytes(0, HEADER_BYTES);
        let mut flags = Flags::ACK;
        let failure = self.outcome.as_ref().err();
        buffer.put_u8(failure.is_some().into());
        buffer.put_u64(self.request_id);
        put_cut(buffer, failure.map_or("", |failure| &failure.message));
        if let Some(failure) = failure
            && let Some(number) = failure.code.as_ref().and_then(NamedCode::number)
            // protocol: publish.12
            && reads.contains(Flags::ACK_CODE)
        {
            flags = flags | Flags::ACK_CODE;
            buffer.put_u16(number);
            buffer.put_u8(failure.retry().byte());
            if let Some(detail) = &failure.detail
                && reads.contains(Flags::ACK_DETAIL)
            {
                flags = flags | Flags::ACK_DETAIL;
                put_cut(buffer, detail.reason.as_deref().unwrap_or_default());
                buffer.put_u64(detail.retry_after_ms.unwrap_or_default());
            }
        }
        if let Some(owner) = &self.owner
            && reads.contains(Flags::ACK_OWNER)
        {
            flags = flags | Flags::ACK_OWNER;
            owner.encode_into(buffer);
        }
        if let Ok(Some(offset)) = self.outcome
            && reads.contains(Flags::ACK_OFFSET)
        {
            flags = flags | Flags::ACK_OFFSET;
            buffer.put_u64(offset);
        }
        let length = length_field(buffer.len() - start - HEADER_BYTES);
        let header = Header { flags, length }.encode();
        if let Some(room) = buffer.get_mut(start..start + HEADER_BYTES) {
            room.copy_from_slice(&header);
        }
    }

    /// The answer as a JSON message. JSON has no place for an owner.
    pub fn into_message(self) -> Message {
        match self.outcome {
            Ok(offset) => PublishOk {
                request_id: self.request_id,
                offset,
            }
            .into(),
            Err(failure) => PublishError::new(self.request_id, failure).into(),
        }
    }
}

impl Owner {
    pub(crate) fn decode(cursor: &mut Cursor) -> Result<Self, Malformed> {
        let node_id = cursor.string("node_id")?;
        let addr = Some(cursor.string("addr")?).filter(|addr| !addr.is_empty());
        let generation = cursor.u64("generation")?;
        Ok(Self {
            node_id,
            addr,
            generation,
        })
    }

    pub(crate) fn encode_into(&self, buffer: &mut BytesMut) {
        put_cut(buffer, &self.node_id);
        put_cut(buffer, self.addr.as_deref().unwrap_or_default());
        buffer.put_u64(self.generation);
    }
}

/// Writes text behind a two-byte length, cut at a character if it is longer than that can say.
/// The texts of an answer are ours and short; cutting keeps the answer readable in any case.
pub(crate) fn put_cut(buffer: &mut BytesMut, text: &str) {
    let text = text
        .get(..text.floor_char_boundary(usize::from(u16::MAX)))
        .unwrap_or_default();
    buffer.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    buffer.put_slice(text.as_bytes());
}
