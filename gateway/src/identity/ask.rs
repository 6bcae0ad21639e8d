//! What a session asks for, and what it was given.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::{Audience, NamePattern, Object, Permission, Permissions, Resource};
use felix_meta::http::ExchangeSpec;
use felix_model::TimeMs;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::secret::Secret;

/// What a token shall be good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Exactly these actions on exactly these things, for brokers. Without one of the required there is no session; an
    /// optional one may be missing.
    Exactly {
        required: Vec<Permission>,
        optional: Vec<Permission>,
    },
    /// Whatever the person's roles give him, as the console needs it.
    Everything(Audience),
}

impl Ask {
    /// The body of the exchange. `actor` is the gateway's own token, when it is to act for people.
    pub(crate) fn spec(&self, actor: Option<&Secret>) -> ExchangeSpec {
        let mut spec = ExchangeSpec {
            audience: Some(self.audience().name().to_owned()),
            ..ExchangeSpec::default()
        };
        if let Self::Exactly { required, optional } = self {
            let pairs = required.iter().chain(optional);
            spec.requested = Some(Vec::new());
            spec.permissions = Some(pairs.map(Permission::to_string).collect());
        }
        if let Some(actor) = actor {
            spec.actor_token = Some(felix_meta::http::Hidden(actor.reveal().to_owned()));
            spec.actor_token_type = Some(felix_meta::http::TOKEN_TYPE_JWT.to_owned());
        }
        spec
    }

    pub(crate) const fn audience(&self) -> Audience {
        match self {
            Self::Exactly { .. } => Audience::Broker,
            Self::Everything(audience) => *audience,
        }
    }

    /// The first required thing that these rights do not allow.
    pub(crate) fn lacking(&self, rights: &Permissions) -> Option<&Permission> {
        match self {
            Self::Exactly { required, .. } => required.iter().find(|one| !allows(rights, one)),
            Self::Everything(_) => None,
        }
    }

    /// What tells this ask with this credential from every other.
    pub(crate) fn key(&self, credential: &[u8; 32]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(credential);
        match self {
            Self::Exactly { required, optional } => {
                for (mark, list) in [("must", required), ("may", optional)] {
                    digest.update(mark);
                    for one in list {
                        // No permission contains a line break.
                        digest.update(format!("{one}\n"));
                    }
                }
            }
            Self::Everything(audience) => digest.update(audience.name()),
        }
        digest.finalize().into()
    }
}

/// Whether rights cover what a permission names. Grants are patterns, so this is a question and no comparison of texts.
pub(crate) fn allows(rights: &Permissions, wanted: &Permission) -> bool {
    match &wanted.object {
        Object::Stream {
            tenant,
            namespace: NamePattern::Exact(namespace),
            stream: NamePattern::Exact(stream),
        } => rights.allows(
            wanted.action,
            &Resource::Stream {
                tenant,
                namespace,
                stream,
            },
        ),
        Object::Cache {
            tenant,
            namespace: NamePattern::Exact(namespace),
            cache: NamePattern::Exact(cache),
        } => rights.allows(
            wanted.action,
            &Resource::Cache {
                tenant,
                namespace,
                cache,
            },
        ),
        // A pattern is asked for as a whole.
        object @ (Object::Cluster
        | Object::Node(_)
        | Object::Tenant(_)
        | Object::Namespace { .. }
        | Object::Stream { .. }
        | Object::Cache { .. }
        | Object::CacheKey { .. }
        | Object::Group { .. }) => rights.holds(wanted.action, object),
    }
}

/// A token as it was minted for somebody.
#[derive(Clone, Debug)]
pub(crate) struct Minted {
    pub(crate) token: Secret,
    pub(crate) principal: Arc<str>,
    pub(crate) rights: Arc<Permissions>,
    pub(crate) minted_at: TimeMs,
    /// Exclusive.
    pub(crate) expires_at: TimeMs,
}

/// Why an answer of the control plane holds no token that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the control plane's token is not one that this gateway can read")]
pub(crate) struct Unreadable;

