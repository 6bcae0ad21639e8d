//! Whom a credential speaks for.

use std::net::SocketAddr;
use std::sync::Arc;

use felix_auth::{Audience, Principal, TOKEN_BYTES_MAX, TokenRefused, claimed_tenant, verify};
use felix_model::TenantId;

use super::{Credential, LoginRefused};
use crate::listener::{Shared, now};
use crate::who::{Tokens, Who};

/// Judges a credential: a Felix token is verified here, anything else is exchanged for one at the control plane.
///
/// # Errors
/// [`LoginRefused`] in the same words whether or not the tenant exists.
pub(super) async fn judge(
    shared: &Shared,
    peer: SocketAddr,
    credential: Credential,
) -> Result<Arc<Who>, LoginRefused> {
    let Credential { tenant, secret } = credential;
    let tokens = match felix_token(&secret, tenant.as_deref()) {
        Some(tenant) => (
            tenant,
            Tokens {
                broker: secret.into(),
                control: None,
            },
        ),
        None => return Err(unknown()),
    };
    let (tenant, tokens) = tokens;
    let principal = principal(shared, &tenant, &tokens.broker).await?;
    if principal.loopback_only && !peer.ip().to_canonical().is_loopback() {
        return Err(LoginRefused(
            "this token is for development and is accepted from this host only".into(),
        ));
    }
    let who = shared.logins.share(principal, tokens, &shared.upstream);
    if who.stands(&shared.names, now()) {
        Ok(who)
    } else {
        Err(LoginRefused("this token was revoked".into()))
    }
}

/// The tenant of what looks like a Felix token; the one that was named with it comes first, so that a token of another
/// tenant is refused as such.
fn felix_token(secret: &str, named: Option<&str>) -> Option<TenantId> {
    if secret.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let claimed = claimed_tenant(secret).ok()?;
    named.map_or(Some(claimed), |named| named.parse().ok())
}

async fn principal(
    shared: &Shared,
    tenant: &TenantId,
    token: &str,
) -> Result<Principal, LoginRefused> {
    let judge = || {
        let keys = shared.names.keys(tenant);
        verify(token, tenant, Audience::Broker, &keys, now())
    };
    let judged = match judge() {
        // The tenant or its key may be newer than the catalogue held here.
        Err(TokenRefused::UnknownKey) if shared.names.catch_up().await => judge(),
        judged => judged,
    };
    judged.map_err(|refused| LoginRefused(refused.to_string()))
}

fn unknown() -> LoginRefused {
    LoginRefused("no key of the tenant verifies this token".into())
}
