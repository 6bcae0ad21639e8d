//! Publish acked -> delivered to every subscriber. One record is in flight: the next goes out when
//! the last subscriber has this one, or at a steady rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use felix_client::{Publisher, Subscription};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stream::{Kind, Stream};
use super::{Machine, SILENCE_MAX, Times, connect, lost, reader, shown};
use crate::cli::Latency;
use crate::commands::App;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::progress;
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::rounded("delivered_p50_us"),
    shown::rounded("delivered_p90_us"),
    shown::rounded("delivered_p99_us"),
    shown::rounded("delivered_p999_us"),
    shown::rounded("delivered_max_us"),
    shown::rounded("each_p50_us"),
    shown::rounded("each_p99_us"),
    shown::rounded("ack_p50_us"),
    shown::rounded("ack_p99_us"),
    shown::thousands("publishes_per_second"),
    shown::thousands("records"),
    Field::plain("seconds"),
    Field::plain("fanout"),
    Field::plain("sub_connections"),
    shown::bytes("payload_bytes"),
    Field::plain("rate"),
    Field::plain("pacing"),
    Field::plain("durable"),
    Field::plain("threads"),
    shown::MACHINE,
];

/// What publisher and subscribers share.
#[derive(Debug)]
struct Shared {
    base: Instant,
    measuring: AtomicBool,
    fanout: u64,
    /// When the record in flight was due, in nanoseconds since `base`.
    due: AtomicU64,
    /// Records received by all subscribers together.
    arrived: AtomicU64,
    all_arrived: Notify,
    /// From due to received, of every subscriber.
    each: Mutex<Times>,
}

pub(super) async fn run(app: &App, settings: &Settings, args: &Latency) -> Result<Report, Failure> {
    if args.fanout == 0 || args.sub_connections == 0 {
        return Err(Failure::usage(
            "--fanout and --sub-connections are at least 1",
        ));
    }
    let kind = Kind {
        durable: args.durable,
        sync: None,
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
    args: &Latency,
    stream: &str,
) -> Result<Report, Failure> {
    let shared = Arc::new(Shared {
        base: Instant::now(),
        measuring: AtomicBool::new(false),
        fanout: args.fanout as u64,
        due: AtomicU64::new(0),
        arrived: AtomicU64::new(0),
        all_arrived: Notify::new(),
        each: Mutex::new(Times::new()),
    });
    let reading = connect(app, settings, args.sub_connections).await?;
    let mut subscribers = JoinSet::new();
    for _ in 0..args.fanout {
        let subscription = reader::open(&reading, stream).await?;
        subscribers.spawn(receive(subscription, Arc::clone(&shared)));
    }
    let writing = connect(app, settings, 1).await?;
    let mut pace = Pace {
        publisher: writing.publisher(stream)?,
        payload: Bytes::from(vec![
            b'x';
            usize::try_from(args.common.payload_bytes)
                .unwrap_or_default()
        ]),
        interval: interval(args.rate),
        sent: 0,
        shared: Arc::clone(&shared),
        delivered: Times::new(),
        acked: Times::new(),
    };
    let bar = progress::clock("measuring", args.common.warmup + args.common.duration);
    pace.run(args.common.warmup).await?;
    shared.measuring.store(true, Ordering::Relaxed);
    let (started, sent_before) = (Instant::now(), pace.sent);
    pace.run(args.common.duration).await?;
    let seconds = started.elapsed().as_secs_f64();
    bar.finish_and_clear();
    subscribers.abort_all();
    reading.close().await;
    writing.close().await;
    Ok(pace.report(args, pace.sent - sent_before, seconds))
}

fn interval(rate: u64) -> Option<Duration> {
    (rate > 0).then(|| Duration::from_nanos(1_000_000_000 / rate.max(1)))
}

async fn receive(mut subscription: Subscription, shared: Arc<Shared>) -> Result<(), Failure> {
    loop {
        let chunk = reader::next(&mut subscription).await?;
        let now = nanos(shared.base.elapsed());
        if shared.measuring.load(Ordering::Relaxed) {
            let took = now.saturating_sub(shared.due.load(Ordering::Acquire));
            let mut each = shared.each.lock().unwrap_or_else(PoisonError::into_inner);
            each.record(Duration::from_nanos(took));
        }
        let before = shared.arrived.fetch_add(chunk.records, Ordering::AcqRel);
        if (before + chunk.records).is_multiple_of(shared.fanout) {
            shared.all_arrived.notify_one();
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The publisher and its clock.
struct Pace {
    publisher: Publisher,
    payload: Bytes,
    interval: Option<Duration>,
    sent: u64,
    shared: Arc<Shared>,
    delivered: Times,
    acked: Times,
}

impl Pace {
    async fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        let mut next = began;
        while began.elapsed() < time {
            let due = self.due(&mut next).await;
            self.one(due).await?;
        }
        Ok(())
    }

    /// When the next record is due. At a steady rate, a record that could not go out in time
    /// because the one before was still under way was due then, not now: the wait is latency too.
    /// A sleep that the timer made too long is the harness's own and is not.
    async fn due(&self, next: &mut Instant) -> Instant {
        let Some(interval) = self.interval else {
            return Instant::now();
        };
        let scheduled = *next;
        *next += interval;
        if Instant::now() > scheduled {
            return scheduled;
        }
        tokio::time::sleep_until(scheduled.into()).await;
        Instant::now()
    }

    async fn one(&mut self, due: Instant) -> Result<(), Failure> {
        self.shared
            .due
            .store(nanos(due - self.shared.base), Ordering::Release);
        self.sent += 1;
        self.publisher.publish(self.payload.clone()).await?;
        let acked = due.elapsed();
        let expected = self.sent * self.shared.fanout;
        while self.shared.arrived.load(Ordering::Acquire) < expected {
            if timeout(SILENCE_MAX, self.shared.all_arrived.notified())
                .await
                .is_err()
            {
                return Err(lost(self.shared.arrived.load(Ordering::Acquire), expected));
            }
        }
        if self.shared.measuring.load(Ordering::Relaxed) {
            self.acked.record(acked);
            self.delivered.record(due.elapsed());
        }
        Ok(())
    }

    fn report(&self, args: &Latency, records: u64, seconds: f64) -> Report {
        let each = self
            .shared
            .each
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .percentiles();
        let pacing = match self.interval {
            None => "closed loop: the next record goes out when all have this one",
            Some(_) => "steady rate: waiting for the record before counts as latency",
        };
        let mut report = json!({
            "publishes_per_second": (records as f64 / seconds).round(),
            "records": records,
            "seconds": seconds,
            "fanout": args.fanout,
            "sub_connections": args.sub_connections,
            "payload_bytes": args.common.payload_bytes,
            "rate": args.rate,
            "pacing": pacing,
            "durable": args.durable,
            "threads": args.common.threads,
            "machine": Machine::look(),
        });
        shown::put_percentiles(&mut report, "delivered", &self.delivered.percentiles());
        shown::put_percentiles(&mut report, "each", &each);
        shown::put_percentiles(&mut report, "ack", &self.acked.percentiles());
        Report::one("felixctl.bench.latency/1", FIELDS, &report)
    }
}
