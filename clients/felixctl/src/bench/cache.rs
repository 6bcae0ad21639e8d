//! Gets and puts of a cache on disk: clients that have one call under way each.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use felix_client::Cache;
use serde_json::json;

use super::closed::{self, Jumping, Loops};
use super::stream::Stream;
use super::{Machine, connect, shown};
use crate::cli::CacheBench;
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
    Field::plain("operation"),
    shown::thousands("calls"),
    Field::plain("seconds"),
    Field::plain("clients"),
    Field::plain("connections"),
    shown::thousands("keys"),
    shown::bytes("payload_bytes"),
    Field::plain("threads"),
    shown::MACHINE,
];

/// Puts under way while the cache is filled.
const FILLING: u64 = 256;

pub(super) async fn run(
    app: &App,
    settings: &Settings,
    args: &CacheBench,
) -> Result<Report, Failure> {
    if args.clients == 0 || args.connections == 0 || args.keys == 0 {
        return Err(Failure::usage(
            "--clients, --connections and --keys are at least 1",
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
    args: &CacheBench,
    name: &str,
) -> Result<Report, Failure> {
    let client = connect(app, settings, args.connections).await?;
    let cache = client
        .cache(name)
        .map_err(|error| client_failure(&error.into()))?;
    let value = payload(args.common.payload_bytes);
    fill(&cache, args.keys, &value).await?;
    let puts = args.operation == "put";
    let workers = (0..args.clients).map(|number| {
        let (cache, value, keys) = (cache.clone(), value.clone(), args.keys);
        move |loops: Arc<Loops>| async move {
            let mut drawn = Jumping::new(number);
            while loops.go_on() {
                let key = key(drawn.below(keys));
                let began = Instant::now();
                if puts {
                    cache.put(&key, value.clone()).await.map(drop)
                } else {
                    cache.get(&key).await.map(drop)
                }
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
        "operation": args.operation,
        "calls": measured.done,
        "seconds": measured.seconds,
        "clients": args.clients,
        "connections": args.connections,
        "keys": args.keys,
        "payload_bytes": args.common.payload_bytes,
        "threads": args.common.threads,
        "machine": Machine::look(),
    });
    shown::put_all(&mut report, &measured.times);
    Ok(Report::one("felixctl.bench.cache/1", FIELDS, &report))
}

/// A value of so many bytes.
pub(super) fn payload(bytes: u64) -> Bytes {
    Bytes::from(vec![b'x'; usize::try_from(bytes).unwrap_or_default()])
}

/// The key of a number; as long as redis-benchmark's.
pub(super) fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Puts every key once.
pub(super) async fn fill(cache: &Cache, keys: u64, value: &Bytes) -> Result<(), Failure> {
    let mut filling = tokio::task::JoinSet::new();
    for first in 0..FILLING.min(keys) {
        let (cache, value) = (cache.clone(), value.clone());
        filling.spawn(async move {
            for number in (first..keys).step_by(FILLING as usize) {
                cache.put(&key(number), value.clone()).await?;
            }
            Ok::<_, felix_client::CacheFailed>(())
        });
    }
    while let Some(filled) = filling.join_next().await {
        filled
            .map_err(|error| Failure::failed(error.to_string()))?
            .map_err(|error| client_failure(&error.into()))?;
    }
    Ok(())
}
