//! Writes a log with every kind of batch into a directory and says, as JSON, what a reader must find in it: for
//! `tests/kafka/dump_log_segments.py`, which lets Kafka's own tool read the same files.
//!
//! `cargo run -p felix-journal --example kafka_segments -- <directory>`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool for developers may panic"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::{Log, LogOptions, RealDisk, inspect};
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

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
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
                &plain(4, 200),
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
    let Writer { log, records } = writer;
    log.close().unwrap();
    let inspection = inspect(&RealDisk, dir).unwrap();
    println!(
        "{}",
        json!({ "inspection": inspection, "records": records })
    );
}
