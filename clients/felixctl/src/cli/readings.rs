//! Caches, counters, groups, commits, state and schedules: the other readings of a stream.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::parse::Start;

/// A value from an argument, a file or standard input.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct ValueSource {
    /// The value; without it standard input is the value
    pub value: Option<String>,
    /// Take the contents of this file as the value
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Set a key of a cache.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl cache put sessions user-1 '{\"name\": \"Ann\"}' --ttl 30m
  felixctl cache put sessions user-1 --file picture.png --if-absent
  echo new | felixctl cache put sessions user-1 --if-version 41

With --if-absent and --if-version a key that holds something else is exit status 7, and --json
carries current_version.")]
pub struct CachePut {
    /// The cache
    pub cache: String,
    /// The key
    pub key: String,
    /// What to set it to.
    #[command(flatten)]
    pub source: ValueSource,
    /// How long the entry lives [default: for ever]
    #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
    pub ttl: Option<Duration>,
    /// Only if the key holds nothing
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Only if the key's entry has this version
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

/// List the keys of a cache.
#[derive(Clone, Debug, Args)]
pub struct CacheKeys {
    /// The cache
    pub cache: String,
    /// Only keys that begin so
    #[arg(default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only keys after this one
    #[arg(long, value_name = "KEY")]
    pub after: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: u64,
    /// Show the values too
    #[arg(long)]
    pub values: bool,
}

/// Follow the changes of a cache.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl cache watch sessions --prefix user- --retained
  felixctl cache watch sessions --key user-1 --json")]
pub struct CacheWatch {
    /// The cache
    pub cache: String,
    /// Only this key
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub key: Option<String>,
    /// Only keys that begin so [default: every key]
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Show what the keys hold first
    #[arg(long, conflicts_with = "from_offset")]
    pub retained: bool,
    /// Begin with the change of this offset; for one key, or a cache of one shard
    #[arg(long, value_name = "OFFSET")]
    pub from_offset: Option<u64>,
    /// Stop after this many changes
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Commands on counters.
#[derive(Debug, Subcommand)]
pub enum CounterCommand {
    /// Add to a counter and print the sum
    Add {
        /// The cache
        cache: String,
        /// The key
        key: String,
        /// What to add
        #[arg(allow_hyphen_values = true, default_value_t = 1)]
        delta: i64,
        /// Count once however often this is repeated under the same key, of 1 to 128 bytes
        #[arg(long, value_name = "KEY")]
        once: Option<String>,
    },
    /// Print the sum of a counter
    Get {
        /// The cache
        cache: String,
        /// The key
        key: String,
    },
}

/// A group of a stream, on one shard or all of them.
#[derive(Clone, Debug, Args)]
pub struct GroupOf {
    /// The stream
    pub stream: String,
    /// The group
    pub group: String,
    /// Only this shard (all of them otherwise)
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
}

/// One shard of a group, and records of it.
#[derive(Clone, Debug, Args)]
pub struct GroupClaims {
    /// The stream
    pub stream: String,
    /// The group
    pub group: String,
    /// The records: OFFSET, or OFFSET:ATTEMPT for one of its deliveries
    #[arg(required = true, value_name = "OFFSET[:ATTEMPT]")]
    pub records: Vec<String>,
    /// The shard
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub shard: u32,
    /// Who holds them, if they were polled under a name
    #[arg(long, value_name = "NAME")]
    pub consumer: Option<String>,
}

/// Commands on consumer groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List the groups of a stream
    #[command(visible_alias = "list")]
    Ls {
        /// The stream
        stream: String,
        /// Only this shard (all of them otherwise)
        #[arg(long, value_name = "N")]
        shard: Option<u32>,
    },
    /// Show how a group is doing, shard by shard
    #[command(visible_alias = "info")]
    Describe(GroupOf),
    /// Create a group where it shall begin; one that has begun stays where it is
    Create {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// Where it begins: latest, earliest, an offset, -10m or 2026-11-30T09:15:00Z
        #[arg(
            long,
            default_value = "earliest",
            allow_hyphen_values = true,
            value_name = "POSITION"
        )]
        at: Start,
    },
    /// Move a group, and void its claims
    Seek {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// Where to: latest, earliest, an offset, -10m or 2026-11-30T09:15:00Z
        #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
        to: Start,
    },
    /// Forget a group: its position, claims and dead letters
    Delete {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Take records to work on, and print them
    Poll(GroupPoll),
    /// Finish records
    Ack(GroupClaims),
    /// Give records back
    Nack {
        /// Which records.
        #[command(flatten)]
        claims: GroupClaims,
        /// Hand them out again after this long
        #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
        delay: Option<Duration>,
    },
    /// Hold records for longer
    Extend {
        /// Which records.
        #[command(flatten)]
        claims: GroupClaims,
        /// How long from now on
        #[arg(long, value_parser = crate::parse::duration, default_value = "30s", value_name = "TIME")]
        visibility: Duration,
    },
    /// Work on a group's records until Ctrl-C
    Consume(GroupConsume),
    /// List, redrive and discard what could not be processed
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
}

