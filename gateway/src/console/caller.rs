//! Who asks, and whether this request may change anything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use felix_client::Client;
use felix_process::Slot;

use super::limits::{BODY_BYTES, CALLS, LIVES};
use super::people::{Credential, Person};
use super::places::Room;
use super::refusal::Refusal;
use crate::address::Seen;
use crate::app::App;
use crate::identity::Secret;
use crate::sign_in::session_of;

/// A header that no page of another site can send without being asked about it first.
const HEADER: HeaderName = HeaderName::from_static("x-felix-console");

/// Somebody who asks, with one of his places among those that run, and room for what he sends.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) app: App,
    pub(super) person: Arc<Person>,
    _place: Slot<Arc<str>>,
    _room: Option<Room>,
}

/// Somebody who looks on while something happens.
#[derive(Debug)]
pub(super) struct Onlooker {
    pub(super) app: App,
    pub(super) person: Arc<Person>,
    _place: Slot<Arc<str>>,
}

impl Caller {
    /// Brokers, asked in his name.
    pub(super) async fn client(&self, namespace: &str) -> Result<Client, Refusal> {
        self.person.client(&self.app, namespace).await
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let person = person(parts, app).await?;
        let places = &app.console.places;
        let place = places.calls.take(person.principal(), usize::MAX, CALLS);
        let place = place.ok_or_else(|| Refusal::too_many("requests", CALLS))?;
        let room = match parts.method {
            Method::GET | Method::HEAD => None,
            _ => Some(places.room(person.principal(), body_bytes(&parts.headers))?),
        };
        let app = app.clone();
        Ok(Self {
            app,
            person,
            _place: place,
            _room: room,
        })
    }
}

impl FromRequestParts<App> for Onlooker {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let person = person(parts, app).await?;
        let places = &app.console.places.lives;
        let place = places.take(person.principal(), usize::MAX, LIVES);
        let place = place.ok_or_else(|| Refusal::too_many("live views", LIVES))?;
        let app = app.clone();
        Ok(Self {
            app,
            person,
            _place: place,
        })
    }
}

/// Bytes that may come as a body, whose length its head need not say.
fn body_bytes(headers: &HeaderMap) -> usize {
    if headers.contains_key(TRANSFER_ENCODING) {
        return BODY_BYTES;
    }
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    length.map_or(0, |length| {
        length.parse().unwrap_or(BODY_BYTES).min(BODY_BYTES)
    })
}

async fn person(parts: &Parts, app: &App) -> Result<Arc<Person>, Refusal> {
    let credential = match bearer(&parts.headers) {
        Some(token) => Credential::Token(token),
        None => Credential::Session(
            session_of(&parts.headers)
                .ok_or_else(|| Refusal::signed_out("nobody is signed in here"))?,
        ),
    };
    let seen = seen(app, &parts.headers, &parts.extensions);
    app.console.person(app, &seen, credential).await
}

fn seen(app: &App, headers: &HeaderMap, extensions: &Extensions) -> Seen {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    Seen::read(headers, peer, app.door.trusted_proxies)
}

fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| Secret::new(token.trim()))
}

/// Lets requests that change something through only when the gateway lets its console write, the header is there that
/// other sites cannot send, and the page is one of the allowed origins.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match may_change(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn may_change(app: &App, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let seen = seen(app, headers, request.extensions());
    let foreign = |refused| Refusal::forbidden("foreign_origin", refused);
    if request.method() == Method::GET {
        app.door.origins.check(headers, &seen).map_err(foreign)?;
        return Ok(());
    }
    if !headers.contains_key(&HEADER) {
        let message = format!("send the header {HEADER}: 1");
        return Err(Refusal::forbidden("csrf", message));
    }
    // A token in a header was put there by whoever holds it; a cookie is sent by any page.
    match bearer(headers) {
        Some(_) => app.door.origins.check(headers, &seen).map(drop),
        None => app.door.origins.must(headers, &seen),
    }
    .map_err(foreign)?;
    if !app.config.console_writes {
        let message = "this gateway's console shows and does not change (console_writes)";
        return Err(Refusal::forbidden("read_only", message));
    }
    Ok(())
}
