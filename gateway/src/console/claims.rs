//! What somebody's own token says of him. Nothing is verified: whoever is asked with the token does that.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::{Permissions, TOKEN_BYTES_MAX};
use serde::Deserialize;

use super::refusal::Refusal;

/// The claims that the console shows.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claims {
    #[serde(rename = "sub")]
    pub(super) principal: String,
    #[serde(rename = "tid")]
    pub(super) tenant: String,
    #[serde(rename = "aud", default)]
    pub(super) audience: String,
    /// Good only from the machine that it was made on.
    #[serde(rename = "loopback", default)]
    pub(super) loopback_only: bool,
    #[serde(rename = "exp")]
    expires_at: Option<u64>,
    #[serde(default)]
    perms: Vec<String>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
    #[serde(rename = "sid", default)]
    pub(super) session: Option<String>,
    #[serde(default)]
    act: Option<Actor>,
}

#[derive(Clone, Debug, Deserialize)]
struct Actor {
    sub: String,
}

impl Claims {
    /// Reads a token.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn read(token: &str) -> Result<Self, Refusal> {
        let none = || Refusal::signed_out("what was sent is not a token of this platform");
        let body = token
            .split('.')
            .nth(1)
            .filter(|_| token.len() <= TOKEN_BYTES_MAX);
        let body = URL_SAFE_NO_PAD
            .decode(body.ok_or_else(none)?)
            .map_err(|_| none())?;
        serde_json::from_slice(&body).map_err(|_| none())
    }

    /// What it allows, as servers would judge it.
    pub(super) fn permissions(&self) -> Permissions {
        Permissions::compile_claim(&self.tenant, self.perms.iter().map(String::as_str))
    }

    pub(super) fn actor(&self) -> Option<&str> {
        self.act.as_ref().map(|actor| actor.sub.as_str())
    }

    /// Unix milliseconds; exclusive.
    pub(super) fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at.map(|at| at.saturating_mul(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_nobody() {
        for bad in ["", "a.b", "a.b.c", "a.e30.c"] {
            assert!(Claims::read(bad).is_err(), "{bad}");
        }
        let body = URL_SAFE_NO_PAD
            .encode(br#"{"sub":"p","tid":"t","perms":["stream.publish:stream:t/n/s"]}"#);
        let claims = Claims::read(&format!("h.{body}.s")).unwrap();
        assert_eq!(claims.permissions().grants().len(), 1);
    }
}
