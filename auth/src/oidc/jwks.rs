//! The documents of an identity provider: where its keys are, and the keys.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;

use super::algorithm::{Algorithms, UpstreamAlgorithm};

/// Keys of one set that are looked at. Providers have a handful.
const KEYS_MAX: usize = 64;

/// Bytes of a key id.
const KID_BYTES_MAX: usize = 256;

/// Bits of an RSA modulus: below, it is weak; above, each check costs more than a forged token should buy.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Bytes of an RSA exponent; every one in use is 65537 or 3.
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// Why a document is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDocument {
    /// It is not JSON of the expected form.
    #[error("not a document of the expected form")]
    Malformed,
    /// A discovery document speaks of another issuer than the one it was fetched for.
    #[error("the discovery document names another issuer")]
    OtherIssuer,
    /// A key set has more keys than are looked at.
    #[error("the key set has {found} keys; at most {limit} are looked at")]
    TooManyKeys {
        /// Keys found.
        found: usize,
        /// Keys allowed.
        limit: usize,
    },
}

/// What a discovery document says, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Discovery {
    /// Reads a document.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadDocument> {
        serde_json::from_slice(bytes).map_err(|_| BadDocument::Malformed)
    }

    /// Where the keys of the issuer are. The document must name the issuer, byte for byte.
    pub(super) fn keys_url_of(&self, issuer: &str) -> Result<&str, BadDocument> {
        if self.issuer != issuer {
            return Err(BadDocument::OtherIssuer);
        }
        Ok(&self.jwks_uri)
    }
}

/// The keys of one issuer, by id, each with the one algorithm it is used with.
#[derive(Clone, Default)]
pub struct IssuerKeys(BTreeMap<String, Named>);

#[derive(Clone)]
enum Named {
    One(Box<UpstreamKey>),
    /// Several keys have this id, so none is meant by it.
    Ambiguous,
}

/// A key and how it is used.
#[derive(Clone)]
pub(super) struct UpstreamKey {
    pub(super) algorithm: UpstreamAlgorithm,
    pub(super) key: DecodingKey,
}

impl IssuerKeys {
    /// Reads a key set document. Keys of other uses and kinds, keys that are too weak or too large, keys without an id
    /// and keys whose algorithm is not allowed are left out; an id that two keys share names neither.
    ///
    /// # Errors
    /// [`BadDocument`].
    pub fn read(bytes: &[u8], allowed: &Algorithms) -> Result<Self, BadDocument> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        let document: Document =
            serde_json::from_slice(bytes).map_err(|_| BadDocument::Malformed)?;
        if document.keys.len() > KEYS_MAX {
            return Err(BadDocument::TooManyKeys {
                found: document.keys.len(),
                limit: KEYS_MAX,
            });
        }
        let mut keys = BTreeMap::new();
        for value in document.keys {
            // One key of a kind nobody here knows must not spoil the others.
            let Ok(jwk) = serde_json::from_value::<UpstreamJwk>(value) else {
                continue;
            };
            if let Some((kid, key)) = jwk.read(allowed) {
                match keys.entry(kid) {
                    Entry::Vacant(free) => {
                        free.insert(Named::One(Box::new(key)));
                    }
                    Entry::Occupied(mut taken) => {
                        taken.insert(Named::Ambiguous);
                    }
                }
            }
        }
        Ok(Self(keys))
    }

    /// How many ids name a key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0
            .values()
            .filter(|named| matches!(named, Named::One(_)))
            .count()
    }

    /// Whether no id names a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of this id.
    pub(super) fn find(&self, kid: &str) -> Found<'_> {
        match self.0.get(kid) {
            None => Found::Unknown,
            Some(Named::One(key)) => Found::Key(key),
            Some(Named::Ambiguous) => Found::Ambiguous,
        }
    }
}

