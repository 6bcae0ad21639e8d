//! Publish batches in binary.
//!
//! ```text
//! [acked:      request_id u64, ack_mode u8]
//! [idempotent: producer_id u64, sequence u64]
//! [keyed:      key_len u16, key]
//! tenant_len u16, tenant, namespace_len u16, namespace, stream_len u16, stream
//! count u32, count x (len u32, payload)
//! ```

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_model::{Payloads, PayloadsRefused};

use crate::cursor::{Cursor, Malformed, skip_text};
use crate::error::{Code, Failure};
use crate::flags::Flags;
use crate::frame;
use crate::limits::PAYLOAD_BYTES_MAX;

/// How a binary publish wants to be answered. Both are answered once a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BinaryAck {
    /// Byte 1.
    PerMessage = 1,
    /// Byte 2.
    PerBatch = 2,
}

/// The request an acknowledged publish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Echoed in the answer.
    pub id: u64,
    /// How it wants to be answered.
    pub ack: BinaryAck,
}

/// Who publishes, and which of his batches this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// From `producer_init_ok`.
    pub id: u64,
    /// Counts batches of this producer on this shard, from 0.
    pub sequence: u64,
}

/// A publish batch as it was received. Everything in it shares the frame's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Absent when no answer is wanted, not even on failure.
    pub request: Option<Request>,
    /// Present when a resend must not append twice; the answer is JSON then.
    pub producer: Option<Producer>,
    /// Routing key; an empty key is a key.
    pub key: Option<Bytes>,
    /// Where the batch goes.
    pub names: Names,
    /// What is appended.
    pub payloads: Payloads,
}

/// Tenant, namespace and stream as they stand in the frame, each behind its length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    raw: Bytes,
    namespace_at: usize,
    stream_at: usize,
}

impl Names {
    /// Names for a frame about to be sent.
    ///
    /// # Errors
    /// When a name is too long for its length.
    pub fn new(tenant: &str, namespace: &str, stream: &str) -> Result<Self, PublishTooLong> {
        let mut raw = BytesMut::new();
        put_names(&mut raw, [tenant, namespace, stream])?;
        let namespace_at = 2 + tenant.len() + 2;
        Ok(Self {
            raw: raw.freeze(),
            namespace_at,
            stream_at: namespace_at + namespace.len() + 2,
        })
    }

    /// The bytes, the same for every publish to the same stream: a key to remember it by.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        self.part(2, self.namespace_at.saturating_sub(2))
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.part(self.namespace_at, self.stream_at.saturating_sub(2))
    }

    /// The stream.
    pub fn stream(&self) -> &str {
        self.part(self.stream_at, self.raw.len())
    }

    pub(crate) fn decode(cursor: &mut Cursor) -> Result<Self, Malformed> {
        // On plain slices: the shared buffer is counted once, when the names are known to be good.
        let mut rest = &cursor.0[..];
        let namespace_at = 2 + skip_text(&mut rest, "tenant")? + 2;
        let stream_at = namespace_at + skip_text(&mut rest, "namespace")? + 2;
        let length = stream_at + skip_text(&mut rest, "stream")?;
        Ok(Self {
            raw: cursor.bytes(length, "stream")?,
            namespace_at,
            stream_at,
        })
    }

    /// Every part was seen to be text when the names were read.
    fn part(&self, from: usize, to: usize) -> &str {
        let bytes = self.raw.get(from..to).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Publish {
    /// Reads a publish batch. The flags are those of its frame.
    ///
    /// # Errors
    /// When the payload is not laid out as the flags say. The error names the request if that much
    /// could be read, so that it can be answered.
    pub fn decode(flags: Flags, payload: Bytes) -> Result<Self, PublishMalformed> {
        // protocol: publish.4
        let mut cursor = Cursor(payload);
        let mut request_id = None;
        if flags.contains(Flags::PUBLISH_ACKED) {
            let id = cursor.u64("request_id");
            request_id = Some(id.map_err(|reason| PublishMalformed {
                request_id: None,
                reason,
            })?);
        }
        Self::decode_rest(flags, request_id, &mut cursor)
            .map_err(|reason| PublishMalformed { request_id, reason })
    }

    fn decode_rest(
        flags: Flags,
        request_id: Option<u64>,
        cursor: &mut Cursor,
    ) -> Result<Self, Malformed> {
        let request = match request_id {
            Some(id) => {
                let ack = match cursor.u8("ack_mode")? {
                    1 => BinaryAck::PerMessage,
                    2 => BinaryAck::PerBatch,
                    other => {
                        return Err(Malformed::Value {
                            field: "ack_mode",
                            value: other.into(),
                        });
                    }
                };
                Some(Request { id, ack })
            }
            None => None,
        };
        let producer = if flags.contains(Flags::PUBLISH_IDEMPOTENT) {
            // protocol: publish.3
            if let Some(Request {
                ack: ack @ BinaryAck::PerMessage,
                ..
            }) = request
            {
                return Err(Malformed::Value {
                    field: "ack_mode",
                    value: u64::from(ack as u8),
                });
            }
            Some(Producer {
                id: cursor.u64("producer_id")?,
                sequence: cursor.u64("sequence")?,
            })
        } else {
            None
        };
        let key = if flags.contains(Flags::PUBLISH_KEYED) {
            Some(cursor.short("key")?)
        } else {
            None
        };
        let names = Names::decode(cursor)?;
        // protocol: publish.5
        let payloads = Payloads::parse(cursor.0.clone())?;
        Ok(Self {
            request,
            producer,
            key,
            names,
            payloads,
        })
    }
}

/// A publish batch that is not laid out as its flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed publish: {reason}")]
pub struct PublishMalformed {
    /// The request, if an answer was wanted and its id could be read.
    pub request_id: Option<u64>,
    /// What is wrong.
    pub reason: Malformed,
}

impl PublishMalformed {
    /// What to answer: a batch of too many payloads is over a limit, anything else is not a batch.
    pub fn failure(&self) -> Failure {
        let code = match self.reason {
            Malformed::Payloads(PayloadsRefused::TooMany { .. }) => Code::LimitExceeded,
            Malformed::Payloads(_)
            | Malformed::Truncated { .. }
            | Malformed::NotText { .. }
            | Malformed::Value { .. }
            | Malformed::Behind { .. }
            | Malformed::Count { .. } => Code::InvalidRequest,
        };
        Failure::new(code, self.to_string())
    }
}

/// A publish batch about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Absent when no answer is wanted.
    pub request: Option<Request>,
    /// Needs a request with [`BinaryAck::PerBatch`].
    pub producer: Option<Producer>,
    /// Routing key; an empty key is a key.
    pub key: Option<&'a [u8]>,
    /// Tenant of the stream.
    pub tenant: &'a str,
    /// Namespace of the stream.
    pub namespace: &'a str,
    /// Name of the stream.
    pub stream: &'a str,
}

