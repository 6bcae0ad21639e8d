//! The two requests that make Felix tokens: an exchange of somebody else's token, and a refresh.

use std::time::Duration;

use felix_auth::Audience;
use serde::Deserialize;
use serde_json::json;

use super::{Issued, now_seconds};
use crate::api::{Api, quote};
use crate::exit::Failure;
use crate::secret::Secret;
use crate::trust::Tls;

/// The token routes of one tenant at one control plane.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Address of the control plane.
    pub controlplane_url: String,
    /// How it is trusted, and what is presented to it.
    pub tls: Tls,
    /// The tenant.
    pub tenant: String,
    /// How long one request may take.
    pub timeout: Duration,
}

#[derive(Deserialize)]
struct Answer {
    felix_token: String,
    expires_in: u64,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    refresh_expires_in: Option<u64>,
}

impl Exchange {
    /// Shows a credential from elsewhere (an identity provider's token or a service account's key)
    /// and gets a Felix token for it.
    ///
    /// # Errors
    /// When the control plane cannot be reached or refuses.
    pub async fn exchange(
        &self,
        credential: &Secret,
        audience: Audience,
    ) -> Result<Issued, Failure> {
        let api = self.api(Some(credential.reveal().to_owned()))?;
        let body = json!({ "audience": audience.name() });
        issued(api.post(&self.path("exchange"), Some(&body)).await?)
    }

    /// Spends a refresh token. What comes back holds the next one.
    ///
    /// # Errors
    /// When the control plane cannot be reached or refuses; a refusal is final.
    pub async fn refresh(
        &self,
        refresh_token: &Secret,
        audience: Audience,
    ) -> Result<Issued, Failure> {
        let body = json!({
            "refresh_token": refresh_token.reveal(),
            "audience": audience.name(),
        });
        issued(
            self.api(None)?
                .post(&self.path("refresh"), Some(&body))
                .await?,
        )
    }

    /// Ends the session of a refresh token.
    ///
    /// # Errors
    /// When the control plane cannot be reached or refuses.
    pub async fn end(&self, refresh_token: &Secret) -> Result<(), Failure> {
        let body = json!({ "refresh_token": refresh_token.reveal() });
        let path = self.path("revoke");
        self.api(None)?.post(&path, Some(&body)).await.map(drop)
    }

    fn api(&self, token: Option<String>) -> Result<Api, Failure> {
        Api::new(
            &self.controlplane_url,
            token.map(Secret::from),
            &self.tls,
            self.timeout,
            "the control plane",
        )
    }

    fn path(&self, call: &str) -> String {
        format!("/v1/tenants/{}/token/{call}", quote(&self.tenant))
    }
}

fn issued(answer: serde_json::Value) -> Result<Issued, Failure> {
    // The parser's own words may quote a token.
    let answer: Answer = serde_json::from_value(answer)
        .map_err(|_| Failure::failed("the control plane's answer holds no token"))?;
    let now = now_seconds();
    Ok(Issued {
        token: answer.felix_token.into(),
        issued_at: now,
        expires_at: now.saturating_add(answer.expires_in),
        refresh_token: answer.refresh_token.map(Secret::from),
        refresh_expires_at: answer
            .refresh_expires_in
            .map(|seconds| now.saturating_add(seconds)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_a_token_with_times_of_this_machine() {
        let before = now_seconds();
        let token = issued(json!({
            "felix_token": "t", "expires_in": 900, "token_type": "Bearer",
            "refresh_token": "r", "refresh_expires_in": 2_592_000,
        }))
        .expect("a token");
        assert!(token.issued_at >= before);
        assert_eq!(token.expires_at - token.issued_at, 900);
        assert_eq!(token.refresh_token, Some("r".into()));
    }

    #[test]
    fn an_answer_that_is_none_does_not_show_what_was_in_it() {
        let failure = issued(json!({"felix_token": "sesame", "expires_in": "sesame"}))
            .expect_err("no number");
        assert!(!failure.message.contains("sesame"), "{}", failure.message);
    }
}
