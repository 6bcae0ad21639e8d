//! Every route of the gateway.

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde::Serialize;
use tower_http::services::ServeDir;

use crate::app::App;
use crate::headers;
use crate::limits::ANSWER_TIMEOUT;
use crate::pages::{Page, Pages};

/// How to sign in: what a page needs to begin.
#[derive(Debug, Serialize)]
struct Oidc<'a> {
    issuer: &'a str,
    client_id: &'a str,
    scopes: &'a str,
}

/// All routes: each room brings its own, and what none of them knows is a file.
pub(crate) fn router(app: App, pages: Option<Pages>) -> Router {
    let policy = headers::policy(&app.config);
    let routes = Router::new()
        .route("/oidc", get(oidc))
        .route("/live", get(|| async { "ok\n" }))
        .merge(crate::sign_in::routes())
        .merge(crate::socket::routes())
        .merge(crate::console::routes(&app))
        .merge(crate::metrics::routes());
    let routes = match (&app.config.web_dir, pages) {
        (Some(directory), _) => routes.fallback_service(ServeDir::new(directory)),
        (None, Some(pages)) => {
            routes.fallback(get(move |uri: Uri| async move { page(&pages, uri.path()) }))
        }
        (None, None) => routes,
    };
    routes
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn(move |request, next| {
            headers::protect(policy.clone(), request, next)
        }))
        .with_state(app)
}

/// Gives up a request whose answer does not begin in time.
async fn in_time(request: Request, next: Next) -> Response {
    let answering = next.run(request);
    match tokio::time::timeout(ANSWER_TIMEOUT, answering).await {
        Ok(answer) => answer,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

async fn oidc(State(app): State<App>) -> Response {
    let config = &app.config;
    Json(Oidc {
        issuer: &config.oidc_issuer,
        client_id: &config.oidc_client_id,
        scopes: &config.oidc_scopes,
    })
    .into_response()
}

fn page(pages: &Pages, path: &str) -> Response {
    let name = match path.trim_start_matches('/') {
        "" => "index.html",
        name => name,
    };
    match pages.find(name) {
        Some(Page { kind, bytes }) => {
            let head = [
                (header::CONTENT_TYPE, kind),
                (header::CACHE_CONTROL, "no-cache"),
            ];
            (head, bytes).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
