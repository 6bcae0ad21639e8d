//! `felix-kafka`: lets Kafka clients use the streams of a Felix cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use felix_kafka::{Config, Embedding, start};
use felix_process::{log_to_stderr, stop_signal};

/// A Kafka listener of a Felix cluster.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// TOML file; its keys are in docs/OPERATING.md, and an unknown one is refused.
    #[arg(long, env = "FELIX_KAFKA_CONFIG")]
    config: Option<PathBuf>,
    /// Shows the configuration that would be used, and stops.
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::load(cli.config.as_deref()) {
        Ok(config) => config,
        Err(error) => return failed(&error),
    };
    if cli.print_config {
        print!("{}", config.to_toml());
        return ExitCode::SUCCESS;
    }
    log_to_stderr();
    for variable in Config::unknown_variables(std::env::vars().map(|(name, _)| name)) {
        tracing::warn!(variable, "an unknown variable is ignored");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    runtime.block_on(run(config))
}

/// The life of the process: start, serve until told to stop, drain.
async fn run(config: Config) -> ExitCode {
    let running = match start(config, Embedding::default()).await {
        Ok(running) => running,
        Err(error) => return failed(&error),
    };
    stop_signal().await;
    let drained = running.shutdown().await;
    tracing::info!(drained, "the listener stopped");
    if drained {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("felix-kafka: {error}");
    ExitCode::FAILURE
}
