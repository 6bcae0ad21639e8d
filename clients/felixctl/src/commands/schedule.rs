//! `pub --at | --in` and `schedule ls | cancel`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use felix_client::{Record, ScheduledRecord, Waiting};
use serde_json::{Value, json};

use super::App;
use super::connect::{connect, failure};
use super::input::Inputs;
use super::reading::named;
use crate::cli::{Pub, ScheduleCommand};
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report, json_text};
use crate::parse::show_time;

/// Publishes for later. `None` when the records are to be visible now.
pub(super) fn due(args: &Pub) -> Option<SystemTime> {
    match (args.at, args.after) {
        (Some(at_ms), _) => {
            let at_ms = u64::try_from(at_ms).unwrap_or_default();
            Some(UNIX_EPOCH + Duration::from_millis(at_ms))
        }
        (None, after) => Some(SystemTime::now() + after?),
    }
}

pub(super) async fn publish(app: &App, args: &Pub, due: SystemTime) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("id"),
        Field::plain("shard"),
        Field::plain("due"),
        Field::plain("due_ms"),
    ];
    let settings = app.settings()?;
    let mut inputs = Inputs::open(args)?;
    let client = connect(app, &settings).await?;
    let mut scheduled = Vec::new();
    while let Some(input) = inputs.next().await {
        let input = input?;
        let attempt = || async {
            let mut record = Record::new(input.value.clone());
            if let Some(key) = &input.key {
                record = record.key(key.clone());
            }
            for (name, value) in &input.headers {
                record = record.header(name.clone(), value.clone());
            }
            let schedule = client
                .schedule(&args.stream)
                .map_err(|error| failure(&error.into()))?;
            let added = schedule.add(due, record).await;
            added.map_err(|error| failure(&error.into()))
        };
        scheduled.push(named(app, &settings, &args.stream, args.wait, attempt).await?);
    }
    client.close().await;
    let rows = scheduled.iter().map(|scheduled: &ScheduledRecord| {
        json!({
            "id": scheduled.id,
            "shard": scheduled.shard,
            "due_ms": scheduled.due_ms,
            "due": time(scheduled.due_ms),
        })
    });
    let report = Report::list("felixctl.pub.scheduled/1", FIELDS, rows);
    Ok(app.output.report(&report)?)
}

fn time(ms: u64) -> Value {
    i64::try_from(ms).ok().map(show_time).into()
}

pub(super) async fn run(app: &App, command: &ScheduleCommand) -> Result<(), Failure> {
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let stream = match command {
        ScheduleCommand::Ls { stream, .. } | ScheduleCommand::Cancel { stream, .. } => stream,
    };
    let attempt = || async {
        let schedule = client.schedule(stream);
        let schedule = schedule.map_err(|error| failure(&error.into()))?;
        match command {
            ScheduleCommand::Ls { limit, .. } => {
                let waiting = schedule.list(*limit).await;
                waiting
                    .map(Done::Listed)
                    .map_err(|error| failure(&error.into()))
            }
            ScheduleCommand::Cancel { id, .. } => {
                let existed = schedule.cancel(id).await;
                existed
                    .map(Done::Cancelled)
                    .map_err(|error| failure(&error.into()))
            }
        }
    };
    let done = named(app, &settings, stream, None, attempt).await;
    client.close().await;
    match (done?, command) {
        (Done::Listed(waiting), _) => list(app, &waiting),
        (Done::Cancelled(true), ScheduleCommand::Cancel { id, .. }) => {
            const FIELDS: &[Field] = &[Field::plain("id"), Field::plain("cancelled")];
            if app.output.is_json() {
                let report = json!({"id": id, "cancelled": true});
                let report = Report::one("felixctl.schedule.cancel/1", FIELDS, &report);
                return Ok(app.output.report(&report)?);
            }
            Ok(app.output.say(&format!("{id} is taken back"))?)
        }
        (Done::Cancelled(_), _) => {
            let message = "no such record waits: it was appended, taken back, or never there";
            Err(Failure::new(Exit::NotFound, message).with_code("not_scheduled"))
        }
    }
}

/// What a command came to.
enum Done {
    Listed(Vec<Waiting>),
    Cancelled(bool),
}

fn list(app: &App, waiting: &[Waiting]) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("id"),
        Field::plain("due"),
        Field::plain("due_ms"),
        Field::plain("shard"),
        Field::plain("key"),
        Field::plain("key_encoding"),
        Field::plain("value"),
        Field::plain("value_encoding"),
    ];
    let rows = waiting.iter().map(|record| {
        let (key, key_encoding) = json_text(record.key.as_deref());
        let (value, value_encoding) = json_text(record.value.as_deref());
        json!({
            "id": record.id,
            "due": time(record.due_ms),
            "due_ms": record.due_ms,
            "shard": record.shard,
            "key": key,
            "key_encoding": key_encoding,
            "value": value,
            "value_encoding": value_encoding,
        })
    });
    let report = Report::list("felixctl.schedule.ls/1", FIELDS, rows);
    Ok(app.output.report(&report)?)
}
