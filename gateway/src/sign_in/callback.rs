//! Takes a browser back from the provider.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::login::{no_randomness, refusal};
use super::provider::ProviderFailed;
use super::store::LIFE;
use super::{SignIn, answer, cookie, field, go, session_of, words};
use crate::identity::Secret;

/// Bytes of a code or a state that are looked at.
const ANSWER_BYTES_MAX: usize = 4_096;

pub(super) async fn callback(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    sign_in
        .finish(&request)
        .await
        .unwrap_or_else(|refused| refused)
}

impl SignIn {
    async fn finish(&self, request: &Parts) -> Result<Response, Response> {
        let bad = |message: &str| answer(StatusCode::BAD_REQUEST, message);
        let state = secret_field(request, "state")?
            .ok_or_else(|| bad("the answer does not say which login it belongs to\n"))?;
        let browser = cookie::read(&request.headers, cookie::LOGIN);
        let taken = self
            .pending()
            .take(&state, browser.as_ref(), Instant::now());
        let login = taken.map_err(|refused| {
            tracing::info!(%refused, "an answer of the provider is not taken");
            bad(&format!("{refused}; begin at /auth/login\n"))
        })?;
        let failed = |failed: ProviderFailed| {
            tracing::info!(%failed, "a login failed");
            refusal(&failed)
        };
        let issuer = field(request, "iss")?;
        self.provider
            .vouches(issuer.as_deref())
            .await
            .map_err(failed)?;
        if let Some(error) = field(request, "error")? {
            return Err(failed(ProviderFailed::Refused(words(&error))));
        }
        let code =
            secret_field(request, "code")?.ok_or_else(|| bad("the answer holds no code\n"))?;
        let signed_in = self
            .provider
            .redeem(&code, &login.words)
            .await
            .map_err(failed)?;
        tracing::info!("somebody signed in");
        // Always under a new name: whatever this browser held before is worth nothing now.
        if let Some(before) = session_of(&request.headers) {
            self.sessions.end(&before);
        }
        let opened = self.sessions.open(signed_in, Arc::clone(&self.provider));
        let id = opened.map_err(|error| no_randomness(&error))?;
        let cookie = cookie::set(cookie::SESSION, &id, LIFE.as_secs());
        Ok(go(&login.return_to, &[cookie]))
    }
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
pub(super) fn secret_field(request: &Parts, name: &str) -> Result<Option<Secret>, Response> {
    let value = field(request, name)?;
    match value {
        Some(value) if value.is_empty() || value.len() > ANSWER_BYTES_MAX => Err(answer(
            StatusCode::BAD_REQUEST,
            &format!("`{name}` is empty or too long\n"),
        )),
        value => Ok(value.map(Secret::new)),
    }
}
