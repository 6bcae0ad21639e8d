//! Refresh: a session goes on with the next token, once for each.
//!
//! A refresh token that is used twice was stolen, or its thief was faster. Nobody can tell which, so the session ends
//! for both. Every refusal is the same.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{RefreshToken, Secret};
use felix_meta::http::{RefreshSpec, RevokeTokenSpec, TokenAnswer};
use felix_meta::{Command, Event, ServiceKey, SessionRecord, TenantEntry};
use felix_model::{TenantId, TimeMs};

use super::ask::{Wanted, read_audience};
use super::mint::{Holder, Terms, mint_again, mint_for};
use super::{login, newest};
use crate::app::App;
use crate::authority::WriteFailed;
use crate::clock::now;
use crate::http::body::{Raw, Unkept};
use crate::http::error::Refusal;
use crate::request;

fn ended() -> Refusal {
    Refusal::sign_in_again("the refresh token is not good; sign in again")
}

/// Past which moment a session does not go on, however often it is refreshed. What a provider said of somebody is not
/// believed for longer than this; who signed in with a key of ours is looked at anew at every refresh.
fn ends_at(app: &App, session: &SessionRecord) -> Option<TimeMs> {
    let longest = app.config.sign_in_max_age_seconds.saturating_mul(1000);
    let ends = session.created_at_ms.0.saturating_add(longest);
    session.issuer.is_some().then_some(TimeMs(ends))
}

/// Continues a session. The refresh token in the body is the credential, and is spent; the answer holds the next one.
/// What the session's owner may do is looked up anew; how the session was narrowed, and its audience, stay.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/token/refresh", tag = "tokens", security(()),
    params(("tenant_id" = String, Path)), request_body = RefreshSpec,
    responses((status = 200, body = TokenAnswer)))]
pub(crate) async fn refresh(
    State(app): State<App>,
    Path(tenant): Path<String>,
    body: Raw,
) -> Result<Unkept<TokenAnswer>, Refusal> {
    let refreshing = async {
        let spec: RefreshSpec = body.read_secret()?;
        let audience = spec.audience.as_deref();
        let found = find(&app, &tenant, &spec.refresh_token.0).await?;
        if let Some(asked) = audience
            && read_audience(Some(asked))?.name() != found.session.audience
        {
            let message = format!("the session is for {}", found.session.audience);
            return Err(Refusal::invalid(message));
        }
        go_on(&app, &found).await
    };
    login(&app, &tenant, refreshing).await.map(Unkept)
}

