//! One record within the bytes of its batch, and the rules that hold from one record to the next.

use super::varint::Cursor;
use super::{BadRecord, BatchHeader, BatchRefused, TimestampType};

/// A record whose fields point into the batch. Its headers were walked, so iterating them cannot fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRef<'a> {
    pub(crate) offset_delta: u32,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) header_count: u32,
    /// The encoded headers, without their count.
    pub(crate) headers: &'a [u8],
}

/// Walks the records of a batch in order and checks each against the header and its predecessor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    base_timestamp: i64,
    /// What every record's time is, when the leader's clock counts.
    append_time: Option<i64>,
    last_delta: i32,
    count: u32,
    /// How many were read.
    index: u32,
    /// Lowest delta the next record may have.
    next_delta: i32,
}

impl Walk {
    pub(crate) fn new(header: &BatchHeader) -> Self {
        Self {
            base_timestamp: header.base_timestamp,
            append_time: match header.timestamp_type() {
                TimestampType::Create => None,
                TimestampType::Append => Some(header.max_timestamp),
            },
            last_delta: header.last_offset_delta,
            count: header.records(),
            index: 0,
            next_delta: 0,
        }
    }

    /// How many records are still to come.
    pub(crate) fn left(&self) -> u32 {
        self.count.saturating_sub(self.index)
    }

    /// Takes the next record off the front of `rest`.
    pub(crate) fn next<'a>(
        &mut self,
        rest: &mut Cursor<'a>,
    ) -> Result<RecordRef<'a>, BatchRefused> {
        take_frame(rest)
            .and_then(|body| self.decode(body))
            .map_err(|why| why.at(self.index))
    }

    /// Decodes the next record from its own bytes, its length field excluded.
    fn decode<'a>(&mut self, body: &'a [u8]) -> Result<RecordRef<'a>, BadRecord> {
        let mut fields = Cursor::new(body);
        // Kafka has no record attributes; whatever stands here is kept and ignored.
        let _attributes = fields.byte()?;
        let timestamp_delta = fields.varlong()?;
        let delta = fields.varint()?;
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        let count = fields.varint()?;
        let header_count =
            u32::try_from(count).map_err(|_| BadRecord::Negative { length: count })?;
        let headers = fields.rest();
        walk_headers(&mut fields, header_count)?;
        if fields.left() > 0 {
            return Err(BadRecord::Leftover {
                bytes: fields.left(),
            });
        }
        let timestamp_ms = self.time(timestamp_delta)?;
        let offset_delta = self.step(delta)?;
        Ok(RecordRef {
            offset_delta,
            timestamp_ms,
            key,
            value,
            header_count,
            headers,
        })
    }

    fn time(&self, delta: i64) -> Result<i64, BadRecord> {
        match self.append_time {
            Some(time) => Ok(time),
            None => self
                .base_timestamp
                .checked_add(delta)
                .ok_or(BadRecord::Time),
        }
    }

    fn step(&mut self, delta: i32) -> Result<u32, BadRecord> {
        if !(self.next_delta..=self.last_delta).contains(&delta) {
            return Err(BadRecord::Offset {
                delta,
                min: self.next_delta,
                max: self.last_delta,
            });
        }
        self.next_delta = delta.saturating_add(1);
        self.index += 1;
        Ok(delta.unsigned_abs())
    }

    /// Refuses bytes after the last record.
    pub(crate) fn finish(&self, left: usize) -> Result<(), BatchRefused> {
        if left == 0 {
            Ok(())
        } else {
            Err(BatchRefused::Leftover { count: self.count })
        }
    }
}

/// Takes a record's bytes, which its length field announces.
fn take_frame<'a>(rest: &mut Cursor<'a>) -> Result<&'a [u8], BadRecord> {
    let length = rest.varint()?;
    let bytes = usize::try_from(length).map_err(|_| BadRecord::Negative { length })?;
    rest.take(bytes)
}

/// The count is never trusted: each header takes at least two bytes, so a false one runs into the end.
fn walk_headers(fields: &mut Cursor<'_>, count: u32) -> Result<(), BadRecord> {
    for _ in 0..count {
        if fields.nullable()?.is_none() {
            return Err(BadRecord::Negative { length: -1 });
        }
        fields.nullable()?;
    }
    Ok(())
}
