//! Identity providers that a tenant trusts.
//!
//! Principals are derived from issuer and subject, so whoever controls an issuer can be anyone of it. What could hand
//! the people of an issuer to somebody else therefore needs the right over the installation beside that over the
//! tenant: changing one that is there, removing one, and adding one that another tenant trusts.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::oidc::{BadUrl, check_issuer};
use felix_auth::{Action, Resource};
use felix_meta::http::Issuers;
use felix_meta::{Command, IssuerRecord, TenantEntry};
use felix_model::TenantId;

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use crate::app::App;
use crate::clock::now;

/// The identity providers of a tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/idp-issuers", tag = "identity providers",
    params(("tenant_id" = String, Path)), responses((status = 200, body = Issuers)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<Json<Issuers>, Refusal> {
    manager(&app, &ticket, &tenant)?;
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(&tenant);
    let issuers = entry.into_iter().flat_map(|entry| entry.issuers.values());
    Ok(Json(Issuers {
        items: issuers.cloned().collect(),
    }))
}

/// Trusts an identity provider, or changes the terms.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/idp-issuers", tag = "identity providers",
    params(("tenant_id" = String, Path)), request_body = IssuerRecord,
    responses((status = 204)))]
pub(crate) async fn set(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let caller = manager(&app, &ticket, &tenant)?;
    let tenant: TenantId = name("tenant_id", &tenant)?;
    let issuer: IssuerRecord = body.read()?;
    let over_all = must_manage_the_cluster(&caller);
    if concerns_others(&app, &tenant, &issuer) {
        over_all.clone()?;
    }
    check(&app, &issuer).await?;
    // What is known here may be behind, and others add issuers meanwhile: the command says what it must not touch.
    let command = match over_all {
        Ok(()) => Command::SetIssuer(tenant, issuer),
        Err(_) => Command::AddIssuer(tenant, issuer),
    };
    app.authority.submit(command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Trusts an identity provider no more. Its sessions end, and its people's tokens are taken back.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/idp-issuers/{issuer}", tag = "identity providers",
    params(("tenant_id" = String, Path), ("issuer" = String, Path)), responses((status = 204)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path((tenant, issuer)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let caller = manager(&app, &ticket, &tenant)?;
    must_manage_the_cluster(&caller)?;
    app.authority
        .submit(Command::RemoveIssuer {
            tenant_id: name("tenant_id", &tenant)?,
            issuer,
            now_ms: now(),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks that an issuer's URLs are such as may be fetched, as they are written and as their hosts resolve now.
pub(super) async fn check(app: &App, issuer: &IssuerRecord) -> Result<(), Refusal> {
    let refused = |field: &str, bad: &BadUrl| Refusal::invalid(format!("`{field}`: {bad}"));
    check_issuer(&issuer.issuer, app.fetch.rules()).map_err(|bad| refused("issuer", &bad))?;
    let fetched = [
        ("issuer", Some(&issuer.issuer)),
        ("discovery_url", issuer.discovery_url.as_ref()),
        ("jwks_url", issuer.jwks_url.as_ref()),
    ];
    for (field, url) in fetched {
        let Some(url) = url else { continue };
        let checked = app.fetch.check(url).await;
        checked.map_err(|bad| refused(field, &bad))?;
    }
    Ok(())
}

/// Whether the change could hand somebody's people to somebody else.
fn concerns_others(app: &App, tenant: &TenantId, issuer: &IssuerRecord) -> bool {
    let catalogue = app.authority.catalogue();
    let held = |entry: &TenantEntry| entry.issuers.get(&issuer.issuer).cloned();
    match catalogue
        .tenant(tenant.as_ref())
        .and_then(|entry| held(entry))
    {
        Some(held) => held != *issuer,
        None => catalogue
            .tenants()
            .any(|(other, entry)| other != tenant && held(entry).is_some()),
    }
}

fn must_manage_the_cluster(caller: &Caller) -> Result<(), Refusal> {
    if caller.may(Action::TenantManage, &Resource::Cluster) {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "this needs `tenant.manage` over `cluster:*` as well, which is given at bootstrap",
    ))
}

fn manager(app: &App, ticket: &Ticket, tenant: &str) -> Result<Caller, Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    caller.must(Action::TenantManage, &Resource::Tenant(tenant))?;
    Ok(caller)
}
