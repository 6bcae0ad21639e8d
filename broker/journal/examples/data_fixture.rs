//! Writes the data directory that a release leaves for its successors to read: run once for each format version, and
//! the result is committed under `tests/fixtures/data/v<format>` and never written again.
//!
//! `cargo run -p felix-journal --example data_fixture -- <directory>`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool for developers may panic"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::{DataDir, Log, LogOptions, RealDisk};
use felix_model::{
    BatchBuilder, BatchOptions, Compression, Generation, Incarnation, Offset, ShardIndex, StreamId,
    patch,
};

/// Batch `number` of three records; the fixture's test knows the same rule.
fn batch(number: u64) -> Bytes {
    let compression = if number % 4 == 3 {
        Compression::Zstd
    } else {
        Compression::None
    };
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        ..BatchOptions::default()
    });
    for record in 0..3 {
        let offset = number * 3 + record;
        let key = format!("key-{}", offset % 5);
        let value = format!("value-{offset}-{}", "v".repeat(250));
        let header = format!("{offset}");
        builder
            .push(
                1_700_000_000_000 + offset as i64 * 10,
                Some(key.as_bytes()),
                Some(value.as_bytes()),
                &[("offset".as_bytes(), Some(header.as_bytes()))],
            )
            .unwrap();
    }
    let mut bytes = builder.finish().unwrap();
    patch(
        &mut bytes,
        Offset(number * 3),
        Generation(1 + number as u32 / 20),
    );
    bytes.freeze()
}

fn main() {
    let root = std::env::args().nth(1).expect("a directory");
    let (cluster, node) = (
        "fixture-cluster".parse().unwrap(),
        "fixture-node".parse().unwrap(),
    );
    let data = DataDir::open(&RealDisk, Path::new(&root), &cluster, &node).unwrap();
    let stream = StreamId {
        tenant: "acme".parse().unwrap(),
        namespace: "shop".parse().unwrap(),
        stream: "orders".parse().unwrap(),
    };
    let options = LogOptions {
        segment_bytes: 20_000,
        ..LogOptions::default()
    };
    // Shard 0 was closed in order; shard 1 was being written when its process was killed.
    for shard in [0, 1] {
        let dir = data.log_dir(&stream, Incarnation(3), ShardIndex(shard));
        let (mut log, _) = Log::open(Arc::new(RealDisk), &dir, options).unwrap();
        for number in 0..50 {
            log.append(&[batch(number)]).unwrap();
            if number == 40 {
                log.sync().unwrap();
            }
        }
        if shard == 0 {
            log.close().unwrap();
            continue;
        }
        let newest = log.start();
        drop(log);
        let mut files: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
            .collect();
        files.sort();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(files.last().unwrap())
            .unwrap();
        file.set_len(file.metadata().unwrap().len() - 100).unwrap();
        assert_eq!(newest, Offset(0));
    }
}
