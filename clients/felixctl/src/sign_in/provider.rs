//! The identity provider over HTTP: its description, its token endpoint, its device endpoint.
//!
//! https only, but for a provider on this machine; no redirects; every answer is bounded in size
//! and time.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::quote;
use crate::exit::{Exit, Failure};
use crate::output::escape_line;
use crate::secret::Secret;
use crate::trust::{self, Tls};

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest sentence of a provider that is passed on.
const SAID_CHARS_MAX: usize = 300;

/// An identity provider that described itself.
#[derive(Clone, Debug)]
pub struct Provider {
    http: Client,
    metadata: Metadata,
    client_id: String,
    client_secret: Option<Secret>,
}

/// The part of OpenID Connect Discovery 1.0 that matters here.
#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// A refusal as RFC 6749 section 5.2 writes it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Refused {
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    error_description: String,
}

/// What the provider answered.
pub(super) enum Answer<T> {
    Yes(T),
    No(Refused),
}

impl Provider {
    /// Asks a provider to describe itself.
    ///
    /// # Errors
    /// When its address is none that is trusted, it cannot be reached, or it calls itself
    /// something else.
    pub async fn discover(
        issuer: &str,
        client_id: &str,
        client_secret_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        trusted("the issuer", issuer)?;
        let client_secret = client_secret_file.map(read_secret).transpose()?;
        let http = Client::builder()
            .connect_timeout(timeout.min(Duration::from_secs(5)))
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(trust::client_config(issuer, &Tls::default())?)
            .build()
            .map_err(|error| Failure::failed(format!("no HTTP client: {error}")))?;
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let metadata: Metadata = match read(http.get(&url)).await? {
            Answer::Yes(metadata) => metadata,
            Answer::No(_) => {
                return Err(Failure::new(
                    Exit::Unavailable,
                    format!("the identity provider does not describe itself at {url}"),
                )
                .with_hint("is the issuer spelt as the provider spells it?"));
            }
        };
        let provider = Self {
            http,
            metadata,
            client_id: client_id.to_owned(),
            client_secret,
        };
        provider.check(issuer)?;
        Ok(provider)
    }

    fn check(&self, issuer: &str) -> Result<(), Failure> {
        if self.metadata.issuer != issuer {
            return Err(Failure::new(
                Exit::Refused,
                format!(
                    "the identity provider calls itself {}, not {issuer}",
                    said(&self.metadata.issuer)
                ),
            )
            .with_hint("give --issuer exactly as the provider spells it, with or without a slash at its end"));
        }
        if let Some(methods) = &self.metadata.code_challenge_methods_supported
            && !methods.iter().any(|method| method == "S256")
        {
            return Err(Failure::new(
                Exit::Refused,
                "the identity provider does not offer PKCE with S256",
            ));
        }
        Ok(())
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.metadata.issuer
    }

    /// This program's name at the provider.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Whether an answer without `iss` must be refused (RFC 9207).
    pub(super) fn names_itself_in_answers(&self) -> bool {
        self.metadata.authorization_response_iss_parameter_supported
    }

    /// Where the person's browser is sent.
    pub(super) fn authorization_endpoint(&self) -> Result<Url, Failure> {
        endpoint(
            "authorization endpoint",
            self.metadata.authorization_endpoint.as_deref(),
        )
    }

    /// Asks the device endpoint.
    pub(super) async fn ask_device<T: DeserializeOwned>(
        &self,
        fields: &[(&str, &str)],
    ) -> Result<Answer<T>, Failure> {
        let named = self.metadata.device_authorization_endpoint.as_deref();
        let url = endpoint("device authorization endpoint", named)?;
        self.post(url, fields).await
    }

    /// Asks the token endpoint.
    pub(super) async fn ask_token<T: DeserializeOwned>(
        &self,
        fields: &[(&str, &str)],
    ) -> Result<Answer<T>, Failure> {
        let url = endpoint("token endpoint", self.metadata.token_endpoint.as_deref())?;
        self.post(url, fields).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        url: Url,
        fields: &[(&str, &str)],
    ) -> Result<Answer<T>, Failure> {
        let mut fields = fields.to_vec();
        fields.push(("client_id", &self.client_id));
        let mut request = self.http.post(url);
        if let Some(secret) = &self.client_secret {
            if self.takes_secret_in_body() {
                fields.push(("client_secret", secret.reveal()));
            } else {
                // RFC 6749 section 2.3.1: both halves are form-encoded before they are joined.
                let (name, password) = (quote(&self.client_id), quote(secret.reveal()));
                request = request.basic_auth(name, Some(password));
            }
        }
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(encode(&fields));
        read(request).await
    }

