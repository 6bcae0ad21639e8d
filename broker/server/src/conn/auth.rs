//! Who opens a stream.

use std::sync::Arc;

use felix_auth::{Audience, TokenRefused, claimed_key, verify};
use felix_model::TenantId;
use felix_wire::error::{Code, Failure};
use felix_wire::message::Auth;
use sha2::{Digest, Sha256};

use super::standing::{Holder, Over, Standing};
use super::{Conn, certificate};
use crate::quotas::TenantUse;
use crate::shards::cell::now;

/// Judges the token of a stream.
///
/// # Errors
/// `unauthenticated` with what is wrong with the token, `revoked` when it is good and does not count any more, or
/// `draining` while the broker shuts down. What is said of a tenant that does not exist is what is said of one whose keys
/// did not sign the token.
pub(crate) async fn authenticate(
    conn: &Arc<Conn>,
    auth: &Auth,
) -> Result<(Arc<Standing>, Arc<TenantUse>), Failure> {
    if conn.shared.draining() {
        return Err(Failure::new(Code::Draining, "the broker is shutting down"));
    }
    let digest = token_digest(&auth.tenant_id, &auth.token);
    if let Some(standing) = conn.remembered(&digest) {
        match standing.over() {
            None => {
                let used = admit(conn, &standing.holder())?;
                return Ok((standing, used));
            }
            Some(over @ Over::Revoked(_)) => return Err(over.failure()),
            Some(Over::Expired) => conn.forget(&digest),
        }
    }
    let holder = judge(conn, digest, &auth.tenant_id, &auth.token).await?;
    let used = admit(conn, &holder)?;
    let standing = conn
        .shared
        .standings
        .begin(Arc::downgrade(conn), holder, now());
    // Only from here on does it end with a change of the catalogue; whatever changed before is looked at here.
    if let Some(revoked) = conn.shared.names.revoked(&standing.holder()) {
        conn.shared.revoke(&standing, revoked);
        return Err(Over::Revoked(revoked).failure());
    }
    conn.remember(digest, &standing);
    Ok((standing, used))
}

/// Counts the connection for whoever speaks on it.
fn admit(conn: &Conn, holder: &Holder) -> Result<Arc<TenantUse>, Failure> {
    let admitted = conn.admit(&holder.principal);
    admitted.map_err(|exceeded| conn.shared.exceeded(exceeded))
}

/// Judges a token that is presented on a connection.
///
/// # Errors
/// As for [`authenticate`].
pub(super) async fn judge(
    conn: &Conn,
    digest: [u8; 32],
    tenant: &str,
    token: &str,
) -> Result<Holder, Failure> {
    let refused = |refused: &TokenRefused| {
        Failure::new(Code::Unauthenticated, refused.to_string()).with_reason(refused.code())
    };
    let Ok(tenant) = tenant.parse::<TenantId>() else {
        return Err(refused(&TokenRefused::UnknownKey));
    };
    let judge = || {
        let keys = conn.shared.names.keys(&tenant);
        verify(token, &tenant, Audience::Broker, &keys, now())
    };
    let judged = match judge() {
        // The tenant or its key may be newer than the catalogue held here.
        Err(TokenRefused::UnknownKey) if conn.shared.names.catch_up().await => judge(),
        judged => judged,
    };
    let principal = judged.map_err(|error| refused(&error))?;
    let key = claimed_key(token).map_err(|error| refused(&error))?;
    let principal = conn.shared.principals.share(digest, principal);
    if principal.loopback_only && !conn.remote.ip().to_canonical().is_loopback() {
        return Err(Failure::new(
            Code::Unauthenticated,
            "this token is for development and is accepted from this host only",
        )
        .with_reason("token_loopback_only"));
    }
    certificate::check(conn.certificate.as_ref(), &principal)?;
    Ok(Holder {
        principal,
        key: key.into(),
    })
}

/// What a token is remembered by, so that its text is not kept.
pub(super) fn token_digest(tenant: &str, token: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((tenant.len() as u64).to_be_bytes());
    hash.update(tenant);
    hash.update(token);
    hash.finalize().into()
}