impl Outgoing<'_> {
    /// Everything of the frame up to the payload list, which the caller sends right behind it.
    /// So payloads need not be copied to be sent.
    ///
    /// # Errors
    /// When a field is too long for its length, or the frame for a peer to take.
    pub fn head(&self, payloads: &Payloads) -> Result<BytesMut, PublishTooLong> {
        let flags = Flags::PUBLISH
            .with_if(Flags::PUBLISH_ACKED, self.request.is_some())
            .with_if(Flags::PUBLISH_IDEMPOTENT, self.producer.is_some())
            .with_if(Flags::PUBLISH_KEYED, self.key.is_some());
        let prefixes = self.request.map_or(0, |_| 9)
            + self.producer.map_or(0, |_| 16)
            + self.key.map_or(0, |key| 2 + key.len());
        let names = 6 + self.tenant.len() + self.namespace.len() + self.stream.len();
        let length = prefixes + names + payloads.bytes.len();
        if length > PAYLOAD_BYTES_MAX {
            return Err(PublishTooLong::Frame {
                length,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let header = frame::Header {
            flags,
            length: frame::length_field(length),
        };
        let mut head = BytesMut::with_capacity(frame::HEADER_BYTES + prefixes + names);
        head.put_slice(&header.encode());
        if let Some(Request { id, ack }) = self.request {
            head.put_u64(id);
            head.put_u8(ack as u8);
        }
        if let Some(Producer { id, sequence }) = self.producer {
            head.put_u64(id);
            head.put_u64(sequence);
        }
        if let Some(key) = self.key {
            put_short(&mut head, key, "key")?;
        }
        put_names(&mut head, [self.tenant, self.namespace, self.stream])?;
        Ok(head)
    }

    /// The whole frame in one piece.
    ///
    /// # Errors
    /// As for [`head`](Self::head).
    pub fn encode(&self, payloads: &Payloads) -> Result<Bytes, PublishTooLong> {
        let mut frame = self.head(payloads)?;
        frame.extend_from_slice(&payloads.bytes);
        Ok(frame.freeze())
    }
}

pub(crate) fn put_names(
    into: &mut BytesMut,
    [tenant, namespace, stream]: [&str; 3],
) -> Result<(), PublishTooLong> {
    put_short(into, tenant.as_bytes(), "tenant")?;
    put_short(into, namespace.as_bytes(), "namespace")?;
    put_short(into, stream.as_bytes(), "stream")
}

pub(crate) fn put_short(
    into: &mut BytesMut,
    bytes: &[u8],
    field: &'static str,
) -> Result<(), PublishTooLong> {
    let length = u16::try_from(bytes.len()).map_err(|_| PublishTooLong::Field {
        field,
        length: bytes.len(),
    })?;
    into.put_u16(length);
    into.put_slice(bytes);
    Ok(())
}

/// A publish batch that no frame can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishTooLong {
    /// A field is longer than its length can say.
    #[error("{field} of {length} bytes is over 65535")]
    Field {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// The payload of the frame would be longer than peers take.
    #[error("a frame payload of {length} bytes is over the limit of {limit}")]
    Frame {
        /// How long it would be.
        length: usize,
        /// What peers take.
        limit: usize,
    },
}