/// Ends a session by its refresh token, as signing out does. A token that is not good ends nothing, and is answered
/// alike.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/token/revoke", tag = "tokens", security(()),
    params(("tenant_id" = String, Path)), request_body = RevokeTokenSpec,
    responses((status = 204)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Path(tenant): Path<String>,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let spec: RevokeTokenSpec = body.read_secret()?;
    super::may_pass(&app).await?;
    match find(&app, &tenant, &spec.refresh_token.0).await {
        Ok(found) => end(&app, &found, "signed out").await?,
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => super::failed(&app),
        Err(refusal) => return Err(refusal),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A session and the token that continues it.
struct Found {
    tenant: TenantId,
    entry: Arc<TenantEntry>,
    session: Arc<SessionRecord>,
}

/// Finds the session that a refresh token continues, and ends the one it was stolen from.
async fn find(app: &App, tenant: &str, text: &str) -> Result<Found, Refusal> {
    let token = RefreshToken::from_text(text).ok();
    // An instance that is a moment behind must not take a token it has not heard of for a stolen one.
    let entry = newest(app, tenant).await?;
    let held = token.as_ref().zip(entry.as_ref());
    let session = held.and_then(|(token, entry)| entry.sessions.get(&token.session_id));
    let digest = session.map(|session| session.secret_sha256.as_str());
    let fits = match &token {
        Some(token) => token.secret.fits(digest),
        None => Secret::generate().is_ok_and(|nobodys| nobodys.fits(digest)),
    };
    let (Some(token), Some(entry), Some(session), Ok(tenant)) =
        (&token, &entry, session, tenant.parse::<TenantId>())
    else {
        app.stats.auth_rejected("refresh_unknown");
        return Err(ended());
    };
    let found = Found {
        tenant,
        entry: Arc::clone(entry),
        session: Arc::clone(session),
    };
    request::identify_as(
        &session.principal_id,
        &found.tenant,
        Some(&session.session_id),
    );
    let reason = match (token.generation == session.generation, fits) {
        (true, true) => {
            if session.expires_at_ms <= now() {
                app.stats.auth_rejected("refresh_expired");
                return Err(ended());
            }
            // The operator may have shortened it since.
            if ends_at(app, session).is_some_and(|ends| ends <= now()) {
                app.stats.auth_rejected("refresh_too_old");
                return Err(ended());
            }
            return Ok(found);
        }
        (true, false) => "a refresh token with a wrong secret was used",
        (false, _) => "a refresh token was used twice",
    };
    app.stats.auth_rejected("refresh_replayed");
    tracing::warn!(tenant = %found.tenant, session = found.session.session_id, reason,
        "a session was ended");
    end(app, &found, reason).await?;
    Err(ended())
}

async fn go_on(app: &App, found: &Found) -> Result<TokenAnswer, Refusal> {
    let Found {
        tenant,
        entry,
        session,
    } = found;
    let at = now();
    if !is_vouched_for(entry, session, at) {
        end(app, found, "nobody vouches for it any more").await?;
        return Err(ended());
    }
    let holder = Holder {
        principal_id: session.principal_id.clone(),
        groups: session.groups.clone(),
        issuer: session.issuer.clone(),
    };
    let wanted = Wanted::read(Some(&session.audience), &session.ask)?;
    let life = app.config.exchange_token_ttl_seconds;
    let terms = Terms {
        session: Some(&session.session_id),
        may_act: session.may_act.as_deref(),
        life,
        loopback_only: false,
    };
    let minted = mint_for(app, (tenant, entry), &holder, &wanted, &terms);
    let felix_token = match minted {
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => {
            end(app, found, "it has no permissions any more").await?;
            return Err(ended());
        }
        minted => minted?,
    };
    let next = RefreshToken {
        session_id: session.session_id.clone(),
        generation: session.generation.saturating_add(1),
        secret: Secret::generate().map_err(|error| {
            tracing::error!(%error, "no session can go on");
            Refusal::internal()
        })?,
    };
    let command = Command::RefreshSession {
        tenant_id: tenant.clone(),
        session_id: session.session_id.clone(),
        expected_generation: session.generation,
        secret_sha256: next.secret.digest(),
        ends_at_ms: ends_at(app, session),
        now_ms: at,
    };
    let until = match app.authority.submit(command).await {
        Ok(Some(Event::SessionRefreshed { expires_at_ms, .. })) => expires_at_ms,
        Ok(_) => session.expires_at_ms,
        // Somebody was faster with the same token.
        Err(WriteFailed::Refused(_)) => {
            app.stats.auth_rejected("refresh_replayed");
            end(app, found, "a refresh token was used twice").await?;
            return Err(ended());
        }
        Err(failed) => return Err(failed.into()),
    };
    let minted = (entry.as_ref(), felix_token);
    let felix_token = mint_again(app, tenant, minted, &holder, &wanted, &terms)?;
    let left = until.0.saturating_sub(at.0) / 1000;
    Ok(TokenAnswer {
        felix_token,
        expires_in: life,
        token_type: "Bearer".into(),
        refresh_token: Some(next.to_text()),
        refresh_expires_in: Some(left),
    })
}

/// Whether who vouched when the session began would still do so. An account whose keys have all run out has nobody who
/// could sign in as it, so what was begun with them does not go on either.
fn is_vouched_for(entry: &TenantEntry, session: &SessionRecord, now: TimeMs) -> bool {
    let issuer = session
        .issuer
        .as_ref()
        .is_none_or(|issuer| entry.issuers.contains_key(issuer));
    let account = session.service_account.as_ref().is_none_or(|name| {
        let account = entry.service_accounts.get(name);
        account.is_some_and(|account| {
            let good = |key: &ServiceKey| key.expires_at_ms.is_none_or(|expires| now < expires);
            !account.disabled && account.keys.iter().any(good)
        })
    });
    issuer && account
}

async fn end(app: &App, found: &Found, reason: &str) -> Result<(), Refusal> {
    let command = Command::EndSession {
        tenant_id: found.tenant.clone(),
        session_id: found.session.session_id.clone(),
        reason: reason.to_owned(),
        now_ms: now(),
    };
    match app.authority.submit(command).await {
        // It is gone already, which is as good.
        Ok(_) | Err(WriteFailed::Refused(_)) => Ok(()),
        Err(failed) => Err(failed.into()),
    }
}
