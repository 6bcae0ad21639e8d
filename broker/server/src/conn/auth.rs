//! Who opens a stream.

use std::sync::Arc;

use felix_auth::{Audience, Principal, TokenRefused, verify};
use felix_model::TenantId;
use felix_wire::error::{Code, Failure};
use felix_wire::message::Auth;
use sha2::{Digest, Sha256};

use super::Conn;
use crate::shards::cell::now;

/// Judges the token of a stream.
///
/// # Errors
/// `unauthenticated` with what is wrong with the token, or `draining` while the broker shuts down. What is said of a
/// tenant that does not exist is what is said of one whose keys did not sign the token.
pub(crate) async fn authenticate(conn: &Conn, auth: &Auth) -> Result<Arc<Principal>, Failure> {
    if conn.shared.draining() {
        return Err(Failure::new(Code::Draining, "the broker is shutting down"));
    }
    let digest = token_digest(auth);
    if let Some(principal) = conn.remembered(&digest) {
        if !principal.is_expired(now()) {
            return Ok(principal);
        }
        conn.forget(&digest);
    }
    let refused = |refused: &TokenRefused| {
        Failure::new(Code::Unauthenticated, refused.to_string()).with_reason(refused.code())
    };
    let Ok(tenant) = auth.tenant_id.parse::<TenantId>() else {
        return Err(refused(&TokenRefused::UnknownKey));
    };
    let judge = || {
        let keys = conn.shared.names.keys(&tenant);
        verify(&auth.token, &tenant, Audience::Broker, &keys, now())
    };
    let judged = match judge() {
        // The tenant or its key may be newer than the catalogue held here.
        Err(TokenRefused::UnknownKey) if conn.shared.names.catch_up().await => judge(),
        judged => judged,
    };
    let principal = judged.map_err(|error| refused(&error))?;
    let principal = conn.shared.principals.share(digest, principal);
    if principal.loopback_only && !conn.remote.ip().to_canonical().is_loopback() {
        return Err(Failure::new(
            Code::Unauthenticated,
            "this token is for development and is accepted from this host only",
        )
        .with_reason("token_loopback_only"));
    }
    conn.remember(digest, &principal);
    Ok(principal)
}

/// What a token is remembered by, so that its text is not kept.
fn token_digest(auth: &Auth) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((auth.tenant_id.len() as u64).to_be_bytes());
    hash.update(&auth.tenant_id);
    hash.update(&auth.token);
    hash.finalize().into()
}
