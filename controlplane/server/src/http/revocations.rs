//! Taking back what was given: tokens, sessions, everything of a principal.
//!
//! Brokers learn of it by the catalogue and end what was opened; see docs/OPERATING.md for how soon.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::Action;
use felix_meta::http::{Page, RevocationSpec, RevokeAnswer, RevokeSpec};
use felix_meta::{Command, Event, RevocationRecord, RevokedKind};

use super::body::{Raw, name};
use super::caller::Ticket;
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;
use crate::clock::now;

/// What is taken back in a tenant and may still concern a token.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/revocations", tag = "revocations",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<RevocationRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<RevocationRecord>>, Refusal> {
    app.reach_of(&ticket, &tenant, Action::SessionManage)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let all = catalogue
        .tenant(&tenant)
        .into_iter()
        .flat_map(|entry| entry.revocations.iter());
    let items = all.map(|one| {
        let key = format!("{}{}", order(one.kind), one.id);
        (key, RevocationRecord::clone(one))
    });
    Ok(Json(window.cut(items)))
}

/// Takes something back: whatever was minted for it until now is good no more. What it is about need not be known
/// here. A principal, an issuer or a tenant loses its sessions as well, so that everybody has to sign in again.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/revocations", tag = "revocations",
    params(("tenant_id" = String, Path)), request_body = RevocationSpec,
    responses((status = 201, body = RevocationRecord)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<RevocationRecord>), Refusal> {
    app.reach_of(&ticket, &tenant, Action::SessionManage)?;
    let spec: RevocationSpec = body.read()?;
    let (revocation, _) = revoke(&app, &tenant, spec).await?;
    Ok((StatusCode::CREATED, Json(revocation)))
}

/// Ends the sessions of a principal, and takes back the tokens minted for him. The published route.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/refresh-tokens/revoke", tag = "revocations",
    params(("tenant_id" = String, Path)), request_body = RevokeSpec,
    responses((status = 200, body = RevokeAnswer)))]
pub(crate) async fn of_principal(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<RevokeAnswer>, Refusal> {
    app.reach_of(&ticket, &tenant, Action::SessionManage)?;
    let spec: RevokeSpec = body.read()?;
    let spec = RevocationSpec {
        kind: RevokedKind::Principal,
        id: spec.principal_id,
        reason: "refresh tokens revoked".into(),
    };
    let (_, revoked) = revoke(&app, &tenant, spec).await?;
    Ok(Json(RevokeAnswer { revoked }))
}

async fn revoke(
    app: &App,
    tenant: &str,
    spec: RevocationSpec,
) -> Result<(RevocationRecord, u64), Refusal> {
    let now_ms = now();
    let command = Command::Revoke {
        tenant_id: name("tenant_id", tenant)?,
        kind: spec.kind,
        id: spec.id,
        not_before_ms: now_ms,
        reason: spec.reason,
        now_ms,
    };
    match app.authority.submit(command).await? {
        Some(Event::Revoked {
            revocation,
            ended_sessions,
            ..
        }) => Ok((revocation, ended_sessions)),
        // It is never decided to something else.
        _ => Err(Refusal::internal()),
    }
}

/// A character that orders the kinds as the catalogue does.
fn order(kind: RevokedKind) -> char {
    match kind {
        RevokedKind::Principal => '0',
        RevokedKind::Session => '1',
        RevokedKind::Token => '2',
        RevokedKind::Role => '3',
        RevokedKind::Issuer => '4',
        RevokedKind::Tenant => '5',
    }
}
