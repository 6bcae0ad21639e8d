//! `felixctl install`: the first content of an installation whose programs run apart, and the credentials that they and
//! its users need, from its bootstrap listener. What `felixctl dev` does in its own process, for `compose.yaml`.

use std::fs;
use std::io;
use std::path::Path;

use felix_controlplane_client::{Api, Bootstrap, CallFailed, TokenSource};
use felix_meta::http::DevTokenSpec;
use felix_meta::record::Grouping;
use felix_model::TenantId;
use serde_json::{Value, json};

use super::{certificate, seed};
use crate::api;
use crate::cli;
use crate::commands::App;
use crate::contexts::write_private;
use crate::exit::Failure;
use crate::secret::Secret;
use crate::trust::Tls;

/// Name of the users' service account.
const ACCOUNT: &str = "felixctl";
/// Who gets a credential of its own, and the files it is kept in.
const NODES: [&str; 2] = ["broker", "kafka"];
/// Seconds the token lives that all of this is done with.
const TOKEN_SECONDS: u64 = 600;

/// Makes what is missing. It may be run again.
///
/// # Errors
/// When the control plane refuses or cannot be reached, or a file cannot be written.
pub async fn run(app: &App, args: &cli::Install) -> Result<(), Failure> {
    let settings = app.settings()?;
    let url = settings.controlplane_url()?.to_owned();
    let secret = fs::read_to_string(&args.bootstrap_token_file)
        .map_err(|error| failed(&args.bootstrap_token_file, &error))?;
    let token = first_token(&args.bootstrap_url, secret.trim()).await?;
    let typed = Api::new(&url, TokenSource::fixed(&token))
        .map_err(|error| Failure::usage(error.to_string()))?;
    seed::content(&typed)
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    fs::create_dir_all(&args.directory).map_err(|error| failed(&args.directory, &error))?;
    certificate::prepare(&args.directory.join("tls"))
        .map_err(|error| Failure::failed(error.to_string()))?;
    let plain = api::Api::new(
        &url,
        Some(Secret::from(token)),
        &Tls::default(),
        app.timeout(),
        "the control plane",
    )?;
    for node in NODES {
        credential(&plain, &args.directory, node).await?;
    }
    account(&plain, &args.directory).await?;
    Ok(app.output.say(&format!(
        "tenant {}, namespace {}, the credentials of broker, Kafka listener and users are in {}",
        seed::TENANT,
        seed::NAMESPACE,
        args.directory.display()
    ))?)
}

/// Initialises the tenant unless that was done, and asks for a token of its administrator.
async fn first_token(url: &str, secret: &str) -> Result<String, Failure> {
    let bootstrap =
        Bootstrap::new(url, secret).map_err(|error| Failure::usage(error.to_string()))?;
    let refused = |error: CallFailed| Failure::failed(format!("the bootstrap listener: {error}"));
    let tenant: TenantId = seed::TENANT
        .parse()
        .map_err(|error: felix_model::BadName| Failure::failed(error.to_string()))?;
    let mut spec = seed::initialize_spec();
    let user = format!("sa:{ACCOUNT}");
    spec.initial_admin_principals.push(user.clone());
    spec.groupings.push(Grouping {
        user,
        role: seed::OPERATOR_ROLE.to_owned(),
    });
    match bootstrap.initialize(&tenant, &spec).await {
        Ok(_) | Err(CallFailed::Refused { status: 409, .. }) => {}
        Err(error) => return Err(refused(error)),
    }
    let spec = DevTokenSpec {
        principal: seed::DEVELOPER.to_owned(),
        audience: Some("felix-controlplane".to_owned()),
        ttl_seconds: Some(TOKEN_SECONDS),
        ..DevTokenSpec::default()
    };
    let answer = bootstrap.dev_token(&tenant, &spec).await.map_err(refused)?;
    Ok(answer.felix_token)
}

/// A token and a refresh token, which the program renews by itself in these files.
async fn credential(api: &api::Api, directory: &Path, node: &str) -> Result<(), Failure> {
    let refresh = directory.join(format!("{node}.refresh"));
    if refresh.exists() {
        return Ok(());
    }
    let path = format!("/v1/nodes/{node}/credential");
    let answer = api.post(&path, None).await?;
    let token = directory.join(format!("{node}.token"));
    keep(&token, text(&answer, "felix_token")?)?;
    keep(&refresh, text(&answer, "refresh_token")?)
}

/// The users' service account and a key of it.
async fn account(api: &api::Api, directory: &Path) -> Result<(), Failure> {
    let file = directory.join(format!("{ACCOUNT}.key"));
    if file.exists() {
        return Ok(());
    }
    let accounts = format!("/v1/tenants/{}/service-accounts", seed::TENANT);
    let body = json!({ "name": ACCOUNT, "display_name": "Users of this machine" });
    api.create(&accounts, &body).await?;
    let answer = api
        .post(&format!("{accounts}/{ACCOUNT}/keys"), Some(&json!({})))
        .await?;
    keep(&file, text(&answer, "key")?)
}

fn text<'a>(answer: &'a Value, field: &str) -> Result<&'a str, Failure> {
    let found = answer.get(field).and_then(Value::as_str);
    found.ok_or_else(|| Failure::failed(format!("the control plane's answer has no `{field}`")))
}

fn keep(file: &Path, secret: &str) -> Result<(), Failure> {
    write_private(file, secret.as_bytes()).map_err(|error| failed(file, &error))
}

fn failed(file: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", file.display()))
}
