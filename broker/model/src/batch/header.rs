//! The 61 bytes before the records.

use bytes::{Buf, BufMut, BytesMut};
use serde::{Deserialize, Serialize};

use super::BatchRefused;
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_BYTES_MIN, UNPACKED_BYTES_MAX};
use crate::{Generation, Offset, ProducerId};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// Times of all records are the leader's; the header's maximum says which.
pub const ATTR_APPEND_TIME: i16 = 1 << 3;
/// The batch belongs to a transaction.
pub const ATTR_TRANSACTIONAL: i16 = 1 << 4;
/// The records are markers for brokers and consumers, not data.
pub const ATTR_CONTROL: i16 = 1 << 5;
/// The headers of the records are the broker's. Only a broker sets it.
pub const ATTR_INTERNAL: i16 = 1 << 8;

/// Bits 0 to 2.
const ATTR_COMPRESSION: i16 = 0b111;
/// What a client may set.
const ATTR_CLIENT: i16 = ATTR_COMPRESSION | ATTR_APPEND_TIME | ATTR_TRANSACTIONAL;
/// Bit 6: the base timestamp is when tombstones may be dropped. Kafka's own compaction writes it.
const ATTR_DELETE_HORIZON: i16 = 1 << 6;
/// What has a meaning at all.
const ATTR_KNOWN: i16 = ATTR_CLIENT | ATTR_CONTROL | ATTR_DELETE_HORIZON | ATTR_INTERNAL;

/// Bytes before and including the length field, which the length does not count.
const LENGTH_END: usize = 12;
/// Where the leader epoch stands.
const EPOCH_RANGE: std::ops::Range<usize> = 12..16;
/// Where the checksum stands.
pub(super) const CRC_RANGE: std::ops::Range<usize> = 17..21;
/// Where the latest time stands.
const ATTRIBUTES_RANGE: std::ops::Range<usize> = 21..23;
/// Bytes of the latest time.
const MAX_TIMESTAMP_RANGE: std::ops::Range<usize> = 35..43;
/// From here on the checksum counts.
pub(super) const CRC_START: usize = 21;

/// How the records of a batch are compressed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Raw, or in the framing of the Java library (`xerial`), which is what we write.
    Snappy,
    /// The LZ4 frame format, with independent blocks when we write it.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// The name as Kafka's `compression.type` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    fn from_attributes(attributes: i16) -> Result<Self, BatchRefused> {
        match attributes & ATTR_COMPRESSION {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            code => Err(BatchRefused::Compression { code: code as u8 }),
        }
    }
}

/// Whose clock the times of the records are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer's; each record has its own.
    #[default]
    Create,
    /// The leader's when it appended; all records have the header's maximum.
    Append,
}

