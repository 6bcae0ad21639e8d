//! Service accounts: programs that sign in with keys of ours.
//!
//! Whoever makes a key can be the account, so all of this needs the right over the whole tenant.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, NoRandomness, Resource, Secret, ServiceCredential, random_id};
use felix_meta::http::{
    Hidden, Page, ServiceAccountItem, ServiceAccountPatch, ServiceAccountSpec, ServiceKeyAnswer,
    ServiceKeyItem, ServiceKeySpec, ServiceKeys,
};
use felix_meta::{Command, ServiceAccountRecord, ServiceKey};
use felix_model::TenantId;

use super::body::{Raw, Unkept, name};
use super::caller::Ticket;
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;
use crate::clock::now;

/// The service accounts of a tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/service-accounts", tag = "service accounts",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<ServiceAccountItem>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<ServiceAccountItem>>, Refusal> {
    manager(&app, &ticket, &tenant)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(&tenant);
    let accounts = entry
        .into_iter()
        .flat_map(|entry| entry.service_accounts.iter())
        .map(|(name, account)| (name.to_owned(), item(account)));
    Ok(Json(window.cut(accounts)))
}

/// Makes a service account, which has no keys and no rights yet.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/service-accounts", tag = "service accounts",
    params(("tenant_id" = String, Path)), request_body = ServiceAccountSpec,
    responses((status = 201, body = ServiceAccountItem), (status = 200, body = ServiceAccountItem)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<ServiceAccountItem>), Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let spec: ServiceAccountSpec = body.read()?;
    let command = Command::CreateServiceAccount {
        tenant_id: tenant.clone(),
        name: spec.name.clone(),
        display_name: spec.display_name.unwrap_or_else(|| spec.name.clone()),
    };
    let status = match app.authority.submit(command).await? {
        Some(_) => StatusCode::CREATED,
        None => StatusCode::OK,
    };
    Ok((status, Json(item(&*find(&app, &tenant, &spec.name)?))))
}

/// One service account.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/service-accounts/{name}", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ServiceAccountItem)))]
pub(crate) async fn get(
    State(app): State<App>,
    Path((tenant, account)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<ServiceAccountItem>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    Ok(Json(item(&*find(&app, &tenant, &account)?)))
}

/// Shuts a service account out, or lets it in again. Shutting it out ends its sessions and takes its tokens back.
#[utoipa::path(patch, path = "/v1/tenants/{tenant_id}/service-accounts/{name}", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path)), request_body = ServiceAccountPatch,
    responses((status = 200, body = ServiceAccountItem)))]
pub(crate) async fn update(
    State(app): State<App>,
    Path((tenant, account)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<ServiceAccountItem>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let patch: ServiceAccountPatch = body.read()?;
    app.authority
        .submit(Command::DisableServiceAccount {
            tenant_id: tenant.clone(),
            name: account.clone(),
            disabled: patch.disabled,
            now_ms: now(),
        })
        .await?;
    Ok(Json(item(&*find(&app, &tenant, &account)?)))
}

/// Deletes a service account with its keys, its sessions and what was given to it.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/service-accounts/{name}", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path)), responses((status = 204)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path((tenant, name)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let tenant_id = manager(&app, &ticket, &tenant)?;
    app.authority
        .submit(Command::DeleteServiceAccount {
            tenant_id,
            name,
            now_ms: now(),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The keys of a service account, by id.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/service-accounts/{name}/keys", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ServiceKeys)))]
pub(crate) async fn keys(
    State(app): State<App>,
    Path((tenant, account)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<ServiceKeys>, Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let account = find(&app, &tenant, &account)?;
    Ok(Json(ServiceKeys {
        items: item(&account).keys,
    }))
}

/// Makes a key. Its text is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/service-accounts/{name}/keys", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path)), request_body = ServiceKeySpec,
    responses((status = 201, body = ServiceKeyAnswer)))]
pub(crate) async fn add_key(
    State(app): State<App>,
    Path((tenant, account)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Unkept<ServiceKeyAnswer>), Refusal> {
    let tenant = manager(&app, &ticket, &tenant)?;
    let spec: ServiceKeySpec = body.read_or_default()?;
    let credential = new_credential(&tenant).map_err(|error| {
        tracing::error!(%error, "no key could be made");
        Refusal::internal()
    })?;
    let key = ServiceKey {
        key_id: credential.key_id.clone(),
        secret_sha256: credential.secret.digest(),
        created_at_ms: now(),
        expires_at_ms: spec.expires_at_ms,
    };
    app.authority
        .submit(Command::AddServiceKey {
            tenant_id: tenant,
            name: account,
            key,
        })
        .await?;
    let answer = ServiceKeyAnswer {
        key: Hidden(credential.to_text()),
        key_id: credential.key_id,
        expires_at_ms: spec.expires_at_ms,
    };
    Ok((StatusCode::CREATED, Unkept(answer)))
}

/// Removes a key. The account's sessions end, because it is not known which of them it began.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/service-accounts/{name}/keys/{key_id}", tag = "service accounts",
    params(("tenant_id" = String, Path), ("name" = String, Path), ("key_id" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn remove_key(
    State(app): State<App>,
    Path((tenant, name, key_id)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let tenant_id = manager(&app, &ticket, &tenant)?;
    app.authority
        .submit(Command::RemoveServiceKey {
            tenant_id,
            name,
            key_id,
            now_ms: now(),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn new_credential(tenant: &TenantId) -> Result<ServiceCredential, NoRandomness> {
    Ok(ServiceCredential {
        tenant: tenant.clone(),
        key_id: random_id()?,
        secret: Secret::generate()?,
    })
}

fn manager(app: &App, ticket: &Ticket, tenant: &str) -> Result<TenantId, Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    caller.must(Action::TenantManage, &Resource::Tenant(tenant))?;
    name("tenant_id", tenant)
}

fn find(app: &App, tenant: &TenantId, account: &str) -> Result<Arc<ServiceAccountRecord>, Refusal> {
    let catalogue = app.authority.catalogue();
    catalogue
        .tenant(tenant.as_ref())
        .and_then(|entry| entry.service_accounts.get(account))
        .map(Arc::clone)
        .ok_or_else(|| Refusal::not_found(format!("no service account `{account}`")))
}

fn item(account: &ServiceAccountRecord) -> ServiceAccountItem {
    let keys = account.keys.iter().map(|key| ServiceKeyItem {
        key_id: key.key_id.clone(),
        created_at_ms: key.created_at_ms,
        expires_at_ms: key.expires_at_ms,
    });
    ServiceAccountItem {
        name: account.name.clone(),
        principal_id: account.principal_id(),
        display_name: account.display_name.clone(),
        disabled: account.disabled,
        keys: keys.collect(),
    }
}
