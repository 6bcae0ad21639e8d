//! Ends a sign-in, and with it every socket that came in by it; and at the provider too, where the browser is sent for
//! that (OpenID Connect RP-Initiated Logout).
//!
//! The page is not given what the provider wants to see: it opens an address of this gateway, which sends the browser on.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::callback::secret_field;
use super::leaving::LOGOUT_TIME;
use super::login::no_randomness;
use super::{SignIn, answer, cookie, go, guard, return_to, session_of, store};
use crate::identity::Secret;

/// A header that no page of another site can send without being asked about it first. Any value will do.
const HEADER: &str = "x-felix-sign-out";
/// Where a browser goes on to the provider.
pub(super) const CONTINUE: &str = "/auth/logout/continue";
/// Where the provider sends it back to; it has to be told this address beforehand.
pub(super) const DONE: &str = "/auth/logout/done";

/// What a page is told whose provider can be signed out of as well.
#[derive(Debug, Serialize)]
struct Answer {
    continue_at: &'static str,
}

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
    let hint = session_of(headers).and_then(|id| sign_in.sessions.end(&id));
    let mut cookies = vec![cookie::clear(cookie::SESSION)];
    let mut response = match hint.filter(|_| sign_in.provider.signs_out()) {
        None => answer(StatusCode::NO_CONTENT, ""),
        Some(hint) => {
            let browser = match cookie::random() {
                Ok(browser) => browser,
                Err(error) => return no_randomness(&error),
            };
            sign_in.leaving().begin(&browser, hint, Instant::now());
            cookies.push(cookie::set(cookie::LOGOUT, &browser, LOGOUT_TIME.as_secs()));
            let mut response = Json(Answer {
                continue_at: CONTINUE,
            })
            .into_response();
            guard(response.headers_mut());
            response
        }
    };
    store(&mut response, &cookies);
    response
}

/// Sends a browser that has signed out here on to the provider.
pub(super) async fn proceed(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    sign_in.proceed(&request).unwrap_or_else(|refused| refused)
}

/// Takes a browser back that has signed out at the provider.
pub(super) async fn done(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    sign_in.returned(&request).unwrap_or_else(|refused| refused)
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
impl SignIn {
    fn proceed(&self, request: &Parts) -> Result<Response, Response> {
        let back = return_to::of(request)?;
        let browser = leaving_browser(request)?;
        let state = cookie::random().map_err(|error| no_randomness(&error))?;
        let redirect_uri = self.own_url(&self.seen(request), DONE)?;
        let sent = self.leaving().send(&browser, &state, &back, Instant::now());
        let hint = sent.ok_or_else(nothing_under_way)?;
        let url = self.provider.sign_out_url(&hint, &redirect_uri, &state);
        Ok(go(&url.ok_or_else(nothing_under_way)?, &[]))
    }

    fn returned(&self, request: &Parts) -> Result<Response, Response> {
        let state = secret_field(request, "state")?.ok_or_else(nothing_under_way)?;
        let browser = leaving_browser(request)?;
        let back = self.leaving().finish(&browser, &state, Instant::now());
        let back = back.ok_or_else(nothing_under_way)?;
        Ok(go(&back, &[cookie::clear(cookie::LOGOUT)]))
    }
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
fn leaving_browser(request: &Parts) -> Result<Secret, Response> {
    cookie::read(&request.headers, cookie::LOGOUT).ok_or_else(nothing_under_way)
}

fn nothing_under_way() -> Response {
    let message = "there is no sign-out under way in this browser\n";
    answer(StatusCode::BAD_REQUEST, message)
}
