//! Batches made record by record.

use bytes::{BufMut, BytesMut};

use super::header::{ATTR_APPEND_TIME, put_header};
use super::pack::pack;
use super::varint::{length, put_varint, varint_len};
use super::{
    ATTR_INTERNAL, BatchHeader, BuildRefused, Compression, HEADER_BYTES, TimestampType, seal,
};
use crate::ProducerId;
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

/// What a batch is besides its records.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOptions {
    /// How the records are compressed.
    pub compression: Compression,
    /// Whether the records' headers are the broker's own ([`super::ATTR_INTERNAL`]).
    pub internal: bool,
    /// Whose clock the times are from.
    pub timestamp_type: TimestampType,
    /// The idempotent producer's mark.
    pub producer: Option<ProducerStamp>,
}

/// What an idempotent producer puts into the header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Who.
    pub id: ProducerId,
    /// Kafka's epoch; 0 for native producers.
    pub epoch: i16,
    /// Kafka's sequence of the first record, or the low 31 bits of a native sequence.
    pub base_sequence: i32,
}

/// Collects records and makes a batch of them.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Room for the header, then the encoded records.
    bytes: BytesMut,
    records: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// A batch without records.
    #[must_use]
    pub fn new(options: BatchOptions) -> Self {
        Self {
            options,
            bytes: BytesMut::zeroed(HEADER_BYTES),
            records: 0,
            base_timestamp: 0,
            max_timestamp: i64::MIN,
        }
    }

    /// How many records were pushed.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes of the batch as it stands, not compressed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record. A value of `None` is a tombstone. When it is refused, the batch is as before.
    ///
    /// # Errors
    /// When the batch would pass a limit, or the time is too far from the first record's to be told.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), BuildRefused> {
        if self.records >= BATCH_RECORDS_MAX {
            let records = u64::from(self.records) + 1;
            return Err(BuildRefused::TooMany {
                records,
                limit: BATCH_RECORDS_MAX,
            });
        }
        let base_ms = if self.records == 0 {
            timestamp_ms
        } else {
            self.base_timestamp
        };
        let delta = timestamp_ms
            .checked_sub(base_ms)
            .ok_or(BuildRefused::Time {
                timestamp_ms,
                base_ms,
            })?;
        let offset_delta = i64::from(self.records);
        let body = 1
            + varint_len(delta)
            + varint_len(offset_delta)
            + nullable_len(key)
            + nullable_len(value)
            + varint_len(headers.len() as i64)
            + headers
                .iter()
                .map(|(key, value)| nullable_len(Some(key)) + nullable_len(*value))
                .sum::<usize>();
        let total = self.bytes.len() + varint_len(body as i64) + body;
        if total > BATCH_BYTES_MAX {
            return Err(BuildRefused::TooLarge {
                bytes: total,
                limit: BATCH_BYTES_MAX,
            });
        }
        let out = &mut self.bytes;
        put_varint(out, body as i64);
        out.put_u8(0);
        put_varint(out, delta);
        put_varint(out, offset_delta);
        put_nullable(out, key);
        put_nullable(out, value);
        put_varint(out, headers.len() as i64);
        for (key, value) in headers {
            put_nullable(out, Some(key));
            put_nullable(out, *value);
        }
        self.base_timestamp = base_ms;
        self.max_timestamp = self.max_timestamp.max(timestamp_ms);
        self.records += 1;
        Ok(())
    }

    /// The batch: base offset 0, leader epoch 0, checksum in place.
    ///
    /// # Errors
    /// When there is no record, when the producer's id is none, or when the encoder fails.
    pub fn finish(self) -> Result<BytesMut, BuildRefused> {
        if self.records == 0 {
            return Err(BuildRefused::Empty);
        }
        let options = self.options;
        let mut batch = self.bytes;
        if options.compression != Compression::None {
            let records = batch.get(HEADER_BYTES..).unwrap_or_default();
            let packed = pack(options.compression, records)?;
            batch.truncate(HEADER_BYTES);
            batch.put_slice(&packed);
        }
        let total = batch.len();
        if total > BATCH_BYTES_MAX {
            return Err(BuildRefused::TooLarge {
                bytes: total,
                limit: BATCH_BYTES_MAX,
            });
        }
        let header = new_header(&NewBatch {
            options,
            total_bytes: total,
            records: self.records,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
        })?;
        let mut front = BytesMut::with_capacity(HEADER_BYTES);
        put_header(&mut front, &header);
        if let Some(place) = batch.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&front);
        }
        seal(&mut batch);
        Ok(batch)
    }
}

/// What the header of a new batch is made from.
pub(crate) struct NewBatch {
    pub(crate) options: BatchOptions,
    /// At most [`BATCH_BYTES_MAX`].
    pub(crate) total_bytes: usize,
    /// From 1 to [`BATCH_RECORDS_MAX`].
    pub(crate) records: u32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
}

/// A header without its checksum.
pub(crate) fn new_header(batch: &NewBatch) -> Result<BatchHeader, BuildRefused> {
    let options = &batch.options;
    let producer = options.producer;
    if let Some(ProducerId(id)) = producer.map(|producer| producer.id)
        && id > ProducerId::MAX.0
    {
        return Err(BuildRefused::Producer {
            id,
            limit: ProducerId::MAX.0,
        });
    }
    let mut attributes = options.compression.code();
    if options.timestamp_type == TimestampType::Append {
        attributes |= ATTR_APPEND_TIME;
    }
    if options.internal {
        attributes |= ATTR_INTERNAL;
    }
    Ok(BatchHeader {
        base_offset: 0,
        batch_length: (batch.total_bytes - 12) as i32,
        leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes,
        last_offset_delta: batch.records as i32 - 1,
        base_timestamp: batch.base_timestamp,
        max_timestamp: batch.max_timestamp,
        producer_id: producer.map_or(-1, |producer| producer.id.0 as i64),
        producer_epoch: producer.map_or(-1, |producer| producer.epoch),
        base_sequence: producer.map_or(-1, |producer| producer.base_sequence),
        record_count: batch.records as i32,
    })
}

/// Bytes of a byte string with its length before it.
pub(crate) fn nullable_len(field: Option<&[u8]>) -> usize {
    match field {
        None => 1,
        Some(bytes) => varint_len(length(bytes)) + bytes.len(),
    }
}

/// Appends a byte string with its length before it; -1 is null.
pub(crate) fn put_nullable(out: &mut BytesMut, field: Option<&[u8]>) {
    match field {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length(bytes));
            out.put_slice(bytes);
        }
    }
}
