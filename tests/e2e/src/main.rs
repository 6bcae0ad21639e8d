//! `felix-e2e felixctl …` is the command line of Felix, as a process to be killed; `felix-e2e kills` kills it;
//! `felix-e2e segments` writes what `tests/kafka` reads.
//!
//! What never lives here: anything that a test could not call; it is all in the library.
//!
//! Begin with [`main`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use felix_e2e::{Home, kills};
use felixctl::surroundings::Surroundings;
use indicatif::ProgressBar;

/// Campaigns against real processes.
#[derive(Debug, Parser)]
enum Command {
    /// Kills a node under load, again and again, and compares what it acknowledged with what it kept
    Kills {
        /// How often
        #[arg(long, default_value_t = 30)]
        count: u32,
        /// Chooses the moments; printed by a run that chose its own
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Writes a log with every kind of batch into a directory and prints what is in it, as JSON
    Segments {
        /// The directory
        directory: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "felixctl") {
        arguments.remove(0);
        return felixctl::run(arguments, Surroundings::read()).await.into();
    }
    let outcome = match Command::parse() {
        Command::Kills { count, seed } => campaign(count, seed).await,
        Command::Segments { directory } => write_segments(&directory),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn write_segments(directory: &Path) -> Result<(), String> {
    let written = felix_e2e::segments::write(directory).map_err(|error| error.to_string())?;
    let json = serde_json::to_string(&written).map_err(|error| error.to_string())?;
    println!("{json}");
    Ok(())
}

async fn campaign(count: u32, seed: Option<u64>) -> Result<(), String> {
    let seed = seed
        .map_or_else(getrandom::u64, Ok)
        .map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let home = Home::new(program).map_err(|error| error.to_string())?;
    println!("seed {seed}, data in {}", home.path().display());
    let bar = ProgressBar::new(u64::from(count));
    let began = Instant::now();
    let outcome = kills::run(&home, count, kills::Random::new(seed), |round, _| {
        bar.set_position(u64::from(round));
    })
    .await;
    bar.finish_and_clear();
    match outcome {
        Ok(summary) => {
            summary.print(seed, began);
            Ok(())
        }
        Err(failed) => {
            let kept = home.keep();
            Err(format!(
                "seed {seed}: {failed}\nthe node's directory is kept in {}",
                kept.display()
            ))
        }
    }
}
