//! A group's workers that take records and acknowledge all of them at once, on a durable stream of one shard that was
//! filled before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use felix_client::{Claim, Client, Group, PollOptions};
use serde_json::json;

use super::cache::payload;
use super::closed::{self, Loops};
use super::stream::{Kind, Stream};
use super::{Machine, connect, shown};
use crate::cli::GroupBench;
use crate::commands::{App, client_failure};
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::thousands("per_second"),
    shown::rounded("poll_and_ack_p50_us"),
    shown::rounded("poll_and_ack_p99_us"),
    shown::rounded("poll_and_ack_max_us"),
    shown::thousands("records"),
    Field::plain("seconds"),
    Field::plain("workers"),
    Field::plain("connections"),
    Field::plain("poll"),
    shown::bytes("payload_bytes"),
    Field::plain("threads"),
    shown::MACHINE,
];

/// Records published at a time, and batches under way, while the stream is filled.
const FILLED_AT_ONCE: u64 = 256;
const FILLING: usize = 32;

pub(super) async fn run(
    app: &App,
    settings: &Settings,
    args: &GroupBench,
) -> Result<Report, Failure> {
    if args.workers == 0 || args.connections == 0 || args.poll == 0 || args.records == 0 {
        return Err(Failure::usage(
            "--workers, --connections, --poll and --records are at least 1",
        ));
    }
    let kind = Kind {
        durable: true,
        sync: Some("periodic"),
        shards: 1,
    };
    let stream = Stream::open(app, settings, &args.common, kind).await?;
    let measured = measure(app, settings, args, &stream.name).await;
    stream.close().await;
    measured
}

async fn measure(
    app: &App,
    settings: &Settings,
    args: &GroupBench,
    stream: &str,
) -> Result<Report, Failure> {
    let client = connect(app, settings, args.connections).await?;
    fill(&client, stream, args).await?;
    let group = client
        .group(stream, "bench")
        .map_err(|error| client_failure(&error.into()))?;
    let left = Arc::new(AtomicU64::new(args.records));
    let workers = (0..args.workers).map(|_| {
        let work = Work {
            group: group.clone(),
            left: Arc::clone(&left),
            poll: args.poll,
        };
        move |loops| work.run(loops)
    });
    let measured = closed::run(&args.common, workers).await?;
    client.close().await;
    let mut report = json!({
        "per_second": measured.per_second(),
        "records": measured.done,
        "seconds": measured.seconds,
        "workers": args.workers,
        "connections": args.connections,
        "poll": args.poll,
        "payload_bytes": args.common.payload_bytes,
        "threads": args.common.threads,
        "machine": Machine::look(),
    });
    shown::put_percentiles(&mut report, "poll_and_ack", &measured.times);
    Ok(Report::one("felixctl.bench.group/1", FIELDS, &report))
}

/// Publishes what will be worked on.
async fn fill(client: &Client, stream: &str, args: &GroupBench) -> Result<(), Failure> {
    let publisher = client.publisher(stream)?;
    let payload = payload(args.common.payload_bytes);
    let mut sent = std::collections::VecDeque::new();
    let mut left = args.records;
    while left > 0 {
        let records = left.min(FILLED_AT_ONCE);
        left -= records;
        let batch = std::iter::repeat_n(payload.clone(), usize::try_from(records).unwrap_or(1));
        sent.push_back(publisher.send_batch(batch).await?);
        if sent.len() >= FILLING
            && let Some(receipt) = sent.pop_front()
        {
            receipt.await?;
        }
    }
    for receipt in sent {
        receipt.await?;
    }
    Ok(())
}

/// One worker.
struct Work {
    group: Group,
    left: Arc<AtomicU64>,
    poll: u32,
}

impl Work {
    async fn run(self, loops: Arc<Loops>) -> Result<(), Failure> {
        let options = PollOptions {
            max_records: self.poll,
            wait: Duration::from_millis(200),
            ..PollOptions::default()
        };
        while loops.go_on() && self.left.load(Ordering::Relaxed) > 0 {
            let began = Instant::now();
            let records = self
                .group
                .poll(0, &options)
                .await
                .map_err(|error| client_failure(&error.into()))?;
            if records.is_empty() {
                continue;
            }
            let claims: Vec<Claim> = records
                .iter()
                .map(|record| Claim {
                    offset: record.offset,
                    attempts: record.attempts,
                })
                .collect();
            let unsettled = self
                .group
                .ack(0, &claims, None)
                .await
                .map_err(|error| client_failure(&error.into()))?;
            if !unsettled.is_empty() {
                return Err(Failure::failed("a claim lapsed during the measurement"));
            }
            let done = claims.len() as u64;
            self.left.fetch_sub(done, Ordering::Relaxed);
            loops.did(began, done);
        }
        Ok(())
    }
}
