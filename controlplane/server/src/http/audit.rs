//! Reading the audit. It has a right of its own, because it tells who does what from where.

use std::convert::Infallible;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use felix_auth::{Action, Resource};
use felix_meta::http::AuditPage;
use felix_model::TenantId;
use serde::Deserialize;

use super::body::name;
use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::audit::Asked;
use crate::limits::AUDIT_ITEMS;

/// What was done in a tenant, in order, each line chained to the one before. `next_after` says where to go on; with
/// `principal` or `what` a page may be short, or empty, and still not be the last.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/audit", tag = "audit",
    params(("tenant_id" = String, Path), ("after" = Option<u64>, Query), ("limit" = Option<u32>, Query),
        ("principal" = Option<String>, Query), ("what" = Option<String>, Query)),
    responses((status = 200, body = AuditPage)))]
pub(crate) async fn of_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    lines: Lines,
) -> Result<Json<AuditPage>, Refusal> {
    app.caller_of(&ticket, &tenant)?
        .must(Action::AuditView, &Resource::Tenant(&tenant))?;
    let tenant: TenantId = name("tenant_id", &tenant)?;
    page(&app, Some(&tenant), &lines).await
}

/// What was done in the whole installation, in order.
#[utoipa::path(get, path = "/v1/audit", tag = "audit",
    params(("after" = Option<u64>, Query), ("limit" = Option<u32>, Query),
        ("principal" = Option<String>, Query), ("what" = Option<String>, Query)),
    responses((status = 200, body = AuditPage)))]
pub(crate) async fn of_cluster(
    State(app): State<App>,
    ticket: Ticket,
    lines: Lines,
) -> Result<Json<AuditPage>, Refusal> {
    app.caller(&ticket)?
        .must(Action::AuditView, &Resource::Cluster)?;
    page(&app, None, &lines).await
}

async fn page(
    app: &App,
    tenant: Option<&TenantId>,
    lines: &Lines,
) -> Result<Json<AuditPage>, Refusal> {
    let asked = lines.read()?;
    let page = app.index.page(&app.authority, tenant, &asked).await;
    page.map(Json).map_err(|error| {
        tracing::error!(%error, "the audit cannot be read");
        Refusal::internal()
    })
}

/// Which lines are asked for, still as text: it is read only after the caller is known.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Lines {
    after: Option<String>,
    limit: Option<String>,
    principal: Option<String>,
    what: Option<String>,
    #[serde(skip)]
    malformed: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Lines {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let query = Query::<Self>::from_request_parts(parts, state).await;
        Ok(query.map_or_else(
            |_| Self {
                malformed: true,
                ..Self::default()
            },
            |Query(lines)| lines,
        ))
    }
}

impl Lines {
    fn read(&self) -> Result<Asked, Refusal> {
        if self.malformed {
            return Err(Refusal::invalid("the query cannot be read"));
        }
        let (default, max) = AUDIT_ITEMS;
        let limit = self.limit.as_deref().map_or(Ok(default), |text| {
            text.parse()
                .ok()
                .filter(|limit| (1..=max).contains(limit))
                .ok_or_else(|| Refusal::invalid(format!("`limit` must be from 1 to {max}")))
        })?;
        let after = self.after.as_deref().map_or(Ok(0), |text| {
            text.parse()
                .map_err(|_| Refusal::invalid("`after` must be the number of a line"))
        })?;
        Ok(Asked {
            after,
            limit,
            principal: self.principal.clone(),
            what: self.what.clone(),
        })
    }
}
