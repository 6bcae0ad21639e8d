//! Keys that sign and verify tokens.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of an Ed25519 seed and of an Ed25519 public key.
const KEY_BYTES: usize = 32;

/// The fixed beginning of a PKCS#8 document around an Ed25519 seed (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Why something is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// The text is not base64url, or is not 32 bytes.
    #[error("a key is 32 bytes in base64url; this is {found} bytes or not base64url")]
    Length {
        /// Bytes found; 0 when the text could not be decoded at all.
        found: usize,
    },
    /// The bytes are no point of the curve, or the key is of a kind that is not served.
    #[error("not an Ed25519 key")]
    NotEd25519,
}

/// A private key of one tenant. It never shows itself in `Debug`.
#[derive(Clone)]
pub struct SigningKey {
    public: PublicKey,
    pub(crate) encoding: EncodingKey,
}

impl SigningKey {
    /// Makes a new key from the operating system's randomness.
    ///
    /// # Errors
    /// [`BadKey::NoRandomness`] when there is none to be had.
    pub fn generate() -> Result<Self, BadKey> {
        let mut seed = [0; KEY_BYTES];
        getrandom::fill(&mut seed).map_err(|_| BadKey::NoRandomness)?;
        Self::from_seed(seed)
    }

    /// The key that belongs to a seed. The same seed gives the same key and the same key id.
    ///
    /// # Errors
    /// [`BadKey::NotEd25519`] if the seed cannot be used, which no 32 bytes are known to cause.
    pub fn from_seed(seed: [u8; KEY_BYTES]) -> Result<Self, BadKey> {
        let mut document = PKCS8_HEAD.to_vec();
        document.extend_from_slice(&seed);
        let encoding = EncodingKey::from_ed_der(&document);
        let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&encoding, Algorithm::EdDSA)
            .map_err(|_| BadKey::NotEd25519)?;
        let jsonwebtoken::jwk::AlgorithmParameters::OctetKeyPair(pair) = jwk.algorithm else {
            return Err(BadKey::NotEd25519);
        };
        let public = PublicKey::from_base64(None, &pair.x)?;
        Ok(Self { public, encoding })
    }

    /// Reads what [`SigningKey::to_secret`] wrote.
    ///
    /// # Errors
    /// [`BadKey`] when the text is not such a secret.
    pub fn from_secret(secret: &str) -> Result<Self, BadKey> {
        Self::from_seed(decode(secret)?)
    }

    /// The seed in base64url. Whoever holds it can sign as this key: keep it in files of mode 0600.
    #[must_use]
    pub fn to_secret(&self) -> String {
        let document = self.encoding.as_bytes();
        URL_SAFE_NO_PAD.encode(document.get(PKCS8_HEAD.len()..).unwrap_or_default())
    }

    /// The half that verifies.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The id that tokens name in their header.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.public.kid
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SigningKey")
            .field("kid", &self.kid())
            .finish_non_exhaustive()
    }
}

/// A key that verifies. It serialises as `{"kid", "x"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// The id that tokens name in their header.
    pub kid: String,
    /// The point, 32 bytes in base64url without padding.
    pub x: String,
}

impl PublicKey {
    /// Takes the 32 bytes in base64url; without an id it is derived from them.
    ///
    /// # Errors
    /// [`BadKey::Length`] when these are not 32 bytes.
    pub fn from_base64(kid: Option<&str>, x: &str) -> Result<Self, BadKey> {
        let bytes = decode(x)?;
        let kid = kid.map_or_else(|| derived_kid(&bytes), str::to_owned);
        Ok(Self {
            kid,
            x: URL_SAFE_NO_PAD.encode(bytes),
        })
    }

    /// The form of a key set document.
    #[must_use]
    pub fn to_jwk(&self) -> Jwk {
        Jwk {
            kty: "OKP".into(),
            crv: Some("Ed25519".into()),
            alg: Some("EdDSA".into()),
            key_use: Some("sig".into()),
            kid: Some(self.kid.clone()),
            x: Some(self.x.clone()),
        }
    }
}

/// One key of a key set document, as `/.well-known/jwks.json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwk {
    /// Key type; `OKP` for ours.
    pub kty: String,
    /// Curve; `Ed25519` for ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crv: Option<String>,
    /// Algorithm; `EdDSA` for ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alg: Option<String>,
    /// `sig` for ours.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub key_use: Option<String>,
    /// Key id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    /// The point in base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
}

