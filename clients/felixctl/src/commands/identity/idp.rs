//! `idp ls | add | rm`.

use serde_json::json;

use super::{named, tenant};
use crate::api::quote;
use crate::cli::{IdpAdd, IdpCommand};
use crate::commands::App;
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};

const FIELDS: &[Field] = &[
    Field::plain("issuer"),
    Field::plain("audiences"),
    Field::plain("discovery_url"),
    Field::plain("jwks_url"),
    Field::plain("claim_mappings"),
];

pub(in crate::commands) async fn run(app: &App, command: IdpCommand) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let path = format!("{path}/idp-issuers");
    match command {
        IdpCommand::Ls => {
            let all = api.list_whole(&path).await?;
            Ok(app
                .output
                .report(&Report::list("felixctl.idp.ls/1", FIELDS, all))?)
        }
        IdpCommand::Add(add) => {
            api.post(&path, Some(&body(&add))).await?;
            Ok(app.output.say(&format!(
                "tokens of {} for {} are accepted",
                add.issuer,
                add.audiences.join(" or ")
            ))?)
        }
        IdpCommand::Rm { issuer, yes } => {
            named(
                api.list_whole(&path).await?,
                "issuer",
                &issuer,
                "identity provider",
            )?;
            let what = format!("the trust in {issuer} and every session that came from it");
            confirm::destroy(&what, &issuer, yes.into())?;
            api.delete(&format!("{path}/{}", quote(&issuer))).await?;
            Ok(app
                .output
                .say(&format!("{issuer} is not trusted any more"))?)
        }
    }
}

fn body(add: &IdpAdd) -> serde_json::Value {
    json!({
        "issuer": add.issuer,
        "audiences": add.audiences,
        "discovery_url": add.discovery_url,
        "jwks_url": add.jwks_url,
        "claim_mappings": {
            "subject_claim": add.subject_claim,
            "groups_claim": add.groups_claim,
        },
    })
}
