//! What was taken back before it ran out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use felix_model::TimeMs;

use crate::principal::Principal;
use crate::token::{Claims, issuer_digest};

/// What a revocation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RevokedKind {
    /// Every token of a principal, and every token he acts with.
    Principal,
    /// Every token of a session.
    Session,
    /// One token, by its id.
    Token,
    /// Every token to which a role gave something.
    Role,
    /// Every token an identity provider vouched for. The id is the issuer itself.
    Issuer,
    /// Every token of the tenant.
    Tenant,
}

impl RevokedKind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 6] = [
        Self::Principal,
        Self::Session,
        Self::Token,
        Self::Role,
        Self::Issuer,
        Self::Tenant,
    ];

    /// The spelling in records and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Session => "session",
            Self::Token => "token",
            Self::Role => "role",
            Self::Issuer => "issuer",
            Self::Tenant => "tenant",
        }
    }
}

impl fmt::Display for RevokedKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A kind of revocation that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of revocation `{0}`")]
pub struct UnknownRevokedKind(String);

impl FromStr for RevokedKind {
    type Err = UnknownRevokedKind;

    fn from_str(text: &str) -> Result<Self, UnknownRevokedKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownRevokedKind(text.chars().take(64).collect()))
    }
}

/// One revocation, borrowed from wherever it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation<'a> {
    /// What it is about.
    pub kind: RevokedKind,
    /// Which of that kind.
    pub id: &'a str,
    /// Tokens minted at this second or before are refused; unix ms.
    pub not_before_ms: TimeMs,
}

/// Why a principal's token is worth nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} behind this token was revoked")]
pub struct RevokedBy {
    /// What was revoked.
    pub kind: RevokedKind,
    /// Tokens minted later than this are not covered; unix ms.
    pub not_before_ms: TimeMs,
}

/// The revocations of one tenant, compiled.
///
/// A token says in whole seconds when it was minted, so a revocation covers every token of its second. Tokens minted
/// afterwards are good: [`Revocations::good_from`] says from which second on.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    /// For each kind: the latest instant by id, in seconds.
    principals: BTreeMap<Box<str>, u64>,
    sessions: BTreeMap<Box<str>, u64>,
    tokens: BTreeMap<Box<str>, u64>,
    roles: BTreeMap<Box<str>, u64>,
    /// By the digest that tokens carry.
    issuers: BTreeMap<Box<str>, u64>,
    tenant: Option<u64>,
}

/// What of a token a revocation can be about.
struct Facets<'a> {
    subject: &'a str,
    actor: Option<&'a str>,
    session: Option<&'a str>,
    token_id: Option<&'a str>,
    idp: Option<&'a str>,
}

