//! Quotas: how much a tenant, a namespace or a principal may use. They are kept here and enforced by the brokers.
//!
//! Who manages the quotas of a tenant sets those inside it, and may tighten the one of the tenant itself. Only who
//! manages quotas of the whole installation may loosen that or take it away: it is there to bound the tenant, its
//! administrators among them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::Action;
use felix_meta::http::{Page, QuotaItem};
use felix_meta::{Command, QuotaLimits, QuotaScope};
use felix_model::TenantId;

use super::body::{Raw, name};
use super::caller::{Reach, Ticket};
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;

/// The quotas of a tenant: its own, those of its namespaces, those of its principals.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/quotas", tag = "quotas",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<QuotaItem>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<QuotaItem>>, Refusal> {
    app.reach_of(&ticket, &tenant, Action::QuotaManage)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let Some(entry) = catalogue.tenant(&tenant) else {
        return Err(Refusal::not_found(format!("no tenant `{tenant}`")));
    };
    let quotas = &entry.quotas;
    let whole = quotas.get(&QuotaScope::Tenant).into_iter();
    // The keys order as the three parts come.
    let whole = whole.map(|limits| ("0".to_owned(), item("tenant", &tenant, limits)));
    let namespaces = quotas
        .namespaces()
        .map(|(name, limits)| (format!("1{name}"), item("namespace", name, limits)));
    let principals = quotas
        .principals()
        .map(|(id, limits)| (format!("2{id}"), item("principal", id, limits)));
    Ok(Json(window.cut(whole.chain(namespaces).chain(principals))))
}

/// Sets the quota of the tenant itself. Its own administrators may only tighten it.
#[utoipa::path(put, path = "/v1/tenants/{tenant_id}/quotas", tag = "quotas",
    params(("tenant_id" = String, Path)), request_body = QuotaLimits,
    responses((status = 200, body = QuotaItem)))]
pub(crate) async fn set_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<QuotaItem>, Refusal> {
    set(&app, &ticket, &tenant, |()| Ok(QuotaScope::Tenant), &body).await
}

/// Removes the quota of the tenant itself, which its own administrators may not.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/quotas", tag = "quotas",
    params(("tenant_id" = String, Path)), responses((status = 204)))]
pub(crate) async fn remove_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    if app.reach_of(&ticket, &tenant, Action::QuotaManage)? != Reach::Installation {
        return Err(not_his());
    }
    remove(&app, &tenant, QuotaScope::Tenant).await
}

/// The quota of a namespace.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/quotas/namespaces/{namespace}", tag = "quotas",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)),
    responses((status = 200, body = QuotaItem)))]
pub(crate) async fn get_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<QuotaItem>, Refusal> {
    app.reach_of(&ticket, &tenant, Action::QuotaManage)?;
    one(&app, &tenant, &of_namespace(&namespace)?)
}

/// Sets the quota of a namespace.
#[utoipa::path(put, path = "/v1/tenants/{tenant_id}/quotas/namespaces/{namespace}", tag = "quotas",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)), request_body = QuotaLimits,
    responses((status = 200, body = QuotaItem)))]
pub(crate) async fn set_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<QuotaItem>, Refusal> {
    set(&app, &ticket, &tenant, |()| of_namespace(&namespace), &body).await
}

/// Removes the quota of a namespace.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/quotas/namespaces/{namespace}", tag = "quotas",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn remove_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    app.reach_of(&ticket, &tenant, Action::QuotaManage)?;
    remove(&app, &tenant, of_namespace(&namespace)?).await
}

/// The quota of a principal.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/quotas/principals/{principal}", tag = "quotas",
    params(("tenant_id" = String, Path), ("principal" = String, Path)),
    responses((status = 200, body = QuotaItem)))]
pub(crate) async fn get_principal(
    State(app): State<App>,
    Path((tenant, principal)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<Json<QuotaItem>, Refusal> {
    app.reach_of(&ticket, &tenant, Action::QuotaManage)?;
    one(&app, &tenant, &QuotaScope::Principal(principal))
}

/// Sets the quota of a principal.
#[utoipa::path(put, path = "/v1/tenants/{tenant_id}/quotas/principals/{principal}", tag = "quotas",
    params(("tenant_id" = String, Path), ("principal" = String, Path)), request_body = QuotaLimits,
    responses((status = 200, body = QuotaItem)))]
pub(crate) async fn set_principal(
    State(app): State<App>,
    Path((tenant, principal)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<QuotaItem>, Refusal> {
    let scope = |()| Ok(QuotaScope::Principal(principal));
    set(&app, &ticket, &tenant, scope, &body).await
}

/// Removes the quota of a principal.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/quotas/principals/{principal}", tag = "quotas",
    params(("tenant_id" = String, Path), ("principal" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn remove_principal(
    State(app): State<App>,
    Path((tenant, principal)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    app.reach_of(&ticket, &tenant, Action::QuotaManage)?;
    remove(&app, &tenant, QuotaScope::Principal(principal)).await
}

async fn set(
    app: &App,
    ticket: &Ticket,
    tenant: &str,
    scope: impl FnOnce(()) -> Result<QuotaScope, Refusal>,
    body: &Raw,
) -> Result<Json<QuotaItem>, Refusal> {
    let reach = app.reach_of(ticket, tenant, Action::QuotaManage)?;
    let limits: QuotaLimits = body.read()?;
    let scope = scope(())?;
    let tenant_id: TenantId = name("tenant_id", tenant)?;
    let only_tightens = scope == QuotaScope::Tenant && reach != Reach::Installation;
    if only_tightens {
        let held = app.authority.catalogue().effective(tenant, None, None);
        if limits.and(held) != limits {
            return Err(not_his());
        }
    }
    let answered = answer(tenant, &scope, limits);
    // What is known here may be behind, so it is decided once more where it is written.
    let command = match only_tightens {
        true => Command::TightenQuota { tenant_id, limits },
        false => Command::SetQuota {
            tenant_id,
            scope,
            limits,
        },
    };
    app.authority.submit(command).await?;
    Ok(Json(answered))
}

async fn remove(app: &App, tenant: &str, scope: QuotaScope) -> Result<StatusCode, Refusal> {
    let tenant_id = name("tenant_id", tenant)?;
    let command = Command::RemoveQuota { tenant_id, scope };
    app.authority.submit(command).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn one(app: &App, tenant: &str, scope: &QuotaScope) -> Result<Json<QuotaItem>, Refusal> {
    let catalogue = app.authority.catalogue();
    let limits = catalogue
        .tenant(tenant)
        .and_then(|entry| entry.quotas.get(scope))
        .ok_or_else(|| Refusal::not_found(format!("no quota for {scope}")))?;
    Ok(Json(answer(tenant, scope, limits)))
}

fn of_namespace(namespace: &str) -> Result<QuotaScope, Refusal> {
    name("namespace", namespace).map(QuotaScope::Namespace)
}

fn not_his() -> Refusal {
    Refusal::forbidden(
        "a tenant's own quota is loosened only with `quota.manage` over the installation",
    )
}

fn answer(tenant: &str, scope: &QuotaScope, limits: QuotaLimits) -> QuotaItem {
    match scope {
        QuotaScope::Tenant => item("tenant", tenant, limits),
        QuotaScope::Namespace(name) => item("namespace", name.as_ref(), limits),
        QuotaScope::Principal(id) => item("principal", id, limits),
    }
}

fn item(scope: &str, name: &str, limits: QuotaLimits) -> QuotaItem {
    QuotaItem {
        scope: scope.into(),
        name: name.into(),
        limits,
    }
}
