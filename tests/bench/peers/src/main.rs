//! Loads a NATS server through async-nats over TLS, in the shapes of `felixctl bench`: one client thread, bounded
//! windows, deliveries counted when they are received. Prints one JSON object.
//!
//! ```text
//! bench-peers fanout    URL CA FANOUT PAYLOAD_BYTES SECONDS
//! bench-peers latency   URL CA FANOUT PAYLOAD_BYTES SECONDS
//! bench-peers jetstream URL CA WINDOW PAYLOAD_BYTES SECONDS
//! bench-peers pull      URL CA WORKERS PAYLOAD_BYTES SECONDS
//! ```

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::LocalSet;

type Failed = Box<dyn Error + Send + Sync>;

/// Records in a batch, and the windows, of the fan-out shape.
const BATCH: u64 = 64;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, url, ca, number, payload, seconds] = arguments.as_slice() else {
        return Err("usage: bench-peers fanout|latency|jetstream|pull URL CA NUMBER PAYLOAD_BYTES SECONDS".into());
    };
    let load = Load {
        url: url.clone(),
        ca: ca.into(),
        number: number.parse()?,
        payload: Bytes::from(vec![7; payload.parse()?]),
        time: Duration::from_secs(seconds.parse()?),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        match shape.as_str() {
            "fanout" => fanout(load).await,
            "latency" => latency(load).await,
            "jetstream" => jetstream(load).await,
            "pull" => pull(load).await,
            other => Err(format!("{other} is no shape").into()),
        }
    })?;
    println!("{result}");
    Ok(())
}

struct Load {
    url: String,
    ca: std::path::PathBuf,
    number: u64,
    payload: Bytes,
    time: Duration,
}

impl Load {
    async fn connect(&self) -> Result<async_nats::Client, Failed> {
        let options = async_nats::ConnectOptions::new()
            .require_tls(true)
            .add_root_certificates(self.ca.clone())
            .subscription_capacity(1 << 16)
            .client_capacity(1 << 12);
        Ok(options.connect(&self.url).await?)
    }
}

/// What the subscribers received, and how the publisher hears of it.
struct Received {
    counts: Vec<Cell<u64>>,
    total: Cell<u64>,
    progress: Notify,
}

impl Received {
    fn slowest(&self) -> u64 {
        self.counts.iter().map(Cell::get).min().unwrap_or(0)
    }
}

async fn subscribe(load: &Load) -> Result<Rc<Received>, Failed> {
    let client = load.connect().await?;
    let received = Rc::new(Received {
        counts: (0..load.number).map(|_| Cell::new(0)).collect(),
        total: Cell::new(0),
        progress: Notify::new(),
    });
    for index in 0..load.number as usize {
        let mut subscription = client.subscribe("bench").await?;
        let received = Rc::clone(&received);
        tokio::task::spawn_local(async move {
            while subscription.next().await.is_some() {
                if let Some(count) = received.counts.get(index) {
                    count.set(count.get() + 1);
                }
                received.total.set(received.total.get() + 1);
                received.progress.notify_one();
            }
        });
    }
    client.flush().await?;
    // The client must live as long as its subscriptions.
    std::mem::forget(client);
    Ok(received)
}

async fn fanout(load: Load) -> Result<serde_json::Value, Failed> {
    let received = subscribe(&load).await?;
    let client = load.connect().await?;
    let window = match load.number {
        1 => 8192,
        2..=10 => 4096,
        11..=100 => 512,
        _ => 128,
    };
    let mut published = 0;
    let mut measured = None;
    let begin = Instant::now();
    let warm = Duration::from_secs(1);
    loop {
        for _ in 0..BATCH {
            client.publish("bench", load.payload.clone()).await?;
        }
        published += BATCH;
        while published - received.slowest() > window {
            received.progress.notified().await;
        }
        let now = begin.elapsed();
        if measured.is_none() && now >= warm {
            measured = Some((Instant::now(), received.total.get()));
        }
        if now >= warm + load.time {
            break;
        }
    }
    let (since, before) = measured.ok_or("no time was measured")?;
    let deliveries = (received.total.get() - before) as f64 / since.elapsed().as_secs_f64();
    Ok(serde_json::json!({ "deliveries_per_second": deliveries }))
}

