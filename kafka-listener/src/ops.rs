//! The operator's listener: `/live`, `/ready`, `/metrics`. Plain HTTP, no authentication.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::listener::Shared;

/// Serves the listener until `stop` is cancelled.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/live", get(|| async { "ok\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(shared);
    axum::serve(listener, app)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match shared.readiness() {
        Ok(()) => (StatusCode::OK, "ready\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    shared.refresh_gauges();
    (
        [("content-type", "text/plain; version=0.0.4")],
        shared.metrics.render(),
    )
        .into_response()
}
