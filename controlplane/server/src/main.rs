//! The control plane as a process.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use felix_controlplane::{Config, ControlPlane, LogFormat, StorageBackend, transfer};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Keeps the catalogue of a Felix cluster: tenants, namespaces, streams, caches, keys and rules.
#[derive(Debug, Parser, Serialize)]
#[command(version)]
struct Flags {
    /// Configuration file (TOML).
    #[arg(long, env = "FELIX_CONTROLPLANE_CONFIG", global = true)]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Print the configuration in effect, without secrets, and end.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// Where the ledger and the private keys live.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Where the API listens.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    bind: Option<String>,
    /// Where /ready, /live and /metrics listen.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_bind: Option<String>,
    #[command(subcommand)]
    #[serde(skip)]
    task: Option<Task>,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
enum Task {
    /// Write all metadata, private keys included, into a new file that only this user can read.
    ///
    /// A ledger on the disk must not be in use; `felixctl backup` copies one that is. A database may be in use.
    Backup {
        /// The new file.
        file: PathBuf,
    },
    /// Fill the configured ledger, which must be empty, from the file of a backup.
    Restore {
        /// The file.
        file: PathBuf,
    },
    /// Fill the ledger of one kind, which must be empty, from that of another. No control plane may be running.
    Migrate {
        /// Where the metadata is.
        #[arg(long)]
        from: StorageBackend,
        /// Where it is to be.
        #[arg(long)]
        to: StorageBackend,
    },
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let config = match Config::load(flags.config.as_deref(), &flags) {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    if flags.print_config {
        println!("{}", config.to_toml());
        return ExitCode::SUCCESS;
    }
    log(config.log_format);
    if let Some(task) = &flags.task {
        return carry_out(task, &config);
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error),
    };
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&*error),
    }
}

async fn run(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let control_plane = ControlPlane::start(config).await?;
    let signals = tokio::sync::Notify::new();
    tokio::select! {
        () = control_plane.run_until(|| signals.notified()) => {}
        () = async {
            loop {
                tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                signals.notify_one();
            }
        } => {}
    }
    Ok(())
}

fn carry_out(task: &Task, config: &Config) -> ExitCode {
    let kind = config.backend();
    let (done, what) = match task {
        Task::Backup { file } => (
            transfer::backup(config, file),
            format!("written from {kind} to {}", file.display()),
        ),
        Task::Restore { file } => (
            transfer::restore(config, file),
            format!("restored from {} to {kind}", file.display()),
        ),
        Task::Migrate { from, to } => (
            transfer::migrate(config, *from, *to),
            format!("copied from {from} to {to}; now set storage_backend = \"{to}\""),
        ),
    };
    match done {
        Ok(done) => {
            println!("{} records ({} bytes) {what}", done.revision, done.bytes);
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let text = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    if text {
        builder.init()
    } else {
        builder.json().init()
    }
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("felix-controlplane: {error}");
    ExitCode::FAILURE
}
