//! The control plane as a process.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use felix_controlplane::{Config, ControlPlane, LogFormat};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Keeps the catalogue of a Felix cluster: tenants, namespaces, streams, caches, keys and rules.
#[derive(Debug, Parser, Serialize)]
#[command(version)]
struct Flags {
    /// Configuration file (TOML).
    #[arg(long, env = "FELIX_CONTROLPLANE_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Print the configuration in effect, without secrets, and end.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// Where the ledger and the private keys live.
    #[arg(long)]
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
