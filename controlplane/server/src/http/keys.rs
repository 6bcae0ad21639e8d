//! Keys that sign the tokens of a tenant.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Jwks, PublicKey, Resource, SigningKey};
use felix_meta::http::SigningKeys;
use felix_meta::{Command, VerifyingKey};
use felix_model::TenantId;

use super::body::name;
use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;

/// The public keys of a tenant: all that verify. A tenant that does not exist has an empty set, like one that was not
/// initialised.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/.well-known/jwks.json", tag = "keys",
    params(("tenant_id" = String, Path)), security(()),
    responses((status = 200, body = super::openapi::JwksDocument)))]
pub(crate) async fn jwks(State(app): State<App>, Path(tenant): Path<String>) -> Json<Jwks> {
    let catalogue = app.authority.catalogue();
    let keys = catalogue
        .tenant(&tenant)
        .into_iter()
        .flat_map(|entry| &entry.keys);
    let keys = keys
        .map(|key| {
            PublicKey {
                kid: key.kid.clone(),
                x: key.x.clone(),
            }
            .to_jwk()
        })
        .collect();
    Json(Jwks { keys })
}

/// The keys of a tenant, by id.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/signing-keys", tag = "keys",
    params(("tenant_id" = String, Path)), responses((status = 200, body = SigningKeys)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<Json<SigningKeys>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    answer(&app, &tenant)
}

/// Puts a new key in the place of all others, at once: whatever any of them signed is good no more. For when a key may
/// be known to somebody else. Brokers refuse the old keys' tokens, and end what was opened with them, as soon as they
/// have followed; sessions go on and get tokens of the new key.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/signing-keys/emergency", tag = "keys",
    params(("tenant_id" = String, Path)), responses((status = 200, body = SigningKeys)))]
pub(crate) async fn replace(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<Json<SigningKeys>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let (key, public) = make()?;
    let command = Command::ReplaceKeys(tenant.clone(), public);
    app.authority
        .submit_with_key(command, &tenant, &key)
        .await?;
    answer(&app, &tenant)
}

/// Makes a key that verifies and does not sign yet.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/signing-keys", tag = "keys",
    params(("tenant_id" = String, Path)), responses((status = 201, body = SigningKeys)))]
pub(crate) async fn stage(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<(StatusCode, Json<SigningKeys>), Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let (key, public) = make()?;
    let command = Command::StageKey(tenant.clone(), public);
    app.authority
        .submit_with_key(command, &tenant, &key)
        .await?;
    Ok((StatusCode::CREATED, answer(&app, &tenant)?))
}

/// Lets a staged key sign.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/signing-keys/{kid}/activate", tag = "keys",
    params(("tenant_id" = String, Path), ("kid" = String, Path)),
    responses((status = 200, body = SigningKeys)))]
pub(crate) async fn activate(
    State(app): State<App>,
    Path((tenant, kid)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<SigningKeys>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    app.authority
        .submit(Command::ActivateKey(tenant.clone(), kid))
        .await?;
    answer(&app, &tenant)
}

/// Lets a key verify no more. The current one cannot be retired.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/signing-keys/{kid}", tag = "keys",
    params(("tenant_id" = String, Path), ("kid" = String, Path)),
    responses((status = 200, body = SigningKeys)))]
pub(crate) async fn retire(
    State(app): State<App>,
    Path((tenant, kid)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<SigningKeys>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    app.authority
        .submit(Command::RetireKey(tenant.clone(), kid))
        .await?;
    answer(&app, &tenant)
}

fn make() -> Result<(SigningKey, VerifyingKey), Refusal> {
    let key = SigningKey::generate().map_err(|error| {
        tracing::error!(%error, "no signing key could be made");
        Refusal::internal()
    })?;
    let public = VerifyingKey {
        kid: key.kid().to_owned(),
        x: key.public().x.clone(),
    };
    Ok((key, public))
}

fn manager(app: &App, ticket: &Ticket, tenant: &str) -> Result<TenantId, Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    caller.must(Action::TenantManage, &Resource::Tenant(tenant))?;
    name("tenant_id", tenant)
}

fn answer(app: &App, tenant: &TenantId) -> Result<Json<SigningKeys>, Refusal> {
    let catalogue = app.authority.catalogue();
    let entry = catalogue
        .tenant(tenant.as_ref())
        .ok_or_else(|| Refusal::not_found(format!("no tenant `{tenant}`")))?;
    Ok(Json(SigningKeys {
        current: entry.current_key.clone(),
        verifying: entry.keys.iter().map(|key| key.kid.clone()).collect(),
    }))
}
