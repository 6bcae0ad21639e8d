//! A fresh token in place of one that runs out: the `reauth` extension.

use felix_auth::Principal;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Refused, Renew, Renewed};

use super::auth;
use super::stream::StreamState;
use crate::shards::cell::now;

/// Takes the next token for an identity, and answers.
pub(super) async fn renew(state: &StreamState, correlation: u64, ask: Renew) {
    let answer = match take(state, ask).await {
        Ok(renewed) => {
            state.conn.shared.metrics.renewals.increment(1);
            renewed.encode(correlation)
        }
        Err(failure) => {
            state.conn.shared.metrics.auth_refused.increment(1);
            Refused::from(failure).encode(correlation)
        }
    };
    state.answers.push(answer);
}

async fn take(state: &StreamState, ask: Renew) -> Result<Renewed, Failure> {
    let conn = &state.conn;
    let gone = || {
        Failure::new(
            Code::NotFound,
            "nothing of this connection is open under this identity",
        )
        .with_reason("identity")
    };
    let standing = conn.standing(ask.identity).ok_or_else(gone)?;
    let before = standing.holder().principal;
    // Of whom it is, only its own principal is told.
    if !is_same(&before, &state.principal) {
        return Err(gone());
    }
    let tenant = before.tenant.as_str();
    let digest = auth::token_digest(tenant, &ask.token);
    let holder = auth::judge(conn, digest, tenant, &ask.token).await?;
    if !is_same(&before, &holder.principal) {
        return Err(Failure::new(
            Code::Unauthenticated,
            "the token is of another principal than what it is to keep open",
        )
        .with_reason("token_other_principal"));
    }
    let registry = &conn.shared.standings;
    registry
        .renew(&standing, holder, now())
        .map_err(|over| over.failure())?;
    conn.replace(digest, &standing);
    // What was revoked while the token was judged has been missed by whoever looked for it.
    if let Some(revoked) = conn.shared.names.revoked(&standing.holder()) {
        conn.shared.revoke(&standing, revoked);
        return Err(super::standing::Over::Revoked(revoked).failure());
    }
    Ok(Renewed {
        left_ms: standing.left_ms(now()),
    })
}

/// Whether two tokens speak for the same principal through the same actor.
pub(super) fn is_same(one: &Principal, other: &Principal) -> bool {
    one.tenant == other.tenant && one.subject == other.subject && one.actor == other.actor
}
