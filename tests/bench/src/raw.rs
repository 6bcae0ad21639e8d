//! `felix-bench-raw BROKER TENANT TOKEN CA_FILE STREAM BATCHES RECORDS BYTES PID`: appends and fetches raw batches, and says
//! what each GB cost the process PID (the broker) and this one, in CPU seconds.
//!
//! The stream exists and is empty. Only what was answered counts; 64 appends are in flight.

use std::collections::VecDeque;
use std::error::Error;
use std::time::Instant;

use bytes::Bytes;
use felix_client::Client;
use felix_client::raw::{FetchShard, FetchStream, List, Raw, RawAppend, RawFetch};
use felix_model::batch::{BatchBuilder, BatchOptions};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Appends that wait for their answer.
const IN_FLIGHT: usize = 64;

/// Of the kernel's clock for processes, a second.
const TICKS: f64 = 100.0;

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [
        broker,
        tenant,
        token,
        ca,
        stream,
        batches,
        records,
        bytes,
        pid,
    ] = arguments.as_slice()
    else {
        return Err(
            "usage: felix-bench-raw BROKER TENANT TOKEN CA_FILE STREAM BATCHES RECORDS BYTES PID"
                .into(),
        );
    };
    let client = Client::builder()
        .broker(broker)
        .tenant(tenant)
        .token(token.as_str())
        .ca_file(ca)
        .connect()
        .await?;
    let raw = client.raw();
    let batch = built(records.parse()?, bytes.parse()?)?;
    let count: u64 = batches.parse()?;
    let gigabytes = batch.len() as f64 * count as f64 / 1e9;
    let started = Meter::start(pid)?;
    append(&raw, stream, &batch, count).await?;
    started.report("append", gigabytes, pid)?;
    let started = Meter::start(pid)?;
    let fetched = fetch(&raw, stream, count * records.parse::<u64>()?).await?;
    started.report("fetch", fetched as f64 / 1e9, pid)?;
    Ok(())
}

fn built(records: u32, bytes: usize) -> Outcome<Bytes> {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'x'; bytes];
    for _ in 0..records {
        batch.push(1_760_000_000_000, None, Some(&value), &[])?;
    }
    Ok(batch.finish()?.freeze())
}

async fn append(raw: &Raw, stream: &str, batch: &Bytes, count: u64) -> Outcome<()> {
    let stream = raw.stream("default", stream)?;
    let mut flying = VecDeque::new();
    for _ in 0..count {
        if flying.len() == IN_FLIGHT
            && let Some(first) = flying.pop_front()
        {
            felix_client::raw::Appending::answer(first).await?;
        }
        let append = RawAppend {
            shard: 0,
            generation: None,
            early: false,
            batch: batch.clone(),
        };
        flying.push_back(stream.send_append(append).await?);
    }
    for appending in flying {
        appending.answer().await?;
    }
    Ok(())
}

async fn fetch(raw: &Raw, stream: &str, records: u64) -> Outcome<u64> {
    let (mut offset, mut bytes) = (0, 0);
    while offset < records {
        let shard = FetchShard {
            shard: 0,
            offset,
            max_bytes: 1 << 20,
            generation: None,
            last_generation: None,
        };
        let fetch = RawFetch {
            max_bytes: 1 << 20,
            min_bytes: 1,
            max_wait_ms: 500,
            committed: false,
            streams: List::build([FetchStream {
                namespace: "default".into(),
                stream: stream.into(),
                incarnation: 0,
                shards: List::build([shard])?,
            }])?,
        };
        let fetched = raw.fetch(fetch).await?;
        for (_, batches) in fetched.iter() {
            let mut batches = batches.joined();
            bytes += batches.len() as u64;
            while !batches.is_empty() {
                let header = felix_model::BatchHeader::parse(&batches)?;
                offset = header.next_offset().0;
                batches = batches.slice(header.total_bytes()..);
            }
        }
    }
    Ok(bytes)
}

/// Time, and the CPU seconds of the broker and of this process.
struct Meter {
    at: Instant,
    broker: f64,
    own: f64,
}

impl Meter {
    fn start(pid: &str) -> Outcome<Self> {
        Ok(Self {
            at: Instant::now(),
            broker: cpu(pid)?,
            own: cpu("self")?,
        })
    }

    fn report(&self, what: &str, gigabytes: f64, pid: &str) -> Outcome<()> {
        let seconds = self.at.elapsed().as_secs_f64();
        let (broker, own) = (cpu(pid)? - self.broker, cpu("self")? - self.own);
        println!(
            "{what}: {:.2} GB, {:.0} MB/s, broker {:.2} CPU-s/GB, client {:.2} CPU-s/GB",
            gigabytes,
            gigabytes * 1000.0 / seconds,
            broker / gigabytes,
            own / gigabytes,
        );
        Ok(())
    }
}

/// CPU seconds of a process so far, its own and the kernel's for it.
fn cpu(pid: &str) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = text.rsplit_once(')').ok_or("no such process")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Result<Vec<f64>, _> = ticks.map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() / TICKS)
}