/// What a key id names in a set.
pub(super) enum Found<'a> {
    Key(&'a UpstreamKey),
    Ambiguous,
    Unknown,
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

/// A key of this algorithm that belongs to nobody, for checks that must cost what real ones cost.
pub(super) fn nobodys_key(algorithm: UpstreamAlgorithm) -> Option<DecodingKey> {
    match algorithm {
        UpstreamAlgorithm::Rs256
        | UpstreamAlgorithm::Rs384
        | UpstreamAlgorithm::Rs512
        | UpstreamAlgorithm::Ps256
        | UpstreamAlgorithm::Ps384
        | UpstreamAlgorithm::Ps512 => Some(DecodingKey::from_rsa_raw_components(
            &[0xc1; 256],
            &[1, 0, 1],
        )),
        // The base points of the curves.
        UpstreamAlgorithm::Es256 => DecodingKey::from_ec_components(
            "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
        )
        .ok(),
        UpstreamAlgorithm::Es384 => DecodingKey::from_ec_components(
            "qofKIr6LBTeOscce8yCtdG4dO2KLp5uYWfdB4IJUKjhVAvJdv1UpbDpUXjhydgq3",
            "NhfeSpYmLG9dnpi_kpLcKfj0Hb0omhR86doxE7XwuMAKYLHOHX6BnXpDHXyQ6g5f",
        )
        .ok(),
        UpstreamAlgorithm::EdDsa => {
            DecodingKey::from_ed_components("WGZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY").ok()
        }
    }
}

#[derive(Deserialize)]
struct UpstreamJwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    key_use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl UpstreamJwk {
    fn read(self, allowed: &Algorithms) -> Option<(String, UpstreamKey)> {
        let verifies = self.key_use.as_deref().is_none_or(|one| one == "sig")
            && self
                .key_ops
                .as_ref()
                .is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !verifies {
            return None;
        }
        let kid = self.kid.clone().filter(|kid| kid.len() <= KID_BYTES_MAX)?;
        let algorithm = self.algorithm(allowed)?;
        let key = self.key()?;
        Some((kid, UpstreamKey { algorithm, key }))
    }

    /// The one algorithm the key is used with: what its set says, if it fits the key, or what its kind implies.
    fn algorithm(&self, allowed: &Algorithms) -> Option<UpstreamAlgorithm> {
        let implied = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => None,
            ("EC", Some("P-256")) => Some(UpstreamAlgorithm::Es256),
            ("EC", Some("P-384")) => Some(UpstreamAlgorithm::Es384),
            ("OKP", Some("Ed25519")) => Some(UpstreamAlgorithm::EdDsa),
            _ => return None,
        };
        let said = match self.alg.as_deref() {
            None => None,
            // RFC 9864 gives Ed25519 a name of its own.
            Some("Ed25519") => Some(UpstreamAlgorithm::EdDsa),
            Some(name) => Some(UpstreamAlgorithm::named(name)?),
        };
        let algorithm = match (said, implied) {
            (Some(said), Some(implied)) => Some(said).filter(|said| *said == implied),
            (Some(said), None) => Some(said).filter(|said| said.is_rsa()),
            (None, Some(implied)) => Some(implied),
            (None, None) => allowed.of_an_rsa_key(),
        };
        algorithm.filter(|algorithm| allowed.allow(*algorithm))
    }

    fn key(&self) -> Option<DecodingKey> {
        match self.kty.as_str() {
            "RSA" => {
                let (n, e) = (bytes(self.n.as_ref()?)?, bytes(self.e.as_ref()?)?);
                let strong = RSA_BITS.contains(&bits(&n))
                    && n.last().is_some_and(|last| last & 1 == 1)
                    && (1..=RSA_EXPONENT_BYTES_MAX).contains(&e.len())
                    && e.last().is_some_and(|last| last & 1 == 1)
                    && e != [1];
                strong.then(|| DecodingKey::from_rsa_raw_components(&n, &e))
            }
            "EC" => {
                let side = if self.crv.as_deref() == Some("P-256") {
                    32
                } else {
                    48
                };
                let (x, y) = (self.x.as_ref()?, self.y.as_ref()?);
                let fits = bytes(x)?.len() == side && bytes(y)?.len() == side;
                fits.then(|| DecodingKey::from_ec_components(x, y).ok())?
            }
            "OKP" => {
                let x = bytes(self.x.as_ref()?)?;
                (x.len() == 32).then(|| DecodingKey::from_ed_der(&x))
            }
            _ => None,
        }
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Bits of a big-endian number.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().skip_while(|byte| **byte == 0);
    let mut significant = significant.peekable();
    let head = significant
        .peek()
        .map_or(0, |first| 8 - first.leading_zeros() as usize);
    head + significant.count().saturating_sub(1) * 8
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_discovery_document_must_name_its_own_issuer_to_the_letter() {
        let document = |issuer: &str| {
            json!({"issuer": issuer, "jwks_uri": "https://login.example.com/keys"}).to_string()
        };
        let read = |text: String| {
            let document = Discovery::read(text.as_bytes())?;
            document
                .keys_url_of("https://login.example.com")
                .map(str::to_owned)
        };
        assert!(read(document("https://login.example.com")).is_ok());
        for other in [
            "https://login.example.com/",
            "https://LOGIN.example.com",
            "https://evil.example.com",
        ] {
            assert_eq!(read(document(other)), Err(BadDocument::OtherIssuer));
        }
        assert_eq!(read("{}".into()), Err(BadDocument::Malformed));
        assert_eq!(read("<html>".into()), Err(BadDocument::Malformed));
    }

    #[test]
    fn each_key_has_one_algorithm_or_is_left_out() {
        for (change, expected) in [
            (json!({}), Some("RS256")),
            (json!({"alg": "RS256"}), Some("RS256")),
            (json!({"alg": "PS256"}), None),
            (json!({"alg": "HS256"}), None),
            (json!({"alg": "none"}), None),
            (json!({"alg": "ES256"}), None),
            (json!({"use": "enc"}), None),
            (json!({"key_ops": ["encrypt"]}), None),
            (json!({"key_ops": ["verify"]}), Some("RS256")),
            (json!({"kid": null}), None),
            (json!({"kty": "oct", "k": "c2VjcmV0"}), None),
            (json!({"n": small_modulus()}), None),
            (json!({"e": "AQ"}), None),
            (json!({"e": "AQABAQAB"}), None),
            (json!({"n": "not base64!"}), None),
        ] {
            let mut key = rsa("k");
            for (name, value) in change.as_object().unwrap() {
                key[name] = value.clone();
            }
            assert_eq!(algorithm_of(&[key], "k").as_deref(), expected, "{change}");
        }
        let point = URL_SAFE_NO_PAD.encode([7; 32]);
        let ec = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": point, "y": point});
        assert_eq!(algorithm_of(&[ec], "k").as_deref(), Some("ES256"));
        let other = json!({"kty": "EC", "crv": "P-521", "kid": "k", "x": point, "y": point});
        assert_eq!(algorithm_of(&[other], "k"), None);
        let short = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": "AAAA", "y": point});
        assert_eq!(algorithm_of(&[short], "k"), None);
    }

    #[test]
    fn an_id_that_two_keys_share_names_neither() {
        let keys = read(&[rsa("a"), rsa("b"), rsa("a")]);
        assert!(matches!(keys.find("a"), Found::Ambiguous));
        assert!(matches!(keys.find("b"), Found::Key(_)));
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn checking_against_nobodys_key_does_the_work_and_never_fits() {
        let all = ["ES256", "ES384", "RS256", "PS512", "EdDSA"];
        for algorithm in all.map(|name| UpstreamAlgorithm::named(name).unwrap()) {
            let key = nobodys_key(algorithm).unwrap();
            let length = match (algorithm.is_rsa(), algorithm) {
                (true, _) => 256,
                (false, UpstreamAlgorithm::Es384) => 96,
                (false, _) => 64,
            };
            let signature = URL_SAFE_NO_PAD.encode(vec![3; length]);
            let fits = jsonwebtoken::crypto::verify(
                &signature,
                b"message",
                &key,
                algorithm.of_the_library(),
            );
            // An error would mean that the check ended before its work was done.
            assert_eq!(fits.ok(), Some(false), "{algorithm}");
        }
    }

    #[test]
    fn a_strange_key_does_not_spoil_the_others_and_a_crowd_is_refused() {
        let keys = read(&[json!({"kty": 7}), json!("key"), rsa("a")]);
        assert_eq!(keys.len(), 1);
        let crowd: Vec<Value> = (0..=KEYS_MAX).map(|n| rsa(&n.to_string())).collect();
        let document = json!({ "keys": crowd }).to_string();
        assert!(matches!(
            IssuerKeys::read(document.as_bytes(), &Algorithms::default()),
            Err(BadDocument::TooManyKeys { .. })
        ));
    }

    fn rsa(kid: &str) -> Value {
        let modulus = URL_SAFE_NO_PAD.encode([0xc1; 256]);
        json!({"kty": "RSA", "kid": kid, "n": modulus, "e": "AQAB"})
    }

    fn small_modulus() -> String {
        URL_SAFE_NO_PAD.encode([0xc1; 128])
    }

    fn read(keys: &[Value]) -> IssuerKeys {
        let document = json!({ "keys": keys }).to_string();
        IssuerKeys::read(document.as_bytes(), &Algorithms::default()).unwrap()
    }

    fn algorithm_of(keys: &[Value], kid: &str) -> Option<String> {
        match read(keys).find(kid) {
            Found::Key(key) => Some(key.algorithm.to_string()),
            Found::Ambiguous | Found::Unknown => None,
        }
    }
}
