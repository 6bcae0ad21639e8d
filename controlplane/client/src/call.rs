//! One HTTP call and what can become of it.

use std::sync::Arc;
use std::time::Duration;

use felix_meta::http::ErrorBody;
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{ANSWER_BYTES_MAX, CALL_TIMEOUT, CONNECT_TIMEOUT, ERROR_BYTES_MAX, IDLE_TIME};
use crate::token::TokenSource;
use crate::trust::{Trust, is_about_certificate};

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// It is no URL.
    #[error("`{url}` is not a URL: {detail}")]
    NotAUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// It is no `http` or `https` URL.
    #[error("`{url}` has scheme `{scheme}`; this client speaks http and https")]
    Scheme {
        /// What was given.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// It is an `https` URL, and nothing says whose certificates to trust.
    #[error("`{url}` is https, so a file of trusted roots is needed (controlplane_ca)")]
    NoRoots {
        /// What was given.
        url: String,
    },
    /// The trusted roots cannot be used.
    #[error("the trusted roots cannot be used: {detail}")]
    BadRoots {
        /// What is wrong with them.
        detail: String,
    },
    /// The certificate to present cannot be used.
    #[error("the client certificate and its key cannot be used: {detail}")]
    BadIdentity {
        /// What is wrong with them.
        detail: String,
    },
    /// It carries a user name or a password, which would end up in logs.
    #[error("the URL carries credentials; give the token separately")]
    Credentials,
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made: {detail}")]
    Client {
        /// What it says.
        detail: String,
    },
}

/// Whether a call that failed may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It was not carried out: repeat it after a pause.
    Safe,
    /// It may have been carried out: look before repeating it.
    LookFirst,
    /// Repeating it gives the same answer.
    Useless,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// The control plane could not be reached; nothing was sent.
    #[error("control plane {url} cannot be reached: {detail}")]
    Unreachable {
        /// Its address.
        url: String,
        /// What happened.
        detail: String,
    },
    /// The request was sent and no answer came, so it may or may not have been carried out.
    #[error("control plane {url} did not answer: {detail}; the change may have been made")]
    NoAnswer {
        /// Its address.
        url: String,
        /// What happened.
        detail: String,
    },
    /// The control plane refused.
    #[error("{message} ({code})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The code of the error body.
        code: String,
        /// The message of the error body.
        message: String,
    },
    /// The answer is not one of a control plane.
    #[error("the answer of {url} is not one of a control plane: {detail}")]
    Malformed {
        /// Its address.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The token could not be read from its file.
    #[error("the token file {path} cannot be read: {detail}")]
    TokenFile {
        /// The file.
        path: String,
        /// What happened.
        detail: String,
    },
}

impl CallFailed {
    /// Whether the call may be repeated.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unreachable { .. } => Retry::Safe,
            Self::NoAnswer { .. } => Retry::LookFirst,
            Self::Refused { code, .. } if code == "busy" || code == "too_many_attempts" => {
                Retry::Safe
            }
            Self::Refused { status, .. } if *status >= 500 => Retry::LookFirst,
            Self::Refused { .. } | Self::Malformed { .. } | Self::TokenFile { .. } => {
                Retry::Useless
            }
        }
    }

    /// Whether the control plane says that the thing does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code == "not_found")
    }
}

/// Sends requests to one address.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    base: Url,
    client: reqwest::Client,
    token: TokenSource,
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// Parts of the path, each encoded on its own, so that no name can leave its place.
    pub(crate) path: Vec<&'a str>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<serde_json::Value>,
    pub(crate) header: Option<(&'static str, Arc<str>)>,
    pub(crate) timeout: Duration,
    /// Bytes of a good answer that are read.
    pub(crate) answer_bytes_max: usize,
}

