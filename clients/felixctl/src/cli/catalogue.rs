//! What the control plane keeps: tenants, namespaces, streams, caches.

use std::time::Duration;

use super::readings::{CacheKeys, CachePut, CacheWatch};
use super::template::TemplateCommand;
use clap::{Args, Subcommand};

/// Commands on streams.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// List the streams of a namespace
    #[command(visible_alias = "list")]
    Ls,
    /// Show one stream
    #[command(visible_alias = "describe")]
    Info {
        /// The stream
        stream: String,
    },
    /// Create a stream
    Create(StreamCreate),
    /// Change a stream
    Set(StreamSet),
    /// Remove a stream and all it holds
    Rm {
        /// The stream
        stream: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Create a stream.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl stream create orders
  felixctl stream create clicks --shards 8 --retention-age 7d --retention-size 10GiB
  felixctl stream create ticks --durable false --overflow drop_old")]
pub struct StreamCreate {
    /// Name of the new stream
    pub stream: String,
    /// Number of shards; it cannot be changed later
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub shards: u32,
    /// Copies of each shard, the leader's included; it cannot be changed later
    #[arg(long = "replication", default_value_t = 1, value_name = "N")]
    pub replication_factor: u32,
    /// Keep records on disk (true) or only in memory (false)
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub durable: bool,
    /// Who must have a record before it is acknowledged
    #[arg(long, default_value = "leader", value_parser = ["leader", "quorum"], value_name = "WHO")]
    pub consistency: String,
    /// Delivery promise recorded with the stream
    #[arg(
        long,
        default_value = "at-least-once",
        value_parser = ["at-least-once", "at-most-once"],
        value_name = "PROMISE"
    )]
    pub delivery: String,
    /// When written records are flushed to the disk; periodic is four times a second
    /// [default: periodic]
    #[arg(long, value_parser = ["on_commit", "periodic", "none"], value_name = "MODE")]
    pub sync: Option<String>,
    /// What an in-memory stream does with a reader that cannot keep up [default: drop_new]
    #[arg(long, value_parser = ["drop_new", "drop_old", "block"], value_name = "POLICY")]
    pub overflow: Option<String>,
    /// How old records may become
    #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
    pub retention_age: Option<Duration>,
    /// How many bytes a shard may keep
    #[arg(long, value_parser = crate::parse::size, value_name = "SIZE")]
    pub retention_size: Option<u64>,
    /// What happens to old records: retention deletes them, or the latest of each key stays
    /// [default: delete]
    #[arg(long, value_parser = ["delete", "compact"], value_name = "HOW")]
    pub cleanup: Option<String>,
    /// Whose time records of Kafka clients have: their own, or the broker's [default: create]
    #[arg(long, value_parser = ["create", "append"], value_name = "WHOSE")]
    pub timestamps: Option<String>,
    /// Largest record, key and headers included [default: 1MiB]
    #[arg(long, value_parser = crate::parse::size, value_name = "SIZE")]
    pub max_record_size: Option<u64>,
    /// How a key chooses its shard; murmur2 agrees with Kafka's clients [default: modulo]
    #[arg(long, value_parser = ["modulo", "jump_hash", "murmur2"], value_name = "HOW")]
    pub routing: Option<String>,
    /// Region the stream lives in
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
}

/// Change a stream. What is not named stays.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct StreamSet {
    /// The stream
    pub stream: String,
    /// How old records may become; "default" removes the bound
    #[arg(long, value_name = "TIME|default")]
    pub retention_age: Option<String>,
    /// How many bytes a shard may keep; "default" removes the bound
    #[arg(long, value_name = "SIZE|default")]
    pub retention_size: Option<String>,
    /// Who must have a record before it is acknowledged
    #[arg(long, value_parser = ["leader", "quorum"], value_name = "WHO")]
    pub consistency: Option<String>,
    /// Delivery promise recorded with the stream
    #[arg(long, value_parser = ["at-least-once", "at-most-once"], value_name = "PROMISE")]
    pub delivery: Option<String>,
    /// When written records are flushed to the disk
    #[arg(long, value_parser = ["on_commit", "periodic", "none"], value_name = "MODE")]
    pub sync: Option<String>,
    /// What an in-memory stream does with a reader that cannot keep up
    #[arg(long, value_parser = ["drop_new", "drop_old", "block"], value_name = "POLICY")]
    pub overflow: Option<String>,
    /// What happens to old records: retention deletes them, or the latest of each key stays
    #[arg(long, value_parser = ["delete", "compact"], value_name = "HOW")]
    pub cleanup: Option<String>,
    /// Whose time records of Kafka clients have: their own, or the broker's
    #[arg(long, value_parser = ["create", "append"], value_name = "WHOSE")]
    pub timestamps: Option<String>,
    /// Largest record, key and headers included
    #[arg(long, value_parser = crate::parse::size, value_name = "SIZE")]
    pub max_record_size: Option<u64>,
    /// Keep records on disk (true) or only in memory (false)
    #[arg(long, value_name = "BOOL")]
    pub durable: Option<bool>,
}

