//! A batch with fewer records, as compaction leaves it.
//!
//! Base offset, last offset delta, base time, attributes, generation and the producer's mark stay, so that offsets and
//! producers mean what they meant. Each record that stays keeps its bytes; Kafka's own cleaner leaves batches like these.
//! The publisher's name, which a native batch has on its first record, goes over to the first that stays. The native
//! sequence beside it does not: what is left of a batch no longer tells what was sent.

use bytes::{Bytes, BytesMut};

use super::header::{CRC_START, put_header, seal};
use super::pack::pack;
use super::record::{RecordRef, Walk};
use super::records::Body;
use super::varint::{Cursor, VARINT_BYTES_MAX, put_varint, varint_len};
use super::{BatchHeader, Compression, HEADER_BYTES, ThinRefused, TimestampType};
use crate::limits::BATCH_BYTES_MAX;
use crate::native::HEADER_PUBLISHER;

/// The batch at the front of `batch` without the records whose place in `stay` is false, in the same codec; `None` when
/// no record stays. Records that `stay` says nothing about stay. The checksum is not looked at.
///
/// # Errors
/// When the batch cannot be read to its end, or cannot be encoded again within the limits. It can still be kept whole.
pub fn thin(batch: &Bytes, stay: &[bool]) -> Result<Option<BytesMut>, ThinRefused> {
    let header = BatchHeader::parse(batch)?;
    let codec = header.compression()?;
    let records = Body::new(&header, batch)?.bytes;
    let mut walk = Walk::new(&header);
    let mut rest = Cursor::new(&records);
    let mut kept = Kept::new(records.len());
    let mut stay = stay.iter();
    let mut publisher = None;
    let mut is_first = header.is_internal();
    while walk.left() > 0 {
        let before = rest.rest();
        let record = walk.next(&mut rest)?;
        let stays = stay.next().copied().unwrap_or(true);
        if std::mem::take(&mut is_first) && !stays {
            publisher = publisher_of(&record);
        }
        if stays {
            let taken = before.len() - rest.left();
            let bytes = before.get(..taken).unwrap_or_default();
            match publisher
                .take()
                .and_then(|name| named(bytes, &record, name))
            {
                Some(named) => kept.push(&named, record.timestamp_ms),
                None => kept.push(bytes, record.timestamp_ms),
            }
        }
    }
    walk.finish(rest.left())?;
    if kept.count == 0 {
        return Ok(None);
    }
    kept.finish(&header, codec).map(Some)
}

/// The encoded header that names the publisher, if the record has it.
fn publisher_of<'a>(record: &RecordRef<'a>) -> Option<&'a [u8]> {
    let mut fields = Cursor::new(record.headers);
    for _ in 0..record.header_count {
        let before = fields.rest();
        let key = fields.nullable().ok()?;
        fields.nullable().ok()?;
        if key == Some(HEADER_PUBLISHER) {
            return before.get(..before.len() - fields.left());
        }
    }
    None
}

/// A record with one more header before its own.
fn named(bytes: &[u8], record: &RecordRef<'_>, header: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Cursor::new(bytes);
    fields.varint().ok()?;
    let body = fields.rest();
    let count = i64::from(record.header_count);
    let tail = varint_len(count) + record.headers.len();
    let (front, back) = body.split_at_checked(body.len().checked_sub(tail)?)?;
    let (old_count, headers) = back.split_at_checked(varint_len(count))?;
    // Only what is written the short way is taken apart; what the broker writes is.
    if Cursor::new(old_count).varint().ok().map(i64::from) != Some(count) {
        return None;
    }
    let body = front.len() + varint_len(count + 1) + header.len() + headers.len();
    let mut named = Vec::with_capacity(VARINT_BYTES_MAX + body);
    put_varint(&mut named, body as i64);
    named.extend_from_slice(front);
    put_varint(&mut named, count + 1);
    named.extend_from_slice(header);
    named.extend_from_slice(headers);
    Some(named)
}

/// Room for the header, then the records that stay.
struct Kept {
    bytes: BytesMut,
    count: i32,
    latest: i64,
}

impl Kept {
    fn new(capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + capacity);
        bytes.resize(HEADER_BYTES, 0);
        Self {
            bytes,
            count: 0,
            latest: i64::MIN,
        }
    }

    fn push(&mut self, record: &[u8], timestamp_ms: i64) {
        self.bytes.extend_from_slice(record);
        self.count = self.count.saturating_add(1);
        self.latest = self.latest.max(timestamp_ms);
    }

    fn finish(self, header: &BatchHeader, codec: Compression) -> Result<BytesMut, ThinRefused> {
        let mut batch = self.bytes;
        if codec != Compression::None {
            let packed = pack(codec, batch.get(HEADER_BYTES..).unwrap_or_default())?;
            batch.truncate(HEADER_BYTES);
            batch.extend_from_slice(&packed);
        }
        let total = batch.len();
        if total > BATCH_BYTES_MAX {
            let limit = BATCH_BYTES_MAX;
            return Err(ThinRefused::TooLarge {
                bytes: total,
                limit,
            });
        }
        let header = BatchHeader {
            batch_length: i32::try_from(total - LENGTH_END).unwrap_or(i32::MAX),
            record_count: self.count,
            max_timestamp: match header.timestamp_type() {
                TimestampType::Create => self.latest,
                TimestampType::Append => header.max_timestamp,
            },
            ..*header
        };
        let mut front = BytesMut::with_capacity(HEADER_BYTES);
        put_header(&mut front, &header);
        if let Some(place) = batch.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&front);
        }
        debug_assert!(total > CRC_START);
        seal(&mut batch);
        Ok(batch)
    }
}

