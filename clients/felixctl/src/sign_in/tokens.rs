//! What the token endpoint gave, and which of it is shown to the control plane.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::Upstream;
use super::provider::Provider;
use crate::exit::{Exit, Failure};
use crate::secret::Secret;

/// The tokens of one sign-in.
#[derive(Clone, Debug, Deserialize)]
pub struct Tokens {
    access_token: Option<Secret>,
    id_token: Option<Secret>,
}

/// The token to exchange, and whom it is about.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The token.
    pub token: Secret,
    /// What it says, unverified: for display.
    pub claims: Claimed,
}

/// Claims of a provider's token that are shown to people.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    body: Value,
}

impl Tokens {
    /// The ID token must answer this very request: the nonce, the issuer and the client are
    /// compared (OpenID Connect Core 3.1.3.7). The signature is the control plane's to verify;
    /// here the token came over a connection to the provider itself.
    ///
    /// # Errors
    /// When the ID token is for somebody else or another request.
    pub fn check(&self, provider: &Provider, nonce: Option<&Secret>) -> Result<(), Failure> {
        let Some(token) = &self.id_token else {
            return Ok(());
        };
        let claims = Claimed::of(token)?;
        let refused = |what: &str| {
            Failure::new(
                Exit::Refused,
                format!("the identity provider's answer is not for this request: its {what}"),
            )
        };
        if claims.text("iss") != Some(provider.issuer()) {
            return Err(refused("ID token names another issuer"));
        }
        if !claims.audiences().any(|one| one == provider.client_id()) {
            return Err(refused("ID token is for another client"));
        }
        if nonce.is_some_and(|nonce| claims.text("nonce") != Some(nonce.reveal())) {
            return Err(refused("nonce differs"));
        }
        Ok(())
    }

    /// The token that is exchanged.
    ///
    /// # Errors
    /// When the provider did not give it, or gave one that only itself can read.
    pub fn choose(self, upstream: Upstream) -> Result<Chosen, Failure> {
        let (token, what) = match upstream {
            Upstream::IdToken => (self.id_token, "ID token"),
            Upstream::AccessToken => (self.access_token, "access token"),
        };
        let token = token.ok_or_else(|| {
            Failure::new(
                Exit::Refused,
                format!("the identity provider gave no {what}"),
            )
            .with_hint("an ID token needs the scope openid")
        })?;
        let claims = Claimed::of(&token).map_err(|_| {
            Failure::new(
                Exit::Refused,
                format!("the identity provider's {what} is no JWT, so only the provider can read it"),
            )
            .with_hint("ask for an access token with --audience, or exchange the ID token with --exchange id-token")
        })?;
        Ok(Chosen { token, claims })
    }
}

impl Claimed {
    /// Reads a token without verifying it.
    fn of(token: &Secret) -> Result<Self, Failure> {
        let unreadable = || Failure::failed("the identity provider's token is unreadable");
        let body = token.reveal().split('.').nth(1).ok_or_else(unreadable)?;
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| unreadable())?;
        let body = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
        Ok(Self { body })
    }

    /// A claim that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// A name that people know.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        ["email", "preferred_username", "name"]
            .iter()
            .find_map(|claim| self.text(claim))
    }

    fn audiences(&self) -> impl Iterator<Item = &str> {
        let aud = self.body.get("aud");
        let one = aud.and_then(Value::as_str);
        let many = aud.and_then(Value::as_array).into_iter().flatten();
        one.into_iter().chain(many.filter_map(Value::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn token(body: &Value) -> Secret {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.x", part(&json!({})), part(body)).into()
    }

    #[test]
    fn an_access_token_that_is_no_jwt_cannot_be_exchanged() {
        let tokens = Tokens {
            access_token: Some("opaque".into()),
            id_token: None,
        };
        let refused = tokens.choose(Upstream::AccessToken).expect_err("opaque");
        assert!(!refused.message.contains("opaque"), "{}", refused.message);
    }

    #[test]
    fn the_name_that_people_know_is_the_first_there_is() {
        let chosen = Tokens {
            access_token: None,
            id_token: Some(token(
                &json!({"sub": "1", "name": "Ann", "email": "ann@example.com"}),
            )),
        }
        .choose(Upstream::IdToken)
        .expect("a token");
        assert_eq!(chosen.claims.name(), Some("ann@example.com"));
        assert_eq!(chosen.claims.text("sub"), Some("1"));
    }

    #[test]
    fn one_audience_and_many_are_both_understood() {
        for aud in [json!("cli"), json!(["web", "cli"])] {
            let claims = Claimed::of(&token(&json!({ "aud": aud }))).expect("claims");
            assert!(claims.audiences().any(|one| one == "cli"));
        }
    }
}
