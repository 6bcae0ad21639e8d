//! Acknowledged records a second: N publishers, each with a bounded number of batches in flight.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use felix_client::{Publisher, Receipt};
use serde_json::json;
use tokio::task::JoinSet;

use super::stream::{Kind, Stream};
use super::{Machine, Times, connect, shown};
use crate::cli::Ingest;
use crate::commands::App;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::progress;
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::thousands("records_per_second"),
    shown::rounded("mb_per_second"),
    shown::rounded("ack_p50_us"),
    shown::rounded("ack_p90_us"),
    shown::rounded("ack_p99_us"),
    shown::rounded("ack_p999_us"),
    shown::rounded("ack_max_us"),
    shown::rounded("longest_silence_us"),
    shown::thousands("records"),
    Field::plain("seconds"),
    Field::plain("publishers"),
    Field::plain("connections"),
    Field::plain("in_flight"),
    Field::plain("batch"),
    shown::bytes("payload_bytes"),
    Field::plain("durable"),
    Field::plain("sync"),
    Field::plain("shards"),
    Field::plain("threads"),
    shown::MACHINE,
];

/// What all publishers share.
#[derive(Debug)]
struct Shared {
    base: Instant,
    measuring: AtomicBool,
    stop: AtomicBool,
    records: AtomicU64,
    /// When the last acknowledgement came, in nanoseconds since `base`.
    last_ack: AtomicU64,
    longest_silence: AtomicU64,
    times: Mutex<Times>,
}

pub(super) async fn run(app: &App, settings: &Settings, args: &Ingest) -> Result<Report, Failure> {
    if args.publishers == 0 || args.in_flight == 0 || args.batch == 0 || args.connections == 0 {
        return Err(Failure::usage(
            "--publishers, --connections, --in-flight and --batch are at least 1",
        ));
    }
    let sync = (!args.memory).then_some(args.sync.as_str());
    let kind = Kind {
        durable: !args.memory,
        sync,
        shards: args.shards,
    };
    let stream = Stream::open(app, settings, &args.common, kind).await?;
    let measured = measure(app, settings, args, &stream.name).await;
    stream.close().await;
    measured
}

async fn measure(
    app: &App,
    settings: &Settings,
    args: &Ingest,
    stream: &str,
) -> Result<Report, Failure> {
    let client = connect(app, settings, args.connections).await?;
    let shared = Arc::new(Shared {
        base: Instant::now(),
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        records: AtomicU64::new(0),
        last_ack: AtomicU64::new(0),
        longest_silence: AtomicU64::new(0),
        times: Mutex::new(Times::new()),
    });
    let payload = Bytes::from(vec![
        b'x';
        usize::try_from(args.common.payload_bytes).unwrap_or(0)
    ]);
    let mut publishers = JoinSet::new();
    for number in 0..args.publishers {
        let mut publisher = client.publisher(stream)?;
        if args.shards > 1 {
            publisher = publisher.shard(u32::try_from(number).unwrap_or(0) % args.shards);
        }
        let work = Work {
            publisher,
            payload: payload.clone(),
            batch: args.batch,
            in_flight: args.in_flight,
            shared: Arc::clone(&shared),
        };
        publishers.spawn(work.run());
    }
    let bar = progress::clock("measuring", args.common.warmup + args.common.duration);
    wait(args.common.warmup, &mut publishers).await?;
    let started = shared.begin();
    wait(args.common.duration, &mut publishers).await?;
    let seconds = started.elapsed().as_secs_f64();
    let records = shared.records.load(Ordering::Relaxed);
    shared.measuring.store(false, Ordering::Relaxed);
    shared.stop.store(true, Ordering::Relaxed);
    bar.finish_and_clear();
    while let Some(ended) = publishers.join_next().await {
        ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    client.close().await;
    Ok(shared.report(args, records, seconds))
}

/// Lets the publishers work for a while; the first that fails ends the measurement.
async fn wait(
    time: std::time::Duration,
    publishers: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        Some(ended) = publishers.join_next() => {
            ended.map_err(|error| Failure::failed(error.to_string()))?
        }
    }
}

impl Shared {
    fn begin(&self) -> Instant {
        let now = Instant::now();
        self.records.store(0, Ordering::Relaxed);
        self.last_ack
            .store(nanos(now - self.base), Ordering::Relaxed);
        self.longest_silence.store(0, Ordering::Relaxed);
        self.measuring.store(true, Ordering::Relaxed);
        now
    }

    fn acknowledged(&self, sent: Instant, records: usize) {
        if !self.measuring.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        self.records.fetch_add(records as u64, Ordering::Relaxed);
        let at = nanos(now - self.base);
        let silence = at.saturating_sub(self.last_ack.swap(at, Ordering::Relaxed));
        self.longest_silence.fetch_max(silence, Ordering::Relaxed);
        self.times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(now - sent);
    }

    fn report(&self, args: &Ingest, records: u64, seconds: f64) -> Report {
        let times = self
            .times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .percentiles();
        let per_second = records as f64 / seconds;
        let mut report = json!({
            "records_per_second": per_second.round(),
            "mb_per_second": per_second * args.common.payload_bytes as f64 / 1e6,
            "longest_silence_us": self.longest_silence.load(Ordering::Relaxed) as f64 / 1e3,
            "records": records,
            "seconds": seconds,
            "publishers": args.publishers,
            "connections": args.connections,
            "in_flight": args.in_flight,
            "batch": args.batch,
            "payload_bytes": args.common.payload_bytes,
            "durable": !args.memory,
            "sync": (!args.memory).then_some(&args.sync),
            "shards": args.shards,
            "threads": args.common.threads,
            "machine": Machine::look(),
        });
        shown::put_percentiles(&mut report, "ack", &times);
        Report::one("felixctl.bench.ingest/1", FIELDS, &report)
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One publisher.
struct Work {
    publisher: Publisher,
    payload: Bytes,
    batch: usize,
    in_flight: usize,
    shared: Arc<Shared>,
}

impl Work {
    async fn run(self) -> Result<(), Failure> {
        let mut sent: VecDeque<(Instant, Receipt)> = VecDeque::with_capacity(self.in_flight);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let at = Instant::now();
            let receipt = if self.batch == 1 {
                self.publisher.send(self.payload.clone()).await?
            } else {
                let batch = std::iter::repeat_n(self.payload.clone(), self.batch);
                self.publisher.send_batch(batch).await?
            };
            sent.push_back((at, receipt));
            if sent.len() >= self.in_flight
                && let Some((at, receipt)) = sent.pop_front()
            {
                receipt.await?;
                self.shared.acknowledged(at, self.batch);
            }
        }
        for (_, receipt) in sent {
            receipt.await?;
        }
        Ok(())
    }
}
