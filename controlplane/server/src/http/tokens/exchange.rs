//! Exchange: somebody's credential from elsewhere, or a service account's key, for a Felix token.
//!
//! What can be said of a credential without looking at a tenant is said (401). Everything else that is wrong with it
//! gets one and the same answer (403), for a tenant that exists and for one that does not, and after the same work.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use felix_auth::oidc::{Trust, UpstreamToken, VerifyFailed, Vouched};
use felix_auth::{
    Action, Audience, NoRandomness, RefreshToken, Resource, SERVICE_KEY_PREFIX, Secret,
    ServiceCredential, random_id,
};
use felix_meta::http::{ExchangeSpec, TOKEN_TYPE_JWT, TokenAnswer};
use felix_meta::{Command, IssuerRecord, PrincipalRecord, SessionAsk, SessionRecord, TenantEntry};
use felix_model::{TenantId, TimeMs};

use super::ask::Wanted;
use super::mint::{Holder, Terms, mint_again, mint_for};
use super::{caller_place, login, newest, not_accepted};
use crate::app::App;
use crate::authority::WriteFailed;
use crate::clock::now;
use crate::http::body::{Raw, Unkept};
use crate::http::caller::Ticket;
use crate::http::error::Refusal;
use crate::request;

/// Exchanges the bearer, a token of an identity provider or a service account's key, for a Felix token.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/token/exchange", tag = "tokens",
    params(("tenant_id" = String, Path)), request_body = ExchangeSpec,
    responses((status = 200, body = TokenAnswer)))]
