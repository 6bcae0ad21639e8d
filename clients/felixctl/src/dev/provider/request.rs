//! What the authorization endpoint is asked, and which of it is refused.
//!
//! There are two kinds of refusal. While it is not sure who asks, the browser is sent nowhere: a page says what is wrong.
//! Afterwards the program is told, at its own address (OpenID Connect Core 3.1.2.6).

use reqwest::Url;
use serde::Deserialize;

use super::CLIENT_ID;
use super::people::Person;

/// Bytes of a value at most; a `state` may carry an address to come back to.
const VALUE_BYTES_MAX: usize = 2048;
/// What this machine is called.
pub(super) const HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// Characters of a SHA-256 in base64url.
const CHALLENGE_CHARS: usize = 43;

/// The parameters as they come. Those of OpenID Connect that are not here are not supported and need not be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    pub(super) response_type: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) redirect_uri: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) state: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) code_challenge: Option<String>,
    pub(super) code_challenge_method: Option<String>,
    pub(super) prompt: Option<String>,
    pub(super) login_hint: Option<String>,
    pub(super) response_mode: Option<String>,
    pub(super) request: Option<String>,
    pub(super) request_uri: Option<String>,
    /// Who was chosen on the page.
    pub(super) person: Option<String>,
    /// The name that was typed on the page.
    pub(super) name: Option<String>,
}

/// Why the browser is sent nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoSuchProgram {
    /// The client is another than the one there is.
    #[error("this provider knows one program, `{CLIENT_ID}`")]
    Client,
    /// The address is none of this machine.
    #[error(
        "browsers are sent back to http addresses of this machine only: http://127.0.0.1:PORT/…"
    )]
    Redirect,
    /// A value is longer than any that is meant.
    #[error("`{0}` is longer than {VALUE_BYTES_MAX} bytes")]
    TooLong(&'static str),
}

/// Why the program does not get a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("only the code flow is served")]
    ResponseType,
    #[error("the answer comes in the query only")]
    ResponseMode,
    #[error(
        "PKCE is required: `code_challenge` of 43 characters with `code_challenge_method=S256`"
    )]
    NoChallenge,
    #[error("the scope `openid` is required")]
    NoOpenId,
    #[error("`request` is not supported")]
    RequestObject,
    #[error("`request_uri` is not supported")]
    RequestUri,
    #[error("`prompt=none` goes with nothing else")]
    Prompt,
    #[error("nobody is signed in here; `prompt=none` needs a `login_hint` that names somebody")]
    LoginRequired,
    #[error("the name is nobody's")]
    Nobody,
    #[error("the person went back")]
    Cancelled,
}

impl Denied {
    /// The code of RFC 6749 section 4.1.2.1 and OpenID Connect Core 3.1.2.6.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::ResponseType => "unsupported_response_type",
            Self::ResponseMode | Self::NoChallenge | Self::Prompt => "invalid_request",
            Self::NoOpenId => "invalid_scope",
            Self::RequestObject => "request_not_supported",
            Self::RequestUri => "request_uri_not_supported",
            Self::LoginRequired | Self::Nobody => "login_required",
            Self::Cancelled => "access_denied",
        }
    }
}

/// A request of the one program, to be answered at an address of this machine.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// As it was written: at the token endpoint it must be the same, byte for byte.
    pub(super) redirect_uri: String,
    redirect: Url,
    pub(super) state: Option<String>,
}

/// A request that may be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grantable {
    pub(super) redirect_uri: String,
    pub(super) nonce: Option<String>,
    pub(super) scope: String,
    pub(super) challenge: String,
}

/// Who is meant, before anybody was shown a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one, without asking.
    Made(Person),
    /// The page is to be shown.
    Open,
}