/// The header of a batch, field by field as it stands in the bytes. One that came from
/// [`BatchHeader::parse`] is plausible: lengths, counts and offsets are within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; producers send 0, the leader patches it.
    pub base_offset: i64,
    /// Bytes that follow this field.
    pub batch_length: i32,
    /// Generation of the leader that appended the batch; producers send 0 or -1, the leader patches it.
    pub leader_epoch: i32,
    /// Always 2.
    pub magic: i8,
    /// CRC-32C over everything after this field.
    pub crc: u32,
    /// See the drawing in [`crate::batch`].
    pub attributes: i16,
    /// Offset of the last record, less the base. After compaction there may be fewer records than this
    /// says, never fewer offsets.
    pub last_offset_delta: i32,
    /// Time of the first record in milliseconds.
    pub base_timestamp: i64,
    /// Latest time of a record in milliseconds, or the append time.
    pub max_timestamp: i64,
    /// Who produced the batch idempotently; -1 for nobody.
    pub producer_id: i64,
    /// Kafka's producer epoch; 0 for native producers, -1 for nobody.
    pub producer_epoch: i16,
    /// Kafka's sequence of the first record, or the low 31 bits of a native sequence; -1 for nobody.
    pub base_sequence: i32,
    /// How many records follow.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, of which more or less than the batch may be there.
    ///
    /// # Errors
    /// When fewer than 61 bytes are there, when the version is not 2, or when a length, count or offset
    /// cannot be right. The checksum is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchRefused> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchRefused::Short {
                have: bytes.len(),
                need: HEADER_BYTES,
            });
        };
        let mut head = head.as_slice();
        let header = Self {
            base_offset: head.get_i64(),
            batch_length: head.get_i32(),
            leader_epoch: head.get_i32(),
            magic: head.get_i8(),
            crc: head.get_u32(),
            attributes: head.get_i16(),
            last_offset_delta: head.get_i32(),
            base_timestamp: head.get_i64(),
            max_timestamp: head.get_i64(),
            producer_id: head.get_i64(),
            producer_epoch: head.get_i16(),
            base_sequence: head.get_i32(),
            record_count: head.get_i32(),
        };
        header.check_plausible()?;
        Ok(header)
    }

    fn check_plausible(&self) -> Result<(), BatchRefused> {
        if self.magic != 2 {
            return Err(BatchRefused::Magic { found: self.magic });
        }
        let limit = BATCH_BYTES_MAX - LENGTH_END;
        let length = usize::try_from(self.batch_length).unwrap_or(0);
        if !(HEADER_BYTES - LENGTH_END..=limit).contains(&length) {
            return Err(BatchRefused::Length {
                claimed: self.batch_length,
                limit,
            });
        }
        let bad_offsets = BatchRefused::Offsets {
            base: self.base_offset,
            last_delta: self.last_offset_delta,
        };
        if self.base_offset < 0 || self.last_offset_delta < 0 {
            return Err(bad_offsets);
        }
        let next = self
            .base_offset
            .checked_add(i64::from(self.last_offset_delta) + 1);
        if next.is_none() {
            return Err(bad_offsets);
        }
        self.check_count(length)
    }

    /// Holds the record count against what the bytes can hold, so that nothing is ever reserved for
    /// records that cannot be there.
    fn check_count(&self, length: usize) -> Result<(), BatchRefused> {
        let body = if self.attributes & ATTR_COMPRESSION == 0 {
            length.saturating_sub(HEADER_BYTES - LENGTH_END)
        } else {
            UNPACKED_BYTES_MAX
        };
        let fit = u32::try_from(body / RECORD_BYTES_MIN).unwrap_or(u32::MAX);
        let offsets = self.last_offset_delta.unsigned_abs().saturating_add(1);
        let limit = fit.min(offsets).min(BATCH_RECORDS_MAX);
        match u32::try_from(self.record_count) {
            Ok(count) if count <= limit => Ok(()),
            _ => Err(BatchRefused::Count {
                claimed: self.record_count,
                limit,
            }),
        }
    }

    /// Bytes of the whole batch, this header included.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        usize::try_from(self.batch_length).unwrap_or(0) + LENGTH_END
    }

    /// Offset of the first record.
    #[must_use]
    pub fn base(&self) -> Offset {
        Offset(u64::try_from(self.base_offset).unwrap_or(0))
    }

    /// The first offset after the batch (exclusive).
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.base().plus(u64::from(self.offsets()))
    }

    /// How many offsets the batch takes; as many as it has records, or more after compaction.
    #[must_use]
    pub fn offsets(&self) -> u32 {
        u32::try_from(self.last_offset_delta)
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// How many records follow the header.
    #[must_use]
    pub fn records(&self) -> u32 {
        u32::try_from(self.record_count).unwrap_or(0)
    }

    /// The generation of the leader that appended the batch; `None` before a leader patched it.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        u32::try_from(self.leader_epoch).ok().map(Generation)
    }

    /// Who produced the batch idempotently.
    #[must_use]
    pub fn producer(&self) -> Option<ProducerId> {
        u64::try_from(self.producer_id).ok().map(ProducerId)
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// When the code is none of the five.
    pub fn compression(&self) -> Result<Compression, BatchRefused> {
        Compression::from_attributes(self.attributes)
    }

    /// Whose clock the times of the records are from.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & ATTR_APPEND_TIME == 0 {
            TimestampType::Create
        } else {
            TimestampType::Append
        }
    }

    /// Whether the headers of the records are the broker's.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.attributes & ATTR_INTERNAL != 0
    }

    /// Whether the records are markers and not data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & ATTR_CONTROL != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & ATTR_TRANSACTIONAL != 0
    }

    /// Refuses attribute bits that have no meaning.
    pub(super) fn check_known_bits(&self) -> Result<(), BatchRefused> {
        self.check_bits(ATTR_KNOWN)
    }

    /// Refuses attribute bits that only a broker may set, by looking at the header alone.
    ///
    /// # Errors
    /// Names the bits.
    pub fn check_client_bits(&self) -> Result<(), BatchRefused> {
        self.check_bits(ATTR_CLIENT)
    }

    fn check_bits(&self, allowed: i16) -> Result<(), BatchRefused> {
        match (self.attributes & !allowed) as u16 {
            0 => Ok(()),
            bits => Err(BatchRefused::Attributes { bits }),
        }
    }
}

