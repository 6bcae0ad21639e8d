//! `felix-e2e felixctl …` is the command line of Felix, as a process to be killed; `felix-e2e kills` kills it.
//!
//! What never lives here: anything that a test could not call; it is all in the library.
//!
//! Begin with [`main`].

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use felix_e2e::{Home, browsers, idle, kills, readings, stopped_reader};
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
        /// Load caches, counters, groups and commits instead of streams
        #[arg(long)]
        readings: bool,
        /// Chooses the moments; printed by a run that chose its own
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measures what a subscriber that stops reading does to the others, and whether it catches up
    StoppedReader {
        /// Length of each of the two phases
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Serves as a broker that the environment configures; for tests that need one beside a node's own
    Broker,
    /// Measures how soon what rests on something that is revoked has ended
    Revocation,
    /// Measures what connections cost that say nothing after they authenticated
    IdleConnections {
        /// How many
        #[arg(long, default_value_t = 1_000)]
        count: usize,
    },
    /// Lets many browsers come to a gateway that runs; `tests/conformance/gateway_load.py` starts one
    Browsers {
        /// The gateway, `address:port`
        #[arg(long)]
        gateway: std::net::SocketAddr,
        /// Its process
        #[arg(long)]
        pid: u32,
        /// File that holds a provider's tokens, one a line
        #[arg(long)]
        token_file: std::path::PathBuf,
        /// Browsers that do nothing
        #[arg(long, default_value_t = 5_000)]
        idle: usize,
        /// Scopes that exist, with commas between
        #[arg(long, value_delimiter = ',')]
        boards: Vec<String>,
        /// Browsers that read, on each of them
        #[arg(long, default_value_t = 100)]
        readers: usize,
        /// Events a second on each of them
        #[arg(long, default_value_t = 100)]
        rate: u32,
        /// How long
        #[arg(long, default_value_t = 20)]
        seconds: u64,
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
        Command::Kills {
            count,
            readings: false,
            seed,
        } => campaign(count, seed).await,
        Command::Kills { count, seed, .. } => readings_campaign(count, seed).await,
        Command::Broker => felix_e2e::broker::serve().await,
        Command::Revocation => revocation().await,
        Command::IdleConnections { count } => idle_connections(count).await,
        Command::Browsers {
            gateway,
            pid,
            token_file,
            idle,
            boards,
            readers,
            rate,
            seconds,
        } => match std::fs::read_to_string(&token_file) {
            Ok(lines) => {
                let tokens = lines.lines().map(str::to_owned).collect();
                let lasts = Duration::from_secs(seconds);
                let load = browsers::Load {
                    gateway,
                    pid,
                    tokens,
                    idle,
                    boards,
                    readers,
                    rate,
                    lasts,
                };
                browsers(load).await
            }
            Err(error) => Err(format!("{}: {error}", token_file.display())),
        },
        Command::StoppedReader { seconds } => stopped_reader(Duration::from_secs(seconds)).await,
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

fn home() -> Result<Home, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    Home::new(program).map_err(|error| error.to_string())
}

async fn stopped_reader(phase: Duration) -> Result<(), String> {
    let comparison = stopped_reader::run(&home()?, phase)
        .await
        .map_err(|error| error.to_string())?;
    comparison.print();
    Ok(())
}

async fn browsers(load: browsers::Load) -> Result<(), String> {
    let measured = browsers::run(&load)
        .await
        .map_err(|error| error.to_string())?;
    let [half, most, longest] = measured.delays.map(|delay| delay.as_secs_f64() * 1_000.0);
    println!("{} bytes for each idle browser", measured.bytes_per_idle);
    println!(
        "{} of {} events delivered, {:.0} a second; half within {half:.1} ms, 99 of 100 within {most:.1} ms, all within \
         {longest:.1} ms",
        measured.delivered,
        measured.expected,
        measured.delivered as f64 / measured.took.as_secs_f64(),
    );
    if measured.delivered < measured.expected {
        return Err("events are missing".into());
    }
    println!("1 passed, 0 failed");
    Ok(())
}

async fn revocation() -> Result<(), String> {
    let delays = felix_e2e::revocation::run(home).await;
    let delays = delays.map_err(|error| error.to_string())?;
    for delay in &delays {
        let millis = delay.took.as_secs_f64() * 1_000.0;
        println!(
            "{:?} revoked: ended {millis:.1} ms after the answer",
            delay.kind
        );
    }
    println!("{} passed, 0 failed", delays.len());
    Ok(())
}

async fn idle_connections(count: usize) -> Result<(), String> {
    // They all come from one address.
    let limit = (2 * count + 100).to_string();
    let home = home()?
        .variable("FELIX_MAX_CONNECTIONS_PER_IP", &limit)
        .variable("FELIX_MAX_CLIENT_CONNECTIONS", &limit);
    let measured = idle::run(&home, count).await;
    for grown in measured.map_err(|error| error.to_string())? {
        grown.print();
    }
    println!("1 passed, 0 failed");
    Ok(())
}

async fn readings_campaign(count: u32, seed: Option<u64>) -> Result<(), String> {
    let seed = seed
        .map_or_else(getrandom::u64, Ok)
        .map_err(|error| error.to_string())?;
    let home = home()?;
    println!("seed {seed}, data in {}", home.path().display());
    let began = Instant::now();
    let bar = ProgressBar::new(u64::from(count));
    let random = kills::Random::new(seed);
    let outcome = readings::run(&home, count, random, |round| {
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

async fn campaign(count: u32, seed: Option<u64>) -> Result<(), String> {
    let seed = seed
        .map_or_else(getrandom::u64, Ok)
        .map_err(|error| error.to_string())?;
    let home = home()?;
    println!("seed {seed}, data in {}", home.path().display());
    let bar = ProgressBar::new(u64::from(count));
    let began = Instant::now();
    let outcome = kills::run(&home, count, kills::Random::new(seed), |round, _| {
        bar.set_position(u64::from(round));
        // The bar is for terminals; in a log a line now and then says that it goes on.
        if bar.is_hidden() && round > 0 && round.is_multiple_of(100) {
            println!(
                "{round} kills, nothing lost, {:.0} s",
                began.elapsed().as_secs_f64()
            );
        }
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
