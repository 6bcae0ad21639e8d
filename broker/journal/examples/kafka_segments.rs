//! Writes a log with every kind of batch into a directory and says, as JSON, what a reader must find in it: for
//! `tests/kafka/dump_log_segments.py`, which lets Kafka's own tool read the same files.
//!
//! `cargo run -p felix-journal --example kafka_segments -- <directory> [compacted]`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool for developers may panic"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::compact::NewestByKey;
use felix_journal::{CompactOptions, Log, LogOptions, RealDisk, inspect};
use felix_model::{
    BatchBuilder, BatchOptions, Compression, Generation, Offset, ProducerId, ProducerStamp, patch,
};
use serde_json::json;

/// What is written, one batch at a time.
struct Writer {
    log: Log,
    records: Vec<serde_json::Value>,
}

/// One record before it has an offset.
struct Draft {
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(&'static str, Option<&'static str>)>,
}

impl Writer {
    fn batch(&mut self, options: BatchOptions, generation: u32, drafts: &[Draft]) {
        let base = self.log.end().0;
        let mut builder = BatchBuilder::new(options);
        for (at, draft) in drafts.iter().enumerate() {
            // Times go back now and then, as those of Kafka's producers may.
            let time = 1_700_000_000_000 + (base as i64 * 7919) % 60_000 + at as i64;
            let headers: Vec<(&[u8], Option<&[u8]>)> = draft
                .headers
                .iter()
                .map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes)))
                .collect();
            let (key, value) = (draft.key.as_deref(), draft.value.as_deref());
            builder
                .push(
                    time,
                    key.map(str::as_bytes),
                    value.map(str::as_bytes),
                    &headers,
                )
                .unwrap();
            self.records.push(json!({
                "offset": base + at as u64,
                "time": time,
                "key": draft.key,
                "value": draft.value,
                "headers": draft.headers.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            }));
        }
        let mut bytes = builder.finish().unwrap();
        patch(&mut bytes, Offset(base), Generation(generation));
        self.log.append(&[Bytes::from(bytes)]).unwrap();
    }
}

fn plain(count: usize, size: usize) -> Vec<Draft> {
    (0..count)
        .map(|at| Draft {
            key: None,
            value: Some(format!("plain-{at}-{}", "p".repeat(size))),
            headers: vec![],
        })
        .collect()
}

fn keyed(count: usize) -> Vec<Draft> {
    let draft = |at: usize| Draft {
        key: Some(format!("key-{}", at % 3)),
        // Every third is a tombstone.
        value: (at % 3 != 2).then(|| format!("keyed-{at}")),
        headers: vec![],
    };
    (0..count).map(draft).collect()
}

fn with_headers(count: usize) -> Vec<Draft> {
    let draft = |at: usize| Draft {
        key: Some(format!("k{at}")),
        value: Some(format!("with-headers-{at}")),
        headers: vec![("content-type", Some("text/plain")), ("trace", None)],
    };
    (0..count).map(draft).collect()
}

/// Every other record has a key of its own, so that compaction leaves some of each batch.
fn mixed(round: u32, codec: Compression) -> Vec<Draft> {
    let draft = |at: u32| Draft {
        key: Some(if at.is_multiple_of(2) {
            format!("own-{round}-{at}-{}", codec.as_str())
        } else {
            format!("shared-{at}")
        }),
        value: Some(format!("mixed-{round}-{at}")),
        headers: vec![("n", Some("1"))],
    };
    (0..6).map(draft).collect()
}

/// Compacts all that is closed; answers what must be left.
fn compact(log: &mut Log, records: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    let reader = log.reader();
    log.sync().unwrap();
    let options = CompactOptions {
        below: reader.closed_end(),
        bytes_per_second: None,
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut keep = NewestByKey::gather(&reader, options, go_on).unwrap();
    log.compact(options, &mut keep).unwrap();
    let below = reader.cleaned_to().0;
    let offset = |record: &serde_json::Value| record["offset"].as_u64().unwrap();
    let key = |record: &serde_json::Value| record["key"].as_str().map(str::to_owned);
    let mut newest = BTreeMap::new();
    for record in records.iter().filter(|record| offset(record) < below) {
        newest.insert(key(record), offset(record));
    }
    let stays = |record: &serde_json::Value| {
        let key = key(record);
        offset(record) >= below || key.is_none() || newest.get(&key) == Some(&offset(record))
    };
    records.into_iter().filter(stays).collect()
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let compacted = std::env::args().nth(2).is_some();
    let dir = Path::new(&dir);
    let options = LogOptions {
        segment_bytes: 64 * 1024,
        ..LogOptions::default()
    };
    let (log, _) = Log::open(Arc::new(RealDisk), dir, options).unwrap();
    let mut writer = Writer {
        log,
        records: Vec::new(),
    };
    for round in 0..60_u32 {
        let generation = 1 + round / 20;
        let none = BatchOptions::default();
        writer.batch(none, generation, &plain(1 + round as usize % 5, 900));
        writer.batch(none, generation, &keyed(7));
        writer.batch(none, generation, &with_headers(3));
        for compression in [
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ] {
            writer.batch(
                BatchOptions {
                    compression,
                    ..none
                },
                generation,
                &if compacted {
                    mixed(round, compression)
                } else {
                    plain(4, 200)
                },
            );
        }
        writer.batch(
            BatchOptions {
                internal: true,
                ..none
            },
            generation,
            &keyed(1),
        );
        let stamp = ProducerStamp {
            id: ProducerId(7),
            epoch: 0,
            base_sequence: i32::try_from(round).unwrap(),
        };
        writer.batch(
            BatchOptions {
                producer: Some(stamp),
                ..none
            },
            generation,
            &keyed(2),
        );
    }
    let Writer { mut log, records } = writer;
    let records = if compacted {
        compact(&mut log, records)
    } else {
        records
    };
    log.close().unwrap();
    let inspection = inspect(&RealDisk, dir).unwrap();
    println!(
        "{}",
        json!({ "inspection": inspection, "records": records })
    );
}
