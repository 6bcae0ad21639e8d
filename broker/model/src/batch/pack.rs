//! Records compressed the way Kafka's own clients can read them.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::{BuildRefused, Compression};

/// Block of the Java snappy library.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// Magic, then version 1 and oldest compatible version 1.
const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// Compresses encoded records.
pub(super) fn pack(codec: Compression, records: &[u8]) -> Result<Vec<u8>, BuildRefused> {
    match codec {
        Compression::None => Ok(records.to_vec()),
        Compression::Gzip => gzip(records),
        Compression::Snappy => xerial(records),
        Compression::Lz4 => lz4(records),
        // 0 is the library's default level, as Kafka's.
        Compression::Zstd => zstd::stream::encode_all(records, 0),
    }
    .map_err(|_| BuildRefused::Unpackable {
        codec: codec.as_str(),
    })
}

fn gzip(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(records)?;
    encoder.finish()
}

fn xerial(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = XERIAL_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let packed = encoder.compress_vec(block)?;
        let length = i32::try_from(packed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// Kafka's Java client reads independent blocks only.
fn lz4(records: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records)?;
    encoder.finish().map_err(io::Error::other)
}