/// Take records to work on.
#[derive(Clone, Debug, Args)]
pub struct GroupPoll {
    /// The stream
    pub stream: String,
    /// The group
    pub group: String,
    /// The shard
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub shard: u32,
    /// At most this many records
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub max: u32,
    /// How long to wait for the first one
    #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// How long the claims last [default: the broker's, 30s]
    #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
    pub visibility: Option<Duration>,
    /// Poll under this name
    #[arg(long, value_name = "NAME")]
    pub consumer: Option<String>,
    /// Finish what is printed at once
    #[arg(long)]
    pub ack: bool,
}

/// What happens to a record that was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AckMode {
    /// It is finished
    Auto,
    /// Nothing: it comes again when its claim lapses
    None,
}

/// Work on a group's records.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl group consume orders billing
  felixctl group consume orders billing --exec 'curl -sf -d @- https://example.com/hook'

The command of --exec gets the value on standard input and FELIX_STREAM, FELIX_SHARD, FELIX_OFFSET,
FELIX_ATTEMPTS and FELIX_KEY in its environment. Exit status 0 finishes the record; any other gives
it back.")]
pub struct GroupConsume {
    /// The stream
    pub stream: String,
    /// The group
    pub group: String,
    /// Name of this worker; after a restart it gets back first what it held [default: a random one]
    #[arg(long, value_name = "NAME")]
    pub consumer: Option<String>,
    /// What happens to a record that was printed
    #[arg(long, value_enum, default_value_t = AckMode::Auto, value_name = "WHEN")]
    pub ack: AckMode,
    /// Run this with the shell for each record; when it fails the record is given back
    #[arg(long, value_name = "COMMAND", conflicts_with = "ack")]
    pub exec: Option<String>,
    /// Hand a record that failed out again after this long
    #[arg(long, value_parser = crate::parse::duration, default_value = "1s", value_name = "TIME")]
    pub delay: Duration,
    /// How long a record may be worked on
    #[arg(long, value_parser = crate::parse::duration, default_value = "30s", value_name = "TIME")]
    pub visibility: Duration,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Commands on what could not be processed.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List what was set aside
    #[command(visible_alias = "list")]
    Ls {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// At most this many of a shard
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Hand out again what was set aside
    Redrive {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// Which records; all of them otherwise
        #[arg(long = "offset", value_name = "OFFSET")]
        offsets: Vec<u64>,
    },
    /// Drop what was set aside
    Discard {
        /// Which group.
        #[command(flatten)]
        group: GroupOf,
        /// Which records; all of them otherwise
        #[arg(long = "offset", value_name = "OFFSET")]
        offsets: Vec<u64>,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Write one event and the state it changes as one record.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl commit orders order-7 '{\"paid\": true}' --put status=paid --delete hold
  felixctl commit orders order-7 cancelled --if status=41 --put status=cancelled --once req-9")]
pub struct Commit {
    /// The stream
    pub stream: String,
    /// The entity; its key routes to a shard
    pub entity: String,
    /// The event; without it standard input is the event
    pub event: Option<String>,
    /// Set a key of the entity's state; may be given again
    #[arg(long = "put", value_name = "KEY=VALUE")]
    pub puts: Vec<String>,
    /// Remove a key of the entity's state; may be given again
    #[arg(long = "delete", value_name = "KEY")]
    pub deletes: Vec<String>,
    /// Only if a key has this version (`KEY=` for: holds nothing); may be given again
    #[arg(long = "if", value_name = "KEY=VERSION")]
    pub conditions: Vec<String>,
    /// Only if the record gets this offset
    #[arg(long, value_name = "OFFSET")]
    pub expected_offset: Option<u64>,
    /// Land once however often this is repeated under the same key, of 1 to 128 bytes
    #[arg(long, value_name = "KEY")]
    pub once: Option<String>,
}

/// Commands on the state of entities.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Print what a key of an entity holds
    Get {
        /// The stream
        stream: String,
        /// The entity
        entity: String,
        /// The key
        key: String,
    },
    /// List the state of an entity
    #[command(visible_alias = "list")]
    Ls {
        /// The stream
        stream: String,
        /// The entity
        entity: String,
        /// Only keys that begin so
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
}

/// Commands on scheduled records. `pub --at` and `pub --in` make them.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// List the records that wait for their time
    #[command(visible_alias = "list")]
    Ls {
        /// The stream
        stream: String,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// Take a scheduled record back
    Cancel {
        /// The stream
        stream: String,
        /// The record's name, as `pub` and `ls` print it
        id: String,
    },
}
