//! `group …`: polling and settling by hand, working through a group, and looking after it.

mod consume;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use felix_client::{CallFailed, Claim, Client, Group, GroupStanding, PollOptions, Unsettled};
use serde_json::{Value, json};

use super::App;
use super::connect::{connect, failure};
use super::reading::{client_start, named};
use crate::cli::{DeadLettersCommand, GroupClaims, GroupCommand, GroupOf, GroupPoll as PollArgs};
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report, Shape, json_text};
use crate::parse::{Start, show_time};
use crate::settings::Settings;

const STANDING_FIELDS: &[Field] = &[
    Field::plain("group"),
    Field::plain("shard"),
    Field::plain("committed"),
    Field::plain("tail"),
    Field::plain("lag"),
    Field::plain("in_flight"),
    Field::plain("owed"),
    Field::plain("dead_letters"),
];

pub(super) async fn run(app: &App, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Ls { stream, shard } => ls(app, &stream, shard).await,
        GroupCommand::Describe(group) => describe(app, &group).await,
        GroupCommand::Create { group, at } => seek(app, &group, at, "create").await,
        GroupCommand::Seek { group, to } => seek(app, &group, to, "seek").await,
        GroupCommand::Delete { group, yes } => delete(app, &group, yes).await,
        GroupCommand::Poll(args) => poll(app, &args).await,
        GroupCommand::Ack(claims) => settle(app, &claims, Settle::Finish).await,
        GroupCommand::Nack { claims, delay } => {
            settle(app, &claims, Settle::GiveBack(delay.unwrap_or_default())).await
        }
        GroupCommand::Extend { claims, visibility } => {
            settle(app, &claims, Settle::Hold(visibility)).await
        }
        GroupCommand::Consume(args) => consume::run(app, &args).await,
        GroupCommand::DeadLetters(command) => dead_letters(app, command).await,
    }
}

/// A connection, for as long as a command needs it.
struct Open {
    settings: Settings,
    client: Client,
}

impl Open {
    async fn new(app: &App) -> Result<Self, Failure> {
        let settings = app.settings()?;
        let client = connect(app, &settings).await?;
        Ok(Self { settings, client })
    }

    fn group(&self, stream: &str, group: &str) -> Result<Group, Failure> {
        self.client.group(stream, group).map_err(failed)
    }

    /// The shards a command is about.
    async fn shards(
        &self,
        app: &App,
        stream: &str,
        shard: Option<u32>,
    ) -> Result<Vec<u32>, Failure> {
        if let Some(shard) = shard {
            return Ok(vec![shard]);
        }
        let ask = || async { self.client.stream_shards(stream).await.map_err(failed) };
        let width = named(app, &self.settings, stream, None, ask).await?;
        Ok((0..width.shards).collect())
    }
}

pub(super) fn failed(error: CallFailed) -> Failure {
    failure(&error.into())
}

fn standing(group: &str, shard: u32, standing: &GroupStanding) -> Value {
    json!({
        "group": group,
        "shard": shard,
        "committed": standing.committed,
        "tail": standing.tail,
        "lag": standing.lag,
        "in_flight": standing.in_flight,
        "owed": standing.owed,
        "dead_letters": standing.dead_letters,
    })
}

