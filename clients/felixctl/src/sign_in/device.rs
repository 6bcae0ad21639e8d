//! The device flow (RFC 8628): the person opens a page on any machine and types a short code.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::SignIn;
use super::provider::{Answer, Provider, said};
use super::tokens::Tokens;
use crate::exit::{Exit, Failure};
use crate::secret::Secret;

/// Pause between two questions when the provider names none (RFC 8628 section 3.2).
const INTERVAL_SECONDS: u64 = 5;
/// Longest pause: a provider that says "slower" for ever is asked once a minute.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Longest life of a code that is waited for.
const LIFE_SECONDS_MAX: u64 = 1_800;
/// What RFC 8628 calls the grant.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What the person must do.
#[derive(Clone, Debug, Deserialize)]
pub struct Device {
    device_code: Secret,
    user_code: String,
    verification_uri: String,
    #[serde(default)]
    verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default)]
    interval: Option<u64>,
}

impl Device {
    /// The code to type, safe for a terminal.
    #[must_use]
    pub fn user_code(&self) -> String {
        said(&self.user_code)
    }

    /// The page to open, safe for a terminal.
    #[must_use]
    pub fn page(&self) -> String {
        said(&self.verification_uri)
    }

    /// The page with the code already in it, safe for a terminal.
    #[must_use]
    pub fn complete_page(&self) -> Option<String> {
        self.verification_uri_complete.as_deref().map(said)
    }
}

/// A device flow under way.
#[derive(Debug)]
pub struct DeviceFlow<'a> {
    provider: &'a Provider,
    /// What the person must do.
    pub device: Device,
}

impl<'a> DeviceFlow<'a> {
    /// Asks the provider for a code.
    ///
    /// # Errors
    /// When the provider cannot be reached, has no device flow, or refuses this client.
    pub async fn begin(provider: &'a Provider, sign_in: &SignIn) -> Result<Self, Failure> {
        let mut fields = vec![("scope", sign_in.scope())];
        if let Some(audience) = &sign_in.audience {
            fields.extend([("resource", audience.as_str()), ("audience", audience)]);
        }
        match provider.ask_device(&fields).await? {
            Answer::Yes(device) => Ok(Self { provider, device }),
            Answer::No(refused) => Err(refused.failure()),
        }
    }

    /// Waits until the person has said yes or no, as slowly as the provider wants to be asked.
    ///
    /// # Errors
    /// When the person said no, the code ran out, or the provider cannot be reached.
    pub async fn tokens(&self, sign_in: &SignIn) -> Result<Tokens, Failure> {
        let life = Duration::from_secs(self.device.expires_in.min(LIFE_SECONDS_MAX));
        let deadline = Instant::now() + life;
        let seconds = self.device.interval.unwrap_or(INTERVAL_SECONDS);
        let mut interval = Duration::from_secs(seconds.max(1)).min(INTERVAL_MAX);
        let mut unanswered = None;
        while Instant::now() < deadline {
            tokio::time::sleep(interval).await;
            let answer = self.ask(sign_in).await;
            unanswered = answer.as_ref().err().cloned();
            match answer {
                Ok(Answer::Yes(tokens)) => return Ok(tokens),
                Ok(Answer::No(refused)) => match refused.error.as_str() {
                    "authorization_pending" => {}
                    "slow_down" => {
                        interval = (interval + Duration::from_secs(5)).min(INTERVAL_MAX);
                    }
                    "expired_token" => break,
                    _ => return Err(refused.failure()),
                },
                // RFC 8628 section 3.5: a question that got no answer is asked again, slower.
                Err(failure) if failure.exit == Exit::Unavailable => {
                    interval = (interval * 2).min(INTERVAL_MAX);
                }
                Err(failure) => return Err(failure),
            }
        }
        let nobody = "nobody signed in before the code ran out";
        Err(unanswered.unwrap_or_else(|| Failure::new(Exit::Unavailable, nobody)))
    }

    async fn ask(&self, sign_in: &SignIn) -> Result<Answer<Tokens>, Failure> {
        let mut fields = vec![
            ("grant_type", GRANT),
            ("device_code", self.device.device_code.reveal()),
        ];
        if let Some(audience) = &sign_in.audience {
            fields.push(("resource", audience));
        }
        self.provider.ask_token(&fields).await
    }
}
