//! Which revocations of a tenant can concern a token.
//!
//! A tenant may have very many, so they are looked up for the token in hand and not walked.

use felix_auth::{Claims, Principal, Revocation, Revocations};
use felix_meta::{RevocationRecord, RevokedKind, TenantEntry};

/// What of a token a revocation can name.
pub(crate) trait Facets {
    /// Kinds and ids, issuers left out: a token has only their digest.
    fn names(&self) -> Vec<(RevokedKind, &str)>;
    /// Whether some provider vouched.
    fn was_vouched_for(&self) -> bool;
}

impl Facets for Principal {
    fn names(&self) -> Vec<(RevokedKind, &str)> {
        let roles = self.roles.iter().map(|role| &**role);
        names(
            &self.subject,
            [
                (RevokedKind::Principal, self.actor.as_deref()),
                (RevokedKind::Session, self.session.as_deref()),
                (RevokedKind::Token, self.token_id.as_deref()),
                (RevokedKind::Tenant, Some(self.tenant.as_ref())),
            ],
            roles,
        )
    }

    fn was_vouched_for(&self) -> bool {
        self.idp.is_some()
    }
}

impl Facets for Claims {
    fn names(&self) -> Vec<(RevokedKind, &str)> {
        let roles = self.roles.iter().map(String::as_str);
        names(
            &self.subject,
            [
                (RevokedKind::Principal, self.actor.as_deref()),
                (RevokedKind::Session, self.session.as_deref()),
                (RevokedKind::Token, self.token_id.as_deref()),
                (RevokedKind::Tenant, Some(self.tenant.as_ref())),
            ],
            roles,
        )
    }

    fn was_vouched_for(&self) -> bool {
        self.idp.is_some()
    }
}

fn names<'a, const N: usize>(
    subject: &'a str,
    optional: [(RevokedKind, Option<&'a str>); N],
    roles: impl Iterator<Item = &'a str>,
) -> Vec<(RevokedKind, &'a str)> {
    let optional = optional
        .into_iter()
        .filter_map(|(kind, id)| Some((kind, id?)));
    [(RevokedKind::Principal, subject)]
        .into_iter()
        .chain(optional)
        .chain(roles.map(|role| (RevokedKind::Role, role)))
        .collect()
}

/// The revocations of a tenant that can concern this token.
pub(crate) fn concerning(entry: &TenantEntry, token: &impl Facets) -> Revocations {
    if entry.revocations.is_empty() {
        return Revocations::default();
    }
    let named = token.names();
    let named = named
        .iter()
        .filter_map(|(kind, id)| entry.revocations.get(*kind, id));
    // Providers are removed seldom, so there are few of these.
    let issuers = entry
        .revocations
        .of_kind(RevokedKind::Issuer)
        .filter(|_| token.was_vouched_for());
    Revocations::new(named.chain(issuers).map(|record| revocation(record)))
}

fn revocation(record: &RevocationRecord) -> Revocation<'_> {
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
