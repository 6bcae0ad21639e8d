//! Tenants. Only who manages the installation may, not even a tenant's own administrator: a tenant goes with its keys.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Resource};
use felix_meta::http::Page;
use felix_meta::{Command, TenantRecord};

use super::body::{Raw, name};
use super::caller::Ticket;
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;

/// All tenants.
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<TenantRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<TenantRecord>>, Refusal> {
    app.caller(&ticket)?
        .must(Action::TenantManage, &Resource::Cluster)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let tenants = catalogue.tenants().map(|(tenant, entry)| {
        let display_name = entry.display_name.clone();
        (
            tenant.to_string(),
            TenantRecord {
                tenant_id: tenant.clone(),
                display_name,
            },
        )
    });
    Ok(Json(window.cut(tenants)))
}

/// Makes a tenant without keys. An existing one is a conflict.
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = TenantRecord,
    responses((status = 201, body = TenantRecord)))]
pub(crate) async fn create(
    State(app): State<App>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<TenantRecord>), Refusal> {
    app.caller(&ticket)?
        .must(Action::TenantManage, &Resource::Cluster)?;
    let tenant: TenantRecord = body.read()?;
    app.authority
        .submit(Command::CreateTenant(tenant.clone()))
        .await?;
    Ok((StatusCode::CREATED, Json(tenant)))
}

/// Deletes a tenant and everything it owns.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}", tag = "tenants",
    params(("tenant_id" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    app.caller(&ticket)?
        .must(Action::TenantManage, &Resource::Cluster)?;
    let tenant = name("tenant_id", &tenant)?;
    app.authority.submit(Command::DeleteTenant(tenant)).await?;
    Ok(StatusCode::NO_CONTENT)
}
