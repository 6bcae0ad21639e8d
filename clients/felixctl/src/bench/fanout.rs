//! Deliveries a second: one publisher, batches, many subscribers, and a window that the slowest of
//! them moves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_client::{Ack, Publisher, Receipt, Subscription};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stream::{Kind, Stream};
use super::{Machine, SILENCE_MAX, Times, connect, lost, reader, shown};
use crate::cli::Fanout;
use crate::commands::App;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::progress;
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::thousands("deliveries_per_second"),
    shown::rounded("mb_per_second"),
    shown::thousands("publishes_per_second"),
    shown::rounded("delivered_p50_us"),
    shown::rounded("delivered_p99_us"),
    shown::thousands("deliveries"),
    shown::thousands("lost"),
    Field::plain("seconds"),
    Field::plain("fanout"),
    Field::plain("sub_connections"),
    Field::plain("batch"),
    Field::plain("window"),
    shown::bytes("payload_bytes"),
    Field::plain("durable"),
    Field::plain("threads"),
    shown::MACHINE,
];

/// Acknowledgements the publisher leaves outstanding; the window is what bounds it.
const ACKS_OUTSTANDING: usize = 64;
/// Records in flight to all subscribers together, which the default window is made from.
const RECORDS_IN_FLIGHT: u64 = 64 * 1024;

/// What publisher and subscribers share.
#[derive(Debug)]
struct Shared {
    base: Instant,
    measuring: AtomicBool,
    fanout: u64,
    batch: u64,
    /// A permit for each batch that may still go out.
    window: Semaphore,
    /// By batch number modulo their count: how many subscribers have the batch.
    have: Vec<AtomicU64>,
    times: Mutex<Times>,
}

/// What one subscriber received; only it writes here.
#[derive(Debug, Default)]
struct Received {
    records: AtomicU64,
    lost: AtomicU64,
}

