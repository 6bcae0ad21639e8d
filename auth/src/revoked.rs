//! What was taken back before it ran out.

use std::collections::BTreeMap;

use felix_model::{RevokedKind, TimeMs};

use crate::principal::{ActorToken, Principal};
use crate::token::{Claims, issuer_digest};

/// One revocation, borrowed from wherever it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation<'a> {
    /// What it is about.
    pub kind: RevokedKind,
    /// Which of that kind.
    pub id: &'a str,
    /// Tokens minted at this moment or before are refused; unix ms.
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
/// A token says to the millisecond when it was minted. One that says only the second is judged as if it had been minted
/// at its start, so a revocation anywhere in that second covers it. Tokens minted afterwards are good:
/// [`Revocations::good_from`] says from when on.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    /// For each kind: the latest instant by id.
    principals: ById,
    sessions: ById,
    tokens: ById,
    roles: ById,
    /// By the digest that tokens carry.
    issuers: ById,
    tenant: Option<TimeMs>,
}

type ById = BTreeMap<Box<str>, TimeMs>;

/// What of a token a revocation can be about.
struct Facets<'a> {
    subject: &'a str,
    actor: Option<&'a str>,
    session: Option<&'a str>,
    token_id: Option<&'a str>,
    idp: Option<&'a str>,
    actor_token: Option<&'a ActorToken>,
}

