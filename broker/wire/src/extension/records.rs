//! The `records` extension: record batches in both directions, as they stand in the log.
//!
//! A subscription that asked for records gets `deliver` frames on its event stream, between the
//! hello and the terminal message of the published protocol, in place of event batches.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{HEADER_BYTES, Kind, known_flags, optional, put_header};
use crate::ack::Owner;
use crate::cursor::{Cursor, Malformed};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::publish::{Names, Producer, PublishTooLong, put_names, put_short};

const SILENT: u16 = 0x0001;
const SHARD: u16 = 0x0002;
const KEYED: u16 = 0x0004;
const IDEMPOTENT: u16 = 0x0008;
const CONDITIONAL: u16 = 0x0010;

/// Appends one record batch.
///
/// ```text
/// [0x0002: shard u32] [0x0004: key_len u16, key] [0x0008: producer_id u64, sequence u64]
/// [0x0010: expected_offset u64]
/// tenant_len u16, tenant, namespace_len u16, namespace, stream_len u16, stream
/// one record batch v2, to the end
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRecords {
    /// Flag 0x0001: no answer is wanted, not even on failure.
    pub silent: bool,
    /// The shard to write to; goes before the key.
    pub shard: Option<u32>,
    /// Routes the whole batch; the keys of its records do not. An empty key is a key.
    pub key: Option<Bytes>,
    /// Present when a resend must not append twice.
    pub producer: Option<Producer>,
    /// Append only if this is the shard's next offset.
    pub expected_offset: Option<u64>,
    /// Where the batch goes.
    pub names: Names,
    /// The batch, not yet looked into.
    pub batch: Bytes,
}

impl PublishRecords {
    /// Reads the body of a publish.
    ///
    /// # Errors
    /// When the body is not laid out as the flags say.
    pub fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        known_flags(flags, SILENT | SHARD | KEYED | IDEMPOTENT | CONDITIONAL)?;
        let mut cursor = Cursor(body);
        let shard = optional(flags, SHARD, || cursor.u32("shard"))?;
        let key = optional(flags, KEYED, || cursor.short("key"))?;
        let producer = optional(flags, IDEMPOTENT, || {
            let id = cursor.u64("producer_id")?;
            Ok(Producer {
                id,
                sequence: cursor.u64("sequence")?,
            })
        })?;
        let expected_offset = optional(flags, CONDITIONAL, || cursor.u64("expected_offset"))?;
        let names = Names::decode(&mut cursor)?;
        let silent = flags & SILENT != 0;
        Ok(Self {
            silent,
            shard,
            key,
            producer,
            expected_offset,
            names,
            batch: cursor.0,
        })
    }
}

/// A publish of records about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct RecordsHead<'a> {
    /// Whether no answer is wanted.
    pub silent: bool,
    /// The shard to write to; goes before the key.
    pub shard: Option<u32>,
    /// Routes the whole batch.
    pub key: Option<&'a [u8]>,
    /// Present when a resend must not append twice.
    pub producer: Option<Producer>,
    /// Append only if this is the shard's next offset.
    pub expected_offset: Option<u64>,
    /// Tenant of the stream.
    pub tenant: &'a str,
    /// Namespace of the stream.
    pub namespace: &'a str,
    /// Name of the stream.
    pub stream: &'a str,
}

