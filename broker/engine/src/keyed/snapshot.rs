//! A snapshot of an index: what it said at some moment, so that a restart reads the log from there on
//! and not from its start.
//!
//! ```text
//! snapshot   "felixidx" | version u32 | covered u64 | crc32c u32 of all before | chunk … chunk
//! chunk      kind u8 | length u32 | crc32c u32 of the payload | payload
//! payload    1 entries    rows of key, offset u64, expiry u64 (all ones: never), length u32
//!            2 counters   rows of key, sum i64, offset u64, checkpoint u64 (all ones: none)
//!            3 once       rows of key, digest u64, offset u64, time u64, result i64
//!            4 end        how many rows of each kind there were, u64 each
//! key        length u16 | bytes
//! ```
//!
//! Rows are in order of their keys, those of `once` in order of their offsets; chunks of one kind stand
//! together, in the order of the kinds. Numbers are big-endian.
//!
//! It is fuzzy: the index goes on changing while it is written, in pieces. Every row carries the offset
//! it stands for, all records below `covered` are in it, and records from there on are read from the log;
//! a record that is not newer than the row of its key is passed over.

use std::io::{self, Read};

use bytes::{Buf, BufMut};
use felix_model::{Offset, TimeMs};

use super::{Entry, Key, Remembered, Sum};

const MAGIC: &[u8; 8] = b"felixidx";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 24;
const NONE: u64 = u64::MAX;

const KIND_ENTRIES: u8 = 1;
const KIND_SUMS: u8 = 2;
const KIND_ONCE: u8 = 3;
const KIND_END: u8 = 4;

/// Largest payload of a chunk. Writers stop at a few thousand rows; this bounds what a damaged length can
/// cost.
const CHUNK_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a snapshot is not used. The log is read instead; nothing is lost but time.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotRefused {
    /// It cannot be read.
    #[error("the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is not one, or of another version.
    #[error("not a snapshot of version {VERSION}")]
    Foreign,
    /// A part is damaged or missing.
    #[error("the snapshot is damaged in chunk {chunk}")]
    Damaged {
        /// Which part, from 0.
        chunk: u64,
    },
}

/// The front of a snapshot that has every record below `covered`.
#[must_use]
pub fn head(covered: Offset) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.put_slice(MAGIC);
    out.put_u32(VERSION);
    out.put_u64(covered.0);
    out.put_u32(felix_model::batch::checksum(&out));
    out
}

/// Counts what was written, and encodes it.
#[derive(Debug, Default)]
pub struct Writer {
    entries: u64,
    sums: u64,
    once: u64,
}

impl Writer {
    /// A chunk of entries.
    pub fn entries<'a>(&mut self, rows: impl IntoIterator<Item = (&'a Key, Entry)>) -> Vec<u8> {
        chunk(
            KIND_ENTRIES,
            rows,
            &mut self.entries,
            |out, (key, entry)| {
                put_key(out, key);
                out.put_u64(entry.offset.0);
                out.put_u64(entry.expires.map_or(NONE, |at| at.0));
                out.put_u32(entry.length);
            },
        )
    }

    /// A chunk of counters.
    pub fn sums<'a>(&mut self, rows: impl IntoIterator<Item = (&'a Key, Sum)>) -> Vec<u8> {
        chunk(KIND_SUMS, rows, &mut self.sums, |out, (key, sum)| {
            put_key(out, key);
            out.put_i64(sum.sum);
            out.put_u64(sum.offset.0);
            out.put_u64(sum.checkpoint.map_or(NONE, |at| at.0));
        })
    }

    /// A chunk of idempotency keys.
    pub fn once<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (&'a Key, &'a Remembered<i64>)>,
    ) -> Vec<u8> {
        chunk(KIND_ONCE, rows, &mut self.once, |out, (key, known)| {
            put_key(out, key);
            out.put_u64(known.digest);
            out.put_u64(known.offset.0);
            out.put_u64(known.at.0);
            out.put_i64(known.result);
        })
    }

    /// The last chunk.
    #[must_use]
    pub fn end(self) -> Vec<u8> {
        let counts = [self.entries, self.sums, self.once];
        chunk(KIND_END, counts, &mut 0, |out, count| out.put_u64(count))
    }
}