pub(crate) async fn exchange(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<Unkept<TokenAnswer>, Refusal> {
    let exchanging = async {
        let bearer = ticket
            .bearer()
            .ok_or_else(|| Refusal::unauthorized("this needs a provider's token as bearer"))?;
        let (tenant, entry, grounds) = if bearer.starts_with(SERVICE_KEY_PREFIX) {
            account(&app, &tenant, bearer).await?
        } else {
            person(&app, &tenant, bearer).await?
        };
        let spec: ExchangeSpec = body.read_or_default()?;
        let (wanted, ask) = Wanted::of_exchange(&spec)?;
        let may_act = actor(&app, &ticket, &tenant, &spec)?;
        let opening = Opening {
            grounds,
            ask,
            may_act,
        };
        open_session(&app, (&tenant, &entry), &wanted, opening).await
    };
    login(&app, &tenant, exchanging).await.map(Unkept)
}

/// On what grounds somebody is believed.
#[derive(Clone, Debug, Default)]
pub(super) struct Grounds {
    pub(super) holder: Holder,
    pub(super) service_account: Option<String>,
    /// To be remembered, for display.
    pub(super) principal: Option<PrincipalRecord>,
}

type Believed = (TenantId, Arc<TenantEntry>, Grounds);

/// Somebody a provider vouches for.
async fn person(app: &App, tenant: &str, bearer: &str) -> Result<Believed, Refusal> {
    let token = UpstreamToken::read(bearer, now()).map_err(|refused| {
        app.stats.auth_rejected(refused.code());
        Refusal::unauthorized(refused.to_string())
    })?;
    let entry = newest(app, tenant).await?;
    let issuer = entry
        .as_ref()
        .and_then(|entry| entry.issuers.get(token.issuer()));
    let (Some(entry), Some(issuer), Ok(tenant)) = (&entry, issuer, tenant.parse::<TenantId>())
    else {
        return Err(stranger(app, &token).await);
    };
    let vouched = vouch(app, &token, issuer).await?;
    leave_groups(app, (&tenant, entry), &vouched).await?;
    let principal = PrincipalRecord {
        principal_id: vouched.principal_id.clone(),
        issuer: vouched.issuer.clone(),
        subject: vouched.subject.clone(),
        first_seen_ms: now(),
    };
    let grounds = Grounds {
        holder: holder(vouched),
        service_account: None,
        principal: Some(principal),
    };
    Ok((tenant, Arc::clone(entry), grounds))
}

fn holder(vouched: Vouched) -> Holder {
    Holder {
        groups: groups_of(&vouched),
        principal_id: vouched.principal_id,
        issuer: Some(vouched.issuer),
    }
}

/// His groups as rules name them.
fn groups_of(vouched: &Vouched) -> Vec<String> {
    let issuer = &vouched.issuer;
    let names = vouched.groups.iter();
    names.map(|name| format!("group:{issuer}#{name}")).collect()
}

/// Ends the sessions of somebody that rest on a group in which he is no longer, so that what his provider says now counts
/// everywhere and not only where he signs in. It counts from when the provider said it: an older token, which a page may
/// still hold, is no news of a session that began after it, and one without groups says nothing of them.
async fn leave_groups(
    app: &App,
    (tenant, entry): (&TenantId, &TenantEntry),
    vouched: &Vouched,
) -> Result<(), Refusal> {
    if !vouched.groups_are_told {
        return Ok(());
    }
    let groups = groups_of(vouched);
    let said_ms = vouched.issued_at.saturating_mul(1000).saturating_add(999);
    let is_stale = |session: &&Arc<SessionRecord>| {
        session.issuer.as_deref() == Some(&vouched.issuer)
            && session.created_at_ms.0 <= said_ms
            && session.groups.iter().any(|group| !groups.contains(group))
    };
    let sessions = entry.sessions.of(&vouched.principal_id);
    let stale: Vec<String> = sessions
        .filter(is_stale)
        .map(|session| session.session_id.clone())
        .collect();
    for session_id in stale {
        let command = Command::EndSession {
            tenant_id: tenant.clone(),
            session_id,
            reason: "its owner left a group".into(),
            now_ms: now(),
        };
        match app.authority.submit(command).await {
            // It is gone already, which is as good.
            Ok(_) | Err(WriteFailed::Refused(_)) => {}
            Err(failed) => return Err(failed.into()),
        }
    }
    Ok(())
}

async fn vouch(
    app: &App,
    token: &UpstreamToken,
    issuer: &IssuerRecord,
) -> Result<Vouched, Refusal> {
    let claims = &issuer.claim_mappings;
    let trust = Trust {
        issuer: &issuer.issuer,
        audiences: &issuer.audiences,
        discovery_url: issuer.discovery_url.as_deref(),
        jwks_url: issuer.jwks_url.as_deref(),
        subject_claim: &claims.subject_claim,
        groups_claim: &claims.groups_claim,
    };
    let verified = app.verifier.verify(token, &trust, Instant::now()).await;
    verified.map_err(|failed| match failed {
        VerifyFailed::Refused(refused) => {
            app.stats.auth_rejected(refused.code());
            tracing::info!(issuer = issuer.issuer, reason = refused.code(), %refused,
                "a provider's token was refused");
            not_accepted()
        }
        VerifyFailed::Unavailable(why) => {
            app.stats.auth_rejected("upstream_unavailable");
            tracing::warn!(issuer = issuer.issuer, %why, "a provider's keys cannot be had");
            Refusal::unavailable("the identity provider cannot be reached now; try again later")
        }
    })
}

/// Refuses a token of an issuer that the tenant does not trust, or for a tenant that does not exist. If any tenant
/// trusts the issuer, the token is held against its keys all the same, so that neither the answer nor the time it takes
/// tells whose tenants those are.
async fn stranger(app: &App, token: &UpstreamToken) -> Refusal {
    app.stats.auth_rejected("upstream_untrusted");
    let catalogue = app.authority.catalogue();
    let trusted_by_another = catalogue
        .tenants()
        .find_map(|(_, entry)| entry.issuers.get(token.issuer()));
    let Some(issuer) = trusted_by_another else {
        token.vouch_for_nothing();
        return not_accepted();
    };
    match vouch(app, token, issuer).await {
        Ok(_) => not_accepted(),
        Err(refusal) => refusal,
    }
}

/// A program with a key of a service account.
async fn account(app: &App, tenant: &str, bearer: &str) -> Result<Believed, Refusal> {
    let credential = ServiceCredential::from_text(bearer).map_err(|_| {
        app.stats.auth_rejected("service_key_malformed");
        Refusal::unauthorized("not a service account key")
    })?;
    let entry = newest(app, tenant).await?;
    let found = entry
        .as_ref()
        .and_then(|entry| find_key(entry, &credential.key_id));
    let digest = found.as_ref().map(|found| found.secret_sha256.as_str());
    // All of it is looked at before any of it decides.
    let fits = credential.secret.fits(digest);
    let is_for_this_tenant = credential.tenant.as_ref() == tenant;
    match (entry.as_ref(), found) {
        (Some(entry), Some(found)) if fits && is_for_this_tenant && found.is_good(now()) => {
            let grounds = Grounds {
                holder: Holder {
                    principal_id: felix_meta::service_principal(&found.account),
                    ..Holder::default()
                },
                service_account: Some(found.account),
                principal: None,
            };
            Ok((credential.tenant, Arc::clone(entry), grounds))
        }
        _ => {
            app.stats.auth_rejected("service_key");
            Err(not_accepted())
        }
    }
}

struct FoundKey {
    account: String,
    disabled: bool,
    secret_sha256: String,
    expires_at_ms: Option<TimeMs>,
}

impl FoundKey {
    fn is_good(&self, now: TimeMs) -> bool {
        !self.disabled && self.expires_at_ms.is_none_or(|expires| now < expires)
    }
}

fn find_key(entry: &TenantEntry, key_id: &str) -> Option<FoundKey> {
    let (account, key) = entry.service_accounts.find_key(key_id)?;
    Some(FoundKey {
        account: account.name.clone(),
        disabled: account.disabled,
        secret_sha256: key.secret_sha256.clone(),
        expires_at_ms: key.expires_at_ms,
    })
}

/// Who alone may act with the token: whoever's token the body brings, if he may act for others in his own right.
fn actor(
    app: &App,
    ticket: &Ticket,
    tenant: &TenantId,
    spec: &ExchangeSpec,
) -> Result<Option<String>, Refusal> {
    let Some(token) = &spec.actor_token else {
        return Ok(None);
    };
    if spec
        .actor_token_type
        .as_deref()
        .is_some_and(|kind| kind != TOKEN_TYPE_JWT)
    {
        let message = format!("`actor_token_type` must be {TOKEN_TYPE_JWT}");
        return Err(Refusal::invalid(message));
    }
    let presented = ticket.with(&token.0);
    let verified = app.principal_of(&presented, tenant, Audience::ControlPlane);
    let acts = |principal: &felix_auth::Principal| {
        principal.actor.is_none()
            && principal.allows(Action::TokenDelegate, &Resource::Tenant(tenant.as_ref()))
    };
    match verified {
        Ok(principal) if acts(&principal) => Ok(Some(principal.subject.to_string())),
        Ok(_) | Err(_) => Err(Refusal::actor_refused("the actor may not act for others")),
    }
}

/// What a session begins with.
pub(super) struct Opening {
    pub(super) grounds: Grounds,
    pub(super) ask: SessionAsk,
    pub(super) may_act: Option<String>,
}

/// Mints the first token of a session and opens it.
pub(super) async fn open_session(
    app: &App,
    (tenant, entry): (&TenantId, &Arc<TenantEntry>),
    wanted: &Wanted,
    opening: Opening,
) -> Result<TokenAnswer, Refusal> {
    let Opening {
        grounds,
        ask,
        may_act,
    } = opening;
    let refresh = first_refresh_token().map_err(|error| {
        tracing::error!(%error, "no session can be opened");
        Refusal::internal()
    })?;
    let life = app.config.exchange_token_ttl_seconds;
    let terms = Terms {
        session: Some(&refresh.session_id),
        may_act: may_act.as_deref(),
        life,
        loopback_only: false,
    };
    let felix_token = mint_for(app, (tenant, entry), &grounds.holder, wanted, &terms)?;
    let holder = grounds.holder.clone();
    let at = now();
    let longest = app.config.refresh_token_ttl_seconds;
    let session_life = match grounds.holder.issuer {
        Some(_) => longest.min(app.config.sign_in_max_age_seconds),
        None => longest,
    };
    request::identify_as(
        &grounds.holder.principal_id,
        tenant,
        Some(&refresh.session_id),
    );
    let session = SessionRecord {
        session_id: refresh.session_id.clone(),
        principal_id: grounds.holder.principal_id,
        issuer: grounds.holder.issuer,
        service_account: grounds.service_account,
        groups: grounds.holder.groups,
        audience: wanted.audience.name().to_owned(),
        ask,
        may_act: may_act.clone(),
        created_at_ms: at,
        refreshed_at_ms: at,
        expires_at_ms: TimeMs(at.0.saturating_add(session_life.saturating_mul(1000))),
        generation: refresh.generation,
        secret_sha256: refresh.secret.digest(),
        from: caller_place(),
    };
    let command = Command::OpenSession {
        tenant_id: tenant.clone(),
        session,
        principal: grounds.principal,
    };
    super::submitted(app, command).await?;
    let minted = (entry.as_ref(), felix_token);
    let felix_token = mint_again(app, tenant, minted, &holder, wanted, &terms)?;
    Ok(TokenAnswer {
        felix_token,
        expires_in: life,
        token_type: "Bearer".into(),
        refresh_token: Some(refresh.to_text()),
        refresh_expires_in: Some(session_life),
    })
}

fn first_refresh_token() -> Result<RefreshToken, NoRandomness> {
    Ok(RefreshToken {
        session_id: random_id()?,
        generation: 0,
        secret: Secret::generate()?,
    })
}
