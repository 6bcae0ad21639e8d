//! Running a node and the credentials around it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Start a whole node for development in one process.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The node is for development: its ports are on 127.0.0.1, its certificate is its own, and the
token in the ready file lives 30 days. Ctrl-C stops it cleanly.")]
pub struct Dev {
    /// Keep the data here [default: felix/dev in your data home]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,
    /// Keep nothing after the node stops
    #[arg(long)]
    pub ephemeral: bool,
    /// Write how to connect to this file, as JSON, once the node is ready
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Move every port: brokers at N, metrics at N+1, control plane at N+2 (0 = any free port)
    #[arg(long, value_name = "N")]
    pub port_base: Option<u16>,
    /// Publish a few records a second and show them arriving
    #[arg(long)]
    pub demo: bool,
    /// Do not write and select the context "dev"
    #[arg(long)]
    pub no_context: bool,
}

/// Make the first content and the credentials of an installation, for development.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Needs a control plane with FELIX_BOOTSTRAP_DEV_TOKENS=true, and runs beside it: such tokens are good
on its own machine only. What is there already is kept, so it may be run again.")]
pub struct Install {
    /// Where the credentials and certificates are written
    pub directory: PathBuf,
    /// The bootstrap listener
    #[arg(
        long,
        env = "FELIX_BOOTSTRAP_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:9095",
        value_name = "URL"
    )]
    pub bootstrap_url: String,
    /// File with the bootstrap secret
    #[arg(
        long,
        env = "FELIX_BOOTSTRAP_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub bootstrap_token_file: PathBuf,
}

/// Copy a running node into a directory.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The node goes on serving. Each shard in the copy is a prefix of what was acknowledged, and the
catalogue in it names every stream the copy has data for. The directory is on the node's machine.")]
pub struct Backup {
    /// New directory to copy into; it must not exist or be empty
    pub to: PathBuf,
}

/// Put a backup into an empty data directory.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every batch is read and its checksum compared, and every log must end where the backup says. The
directory appears when all of it was good, or not at all. Start the node with --data-dir on it.")]
pub struct Restore {
    /// Directory that `felixctl backup` wrote
    pub from: PathBuf,
    /// Data directory to create; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Only check the backup
    #[arg(long)]
    pub dry_run: bool,
}

/// Commands on shards.
#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// List the shards of the broker with their offsets and state
    #[command(visible_alias = "list")]
    Ls {
        /// Only shards of this stream
        stream: Option<String>,
    },
}

/// Commands on the control plane itself.
#[derive(Debug, Subcommand)]
pub enum ControlPlaneCommand {
    /// The members that keep the raft ledger
    #[command(subcommand)]
    Members(MembersCommand),
}

/// Commands on the members of a raft ledger.
#[derive(Debug, Subcommand)]
pub enum MembersCommand {
    /// List the members
    #[command(visible_alias = "list")]
    Ls,
    /// Take a member in; it must be running on an empty directory
    Add {
        /// Its number (raft_node_id)
        member: u64,
        /// Its peer address, host:port
        address: String,
        /// Do not wait until it votes
        #[arg(long)]
        no_wait: bool,
    },
    /// Let a member go
    #[command(visible_alias = "remove")]
    Rm {
        /// Its number
        member: u64,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Commands on contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Save the connection flags of this command under a name
    Add(ContextAdd),
    /// List the contexts
    #[command(visible_alias = "list")]
    Ls,
    /// Select a context
    #[command(visible_alias = "select")]
    Use {
        /// The context
        name: String,
    },
    /// Forget a context
    Rm {
        /// The context
        name: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Show the settings in force and where each comes from; tokens are not shown
    Show,
}

/// Save the connection flags of this command under a name. Only flags are saved: what the
/// environment says stays in the environment.
#[derive(Clone, Debug, Args)]
pub struct ContextAdd {
    /// Name of the context
    pub name: String,
    /// Select it as well (the first one always is)
    #[arg(long = "use")]
    pub select: bool,
    /// Replace a context of this name
    #[arg(long)]
    pub replace: bool,
}

/// Commands on tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print the token in force, for another program to use
    Show {
        /// The control plane's token instead of the brokers'
        #[arg(long)]
        controlplane: bool,
    },
    /// Show what a token says; its signature is not checked
    Decode {
        /// The token [default: the one in force]
        #[arg(value_name = "TOKEN")]
        jwt: Option<String>,
    },
    /// Mint a token with the bootstrap secret of a development node
    Mint(TokenMint),
}

/// Mint a token with the bootstrap secret of a development node.
#[derive(Clone, Debug, Args)]
pub struct TokenMint {
    /// Who the token speaks for
    #[arg(long, default_value = "p:dev", value_name = "PRINCIPAL")]
    pub principal: String,
    /// Who may read it
    #[arg(
        long,
        default_value = "felix-broker",
        value_parser = ["felix-broker", "felix-controlplane"],
        value_name = "AUDIENCE"
    )]
    pub audience: String,
    /// Narrow the token to this; may be given again
    #[arg(long = "permission", value_name = "ACTION:OBJECT")]
    pub permissions: Vec<String>,
    /// The bootstrap listener [default: the one of the development node]
    #[arg(
        long,
        env = "FELIX_BOOTSTRAP_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub bootstrap_url: Option<String>,
    /// File with the bootstrap secret [default: the one of the development node]
    #[arg(
        long,
        env = "FELIX_BOOTSTRAP_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub bootstrap_token_file: Option<PathBuf>,
    /// Data directory of the development node [default: felix/dev in your data home]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Commands on permissions.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Say whether a token may do something, and which permission decides it
    #[command(after_help = "\
Examples:
  felixctl auth explain stream.publish stream:dev/default/orders
  felixctl auth explain - cache.read cache:dev/default/config <other.jwt

The token is read from the arguments, where other users of this machine can see it, from standard
input with `-`, or it is the one in force.")]
    Explain {
        /// The token (`-` for standard input; the one in force when left out), the action, the object
        #[arg(value_names = ["TOKEN", "ACTION", "OBJECT"], num_args = 2..=3, required = true)]
        question: Vec<String>,
    },
}
