//! A watch that begins with every current value: how long until it has them all, and until the first change.

use std::time::Instant;

use felix_client::WatchSignal;
use serde_json::json;

use super::cache::{fill, key, payload};
use super::stream::Stream;
use super::{Machine, connect, shown};
use crate::cli::WatchBench;
use crate::commands::{App, client_failure};
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::settings::Settings;

const FIELDS: &[Field] = &[
    shown::rounded("values_ms"),
    shown::rounded("first_change_ms"),
    shown::thousands("keys"),
    shown::bytes("payload_bytes"),
    Field::plain("threads"),
    shown::MACHINE,
];

pub(super) async fn run(
    app: &App,
    settings: &Settings,
    args: &WatchBench,
) -> Result<Report, Failure> {
    let held = Stream::cache(app, settings).await?;
    let measured = measure(app, settings, args, &held.name).await;
    held.close().await;
    measured
}

async fn measure(
    app: &App,
    settings: &Settings,
    args: &WatchBench,
    name: &str,
) -> Result<Report, Failure> {
    let client = connect(app, settings, 1).await?;
    let cache = client
        .cache(name)
        .map_err(|error| client_failure(&error.into()))?;
    let value = payload(args.common.payload_bytes);
    fill(&cache, args.keys, &value).await?;
    let began = Instant::now();
    let mut watched = cache
        .watch_prefix("")
        .retained()
        .await
        .map_err(|error| client_failure(&error.into()))?;
    let (mut values_ms, mut held) = (0.0, 0);
    let first_change_ms = loop {
        let signal = watched
            .next_signal()
            .await
            .map_err(|error| client_failure(&error.into()))?;
        match signal {
            Some(WatchSignal::Change(change)) if change.retained => held += 1,
            Some(WatchSignal::Change(_)) => break began.elapsed().as_secs_f64() * 1e3,
            Some(WatchSignal::CaughtUp { values }) if values == args.keys && held == values => {
                values_ms = began.elapsed().as_secs_f64() * 1e3;
                cache
                    .put(&key(0), value.clone())
                    .await
                    .map_err(|error| client_failure(&error.into()))?;
            }
            other => {
                return Err(Failure::failed(format!(
                    "{held} of {} values came, and then {other:?}",
                    args.keys
                )));
            }
        }
    };
    client.close().await;
    let report = json!({
        "values_ms": values_ms,
        "first_change_ms": first_change_ms,
        "keys": args.keys,
        "payload_bytes": args.common.payload_bytes,
        "threads": args.common.threads,
        "machine": Machine::look(),
    });
    Ok(Report::one("felixctl.bench.watch/1", FIELDS, &report))
}
