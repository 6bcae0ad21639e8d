//! The command line as clap sees it. Names and flags follow the ones the field already knows;
//! each noun has its own file.

mod bench;
mod catalogue;
mod data;
mod identity;
mod operate;
mod readings;
mod template;

pub use bench::{
    Bench, BenchCommand, CacheBench, Common, CounterBench, Fanout, GroupBench, Ingest, Latency,
    WatchBench,
};
pub use catalogue::{
    CacheCommand, CacheCreate, NamespaceCommand, NamespaceCreate, StreamCommand, StreamCreate,
    StreamSet, TenantCommand, TenantCreate,
};
pub use data::{AckWord, Presentation, Pub, Read, Source, Sub};
pub use identity::{
    AccountCommand, AccountCreate, AuditCommand, AuditFilter, AuditLs, GroupingCommand,
    GroupingRule, IdpAdd, IdpCommand, KeysCommand, Login, NewKey, PolicyCommand, PolicyRule,
    QuotaCommand, QuotaScope, QuotaSet, RbacCommand, Revoke, ServiceKeyCommand, SessionCommand,
};
pub use operate::{
    AuthCommand, Backup, ContextAdd, ContextCommand, ControlPlaneCommand, Dev, Install,
    MembersCommand, Restore, ShardCommand, TokenCommand, TokenMint,
};

pub use readings::{
    AckMode, CacheKeys, CachePut, CacheWatch, Commit, CounterCommand, DeadLettersCommand,
    GroupClaims, GroupCommand, GroupConsume, GroupOf, GroupPoll, ScheduleCommand, StateCommand,
    ValueSource,
};
pub use template::{TemplateCommand, TemplateSet};

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

use crate::exit::EXIT_TABLE;
use crate::output::Shape;
use crate::secret::Secret;
use crate::sign_in::SignIn;

/// Felix from the command line: start a node, publish, subscribe, manage what is there.
#[derive(Debug, Parser)]
#[command(
    name = "felixctl",
    version,
    about = "Felix from the command line: start a node, publish, subscribe, manage what is there",
    after_help = EXIT_TABLE,
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Where to connect, as whom, and how to print.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags every command has.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// Where to connect and as whom.
    #[command(flatten)]
    pub connection: Connection,
    /// Use this named context instead of the selected one
    #[arg(long, global = true, env = "FELIX_CONTEXT", hide_env_values = true, value_name = "NAME", help_heading = GLOBAL)]
    pub context: Option<String>,
    /// The file that holds the contexts
    #[arg(long, global = true, env = "FELIX_CLI_CONFIG", hide_env_values = true, value_name = "FILE", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// How to print results
    #[arg(short = 'o', long, global = true, value_enum, value_name = "SHAPE", help_heading = GLOBAL)]
    pub output: Option<Shape>,
    /// Print results as versioned JSON (the same as -o json)
    #[arg(long, global = true, conflicts_with = "output", help_heading = GLOBAL)]
    pub json: bool,
    /// Give up on a request after this long
    #[arg(
        long,
        global = true,
        value_parser = crate::parse::duration,
        default_value = "10s",
        value_name = "TIME",
        help_heading = GLOBAL
    )]
    pub timeout: Option<std::time::Duration>,
    /// Say on standard error what is being done (twice: everything)
    #[arg(short = 'v', long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    pub verbose: u8,
}

const GLOBAL: &str = "Global options";
const CONNECTION: &str = "Connection (flag > environment > context)";

