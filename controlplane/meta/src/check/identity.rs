//! The rules for bodies about identity, revocations and quotas.

use super::{Invalid, range, text};
use crate::identity::{
    IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, RevocationRecord, ServiceKey,
    SessionRecord,
};
use crate::limits::{
    AUDIENCES_PER_ISSUER_MAX, ID_BYTES_MAX, REASON_BYTES_MAX, SERVICE_ACCOUNT_NAME_BYTES_MAX,
    SESSION_BYTES_MAX, SESSION_ITEMS_MAX, TEXT_BYTES_MAX,
};

pub(crate) fn issuer(issuer: &IssuerRecord) -> Result<(), Invalid> {
    text("issuer", &issuer.issuer, TEXT_BYTES_MAX)?;
    if issuer.issuer.contains(['#', '|']) {
        // A group is written `group:{issuer}#{name}`, and a principal is the hash of `{issuer}|{subject}`. Both must be
        // readable in one way only, or one issuer's people could be taken for another's.
        return Err(Invalid::Contradiction(
            "`issuer` must not contain `#` or `|`",
        ));
    }
    let audiences = issuer.audiences.len() as u64;
    range("audiences", audiences, 1, AUDIENCES_PER_ISSUER_MAX as u64)?;
    for audience in &issuer.audiences {
        text("audiences", audience, TEXT_BYTES_MAX)?;
    }
    for (field, url) in [
        ("discovery_url", &issuer.discovery_url),
        ("jwks_url", &issuer.jwks_url),
    ] {
        url.as_deref()
            .map_or(Ok(()), |url| text(field, url, TEXT_BYTES_MAX))?;
    }
    let claims = &issuer.claim_mappings;
    text("subject_claim", &claims.subject_claim, TEXT_BYTES_MAX)?;
    text("groups_claim", &claims.groups_claim, TEXT_BYTES_MAX)
}

pub(crate) fn principal_record(principal: &PrincipalRecord) -> Result<(), Invalid> {
    text("principal_id", &principal.principal_id, TEXT_BYTES_MAX)?;
    text("issuer", &principal.issuer, TEXT_BYTES_MAX)?;
    text("subject", &principal.subject, TEXT_BYTES_MAX)
}

/// A name like that of a stream: it stands in paths and in `sa:{name}`.
pub(crate) fn account_name(name: &str) -> Result<(), Invalid> {
    text("name", name, SERVICE_ACCOUNT_NAME_BYTES_MAX)?;
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if first && rest {
        return Ok(());
    }
    Err(Invalid::Contradiction(
        "`name` must be ASCII letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
    ))
}

pub(crate) fn service_key(key: &ServiceKey) -> Result<(), Invalid> {
    id("key_id", &key.key_id)?;
    digest("secret_sha256", &key.secret_sha256)?;
    if key
        .expires_at_ms
        .is_some_and(|expires| expires <= key.created_at_ms)
    {
        return Err(Invalid::Contradiction(
            "`expires_at_ms` must be after `created_at_ms`",
        ));
    }
    Ok(())
}

pub(crate) fn session(session: &SessionRecord) -> Result<(), Invalid> {
    id("session_id", &session.session_id)?;
    text("principal_id", &session.principal_id, TEXT_BYTES_MAX)?;
    text("audience", &session.audience, TEXT_BYTES_MAX)?;
    digest("secret_sha256", &session.secret_sha256)?;
    let ask = &session.ask;
    let pairs = ask.permissions.as_deref().unwrap_or_default();
    let mut bytes = 0;
    for (field, list) in [
        ("groups", session.groups.as_slice()),
        ("requested", &ask.requested),
        ("resources", &ask.resources),
        ("permissions", pairs),
    ] {
        range(field, list.len() as u64, 0, SESSION_ITEMS_MAX as u64)?;
        bytes += list.iter().map(String::len).sum::<usize>();
    }
    if bytes > SESSION_BYTES_MAX {
        return Err(Invalid::TooLong {
            field: "session",
            found: bytes,
            limit: SESSION_BYTES_MAX,
        });
    }
    if session.expires_at_ms <= session.created_at_ms {
        return Err(Invalid::Contradiction(
            "`expires_at_ms` must be after `created_at_ms`",
        ));
    }
    Ok(())
}

pub(crate) fn revocation(revocation: &RevocationRecord) -> Result<(), Invalid> {
    text("id", &revocation.id, TEXT_BYTES_MAX)?;
    reason(&revocation.reason)
}

/// Why somebody did something; may be left empty.
pub(crate) fn reason(reason: &str) -> Result<(), Invalid> {
    if reason.is_empty() {
        return Ok(());
    }
    text("reason", reason, REASON_BYTES_MAX)
}

pub(crate) fn quota(scope: &QuotaScope, limits: &QuotaLimits) -> Result<(), Invalid> {
    if let QuotaScope::Principal(id) = scope {
        text("principal", id, TEXT_BYTES_MAX)?;
    }
    let meaningless: &[&str] = match scope {
        QuotaScope::Tenant => &[],
        QuotaScope::Namespace(_) => &["connections"],
        QuotaScope::Principal(_) => &["cache_bytes", "stream_retention_bytes"],
    };
    for (field, bound) in limits.named() {
        if bound == Some(0) {
            return Err(Invalid::ZeroBound { field });
        }
        if bound.is_some() && meaningless.contains(&field) {
            return Err(Invalid::Contradiction(
                "a namespace bounds no connections, and a principal no cache or stream bytes",
            ));
        }
    }
    Ok(())
}

/// A lower-case hex SHA-256.
pub(crate) fn digest(field: &'static str, digest: &str) -> Result<(), Invalid> {
    let hex = digest
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digest.len() == 64 && hex {
        return Ok(());
    }
    Err(Invalid::NoDigest { field })
}

/// An id that we made: letters and digits, so that it can stand in a token beside other parts.
fn id(field: &'static str, id: &str) -> Result<(), Invalid> {
    text(field, id, ID_BYTES_MAX)?;
    if id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(Invalid::NoId { field })
}
