//! The listener for probes and metrics. It has no authentication and says nothing worth protecting.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;

use super::error::Refusal;
use super::system::{live, readiness};
use crate::app::App;
use crate::stats::Ledger;

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { Refusal::not_found("there are /live, /ready and /metrics") })
        .with_state(app)
}

async fn ready(State(app): State<App>) -> Result<Json<Value>, Refusal> {
    readiness(&app)
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let revision = app.authority.catalogue().revision().0;
    let ledger = Ledger {
        standing: app.authority.standing(),
        measures: app.authority.measures(),
    };
    let text = app.stats.to_prometheus(app.is_ready(), revision, &ledger);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