/// Writes base offset and generation into a batch: the two fields outside the checksum. Nothing else
/// changes, so the batch stays valid. `batch` must begin with a whole header; shorter slices are left
/// as they are. Offsets and generations beyond what the header can carry do not occur, see
/// [`Offset::MAX`] and [`Generation::next`].
pub fn patch(batch: &mut [u8], base: Offset, generation: Generation) {
    debug_assert!(batch.len() >= HEADER_BYTES && base <= Offset::MAX);
    if let Some(field) = batch.first_chunk_mut() {
        *field = base.0.to_be_bytes();
    }
    if let Some(field) = batch.get_mut(EPOCH_RANGE) {
        field.copy_from_slice(&generation.0.to_be_bytes());
    }
}

/// Writes the latest time into a batch and seals it anew. Shorter slices than a header are left as they are.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: i64) {
    if let Some(field) = batch.get_mut(MAX_TIMESTAMP_RANGE) {
        field.copy_from_slice(&max_timestamp.to_be_bytes());
        seal(batch);
    }
}

/// Gives all records of a sealed batch this time, as the one at which they were appended. What lies behind the header is
/// not read: the checksum changes by what the header's part of it does. Shorter slices than a header are left as they are.
pub fn set_append_time(batch: &mut [u8], now_ms: i64) {
    let behind = batch.len().saturating_sub(HEADER_BYTES);
    let Some(header) = batch.first_chunk_mut::<HEADER_BYTES>() else {
        return;
    };
    let part = |header: &[u8; HEADER_BYTES]| {
        let covered = crc32c::crc32c(header.get(CRC_START..).unwrap_or_default());
        crc32c::crc32c_combine(covered, 0, behind)
    };
    let before = part(header);
    if let Some(field) = header.get_mut(ATTRIBUTES_RANGE) {
        let mut bits = &*field;
        let attributes = bits.get_i16() | ATTR_APPEND_TIME;
        field.copy_from_slice(&attributes.to_be_bytes());
    }
    if let Some(field) = header.get_mut(MAX_TIMESTAMP_RANGE) {
        field.copy_from_slice(&now_ms.to_be_bytes());
    }
    let change = before ^ part(header);
    if let Some(field) = header.get_mut(CRC_RANGE) {
        let mut bits = &*field;
        let crc = bits.get_u32() ^ change;
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

/// Appends a header. Length and checksum are written as they stand in it.
pub(crate) fn put_header(out: &mut BytesMut, header: &BatchHeader) {
    out.put_i64(header.base_offset);
    out.put_i32(header.batch_length);
    out.put_i32(header.leader_epoch);
    out.put_i8(header.magic);
    out.put_u32(header.crc);
    out.put_i16(header.attributes);
    out.put_i32(header.last_offset_delta);
    out.put_i64(header.base_timestamp);
    out.put_i64(header.max_timestamp);
    out.put_i64(header.producer_id);
    out.put_i16(header.producer_epoch);
    out.put_i32(header.base_sequence);
    out.put_i32(header.record_count);
}

/// Computes the checksum of a complete batch and writes it into its place.
pub(crate) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(batch.get(CRC_START..).unwrap_or_default());
    if let Some(field) = batch.get_mut(CRC_RANGE) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}
