//! `felixctl bench`: latency, fan-out, ingest, caches, counters and groups, measured the same way every time.
//!
//! Rules every measurement here keeps: only what arrived counts; what is in flight is bounded, so
//! that a queue is never mistaken for throughput; nothing is recorded during the warm-up; a late
//! start that the system caused is part of the latency (no coordinated omission); and a figure is
//! printed together with the machine it was measured on.

mod cache;
mod closed;
mod counter;
mod fanout;
mod group;
mod ingest;
mod latency;
mod machine;
mod reader;
mod shown;
mod stream;
mod times;
mod watch;

pub use machine::Machine;
pub use times::{Percentiles, Times};

use std::time::Duration;

use felix_client::Client;

use crate::cli::{self, BenchCommand, Common};
use crate::commands::App;
use crate::exit::Failure;
use crate::output::Report;
use crate::settings::Settings;

/// Nothing arriving for this long while something is in flight ends a measurement: records were
/// lost, and waiting would only hide it.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Smallest payload: two numbers travel in it.
const PAYLOAD_BYTES_MIN: u64 = 16;

/// Carries out one measurement and prints it.
///
/// # Errors
/// When there is nobody to measure, or records were lost.
pub fn run(app: &App, args: &cli::Bench) -> Result<(), Failure> {
    let common = match &args.command {
        BenchCommand::Latency(args) => &args.common,
        BenchCommand::Fanout(args) => &args.common,
        BenchCommand::Ingest(args) => &args.common,
        BenchCommand::Cache(args) => &args.common,
        BenchCommand::Counter(args) => &args.common,
        BenchCommand::Group(args) => &args.common,
        BenchCommand::Watch(args) => &args.common,
    };
    check(common)?;
    let report = tokio::task::block_in_place(|| {
        runtime(common.threads)?.block_on(async {
            tokio::select! {
                report = measure(app, &args.command) => report,
                _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
            }
        })
    })?;
    Ok(app.output.report(&report)?)
}

/// A runtime of the measurement's own, so that its threads are as many as were asked for and
/// nothing else runs on them.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    Ok(builder.enable_all().build()?)
}

async fn measure(app: &App, command: &BenchCommand) -> Result<Report, Failure> {
    let settings = app.settings()?;
    match command {
        BenchCommand::Latency(args) => latency::run(app, &settings, args).await,
        BenchCommand::Fanout(args) => fanout::run(app, &settings, args).await,
        BenchCommand::Ingest(args) => ingest::run(app, &settings, args).await,
        BenchCommand::Cache(args) => cache::run(app, &settings, args).await,
        BenchCommand::Counter(args) => counter::run(app, &settings, args).await,
        BenchCommand::Group(args) => group::run(app, &settings, args).await,
        BenchCommand::Watch(args) => watch::run(app, &settings, args).await,
    }
}

fn check(common: &Common) -> Result<(), Failure> {
    if common.payload_bytes < PAYLOAD_BYTES_MIN {
        return Err(Failure::usage(format!(
            "a payload has at least {PAYLOAD_BYTES_MIN} bytes"
        )));
    }
    if common.duration < Duration::from_millis(100) {
        return Err(Failure::usage("less than 100 ms measures nothing"));
    }
    if common.threads == 0 {
        return Err(Failure::usage("--threads is at least 1"));
    }
    Ok(())
}

/// A client for measuring, with this many connections.
async fn connect(app: &App, settings: &Settings, connections: usize) -> Result<Client, Failure> {
    let builder = crate::commands::client_builder(app, settings)
        .await?
        .connections(connections);
    builder
        .connect()
        .await
        .map_err(|error| crate::commands::client_failure(&error.into()))
}

/// What is said when records that were acknowledged did not arrive.
fn lost(received: u64, expected: u64) -> Failure {
    Failure::failed(format!(
        "nothing arrived for {} s: {received} of {expected} records were received",
        SILENCE_MAX.as_secs()
    ))
    .with_hint("an in-memory stream drops what a subscriber cannot take; --durable loses nothing")
}
