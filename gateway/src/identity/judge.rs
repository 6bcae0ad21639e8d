//! A look at a presented token before the control plane is troubled with it.
//!
//! The control plane slows down whoever fails to prove who he is, by the address he comes from, and every browser comes
//! to it from the gateway's. So what is no token, is signed by nobody or is meant for another application is refused
//! here. What passes is judged by the control plane all the same, at the expense of the person whom it names
//! ([`super::failures`]): no browser can use up what all others depend on.

use std::sync::Arc;
use std::time::Instant;

use felix_auth::fetch::HttpFetch;
use felix_auth::oidc::{
    AddressRules, Algorithms, Trust, UpstreamRefused, UpstreamToken, Verifier, VerifyFailed,
};
use felix_model::TimeMs;
use rustls::pki_types::CertificateDer;

use super::credential::{Payer, Shown, subject};
use super::refused::Refused;
use super::secret::Secret;

/// Whoever looks.
#[derive(Debug)]
pub(super) struct Judge {
    verifier: Verifier,
    issuer: String,
    audiences: [String; 1],
}

impl Judge {
    /// `roots` are trusted beside the machine's own.
    pub(super) fn new(issuer: &str, client_id: &str, roots: Vec<CertificateDer<'static>>) -> Self {
        // The operator named the provider, so it may be anywhere.
        let rules = AddressRules {
            private: true,
            loopback: true,
            insecure_http: true,
        };
        let fetch = Arc::new(HttpFetch::trusting(rules, roots));
        Self {
            verifier: Verifier::new(fetch, every_algorithm()),
            issuer: issuer.to_owned(),
            audiences: [client_id.to_owned()],
        }
    }

    /// Refuses what no provider signed for this gateway.
    ///
    /// # Errors
    /// [`Refused`] without a word of the token.
    pub(super) async fn look(&self, token: Secret, now: TimeMs) -> Result<Shown, Refused> {
        let read = UpstreamToken::read(token.reveal(), now)
            .map_err(|refused| Refused::SignedOut(refused.to_string()))?;
        if read.issuer() != self.issuer {
            return Err(Refused::Forbidden(
                "the token is of another provider than the one this gateway signs in with".into(),
            ));
        }
        let trust = Trust {
            issuer: &self.issuer,
            audiences: &self.audiences,
            discovery_url: None,
            jwks_url: None,
            subject_claim: "sub",
            groups_claim: "groups",
        };
        let payer = match self.verifier.verify(&read, &trust, Instant::now()).await {
            Err(VerifyFailed::Refused(refused)) if is_forged(&refused) => {
                return Err(Refused::SignedOut(refused.to_string()));
            }
            Err(VerifyFailed::Refused(UpstreamRefused::Audience)) => {
                return Err(Refused::Forbidden(
                    "the token is for another application than this gateway (oidc_client_id)"
                        .into(),
                ));
            }
            // What else it says is the tenant's business.
            Ok(_) | Err(VerifyFailed::Refused(_)) => {
                subject(&token).map_or(Payer::UNKNOWN, |subject| Payer::of(&subject))
            }
            // Keys that cannot be had here may be at hand there.
            Err(VerifyFailed::Unavailable(_)) => Payer::UNKNOWN,
        };
        Ok(Shown { token, payer })
    }
}

/// Which of them the tenant accepts is its business.
fn every_algorithm() -> Algorithms {
    let names = "ES256,ES384,RS256,RS384,RS512,PS256,PS384,PS512,EdDSA";
    names.parse().unwrap_or_default()
}

const fn is_forged(refused: &UpstreamRefused) -> bool {
    matches!(
        refused,
        UpstreamRefused::UnknownKey
            | UpstreamRefused::AmbiguousKey
            | UpstreamRefused::KeyAlgorithm
            | UpstreamRefused::Signature
    )
}