impl<'a> Request<'a> {
    pub(crate) const fn new(method: Method, path: Vec<&'a str>) -> Self {
        Self {
            method,
            path,
            query: Vec::new(),
            body: None,
            header: None,
            timeout: CALL_TIMEOUT,
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }

    pub(crate) fn get(path: Vec<&'a str>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn query(mut self, key: &'static str, value: &impl ToString) -> Self {
        self.query.push((key, value.to_string()));
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Self {
        // The bodies are plain records with string keys, which always have a JSON form.
        self.body = serde_json::to_value(body).ok();
        self
    }
}

impl Caller {
    pub(crate) fn new(url: &str, token: TokenSource, trust: &Trust) -> Result<Self, BadEndpoint> {
        let base = Url::parse(url).map_err(|error| BadEndpoint::NotAUrl {
            url: url.to_owned(),
            detail: error.to_string(),
        })?;
        match (base.scheme(), &trust.roots) {
            ("http", _) | ("https", Some(_)) => {}
            ("https", None) => {
                return Err(BadEndpoint::NoRoots {
                    url: url.to_owned(),
                });
            }
            (scheme, _) => {
                let scheme = scheme.to_owned();
                return Err(BadEndpoint::Scheme {
                    url: url.to_owned(),
                    scheme,
                });
            }
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(BadEndpoint::Credentials);
        }
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // The control plane closes what is idle a little later; whoever closes first cuts off no request.
            .pool_idle_timeout(IDLE_TIME)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(trust.config()?)
            .build()
            .map_err(|error| BadEndpoint::Client {
                detail: chain(&error),
            })?;
        Ok(Self {
            base,
            client,
            token,
        })
    }

    pub(crate) fn url(&self) -> &str {
        self.base.as_str()
    }

    pub(crate) const fn token(&self) -> &TokenSource {
        &self.token
    }

    /// The same connections, with another token.
    pub(crate) fn with_token(&self, token: TokenSource) -> Self {
        Self {
            base: self.base.clone(),
            client: self.client.clone(),
            token,
        }
    }

    /// Sends a request and reads the JSON of a good answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
    ) -> Result<(StatusCode, T), CallFailed> {
        let (status, bytes) = self.send(request).await?;
        let body =
            serde_json::from_slice(&bytes).map_err(|error| self.malformed(error.to_string()))?;
        Ok((status, body))
    }

    /// Sends a request whose good answer has no body worth reading.
    pub(crate) async fn send_only(&self, request: Request<'_>) -> Result<(), CallFailed> {
        self.send(request).await.map(|_| ())
    }

    async fn send(&self, request: Request<'_>) -> Result<(StatusCode, Vec<u8>), CallFailed> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut builder = self
            .client
            .request(request.method, url)
            .timeout(request.timeout);
        let token = self.token.read();
        let token = token.map_err(|(path, error)| CallFailed::TokenFile {
            path: path.display().to_string(),
            detail: error.to_string(),
        })?;
        if let Some(token) = &token {
            builder = builder.bearer_auth(token);
        }
        if let Some((name, value)) = request.header {
            builder = builder.header(name, &*value);
        }
        if let Some(body) = request.body {
            builder = builder.json(&body);
        }
        let response = builder
            .send()
            .await
            .map_err(|error| self.transport(&error))?;
        let status = response.status();
        if status.is_success() {
            let limit = request.answer_bytes_max;
            let read = self.read(response, limit).await?;
            let bytes = read
                .map_err(|_| self.malformed(format!("the answer has more than {limit} bytes")))?;
            return Ok((status, bytes));
        }
        if let (StatusCode::UNAUTHORIZED, TokenSource::Held(held), Some(token)) =
            (status, &self.token, &token)
        {
            held.refused(token);
        }
        let (Ok(body) | Err(body)) = self.read(response, ERROR_BYTES_MAX).await?;
        Err(self.refusal(status, &body))
    }

    /// Reads a body as it comes, so that no more is held than is allowed: of one that is longer only its beginning, as an
    /// error.
    async fn read(
        &self,
        mut response: reqwest::Response,
        limit: usize,
    ) -> Result<Result<Vec<u8>, Vec<u8>>, CallFailed> {
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await;
            let Some(chunk) = chunk.map_err(|error| self.transport(&error))? else {
                return Ok(Ok(body));
            };
            let room = limit.saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if chunk.len() > room {
                return Ok(Err(body));
            }
        }
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> CallFailed {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => CallFailed::Refused {
                status: status.as_u16(),
                code: body.code,
                message: body.message,
            },
            // Said by a proxy for a control plane that it cannot reach.
            Err(_) if matches!(status.as_u16(), 502..=504) => CallFailed::Refused {
                status: status.as_u16(),
                code: "unavailable".to_owned(),
                message: format!("status {status} from before the control plane"),
            },
            Err(_) => CallFailed::Malformed {
                url: self.base.to_string(),
                detail: format!("status {status} without an error body"),
            },
        }
    }

