//! Secrets that we issue ourselves: refresh tokens and the keys of service accounts.
//!
//! ```text
//! refresh token        <session id>-<generation>.<secret>
//! service account key  fsk_<tenant>.<key id>.<secret>
//! ```
//!
//! Ids are 32 hexadecimal digits, secrets 32 random bytes in base64url. Only a digest of a secret is ever kept; a secret
//! of 256 random bits cannot be searched for by its digest.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_model::TenantId;

use crate::digest::hex_digest;

/// What every service account key begins with, so that scanners find leaked ones.
pub const SERVICE_KEY_PREFIX: &str = "fsk_";

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Longest credential that is looked at; the longest tenant name fits.
const CREDENTIAL_BYTES_MAX: usize = 512;

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct NoRandomness;

/// A text that is no credential of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a credential of this kind")]
pub struct NotACredential;

/// A secret. It shows itself only when it is asked to.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A new one from the operating system's randomness.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Its digest, which is what is kept of it: SHA-256 in lowercase hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        hex_digest(self.0.as_bytes())
    }

    /// Whether this is the secret of a digest; without one, never. The time taken depends on neither.
    #[must_use]
    pub fn fits(&self, digest: Option<&str>) -> bool {
        const NOBODYS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
        let held = digest.unwrap_or(NOBODYS);
        let own = self.digest();
        let alike = own.len() == held.len();
        let difference = own
            .bytes()
            .zip(held.bytes())
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        (difference == 0) & alike & digest.is_some()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// A new id: 16 random bytes in hexadecimal.
///
/// # Errors
/// [`NoRandomness`].
pub fn random_id() -> Result<String, NoRandomness> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// What continues a session, once.
#[derive(Clone, Debug)]
pub struct RefreshToken {
    /// The session.
    pub session_id: String,
    /// How often the session was continued before this token was made.
    pub generation: u64,
    /// What proves it.
    pub secret: Secret,
}

impl RefreshToken {
    /// The text that is handed out.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}-{}.{}", self.session_id, self.generation, self.secret.0)
    }

    /// Reads what [`RefreshToken::to_text`] wrote.
    ///
    /// # Errors
    /// [`NotACredential`].
    pub fn from_text(text: &str) -> Result<Self, NotACredential> {
        let (head, secret) = text.split_once('.').ok_or(NotACredential)?;
        let (session_id, generation) = head.split_once('-').ok_or(NotACredential)?;
        let is_plain = generation.bytes().all(|byte| byte.is_ascii_digit());
        Ok(Self {
            session_id: id(session_id)?,
            generation: generation
                .parse()
                .ok()
                .filter(|_| is_plain)
                .ok_or(NotACredential)?,
            secret: read_secret(secret)?,
        })
    }
}

/// What a service account signs in with.
#[derive(Clone, Debug)]
pub struct ServiceCredential {
    /// The tenant of the account.
    pub tenant: TenantId,
    /// Which key.
    pub key_id: String,
    /// What proves it.
    pub secret: Secret,
}

impl ServiceCredential {
    /// The text that is handed out.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self {
            tenant,
            key_id,
            secret,
        } = self;
        format!("{SERVICE_KEY_PREFIX}{tenant}.{key_id}.{}", secret.0)
    }

    /// Reads what [`ServiceCredential::to_text`] wrote.
    ///
    /// # Errors
    /// [`NotACredential`].
    pub fn from_text(text: &str) -> Result<Self, NotACredential> {
        if text.len() > CREDENTIAL_BYTES_MAX {
            return Err(NotACredential);
        }
        let rest = text
            .strip_prefix(SERVICE_KEY_PREFIX)
            .ok_or(NotACredential)?;
        // The name of a tenant may hold dots, ids and secrets never do.
        let (head, secret) = rest.rsplit_once('.').ok_or(NotACredential)?;
        let (tenant, key_id) = head.rsplit_once('.').ok_or(NotACredential)?;
        Ok(Self {
            tenant: tenant.parse().map_err(|_| NotACredential)?,
            key_id: id(key_id)?,
            secret: read_secret(secret)?,
        })
    }
}

fn id(text: &str) -> Result<String, NotACredential> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned()).ok_or(NotACredential)
}

fn read_secret(text: &str) -> Result<Secret, NotACredential> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotACredential)?;
    let fits = bytes.len() == SECRET_BYTES;
    fits.then(|| Secret(text.to_owned())).ok_or(NotACredential)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_read_back_as_written() {
        let refresh = RefreshToken {
            session_id: random_id().unwrap(),
            generation: 7,
            secret: Secret::generate().unwrap(),
        };
        let again = RefreshToken::from_text(&refresh.to_text()).unwrap();
        assert_eq!(again.session_id, refresh.session_id);
        assert_eq!(again.generation, 7);
        assert!(again.secret.fits(Some(&refresh.secret.digest())));
        let service = ServiceCredential {
            tenant: "a.b-c".parse().unwrap(),
            key_id: random_id().unwrap(),
            secret: Secret::generate().unwrap(),
        };
        let again = ServiceCredential::from_text(&service.to_text()).unwrap();
        assert_eq!(again.tenant, service.tenant);
        assert_eq!(again.key_id, service.key_id);
        assert!(again.secret.fits(Some(&service.secret.digest())));
    }

    #[test]
    fn a_secret_fits_its_own_digest_alone() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert!(one.fits(Some(&one.digest())));
        assert!(!one.fits(Some(&other.digest())));
        assert!(!one.fits(Some(&one.digest()[..63])));
        assert!(!one.fits(Some("")));
        assert!(!one.fits(None));
    }

    #[test]
    fn what_is_no_credential_is_refused() {
        let secret = "A".repeat(43);
        let id = "0".repeat(32);
        for text in [
            "",
            ".",
            "fsk_",
            &format!("{id}.{secret}"),
            &format!("{id}--1.{secret}"),
            &format!("{id}-+1.{secret}"),
            &format!("{id}-99999999999999999999.{secret}"),
            &format!("{id}-0.{}", "A".repeat(42)),
            &format!("{}-0.{secret}", "g".repeat(32)),
            &format!("{id}-0.{secret}.x"),
        ] {
            assert!(RefreshToken::from_text(text).is_err(), "{text}");
        }
        for text in [
            "fsk_t",
            "fsk_..",
            &format!("fsk_t.{id}.{secret}A"),
            &format!("fsk_/t.{id}.{secret}"),
            &format!("FSK_t.{id}.{secret}"),
            &format!("fsk_{}.{id}.{secret}", "t".repeat(600)),
        ] {
            assert!(ServiceCredential::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let secret = Secret::generate().unwrap();
        assert!(!format!("{secret:?}").contains(&secret.0));
    }
}