impl Revocations {
    /// Compiles the revocations of one tenant. Of two about the same thing the later counts.
    #[must_use]
    pub fn new<'a>(records: impl IntoIterator<Item = Revocation<'a>>) -> Self {
        let mut compiled = Self::default();
        for record in records {
            let (map, id): (_, Box<str>) = match record.kind {
                RevokedKind::Principal => (&mut compiled.principals, record.id.into()),
                RevokedKind::Session => (&mut compiled.sessions, record.id.into()),
                RevokedKind::Token => (&mut compiled.tokens, record.id.into()),
                RevokedKind::Role => (&mut compiled.roles, record.id.into()),
                RevokedKind::Issuer => (&mut compiled.issuers, issuer_digest(record.id).into()),
                RevokedKind::Tenant => {
                    compiled.tenant = compiled.tenant.max(Some(record.not_before_ms));
                    continue;
                }
            };
            let latest = map.entry(id).or_default();
            *latest = record.not_before_ms.max(*latest);
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
            actor_token: principal.actor_token.as_deref(),
        };
        let roles = principal.roles.iter().map(|role| &**role);
        self.concerning(&facets, roles)
            .find(|(_, not_before)| principal.issued_at_ms <= *not_before)
            .map(|(kind, not_before_ms)| RevokedBy {
                kind,
                not_before_ms,
            })
    }

    /// The first moment at which a token with these claims is not covered; 0 when nothing concerns it.
    #[must_use]
    pub fn good_from(&self, claims: &Claims) -> TimeMs {
        let facets = Facets {
            subject: &claims.subject,
            actor: claims.actor.as_deref(),
            session: claims.session.as_deref(),
            token_id: claims.token_id.as_deref(),
            idp: claims.idp.as_deref(),
            actor_token: claims.actor_token.as_ref(),
        };
        let roles = claims.roles.iter().map(String::as_str);
        self.concerning(&facets, roles)
            .map(|(_, not_before)| TimeMs(not_before.0.saturating_add(1)))
            .max()
            .unwrap_or_default()
    }

    fn concerning<'a>(
        &'a self,
        facets: &Facets<'a>,
        roles: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = (RevokedKind, TimeMs)> {
        let by = |map: &'a ById, kind, id: Option<&str>| {
            id.and_then(|id| map.get(id)).map(|at| (kind, *at))
        };
        let with = facets.actor_token;
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
            // What an actor's own token rests on, what he made with it rests on too.
            by(
                &self.issuers,
                RevokedKind::Issuer,
                with.and_then(|with| with.idp.as_deref()),
            ),
            by(
                &self.sessions,
                RevokedKind::Session,
                with.and_then(|with| with.session.as_deref()),
            ),
            by(
                &self.tokens,
                RevokedKind::Token,
                with.and_then(|with| with.token_id.as_deref()),
            ),
        ];
        let actors = with.into_iter().flat_map(|with| with.roles.iter());
        let of_roles = roles
            .chain(actors.map(|role| &**role))
            .filter_map(move |role| by(&self.roles, RevokedKind::Role, Some(role)));
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
    fn tokens_are_covered_to_the_millisecond_and_later_ones_are_not() {
        let kind = RevokedKind::Principal;
        assert_eq!(covered(kind, "p:alice", MINTED * 1000 - 1), None);
        assert_eq!(covered(kind, "p:alice", MINTED * 1000), Some(kind));
        assert_eq!(covered(kind, "p:alice", MINTED * 1000 + 999), Some(kind));
    }

    #[test]
    fn a_second_revocation_in_one_second_covers_what_was_minted_after_the_first() {
        let first = record(RevokedKind::Principal, "p:alice", MINTED * 1000 + 300);
        let second = record(RevokedKind::Principal, "p:alice", MINTED * 1000 + 400);
        let mut between = principal();
        let mut claims = Claims::new(
            "t".parse().unwrap(),
            "p:alice".into(),
            Audience::Broker,
            (TimeMs(MINTED * 1000 + 300), 900),
            vec![],
        );
        claims.issued_at_ms = Revocations::new([first]).good_from(&claims);
        between.issued_at_ms = claims.issued_at_ms;
        assert_eq!(Revocations::new([first]).covers(&between), None);
        assert!(Revocations::new([second]).covers(&between).is_some());
    }

    #[test]
    fn what_an_actor_made_with_his_token_goes_with_what_that_rests_on() {
        for (kind, own, other) in [
            (RevokedKind::Principal, "p:gateway", "p:other"),
            (RevokedKind::Session, "gs1", "gs2"),
            (RevokedKind::Token, "gj1", "gj2"),
            (RevokedKind::Role, "role:delegates", "role:others"),
            (
                RevokedKind::Issuer,
                "https://machines.example.com",
                "https://x.example.com",
            ),
        ] {
            let at = MINTED * 1000;
            let by = covered(kind, own, at);
            assert_eq!(by, Some(kind), "{kind} {own}");
            assert_eq!(covered(kind, other, at), None, "{kind} {other}");
        }
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
    fn a_token_minted_from_the_moment_that_is_told_is_good() {
        let revoked = Revocations::new([
            record(RevokedKind::Principal, "p:alice", MINTED * 1000 + 300),
            record(RevokedKind::Role, "role:writer", (MINTED + 2) * 1000),
        ]);
        let mut claims = Claims::new(
            "t".parse().unwrap(),
            "p:alice".into(),
            Audience::Broker,
            (TimeMs(MINTED * 1000), 900),
            vec![],
        );
        assert_eq!(revoked.good_from(&claims), TimeMs(MINTED * 1000 + 301));
        claims.roles.push("role:writer".into());
        assert_eq!(revoked.good_from(&claims), TimeMs((MINTED + 2) * 1000 + 1));
        let mut later = principal();
        later.issued_at_ms = TimeMs((MINTED + 2) * 1000 + 1);
        assert_eq!(revoked.covers(&later), None);
        assert!(Revocations::default().is_empty());
        assert!(!revoked.is_empty());
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
            actor_token: Some(Arc::new(ActorToken {
                session: Some("gs1".into()),
                token_id: Some("gj1".into()),
                roles: vec!["role:delegates".into()],
                idp: Some(issuer_digest("https://machines.example.com").into()),
            })),
            issued_at_ms: TimeMs(MINTED * 1000),
            expires_at_ms: TimeMs((MINTED + 900) * 1000),
            loopback_only: false,
            permissions: Arc::new(Permissions::default()),
        }
    }
}