/// Where to connect and as whom. The same flags are what `context add` saves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = CONNECTION)]
pub struct Connection {
    /// Brokers to try, in order
    #[arg(
        long,
        global = true,
        env = "FELIX_BROKERS", hide_env_values = true,
        value_delimiter = ',',
        value_name = "HOST:PORT,..",
        help_heading = CONNECTION, hide_short_help = true
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokers: Option<Vec<String>>,
    /// Tenant to act in
    #[arg(long, global = true, env = "FELIX_AUTH_TENANT", hide_env_values = true, value_name = "TENANT", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Namespace to act in [default: default]
    #[arg(short = 'n', long, global = true, env = "FELIX_NAMESPACE", hide_env_values = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Token for brokers; other users of this machine can see it, so prefer --token-file
    #[arg(
        long,
        global = true,
        env = "FELIX_AUTH_TOKEN", hide_env_values = true,
        value_name = "TOKEN",
        help_heading = CONNECTION, hide_short_help = true
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// File with the token for brokers, read again for each connection
    #[arg(long, global = true, env = "FELIX_AUTH_TOKEN_FILE", hide_env_values = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// File with the key of a service account, which is exchanged for tokens
    #[arg(long, global = true, env = "FELIX_SERVICE_ACCOUNT_KEY_FILE", hide_env_values = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_key_file: Option<PathBuf>,
    /// Address of the control plane
    #[arg(long, global = true, env = "FELIX_CONTROLPLANE_URL", hide_env_values = true, value_name = "URL", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlplane_url: Option<String>,
    /// Token for the control plane; prefer --controlplane-token-file
    #[arg(
        long,
        global = true,
        env = "FELIX_CONTROLPLANE_TOKEN", hide_env_values = true,
        value_name = "TOKEN",
        help_heading = CONNECTION, hide_short_help = true
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlplane_token: Option<Secret>,
    /// File with the token for the control plane
    #[arg(
        long,
        global = true,
        env = "FELIX_CONTROLPLANE_TOKEN_FILE", hide_env_values = true,
        value_name = "FILE",
        help_heading = CONNECTION, hide_short_help = true
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlplane_token_file: Option<PathBuf>,
    /// Certificate authority of the control plane [default: the machine's own]
    #[arg(
        long,
        global = true,
        env = "FELIX_CONTROLPLANE_CA", hide_env_values = true,
        value_name = "FILE",
        help_heading = CONNECTION, hide_short_help = true
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlplane_ca_file: Option<PathBuf>,
    /// Certificate authority that signed the brokers' certificates
    #[arg(long, global = true, env = "FELIX_CA_FILE", hide_env_values = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Certificate chain (PEM) presented to brokers and to an https control plane, leaf first
    #[arg(long, visible_alias = "client-cert", global = true, env = "FELIX_CLIENT_CERT_FILE", hide_env_values = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(
        default,
        alias = "client_cert",
        skip_serializing_if = "Option::is_none"
    )]
    pub client_cert_file: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, visible_alias = "client-key", global = true, env = "FELIX_CLIENT_KEY_FILE", hide_env_values = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, alias = "client_key", skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<PathBuf>,
    /// Name in the brokers' certificate [default: from the first broker; localhost for an IP]
    #[arg(long, global = true, env = "FELIX_SERVER_NAME", hide_env_values = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Metrics and administration listener of the broker, for backup and shard ls
    #[arg(long, global = true, env = "FELIX_BROKER_ADMIN_URL", hide_env_values = true, value_name = "URL", help_heading = CONNECTION, hide_short_help = true)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_admin_url: Option<String>,
    /// How `login` signed in. A context that remembers it uses the tokens of that sign-in.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignIn>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a whole node for development in one process
    Dev(Dev),
    /// Make the first content and the credentials of an installation, for development
    Install(Install),
    /// Publish to a stream
    Pub(Pub),
    /// Follow a stream
    Sub(Sub),
    /// Read what a stream holds now, then stop
    Read(Read),
    /// List, show, create, change and remove streams
    #[command(subcommand)]
    Stream(StreamCommand),
    /// List, show, create and remove tenants
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// List, show, create and remove namespaces
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Read, set and watch keys; list, show, create and remove caches
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Add to counters and read them
    #[command(subcommand)]
    Counter(CounterCommand),
    /// Work with consumer groups
    #[command(subcommand)]
    Group(GroupCommand),
    /// Write one event and the state it changes as one record
    Commit(Commit),
    /// Read the state that commits keep
    #[command(subcommand)]
    State(StateCommand),
    /// List and take back records that wait for their time
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Show the shards of a broker and their state
    #[command(subcommand)]
    Shard(ShardCommand),
    /// Manage the control plane itself
    #[command(subcommand, name = "controlplane")]
    ControlPlane(ControlPlaneCommand),
    /// Named connection settings
    #[command(subcommand)]
    Context(ContextCommand),
    /// Show, decode and mint tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Sign in with an identity provider
    Login(Login),
    /// End the session of the context and forget its tokens
    Logout,
    /// Show who this context is, until when, and with which rights
    Whoami,
    /// Say why a token may or may not do something
    #[command(subcommand)]
    Auth(AuthCommand),
    /// List, add and remove rules, and who has which role
    #[command(subcommand)]
    Rbac(RbacCommand),
    /// List, add and remove the identity providers that the tenant trusts
    #[command(subcommand)]
    Idp(IdpCommand),
    /// Show and rotate the keys that sign the tenant's tokens
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Identities for workloads, with keys that Felix issues
    #[command(subcommand)]
    ServiceAccount(AccountCommand),
    /// List and end sessions
    #[command(subcommand)]
    Session(SessionCommand),
    /// Refuse every token of somebody or something that was issued until now
    Revoke(Revoke),
    /// Read the record of who did what
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show and change what a tenant, a namespace or a principal may use
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Measure latency, fan-out and ingest
    Bench(Bench),
    /// Copy a running node into a directory
    Backup(Backup),
    /// Put a backup into an empty data directory
    Restore(Restore),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the version of this program
    Version,
}
