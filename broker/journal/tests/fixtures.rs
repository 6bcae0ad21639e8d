//! Data that earlier builds wrote. Each format version has a directory that is never written again; see the example
//! `data_fixture`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::{DataDir, DataDirRefused, Log, LogOptions, RealDisk, Verdict, inspect};
use felix_model::{BatchHeader, Compression, Generation, Incarnation, Offset, Records, ShardIndex};

/// A copy of the fixture: opening a log may change it.
fn copy_of_v1() -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/data/v1"),
        to.path(),
    );
    to
}

#[expect(clippy::disallowed_methods, reason = "a test's own copy")]
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn open(root: &Path) -> (DataDir, Vec<PathBuf>) {
    let (cluster, node) = (
        "fixture-cluster".parse().unwrap(),
        "fixture-node".parse().unwrap(),
    );
    let data = DataDir::open(&RealDisk, root, &cluster, &node).unwrap();
    let places = data.logs(&RealDisk).unwrap();
    let found: Vec<_> = places
        .iter()
        .map(|place| (place.incarnation, place.shard))
        .collect();
    assert_eq!(
        found,
        [
            (Incarnation(3), ShardIndex(0)),
            (Incarnation(3), ShardIndex(1))
        ]
    );
    assert_eq!(places[0].stream.to_string(), "acme/shop/orders");
    (data, places.into_iter().map(|place| place.dir).collect())
}

fn check_records(log: &Log, end: u64) {
    let reader = log.reader();
    let mut next = Offset(0);
    let mut records = Vec::new();
    while next < reader.end() {
        for batch in reader.read(next, 10_000, reader.end()).unwrap().batches {
            let header = BatchHeader::parse(&batch).unwrap();
            let number = header.base_offset / 3;
            let zstd = header.compression() == Ok(Compression::Zstd);
            assert_eq!(
                (zstd, i64::from(header.leader_epoch)),
                (number % 4 == 3, 1 + number / 20)
            );
            records.extend(Records::new(&batch).unwrap().map(Result::unwrap));
            next = header.next_offset();
        }
    }
    assert_eq!(records.len() as u64, end);
    for (offset, record) in records.iter().enumerate() {
        assert_eq!(record.offset, Offset(offset as u64));
        assert_eq!(record.timestamp_ms, 1_700_000_000_000 + offset as i64 * 10);
        assert_eq!(record.key, Some(Bytes::from(format!("key-{}", offset % 5))));
        assert_eq!(
            record.value,
            Some(Bytes::from(format!("value-{offset}-{}", "v".repeat(250))))
        );
        assert_eq!(
            record.headers.last(b"offset"),
            Some(Some(Bytes::from(offset.to_string())))
        );
    }
    for offset in [0, 1, 17, 80, end - 1] {
        let found = reader
            .offset_for_time(1_700_000_000_000 + offset as i64 * 10, Offset(end))
            .unwrap();
        assert_eq!(found.unwrap().offset, Offset(offset));
    }
}

#[test]
fn a_log_that_format_1_closed_in_order_opens_with_every_record() {
    let root = copy_of_v1();
    let (_data, dirs) = open(root.path());
    assert_eq!(
        inspect(&RealDisk, &dirs[0]).unwrap().verdict,
        Verdict::Clean
    );
    let (mut log, recovered) =
        Log::open(Arc::new(RealDisk), &dirs[0], LogOptions::default()).unwrap();
    assert_eq!(
        (recovered.truncated_bytes, recovered.lost_durable_bytes),
        (0, 0)
    );
    assert_eq!((recovered.start, recovered.end), (Offset(0), Offset(150)));
    assert_eq!(
        (recovered.last_generation, recovered.max_timestamp),
        (Generation(3), 1_700_000_001_490)
    );
    assert_eq!(log.reader().segments(), 2);
    check_records(&log, 150);
    assert!(log.reader().scrub(|_| {}).unwrap().batches == 50);
    log.sync().unwrap();
}

#[test]
fn a_log_that_format_1_left_torn_opens_without_the_torn_batch() {
    let root = copy_of_v1();
    let (_data, dirs) = open(root.path());
    let report = inspect(&RealDisk, &dirs[1]).unwrap();
    assert_eq!(
        (report.verdict, report.end, report.durable_end),
        (Verdict::WouldRepair, Offset(147), Some(Offset(123)))
    );
    let (log, recovered) = Log::open(Arc::new(RealDisk), &dirs[1], LogOptions::default()).unwrap();
    assert!(!recovered.clean && recovered.truncated_bytes > 0 && recovered.lost_durable_bytes == 0);
    assert_eq!(recovered.end, Offset(147));
    check_records(&log, 147);
}

#[test]
fn a_data_directory_of_format_1_is_refused_to_another_node() {
    let root = copy_of_v1();
    let (cluster, node) = (
        "fixture-cluster".parse().unwrap(),
        "other-node".parse().unwrap(),
    );
    let refused = DataDir::open(&RealDisk, root.path(), &cluster, &node).unwrap_err();
    assert!(
        matches!(refused, DataDirRefused::Foreign { .. }),
        "{refused}"
    );
}
