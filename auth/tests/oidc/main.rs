//! Tokens of identity providers, good ones and forged ones, against a provider on this machine.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod fetching;
mod forged;
mod idp;

use std::sync::Arc;
use std::time::Instant;

use felix_auth::fetch::HttpFetch;
use felix_auth::oidc::{
    AddressRules, Algorithms, Trust, UpstreamRefused, UpstreamToken, Verifier, VerifyFailed,
    Vouched,
};
use felix_model::TimeMs;
use serde_json::Value;

use idp::{Idp, Key};

/// Unix seconds at which every test takes place.
const NOW: u64 = 1_800_000_000;

/// A provider with one P-256 key, and somebody who trusts it.
struct World {
    idp: Idp,
    key: Key,
    verifier: Verifier,
    audiences: Vec<String>,
    began: Instant,
}

impl World {
    async fn new() -> Self {
        Self::allowing(Algorithms::default()).await
    }

    async fn allowing(algorithms: Algorithms) -> Self {
        let key = Key::ec("k1");
        Self {
            idp: Idp::start(&[&key]).await,
            key,
            verifier: Verifier::new(Arc::new(HttpFetch::new(HERE)), algorithms),
            audiences: vec!["other".into(), "app".into()],
            began: Instant::now(),
        }
    }

    fn trust(&self) -> Trust<'_> {
        Trust {
            issuer: &self.idp.issuer,
            audiences: &self.audiences,
            discovery_url: None,
            jwks_url: None,
            subject_claim: "sub",
            groups_claim: "groups",
        }
    }

    async fn verify(&self, token: &str) -> Result<Vouched, VerifyFailed> {
        self.verify_after(token, 0).await
    }

    /// Verifies some seconds after the beginning, as far as the age of documents goes.
    async fn verify_after(&self, token: &str, seconds: u64) -> Result<Vouched, VerifyFailed> {
        let token = read(token)?;
        let at = self.began + std::time::Duration::from_secs(seconds);
        self.verifier.verify(&token, &self.trust(), at).await
    }

    async fn refusal(&self, token: &str) -> UpstreamRefused {
        match self.verify(token).await {
            Err(VerifyFailed::Refused(refused)) => refused,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    /// A good token of a person, changed.
    fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.idp.claims("alice", NOW);
        change(&mut claims);
        self.key.sign(&claims)
    }
}

const HERE: AddressRules = AddressRules {
    private: false,
    loopback: true,
    insecure_http: false,
};

fn read(token: &str) -> Result<UpstreamToken, UpstreamRefused> {
    UpstreamToken::read(token, TimeMs(NOW * 1000))
}
