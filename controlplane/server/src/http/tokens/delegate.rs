//! Delegation: a gateway acts for a person with a token that says so (RFC 8693).

use axum::extract::{Path, State};
use felix_auth::{Action, ActorToken, Audience, Claims, Permission, Principal, Resource};
use felix_meta::http::{DelegateAnswer, DelegateSpec, GRANT_TYPE_EXCHANGE, Hidden, TOKEN_TYPE_JWT};
use felix_model::TenantId;

use super::ask::{all, nothing_left};
use super::mint::sign;
use crate::app::App;
use crate::clock::now;
use crate::http::body::{Raw, Unkept, name};
use crate::http::caller::Ticket;
use crate::http::error::Refusal;
use crate::revoked::concerning;

/// Mints a token with which the caller acts for somebody: the same person, never wider, never longer, one step only.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/token/delegate", tag = "tokens",
    params(("tenant_id" = String, Path)), request_body = DelegateSpec,
    responses((status = 200, body = DelegateAnswer)))]
pub(crate) async fn delegate(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<Unkept<DelegateAnswer>, Refusal> {
    super::may_pass(&app).await?;
    let caller = app
        .caller_of(&ticket, &tenant)
        .inspect_err(|_| super::failed(&app))?;
    caller.must(Action::TokenDelegate, &Resource::Tenant(&tenant))?;
    let actor = caller.principal();
    if actor.actor.is_some() {
        return Err(Refusal::forbidden("who is acted for cannot act for others"));
    }
    let tenant: TenantId = name("tenant_id", &tenant)?;
    let spec: DelegateSpec = body.read_secret()?;
    let pairs = read(&spec)?;
    let presented = ticket.with(&spec.subject_token.0);
    let subject = app
        .principal_of(&presented, &tenant, Audience::Broker)
        .map_err(|refusal| Refusal {
            message: format!("`subject_token`: {}", refusal.message),
            ..refusal
        })?;
    must_be_for(&app, &subject, &actor.subject)?;
    let permissions = narrowed(&subject, pairs)?;
    answer(&app, &tenant, &subject, actor, permissions).map(Unkept)
}

fn read(spec: &DelegateSpec) -> Result<Option<Vec<Permission>>, Refusal> {
    if spec.grant_type != GRANT_TYPE_EXCHANGE {
        let message = format!("`grant_type` must be {GRANT_TYPE_EXCHANGE}");
        return Err(Refusal::invalid(message));
    }
    if spec
        .subject_token_type
        .as_deref()
        .is_some_and(|kind| kind != TOKEN_TYPE_JWT)
    {
        let message = format!("`subject_token_type` must be {TOKEN_TYPE_JWT}");
        return Err(Refusal::invalid(message));
    }
    let pairs = spec.permissions.as_deref();
    pairs.map(|pairs| all("permissions", pairs)).transpose()
}

/// Refuses to act with a token that was not issued for this actor: a stolen one is worth nothing to who holds the right
/// to act for others.
fn must_be_for(app: &App, subject: &Principal, actor: &str) -> Result<(), Refusal> {
    if subject.actor.is_some() {
        return Err(Refusal::forbidden("the token is delegated already"));
    }
    match subject.may_act.as_deref() {
        Some(named) if named == actor => Ok(()),
        Some(_) => Err(Refusal::forbidden("the token was issued for another actor")),
        None if app.config.delegate_unbound_tokens => Ok(()),
        None => Err(Refusal::forbidden("the token names no actor")),
    }
}

fn narrowed(
    subject: &Principal,
    pairs: Option<Vec<Permission>>,
) -> Result<Vec<Permission>, Refusal> {
    let held = subject.permissions.grants();
    let Some(pairs) = pairs else {
        return Ok(held.to_vec());
    };
    if pairs.is_empty() {
        return Err(nothing_left());
    }
    let ask = felix_auth::Ask {
        permissions: pairs,
        ..felix_auth::Ask::default()
    };
    felix_auth::narrow(held, &ask).map_err(|_| nothing_left())
}

fn answer(
    app: &App,
    tenant: &TenantId,
    subject: &Principal,
    actor: &Principal,
    permissions: Vec<Permission>,
) -> Result<DelegateAnswer, Refusal> {
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(tenant.as_ref()).ok_or_else(nothing_left)?;
    // On the very state that the new token is dated by: it comes after every revocation of it.
    if let Some(by) = concerning(entry, subject).covers(subject) {
        return Err(Refusal::revoked(format!("`subject_token`: {by}")));
    }
    // Likewise the right to act: what takes it away from now on covers the new token, by what `act` says of the actor's.
    if let Some(by) = concerning(entry, actor).covers(actor) {
        return Err(Refusal::revoked(by.to_string()));
    }
    let at = now();
    let left = (subject.expires_at_ms.0 / 1000).saturating_sub(at.0 / 1000);
    let life = left.min(app.config.exchange_token_ttl_seconds);
    if life == 0 {
        return Err(Refusal::unauthorized("`subject_token`: the token ran out"));
    }
    let mut claims = Claims::new(
        tenant.clone(),
        subject.subject.to_string(),
        Audience::Broker,
        (at, life),
        permissions,
    );
    claims.actor = Some(actor.subject.to_string());
    claims.actor_token = Some(ActorToken::of(actor));
    claims.session = subject.session.as_deref().map(str::to_owned);
    claims.roles = subject.roles.iter().map(|role| (**role).into()).collect();
    claims.idp = subject.idp.as_deref().map(str::to_owned);
    claims.loopback_only = subject.loopback_only;
    let token = sign(app, entry, claims)?;
    app.stats.token_delegated();
    Ok(DelegateAnswer {
        access_token: Hidden(token),
        issued_token_type: TOKEN_TYPE_JWT.into(),
        token_type: "Bearer".into(),
        expires_in: life,
    })
}
