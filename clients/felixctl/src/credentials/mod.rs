//! Felix tokens that were exchanged for a sign-in or a service account's key, kept beside the
//! contexts and renewed when they are due.
//!
//! One file a context, `credentials/NAME.json`, for its owner's eyes only. A refresh token works
//! once, so whoever renews holds the file's lock: two commands started together must not both
//! spend it, because the second use would be taken for theft and end the session.

mod exchange;
mod service_key;
mod source;
mod store;

pub use exchange::Exchange;
pub use service_key::{BadServiceKey, ServiceKey};
pub use source::{Holder, Source};
pub use store::{CredentialsRefused, Locked, Store};

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use felix_auth::Audience;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Form of the file; a newer one is refused rather than guessed at.
pub const VERSION: u16 = 1;
/// A token is renewed this many seconds before two thirds of its life are over: the client library
/// asks at two thirds to the second, and must not be given the old one then.
const EARLIER_SECONDS: u64 = 5;

/// What is kept for one context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// Form of the file, [`VERSION`].
    pub version: u16,
    /// The control plane that issued the tokens, without a slash at its end.
    pub controlplane_url: String,
    /// The tenant they act in.
    pub tenant: String,
    /// Who signed in, as the identity provider named him.
    #[serde(default)]
    pub person: Person,
    /// The tokens, by audience.
    pub tokens: BTreeMap<String, Issued>,
}

/// Who signed in, for display; nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// The identity provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The provider's name for him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// A name that people know: the address of his mail, or what the provider calls him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A token and what renews it. Times are Unix seconds of this machine's clock: a life is measured
/// from the moment the token came, so that a wrong clock does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The Felix token.
    pub token: Secret,
    /// When it came.
    pub issued_at: u64,
    /// When it ends, exclusive.
    pub expires_at: u64,
    /// What renews it, once. Absent when the session has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<Secret>,
    /// When that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_expires_at: Option<u64>,
}

impl Issued {
    /// Whether the token is good and not yet due.
    #[must_use]
    pub fn is_fresh(&self, now: u64) -> bool {
        let life = self.expires_at.saturating_sub(self.issued_at);
        let due = (life * 2 / 3).saturating_sub(EARLIER_SECONDS.min(life / 6));
        // A clock that was set back makes a token look as if it came from the future.
        now >= self.issued_at && now < self.issued_at + due
    }

    /// Whether the token is good.
    #[must_use]
    pub fn is_good(&self, now: u64) -> bool {
        now < self.expires_at
    }
}

impl Credentials {
    /// Nothing yet, for this tenant of this control plane.
    #[must_use]
    pub fn new(controlplane_url: &str, tenant: &str) -> Self {
        Self {
            version: VERSION,
            controlplane_url: controlplane_url.trim_end_matches('/').to_owned(),
            tenant: tenant.to_owned(),
            person: Person::default(),
            tokens: BTreeMap::new(),
        }
    }

    /// The token for an audience.
    #[must_use]
    pub fn issued(&self, audience: Audience) -> Option<&Issued> {
        self.tokens.get(audience.name())
    }

    /// Keeps the token of an audience in place of the one before.
    pub fn keep(&mut self, audience: Audience, issued: Issued) {
        self.tokens.insert(audience.name().to_owned(), issued);
    }

    /// Whether these belong to this tenant of this control plane.
    #[must_use]
    pub fn are_for(&self, controlplane_url: &str, tenant: &str) -> bool {
        self.controlplane_url == controlplane_url.trim_end_matches('/') && self.tenant == tenant
    }
}

/// Unix seconds by this machine's clock.
#[must_use]
pub fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_due_shortly_before_two_thirds_of_its_life() {
        let issued = Issued {
            token: "t".into(),
            issued_at: 1_000,
            expires_at: 1_900,
            refresh_token: None,
            refresh_expires_at: None,
        };
        assert!(issued.is_fresh(1_000) && issued.is_fresh(1_594));
        assert!(!issued.is_fresh(1_595) && issued.is_good(1_899));
        assert!(!issued.is_good(1_900));
        assert!(!issued.is_fresh(999), "a clock that was set back");
    }

    #[test]
    fn what_is_kept_shows_no_token() {
        let mut kept = Credentials::new("http://127.0.0.1:8443/", "dev");
        kept.keep(
            Audience::Broker,
            Issued {
                token: "open".into(),
                issued_at: 0,
                expires_at: 1,
                refresh_token: Some("sesame".into()),
                refresh_expires_at: None,
            },
        );
        let shown = format!("{kept:?}");
        assert!(
            !shown.contains("sesame") && !shown.contains("open"),
            "{shown}"
        );
        assert!(kept.are_for("http://127.0.0.1:8443", "dev"));
    }
}
