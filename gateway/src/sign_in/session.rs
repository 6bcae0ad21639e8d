//! Who a browser is signed in as.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::{SignIn, guard, session_of};
use crate::identity::now;

/// What a page may know of its sign-in. No token is in it.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    signed_in: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Milliseconds until the person has to sign in again at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
}

pub(super) async fn session(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    let found = session_of(&request.headers).and_then(|id| sign_in.sessions.find(&id));
    let found = found.as_deref();
    let left = found.map(|session| session.ends_at().0.saturating_sub(now().0));
    let answer = Answer {
        signed_in: found.is_some(),
        subject: found.map(|session| session.subject()),
        name: found.and_then(|session| session.name()),
        expires_in_ms: left,
    };
    let mut response = Json(answer).into_response();
    guard(response.headers_mut());
    response
}