/// A key set document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwks {
    /// All keys that verify.
    pub keys: Vec<Jwk>,
}

/// The keys that verify tokens of one tenant, by key id.
///
/// Every key has its one algorithm, Ed25519; a token's header can only name a key, never choose how it is used. The
/// empty set refuses every token, in the words used for an unknown key.
#[derive(Clone, Default)]
pub struct KeySet(BTreeMap<String, VerifyingKey>);

impl KeySet {
    /// Prepares keys for use. A key that is no Ed25519 key is left out, and of two with one id the first stays.
    #[must_use]
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a PublicKey>) -> Self {
        let mut set = BTreeMap::new();
        for key in keys {
            // The point is unpacked here, once, and not at every token.
            if let Ok(bytes) = decode(&key.x)
                && let Ok(point) = VerifyingKey::from_bytes(&bytes)
                && !point.is_weak()
            {
                set.entry(key.kid.clone()).or_insert(point);
            }
        }
        Self(set)
    }

    /// Takes the Ed25519 signature keys of a document and leaves out the rest.
    #[must_use]
    pub fn from_jwks(jwks: &Jwks) -> Self {
        let ours: Vec<PublicKey> = jwks
            .keys
            .iter()
            .filter(|key| key.kty == "OKP" && key.crv.as_deref() == Some("Ed25519"))
            .filter(|key| key.alg.as_deref().is_none_or(|alg| alg == "EdDSA"))
            .filter(|key| {
                key.key_use
                    .as_deref()
                    .is_none_or(|key_use| key_use == "sig")
            })
            .filter_map(|key| PublicKey::from_base64(key.kid.as_deref(), key.x.as_ref()?).ok())
            .collect();
        Self::new(&ours)
    }

    /// Whether no token can be good.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, kid: &str) -> Option<&VerifyingKey> {
        self.0.get(kid)
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

fn decode(text: &str) -> Result<[u8; KEY_BYTES], BadKey> {
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| BadKey::Length { found: 0 })?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| BadKey::Length { found })
}

/// Twelve bytes of a digest: enough that two keys of a tenant never meet, short enough to read out.
fn derived_kid(public: &[u8]) -> String {
    let digest = Sha256::digest(public);
    URL_SAFE_NO_PAD.encode(digest.get(..12).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_written_as_a_secret_reads_back_as_the_same_key() {
        let key = SigningKey::generate().unwrap();
        let again = SigningKey::from_secret(&key.to_secret()).unwrap();
        assert_eq!(again.public(), key.public());
    }

    #[test]
    fn the_public_key_is_the_one_of_rfc_8037() {
        // Appendix A.1 of RFC 8037 gives a seed and its public point.
        let key = SigningKey::from_secret("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
        assert_eq!(
            key.public().x,
            "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
        );
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let key = SigningKey::generate().unwrap();
        let shown = format!("{key:?}");
        assert!(shown.contains(key.kid()));
        assert!(!shown.contains(&key.to_secret()));
    }

    #[test]
    fn the_document_has_the_published_fields() {
        let key = PublicKey::from_base64(Some("k1"), "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
            .unwrap();
        let document = Jwks {
            keys: vec![key.to_jwk()],
        };
        let expected = concat!(
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k1","#,
            r#""x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#
        );
        assert_eq!(serde_json::to_string(&document).unwrap(), expected);
    }

    #[test]
    fn keys_of_other_kinds_are_left_out_of_a_set() {
        let document: Jwks = serde_json::from_str(
            r#"{"keys":[
                {"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"},
                {"kty":"oct","kid":"b","k":"c2VjcmV0"},
                {"kty":"OKP","crv":"X25519","kid":"c","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
                {"kty":"OKP","crv":"Ed25519","alg":"HS256","kid":"d","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
                {"kty":"OKP","crv":"Ed25519","use":"enc","kid":"e","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
                {"kty":"OKP","crv":"Ed25519","kid":"f","x":"short"}
            ]}"#,
        )
        .unwrap();
        assert!(KeySet::from_jwks(&document).is_empty());
    }
}
