//! Making tenants and tokens without an identity provider. The bootstrap listener and a process that embeds the control
//! plane both end here.

use felix_auth::{
    Action, Ask, Audience, Claims, MintFailed, NarrowRefused, Object, Permission, SigningKey,
    TENANT_ADMIN_ROLE, expand, granted, mint, narrow, tenant_admin_policies,
};
use felix_meta::http::{DevTokenSpec, InitializeAnswer, InitializeSpec, TokenAnswer};
use felix_meta::{Command, Grouping, Policy, TenantRecord, VerifyingKey};
use felix_model::TenantId;

use super::error::Refusal;
use super::rbac::permission;
use crate::app::App;
use crate::clock::now;
use crate::limits::{DEV_TOKEN_SECONDS_ANYWHERE, DEV_TOKEN_SECONDS_MAX};

/// Gives a tenant its first key and administrators.
pub(crate) async fn initialize(
    app: &App,
    tenant: &TenantId,
    spec: InitializeSpec,
) -> Result<InitializeAnswer, Refusal> {
    if !spec.idp_issuers.is_empty() {
        return Err(Refusal::invalid(
            "`idp_issuers` must be empty: token exchange is not enabled",
        ));
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
    };
    app.authority.submit_with_key(command, tenant, &key).await?;
    Ok(InitializeAnswer {
        tenant_id: tenant.to_string(),
        kid: key.kid().to_owned(),
        jwks_url: format!("/v1/tenants/{tenant}/.well-known/jwks.json"),
        status: "initialized".into(),
    })
}

/// Mints a token of a principal with what his roles give him, narrowed to what is asked for.
pub(crate) fn dev_token(
    app: &App,
    tenant: &TenantId,
    spec: &DevTokenSpec,
) -> Result<TokenAnswer, Refusal> {
    let ask = read_ask(spec)?;
    let audience = match spec.audience.as_deref() {
        None => Audience::Broker,
        Some(text) => text.parse().map_err(|_| {
            Refusal::invalid("`audience` must be felix-broker or felix-controlplane")
        })?,
    };
    let life = spec
        .ttl_seconds
        .unwrap_or(app.config.exchange_token_ttl_seconds);
    if !(1..=DEV_TOKEN_SECONDS_MAX).contains(&life) {
        let message = format!("`ttl_seconds` must be from 1 to {DEV_TOKEN_SECONDS_MAX}");
        return Err(Refusal::invalid(message));
    }
    if spec.principal.is_empty() {
        return Err(Refusal::invalid("`principal` is empty"));
    }
    let held = expand(&held(app, tenant, &spec.principal), audience);
    let permissions = narrow(&held, &ask).map_err(|refused| match refused {
        NarrowRefused::NothingLeft => Refusal::forbidden("no permissions"),
        NarrowRefused::PairsNotAlone => Refusal::invalid(refused.to_string()),
    })?;
    let key = app
        .authority
        .signing_key(tenant)
        .ok_or_else(|| Refusal::forbidden("no permissions"))?;
    let issued_at = now().0 / 1000;
    let mut claims = Claims::new(
        tenant.clone(),
        spec.principal.clone(),
        audience,
        (issued_at, life),
        permissions,
    );
    claims.loopback_only = life > DEV_TOKEN_SECONDS_ANYWHERE;
    let felix_token = mint(&key, &claims).map_err(|failed| match failed {
        MintFailed::TooLarge { .. } => Refusal::invalid(failed.to_string()),
        MintFailed::LifeTooLong { .. } | MintFailed::Signing => {
            tracing::error!(error = %failed, "a token could not be minted");
            Refusal::internal()
        }
    })?;
    app.stats.token_minted();
    Ok(TokenAnswer {
        felix_token,
        expires_in: life,
        token_type: "Bearer".into(),
    })
}

fn held(app: &App, tenant: &TenantId, principal: &str) -> Vec<Permission> {
    let catalogue = app.authority.catalogue();
    let Some(entry) = catalogue.tenant(tenant.as_ref()) else {
        return Vec::new();
    };
    granted(
        principal,
        entry.groupings.iter().map(|one| felix_auth::Grouping {
            user: &one.user,
            role: &one.role,
        }),
        entry.policies.iter().map(|one| felix_auth::Policy {
            subject: &one.subject,
            object: &one.object,
            action: &one.action,
        }),
    )
}

fn read_ask(spec: &DevTokenSpec) -> Result<Ask, Refusal> {
    fn all<T: std::str::FromStr>(field: &str, texts: &[String]) -> Result<Vec<T>, Refusal>
    where
        T::Err: std::fmt::Display,
    {
        texts
            .iter()
            .map(|text| {
                text.parse()
                    .map_err(|error| Refusal::invalid(format!("`{field}`: {error}")))
            })
            .collect()
    }
    Ok(Ask {
        requested: all::<Action>("requested", &spec.requested)?,
        resources: all::<Object>("resources", &spec.resources)?,
        permissions: all::<Permission>("permissions", &spec.permissions)?,
    })
}