impl RecordsHead<'_> {
    /// Everything of the frame up to the batch, which the caller sends right behind it.
    ///
    /// # Errors
    /// When a field is too long for its length, or the frame for a peer to take.
    pub fn encode(&self, correlation: u64, batch: &Bytes) -> Result<BytesMut, PublishTooLong> {
        let mut flags = 0;
        let mut fields = BytesMut::new();
        if self.silent {
            flags |= SILENT;
        }
        if let Some(shard) = self.shard {
            flags |= SHARD;
            fields.put_u32(shard);
        }
        if let Some(key) = self.key {
            flags |= KEYED;
            put_short(&mut fields, key, "key")?;
        }
        if let Some(Producer { id, sequence }) = self.producer {
            flags |= IDEMPOTENT;
            fields.put_u64(id);
            fields.put_u64(sequence);
        }
        if let Some(expected_offset) = self.expected_offset {
            flags |= CONDITIONAL;
            fields.put_u64(expected_offset);
        }
        put_names(&mut fields, [self.tenant, self.namespace, self.stream])?;
        let length = fields.len() + batch.len();
        if length > PAYLOAD_BYTES_MAX {
            return Err(PublishTooLong::Frame {
                length,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let mut head = BytesMut::with_capacity(HEADER_BYTES + fields.len());
        put_header(
            &mut head,
            Kind::PublishRecords.number(),
            flags,
            correlation,
            length,
        );
        head.put_slice(&fields);
        Ok(head)
    }
}

const OFFSET: u16 = 0x0001;
const OWNER: u16 = 0x0002;

/// The batch is appended.
///
/// ```text
/// [0x0001: offset u64] [0x0002: node_id_len u16, node_id, addr_len u16, addr, generation u64]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Offset of the batch's first record; absent for in-memory streams.
    pub offset: Option<u64>,
    /// Who leads the shard, when the batch was forwarded.
    pub owner: Option<Owner>,
}

impl Published {
    /// Appends the answer as a frame to a buffer.
    pub fn encode_into(&self, correlation: u64, buffer: &mut BytesMut) {
        let mut flags = 0;
        let mut body = BytesMut::with_capacity(8);
        if let Some(offset) = self.offset {
            flags |= OFFSET;
            body.put_u64(offset);
        }
        if let Some(owner) = &self.owner {
            flags |= OWNER;
            owner.encode_into(&mut body);
        }
        put_header(
            buffer,
            Kind::Published.number(),
            flags,
            correlation,
            body.len(),
        );
        buffer.put_slice(&body);
    }

    /// Reads the body of the answer.
    ///
    /// # Errors
    /// When the body is not laid out as the flags say.
    pub fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        known_flags(flags, OFFSET | OWNER)?;
        let mut cursor = Cursor(body);
        let offset = optional(flags, OFFSET, || cursor.u64("offset"))?;
        let owner = optional(flags, OWNER, || Owner::decode(&mut cursor))?;
        Ok(Self { offset, owner })
    }
}

const SKIPPED: u16 = 0x0001;
const LOST: u16 = 0x0002;

/// Record batches of a subscription, which is the frame's correlation.
///
/// ```text
/// first u64 [0x0001: skipped_before u64] [0x0002: lost u64]
/// record batches v2, one behind the other, to the end
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// Records below this offset are not part of the delivery: a batch is sent whole even when the
    /// subscription begins inside it.
    pub first: u64,
    /// How many offsets directly below `first` hold no event.
    pub skipped_before: u64,
    /// How many records below `first` this reader has lost to its slowness since the last delivery.
    pub lost: u64,
    /// The batches, not yet looked into.
    pub batches: Bytes,
}

impl Deliver {
    /// Everything of the frame up to the batches, of which `batches_bytes` bytes follow.
    pub fn head(
        subscription_id: u64,
        first: u64,
        skipped_before: u64,
        lost: u64,
        batches_bytes: usize,
    ) -> BytesMut {
        let mut flags = 0;
        let mut fields = BytesMut::with_capacity(24);
        fields.put_u64(first);
        if skipped_before != 0 {
            flags |= SKIPPED;
            fields.put_u64(skipped_before);
        }
        if lost != 0 {
            flags |= LOST;
            fields.put_u64(lost);
        }
        let length = fields.len() + batches_bytes;
        let mut head = BytesMut::with_capacity(HEADER_BYTES + fields.len());
        put_header(
            &mut head,
            Kind::Deliver.number(),
            flags,
            subscription_id,
            length,
        );
        head.put_slice(&fields);
        head
    }

    /// Reads the body of a delivery.
    ///
    /// # Errors
    /// When the body is not laid out as the flags say.
    pub fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        known_flags(flags, SKIPPED | LOST)?;
        let mut cursor = Cursor(body);
        let first = cursor.u64("first")?;
        let skipped_before =
            optional(flags, SKIPPED, || cursor.u64("skipped_before"))?.unwrap_or_default();
        let lost = optional(flags, LOST, || cursor.u64("lost"))?.unwrap_or_default();
        Ok(Self {
            first,
            skipped_before,
            lost,
            batches: cursor.0,
        })
    }
}
