//! Keyed batches, what compaction must leave of them, and what it left.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use felix_journal::compact::NewestByKey;
use felix_journal::{CompactOptions, Compacted, Log, LogReader, SimDisk};

use super::{open, small};
use felix_model::{BatchBuilder, BatchOptions, Compression, Generation, Offset, Records, patch};

/// What was written: key and value by offset.
#[derive(Clone, Debug, Default)]
pub struct Written(pub BTreeMap<u64, (Option<String>, Option<String>)>);

impl Written {
    /// A batch of `count` records from `base` on, over `keys` keys; each eleventh record deletes its key and each
    /// thirteenth has none. The codec changes from batch to batch.
    pub fn batch(&mut self, base: u64, count: u64, keys: u64) -> Bytes {
        const CODECS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
        let mut builder = BatchBuilder::new(BatchOptions {
            compression: CODECS[(base % 3) as usize],
            ..BatchOptions::default()
        });
        for offset in base..base + count {
            let key = (offset % 13 != 5).then(|| format!("key-{}", offset * 7 % keys));
            let value = (offset % 11 != 3).then(|| format!("value-{offset}"));
            builder
                .push(
                    1_000 + offset as i64,
                    key.as_ref().map(String::as_bytes),
                    value.as_ref().map(String::as_bytes),
                    &[],
                )
                .unwrap();
            self.0.insert(offset, (key, value));
        }
        let mut bytes = builder.finish().unwrap();
        patch(&mut bytes, Offset(base), Generation(1));
        bytes.freeze()
    }

    /// The offsets that compaction up to `below` must leave: all from there on, those without a key, and the newest of
    /// each key among the others.
    pub fn left(&self, below: u64) -> BTreeSet<u64> {
        let mut newest = BTreeMap::new();
        for (offset, (key, _)) in self.0.range(..below) {
            newest.insert(
                key.clone().unwrap_or_else(|| format!("none {offset}")),
                *offset,
            );
        }
        let after = self.0.range(below..).map(|(offset, _)| *offset);
        newest.into_values().chain(after).collect()
    }

    /// Holds every record of a log against what was written.
    pub fn check(&self, reader: &LogReader, context: &str) -> BTreeSet<u64> {
        let found = read(reader, context);
        for (offset, record) in &found {
            assert_eq!(
                Some(record),
                self.0.get(offset),
                "{context}: offset {offset}"
            );
        }
        found.into_keys().collect()
    }
}

/// Every record of a log by its offset.
pub fn read(reader: &LogReader, context: &str) -> BTreeMap<u64, (Option<String>, Option<String>)> {
    let text = |bytes: Option<Bytes>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let mut found = BTreeMap::new();
    let (mut next, end) = (reader.start(), reader.end());
    while next < end {
        let page = reader
            .read(next, 700, end)
            .unwrap_or_else(|refused| panic!("{context}: {refused}"));
        assert!(page.next > next, "{context}: nothing at {next}");
        for batch in &page.batches {
            for record in Records::new(batch).unwrap() {
                let record = record.unwrap();
                if record.offset >= next {
                    found.insert(record.offset.0, (text(record.key), text(record.value)));
                }
            }
        }
        next = page.next;
    }
    assert_eq!(next, end, "{context}");
    found
}

/// Compacts all that is closed.
pub fn compact(log: &mut Log) -> Compacted {
    try_compact(log).unwrap()
}

/// The same, where it may fail.
pub fn try_compact(log: &mut Log) -> Option<Compacted> {
    let reader = log.reader();
    let below = reader.closed_end().min(log.durable_end());
    let mut keep =
        NewestByKey::gather(&reader, upto(below), &mut |_| ControlFlow::Continue(())).ok()?;
    log.compact(upto(keep.covered()), &mut keep).ok()
}

/// As fast as it goes.
pub fn upto(below: Offset) -> CompactOptions {
    CompactOptions {
        below,
        bytes_per_second: None,
    }
}

/// A log of 300 records in small segments, all closed but the last.
pub fn filled(disk: &SimDisk, keys: u64) -> (Log, Written) {
    let (mut log, _) = open(disk, small());
    let mut written = Written::default();
    while log.end().0 < 300 {
        let base = log.end().0;
        log.append(&[written.batch(base, 1 + base % 4, keys)])
            .unwrap();
    }
    log.sync().unwrap();
    (log, written)
}