impl Minted {
    /// Reads what a token says. Nothing is verified: it comes from the control plane itself, and brokers verify it.
    pub(crate) fn read(token: &str, now: TimeMs) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Claims {
            sub: Arc<str>,
            tid: String,
            exp: u64,
            #[serde(default)]
            perms: Vec<String>,
        }
        let body = token.split('.').nth(1).ok_or(Unreadable)?;
        let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| Unreadable)?;
        let claims: Claims = serde_json::from_slice(&body).map_err(|_| Unreadable)?;
        let perms = claims.perms.iter().map(String::as_str);
        Ok(Self {
            token: Secret::new(token),
            principal: claims.sub,
            rights: Arc::new(Permissions::compile_claim(&claims.tid, perms)),
            minted_at: now,
            expires_at: TimeMs(claims.exp.saturating_mul(1000)),
        })
    }

    /// When the next one is due: after two thirds of its life.
    pub(crate) fn due_at(&self) -> TimeMs {
        let life = self.expires_at.0.saturating_sub(self.minted_at.0);
        TimeMs(self.minted_at.0.saturating_add(life / 3 * 2))
    }
}

#[cfg(test)]
mod tests {
    use felix_auth::Action;

    use super::*;

    fn permission(action: Action, object: &str) -> Permission {
        Permission::new(action, object.parse().unwrap()).unwrap()
    }

    fn ask() -> Ask {
        Ask::Exactly {
            required: vec![permission(
                Action::StreamSubscribe,
                "stream:t/ns/board-7-edits",
            )],
            optional: vec![permission(
                Action::CacheWatch,
                "cache:t/ns/board-7-presence",
            )],
        }
    }

    #[test]
    fn an_exchange_asks_for_pairs_and_for_nothing_else() {
        let spec = ask().spec(None);
        assert_eq!(spec.requested.as_deref(), Some(&[][..]));
        assert_eq!(spec.resources, None);
        assert_eq!(
            spec.permissions.unwrap(),
            [
                "stream.subscribe:stream:t/ns/board-7-edits",
                "cache.watch:cache:t/ns/board-7-presence"
            ]
        );
        let all = Ask::Everything(Audience::ControlPlane).spec(Some(&Secret::new("me")));
        assert_eq!((all.requested, all.permissions), (None, None));
        assert_eq!(all.actor_token.unwrap().0, "me");
    }

    #[test]
    fn what_was_granted_is_asked_of_patterns_and_not_compared_as_text() {
        let rights = |perms: &[&str]| Permissions::compile_claim("t", perms.iter().copied());
        let prefix = rights(&[
            "stream.subscribe:stream:t/ns/board-*",
            "cache.read:cache:t/ns/*",
        ]);
        assert_eq!(ask().lacking(&prefix), None);
        let Ask::Exactly { optional, .. } = ask() else {
            unreachable!("made above")
        };
        // The older, wider action allows it.
        assert!(allows(&prefix, &optional[0]));
        let other = rights(&["stream.subscribe:stream:t/ns/board-8-edits"]);
        assert!(ask().lacking(&other).is_some());
        let foreign = Permissions::compile_claim("u", ["stream.subscribe:stream:t/ns/*"]);
        assert!(ask().lacking(&foreign).is_some());
    }

    #[test]
    fn a_key_tells_every_ask_and_every_credential_apart() {
        let (ann, bob) = (Secret::new("ann").digest(), Secret::new("bob").digest());
        let all = Ask::Everything(Audience::Broker);
        let keys = [ask().key(&ann), ask().key(&bob), all.key(&ann)];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
        assert_eq!(ask().key(&ann), keys[0]);
    }

    #[test]
    fn a_token_is_due_after_two_thirds_of_its_life() {
        let body = br#"{"sub":"p","tid":"t","exp":1900,"perms":["stream.publish:stream:t/ns/a"]}"#;
        let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(body));
        let minted = Minted::read(&token, TimeMs(1_000_000)).unwrap();
        assert_eq!(minted.due_at(), TimeMs(1_600_000));
        assert_eq!(&*minted.principal, "p");
        for bad in ["", "a.b.c", "h.e30.s"] {
            assert!(Minted::read(bad, TimeMs(0)).is_err(), "{bad}");
        }
    }
}