impl Revocations {
    /// Compiles the revocations of one tenant. Of two about the same thing the later counts.
    #[must_use]
    pub fn new<'a>(records: impl IntoIterator<Item = Revocation<'a>>) -> Self {
        let mut compiled = Self::default();
        for record in records {
            let seconds = record.not_before_ms.0 / 1000;
            let (map, id): (_, Box<str>) = match record.kind {
                RevokedKind::Principal => (&mut compiled.principals, record.id.into()),
                RevokedKind::Session => (&mut compiled.sessions, record.id.into()),
                RevokedKind::Token => (&mut compiled.tokens, record.id.into()),
                RevokedKind::Role => (&mut compiled.roles, record.id.into()),
                RevokedKind::Issuer => (&mut compiled.issuers, issuer_digest(record.id).into()),
                RevokedKind::Tenant => {
                    compiled.tenant = compiled.tenant.max(Some(seconds));
                    continue;
                }
            };
            let latest = map.entry(id).or_default();
            *latest = seconds.max(*latest);
        }
        compiled
    }

    /// Whether nothing was revoked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenant.is_none()
            && [
                &self.principals,
                &self.sessions,
                &self.tokens,
                &self.roles,
                &self.issuers,
            ]
            .into_iter()
            .all(BTreeMap::is_empty)
    }

    /// What covers the token behind a principal, if anything does. Allocates nothing.
    #[must_use]
    pub fn covers(&self, principal: &Principal) -> Option<RevokedBy> {
        let facets = Facets {
            subject: &principal.subject,
            actor: principal.actor.as_deref(),
            session: principal.session.as_deref(),
            token_id: principal.token_id.as_deref(),
            idp: principal.idp.as_deref(),
        };
        let issued_at = principal.issued_at_ms.0 / 1000;
        let roles = principal.roles.iter().map(|role| &**role);
        self.concerning(&facets, roles)
            .find(|(_, not_before)| issued_at <= *not_before)
            .map(|(kind, not_before)| RevokedBy {
                kind,
                not_before_ms: TimeMs(not_before.saturating_mul(1000)),
            })
    }

    /// The first second, unix time, in which a token with these claims is not covered; 0 when nothing concerns it.
    #[must_use]
    pub fn good_from(&self, claims: &Claims) -> u64 {
        let facets = Facets {
            subject: &claims.subject,
            actor: claims.actor.as_deref(),
            session: claims.session.as_deref(),
            token_id: claims.token_id.as_deref(),
            idp: claims.idp.as_deref(),
        };
        let roles = claims.roles.iter().map(String::as_str);
        self.concerning(&facets, roles)
            .map(|(_, not_before)| not_before.saturating_add(1))
            .max()
            .unwrap_or(0)
    }

    fn concerning<'a>(
        &'a self,
        facets: &Facets<'a>,
        roles: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = (RevokedKind, u64)> {
        let by = |map: &'a BTreeMap<Box<str>, u64>, kind, id: Option<&str>| {
            id.and_then(|id| map.get(id)).map(|at| (kind, *at))
        };
        let single = [
            self.tenant.map(|at| (RevokedKind::Tenant, at)),
            by(&self.issuers, RevokedKind::Issuer, facets.idp),
            by(
                &self.principals,
                RevokedKind::Principal,
                Some(facets.subject),
            ),
            by(&self.principals, RevokedKind::Principal, facets.actor),
            by(&self.sessions, RevokedKind::Session, facets.session),
            by(&self.tokens, RevokedKind::Token, facets.token_id),
        ];
        let of_roles = roles.filter_map(move |role| by(&self.roles, RevokedKind::Role, Some(role)));
        single.into_iter().flatten().chain(of_roles)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::matcher::Permissions;
    use crate::token::Audience;

    const ISSUER: &str = "https://login.example.com";
    const MINTED: u64 = 1_800_000_000;

    #[test]
    fn a_revocation_covers_what_it_names_and_nothing_else() {
        for (kind, own, other) in [
            (RevokedKind::Principal, "p:alice", "p:bob"),
            (RevokedKind::Principal, "p:gateway", "p:other-gateway"),
            (RevokedKind::Session, "s1", "s2"),
            (RevokedKind::Token, "j1", "j2"),
            (RevokedKind::Role, "role:writer", "role:admin"),
            (RevokedKind::Issuer, ISSUER, "https://login.example.org"),
        ] {
            assert_eq!(
                covered(kind, own, MINTED * 1000),
                Some(kind),
                "{kind} {own}"
            );
            assert_eq!(covered(kind, other, MINTED * 1000), None, "{kind} {other}");
        }
        let tenant = RevokedKind::Tenant;
        assert_eq!(covered(tenant, "t", MINTED * 1000), Some(tenant));
    }

    #[test]
    fn tokens_of_the_revoked_second_are_covered_and_later_ones_are_not() {
        let kind = RevokedKind::Principal;
        assert_eq!(covered(kind, "p:alice", MINTED * 1000 - 1), None);
        assert_eq!(covered(kind, "p:alice", MINTED * 1000), Some(kind));
        assert_eq!(covered(kind, "p:alice", MINTED * 1000 + 999), Some(kind));
    }

    #[test]
    fn the_later_of_two_revocations_counts_in_either_order() {
        let early = record(RevokedKind::Session, "s1", (MINTED - 10) * 1000);
        let late = record(RevokedKind::Session, "s1", MINTED * 1000);
        for records in [[early, late], [late, early]] {
            assert!(Revocations::new(records).covers(&principal()).is_some());
        }
    }

    #[test]
    fn a_token_minted_from_the_second_that_is_told_is_good() {
        let revoked = Revocations::new([
            record(RevokedKind::Principal, "p:alice", MINTED * 1000 + 300),
            record(RevokedKind::Role, "role:writer", (MINTED + 2) * 1000),
        ]);
        let mut claims = Claims::new(
            "t".parse().unwrap(),
            "p:alice".into(),
            Audience::Broker,
            (MINTED, 900),
            vec![],
        );
        assert_eq!(revoked.good_from(&claims), MINTED + 1);
        claims.roles.push("role:writer".into());
        assert_eq!(revoked.good_from(&claims), MINTED + 3);
        let mut later = principal();
        later.issued_at_ms = TimeMs((MINTED + 3) * 1000);
        assert_eq!(revoked.covers(&later), None);
        assert!(Revocations::default().is_empty());
        assert!(!revoked.is_empty());
    }

    #[test]
    fn every_kind_reads_back_from_its_own_name() {
        for kind in RevokedKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("planet".parse::<RevokedKind>().is_err());
    }

    fn covered(kind: RevokedKind, id: &str, not_before_ms: u64) -> Option<RevokedKind> {
        Revocations::new([record(kind, id, not_before_ms)])
            .covers(&principal())
            .map(|by| by.kind)
    }

    fn record(kind: RevokedKind, id: &str, not_before_ms: u64) -> Revocation<'_> {
        Revocation {
            kind,
            id,
            not_before_ms: TimeMs(not_before_ms),
        }
    }

    fn principal() -> Principal {
        Principal {
            tenant: "t".parse().unwrap(),
            subject: "p:alice".into(),
            actor: Some("p:gateway".into()),
            may_act: None,
            session: Some("s1".into()),
            token_id: Some("j1".into()),
            roles: Arc::new(["role:reader".into(), "role:writer".into()]),
            idp: Some(issuer_digest(ISSUER).into()),
            issued_at_ms: TimeMs(MINTED * 1000),
            expires_at_ms: TimeMs((MINTED + 900) * 1000),
            loopback_only: false,
            permissions: Arc::new(Permissions::default()),
        }
    }
}
