//! Ends a sign-in, and with it every socket that came in by it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::{SignIn, answer, cookie, session_of, store};

/// A header that no page of another site can send without being asked about it first. Any value will do.
const HEADER: &str = "x-felix-sign-out";

pub(super) async fn logout(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    let seen = sign_in.seen(&request);
    let headers = &request.headers;
    if let Err(refused) = sign_in.origins.must(headers, &seen) {
        return answer(StatusCode::FORBIDDEN, &format!("{refused}\n"));
    }
    if !headers.contains_key(HEADER) {
        let message = format!("send the header {HEADER}: 1\n");
        return answer(StatusCode::FORBIDDEN, &message);
    }
    if let Some(id) = session_of(headers) {
        sign_in.sessions.end(&id);
    }
    let mut response = answer(StatusCode::NO_CONTENT, "");
    store(&mut response, &[cookie::clear(cookie::SESSION)]);
    response
}
