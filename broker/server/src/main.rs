//! `felix-broker`: serves streams, and looks at logs offline.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use felix_broker::{Config, Embedding, start};
use felix_controlplane_client::Held;
use felix_journal::RealDisk;
use felix_process::{log_to_stderr, stop_signal};

/// A broker of a Felix cluster.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// TOML file; its keys are in docs/OPERATING.md, and an unknown one is refused.
    #[arg(long, env = "FELIX_BROKER_CONFIG")]
    config: Option<PathBuf>,
    /// Shows the configuration that would be used, and stops.
    #[arg(long)]
    print_config: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Looks at the logs below a directory without changing them: 0 clean, 6 would repair, 7 would refuse.
    Inspect {
        /// A data directory, or the directory of one log.
        directory: PathBuf,
        /// One JSON object a log, a line each, instead of text.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(Command::Inspect { directory, json }) = cli.command {
        return inspect(&directory, json);
    }
    let config = match Config::load(cli.config.as_deref()) {
        Ok(config) => config,
        Err(error) => return failed(&error),
    };
    if cli.print_config {
        print!("{}", config.to_toml());
        return ExitCode::SUCCESS;
    }
    log_to_stderr();
    for (name, close) in Config::unknown_variables(std::env::vars().map(|(name, _)| name)) {
        tracing::warn!(
            variable = name,
            did_you_mean = close,
            "an unknown variable is ignored"
        );
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
    let embedding = Embedding {
        token: Config::node_token().map(|token| Held::new(&token)),
        ..Embedding::default()
    };
    let running = match start(config, embedding).await {
        Ok(running) => running,
        Err(error) => return failed(&error),
    };
    stop_signal().await;
    let stopped = running.shutdown().await;
    tracing::info!(
        drained = stopped.drained,
        unflushed_logs = stopped.unflushed_logs,
        "the broker stopped"
    );
    if stopped.drained && stopped.unflushed_logs == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn inspect(directory: &std::path::Path, json: bool) -> ExitCode {
    let disk = RealDisk;
    let looked = if directory.join("streams").is_dir() {
        felix_journal::inspect::inspect_all(&disk, directory)
    } else {
        felix_journal::inspect(&disk, directory).map(|one| vec![one])
    };
    match looked {
        Ok(inspections) => {
            let worst = inspections
                .iter()
                .map(|one| one.verdict.exit_code())
                .max()
                .unwrap_or(0);
            for inspection in inspections {
                if json {
                    println!("{}", inspection.to_json());
                } else {
                    println!("{inspection}");
                }
            }
            ExitCode::from(worst)
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("felix-broker: {error}");
    ExitCode::FAILURE
}
