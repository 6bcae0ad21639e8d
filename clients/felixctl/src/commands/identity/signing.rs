//! `keys ls | stage | activate | retire | rotate`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::tenant;
use crate::api::{Api, quote};
use crate::cli::KeysCommand;
use crate::commands::App;
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};

const FIELDS: &[Field] = &[Field::plain("kid"), Field::plain("state")];

/// What every call about keys answers.
#[derive(Clone, Debug, Deserialize)]
struct Keys {
    current: String,
    verifying: Vec<String>,
}

pub(in crate::commands) async fn run(app: &App, command: KeysCommand) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let path = format!("{path}/signing-keys");
    match command {
        KeysCommand::Ls => show(app, &keys(api.get(&path).await?)?),
        KeysCommand::Stage => {
            let (staged, keys) = stage(&api, &path).await?;
            app.output
                .say(&format!("key {staged} verifies and does not sign yet"))?;
            show(app, &keys)
        }
        KeysCommand::Activate { kid } => {
            let keys = activate(&api, &path, &kid).await?;
            app.output.say(&format!("key {kid} signs"))?;
            show(app, &keys)
        }
        KeysCommand::Retire { kid, yes } => {
            let what = format!("key {kid}, and with it every token it signed,");
            confirm::destroy(&what, &kid, yes.into())?;
            api.delete(&format!("{path}/{}", quote(&kid))).await?;
            Ok(app.output.say(&format!("key {kid} is retired"))?)
        }
        KeysCommand::Rotate {
            emergency: true,
            yes,
            ..
        } => emergency(app, &api, &path, yes).await,
        KeysCommand::Rotate { settle, .. } => rotate(app, &api, &path, settle).await,
    }
}

async fn rotate(app: &App, api: &Api, path: &str, settle: Duration) -> Result<(), Failure> {
    let old = keys(api.get(path).await?)?.current;
    let (staged, _) = stage(api, path).await?;
    app.output.say(&format!(
        "key {staged} is staged; it signs in {} s, once every broker knows it",
        settle.as_secs()
    ))?;
    tokio::time::sleep(settle).await;
    let keys = activate(api, path, &staged).await?;
    app.output.say(&format!(
        "key {staged} signs; `felixctl keys retire {old}` once the last token of {old} has expired"
    ))?;
    show(app, &keys)
}

/// A stolen key is worth nothing from the moment it is replaced, and nothing is waited for.
async fn emergency(app: &App, api: &Api, path: &str, yes: bool) -> Result<(), Failure> {
    let settings = app.settings()?;
    let tenant = settings.tenant()?;
    let what = format!("every token of tenant {tenant} that was issued until now");
    confirm::destroy(&what, tenant, yes.into())?;
    let keys = keys(api.post(&format!("{path}/emergency"), None).await?)?;
    app.output.say(&format!(
        "key {} signs, and the old ones are gone; sessions get new tokens by themselves, other tokens must be issued anew",
        keys.current
    ))?;
    show(app, &keys)
}

/// Makes a key; its id is the one that was not there before.
async fn stage(api: &Api, path: &str) -> Result<(String, Keys), Failure> {
    let before = keys(api.get(path).await?)?;
    let after = keys(api.post(path, None).await?)?;
    let staged = after
        .verifying
        .iter()
        .find(|kid| !before.verifying.contains(kid))
        .cloned()
        .ok_or_else(|| Failure::failed("the control plane staged no key"))?;
    Ok((staged, after))
}

async fn activate(api: &Api, path: &str, kid: &str) -> Result<Keys, Failure> {
    keys(
        api.post(&format!("{path}/{}/activate", quote(kid)), None)
            .await?,
    )
}

fn keys(answer: Value) -> Result<Keys, Failure> {
    serde_json::from_value(answer).map_err(|error| {
        Failure::failed(format!("the control plane's keys are unreadable: {error}"))
    })
}

fn show(app: &App, keys: &Keys) -> Result<(), Failure> {
    let items = keys.verifying.iter().map(|kid| {
        let state = if *kid == keys.current {
            "signs"
        } else {
            "verifies"
        };
        json!({ "kid": kid, "state": state })
    });
    Ok(app
        .output
        .report(&Report::list("felixctl.keys.ls/1", FIELDS, items))?)
}
