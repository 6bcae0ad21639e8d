//! The operator's listener: `/live`, `/ready`, `/metrics`, `/shards`, `/groups`, `/quotas`, `/backup`. Plain HTTP, no authentication.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::broker::Shared;

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
        .route("/shards", get(shards))
        .route("/groups", get(groups))
        .route("/quotas", get(quotas))
        .route("/backup", post(backup))
        .with_state(shared)
        .into_make_service_with_connect_info::<SocketAddr>();
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

/// What the broker holds on disk and how each shard is: `open`, `idle`, `corrupt` or `orphan`.
async fn shards(State(shared): State<Arc<Shared>>) -> Response {
    let mut shards = shared.shards.listing();
    shards.extend(shared.caches.listing());
    Json(json!({ "version": 1, "node_id": shared.config.node_id, "shards": shards }))
        .into_response()
}

/// Every consumer group of every open shard, with its position, lag and dead letters.
async fn groups(State(shared): State<Arc<Shared>>) -> Response {
    let groups = crate::groups::listing(&shared);
    Json(json!({ "version": 1, "node_id": shared.config.node_id, "groups": groups }))
        .into_response()
}

/// What every tenant uses of this broker, and what bounds it.
async fn quotas(State(shared): State<Arc<Shared>>) -> Response {
    let tenants = shared.quotas.listing();
    Json(json!({ "version": 1, "node_id": shared.config.node_id, "tenants": tenants }))
        .into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupQuery {
    /// An absolute path of a directory that does not exist or is empty.
    to: PathBuf,
}

/// Writes a prefix-consistent copy of every shard log. Only from this host: it names a path of this host.
async fn backup(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(query): Query<BackupQuery>,
) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        return failed(
            StatusCode::FORBIDDEN,
            "forbidden",
            "a backup is asked for on the broker's own host",
        );
    }
    if !query.to.is_absolute() {
        return failed(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "`to` must be an absolute path",
        );
    }
    match crate::backup::write(&shared, query.to).await {
        Ok(report) => Json(report).into_response(),
        Err(error) => failed(StatusCode::CONFLICT, error.code(), &error.to_string()),
    }
}

fn failed(status: StatusCode, code: &str, message: &str) -> Response {
    (
        status,
        Json(json!({ "code": code, "message": message, "request_id": null })),
    )
        .into_response()
}