fn chunk<R>(
    kind: u8,
    rows: impl IntoIterator<Item = R>,
    count: &mut u64,
    put: impl Fn(&mut Vec<u8>, R),
) -> Vec<u8> {
    let mut payload = Vec::new();
    for row in rows {
        put(&mut payload, row);
        *count += 1;
    }
    let mut out = Vec::with_capacity(payload.len() + 9);
    out.put_u8(kind);
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_u32(felix_model::batch::checksum(&payload));
    out.extend_from_slice(&payload);
    out
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    // A key is bounded far below: see `cache::KEY_BYTES_MAX`.
    out.put_u16(u16::try_from(key.len()).unwrap_or(u16::MAX));
    out.put_slice(key);
}

/// What a snapshot holds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// All records below it are in the rows. Exclusive.
    pub covered: Offset,
    /// Entries in order of their keys.
    pub entries: Vec<(Key, Entry)>,
    /// Counters in order of their keys.
    pub sums: Vec<(Key, Sum)>,
    /// Idempotency keys in order of their offsets.
    pub once: Vec<(Key, Remembered<i64>)>,
}

impl Loaded {
    /// The newest record it knows of. A log that ends at or below it lost records the snapshot has.
    #[must_use]
    pub fn newest(&self) -> Option<Offset> {
        let entries = self.entries.iter().map(|(_, entry)| entry.offset);
        let sums = self.sums.iter().map(|(_, sum)| sum.offset);
        entries.chain(sums).max()
    }
}

/// Reads a snapshot to its end.
///
/// # Errors
/// [`SnapshotRefused`].
pub fn read(source: &mut impl Read) -> Result<Loaded, SnapshotRefused> {
    let mut loaded = Loaded {
        covered: read_head(source)?,
        ..Loaded::default()
    };
    let mut last_kind = KIND_ENTRIES;
    for number in 0.. {
        let damaged = SnapshotRefused::Damaged { chunk: number };
        let (kind, payload) = read_chunk(source, number)?;
        if kind < last_kind {
            return Err(damaged);
        }
        last_kind = kind;
        let mut rows = payload.as_slice();
        let whole = match kind {
            KIND_ENTRIES => take_rows(&mut rows, &mut loaded.entries, entry),
            KIND_SUMS => take_rows(&mut rows, &mut loaded.sums, sum),
            KIND_ONCE => take_rows(&mut rows, &mut loaded.once, remembered),
            KIND_END => return end(rows, loaded).ok_or(damaged),
            _ => None,
        };
        whole.ok_or(damaged)?;
    }
    Err(SnapshotRefused::Foreign)
}

fn read_head(source: &mut impl Read) -> Result<Offset, SnapshotRefused> {
    let mut head = [0; HEAD_BYTES];
    source.read_exact(&mut head)?;
    let mut fields = head.as_slice();
    let counted = felix_model::batch::checksum(head.get(..HEAD_BYTES - 4).unwrap_or_default());
    let magic = fields.copy_to_bytes(MAGIC.len());
    let (version, covered, crc) = (fields.get_u32(), fields.get_u64(), fields.get_u32());
    if magic.as_ref() != MAGIC || version != VERSION || crc != counted {
        return Err(SnapshotRefused::Foreign);
    }
    Ok(Offset(covered))
}

fn read_chunk(source: &mut impl Read, number: u64) -> Result<(u8, Vec<u8>), SnapshotRefused> {
    let mut head = [0; 9];
    source.read_exact(&mut head)?;
    let mut fields = head.as_slice();
    let (kind, length, crc) = (fields.get_u8(), fields.get_u32() as usize, fields.get_u32());
    let damaged = SnapshotRefused::Damaged { chunk: number };
    if length > CHUNK_BYTES_MAX {
        return Err(damaged);
    }
    let mut payload = Vec::new();
    source.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() != length || felix_model::batch::checksum(&payload) != crc {
        return Err(damaged);
    }
    Ok((kind, payload))
}

fn take_rows<T>(
    rows: &mut &[u8],
    into: &mut Vec<(Key, T)>,
    read: impl Fn(&mut &[u8]) -> Option<T>,
) -> Option<()> {
    while !rows.is_empty() {
        let length = usize::from(rows.try_get_u16().ok()?);
        let (key, rest) = rows.split_at_checked(length)?;
        *rows = rest;
        into.push((Key::from(key), read(rows)?));
    }
    Some(())
}

