//! Whether a token was taken back, looked up in the catalogue.
//!
//! Only what can concern the token at hand is looked at: a tenant may have very many revocations, and its entry changes
//! with every sign-in, so they are not compiled as a whole.

use felix_auth::{Claims, Principal, Revocation, Revocations, RevokedBy};
use felix_meta::{RevocationRecord, RevokedKind, TenantEntry};

/// What covers the token behind a principal, if anything does.
pub(crate) fn covering(entry: &TenantEntry, principal: &Principal) -> Option<RevokedBy> {
    let named = [
        (RevokedKind::Principal, Some(&*principal.subject)),
        (RevokedKind::Principal, principal.actor.as_deref()),
        (RevokedKind::Session, principal.session.as_deref()),
        (RevokedKind::Token, principal.token_id.as_deref()),
        (RevokedKind::Tenant, Some(principal.tenant.as_ref())),
    ];
    let roles = principal.roles.iter().map(|role| &**role);
    concerning(entry, named, roles).covers(principal)
}

/// The first second, unix time, in which a token with these claims is good; 0 when nothing concerns it.
pub(crate) fn good_from(entry: &TenantEntry, claims: &Claims) -> u64 {
    let named = [
        (RevokedKind::Principal, Some(claims.subject.as_str())),
        (RevokedKind::Principal, claims.actor.as_deref()),
        (RevokedKind::Session, claims.session.as_deref()),
        (RevokedKind::Token, claims.token_id.as_deref()),
        (RevokedKind::Tenant, Some(claims.tenant.as_ref())),
    ];
    let roles = claims.roles.iter().map(String::as_str);
    concerning(entry, named, roles).good_from(claims)
}

fn concerning<'a>(
    entry: &'a TenantEntry,
    named: [(RevokedKind, Option<&'a str>); 5],
    roles: impl Iterator<Item = &'a str>,
) -> Revocations {
    let roles = roles.map(|role| (RevokedKind::Role, Some(role)));
    let found = named
        .into_iter()
        .chain(roles)
        .filter_map(|(kind, id)| entry.revocations.get(kind, id?))
        // Tokens carry only the start of an issuer's hash, and there are few issuers.
        .chain(entry.revocations.of(RevokedKind::Issuer))
        .map(|record| read(record));
    Revocations::new(found)
}

/// A record as felix-auth reads it.
fn read(record: &RevocationRecord) -> Revocation<'_> {
    Revocation {
        kind: match record.kind {
            RevokedKind::Principal => felix_auth::RevokedKind::Principal,
            RevokedKind::Session => felix_auth::RevokedKind::Session,
            RevokedKind::Token => felix_auth::RevokedKind::Token,
            RevokedKind::Role => felix_auth::RevokedKind::Role,
            RevokedKind::Issuer => felix_auth::RevokedKind::Issuer,
            RevokedKind::Tenant => felix_auth::RevokedKind::Tenant,
        },
        id: &record.id,
        not_before_ms: record.not_before_ms,
    }
}
