//! The authorization code flow with PKCE (RFC 6749, RFC 7636, RFC 8252): the browser comes back to
//! a listener on this machine with a code that only this process can redeem.

use std::time::Duration;

use super::SignIn;
use super::listener::{Listener, Redirect, Returned};
use super::pkce::Words;
use super::provider::{Answer, Provider, Refused, said};
use super::tokens::Tokens;
use crate::exit::{Exit, Failure};
use crate::secret::Secret;

/// How long the person may take in the browser.
pub const RESPONSE_WAIT: Duration = Duration::from_secs(300);

/// A code flow under way.
#[derive(Debug)]
pub struct CodeFlow<'a> {
    provider: &'a Provider,
    listener: Listener,
    words: Words,
    url: String,
}

impl<'a> CodeFlow<'a> {
    /// Listens for the browser and makes the address to send it to.
    ///
    /// # Errors
    /// When the redirect address is none of this machine, or nothing can listen there.
    pub async fn begin(provider: &'a Provider, sign_in: &SignIn) -> Result<Self, Failure> {
        let redirect = Redirect::parse(sign_in.redirect.as_deref())?;
        let listener = Listener::bind(redirect).await?;
        let words = Words::random()?;
        let redirect_uri = listener.redirect_uri();
        let challenge = words.challenge();
        let mut url = provider.authorization_endpoint()?;
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", provider.client_id()),
            ("redirect_uri", redirect_uri.as_str()),
            ("scope", sign_in.scope()),
            ("state", words.state.reveal()),
            ("nonce", words.nonce.reveal()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        if let Some(audience) = &sign_in.audience {
            // RFC 8707 says `resource`; some providers took `audience` before there was a standard.
            fields.extend([("resource", audience.as_str()), ("audience", audience)]);
        }
        url.query_pairs_mut().extend_pairs(fields);
        Ok(Self {
            provider,
            listener,
            words,
            url: url.into(),
        })
    }

    /// The address to open in a browser. It holds nothing that helps anybody who sees it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the browser and redeems the code.
    ///
    /// # Errors
    /// When the person refused, did not come back in time, or the answer is not for this request.
    pub async fn tokens(mut self, sign_in: &SignIn) -> Result<Tokens, Failure> {
        let waiting = self.listener.returned(&self.words.state);
        let returned = tokio::time::timeout(RESPONSE_WAIT, waiting)
            .await
            .map_err(|_| {
                Failure::new(
                    Exit::Unavailable,
                    format!("nobody came back within {} s", RESPONSE_WAIT.as_secs()),
                )
                .with_hint("--device signs in with the browser of another machine")
            })??;
        let redeemed = self.redeem(sign_in, &returned).await;
        self.listener.finish(&redeemed).await;
        redeemed
    }

    async fn redeem(&self, sign_in: &SignIn, returned: &Returned) -> Result<Tokens, Failure> {
        let code = check(self.provider, returned)?;
        let redirect_uri = self.listener.redirect_uri();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code.reveal()),
            ("redirect_uri", redirect_uri.as_str()),
            ("code_verifier", self.words.verifier.reveal()),
        ];
        if let Some(audience) = &sign_in.audience {
            fields.push(("resource", audience));
        }
        let tokens: Tokens = match self.provider.ask_token(&fields).await? {
            Answer::Yes(tokens) => tokens,
            Answer::No(refused) => return Err(refused.failure()),
        };
        tokens.check(self.provider, Some(&self.words.nonce))?;
        Ok(tokens)
    }
}

/// RFC 9207: the answer names its issuer, so that a code of another provider is not redeemed here.
fn check<'r>(provider: &Provider, returned: &'r Returned) -> Result<&'r Secret, Failure> {
    match &returned.issuer {
        Some(issuer) if issuer != provider.issuer() => {
            return Err(Failure::new(
                Exit::Refused,
                format!("the answer comes from another issuer: {}", said(issuer)),
            ));
        }
        None if provider.names_itself_in_answers() => {
            return Err(Failure::new(
                Exit::Refused,
                "the answer does not say which issuer it comes from",
            ));
        }
        _ => {}
    }
    match &returned.outcome {
        Ok(code) => Ok(code),
        Err((error, description)) => Err(Refused::new(error, description).failure()),
    }
}
