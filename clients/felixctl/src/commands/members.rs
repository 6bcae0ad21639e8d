//! `controlplane members ls | add | rm`: who keeps the raft ledger.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::App;
use crate::api::Api;
use crate::cli::{ControlPlaneCommand, MembersCommand};
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};

const PATH: &str = "/v1/controlplane/members";

const FIELDS: &[Field] = &[
    Field::plain("member"),
    Field::plain("role"),
    Field::plain("leads"),
    Field::plain("address"),
    Field::plain("storage"),
    Field::plain("holds"),
];

/// How long a new member may take until it votes. A large ledger is on its way for longer; the listing says.
const VOTES_WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn run(app: &App, command: ControlPlaneCommand) -> Result<(), Failure> {
    let ControlPlaneCommand::Members(command) = command;
    let settings = app.settings()?;
    let api = app.controlplane(&settings).await?;
    match command {
        MembersCommand::Ls => {
            let all = api.list_whole(PATH).await?;
            let report = Report::list("felixctl.controlplane.members.ls/1", FIELDS, all);
            Ok(app.output.report(&report)?)
        }
        MembersCommand::Add {
            member,
            address,
            no_wait,
        } => {
            let body = json!({ "member": member, "address": address });
            api.post(PATH, Some(&body)).await?;
            if no_wait {
                return Ok(app
                    .output
                    .say(&format!("member {member} is being taken in"))?);
            }
            until_it_votes(&api, member).await?;
            Ok(app.output.say(&format!("member {member} votes"))?)
        }
        MembersCommand::Rm { member, yes } => {
            let what = format!("member {member} of the control plane's ledger");
            confirm::destroy(&what, &member.to_string(), yes.into())?;
            api.delete(&format!("{PATH}/{member}")).await?;
            Ok(app.output.say(&format!("member {member} is let go"))?)
        }
    }
}

async fn until_it_votes(api: &Api, member: u64) -> Result<(), Failure> {
    let until = Instant::now() + VOTES_WITHIN;
    loop {
        let all = api.list_whole(PATH).await?;
        let row = all
            .iter()
            .find(|row| row.get("member").and_then(Value::as_u64) == Some(member));
        let role = row.and_then(|row| row.get("role")).and_then(Value::as_str);
        if role == Some("voter") {
            return Ok(());
        }
        if Instant::now() >= until {
            let role = role.unwrap_or("not known");
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "member {member} is {role} after {} s",
                    VOTES_WITHIN.as_secs()
                ),
            )
            .with_hint("it goes on by itself; see felixctl controlplane members ls"));
        }
        sleep(Duration::from_millis(500)).await;
    }
}
