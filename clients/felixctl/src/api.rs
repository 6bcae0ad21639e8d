//! The control plane over HTTP: requests with the token in force, its refusals as [`Failure`]s.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::credentials::Source;
use crate::exit::{Exit, Failure};
use crate::secret::Secret;
use crate::trust::{self, Tls};

/// Items asked for in one page of a listing.
const PAGE_ITEMS: u32 = 1000;
/// Pages of one listing at most: a server that never stops saying "there is more" is ended here.
const PAGES_MAX: u32 = 10_000;
/// Bytes of one answer that are read: a page of a thousand sessions of 64 KiB each. What answers with more is none of our
/// listeners.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A server that says `busy` has not tried, so it is asked again after these waits.
const BUSY_WAITS: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// A control plane, or any other of our HTTP listeners, and the credential shown to it.
#[derive(Clone, Debug)]
pub struct Api {
    http: Client,
    url: String,
    token: Option<Secret>,
    renewal: Option<Arc<Source>>,
    header: Option<(HeaderName, HeaderValue)>,
    who: &'static str,
}

/// What a server said when it was asked to create something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It did.
    New,
    /// The same thing was there already.
    Unchanged,
}

/// The one shape of every refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: String,
    message: String,
}

impl Api {
    /// Speaks to the listener at `url`, which `who` names in messages. An `https` listener is
    /// trusted as `tls` says. Nothing is connected yet.
    ///
    /// # Errors
    /// When the address is none that can be spoken to.
    pub fn new(
        url: &str,
        token: Option<Secret>,
        tls: &Tls,
        timeout: Duration,
        who: &'static str,
    ) -> Result<Self, Failure> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::usage(format!(
                "{url:?} is no address of {who}; write it as http://127.0.0.1:8443"
            )));
        }
        let http = Client::builder()
            .connect_timeout(timeout.min(Duration::from_secs(5)))
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(trust::client_config(url, tls)?)
            .build()
            .map_err(|error| Failure::failed(format!("no HTTP client: {error}")))?;
        Ok(Self {
            http,
            url: url.trim_end_matches('/').to_owned(),
            token,
            renewal: None,
            header: None,
            who,
        })
    }

    /// Asks this source for another token when the first one is refused: its key may have been
    /// retired, or its session may have got new roles.
    #[must_use]
    pub fn renewed_by(mut self, source: Arc<Source>) -> Self {
        self.renewal = Some(source);
        self
    }

    /// Shows one more header with every request.
    ///
    /// # Errors
    /// When the value cannot stand in a header.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Result<Self, Failure> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| Failure::usage(format!("the value for {name} is unreadable")))?;
        value.set_sensitive(true);
        self.header = Some((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// Reads one thing.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.send(Method::GET, path, None).await?.1)
    }

    /// Reads a listing to its end, page by page.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut page = format!("{path}?limit={PAGE_ITEMS}");
        for _ in 0..PAGES_MAX {
            let mut answer = self.get(&page).await?;
            if let Some(found) = answer.get_mut("items").and_then(Value::as_array_mut) {
                items.append(found);
            }
            match answer.get("next_cursor").and_then(Value::as_str) {
                Some(cursor) => {
                    page = format!("{path}?limit={PAGE_ITEMS}&cursor={}", quote(cursor));
                }
                None => return Ok(items),
            }
        }
        Err(Failure::failed(format!(
            "the listing of {path} does not end"
        )))
    }

    /// Reads a listing that is not paged: `{items: […]}`, or the items alone.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn list_whole(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let mut answer = self.get(path).await?;
        let items = match answer.get_mut("items") {
            Some(items) => items.take(),
            None => answer,
        };
        let Value::Array(items) = items else {
            return Err(Failure::failed(format!(
                "{} answered with no list",
                self.who
            )));
        };
        Ok(items)
    }

    /// Creates something; a server that has the very same answers with it.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn create(&self, path: &str, body: &Value) -> Result<(Created, Value), Failure> {
        let (status, answer) = self.send(Method::POST, path, Some(body)).await?;
        let created = if status == StatusCode::CREATED {
            Created::New
        } else {
            Created::Unchanged
        };
        Ok((created, answer))
    }

    /// Asks the server to do something.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        Ok(self.send(Method::POST, path, body).await?.1)
    }

    /// Changes something.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        Ok(self.send(Method::PATCH, path, Some(body)).await?.1)
    }

    /// Puts something in the place of what was there.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        Ok(self.send(Method::PUT, path, Some(body)).await?.1)
    }

    /// Removes something.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// Removes what the body describes.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn delete_this(&self, path: &str, body: &Value) -> Result<(), Failure> {
        self.send(Method::DELETE, path, Some(body)).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let mut waits = BUSY_WAITS.into_iter();
        let mut token = self.token.clone();
        let mut renewal = self.renewal.as_ref();
        loop {
            let answer = self
                .send_once(method.clone(), path, body, token.as_ref())
                .await;
            let failure = match answer {
                Err(failure) => failure,
                answer => return answer,
            };
            match failure.code.as_deref() {
                Some("busy") => match waits.next() {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(failure),
                },
                // The credential is looked at first, so nothing was done.
                Some("unauthorized") => match renewal.take() {
                    Some(source) => match Box::pin(source.next_token()).await {
                        Ok(another) if Some(&another) != token.as_ref() => token = Some(another),
                        _ => return Err(failure),
                    },
                    None => return Err(failure),
                },
                _ => return Err(failure),
            }
        }
    }

    async fn send_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        token: Option<&Secret>,
    ) -> Result<(StatusCode, Value), Failure> {
        let writes = method != Method::GET;
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.bearer_auth(token.reveal());
        }
        if let Some((name, value)) = &self.header {
            request = request.header(name.clone(), value.clone());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error, writes))?;
        let status = answer.status();
        let bytes = self.read(answer, writes).await?;
        if status.is_success() {
            let value = if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes).map_err(|error| {
                    Failure::failed(format!("{} answered with no JSON: {error}", self.who))
                })?
            };
            return Ok((status, value));
        }
        let refusal: Refusal = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(self.refused(status, &refusal, writes))
    }

    /// Reads a body as it comes, so that no more is held than any answer of ours has.
    async fn read(&self, mut answer: reqwest::Response, writes: bool) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        loop {
            let chunk = answer.chunk().await;
            let Some(chunk) = chunk.map_err(|error| self.unreachable(&error, writes))? else {
                return Ok(bytes);
            };
            if bytes.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                return Err(Failure::failed(format!(
                    "{} answered with more than {ANSWER_BYTES_MAX} bytes, which none of ours does",
                    self.who
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
    }

    /// A request that never got an answer. Only a write that may have arrived is of unknown
    /// outcome; a connection that was never made did nothing.
    fn unreachable(&self, error: &reqwest::Error, writes: bool) -> Failure {
        let why = innermost(error);
        if let Some(code) = about_certificate(&why) {
            // Nobody read the request: a server looks at the certificate first.
            return Failure::new(
                Exit::Refused,
                format!("{} refuses this client in the handshake: {why}", self.who),
            )
            .with_code(code)
            .with_hint(CERTIFICATE_HINT);
        }
        if error.is_connect() {
            return Failure::new(
                Exit::Unavailable,
                format!("{} at {} cannot be reached: {why}", self.who, self.url),
            )
            .with_hint("is it running? `felixctl dev` starts one; `felixctl context show` says where this command looks");
        }
        if error.is_builder() {
            return Failure::usage(format!(
                "{} cannot be asked at {}: {why}",
                self.who, self.url
            ));
        }
        if writes {
            return Failure::new(
                Exit::OutcomeUnknown,
                format!(
                    "{} did not answer; the change may have been made: {why}",
                    self.who
                ),
            );
        }
        let why = if error.is_timeout() {
            "it took too long".to_owned()
        } else {
            why
        };
        Failure::new(
            Exit::Unavailable,
            format!("{} did not answer: {why}", self.who),
        )
    }

    fn refused(&self, status: StatusCode, refusal: &Refusal, writes: bool) -> Failure {
        let exit = match (status.as_u16(), refusal.code.as_str()) {
            (503, "unavailable") if writes => Exit::OutcomeUnknown,
            (400 | 422, _) => Exit::Usage,
            (401 | 403, _) => Exit::Refused,
            (404, _) => Exit::NotFound,
            (409, _) => Exit::Conflict,
            (408 | 429 | 502..=504, _) => Exit::Unavailable,
            _ => Exit::Failed,
        };
        let message = if refusal.message.is_empty() {
            format!("{} answered {status}", self.who)
        } else {
            format!("{} says: {}", self.who, refusal.message)
        };
        let mut failure = Failure::new(exit, message);
        if !refusal.code.is_empty() {
            failure = failure.with_code(refusal.code.clone());
        }
        if status == StatusCode::UNAUTHORIZED {
            // The control plane looks at the credential before it looks for the tenant, so a
            // tenant that does not exist says the same as a bad token.
            failure = failure.with_hint(
                "the token is wrong or expired, or the tenant does not exist; \
                 `felixctl token decode` shows what it says",
            );
        }
        failure
    }
}

/// What to do when a server wants another certificate.
pub(crate) const CERTIFICATE_HINT: &str = "--client-cert-file and --client-key-file present a certificate; one of an authority that the server trusts is needed";

/// The code for an alert with which a server refuses a client's certificate, or the lack of one, by the words that rustls
/// has for alerts it received.
fn about_certificate(why: &str) -> Option<&'static str> {
    let alert = why.strip_prefix("received fatal alert: ")?;
    let alert: String = alert.chars().filter(char::is_ascii_alphabetic).collect();
    match alert.to_ascii_lowercase().as_str() {
        "certificaterequired" => Some("certificate_required"),
        "badcertificate"
        | "unsupportedcertificate"
        | "certificaterevoked"
        | "certificateexpired"
        | "certificateunknown"
        | "unknownca"
        | "accessdenied" => Some("certificate_refused"),
        _ => None,
    }
}

/// The last sentence of a chain of errors: the cause, without the layers that only passed it on.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Makes a text safe as one part of a path or as a value of a query.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                quoted.push(char::from(byte));
            }
            byte => quoted.push_str(&format!("%{byte:02X}")),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api() -> Api {
        let timeout = Duration::from_secs(1);
        Api::new(
            "http://127.0.0.1:9/",
            None,
            &Tls::default(),
            timeout,
            "the control plane",
        )
        .expect("an api")
    }

    #[test]
    fn a_refusal_keeps_its_code_and_chooses_the_exit_status() {
        let table = [
            (400, "validation_error", false, Exit::Usage),
            (401, "unauthorized", false, Exit::Refused),
            (403, "forbidden", false, Exit::Refused),
            (404, "not_found", false, Exit::NotFound),
            (409, "conflict", true, Exit::Conflict),
            (500, "internal", true, Exit::Failed),
            (503, "busy", true, Exit::Unavailable),
            (503, "unavailable", true, Exit::OutcomeUnknown),
            (503, "unavailable", false, Exit::Unavailable),
            (503, "upgrade_in_progress", true, Exit::Unavailable),
        ];
        for (status, code, writes, exit) in table {
            let refusal = Refusal {
                code: code.into(),
                message: "no".into(),
            };
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = api().refused(status, &refusal, writes);
            assert_eq!(failure.exit, exit, "{status} {code}");
            assert_eq!(failure.code.as_deref(), Some(code));
        }
    }

    #[test]
    fn an_answer_that_is_no_refusal_of_ours_is_still_understood() {
        let failure = api().refused(StatusCode::BAD_GATEWAY, &Refusal::default(), true);
        assert_eq!(failure.exit, Exit::Unavailable);
        assert_eq!(
            failure.message,
            "the control plane answered 502 Bad Gateway"
        );
    }

    #[test]
    fn an_address_without_a_scheme_is_refused_before_anything_is_sent() {
        let refused = Api::new(
            "127.0.0.1:8443",
            None,
            &Tls::default(),
            Duration::from_secs(1),
            "the control plane",
        );
        assert_eq!(refused.expect_err("no scheme").exit, Exit::Usage);
    }

    #[tokio::test]
    async fn a_write_to_a_closed_port_did_nothing_and_says_so() {
        let failure = api()
            .delete("/v1/tenants/x")
            .await
            .expect_err("nobody listens");
        assert_eq!(failure.exit, Exit::Unavailable);
    }

    #[test]
    fn alerts_about_certificates_are_told_from_others() {
        use rustls::AlertDescription as Alert;
        let code = |alert| about_certificate(&rustls::Error::AlertReceived(alert).to_string());
        assert_eq!(
            code(Alert::CertificateRequired),
            Some("certificate_required")
        );
        for alert in [
            Alert::BadCertificate,
            Alert::CertificateExpired,
            Alert::UnknownCA,
            Alert::AccessDenied,
        ] {
            assert_eq!(code(alert), Some("certificate_refused"), "{alert:?}");
        }
        assert_eq!(code(Alert::InternalError), None);
        assert_eq!(about_certificate("connection reset"), None);
    }

    #[test]
    fn parts_of_a_path_are_quoted() {
        assert_eq!(quote("a/b c?d=é"), "a%2Fb%20c%3Fd%3D%C3%A9");
        assert_eq!(quote("orders-1.x_y~"), "orders-1.x_y~");
    }
}
