//! `service-account create | ls | show | disable | enable | rm` and `service-account key`.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{show_ms, tenant, text};
use crate::api::{Api, quote};
use crate::cli::{AccountCommand, AccountCreate, NewKey, ServiceKeyCommand};
use crate::commands::App;
use crate::confirm;
use crate::credentials::now_seconds;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::secret::Secret;

const FIELDS: &[Field] = &[
    Field::plain("name"),
    Field::plain("principal_id"),
    Field::plain("display_name"),
    Field::plain("disabled"),
    Field::shown("keys", key_ids),
];
const KEY: &[Field] = &[
    Field::plain("name"),
    Field::plain("principal_id"),
    Field::plain("key_id"),
    Field::plain("key"),
    Field::plain("file"),
    Field::shown("expires_at_ms", show_ms),
];

pub(in crate::commands) async fn run(app: &App, command: AccountCommand) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let all = format!("{path}/service-accounts");
    let one = |name: &str| format!("{all}/{}", quote(name));
    match command {
        AccountCommand::Ls => {
            let items = api.list(&all).await?;
            Ok(app.output.report(&Report::list(
                "felixctl.service-account.ls/1",
                FIELDS,
                items,
            ))?)
        }
        AccountCommand::Show { name } => {
            let found = api.get(&one(&name)).await?;
            Ok(app.output.report(&Report::one(
                "felixctl.service-account.show/1",
                FIELDS,
                &found,
            ))?)
        }
        AccountCommand::Create(create) => make(app, &api, &path, &create).await,
        AccountCommand::Disable { name, yes } => {
            let what = format!("the sessions of service account {name}");
            confirm::destroy(&what, &name, yes.into())?;
            set_disabled(&api, &one(&name), true).await?;
            Ok(app
                .output
                .say(&format!("service account {name} is disabled"))?)
        }
        AccountCommand::Enable { name } => {
            set_disabled(&api, &one(&name), false).await?;
            Ok(app
                .output
                .say(&format!("service account {name} is enabled"))?)
        }
        AccountCommand::Rm { name, yes } => {
            api.get(&one(&name)).await?;
            let what = format!("service account {name} with its keys and sessions");
            confirm::destroy(&what, &name, yes.into())?;
            api.delete(&one(&name)).await?;
            Ok(app
                .output
                .say(&format!("service account {name} is removed"))?)
        }
        AccountCommand::Key(ServiceKeyCommand::Add { name, key }) => {
            let issued = new_key(&api, &one(&name), &key).await?;
            show_key(app, &name, &key, &issued)
        }
        AccountCommand::Key(ServiceKeyCommand::Rm { name, key_id, yes }) => {
            let what = format!("key {key_id} of service account {name}, and its sessions,");
            confirm::destroy(&what, &key_id, yes.into())?;
            let path = format!("{}/keys/{}", one(&name), quote(&key_id));
            api.delete(&path).await?;
            Ok(app.output.say(&format!("key {key_id} is refused"))?)
        }
    }
}

async fn make(app: &App, api: &Api, path: &str, create: &AccountCreate) -> Result<(), Failure> {
    let name = &create.name;
    let display_name = create.display_name.as_deref().unwrap_or(name);
    let body = json!({ "name": name, "display_name": display_name });
    api.create(&format!("{path}/service-accounts"), &body)
        .await?;
    for role in &create.roles {
        let body = json!({ "user": principal(name), "role": role });
        api.post(&format!("{path}/rbac/groupings"), Some(&body))
            .await?;
    }
    let account = format!("{path}/service-accounts/{}", quote(name));
    let issued = new_key(api, &account, &create.key).await?;
    app.output.say(&format!(
        "service account {name} is created; its principal is {}",
        principal(name)
    ))?;
    show_key(app, name, &create.key, &issued)
}

async fn set_disabled(api: &Api, account: &str, disabled: bool) -> Result<(), Failure> {
    let body = json!({ "disabled": disabled });
    api.patch(account, &body).await.map(drop)
}

/// A key as it was issued: the only time that anybody sees it.
struct IssuedKey {
    key_id: String,
    key: Secret,
    expires_at_ms: Value,
}

/// Makes a key. Where it shall be written is made sure of first: a key that was issued and then
/// lost would be one more to clean up.
async fn new_key(api: &Api, account: &str, wanted: &NewKey) -> Result<IssuedKey, Failure> {
    let file = wanted.out.as_deref().map(reserve).transpose()?;
    let issued = ask_key(api, account, wanted.expires_in).await;
    match (file, &wanted.out, &issued) {
        (Some(mut file), Some(_), Ok(issued)) => {
            file.write_all(format!("{}\n", issued.key.reveal()).as_bytes())?;
            file.sync_all()?;
        }
        (Some(_), Some(path), Err(_)) => {
            // The refusal is what matters; an empty file that stays is only in the way.
            let _ = fs::remove_file(path);
        }
        _ => {}
    }
    issued
}

async fn ask_key(
    api: &Api,
    account: &str,
    expires_in: Option<Duration>,
) -> Result<IssuedKey, Failure> {
    let mut body = Map::new();
    if let Some(life) = expires_in {
        let at = now_seconds().saturating_add(life.as_secs());
        body.insert("expires_at_ms".into(), at.saturating_mul(1_000).into());
    }
    let path = format!("{account}/keys");
    let answer = api.post(&path, Some(&Value::Object(body))).await?;
    match (text(&answer, "key_id"), text(&answer, "key")) {
        (Some(key_id), Some(key)) => Ok(IssuedKey {
            key_id: key_id.to_owned(),
            key: key.into(),
            expires_at_ms: answer.get("expires_at_ms").cloned().unwrap_or_default(),
        }),
        _ => Err(Failure::failed("the control plane's answer holds no key")),
    }
}

/// A new file that only its owner may read.
fn reserve(path: &Path) -> Result<fs::File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| {
        let exit = if error.kind() == std::io::ErrorKind::AlreadyExists {
            Exit::Conflict
        } else {
            Exit::Failed
        };
        Failure::new(exit, format!("{} cannot be made: {error}", path.display()))
    })
}

fn show_key(app: &App, name: &str, wanted: &NewKey, issued: &IssuedKey) -> Result<(), Failure> {
    let shown = wanted.out.is_none().then(|| issued.key.reveal().to_owned());
    if shown.is_some() {
        app.output
            .say("this is the only time that the key is shown; keep it where only the workload can read it")?;
    }
    let document = json!({
        "name": name,
        "principal_id": principal(name),
        "key_id": issued.key_id,
        "key": shown,
        "file": wanted.out,
        "expires_at_ms": issued.expires_at_ms,
    });
    Ok(app.output.report(&Report::one(
        "felixctl.service-account.key/1",
        KEY,
        &document,
    ))?)
}

fn principal(name: &str) -> String {
    format!("sa:{name}")
}

fn key_ids(keys: &Value) -> String {
    let ids: Vec<&str> = keys
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|key| text(key, "key_id"))
        .collect();
    if ids.is_empty() {
        "none".into()
    } else {
        ids.join(", ")
    }
}