pub(super) async fn run(app: &App, settings: &Settings, args: &Fanout) -> Result<Report, Failure> {
    if args.fanout == 0 || args.batch == 0 || args.sub_connections == 0 {
        return Err(Failure::usage(
            "--fanout, --batch and --sub-connections are at least 1",
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

/// Batches in flight: enough to keep everybody busy, few enough that what waits is no throughput.
fn window(args: &Fanout) -> u64 {
    let batch = args.batch as u64;
    let records = args.window.unwrap_or_else(|| {
        (RECORDS_IN_FLIGHT / args.fanout as u64).clamp(2 * batch, 8192.max(2 * batch))
    });
    records.div_ceil(batch).max(1)
}

async fn measure(
    app: &App,
    settings: &Settings,
    args: &Fanout,
    stream: &str,
) -> Result<Report, Failure> {
    let window = window(args);
    let shared = Arc::new(Shared {
        base: Instant::now(),
        measuring: AtomicBool::new(false),
        fanout: args.fanout as u64,
        batch: args.batch as u64,
        window: Semaphore::new(usize::try_from(window).unwrap_or(Semaphore::MAX_PERMITS)),
        have: (0..window).map(|_| AtomicU64::new(0)).collect(),
        times: Mutex::new(Times::new()),
    });
    let reading = connect(app, settings, args.sub_connections).await?;
    let mut subscribers = JoinSet::new();
    let mut received = Vec::with_capacity(args.fanout);
    for _ in 0..args.fanout {
        let own = Arc::new(Received::default());
        received.push(Arc::clone(&own));
        let subscription = reader::open(&reading, stream).await?;
        subscribers.spawn(receive(subscription, Arc::clone(&shared), own));
    }
    let writing = connect(app, settings, 1).await?;
    let mut source = Source {
        publisher: writing.publisher(stream)?.ack(Ack::Batch),
        payload_bytes: usize::try_from(args.common.payload_bytes).unwrap_or_default(),
        batch: args.batch,
        number: 0,
        unanswered: VecDeque::with_capacity(ACKS_OUTSTANDING + 1),
        shared: Arc::clone(&shared),
    };
    let bar = progress::clock("measuring", args.common.warmup + args.common.duration);
    source.run(args.common.warmup, &received).await?;
    let before = sum(&received);
    let (began, number) = (Instant::now(), source.number);
    shared.measuring.store(true, Ordering::Relaxed);
    source.run(args.common.duration, &received).await?;
    let seconds = began.elapsed().as_secs_f64();
    let after = sum(&received);
    bar.finish_and_clear();
    subscribers.abort_all();
    reading.close().await;
    let published = (source.number - number) * shared.batch;
    drop(source);
    writing.close().await;
    let totals = Totals {
        deliveries: after.0 - before.0,
        lost: after.1 - before.1,
        published,
        seconds,
        window: window * shared.batch,
    };
    Ok(shared.report(args, &totals))
}

fn sum(received: &[Arc<Received>]) -> (u64, u64) {
    received.iter().fold((0, 0), |(records, lost), one| {
        (
            records + one.records.load(Ordering::Relaxed),
            lost + one.lost.load(Ordering::Relaxed),
        )
    })
}

async fn receive(
    mut subscription: Subscription,
    shared: Arc<Shared>,
    own: Arc<Received>,
) -> Result<(), Failure> {
    // Records of the stream up to here, those that were lost included.
    let mut position: u64 = 0;
    let mut completed: u64 = 0;
    loop {
        let chunk = reader::next(&mut subscription).await?;
        own.records.fetch_add(chunk.records, Ordering::Relaxed);
        position += chunk.records;
        let (number, sent) = stamp(&chunk.last);
        let expected = position.saturating_sub(1) / shared.batch;
        if number > expected {
            let missing = (number - expected) * shared.batch;
            own.lost.fetch_add(missing, Ordering::Relaxed);
            position += missing;
        }
        let whole = position / shared.batch;
        while completed < whole {
            shared.has(completed);
            completed += 1;
        }
        if shared.measuring.load(Ordering::Relaxed) {
            let took = nanos(shared.base.elapsed()).saturating_sub(sent);
            let mut times = shared.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.record(Duration::from_nanos(took));
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The batch number and the time of sending that a payload begins with.
fn stamp(payload: &Bytes) -> (u64, u64) {
    let number = |at: usize| {
        payload
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_be_bytes)
    };
    (number(0), number(8))
}

impl Shared {
    /// One more subscriber has this batch. The last one lets another batch go out.
    fn has(&self, number: u64) {
        let slot = usize::try_from(number % self.have.len() as u64).unwrap_or_default();
        let Some(have) = self.have.get(slot) else {
            return;
        };
        // A slot is used again only after all have its batch, which is what the window is for.
        if have.fetch_add(1, Ordering::AcqRel) + 1 == self.fanout {
            have.store(0, Ordering::Release);
            self.window.add_permits(1);
        }
    }

    fn report(&self, args: &Fanout, totals: &Totals) -> Report {
        let times = self
            .times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .percentiles();
        let per_second = totals.deliveries as f64 / totals.seconds;
        let mut report = json!({
            "deliveries_per_second": per_second.round(),
            "mb_per_second": per_second * args.common.payload_bytes as f64 / 1e6,
            "publishes_per_second": (totals.published as f64 / totals.seconds).round(),
            "deliveries": totals.deliveries,
            "lost": totals.lost,
            "seconds": totals.seconds,
            "fanout": args.fanout,
            "sub_connections": args.sub_connections,
            "batch": args.batch,
            "window": totals.window,
            "payload_bytes": args.common.payload_bytes,
            "durable": args.durable,
            "threads": args.common.threads,
            "machine": Machine::look(),
        });
        shown::put_percentiles(&mut report, "delivered", &times);
        Report::one("felixctl.bench.fanout/1", FIELDS, &report)
    }
}

/// What was counted.
struct Totals {
    deliveries: u64,
    lost: u64,
    published: u64,
    seconds: f64,
    window: u64,
}

/// The publisher.
struct Source {
    publisher: Publisher,
    payload_bytes: usize,
    batch: usize,
    number: u64,
    unanswered: VecDeque<Receipt>,
    shared: Arc<Shared>,
}

impl Source {
    async fn run(&mut self, time: Duration, received: &[Arc<Received>]) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            match timeout(SILENCE_MAX, shared.window.acquire()).await {
                Ok(Ok(permit)) => permit.forget(),
                Ok(Err(_)) | Err(_) => {
                    let expected = self.number * shared.batch * shared.fanout;
                    return Err(lost(sum(received).0, expected));
                }
            }
            self.publish().await?;
        }
        Ok(())
    }

    /// Publishes one batch. Its records share one payload: one allocation a batch, none a record.
    async fn publish(&mut self) -> Result<(), Failure> {
        let mut payload = BytesMut::with_capacity(self.payload_bytes);
        payload.put_u64(self.number);
        payload.put_u64(nanos(self.shared.base.elapsed()));
        payload.put_bytes(b'x', self.payload_bytes.saturating_sub(payload.len()));
        self.number += 1;
        let records = std::iter::repeat_n(payload.freeze(), self.batch);
        self.unanswered
            .push_back(self.publisher.send_batch(records).await?);
        if self.unanswered.len() > ACKS_OUTSTANDING
            && let Some(receipt) = self.unanswered.pop_front()
        {
            receipt.await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_its_batch_and_its_time() {
        let mut payload = BytesMut::new();
        payload.put_u64(7);
        payload.put_u64(9);
        assert_eq!(stamp(&payload.freeze()), (7, 9));
        assert_eq!(stamp(&Bytes::from_static(b"short")), (0, 0));
    }

    #[test]
    fn the_window_moves_when_the_last_subscriber_has_a_batch() {
        let shared = Shared {
            base: Instant::now(),
            measuring: AtomicBool::new(false),
            fanout: 2,
            batch: 64,
            window: Semaphore::new(0),
            have: (0..2).map(|_| AtomicU64::new(0)).collect(),
            times: Mutex::new(Times::new()),
        };
        shared.has(0);
        shared.has(1);
        assert_eq!(shared.window.available_permits(), 0);
        shared.has(0);
        assert_eq!(shared.window.available_permits(), 1);
        shared.has(2);
        shared.has(2);
        assert_eq!(shared.window.available_permits(), 2);
    }
}
