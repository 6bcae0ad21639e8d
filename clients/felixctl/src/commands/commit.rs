//! `commit` and `state get | ls`.

use felix_client::{Client, Error, StateEntry};
use serde_json::{Map, Value, json};

use super::App;
use super::connect::{connect, failure};
use super::keys::{print_value, value_of};
use super::reading::named;
use crate::cli::{Commit, StateCommand, ValueSource};
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report, json_text};

const FIELDS: &[Field] = &[
    Field::plain("key"),
    Field::plain("value"),
    Field::plain("value_encoding"),
    Field::plain("version"),
];

/// A commit as it was typed.
struct Typed {
    puts: Vec<(String, String)>,
    conditions: Vec<(String, Option<u64>)>,
}

pub(super) async fn run(app: &App, args: &Commit) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("stream"),
        Field::plain("entity"),
        Field::plain("offset"),
        Field::plain("repeated"),
    ];
    let typed = Typed {
        puts: args
            .puts
            .iter()
            .map(|text| pair(text, "--put"))
            .collect::<Result<_, _>>()?,
        conditions: args
            .conditions
            .iter()
            .map(|text| condition(text))
            .collect::<Result<_, _>>()?,
    };
    let source = ValueSource {
        value: args.event.clone(),
        file: None,
    };
    let event = value_of(&source)?;
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let attempt = || async {
        let committed = described(&client, args, &typed, event.clone()).await;
        committed.map_err(|error| failure(&Error::from(error)))
    };
    let committed = named(app, &settings, &args.stream, None, attempt).await;
    client.close().await;
    let committed = committed?;
    if app.output.is_json() {
        let report = json!({
            "stream": args.stream,
            "entity": args.entity,
            "offset": committed.offset,
            "repeated": committed.repeated,
        });
        let report = Report::one("felixctl.commit/1", FIELDS, &report);
        return Ok(app.output.report(&report)?);
    }
    let before = if committed.repeated { " before" } else { "" };
    let offset = committed.offset;
    let said = format!("committed to {} at offset {offset}{before}", args.stream);
    Ok(app.output.say(&said)?)
}

fn described(
    client: &Client,
    args: &Commit,
    typed: &Typed,
    event: bytes::Bytes,
) -> impl Future<Output = Result<felix_client::Committed, felix_client::CommitFailed>> {
    let mut commit = client.commit(&args.stream, args.entity.clone(), event);
    for (key, value) in &typed.puts {
        commit = commit.put(key, value.clone());
    }
    for key in &args.deletes {
        commit = commit.delete(key);
    }
    for (key, version) in &typed.conditions {
        commit = commit.if_version(key, *version);
    }
    if let Some(offset) = args.expected_offset {
        commit = commit.at_offset(offset);
    }
    if let Some(once) = &args.once {
        commit = commit.once(once.clone());
    }
    commit.into_future()
}

fn pair(text: &str, flag: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!(
            "{flag} {text:?} has another form than key=value"
        ))),
    }
}

fn condition(text: &str) -> Result<(String, Option<u64>), Failure> {
    let (key, version) = pair(text, "--if")?;
    if version.is_empty() {
        return Ok((key, None));
    }
    let version = version.parse();
    let version = version.map_err(|_| Failure::usage(format!("--if {text:?} has no version")))?;
    Ok((key, Some(version)))
}

pub(super) async fn state(app: &App, command: &StateCommand) -> Result<(), Failure> {
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let stream = match command {
        StateCommand::Get { stream, .. } | StateCommand::Ls { stream, .. } => stream,
    };
    let attempt = || async {
        read(&client, command)
            .await
            .map_err(|error| failure(&error))
    };
    let entries = named(app, &settings, stream, None, attempt).await;
    client.close().await;
    let entries = entries?;
    match command {
        StateCommand::Get { key, .. } => {
            let entry = entries.first().ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("{key:?} holds nothing")).with_code("no_entry")
            })?;
            if app.output.is_json() {
                let report = Report::one("felixctl.state.entry/1", FIELDS, &object(entry));
                return Ok(app.output.report(&report)?);
            }
            print_value(app, &entry.value)
        }
        StateCommand::Ls { .. } => {
            let rows = entries.iter().map(object);
            let report = Report::list("felixctl.state.ls/1", FIELDS, rows);
            Ok(app.output.report(&report)?)
        }
    }
}

async fn read(client: &Client, command: &StateCommand) -> Result<Vec<StateEntry>, Error> {
    Ok(match command {
        StateCommand::Get {
            stream,
            entity,
            key,
        } => {
            let state = client.state(stream, entity.clone())?;
            state.get(key).await?.into_iter().collect()
        }
        StateCommand::Ls {
            stream,
            entity,
            prefix,
        } => client.state(stream, entity.clone())?.list(prefix).await?,
    })
}

fn object(entry: &StateEntry) -> Map<String, Value> {
    let (value, encoding) = json_text(Some(&entry.value));
    let mut object = Map::new();
    object.insert("key".into(), entry.key.clone().into());
    object.insert("value".into(), value);
    object.insert("value_encoding".into(), encoding);
    object.insert("version".into(), entry.version.into());
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_a_version_or_that_there_is_none() {
        assert_eq!(condition("a=7"), Ok(("a".to_owned(), Some(7))));
        assert_eq!(condition("a="), Ok(("a".to_owned(), None)));
        for wrong in ["a", "=7", "a=x"] {
            assert_eq!(condition(wrong).expect_err(wrong).exit, Exit::Usage);
        }
    }
}
