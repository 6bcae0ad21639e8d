//! `session ls | end` and `revoke`.

use serde_json::json;

use super::{named, show_ms, tenant, text};
use crate::api::quote;
use crate::cli::{Revoke, SessionCommand};
use crate::commands::App;
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};

const FIELDS: &[Field] = &[
    Field::plain("session_id"),
    Field::plain("principal_id"),
    Field::plain("issuer"),
    Field::plain("subject"),
    Field::plain("service_account"),
    Field::plain("audience"),
    Field::plain("from"),
    Field::shown("created_at_ms", show_ms),
    Field::shown("refreshed_at_ms", show_ms),
    Field::shown("expires_at_ms", show_ms),
];

pub(in crate::commands) async fn run(app: &App, command: SessionCommand) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let path = format!("{path}/sessions");
    match command {
        SessionCommand::Ls { principal } => {
            let mut all = api.list(&path).await?;
            all.retain(|session| {
                principal
                    .as_deref()
                    .is_none_or(|principal| text(session, "principal_id") == Some(principal))
            });
            Ok(app
                .output
                .report(&Report::list("felixctl.session.ls/1", FIELDS, all))?)
        }
        SessionCommand::End { session_id, yes } => {
            let session = named(api.list(&path).await?, "session_id", &session_id, "session")?;
            let whose = text(&session, "principal_id").unwrap_or_default();
            let what = format!("session {session_id} of {whose}");
            confirm::destroy(&what, &session_id, yes.into())?;
            api.delete(&format!("{path}/{}", quote(&session_id)))
                .await?;
            Ok(app.output.say(&format!(
                "session {session_id} has ended; brokers refuse its tokens within seconds"
            ))?)
        }
    }
}

pub(in crate::commands) async fn revoke(app: &App, command: &Revoke) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let kind = command.kind.name();
    let what = format!("every token of {kind} {} issued until now", command.id);
    confirm::destroy(&what, &command.id, command.yes.into())?;
    let body = json!({ "kind": kind, "id": command.id, "reason": command.reason });
    api.post(&format!("{path}/revocations"), Some(&body))
        .await?;
    Ok(app
        .output
        .say(&format!("{what} is refused within seconds"))?)
}
