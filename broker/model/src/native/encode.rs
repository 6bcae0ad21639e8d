//! From a payload list to a batch: the way every native publish takes.

use bytes::{BufMut, BytesMut};

use super::{HEADER_PUBLISHER, HEADER_SEQUENCE, InternalHeaders, Payloads};
use crate::batch::varint::{length, put_varint, varint_len};
use crate::batch::{
    BatchOptions, BuildRefused, HEADER_BYTES, NewBatch, ProducerStamp, new_header, nullable_len,
    put_header, put_nullable, seal,
};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, PUBLISHER_BYTES_MAX};

/// Makes the batch of a native publish: one record for each payload, all with the same key and time, the
/// internal headers on the first. The size is computed first, so there is one allocation however many
/// payloads there are, and each payload is copied once.
///
/// # Errors
/// When there is no payload, when the key repeated in each record makes the batch too large, when the
/// publisher's name is too long, or when the producer's id is none that was ever given out.
pub fn records_from_payloads(
    payloads: &Payloads,
    key: Option<&[u8]>,
    timestamp_ms: i64,
    internal: &InternalHeaders<'_>,
) -> Result<BytesMut, BuildRefused> {
    let first_headers = FirstHeaders::new(internal)?;
    if payloads.is_empty() {
        return Err(BuildRefused::Empty);
    }
    if payloads.count > BATCH_RECORDS_MAX {
        let records = u64::from(payloads.count);
        return Err(BuildRefused::TooMany {
            records,
            limit: BATCH_RECORDS_MAX,
        });
    }
    let shape = Shape {
        key,
        key_bytes: nullable_len(key),
        first_headers,
    };
    let total = HEADER_BYTES + shape.records_bytes(payloads);
    if total > BATCH_BYTES_MAX {
        return Err(BuildRefused::TooLarge {
            bytes: total,
            limit: BATCH_BYTES_MAX,
        });
    }
    let header = new_header(&NewBatch {
        options: BatchOptions {
            internal: !internal.is_empty(),
            producer: internal.sequence.map(|native| ProducerStamp {
                id: native.producer,
                epoch: 0,
                base_sequence: low_31_bits(native.sequence),
            }),
            ..BatchOptions::default()
        },
        total_bytes: total,
        records: payloads.count,
        base_timestamp: timestamp_ms,
        max_timestamp: timestamp_ms,
    })?;
    let mut batch = BytesMut::with_capacity(total);
    put_header(&mut batch, &header);
    for (delta, payload) in (0_i64..).zip(payloads) {
        shape.put(&mut batch, delta, payload);
    }
    debug_assert_eq!(batch.len(), total);
    seal(&mut batch);
    Ok(batch)
}

/// The part of a native sequence that the batch header has room for.
pub(super) fn low_31_bits(sequence: u64) -> i32 {
    (sequence & 0x7fff_ffff) as i32
}

/// What the records of one publish have in common.
struct Shape<'a> {
    key: Option<&'a [u8]>,
    /// Of the key with its length.
    key_bytes: usize,
    first_headers: FirstHeaders<'a>,
}

impl Shape<'_> {
    fn records_bytes(&self, payloads: &Payloads) -> usize {
        (0_i64..)
            .zip(payloads)
            .map(|(delta, payload)| {
                let body = self.body_bytes(delta, payload);
                varint_len(body as i64) + body
            })
            .fold(0, usize::saturating_add)
    }

    /// Attributes, a timestamp delta of 0, offset delta, key, value, headers.
    fn body_bytes(&self, delta: i64, payload: &[u8]) -> usize {
        let headers = if delta == 0 {
            self.first_headers.bytes
        } else {
            1
        };
        2 + varint_len(delta)
            + self.key_bytes
            + varint_len(length(payload))
            + payload.len()
            + headers
    }

    fn put(&self, out: &mut BytesMut, delta: i64, payload: &[u8]) {
        put_varint(out, self.body_bytes(delta, payload) as i64);
        out.put_u16(0);
        put_varint(out, delta);
        put_nullable(out, self.key);
        put_varint(out, length(payload));
        out.put_slice(payload);
        if delta == 0 {
            self.first_headers.put(out);
        } else {
            out.put_u8(0);
        }
    }
}

/// The internal headers as they stand on the first record.
struct FirstHeaders<'a> {
    publisher: Option<&'a [u8]>,
    sequence: Option<[u8; 8]>,
    /// Of all headers and their count.
    bytes: usize,
}

impl<'a> FirstHeaders<'a> {
    fn new(internal: &InternalHeaders<'a>) -> Result<Self, BuildRefused> {
        let publisher = internal.publisher.map(str::as_bytes);
        if let Some(name) = publisher.filter(|name| name.len() > PUBLISHER_BYTES_MAX) {
            return Err(BuildRefused::Publisher {
                bytes: name.len(),
                limit: PUBLISHER_BYTES_MAX,
            });
        }
        let sequence = internal
            .sequence
            .map(|native| native.sequence.to_be_bytes());
        let mut headers = Self {
            publisher,
            sequence,
            bytes: 0,
        };
        headers.bytes = 1 + headers
            .iter()
            .map(|(key, value)| nullable_len(Some(key)) + nullable_len(Some(value)))
            .sum::<usize>();
        Ok(headers)
    }

    fn iter(&self) -> impl Iterator<Item = (&'static [u8], &[u8])> {
        let publisher = self.publisher.map(|name| (HEADER_PUBLISHER, name));
        let sequence = self
            .sequence
            .as_ref()
            .map(|bytes| (HEADER_SEQUENCE, bytes.as_slice()));
        publisher.into_iter().chain(sequence)
    }

    fn put(&self, out: &mut BytesMut) {
        put_varint(out, self.iter().count() as i64);
        for (key, value) in self.iter() {
            put_nullable(out, Some(key));
            put_nullable(out, Some(value));
        }
    }
}