async fn latency(load: Load) -> Result<serde_json::Value, Failed> {
    let received = subscribe(&load).await?;
    let client = load.connect().await?;
    let mut times = hdrhistogram::Histogram::<u64>::new(3)?;
    let begin = Instant::now();
    let warm = Duration::from_secs(1);
    let mut published = 0;
    while begin.elapsed() < warm + load.time {
        let sent = Instant::now();
        client.publish("bench", load.payload.clone()).await?;
        client.flush().await?;
        published += 1;
        while received.slowest() < published {
            received.progress.notified().await;
        }
        if begin.elapsed() > warm {
            times.record(u64::try_from(sent.elapsed().as_nanos())?)?;
        }
    }
    let micros = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(serde_json::json!({ "p50_us": micros(0.5), "p99_us": micros(0.99) }))
}

async fn jetstream(load: Load) -> Result<serde_json::Value, Failed> {
    let client = load.connect().await?;
    let context = async_nats::jetstream::new(client);
    create_stream(&context, "BENCH", "bench.js").await?;
    let mut open = FuturesUnordered::new();
    let begin = Instant::now();
    let warm = Duration::from_secs(1);
    let mut acked = 0_u64;
    let mut measured = None;
    while begin.elapsed() < warm + load.time {
        while (open.len() as u64) < load.number {
            let ack = context.publish("bench.js", load.payload.clone()).await?;
            open.push(std::future::IntoFuture::into_future(ack));
        }
        if let Some(answer) = open.next().await {
            answer?;
            acked += 1;
        }
        if measured.is_none() && begin.elapsed() >= warm {
            measured = Some((Instant::now(), acked));
        }
    }
    let (since, before) = measured.ok_or("no time was measured")?;
    let rate = (acked - before) as f64 / since.elapsed().as_secs_f64();
    Ok(serde_json::json!({ "acked_per_second": rate }))
}

async fn create_stream(
    context: &async_nats::jetstream::Context,
    name: &str,
    subject: &str,
) -> Result<async_nats::jetstream::stream::Stream, Failed> {
    let config = async_nats::jetstream::stream::Config {
        name: name.into(),
        subjects: vec![subject.into()],
        storage: async_nats::jetstream::stream::StorageType::File,
        ..Default::default()
    };
    Ok(context.get_or_create_stream(config).await?)
}

/// Messages published for each second of the measurement before it begins.
const PULLED_PER_SECOND: u64 = 100_000;

/// Messages a worker asks for at a time.
const PULL: usize = 32;

/// Workers that pull and acknowledge what was published before. An acknowledgement of this peer is not answered.
async fn pull(load: Load) -> Result<serde_json::Value, Failed> {
    use async_nats::jetstream::consumer::pull::Config;
    let context = async_nats::jetstream::new(load.connect().await?);
    let stream = create_stream(&context, "PULL", "bench.pull").await?;
    stream.purge().await?;
    let messages = PULLED_PER_SECOND * (load.time.as_secs() + 1);
    let mut open = FuturesUnordered::new();
    for _ in 0..messages {
        let ack = context.publish("bench.pull", load.payload.clone()).await?;
        open.push(std::future::IntoFuture::into_future(ack));
        if open.len() >= 1024
            && let Some(answer) = open.next().await
        {
            answer?;
        }
    }
    while let Some(answer) = open.next().await {
        answer?;
    }
    let config = Config {
        durable_name: Some(format!("workers-{}", std::process::id())),
        max_ack_pending: 10_000,
        ..Default::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let acked = Rc::new(Cell::new(0_u64));
    let begin = Instant::now();
    let workers: Vec<_> = (0..load.number)
        .map(|_| {
            let (consumer, acked, time) = (consumer.clone(), Rc::clone(&acked), load.time);
            tokio::task::spawn_local(async move {
                while acked.get() < messages && begin.elapsed() < time {
                    let mut batch = consumer
                        .fetch()
                        .max_messages(PULL)
                        .expires(Duration::from_secs(1))
                        .messages()
                        .await?;
                    while let Some(message) = batch.next().await {
                        message?.ack().await?;
                        acked.set(acked.get() + 1);
                    }
                }
                Ok::<_, Failed>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    let rate = acked.get() as f64 / begin.elapsed().as_secs_f64();
    Ok(serde_json::json!({ "acked_per_second": rate }))
}
