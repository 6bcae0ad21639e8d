//! A batch as it is shown to readers: without what the broker keeps beside the records.

use bytes::{BufMut, Bytes, BytesMut};

use super::HEADER_SCHEDULE;
use crate::batch::varint::{Cursor, put_varint, varint_len};
use crate::batch::{
    ATTR_INTERNAL, BatchHeader, BatchRefused, Body, HEADER_BYTES, RecordRef, nullable_len, patch,
    put_header, put_nullable, seal,
};
use crate::{Generation, Offset};

/// The same records at the same offsets without internal headers; of a scheduled record the user's are
/// left. A batch that is not marked internal is given back as it is.
///
/// # Errors
/// When the batch cannot be read to its end.
pub fn shown(batch: &Bytes) -> Result<Bytes, BatchRefused> {
    let header = BatchHeader::parse(batch)?;
    if !header.is_internal() {
        return Ok(batch.clone());
    }
    let Body {
        bytes,
        mut progress,
    } = Body::new(&header, batch)?;
    let mut out = BytesMut::with_capacity(batch.len());
    put_header(&mut out, &header);
    while let Some(record) = progress.next(&bytes) {
        put(&mut out, &header, &record?);
    }
    let mut shown = header;
    // The records were unpacked, and what is left of them is no longer than they were.
    shown.attributes &= !(ATTR_INTERNAL | COMPRESSION);
    shown.batch_length = i32::try_from(out.len() - LENGTH_FIELDS).unwrap_or(i32::MAX);
    let mut front = BytesMut::with_capacity(HEADER_BYTES);
    put_header(&mut front, &shown);
    if let Some(place) = out.get_mut(..HEADER_BYTES) {
        place.copy_from_slice(&front);
    }
    seal(&mut out);
    patch(
        &mut out,
        Offset(header.base_offset.unsigned_abs()),
        Generation(header.leader_epoch.unsigned_abs()),
    );
    Ok(out.freeze())
}

/// The attribute bits that name a codec.
const COMPRESSION: i16 = 7;

/// Base offset and batch length, which the length does not count.
const LENGTH_FIELDS: usize = 12;

fn put(out: &mut BytesMut, header: &BatchHeader, record: &RecordRef<'_>) {
    let (count, headers) = users_headers(record);
    let time = record.timestamp_ms - header.base_timestamp;
    let delta = i64::from(record.offset_delta);
    let body = 1
        + varint_len(time)
        + varint_len(delta)
        + nullable_len(record.key)
        + nullable_len(record.value)
        + varint_len(i64::from(count))
        + headers.len();
    put_varint(out, body as i64);
    out.put_u8(0);
    put_varint(out, time);
    put_varint(out, delta);
    put_nullable(out, record.key);
    put_nullable(out, record.value);
    put_varint(out, i64::from(count));
    out.put_slice(headers);
}

/// How many headers are a user's, and these as they stand in the record.
fn users_headers<'a>(record: &RecordRef<'a>) -> (u32, &'a [u8]) {
    let mut fields = Cursor::new(record.headers);
    let first = (fields.nullable(), fields.nullable());
    match (first, record.header_count.checked_sub(1)) {
        ((Ok(Some(HEADER_SCHEDULE)), Ok(_)), Some(left)) => (left, fields.rest()),
        _ => (0, &[]),
    }
}