    /// The header is what every provider must understand unless it says otherwise (OpenID Connect
    /// Discovery 1.0 section 3).
    fn takes_secret_in_body(&self) -> bool {
        self.metadata
            .token_endpoint_auth_methods_supported
            .as_ref()
            .is_some_and(|methods| !methods.iter().any(|method| method == "client_secret_basic"))
    }
}

impl Refused {
    /// The failure that is shown.
    pub(super) fn failure(&self) -> Failure {
        let mut message = format!("the identity provider says: {}", said(&self.error));
        if !self.error_description.is_empty() {
            message.push_str(&format!(" ({})", said(&self.error_description)));
        }
        Failure::new(Exit::Refused, message)
    }

    pub(super) fn new(error: &str, description: &str) -> Self {
        Self {
            error: error.to_owned(),
            error_description: description.to_owned(),
        }
    }
}

/// Text from outside, made safe for a terminal and short.
pub(super) fn said(text: &str) -> String {
    let short: String = text.chars().take(SAID_CHARS_MAX).collect();
    escape_line(short.as_bytes())
}

/// Fields as a form or a query carries them.
pub(super) fn encode(fields: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", quote(name), quote(value));
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// Only https is trusted, and http where nothing leaves the machine.
fn trusted(what: &str, text: &str) -> Result<Url, Failure> {
    let refused = |why: &str| Failure::usage(format!("{what} {} {why}", said(text)));
    let url: Url = text.parse().map_err(|_| refused("is no address"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::usage(format!("{what} must not hold a password")));
    }
    if url.fragment().is_some() {
        return Err(refused("must not hold a #"));
    }
    let local = url.host_str().is_some_and(is_loopback);
    match url.scheme() {
        "https" => Ok(url),
        "http" if local => Ok(url),
        _ => Err(refused("must be https")),
    }
}

/// Whether a host of an address is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn endpoint(what: &str, named: Option<&str>) -> Result<Url, Failure> {
    let named = named.ok_or_else(|| {
        Failure::new(
            Exit::Refused,
            format!("the identity provider has no {what}"),
        )
    })?;
    trusted(&format!("the provider's {what}"), named)
}

fn read_secret(file: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
    Ok(text.trim().into())
}

async fn read<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> Result<Answer<T>, Failure> {
    // An error of the HTTP client may show the address, never a body; addresses asked here hold
    // no secret.
    let unreachable = |error: reqwest::Error| {
        Failure::new(
            Exit::Unavailable,
            format!("the identity provider cannot be reached: {error}"),
        )
    };
    let mut answer = request.send().await.map_err(unreachable)?;
    let status = answer.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Failure::failed(format!(
                "the identity provider's answer is over {ANSWER_BYTES_MAX} bytes"
            )));
        }
        bytes.extend_from_slice(&chunk);
    }
    if status.is_success() {
        // The parser's own words may quote a token.
        return serde_json::from_slice(&bytes)
            .map(Answer::Yes)
            .map_err(|_| {
                Failure::failed("the identity provider's answer is not what the protocol says")
            });
    }
    if status.is_server_error() {
        return Err(Failure::new(
            Exit::Unavailable,
            format!("the identity provider answered {status}"),
        ));
    }
    let refused = serde_json::from_slice(&bytes).unwrap_or_else(|_| Refused {
        error: status.to_string(),
        error_description: String::new(),
    });
    Ok(Answer::No(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_trusted() {
        for good in [
            "https://login.example.com/realms/x",
            "http://127.0.0.1:9000",
            "http://[::1]:9000/",
            "http://localhost/",
        ] {
            assert!(trusted("the issuer", good).is_ok(), "{good}");
        }
        for bad in [
            "http://login.example.com",
            "http://127.0.0.1.example.com/",
            "ftp://127.0.0.1/",
            "https://user:sesame@example.com",
            "https://example.com/#x",
            "login.example.com",
        ] {
            let refused = trusted("the issuer", bad).expect_err(bad);
            assert!(!refused.message.contains("sesame"), "{}", refused.message);
        }
    }

    #[test]
    fn what_a_provider_says_cannot_write_on_the_terminal() {
        let long = "x".repeat(10_000);
        let shown = Refused::new("access_denied\u{1b}[2J", &long)
            .failure()
            .message;
        assert!(!shown.contains('\u{1b}') && shown.len() < 1_000, "{shown}");
    }
}
