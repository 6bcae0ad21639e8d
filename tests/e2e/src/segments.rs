//! A log of every kind of batch that may lie on disk, written by our own journal for other people's tools to read.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use felix_journal::{Log, LogOptions, RealDisk};
use felix_model::{
    BatchBuilder, BatchHeader, BatchOptions, Compression, Generation, Offset, ProducerId,
    ProducerStamp, TimestampType, patch,
};
use serde::Serialize;

/// Small, so that there are several segments.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// Times of a batch begin here, in unix ms.
const FIRST_TIME_MS: i64 = 1_700_000_000_000;

/// What a tool must say of one batch.
#[derive(Debug, Serialize)]
pub struct Batch {
    base_offset: i64,
    last_offset: i64,
    count: u32,
    generation: i32,
    producer_id: i64,
    position: u64,
    size: usize,
    crc: u32,
    codec: &'static str,
    records: Vec<Record>,
}

/// What a tool must say of one record.
#[derive(Debug, Serialize)]
pub struct Record {
    offset: i64,
    time: i64,
    /// -1 without a key.
    key_size: i64,
    /// -1 for a tombstone.
    value_size: i64,
    headers: Vec<String>,
}

/// Writes the log and says what is in it, in order.
///
/// # Errors
/// What the journal or the disk said.
pub fn write(directory: &Path) -> Result<Vec<Batch>, Box<dyn std::error::Error>> {
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        ..LogOptions::default()
    };
    let (mut log, _) = Log::open(Arc::new(RealDisk), directory, options)?;
    let mut written = Vec::new();
    let mut position = 0;
    for number in 0..240 {
        let (mut batch, records) = batch(number, log.end())?;
        patch(&mut batch, log.end(), Generation(1 + number / 100));
        let batch = batch.freeze();
        if position + batch.len() as u64 > SEGMENT_BYTES {
            position = 0;
        }
        written.push(said_of(&batch, position, records)?);
        position += batch.len() as u64;
        log.append(&[batch])?;
        if number % 16 == 0 {
            log.sync()?;
        }
    }
    log.close()?;
    Ok(written)
}

/// The batch of a number: every codec, with and without keys, headers, tombstones and a producer.
fn batch(number: u32, base: Offset) -> Result<(BytesMut, Vec<Record>), Box<dyn std::error::Error>> {
    const CODECS: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let codec = CODECS
        .into_iter()
        .cycle()
        .nth(number as usize)
        .unwrap_or_default();
    let producer = (number % 7 == 3).then(|| ProducerStamp {
        id: ProducerId(u64::from(number % 3)),
        epoch: 0,
        base_sequence: i32::try_from(number).unwrap_or(0),
    });
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec,
        internal: number % 11 == 5,
        timestamp_type: if number % 13 == 6 {
            TimestampType::Append
        } else {
            TimestampType::Create
        },
        producer,
    });
    let mut records = Vec::new();
    for index in 0..=i64::from(number % 9) {
        let key = format!("key-{}", index % 4);
        let key = (number % 2 == 0).then_some(key.as_bytes());
        let length = usize::try_from(number).unwrap_or(0) * 7 % 900 + 1;
        let value: Vec<u8> = (0u8..=250).cycle().take(length).collect();
        let value = (index % 5 != 4).then_some(value.as_slice());
        let headers: &[(&[u8], Option<&[u8]>)] = if number % 3 == 0 {
            &[(b"source", Some(b"test")), (b"empty", None)]
        } else {
            &[]
        };
        let time = FIRST_TIME_MS + i64::from(number) * 1_000 + index;
        builder.push(time, key, value, headers)?;
        records.push(Record {
            offset: i64::try_from(base.0)? + index,
            time,
            key_size: size(key),
            value_size: size(value),
            headers: headers
                .iter()
                .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
                .collect(),
        });
    }
    Ok((builder.finish()?, records))
}

fn size(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

fn said_of(
    batch: &Bytes,
    position: u64,
    records: Vec<Record>,
) -> Result<Batch, Box<dyn std::error::Error>> {
    let header = BatchHeader::parse(batch)?;
    Ok(Batch {
        base_offset: header.base_offset,
        last_offset: header.base_offset + i64::from(header.last_offset_delta),
        count: header.records(),
        generation: header.leader_epoch,
        producer_id: header.producer_id,
        position,
        size: batch.len(),
        crc: header.crc,
        codec: header.compression()?.as_str(),
        records,
    })
}