async fn ls(app: &App, stream: &str, shard: Option<u32>) -> Result<(), Failure> {
    let open = Open::new(app).await?;
    let mut rows = Vec::new();
    for shard in open.shards(app, stream, shard).await? {
        let groups = open.client.groups(stream, shard).await.map_err(failed)?;
        rows.extend(
            groups
                .iter()
                .map(|(group, found)| standing(group, shard, found)),
        );
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.ls/1", STANDING_FIELDS, rows);
    Ok(app.output.report(&report)?)
}

async fn describe(app: &App, args: &GroupOf) -> Result<(), Failure> {
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let mut rows = Vec::new();
    for shard in open.shards(app, &args.stream, args.shard).await? {
        let found = group.describe(shard).await.map_err(failed)?;
        rows.push(standing(&args.group, shard, &found));
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.describe/1", STANDING_FIELDS, rows);
    Ok(app.output.report(&report)?)
}

async fn seek(app: &App, args: &GroupOf, to: Start, how: &str) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("shard"),
        Field::plain("offset"),
        Field::plain("moved"),
    ];
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let mut rows = Vec::new();
    for shard in open.shards(app, &args.stream, args.shard).await? {
        let to = client_start(to);
        let position = match how {
            "create" => group.create(shard, to).await,
            _ => group.seek(shard, to).await,
        }
        .map_err(failed)?;
        rows.push(json!({
            "shard": shard,
            "offset": position.offset,
            "moved": position.moved,
        }));
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.position/1", FIELDS, rows);
    Ok(app.output.report(&report)?)
}

async fn delete(app: &App, args: &GroupOf, yes: bool) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[Field::plain("shard"), Field::plain("existed")];
    let what = format!(
        "group {} of {}, its position and dead letters",
        args.group, args.stream
    );
    confirm::destroy(&what, &args.group, yes.into())?;
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let mut rows = Vec::new();
    for shard in open.shards(app, &args.stream, args.shard).await? {
        let existed = group.delete(shard).await.map_err(failed)?;
        rows.push(json!({"shard": shard, "existed": existed}));
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.delete/1", FIELDS, rows);
    Ok(app.output.report(&report)?)
}

async fn poll(app: &App, args: &PollArgs) -> Result<(), Failure> {
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let options = PollOptions {
        max_records: args.max,
        wait: args.wait.unwrap_or_default(),
        visibility: args.visibility.unwrap_or_default(),
        consumer: args.consumer.clone(),
        reclaim: false,
    };
    let ask = || async { group.poll(args.shard, &options).await.map_err(failed) };
    let records = named(app, &open.settings, &args.stream, None, ask).await?;
    let mut text = Vec::new();
    for record in &records {
        consume::write(app, &args.stream, record, &mut text);
    }
    consume::print(&text)?;
    let claims: Vec<Claim> = records
        .iter()
        .map(|record| Claim {
            offset: record.offset,
            attempts: record.attempts,
        })
        .collect();
    let unsettled = match args.ack && !claims.is_empty() {
        true => {
            let consumer = args.consumer.as_deref();
            let acked = group.ack(args.shard, &claims, consumer).await;
            acked.map_err(failed)?
        }
        false => Vec::new(),
    };
    open.client.close().await;
    all_settled(&unsettled)
}

/// What becomes of claims.
#[derive(Clone, Copy)]
enum Settle {
    /// Their records are finished.
    Finish,
    /// Their records are handed out again after this long.
    GiveBack(Duration),
    /// They last this long from now.
    Hold(Duration),
}

/// Finishes records, gives them back after a delay, or holds them for longer.
async fn settle(app: &App, args: &GroupClaims, how: Settle) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[Field::plain("settled")];
    let claims: Vec<Claim> = args
        .records
        .iter()
        .map(|text| claim(text))
        .collect::<Result<_, _>>()?;
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let consumer = args.consumer.as_deref();
    let (word, unsettled) = match how {
        Settle::Finish => {
            let unsettled = group.ack(args.shard, &claims, consumer).await;
            ("finished", unsettled)
        }
        Settle::GiveBack(delay) => {
            let unsettled = group.nack(args.shard, &claims, delay, consumer).await;
            ("given back", unsettled)
        }
        Settle::Hold(visibility) => {
            let extended = group.extend(args.shard, &claims, visibility, consumer);
            ("extended", extended.await.map(|(_, unsettled)| unsettled))
        }
    };
    open.client.close().await;
    let unsettled = unsettled.map_err(failed)?;
    all_settled(&unsettled)?;
    let settled = claims.len();
    if app.output.is_json() {
        let report = json!({"settled": settled});
        let report = Report::one("felixctl.group.settled/1", FIELDS, &report);
        return Ok(app.output.report(&report)?);
    }
    Ok(app.output.say(&format!("{settled} {word}"))?)
}

fn claim(text: &str) -> Result<Claim, Failure> {
    let (offset, attempts) = text.split_once(':').unwrap_or((text, "0"));
    match (offset.parse(), attempts.parse()) {
        (Ok(offset), Ok(attempts)) => Ok(Claim { offset, attempts }),
        _ => Err(Failure::usage(format!(
            "{text:?} is no record; write OFFSET or OFFSET:ATTEMPT"
        ))),
    }
}

