//! Batches and logs for the tests.

#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "each test file uses a part of this, and a test may panic"
)]

pub mod keyed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::{Disk, Log, LogOptions, LogReader, Recovered, SimDisk};
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, Records, patch};

/// Where the tests keep their log.
pub fn dir() -> PathBuf {
    PathBuf::from("/data/log")
}

/// A batch of `count` records starting at `base`; record `n` has the value `record-<n>` and some padding.
pub fn batch(base: u64, count: u64) -> Bytes {
    batch_at(base, count, 1_000 + base as i64, 0)
}

/// The same with a time (of its first record; each next one a millisecond later) and padding of `padding` bytes.
pub fn batch_at(base: u64, count: u64, time: i64, padding: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for offset in base..base + count {
        let value = format!("record-{offset}-{}", "x".repeat(padding));
        builder
            .push(
                time + (offset - base) as i64,
                None,
                Some(value.as_bytes()),
                &[],
            )
            .unwrap();
    }
    let mut bytes = builder.finish().unwrap();
    patch(&mut bytes, Offset(base), Generation(1));
    bytes.freeze()
}

/// Opens the log that must open.
pub fn open(disk: &SimDisk, options: LogOptions) -> (Log, Recovered) {
    Log::open(Arc::new(disk.clone()), &dir(), options).unwrap()
}

/// Small segments, so that everything happens within a few batches.
pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 1024,
        ..LogOptions::default()
    }
}

/// All values from `from` on, read page by page.
pub fn values(reader: &LogReader, from: Offset) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut next = from;
    while next < reader.end() {
        let page = reader.read(next, 4096, reader.end()).unwrap();
        assert!(!page.batches.is_empty(), "nothing at {next}");
        for batch in &page.batches {
            for record in Records::new(batch).unwrap() {
                let record = record.unwrap();
                if record.offset >= next {
                    found.push((record.offset.0, text(record.value.as_ref().unwrap())));
                }
            }
            next = felix_model::BatchHeader::parse(batch)
                .unwrap()
                .next_offset();
        }
    }
    found
}

/// What [`batch`] wrote at these offsets.
pub fn expected(offsets: std::ops::Range<u64>) -> Vec<(u64, String)> {
    offsets
        .map(|offset| (offset, format!("record-{offset}-")))
        .collect()
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec())
        .unwrap()
        .trim_end_matches('x')
        .to_owned()
}

/// The segment files of a log, oldest first.
pub fn segments(disk: &dyn Disk, dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = disk
        .list(dir)
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name.ends_with(".log") && entry.name != "next.log")
        .map(|entry| dir.join(entry.name))
        .collect();
    names.sort();
    names
}

/// A small generator for the tests' own choices.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
