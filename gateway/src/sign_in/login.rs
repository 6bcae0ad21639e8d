//! Sends a browser to the provider.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::pending::{LOGIN_TIME, Login};
use super::provider::ProviderFailed;
use super::{SignIn, answer, cookie, field, go, return_to};
use crate::address::Seen;

pub(super) async fn login(State(sign_in): State<Arc<SignIn>>, request: Parts) -> Response {
    sign_in
        .begin(&request)
        .await
        .unwrap_or_else(|refused| refused)
}

impl SignIn {
    async fn begin(&self, request: &Parts) -> Result<Response, Response> {
        let back = return_to::of(request)?;
        let prompt = prompt(field(request, "prompt")?.as_deref())?;
        let seen = self.seen(request);
        let redirect_uri = self.own_url(&seen, "/auth/callback")?;
        let asked = self.provider.ask(&redirect_uri, prompt).await;
        let asked = asked.map_err(|failed| refusal(&failed))?;
        // Two tabs that sign in at the same time share the cookie, so that neither ends the other's login.
        let browser = match cookie::read(&request.headers, cookie::LOGIN) {
            Some(browser) => browser,
            None => cookie::random().map_err(|error| no_randomness(&error))?,
        };
        let login = Login {
            browser: browser.digest(),
            words: asked.words,
            return_to: back,
            from: seen.ip,
            began_at: Instant::now(),
        };
        self.pending().begin(&asked.state, login);
        let cookie = cookie::set(cookie::LOGIN, &browser, LOGIN_TIME.as_secs());
        Ok(go(&asked.url, &[cookie]))
    }

    /// An address that the provider may send browsers back to. What a request says of itself is enough only on the
    /// machine itself, where nobody else can have said it.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal is an answer, made once and handed on"
    )]
    pub(super) fn own_url(&self, seen: &Seen, path: &str) -> Result<String, Response> {
        let unusable = |message: &str| Err(answer(StatusCode::SERVICE_UNAVAILABLE, message));
        if !self.origins.is_configured() && !seen.is_loopback() {
            return unusable("signing in here needs `public_url` in the gateway's configuration\n");
        }
        let Some(own) = self.origins.own(seen) else {
            return unusable("the request names no host\n");
        };
        if own.starts_with("http://") && !seen.is_loopback() {
            return unusable("signing in here needs https: browsers keep the cookie on no other\n");
        }
        Ok(format!("{own}{path}"))
    }
}

/// Whether the provider shall ask who it is even if it knows already.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
fn prompt(text: Option<&str>) -> Result<Option<&'static str>, Response> {
    match text {
        None => Ok(None),
        Some("login") => Ok(Some("login")),
        Some("select_account") => Ok(Some("select_account")),
        Some(_) => Err(answer(
            StatusCode::BAD_REQUEST,
            "`prompt` must be login or select_account\n",
        )),
    }
}

/// What a person reads when the provider gave nothing.
pub(super) fn refusal(failed: &ProviderFailed) -> Response {
    let status = match failed {
        ProviderFailed::Away => StatusCode::SERVICE_UNAVAILABLE,
        ProviderFailed::Refused(_) => StatusCode::FORBIDDEN,
        ProviderFailed::Unbelieved(_) => StatusCode::BAD_GATEWAY,
    };
    answer(status, &format!("Signing in did not work: {failed}.\n"))
}

pub(super) fn no_randomness(error: &getrandom::Error) -> Response {
    tracing::error!(%error, "nobody can sign in");
    answer(StatusCode::INTERNAL_SERVER_ERROR, "no randomness\n")
}