/// A claim that no longer stands is a conflict: another may have the record.
fn all_settled(unsettled: &[Unsettled]) -> Result<(), Failure> {
    let Some(first) = unsettled.first() else {
        return Ok(());
    };
    let offsets: Vec<String> = unsettled
        .iter()
        .map(|unsettled| unsettled.claim.offset.to_string())
        .collect();
    let message = format!("not settled: {}", offsets.join(", "));
    Err(Failure::new(Exit::Conflict, message)
        .with_code(first.code.clone())
        .with_hint("the claim has lapsed or was settled; the record may be handed out again"))
}

async fn dead_letters(app: &App, command: DeadLettersCommand) -> Result<(), Failure> {
    match command {
        DeadLettersCommand::Ls { group, limit } => list_letters(app, &group, limit).await,
        DeadLettersCommand::Redrive { group, offsets } => {
            move_letters(app, &group, &offsets, Letters::Redrive).await
        }
        DeadLettersCommand::Discard {
            group,
            offsets,
            yes,
        } => {
            let what = format!("dead letters of group {}", group.group);
            confirm::destroy(&what, &group.group, yes.into())?;
            move_letters(app, &group, &offsets, Letters::Discard).await
        }
    }
}

async fn list_letters(app: &App, args: &GroupOf, limit: usize) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("shard"),
        Field::plain("offset"),
        Field::plain("attempts"),
        Field::plain("reason"),
        Field::plain("set_aside_at"),
        Field::plain("set_aside_at_ms"),
        Field::plain("key"),
        Field::plain("key_encoding"),
        Field::plain("value"),
        Field::plain("value_encoding"),
    ];
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let mut rows = Vec::new();
    for shard in open.shards(app, &args.stream, args.shard).await? {
        let letters = group.dead_letters(shard, None, limit).await;
        for letter in letters.map_err(failed)? {
            let (key, key_encoding) = json_text(letter.key.as_deref());
            let (value, value_encoding) = json_text(letter.value.as_deref());
            // A broker that tells only offsets has no time to tell.
            let at = Some(letter.set_aside_at_ms).filter(|&ms| ms != 0);
            rows.push(json!({
                "shard": shard,
                "offset": letter.offset,
                "attempts": letter.attempts,
                "reason": letter.reason,
                "set_aside_at": at.map(show_time),
                "set_aside_at_ms": at,
                "key": key,
                "key_encoding": key_encoding,
                "value": value,
                "value_encoding": value_encoding,
            }));
        }
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.dead_letters/1", FIELDS, rows);
    Ok(app.output.report(&report)?)
}

/// What is done with dead letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    Redrive,
    Discard,
}

async fn move_letters(
    app: &App,
    args: &GroupOf,
    offsets: &[u64],
    how: Letters,
) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("shard"),
        Field::plain("count"),
        Field::plain("missing"),
    ];
    if !offsets.is_empty() && args.shard.is_none() {
        return Err(Failure::usage(
            "--offset needs --shard: offsets are of one shard",
        ));
    }
    let open = Open::new(app).await?;
    let group = open.group(&args.stream, &args.group)?;
    let chosen = (!offsets.is_empty()).then_some(offsets);
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for shard in open.shards(app, &args.stream, args.shard).await? {
        let moved = match how {
            Letters::Redrive => group.redrive(shard, chosen).await,
            Letters::Discard => group.discard(shard, chosen).await,
        }
        .map_err(failed)?;
        rows.push(json!({"shard": shard, "count": moved.count, "missing": moved.missing}));
        missing.extend(moved.missing);
    }
    open.client.close().await;
    let report = Report::list("felixctl.group.letters/1", FIELDS, rows);
    app.output.report(&report)?;
    match missing.first() {
        None => Ok(()),
        Some(offset) => Err(Failure::new(
            Exit::NotFound,
            format!("{offset} is no dead letter of {}", args.group),
        )
        .with_code("not_a_dead_letter")),
    }
}

/// Whether records are printed as JSON.
pub(super) fn in_json(shape: Shape) -> bool {
    matches!(shape, Shape::Json | Shape::Ndjson)
}

/// This machine's clock as Unix milliseconds; used for names that are drawn.
pub(super) fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_by_its_offset_and_perhaps_a_delivery() {
        let named = |offset, attempts| Ok(Claim { offset, attempts });
        assert_eq!(claim("7"), named(7, 0));
        assert_eq!(claim("7:3"), named(7, 3));
        for wrong in ["", "x", "7:", ":3", "-1"] {
            assert_eq!(claim(wrong).expect_err(wrong).exit, Exit::Usage);
        }
    }
}
