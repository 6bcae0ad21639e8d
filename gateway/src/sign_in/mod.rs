//! Signing in at the gateway itself, for pages that should hold no token: the code flow with PKCE, state and nonce, and a
//! cookie at the end of it. The provider's tokens never leave this process.
//!
//! `GET /auth/login?return_to=PATH` · `GET /auth/callback` · `POST /auth/logout` · `GET /auth/logout/continue` ·
//! `GET /auth/logout/done` · `GET /auth/session`

mod callback;
mod cookie;
mod http;
mod leaving;
mod login;
mod logout;
mod pending;
mod provider;
mod return_to;
mod session;
mod store;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{ConnectInfo, FromRef};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rustls::pki_types::CertificateDer;

use crate::address::Seen;
use crate::identity::Secret;
use crate::origin::Origins;

use self::http::Http;
use leaving::Leaving;
use pending::Pending;
use provider::Provider;

pub(crate) use store::{Session, SessionId, Sessions};

/// What signing in needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    /// With spaces between.
    pub(crate) scopes: String,
    /// Trusted for the provider beside the machine's own.
    pub(crate) provider_roots: Vec<CertificateDer<'static>>,
    pub(crate) origins: Origins,
    pub(crate) trusted_proxies: usize,
}

/// Signs people in.
#[derive(Debug)]
pub(crate) struct SignIn {
    provider: Arc<Provider>,
    pending: Mutex<Pending>,
    leaving: Mutex<Leaving>,
    sessions: Arc<Sessions>,
    origins: Origins,
    trusted_proxies: usize,
}

impl SignIn {
    /// Prepares; nothing is asked yet.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(crate) fn new(settings: Settings) -> Result<Self, reqwest::Error> {
        let provider = Provider::new(
            &settings.issuer,
            &settings.client_id,
            settings.client_secret,
            &settings.scopes,
            Http::new(&settings.provider_roots)?,
        );
        Ok(Self {
            provider: Arc::new(provider),
            pending: Mutex::default(),
            leaving: Mutex::default(),
            sessions: Arc::default(),
            origins: settings.origins,
            trusted_proxies: settings.trusted_proxies,
        })
    }

    /// The sign-ins, for whoever lets people in by them.
    pub(crate) fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.sessions)
    }

    fn seen(&self, request: &Parts) -> Seen {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
        Seen::read(&request.headers, peer, self.trusted_proxies)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes of this room.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<SignIn>: FromRef<S>,
{
    Router::new()
        .route("/auth/login", get(login::login))
        .route("/auth/callback", get(callback::callback))
        .route("/auth/logout", post(logout::logout))
        .route(logout::CONTINUE, get(logout::proceed))
        .route(logout::DONE, get(logout::done))
        .route("/auth/session", get(session::session))
}

/// The sign-in that a request names with its cookie. Whether it may act is for the caller to see: a request that does
/// must come from an allowed origin.
pub(crate) fn session_of(headers: &HeaderMap) -> Option<SessionId> {
    cookie::read(headers, cookie::SESSION).map(SessionId::new)
}

/// A sign-in of somebody, as one at the provider ends with.
#[cfg(test)]
pub(crate) fn opened(
    sessions: &Sessions,
    issuer: &str,
    subject: &str,
    id_token: Secret,
    refresh_token: Option<Secret>,
) -> SessionId {
    let http = Http::new(&[]).unwrap();
    let provider = Provider::new(issuer, crate::stub::provider::CLIENT, None, "openid", http);
    let signed_in = provider::SignedIn {
        id_token,
        refresh_token,
        subject: subject.to_owned(),
        name: None,
    };
    SessionId::new(sessions.open(signed_in, Arc::new(provider)).unwrap())
}

/// An answer of this room: kept nowhere, and no page is told where the browser was before.
fn answer(status: StatusCode, text: &str) -> Response {
    let mut response = (status, text.to_owned()).into_response();
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    guard(headers);
    response
}

/// Sends the browser elsewhere, with cookies.
fn go(to: &str, cookies: &[String]) -> Response {
    let Ok(to) = HeaderValue::from_str(to) else {
        return answer(StatusCode::INTERNAL_SERVER_ERROR, "no such address\n");
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, to);
    store(&mut response, cookies);
    guard(response.headers_mut());
    response
}

fn store(response: &mut Response, cookies: &[String]) {
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
}

fn guard(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// What somebody else said, fit to be shown: short, printable, and of characters that mean nothing anywhere.
fn words(said: &str) -> String {
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '_' | '-' | '.' | ',' | ':' | '(' | ')' => c,
        _ => ' ',
    };
    said.chars().take(200).map(plain).collect()
}

/// The single value of a query's field; [`Err`] when the field comes twice.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
fn field(request: &Parts, name: &str) -> Result<Option<String>, Response> {
    let query = request.uri.query().unwrap_or_default();
    let pairs = openidconnect::url::form_urlencoded::parse(query.as_bytes());
    let mut found = pairs.filter(|(key, _)| key == name);
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((_, value)), None) => Ok(Some(value.into_owned())),
        (Some(_), Some(_)) => Err(answer(
            StatusCode::BAD_REQUEST,
            &format!("`{name}` was given twice\n"),
        )),
    }
}
