//! What anyone may ask about the installation, and its backup.

use std::path::PathBuf;

use axum::Json;
use axum::extract::{Path, Query, State};
use felix_auth::{Action, Resource};
use felix_meta::http::Page;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::transfer;

/// One region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Region {
    region_id: String,
    display_name: String,
}

/// What this control plane is.
#[utoipa::path(get, path = "/v1/system/info", tag = "system", security(()),
    responses((status = 200, body = Object, description = "region_id, api_version, features")))]
pub(crate) async fn info(State(app): State<App>) -> Json<Value> {
    Json(json!({
        "region_id": app.config.region_id,
        "api_version": "v1",
        "features": { "durable_storage": true, "tiered_storage": false, "bridges": false },
    }))
}

/// Whether the process answers at all.
#[utoipa::path(get, path = "/v1/system/live", tag = "system", security(()),
    responses((status = 200, body = Object)))]
pub(crate) async fn live() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Whether to send callers here.
#[utoipa::path(get, path = "/v1/system/ready", tag = "system", security(()),
    responses((status = 200, body = Object), (status = 503, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<Value>, Refusal> {
    readiness(&app)
}

/// The same as ready, under its older name.
#[utoipa::path(get, path = "/v1/system/health", tag = "system", security(()),
    responses((status = 200, body = Object), (status = 503, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn health(State(app): State<App>) -> Result<Json<Value>, Refusal> {
    readiness(&app)
}

/// Where a backup goes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupQuery {
    to: PathBuf,
}

/// Copies the ledger, private keys included, into a directory of this machine that is empty or does not exist. Only
/// from this machine, because it names a place on it, and only for who operates the installation.
#[utoipa::path(post, path = "/v1/system/backup", tag = "system",
    params(("to" = String, Query, description = "an absolute path")),
    responses((status = 200, body = Object, description = "directory, revision, bytes")))]
pub(crate) async fn backup(
    State(app): State<App>,
    ticket: Ticket,
    Query(query): Query<BackupQuery>,
) -> Result<Json<Value>, Refusal> {
    app.caller(&ticket)?
        .must(Action::NodeManage, &Resource::Cluster)?;
    if !ticket.is_from_here() {
        return Err(Refusal::forbidden(
            "a backup is asked for on the control plane's own machine",
        ));
    }
    if !query.to.is_absolute() {
        return Err(Refusal::invalid("`to` must be an absolute path"));
    }
    let copied = transfer::copy_live(&app.authority, &app.config.cluster_id, &query.to)
        .await
        .map_err(|failed| Refusal::copy_failed(failed.to_string()))?;
    Ok(Json(json!({
        "version": 1, "directory": query.to, "revision": copied.revision, "bytes": copied.bytes,
    })))
}

/// All regions.
#[utoipa::path(get, path = "/v1/regions", tag = "system", security(()),
    responses((status = 200, body = Page<Region>)))]
pub(crate) async fn regions(State(app): State<App>) -> Json<Page<Region>> {
    Json(Page {
        items: vec![own_region(&app)],
        next_cursor: None,
    })
}

/// One region.
#[utoipa::path(get, path = "/v1/regions/{region_id}", tag = "system", security(()),
    params(("region_id" = String, Path)),
    responses((status = 200, body = Region), (status = 404, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn region(
    State(app): State<App>,
    Path(region): Path<String>,
) -> Result<Json<Region>, Refusal> {
    if region == app.config.region_id {
        return Ok(Json(own_region(&app)));
    }
    Err(Refusal::not_found(format!("no region `{region}`")))
}

pub(super) fn readiness(app: &App) -> Result<Json<Value>, Refusal> {
    if app.is_ready() {
        return Ok(Json(json!({ "status": "ok" })));
    }
    if app.is_draining() {
        return Err(Refusal::not_ready("draining"));
    }
    let why = app.authority.standing().why_not;
    Err(Refusal::not_ready(
        why.unwrap_or_else(|| "the ledger takes no writes".into()),
    ))
}

fn own_region(app: &App) -> Region {
    let region_id = app.config.region_id.clone();
    Region {
        display_name: region_id.clone(),
        region_id,
    }
}
