//! The provider's key: ES256, kept in the data directory so that sign-ins survive a restart of the node.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ProviderFailed;
use super::desk::SignedIn;
use crate::contexts::write_private;

/// Name of the key's file.
const KEY_FILE: &str = "provider.key";
/// Bytes of a point of P-256 written out: a mark and two numbers.
const POINT_BYTES: usize = 65;

/// What an ID token says.
#[derive(Debug, Serialize)]
pub(super) struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: String,
    iat: u64,
    exp: u64,
    auth_time: u64,
    sid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    name: &'a str,
    preferred_username: String,
    email: String,
    groups: Vec<&'static str>,
}

/// What is believed of an ID token that comes back when somebody signs out.
#[derive(Debug, Deserialize)]
pub(super) struct Hint {
    /// Which sign-in it tells of.
    pub(super) sid: String,
}

/// The key pair.
pub(super) struct Keys {
    signing: EncodingKey,
    verifying: DecodingKey,
    kid: String,
    x: String,
    y: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Keys")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// The key of a directory; made when there is none.
    pub(super) fn kept(directory: &Path) -> Result<Self, ProviderFailed> {
        let file = directory.join(KEY_FILE);
        let failed = |source| ProviderFailed::KeyFile {
            file: file.clone(),
            source,
        };
        let pair = match fs::read_to_string(&file) {
            Ok(pem) => KeyPair::from_pem(&pem)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
                write_private(&file, pair.serialize_pem().as_bytes()).map_err(failed)?;
                pair
            }
            Err(error) => return Err(failed(error)),
        };
        Self::of(&pair)
    }

    fn of(pair: &KeyPair) -> Result<Self, ProviderFailed> {
        let point = pair.public_key_raw();
        let halves = (point.len() == POINT_BYTES)
            .then(|| point.get(1..33).zip(point.get(33..)))
            .flatten();
        let Some((x, y)) = halves else {
            return Err(rcgen::Error::UnsupportedSignatureAlgorithm.into());
        };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let unusable = |_| ProviderFailed::Key(rcgen::Error::CouldNotParseKeyPair);
        Ok(Self {
            signing: EncodingKey::from_ec_der(&pair.serialize_der()),
            verifying: DecodingKey::from_ec_components(&x, &y).map_err(unusable)?,
            kid: thumbprint(&x, &y),
            x,
            y,
        })
    }

    /// The key set document (RFC 7517).
    pub(super) fn jwks(&self) -> Value {
        json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig",
            "kid": self.kid, "x": self.x, "y": self.y,
        }] })
    }

    /// An ID token for a sign-in.
    pub(super) fn id_token(
        &self,
        issuer: &str,
        client: &str,
        signed_in: &SignedIn,
        now: u64,
        seconds: u64,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        let person = &signed_in.person;
        let claims = Claims {
            iss: issuer,
            aud: client,
            sub: person.subject(),
            iat: now,
            exp: now.saturating_add(seconds),
            auth_time: signed_in.at,
            sid: &signed_in.sign_in,
            nonce: signed_in.nonce.as_deref(),
            name: person.name(),
            preferred_username: person.subject(),
            email: person.email(),
            groups: person.groups(),
        };
        let header = Header {
            kid: Some(self.kid.clone()),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, &claims, &self.signing)
    }

    /// Reads an ID token of ours, whether it has run out or not: signing out late is signing out.
    pub(super) fn hint(&self, issuer: &str, client: &str, token: &str) -> Option<Hint> {
        let mut rules = Validation::new(Algorithm::ES256);
        rules.validate_exp = false;
        rules.set_issuer(&[issuer]);
        rules.set_audience(&[client]);
        let read = jsonwebtoken::decode::<Hint>(token, &self.verifying, &rules);
        read.ok().map(|token| token.claims)
    }
}

/// The key's name: what it is (RFC 7638).
fn thumbprint(x: &str, y: &str) -> String {
    let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(members.as_bytes()))
}
