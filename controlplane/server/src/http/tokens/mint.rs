//! From somebody who was believed to a token of his.

use std::sync::Arc;

use felix_auth::{
    Claims, Held, LEEWAY_SECONDS, MintFailed, held_by, issuer_digest, mint, random_id,
};
use felix_meta::TenantEntry;
use felix_model::TenantId;

use super::ask::{Wanted, nothing_left};
use crate::app::App;
use crate::clock::now;
use crate::http::error::Refusal;
use crate::revoked::concerning;

/// Who a token is for, as far as he was believed.
#[derive(Clone, Debug, Default)]
pub(super) struct Holder {
    pub(super) principal_id: String,
    /// As rules name them.
    pub(super) groups: Vec<String>,
    /// The provider that vouched.
    pub(super) issuer: Option<String>,
}

/// What else is in the token.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) may_act: Option<&'a str>,
    /// Seconds.
    pub(super) life: u64,
    pub(super) loopback_only: bool,
}

/// Everything a holder has by the rules as they are now.
pub(super) fn held(entry: &TenantEntry, holder: &Holder) -> Held {
    held_by(
        &holder.principal_id,
        holder.groups.iter().map(String::as_str),
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

/// Mints a token of what the holder has, narrowed to what is wanted.
pub(super) fn mint_for(
    app: &App,
    (tenant, entry): (&TenantId, &TenantEntry),
    holder: &Holder,
    wanted: &Wanted,
    terms: &Terms<'_>,
) -> Result<String, Refusal> {
    let held = held(entry, holder);
    let permissions = wanted.narrow(&held)?;
    let mut claims = Claims::new(
        tenant.clone(),
        holder.principal_id.clone(),
        wanted.audience,
        (now(), terms.life),
        permissions,
    );
    claims.may_act = terms.may_act.map(str::to_owned);
    claims.session = terms.session.map(str::to_owned);
    claims.roles = held.roles;
    claims.idp = holder.issuer.as_deref().map(issuer_digest);
    claims.loopback_only = terms.loopback_only;
    sign(app, entry, claims)
}

/// The token as it is to be now that its session is in the ledger: the same one, unless rules or revocations came in
/// between. An instance that was behind would otherwise hand out what was taken away, dated after it was.
pub(super) fn mint_again(
    app: &App,
    tenant: &TenantId,
    (known, minted): (&TenantEntry, String),
    holder: &Holder,
    wanted: &Wanted,
    terms: &Terms<'_>,
) -> Result<String, Refusal> {
    let catalogue = app.authority.catalogue();
    let entry = catalogue.tenant(tenant.as_ref()).ok_or_else(nothing_left)?;
    let same = Arc::ptr_eq(&known.policies, &entry.policies)
        && Arc::ptr_eq(&known.groupings, &entry.groupings)
        && known.revocations == entry.revocations
        && known.current_key == entry.current_key;
    match same {
        true => Ok(minted),
        false => mint_for(app, (tenant, entry), holder, wanted, terms),
    }
}

/// Gives a token its id and its time, and signs it. What was revoked until now does not cover it: it is dated after that,
/// within what verifiers allow clocks to differ.
pub(super) fn sign(app: &App, entry: &TenantEntry, mut claims: Claims) -> Result<String, Refusal> {
    let key = app
        .authority
        .signing_key(&claims.tenant)
        .ok_or_else(nothing_left)?;
    claims.token_id = Some(random_id().map_err(|error| {
        tracing::error!(%error, "no token can be minted");
        Refusal::internal()
    })?);
    let good_from = concerning(entry, &claims).good_from(&claims);
    let ahead_ms = good_from.0.saturating_sub(claims.issued_at_ms.0);
    if ahead_ms > 0 {
        if ahead_ms > LEEWAY_SECONDS * 1000 || good_from.0 / 1000 >= claims.expires_at {
            // Another instance's clock is ahead. That says nothing of who asks, so it must not end his session.
            let message = format!("revoked; tokens are issued again in {ahead_ms} ms");
            return Err(Refusal::unavailable(message));
        }
        claims.issued_at_ms = good_from;
    }
    let token = mint(&key, &claims).map_err(|failed| match failed {
        MintFailed::TooLarge { .. } => Refusal::invalid(failed.to_string()),
        MintFailed::LifeTooLong { .. } | MintFailed::Signing => {
            tracing::error!(error = %failed, "a token could not be minted");
            Refusal::internal()
        }
    })?;
    app.stats.token_minted();
    Ok(token)
}
