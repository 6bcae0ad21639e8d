//! Who is signed in, and who has ever been.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use felix_auth::{Action, Resource};
use felix_meta::http::{Page, SessionItem};
use felix_meta::{Command, PrincipalRecord, SessionRecord, TenantEntry};
use serde::Deserialize;

use super::body::name;
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;
use crate::clock::now;

/// Whose sessions are asked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Whose {
    principal: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Whose {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let query = Query::<Self>::from_request_parts(parts, state).await;
        Ok(query.map(|Query(whose)| whose).unwrap_or_default())
    }
}

/// The sessions of a tenant: all for who may manage them, otherwise the caller's own.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/sessions", tag = "sessions",
    params(("tenant_id" = String, Path), ("principal" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<SessionItem>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    whose: Whose,
    paging: Paging,
) -> Result<Json<Page<SessionItem>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let Some(entry) = catalogue.tenant(&tenant) else {
        return Ok(Json(window.cut(std::iter::empty())));
    };
    let at = now();
    let own = (!manages(&caller, &tenant)).then_some(&*caller.principal().subject);
    // Of one principal there are few, of the tenant there may be a million.
    let sessions: Box<dyn Iterator<Item = &Arc<SessionRecord>> + Send> =
        match whose.principal.as_deref().or(own) {
            Some(principal) => Box::new(entry.sessions.of(principal)),
            None => Box::new(entry.sessions.iter()),
        };
    let sessions = sessions
        .filter(|session| session.expires_at_ms > at && sees(&caller, &tenant, session))
        .map(|session| (session.session_id.clone(), item(entry, session)));
    Ok(Json(window.cut(sessions)))
}

/// Ends a session: it cannot be continued, and its tokens are taken back.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/sessions/{session_id}", tag = "sessions",
    params(("tenant_id" = String, Path), ("session_id" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn end(
    State(app): State<App>,
    Path((tenant, session_id)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let catalogue = app.authority.catalogue();
    let session = catalogue
        .tenant(&tenant)
        .and_then(|entry| entry.sessions.get(&session_id));
    // One that is somebody else's is not told from one that is not there.
    if !session.is_some_and(|session| sees(&caller, &tenant, session)) {
        return Err(Refusal::not_found(format!("no session `{session_id}`")));
    }
    let by = &caller.principal().subject;
    let own = session.is_some_and(|session| session.principal_id == **by);
    app.authority
        .submit(Command::EndSession {
            tenant_id: name("tenant_id", &tenant)?,
            session_id,
            reason: if own {
                "ended by its owner"
            } else {
                "ended by an operator"
            }
            .to_owned(),
            now_ms: now(),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Who has signed in through an identity provider: which principal is whom.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/principals", tag = "sessions",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<PrincipalRecord>)))]
pub(crate) async fn principals(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<PrincipalRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let over = Resource::Tenant(&tenant);
    if !caller.may(Action::SessionManage, &over) {
        caller.must(Action::RbacView, &over)?;
    }
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(&tenant);
    let principals = entry
        .into_iter()
        .flat_map(|entry| entry.principals.iter())
        .map(|(id, principal)| (id.to_owned(), PrincipalRecord::clone(principal)));
    Ok(Json(window.cut(principals)))
}

fn manages(caller: &Caller, tenant: &str) -> bool {
    caller.may(Action::SessionManage, &Resource::Tenant(tenant))
}

fn sees(caller: &Caller, tenant: &str, session: &SessionRecord) -> bool {
    *caller.principal().subject == *session.principal_id || manages(caller, tenant)
}

fn item(entry: &TenantEntry, session: &SessionRecord) -> SessionItem {
    let principal = entry.principals.get(&session.principal_id);
    SessionItem {
        session_id: session.session_id.clone(),
        principal_id: session.principal_id.clone(),
        issuer: session.issuer.clone(),
        subject: principal.map(|principal| principal.subject.clone()),
        service_account: session.service_account.clone(),
        groups: session.groups.clone(),
        audience: session.audience.clone(),
        ask: session.ask.clone(),
        may_act: session.may_act.clone(),
        created_at_ms: session.created_at_ms,
        refreshed_at_ms: session.refreshed_at_ms,
        expires_at_ms: session.expires_at_ms,
        from: session.from.clone(),
    }
}
