//! Measurements.

use std::time::Duration;

use clap::{Args, Subcommand};

/// Measure latency, fan-out, ingest, caches, counters and groups.
#[derive(Clone, Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Client and broker usually share one machine here: a figure is that of the whole system, encryption
and client included. Absolute figures drift with the machine; compare runs made next to each other."
)]
pub struct Bench {
    /// What to measure
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Publish acked -> delivered to every subscriber, one record in flight
    Latency(Latency),
    /// Deliveries a second to many subscribers, published in batches
    Fanout(Fanout),
    /// Acknowledged records a second into a durable stream
    Ingest(Ingest),
    /// Gets or puts a second of a cache on disk, and how long one takes
    Cache(CacheBench),
    /// Additions a second to the counters of a cache on disk
    Counter(CounterBench),
    /// Records a second that the workers of a group take and acknowledge
    Group(GroupBench),
    /// How long a watch takes to hand over every current value, and then the first change
    Watch(WatchBench),
}

/// What every measurement can be told.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Payload of a record
    #[arg(long, default_value = "256", value_parser = crate::parse::size, value_name = "SIZE")]
    pub payload_bytes: u64,
    /// How long to measure
    #[arg(long, default_value = "5s", value_parser = crate::parse::duration, value_name = "TIME")]
    pub duration: Duration,
    /// How long to run before measuring
    #[arg(long, default_value = "1s", value_parser = crate::parse::duration, value_name = "TIME")]
    pub warmup: Duration,
    /// Use this existing stream [default: a new one, removed afterwards]
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<String>,
    /// Threads of the client; one is best where broker and client share two processors
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
}

/// Publish acked -> delivered to every subscriber, one record in flight.
#[derive(Clone, Debug, Args)]
pub struct Latency {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Number of subscribers; a sample ends when the last of them has the record
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub fanout: usize,
    /// Connections the subscribers share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub sub_connections: usize,
    /// Publish at this steady rate and count waiting for the previous record as latency
    /// (0 = the next record goes out when the last was delivered)
    #[arg(long, default_value_t = 0, value_name = "PER_SECOND")]
    pub rate: u64,
    /// Measure on a durable stream
    #[arg(long)]
    pub durable: bool,
}

/// Deliveries a second to many subscribers, published in batches.
#[derive(Clone, Debug, Args)]
pub struct Fanout {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Number of subscribers
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub fanout: usize,
    /// Connections the subscribers share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub sub_connections: usize,
    /// Records in a batch
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub batch: usize,
    /// Records that may be published and not yet received by the slowest subscriber
    /// [default: 8192 at fan-out 1, fewer the more subscribers]
    #[arg(long, value_name = "N")]
    pub window: Option<u64>,
    /// Measure on a durable stream
    #[arg(long)]
    pub durable: bool,
}

/// Acknowledged records a second into a durable stream.
#[derive(Clone, Debug, Args)]
pub struct Ingest {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Publishers
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub publishers: usize,
    /// Connections the publishers share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Batches each publisher has in flight
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub in_flight: usize,
    /// Records in a batch
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batch: usize,
    /// When the stream flushes to the disk
    #[arg(long, default_value = "on_commit", value_parser = ["on_commit", "periodic", "none"], value_name = "MODE")]
    pub sync: String,
    /// Shards of the stream
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub shards: u32,
    /// Measure an in-memory stream instead
    #[arg(long)]
    pub memory: bool,
}

/// Gets or puts a second of a cache on disk, and how long one takes.
#[derive(Clone, Debug, Args)]
pub struct CacheBench {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// What to do
    #[arg(long, default_value = "get", value_parser = ["get", "put"], value_name = "OPERATION")]
    pub operation: String,
    /// Clients, each with one call under way
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub clients: usize,
    /// Connections the clients share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Keys, of which each call takes one at random
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub keys: u64,
}

/// Additions a second to the counters of a cache on disk.
#[derive(Clone, Debug, Args)]
pub struct CounterBench {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Clients
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub clients: usize,
    /// Connections the clients share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Additions each client has under way
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub in_flight: usize,
    /// Counters, of which each addition takes one at random
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub keys: u64,
}

/// Records a second that the workers of a group take and acknowledge.
#[derive(Clone, Debug, Args)]
pub struct GroupBench {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Workers, each with one poll or acknowledgement under way
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub workers: usize,
    /// Connections the workers share
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Records a worker asks for at a time
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub poll: u32,
    /// Records published before the measurement; it ends early when they are all done
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    pub records: u64,
}

/// How long a watch takes to hand over every current value, and then the first change.
#[derive(Clone, Debug, Args)]
pub struct WatchBench {
    /// What every measurement can be told.
    #[command(flatten)]
    pub common: Common,
    /// Keys the cache holds
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub keys: u64,
}
