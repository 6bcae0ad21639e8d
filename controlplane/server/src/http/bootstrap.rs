//! The bootstrap listener: day zero, and tokens for development.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use felix_meta::http::{DevTokenSpec, InitializeAnswer, TokenAnswer};
use sha2::{Digest, Sha256};

use super::body::{Raw, Unkept, name};
use super::error::Refusal;
use super::tokens;
use crate::app::App;
use crate::audit::Note;
use crate::config::Secret;
use crate::limits::BODY_BYTES_MAX;
use crate::request;

/// Who acts, as far as the audit can tell, when somebody knows the bootstrap token.
const BOOTSTRAP: &str = "bootstrap";

/// What every path of this listener begins with. The API has none of them.
pub(super) const BOOTSTRAP_PATHS: &str = "/internal/bootstrap/";

const HEADER: &str = "x-felix-bootstrap-token";

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route(
            "/internal/bootstrap/tenants/{tenant_id}/initialize",
            post(initialize),
        )
        .route(
            "/internal/bootstrap/tenants/{tenant_id}/dev-token",
            post(dev_token),
        )
        .fallback(|| async { Refusal::not_found("no such path on the bootstrap listener") })
        .method_not_allowed_fallback(|| async { Refusal::method_not_allowed() })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn_with_state(
            app.clone(),
            super::watch::bootstrap,
        ))
        .with_state(app)
}

async fn initialize(
    State(app): State<App>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    body: Raw,
) -> Result<Unkept<InitializeAnswer>, Refusal> {
    let outcome = async {
        must_know_the_token(&app, &headers)?;
        let tenant = name("tenant_id", &tenant)?;
        request::identify_as(BOOTSTRAP, &tenant, None);
        tokens::initialize(&app, &tenant, body.read()?).await
    };
    counted(&app, "initialized", outcome.await)
}

async fn dev_token(
    State(app): State<App>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    body: Raw,
) -> Result<Unkept<TokenAnswer>, Refusal> {
    let outcome = async {
        must_know_the_token(&app, &headers)?;
        if !app.config.bootstrap_dev_tokens {
            return Err(Refusal::not_enabled("bootstrap_dev_tokens is off"));
        }
        let tenant = name("tenant_id", &tenant)?;
        let spec: DevTokenSpec = body.read()?;
        request::identify_as(&spec.principal, &tenant, None);
        let minted = tokens::dev_session(&app, &tenant, &spec).await?;
        app.notebook.note(Note {
            tenant: Some(&tenant),
            what: "login",
            reason: "dev_token",
        });
        Ok(minted)
    };
    counted(&app, "dev_token", outcome.await)
}

fn counted<T>(
    app: &App,
    done: &'static str,
    outcome: Result<T, Refusal>,
) -> Result<Unkept<T>, Refusal> {
    match &outcome {
        Ok(_) => app.stats.bootstrap("ok", done),
        Err(refusal) => app.stats.bootstrap("refused", refusal.code),
    }
    outcome.map(Unkept)
}

fn must_know_the_token(app: &App, headers: &HeaderMap) -> Result<(), Refusal> {
    if knows_the_token(app, headers) {
        return Ok(());
    }
    Err(Refusal::unauthorized("this needs the bootstrap token"))
}

pub(super) fn knows_the_token(app: &App, headers: &HeaderMap) -> bool {
    let presented = headers
        .get(HEADER)
        .map_or(&b""[..], |value| value.as_bytes());
    let current = is_same(presented, &app.config.bootstrap_token);
    let previous = is_same(presented, &app.config.bootstrap_token_previous);
    current | previous
}

/// Compares in a time that tells nothing about where the two differ, nor about the length of the secret: digests are
/// compared, all of them, always.
fn is_same(presented: &[u8], secret: &Secret) -> bool {
    let (a, b) = (
        Sha256::digest(presented),
        Sha256::digest(secret.0.as_bytes()),
    );
    let difference = a.iter().zip(b.iter()).fold(0, |sum, (a, b)| sum | (a ^ b));
    difference == 0 && !secret.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_secret_is_the_secret_and_an_empty_one_never_is() {
        let secret = Secret("s3cret".into());
        assert!(is_same(b"s3cret", &secret));
        assert!(!is_same(b"s3cre", &secret));
        assert!(!is_same(b"", &secret));
        assert!(!is_same(b"", &Secret::default()));
    }
}
