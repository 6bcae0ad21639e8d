//! Additions to the counters of a cache on disk: clients that have several under way each.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::cache::key;
use super::closed::{self, Jumping, Loops};
use super::stream::Stream;
use super::{Machine, connect, shown};
use crate::cli::CounterBench;
use crate::commands::{App, client_failure};
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::thousands("per_second"),
    shown::rounded("p50_us"),
    shown::rounded("p90_us"),
    shown::rounded("p99_us"),
    shown::rounded("p999_us"),
    shown::rounded("max_us"),
    shown::thousands("additions"),
    Field::plain("seconds"),
    Field::plain("clients"),
    Field::plain("connections"),
    Field::plain("in_flight"),
    shown::thousands("keys"),
    Field::plain("threads"),
    shown::MACHINE,
];

pub(super) async fn run(
    app: &App,
    settings: &Settings,
    args: &CounterBench,
) -> Result<Report, Failure> {
    if args.clients == 0 || args.connections == 0 || args.in_flight == 0 || args.keys == 0 {
        return Err(Failure::usage(
            "--clients, --connections, --in-flight and --keys are at least 1",
        ));
    }
    let held = Stream::cache(app, settings).await?;
    let measured = measure(app, settings, args, &held.name).await;
    held.close().await;
    measured
}

async fn measure(
    app: &App,
    settings: &Settings,
    args: &CounterBench,
    name: &str,
) -> Result<Report, Failure> {
    let client = connect(app, settings, args.connections).await?;
    let counter = client
        .counter(name)
        .map_err(|error| client_failure(&error.into()))?;
    let workers = (0..args.clients * args.in_flight).map(|number| {
        let (counter, keys) = (counter.clone(), args.keys);
        move |loops: Arc<Loops>| async move {
            let mut drawn = Jumping::new(number);
            while loops.go_on() {
                let key = key(drawn.below(keys));
                let began = Instant::now();
                counter
                    .add(&key, 1)
                    .await
                    .map_err(|error| client_failure(&error.into()))?;
                loops.did(began, 1);
            }
            Ok(())
        }
    });
    let measured = closed::run(&args.common, workers).await?;
    client.close().await;
    let mut report = json!({
        "per_second": measured.per_second(),
        "additions": measured.done,
        "seconds": measured.seconds,
        "clients": args.clients,
        "connections": args.connections,
        "in_flight": args.in_flight,
        "keys": args.keys,
        "threads": args.common.threads,
        "machine": Machine::look(),
    });
    shown::put_all(&mut report, &measured.times);
    Ok(Report::one("felixctl.bench.counter/1", FIELDS, &report))
}