/// Bytes before and including the length field, which the length does not count.
const LENGTH_END: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchOptions, ProducerStamp, verify};
    use crate::{
        Generation, InternalHeaders, NativeProducer, Offset, Payloads, ProducerId, Records,
        internal_headers, patch, records_from_payloads,
    };

    const CODECS: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    fn batch(compression: Compression, timestamp_type: TimestampType) -> Bytes {
        let producer = Some(ProducerStamp {
            id: ProducerId(7),
            epoch: 2,
            base_sequence: 40,
        });
        let mut builder = BatchBuilder::new(BatchOptions {
            compression,
            timestamp_type,
            producer,
            ..BatchOptions::default()
        });
        for record in 0..50_i64 {
            let value = format!("value {record}");
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1"))];
            let key = format!("key {}", record % 7);
            builder
                .push(
                    1_000 - record,
                    Some(key.as_bytes()),
                    Some(value.as_bytes()),
                    headers,
                )
                .unwrap();
        }
        let mut batch = builder.finish().unwrap();
        patch(&mut batch, Offset(100), Generation(3));
        batch.freeze()
    }

    #[test]
    fn a_thin_batch_keeps_its_offsets_its_producer_and_each_record_that_stays() {
        for codec in CODECS {
            let whole = batch(codec, TimestampType::Create);
            let stay: Vec<bool> = (0..50).map(|record| record % 3 == 1).collect();
            let thinned = thin(&whole, &stay).unwrap().unwrap().freeze();
            let header = verify(&thinned).unwrap();
            let before = BatchHeader::parse(&whole).unwrap();
            assert_eq!(
                (header.base(), header.next_offset()),
                (Offset(100), Offset(150))
            );
            assert_eq!(
                BatchHeader {
                    batch_length: before.batch_length,
                    crc: before.crc,
                    record_count: before.record_count,
                    max_timestamp: before.max_timestamp,
                    ..header
                },
                before
            );
            assert_eq!(header.max_timestamp, 999);
            let wanted: Vec<_> = Records::new(&whole)
                .unwrap()
                .map(Result::unwrap)
                .filter(|record| (record.offset.0 - 100) % 3 == 1)
                .collect();
            let found: Vec<_> = Records::new(&thinned)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert_eq!(found, wanted);
            // Thinned again, as a later run would.
            let again = thin(&thinned, &[false, true]).unwrap().unwrap().freeze();
            assert_eq!(Records::new(&again).unwrap().count(), found.len() - 1);
        }
    }

    #[test]
    fn the_publisher_of_a_batch_is_still_named_when_its_first_record_is_gone() {
        let payloads = Payloads::build([b"a".as_slice(), b"b", b"c"]).unwrap();
        let sequence = Some(NativeProducer {
            producer: ProducerId(4),
            sequence: 9,
        });
        let headers = InternalHeaders {
            publisher: Some("svc"),
            sequence,
        };
        let whole = records_from_payloads(&payloads, Some(b"k"), 5, &headers).unwrap();
        let thinned = thin(&whole.freeze(), &[false, true, true])
            .unwrap()
            .unwrap();
        let found = internal_headers(&thinned).unwrap();
        assert_eq!((found.publisher, found.sequence), (Some("svc"), None));
        let thinned = thinned.freeze();
        verify(&thinned).unwrap();
        let again = thin(&thinned, &[false, true]).unwrap().unwrap().freeze();
        assert_eq!(internal_headers(&again).unwrap().publisher, Some("svc"));
        let record = Records::new(&again).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (record.offset, record.value.as_deref()),
            (Offset(2), Some(b"c".as_slice()))
        );
        assert_eq!(
            (record.key.as_deref(), record.internal.len()),
            (Some(b"k".as_slice()), 1)
        );
        let first = thin(&thinned, &[true, false]).unwrap().unwrap();
        assert_eq!(internal_headers(&first).unwrap().publisher, Some("svc"));
    }

    #[test]
    fn a_batch_of_which_nothing_stays_is_none_and_the_leaders_time_stays() {
        let whole = batch(Compression::None, TimestampType::Append);
        assert_eq!(thin(&whole, &[false; 50]).unwrap(), None);
        let thinned = thin(&whole, &[false; 49]).unwrap().unwrap().freeze();
        let record = Records::new(&thinned).unwrap().next().unwrap().unwrap();
        assert_eq!((record.offset, record.timestamp_ms), (Offset(149), 1_000));
    }
}
