//! `shard ls`: what the broker holds, also what it could not open.

use serde_json::Value;

use super::App;
use crate::api::Api;
use crate::cli::ShardCommand;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::trust::Tls;

pub(super) async fn run(app: &App, command: ShardCommand) -> Result<(), Failure> {
    let ShardCommand::Ls { stream } = command;
    let settings = app.settings()?;
    let api = Api::new(
        settings.broker_admin_url()?,
        None,
        &Tls::default(),
        app.timeout(),
        "the broker",
    )?;
    let mut answer = api.get("/shards").await?;
    let mut shards = match answer.get_mut("shards").map(Value::take) {
        Some(Value::Array(shards)) => shards,
        _ => Vec::new(),
    };
    if let Some(wanted) = &stream {
        shards.retain(|shard| {
            let full = shard
                .get("stream")
                .and_then(Value::as_str)
                .unwrap_or_default();
            full == wanted || full.rsplit('/').next() == Some(wanted)
        });
    }
    const FIELDS: &[Field] = &[
        Field::plain("stream"),
        Field::plain("incarnation"),
        Field::plain("shard"),
        Field::plain("state"),
        Field::plain("start"),
        Field::plain("committed"),
        Field::plain("end"),
        Field::plain("directory"),
        Field::plain("detail"),
    ];
    Ok(app
        .output
        .report(&Report::list("felixctl.shard.ls/1", FIELDS, shards))?)
}