/// Commands on tenants. They need an operator's token.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// List the tenants
    #[command(visible_alias = "list")]
    Ls,
    /// Show one tenant
    #[command(visible_alias = "describe")]
    Info {
        /// The tenant
        tenant_id: String,
    },
    /// Create a tenant
    Create(TenantCreate),
    /// Remove a tenant and all it holds
    Rm {
        /// The tenant
        tenant_id: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Create a tenant.
#[derive(Clone, Debug, Args)]
pub struct TenantCreate {
    /// Name of the new tenant
    pub tenant_id: String,
    /// Name shown to people [default: the tenant's name]
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,
}

/// Commands on namespaces.
#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// List the namespaces of the tenant
    #[command(visible_alias = "list")]
    Ls,
    /// Show one namespace
    #[command(visible_alias = "describe")]
    Info {
        /// The namespace
        name: String,
    },
    /// Create a namespace
    Create(NamespaceCreate),
    /// Remove a namespace and all it holds
    Rm {
        /// The namespace
        name: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Say what the rooms of an application consist of, and open them
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Create a namespace.
#[derive(Clone, Debug, Args)]
pub struct NamespaceCreate {
    /// Name of the new namespace
    pub name: String,
    /// Name shown to people [default: the namespace's name]
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,
}

/// Commands on caches.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the caches of a namespace
    #[command(visible_alias = "list")]
    Ls,
    /// Show one cache
    #[command(visible_alias = "describe")]
    Info {
        /// The cache
        cache: String,
    },
    /// Create a cache
    Create(CacheCreate),
    /// Remove a key, or a cache and all it holds
    Rm {
        /// The cache
        cache: String,
        /// The key; without one the whole cache is removed
        key: Option<String>,
        /// Only if the key's entry has this version
        #[arg(long, value_name = "VERSION", requires = "key")]
        if_version: Option<u64>,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Print what a key holds
    Get {
        /// The cache
        cache: String,
        /// The key
        key: String,
    },
    /// Set a key
    Put(CachePut),
    /// List the keys of a cache
    LsKeys(CacheKeys),
    /// Follow the changes of a cache
    Watch(CacheWatch),
}

/// Create a cache.
#[derive(Clone, Debug, Args)]
pub struct CacheCreate {
    /// Name of the new cache
    pub cache: String,
    /// Name shown to people [default: the cache's name]
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,
    /// Number of shards; it cannot be changed later
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub shards: u32,
    /// Copies of each shard, the leader's included
    #[arg(long = "replication", default_value_t = 1, value_name = "N")]
    pub replication_factor: u32,
    /// Who must have a write before it is acknowledged
    #[arg(long, default_value = "leader", value_parser = ["leader", "quorum"], value_name = "WHO")]
    pub consistency: String,
    /// Keep entries in a log on disk (true) or only in memory (false)
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub durable: bool,
    /// When writes are flushed to the disk; periodic is four times a second [default: periodic]
    #[arg(long, value_parser = ["on_commit", "periodic", "none"], value_name = "MODE")]
    pub sync: Option<String>,
    /// What a shard of a cache in memory may hold before it evicts [default: 64MiB]
    #[arg(long, value_parser = crate::parse::size, value_name = "SIZE")]
    pub memory_size: Option<u64>,
    /// Largest key and value together [default: 1MiB]
    #[arg(long, value_parser = crate::parse::size, value_name = "SIZE")]
    pub max_record_size: Option<u64>,
}
