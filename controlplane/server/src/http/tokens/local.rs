//! Making tenants and tokens without an identity provider. The bootstrap listener and a process that embeds the control
//! plane both end here.

use felix_auth::{SigningKey, TENANT_ADMIN_ROLE, tenant_admin_policies};
use felix_meta::http::{DevTokenSpec, InitializeAnswer, InitializeSpec, TokenAnswer};
use felix_meta::{Command, Grouping, Policy, SessionAsk, TenantRecord, VerifyingKey};
use felix_model::TenantId;

use super::ask::{Wanted, nothing_left};
use super::exchange::{Grounds, Opening, open_session};
use super::mint::{Holder, Terms, mint_for};
use crate::app::App;
use crate::http::error::Refusal;
use crate::http::issuers;
use crate::http::rbac::permission;
use crate::limits::{DEV_TOKEN_SECONDS_ANYWHERE, DEV_TOKEN_SECONDS_MAX};

/// Gives a tenant its first key and administrators.
pub(crate) async fn initialize(
    app: &App,
    tenant: &TenantId,
    spec: InitializeSpec,
) -> Result<InitializeAnswer, Refusal> {
    for issuer in &spec.idp_issuers {
        issuers::check(app, issuer).await?;
    }
    for policy in &spec.policies {
        let object = permission(policy)?.object;
        if object
            .tenant()
            .is_some_and(|owner| owner != tenant.as_ref())
        {
            return Err(Refusal::invalid("a rule's object names another tenant"));
        }
    }
    let key = SigningKey::generate().map_err(|error| {
        tracing::error!(%error, "no signing key could be made");
        Refusal::internal()
    })?;
    let seed = tenant_admin_policies(tenant.as_ref())
        .into_iter()
        .map(|rule| Policy {
            subject: TENANT_ADMIN_ROLE.into(),
            object: rule.object.to_string(),
            action: rule.action.to_string(),
        });
    let admins = spec
        .initial_admin_principals
        .into_iter()
        .map(|user| Grouping {
            user,
            role: TENANT_ADMIN_ROLE.into(),
        });
    let command = Command::InitializeTenant {
        tenant: TenantRecord {
            tenant_id: tenant.clone(),
            display_name: spec.display_name,
        },
        key: VerifyingKey {
            kid: key.kid().to_owned(),
            x: key.public().x.clone(),
        },
        policies: seed.chain(spec.policies).collect(),
        groupings: admins.chain(spec.groupings).collect(),
        issuers: spec.idp_issuers,
    };
    app.authority.submit_with_key(command, tenant, &key).await?;
    Ok(InitializeAnswer {
        tenant_id: tenant.to_string(),
        kid: key.kid().to_owned(),
        jwks_url: format!("/v1/tenants/{tenant}/.well-known/jwks.json"),
        status: "initialized".into(),
    })
}

/// Mints a token of a principal with what his roles give him, narrowed to what is asked for. It has no session.
pub(crate) fn dev_token(
    app: &App,
    tenant: &TenantId,
    spec: &DevTokenSpec,
) -> Result<TokenAnswer, Refusal> {
    let (wanted, _) = read(spec)?;
    let life = life(app, spec)?;
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(tenant.as_ref()).ok_or_else(nothing_left)?;
    let terms = Terms {
        life,
        loopback_only: life > DEV_TOKEN_SECONDS_ANYWHERE,
        ..Terms::default()
    };
    let felix_token = mint_for(app, (tenant, entry), &holder(spec), &wanted, &terms)?;
    Ok(TokenAnswer {
        felix_token,
        expires_in: life,
        token_type: "Bearer".into(),
        refresh_token: None,
        refresh_expires_in: None,
    })
}

/// As [`dev_token`], with a session that can be refreshed. A token with a life of its own has none: what its session
/// minted would be good elsewhere, or longer.
pub(crate) async fn dev_session(
    app: &App,
    tenant: &TenantId,
    spec: &DevTokenSpec,
) -> Result<TokenAnswer, Refusal> {
    if spec.ttl_seconds.is_some() {
        return dev_token(app, tenant, spec);
    }
    let (wanted, ask) = read(spec)?;
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(tenant.as_ref()).ok_or_else(nothing_left)?;
    let opening = Opening {
        grounds: Grounds {
            holder: holder(spec),
            ..Grounds::default()
        },
        ask,
        may_act: None,
    };
    open_session(app, (tenant, entry), &wanted, opening).await
}

fn read(spec: &DevTokenSpec) -> Result<(Wanted, SessionAsk), Refusal> {
    if spec.principal.is_empty() {
        return Err(Refusal::invalid("`principal` is empty"));
    }
    let ask = SessionAsk {
        requested: spec.requested.clone(),
        resources: spec.resources.clone(),
        permissions: (!spec.permissions.is_empty()).then(|| spec.permissions.clone()),
    };
    Ok((Wanted::read(spec.audience.as_deref(), &ask)?, ask))
}

fn life(app: &App, spec: &DevTokenSpec) -> Result<u64, Refusal> {
    let life = spec
        .ttl_seconds
        .unwrap_or(app.config.exchange_token_ttl_seconds);
    if !(1..=DEV_TOKEN_SECONDS_MAX).contains(&life) {
        let message = format!("`ttl_seconds` must be from 1 to {DEV_TOKEN_SECONDS_MAX}");
        return Err(Refusal::invalid(message));
    }
    Ok(life)
}

fn holder(spec: &DevTokenSpec) -> Holder {
    Holder {
        principal_id: spec.principal.clone(),
        ..Holder::default()
    }
}
