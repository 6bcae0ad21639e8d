//! Measurements.

use std::time::Duration;

use clap::{Args, Subcommand};

/// Measure latency, fan-out and ingest.
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
