//! Publishing and reading.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::output::Format;
use crate::parse::Start;

/// Publish to a stream.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl pub orders 'hello'
  felixctl pub orders --key cust-7 -H source=web '{\"id\": 1}'
  seq 1000 | felixctl pub orders
  felixctl pub reminders 'call back' --in 2h
  felixctl read orders --json | felixctl pub copy --ndjson")]
pub struct Pub {
    /// Stream to publish to
    pub stream: String,
    /// What to publish; without it standard input is read, a record a line
    pub data: Option<String>,
    /// Where the records come from.
    #[command(flatten)]
    pub source: Source,
    /// Key of every record; records of one key keep their order
    #[arg(short = 'k', long, value_name = "KEY")]
    pub key: Option<String>,
    /// Header of every record; may be given again
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    /// Publish the data this many times
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub count: u64,
    /// When the broker answers
    #[arg(long, value_enum, default_value_t = AckWord::Message, value_name = "WHEN")]
    pub ack: AckWord,
    /// Let the broker drop repeats, so that trying again is safe
    #[arg(long)]
    pub idempotent: bool,
    /// Wait for the stream to exist, at most this long when a time is given
    #[arg(long, num_args = 0..=1, default_missing_value = "365d", value_parser = crate::parse::duration, value_name = "TIME", require_equals = true)]
    pub wait: Option<Duration>,
    /// Let the records become visible at this time, such as 2026-11-30T09:15:00Z
    #[arg(long, value_parser = crate::parse::rfc3339, value_name = "TIME", conflicts_with_all = ["idempotent", "after"])]
    pub at: Option<i64>,
    /// Let the records become visible after this long
    #[arg(long = "in", value_parser = crate::parse::duration, value_name = "TIME", conflicts_with = "idempotent")]
    pub after: Option<Duration>,
}

/// Where published records come from.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct Source {
    /// Publish the contents of this file as one record
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub file: Option<PathBuf>,
    /// Publish standard input as one record
    #[arg(long, conflicts_with = "data")]
    pub whole: bool,
    /// Publish a record a line of standard input (what happens without data anyway)
    #[arg(long, conflicts_with = "data")]
    pub lines: bool,
    /// Publish a record a line of standard input, each in the JSON that sub and read print
    #[arg(long, conflicts_with = "data")]
    pub ndjson: bool,
}

/// When a publish is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AckWord {
    /// When each record is safe, as the stream defines safe
    Message,
    /// When each batch is safe; fastest with many records
    Batch,
    /// Never; a lost record goes unnoticed
    None,
}

/// How records are printed.
#[derive(Clone, Debug, Default, Args)]
pub struct Presentation {
    /// Print each record like this: %o offset, %k key, %v value, %h headers, %T time, %p shard..
    #[arg(short = 'f', long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Only this shard (all of them otherwise)
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Wait for the stream to exist, at most this long when a time is given
    #[arg(long, num_args = 0..=1, default_missing_value = "365d", value_parser = crate::parse::duration, value_name = "TIME", require_equals = true)]
    pub wait: Option<Duration>,
}

/// Follow a stream.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl sub orders
  felixctl sub orders --from earliest --count 10
  felixctl sub orders --from -10m -f '%o %k %v\\n'
  felixctl sub orders --json | jq .value")]
pub struct Sub {
    /// Stream to follow
    pub stream: String,
    /// Where to begin: latest, earliest, an offset, -10m or 2026-11-30T09:15:00Z
    #[arg(
        long,
        default_value = "latest",
        allow_hyphen_values = true,
        value_name = "POSITION"
    )]
    pub from: Start,
    /// How records are printed.
    #[command(flatten)]
    pub show: Presentation,
}

/// Read what a stream holds now, then stop.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl read orders
  felixctl read orders --from 100 --until 200
  felixctl read orders --from -1h -f '%T %v\\n'")]
pub struct Read {
    /// Stream to read
    pub stream: String,
    /// Where to begin: earliest, an offset, -10m or 2026-11-30T09:15:00Z
    #[arg(
        long,
        default_value = "earliest",
        allow_hyphen_values = true,
        value_name = "POSITION"
    )]
    pub from: Start,
    /// Stop before this offset (what is there when the command starts otherwise)
    #[arg(long, value_name = "OFFSET")]
    pub until: Option<u64>,
    /// How records are printed.
    #[command(flatten)]
    pub show: Presentation,
}