fn entry(row: &mut &[u8]) -> Option<Entry> {
    let (offset, expires) = (row.try_get_u64().ok()?, row.try_get_u64().ok()?);
    Some(Entry {
        offset: Offset(offset),
        expires: (expires != NONE).then_some(TimeMs(expires)),
        length: row.try_get_u32().ok()?,
    })
}

fn sum(row: &mut &[u8]) -> Option<Sum> {
    let (sum, offset) = (row.try_get_i64().ok()?, row.try_get_u64().ok()?);
    let checkpoint = row.try_get_u64().ok()?;
    Some(Sum {
        sum,
        offset: Offset(offset),
        checkpoint: (checkpoint != NONE).then_some(Offset(checkpoint)),
    })
}

fn remembered(row: &mut &[u8]) -> Option<Remembered<i64>> {
    Some(Remembered {
        digest: row.try_get_u64().ok()?,
        offset: Offset(row.try_get_u64().ok()?),
        at: TimeMs(row.try_get_u64().ok()?),
        result: row.try_get_i64().ok()?,
    })
}

/// Holds the counts against what came, and the order against what bulk loading needs.
fn end(mut counts: &[u8], loaded: Loaded) -> Option<Loaded> {
    let mut is = |rows: usize| counts.try_get_u64().ok() == Some(rows as u64);
    let whole = is(loaded.entries.len()) && is(loaded.sums.len()) && is(loaded.once.len());
    let in_order = loaded.entries.is_sorted_by(|(one, _), (two, _)| one < two)
        && loaded.sums.is_sorted_by(|(one, _), (two, _)| one < two)
        && loaded
            .once
            .is_sorted_by(|(_, one), (_, two)| one.offset < two.offset);
    (whole && in_order).then_some(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let key = |text: &str| Key::from(text.as_bytes());
        let entries = [
            (key(""), Some(TimeMs(9)), 0),
            (key("a"), None, 7),
            (key("b"), Some(TimeMs(1)), u32::MAX),
        ];
        let entries = entries.map(|(key, expires, length)| {
            let entry = Entry {
                offset: Offset(3),
                expires,
                length,
            };
            (key, entry)
        });
        let sum = Sum {
            sum: i64::MIN,
            offset: Offset(8),
            checkpoint: None,
        };
        let known = Remembered {
            digest: 1,
            offset: Offset(8),
            at: TimeMs(2),
            result: -5,
        };
        let mut writer = Writer::default();
        let mut out = head(Offset(6));
        for part in entries.chunks(2) {
            out.extend(writer.entries(part.iter().map(|(key, entry)| (key, *entry))));
        }
        out.extend(writer.sums([(&key("c"), sum)]));
        out.extend(writer.once([(&key("id"), &known)]));
        out.extend(writer.end());
        out
    }

    #[test]
    fn what_was_written_is_read_back() {
        let loaded = read(&mut sample().as_slice()).unwrap();
        assert_eq!(loaded.covered, Offset(6));
        assert_eq!(loaded.newest(), Some(Offset(8)));
        let expiries: Vec<_> = loaded
            .entries
            .iter()
            .map(|(_, entry)| entry.expires)
            .collect();
        assert_eq!(expiries, [Some(TimeMs(9)), None, Some(TimeMs(1))]);
        assert_eq!(loaded.sums[0].1.sum, i64::MIN);
        assert_eq!(loaded.sums[0].1.checkpoint, None);
        assert_eq!(loaded.once[0].1.result, -5);
    }

    #[test]
    fn a_snapshot_cut_anywhere_or_with_any_bit_flipped_is_refused() {
        let whole = sample();
        for cut in 0..whole.len() {
            assert!(read(&mut &whole[..cut]).is_err(), "cut at {cut}");
        }
        for byte in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[byte] ^= 1 << bit;
                assert!(read(&mut flipped.as_slice()).is_err(), "{byte}.{bit}");
            }
        }
    }

    #[test]
    fn a_chunk_that_is_left_out_is_missed() {
        let mut writer = Writer::default();
        let _left_out = writer.sums([(
            &Key::from(b"c".as_slice()),
            Sum {
                sum: 0,
                offset: Offset(0),
                checkpoint: None,
            },
        )]);
        let mut out = head(Offset(0));
        out.extend(writer.end());
        assert!(matches!(
            read(&mut out.as_slice()),
            Err(SnapshotRefused::Damaged { chunk: 0 })
        ));
    }
}
