//! The checks a batch goes through, from shallow to deep.

use super::header::CRC_START;
use super::record::Walk;
use super::unpack::Window;
use super::varint::Cursor;
use super::{BatchHeader, BatchRefused, Compression, HEADER_BYTES, TimestampType};

/// CRC-32C, the checksum of batches, for whatever else is kept beside a log.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Checks header and checksum of the batch at the front of `bytes`; more bytes may follow it, and
/// [`BatchHeader::total_bytes`] says where they begin. This is what recovery and scrubbing need: a batch
/// with the right checksum is the one that was appended.
///
/// # Errors
/// When the header is not plausible, the batch is cut off, or the checksum is another.
pub fn verify_checksum(bytes: &[u8]) -> Result<BatchHeader, BatchRefused> {
    let header = BatchHeader::parse(bytes)?;
    let need = header.total_bytes();
    let Some(counted) = bytes.get(CRC_START..need) else {
        return Err(BatchRefused::Short {
            have: bytes.len(),
            need,
        });
    };
    let computed = crc32c::crc32c(counted);
    if computed != header.crc {
        return Err(BatchRefused::Checksum {
            stored: header.crc,
            computed,
        });
    }
    Ok(header)
}

/// Checks everything about one whole batch of any origin: length, checksum, attribute bits, and each
/// record, unpacked when need be. Takes constant memory, the codec's own and the largest record's.
/// Holes between offsets are allowed, as compaction leaves them.
///
/// # Errors
/// Says what is wrong first.
pub fn verify(batch: &[u8]) -> Result<BatchHeader, BatchRefused> {
    let header = check_whole(batch)?;
    walk(&header, batch)?;
    Ok(header)
}

/// Checks everything about one whole batch that a client wants appended: as [`verify`], and in addition
/// only attribute bits that are a client's to set, at least one record, one record for every offset, and
/// no record later than the header says.
///
/// # Errors
/// Says what is wrong first.
pub fn verify_from_client(batch: &[u8]) -> Result<BatchHeader, BatchRefused> {
    let header = check_whole(batch)?;
    header.check_client_bits()?;
    if header.records() == 0 {
        return Err(BatchRefused::Empty);
    }
    // Offset deltas rise, so as many records as offsets means that there is no hole.
    if header.records() != header.offsets() {
        return Err(BatchRefused::Sparse {
            count: header.records(),
            offsets: header.offsets(),
        });
    }
    let latest = walk(&header, batch)?;
    let max = header.max_timestamp;
    match (header.timestamp_type(), latest) {
        (TimestampType::Create, Some(found)) if found > max => {
            Err(BatchRefused::LaterThanMax { found, max })
        }
        _ => Ok(header),
    }
}

fn check_whole(batch: &[u8]) -> Result<BatchHeader, BatchRefused> {
    let header = verify_checksum(batch)?;
    match batch.len().saturating_sub(header.total_bytes()) {
        0 => {}
        extra => return Err(BatchRefused::Trailing { extra }),
    }
    header.check_known_bits()?;
    Ok(header)
}

/// Looks at every record and returns the latest time.
fn walk(header: &BatchHeader, batch: &[u8]) -> Result<Option<i64>, BatchRefused> {
    let packed = batch.get(HEADER_BYTES..).unwrap_or_default();
    let codec = header.compression()?;
    if codec == Compression::None {
        walk_slice(header, packed)
    } else {
        walk_window(header, Window::new(codec, packed)?)
    }
}

fn walk_slice(header: &BatchHeader, records: &[u8]) -> Result<Option<i64>, BatchRefused> {
    let mut walk = Walk::new(header);
    let mut rest = Cursor::new(records);
    let mut latest = None;
    while walk.left() > 0 {
        latest = latest.max(Some(walk.next(&mut rest)?.timestamp_ms));
    }
    walk.finish(rest.left())?;
    Ok(latest)
}

/// As [`walk_slice`], but never has more of the unpacked records in memory than one, and what the codec
/// yields at a time.
fn walk_window(header: &BatchHeader, mut window: Window<'_>) -> Result<Option<i64>, BatchRefused> {
    let mut walk = Walk::new(header);
    let mut latest = None;
    while walk.left() > 0 {
        let visible = window.show_record()?;
        let mut rest = Cursor::new(visible);
        let time = walk.next(&mut rest)?.timestamp_ms;
        let taken = visible.len() - rest.left();
        latest = latest.max(Some(time));
        window.advance(taken);
    }
    walk.finish(window.left()?)?;
    Ok(latest)
}
