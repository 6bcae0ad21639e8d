//! `group consume`: a worker that prints records, or runs a command for each.

use std::io::{self, Write as _};
use std::process::Stdio;

use felix_client::{Consumer, Delivery, GroupRecord, SettleFailed};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{Open, failed, in_json, now_ms};
use crate::cli::{AckMode, GroupConsume};
use crate::commands::App;
use crate::commands::reading::named;
use crate::exit::Failure;
use crate::output::{Format, Seen, write_for_people};

pub(super) async fn run(app: &App, args: &GroupConsume) -> Result<(), Failure> {
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let name = match &args.consumer {
        Some(name) => name.clone(),
        None => format!("felixctl-{}-{}", std::process::id(), now_ms()),
    };
    let begin = || async {
        let options = group.consumer(&name).visibility(args.visibility);
        // Few ahead: a command may be slow, and what waits here is claimed already.
        options.max_records(8).prefetch(8).await.map_err(failed)
    };
    let mut consumer = named(app, &open.settings, &args.stream, None, begin).await?;
    let worked = tokio::select! {
        worked = work(app, args, &mut consumer) => worked,
        // What was handed out and is not settled is given back before the process ends.
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    consumer.close().await;
    open.client.close().await;
    worked
}

async fn work(app: &App, args: &GroupConsume, consumer: &mut Consumer) -> Result<(), Failure> {
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(delivery) = consumer.next().await.map_err(failed)? else {
            return Ok(());
        };
        left -= 1;
        let settled = match &args.exec {
            Some(command) => {
                if exec(args, command, delivery.record()).await? {
                    delivery.ack()
                } else {
                    delivery.nack(args.delay)
                }
            }
            None => {
                let mut text = Vec::new();
                write(app, &args.stream, delivery.record(), &mut text);
                print(&text)?;
                match args.ack {
                    AckMode::Auto => delivery.ack(),
                    AckMode::None => {
                        keep(delivery);
                        continue;
                    }
                }
            }
        };
        // A claim that lapsed while the command ran is told; its record comes again.
        match settled.await {
            Err(stale @ SettleFailed::Stale { .. }) => eprintln!("{stale}"),
            Err(SettleFailed::Call(error)) => return Err(failed(error)),
            Err(error) => eprintln!("{error}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Leaves a record to lapse.
fn keep(delivery: Delivery) {
    drop(delivery);
}

/// Runs the command for a record. Whether it went well.
async fn exec(args: &GroupConsume, command: &str, record: &GroupRecord) -> Result<bool, Failure> {
    let key = record.key.as_deref().unwrap_or_default();
    let spawned = Command::new("sh")
        .arg("-c")
        .arg(command)
        .env("FELIX_STREAM", &args.stream)
        .env("FELIX_SHARD", record.shard.to_string())
        .env("FELIX_OFFSET", record.offset.to_string())
        .env("FELIX_ATTEMPTS", record.attempts.to_string())
        .env("FELIX_KEY", String::from_utf8_lossy(key).replace('\0', ""))
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| Failure::failed(format!("sh: {error}")))?;
    let value = record.value.clone().unwrap_or_default();
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read all of it need not.
        let _ = stdin.write_all(&value).await;
    }
    let ended = child.wait().await?;
    if !ended.success() {
        eprintln!(
            "shard {} offset {}: the command ended with {ended}; the record is given back",
            record.shard, record.offset
        );
    }
    Ok(ended.success())
}

/// One record as it is printed.
pub(super) fn write(app: &App, stream: &str, record: &GroupRecord, line: &mut Vec<u8>) {
    let seen = Seen {
        stream: stream.to_owned(),
        shard: record.shard,
        offset: Some(record.offset),
        timestamp_ms: Some(record.timestamp_ms).filter(|&ms| ms != 0),
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.clone(),
        skipped_before: record.skipped_before,
        publisher: None,
    };
    if in_json(app.output.shape) {
        let mut json = seen.json();
        if let Value::Object(object) = &mut json {
            object.insert("attempts".into(), record.attempts.into());
        }
        line.extend_from_slice(json.to_string().as_bytes());
        line.push(b'\n');
    } else if app.output.terminal {
        write_for_people(&seen, line);
    } else {
        Format::raw().write(&seen, false, line);
    }
}

pub(super) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