    fn transport(&self, error: &reqwest::Error) -> CallFailed {
        let (url, detail) = (self.base.to_string(), chain(error));
        if is_about_certificate(&detail) {
            // In the handshake: nobody read the request.
            let detail =
                format!("{detail}; it demands a client certificate of an authority that it trusts");
            return CallFailed::Unreachable { url, detail };
        }
        if error.is_connect() || error.is_builder() {
            return CallFailed::Unreachable { url, detail };
        }
        CallFailed::NoAnswer { url, detail }
    }

    fn malformed(&self, detail: String) -> CallFailed {
        let url = self.base.to_string();
        CallFailed::Malformed { url, detail }
    }
}

/// An error and its causes in one line, without the URL, which is said elsewhere.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        // The outermost text of the HTTP library repeats the URL and says nothing that its cause does not.
        if text.is_empty() && next.is_some() && error.is::<reqwest::Error>() {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_its_reason() {
        let refused = |url| Caller::new(url, TokenSource::None, &Trust::default()).unwrap_err();
        assert!(matches!(refused("localhost"), BadEndpoint::NotAUrl { .. }));
        assert!(matches!(
            refused("ftp://localhost"),
            BadEndpoint::Scheme { .. }
        ));
        assert_eq!(
            refused("http://me:secret@localhost"),
            BadEndpoint::Credentials
        );
        assert!(matches!(
            refused("https://localhost"),
            BadEndpoint::NoRoots { .. }
        ));
    }

    #[test]
    fn https_needs_roots_that_are_certificates() {
        let with =
            |roots: &[u8]| Caller::new("https://cp", TokenSource::None, &Trust::roots(Some(roots)));
        assert!(matches!(
            with(b"no pem").unwrap_err(),
            BadEndpoint::BadRoots { .. }
        ));
        let own = rcgen::generate_simple_self_signed(["cp".to_owned()]).unwrap();
        assert!(with(own.cert.pem().as_bytes()).is_ok());
    }

    #[test]
    fn a_server_fault_must_be_looked_at_before_a_repeat_but_busy_need_not() {
        let refused = |status, code: &str| CallFailed::Refused {
            status,
            code: code.into(),
            message: String::new(),
        };
        assert_eq!(refused(503, "busy").retry(), Retry::Safe);
        assert_eq!(refused(429, "too_many_attempts").retry(), Retry::Safe);
        assert_eq!(refused(503, "unavailable").retry(), Retry::LookFirst);
        assert_eq!(refused(409, "conflict").retry(), Retry::Useless);
    }

    #[tokio::test]
    async fn an_address_where_nobody_listens_is_unreachable() {
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let caller = Caller::new(
            &format!("http://{free}"),
            TokenSource::None,
            &Trust::default(),
        )
        .unwrap();
        let failed = caller
            .send_only(Request::get(vec!["v1"]))
            .await
            .unwrap_err();
        assert!(matches!(failed, CallFailed::Unreachable { .. }), "{failed}");
        assert_eq!(failed.retry(), Retry::Safe);
    }
}