impl Asked {
    /// Finds out who asks, and where the answer goes.
    pub(super) fn request(&self) -> Result<Request, NoSuchProgram> {
        for (name, value) in self.named() {
            if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
                return Err(NoSuchProgram::TooLong(name));
            }
        }
        if self.client_id.as_deref() != Some(CLIENT_ID) {
            return Err(NoSuchProgram::Client);
        }
        let redirect_uri = self.redirect_uri.as_deref().unwrap_or_default();
        let redirect = loopback(redirect_uri).ok_or(NoSuchProgram::Redirect)?;
        Ok(Request {
            redirect_uri: redirect_uri.to_owned(),
            redirect,
            state: self.state.clone(),
        })
    }

    /// Whether the request may be granted to somebody.
    pub(super) fn grantable(&self, request: &Request) -> Result<Grantable, Denied> {
        if self.request.is_some() {
            return Err(Denied::RequestObject);
        }
        if self.request_uri.is_some() {
            return Err(Denied::RequestUri);
        }
        if self.response_type.as_deref() != Some("code") {
            return Err(Denied::ResponseType);
        }
        if self
            .response_mode
            .as_deref()
            .is_some_and(|mode| mode != "query")
        {
            return Err(Denied::ResponseMode);
        }
        let scope = self.scope.as_deref().unwrap_or_default();
        if !scope.split(' ').any(|one| one == "openid") {
            return Err(Denied::NoOpenId);
        }
        let challenge = self.code_challenge.as_deref().unwrap_or_default();
        let is_s256 = self.code_challenge_method.as_deref() == Some("S256");
        if !is_s256 || challenge.len() != CHALLENGE_CHARS || !challenge.bytes().all(is_base64url) {
            return Err(Denied::NoChallenge);
        }
        Ok(Grantable {
            redirect_uri: request.redirect_uri.clone(),
            nonce: self.nonce.clone(),
            scope: scope.to_owned(),
            challenge: challenge.to_owned(),
        })
    }

    /// Whether it is said already who signs in.
    pub(super) fn choice(&self) -> Result<Choice, Denied> {
        let prompts: Vec<&str> = self
            .prompt
            .iter()
            .flat_map(|text| text.split(' '))
            .collect();
        if !prompts.contains(&"none") {
            return Ok(Choice::Open);
        }
        if prompts.len() > 1 {
            return Err(Denied::Prompt);
        }
        let hint = self.login_hint.as_deref().ok_or(Denied::LoginRequired)?;
        let person = Person::named(hint).map_err(|_| Denied::LoginRequired)?;
        Ok(Choice::Made(person))
    }

    /// Who was chosen on the page: a button, or the name that was typed.
    pub(super) fn chosen(&self) -> Result<Person, Denied> {
        match self.person.as_deref() {
            Some("") => Err(Denied::Cancelled),
            Some(person) => Person::named(person).map_err(|_| Denied::Nobody),
            None => {
                Person::named(self.name.as_deref().unwrap_or_default()).map_err(|_| Denied::Nobody)
            }
        }
    }

    /// What the page hands back as it came.
    pub(super) fn carried(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let on_page = ["prompt", "login_hint", "person", "name"];
        self.named()
            .into_iter()
            .filter(move |(name, _)| !on_page.contains(name))
            .filter_map(|(name, value)| Some((name, value?)))
    }

    fn named(&self) -> [(&'static str, Option<&str>); 15] {
        [
            ("response_type", self.response_type.as_deref()),
            ("client_id", self.client_id.as_deref()),
            ("redirect_uri", self.redirect_uri.as_deref()),
            ("scope", self.scope.as_deref()),
            ("state", self.state.as_deref()),
            ("nonce", self.nonce.as_deref()),
            ("code_challenge", self.code_challenge.as_deref()),
            (
                "code_challenge_method",
                self.code_challenge_method.as_deref(),
            ),
            ("prompt", self.prompt.as_deref()),
            ("login_hint", self.login_hint.as_deref()),
            ("response_mode", self.response_mode.as_deref()),
            ("request", self.request.as_deref()),
            ("request_uri", self.request_uri.as_deref()),
            ("person", self.person.as_deref()),
            ("name", self.name.as_deref()),
        ]
    }
}

impl Request {
    /// Where the browser goes with a code.
    pub(super) fn granted(&self, issuer: &str, code: &str) -> Url {
        self.answer(issuer, &[("code", code)])
    }

    /// Where the browser goes without one.
    pub(super) fn denied(&self, issuer: &str, denied: Denied) -> Url {
        let said = denied.to_string();
        self.answer(
            issuer,
            &[("error", denied.code()), ("error_description", &said)],
        )
    }

    fn answer(&self, issuer: &str, fields: &[(&str, &str)]) -> Url {
        let mut url = self.redirect.clone();
        {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(fields);
            if let Some(state) = &self.state {
                query.append_pair("state", state);
            }
            query.append_pair("iss", issuer);
        }
        url
    }
}

/// The address, when it is one of this machine that a program can listen on. The port is anybody's (RFC 8252 7.3).
pub(super) fn loopback(text: &str) -> Option<Url> {
    if text.len() > VALUE_BYTES_MAX {
        return None;
    }
    let url: Url = text.parse().ok()?;
    let host = url.host_str().is_some_and(|host| HOSTS.contains(&host));
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    // The text itself is what is compared later, so it must say plainly what it means.
    let as_written = HOSTS.iter().any(|host| {
        let rest = text
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_prefix(host));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    });
    (url.scheme() == "http" && host && plain && as_written).then_some(url)
}

const fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}
