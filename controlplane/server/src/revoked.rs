//! Which revocations of a tenant can concern a token.
//!
//! A tenant may have very many, so they are looked up for the token in hand and not walked.

use felix_auth::{ActorToken, Claims, Principal, Revocation, Revocations};
use felix_meta::{RevocationRecord, RevokedKind, TenantEntry};

/// What of a token a revocation can name.
pub(crate) trait Facets {
    /// Kinds and ids, issuers left out: a token has only their digest.
    fn names(&self) -> Vec<(RevokedKind, &str)>;
    /// Whether some provider vouched, for whom it speaks or for who acts.
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
            self.actor_token.as_deref(),
        )
    }

    fn was_vouched_for(&self) -> bool {
        let actor = self.actor_token.as_deref();
        self.idp.is_some() || actor.is_some_and(|actor| actor.idp.is_some())
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
            self.actor_token.as_ref(),
        )
    }

    fn was_vouched_for(&self) -> bool {
        let actor = self.actor_token.as_ref();
        self.idp.is_some() || actor.is_some_and(|actor| actor.idp.is_some())
    }
}

fn names<'a, const N: usize>(
    subject: &'a str,
    optional: [(RevokedKind, Option<&'a str>); N],
    roles: impl Iterator<Item = &'a str>,
    actor: Option<&'a ActorToken>,
) -> Vec<(RevokedKind, &'a str)> {
    let of_actor = actor.map(|actor| {
        [
            (RevokedKind::Session, actor.session.as_deref()),
            (RevokedKind::Token, actor.token_id.as_deref()),
        ]
    });
    let optional = optional
        .into_iter()
        .chain(of_actor.into_iter().flatten())
        .filter_map(|(kind, id)| Some((kind, id?)));
    let roles_of_actor = actor.into_iter().flat_map(|actor| actor.roles.iter());
    let roles = roles.chain(roles_of_actor.map(|role| &**role));
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
        kind: record.kind,
        id: &record.id,
        not_before_ms: record.not_before_ms,
    }
}
