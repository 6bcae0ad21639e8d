//! Which signatures are accepted from identity providers.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use jsonwebtoken::Algorithm;

/// A signature algorithm that may be allowed. Shared secrets (`HS*`) and `none` are not among them and never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamAlgorithm {
    /// ECDSA over P-256.
    Es256,
    /// ECDSA over P-384.
    Es384,
    /// RSA, PKCS#1 v1.5, SHA-256.
    Rs256,
    /// RSA, PKCS#1 v1.5, SHA-384.
    Rs384,
    /// RSA, PKCS#1 v1.5, SHA-512.
    Rs512,
    /// RSA-PSS, SHA-256.
    Ps256,
    /// RSA-PSS, SHA-384.
    Ps384,
    /// RSA-PSS, SHA-512.
    Ps512,
    /// Ed25519.
    EdDsa,
}

impl UpstreamAlgorithm {
    const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::EdDsa,
    ];

    /// The name in headers, key sets and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of that name; [`None`] for every name that is never accepted.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether an RSA key makes such signatures.
    #[must_use]
    pub const fn is_rsa(self) -> bool {
        matches!(
            self,
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512
        )
    }

    pub(super) const fn of_the_library(self) -> Algorithm {
        match self {
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::Rs256 => Algorithm::RS256,
            Self::Rs384 => Algorithm::RS384,
            Self::Rs512 => Algorithm::RS512,
            Self::Ps256 => Algorithm::PS256,
            Self::Ps384 => Algorithm::PS384,
            Self::Ps512 => Algorithm::PS512,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

impl fmt::Display for UpstreamAlgorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The algorithms an operator allows; at least one. The default is ES256 and RS256, which every provider can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms(BTreeSet<UpstreamAlgorithm>);

impl Algorithms {
    /// Whether an algorithm is allowed.
    #[must_use]
    pub fn allow(&self, algorithm: UpstreamAlgorithm) -> bool {
        self.0.contains(&algorithm)
    }

    /// The one algorithm an RSA key is used with when its set does not say: RS256, which the OpenID specification makes
    /// the default; or the only RSA algorithm that is allowed.
    pub(super) fn of_an_rsa_key(&self) -> Option<UpstreamAlgorithm> {
        if self.allow(UpstreamAlgorithm::Rs256) {
            return Some(UpstreamAlgorithm::Rs256);
        }
        let mut rsa = self.0.iter().filter(|one| one.is_rsa());
        let only = rsa.next().copied();
        only.filter(|_| rsa.next().is_none())
    }
}

impl Default for Algorithms {
    fn default() -> Self {
        Self(BTreeSet::from([
            UpstreamAlgorithm::Es256,
            UpstreamAlgorithm::Rs256,
        ]))
    }
}

/// Why a list of algorithms is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAlgorithms {
    /// A name is unknown, or is one that is never accepted.
    #[error("`{0}` is not among ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512 and EdDSA")]
    Unknown(String),
    /// No name is in it.
    #[error("at least one algorithm must be allowed")]
    Empty,
}

impl FromStr for Algorithms {
    type Err = BadAlgorithms;

    /// Reads names with commas between.
    fn from_str(text: &str) -> Result<Self, BadAlgorithms> {
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let all: BTreeSet<UpstreamAlgorithm> = names
            .map(|name| {
                UpstreamAlgorithm::named(name)
                    .ok_or_else(|| BadAlgorithms::Unknown(name.chars().take(64).collect()))
            })
            .collect::<Result<_, _>>()?;
        if all.is_empty() {
            return Err(BadAlgorithms::Empty);
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_secrets_and_no_signature_at_all_cannot_be_allowed() {
        for name in ["HS256", "HS384", "HS512", "none", "None", "rs256", ""] {
            assert!(name.parse::<Algorithms>().is_err(), "{name}");
        }
        assert!("ES256, RS512,EdDSA".parse::<Algorithms>().is_ok());
        assert!("ES256,HS256".parse::<Algorithms>().is_err());
    }

    #[test]
    fn an_rsa_key_without_an_algorithm_gets_one_and_never_a_choice() {
        let of = |text: &str| text.parse::<Algorithms>().unwrap().of_an_rsa_key();
        assert_eq!(of("RS256,PS256"), Some(UpstreamAlgorithm::Rs256));
        assert_eq!(of("ES256,PS256"), Some(UpstreamAlgorithm::Ps256));
        assert_eq!(of("RS512,PS256"), None);
        assert_eq!(of("ES256"), None);
    }
}
