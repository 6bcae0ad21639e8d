//! What brokers follow: one ordered feed of the whole catalogue, and the four published ones.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use felix_auth::{Action, Resource};
use felix_meta::http::{CatalogueChanges, CatalogueSnapshot};
use felix_meta::{ENTRY_VERSION, NamespaceRecord, Revision, TenantRecord};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::history::Feed;
use crate::limits::CHANGES_WAIT_MAX;

/// Where a reader of a feed is. What is missing or no number is 0, as in the field.
#[derive(Debug, Default)]
pub(crate) struct Since {
    since: u64,
    wait: Duration,
}

#[derive(Default, Deserialize)]
struct SinceText {
    since: Option<String>,
    wait_ms: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Since {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let query = Query::<SinceText>::from_request_parts(parts, state).await;
        let text = query.map(|Query(text)| text).unwrap_or_default();
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let wait = Duration::from_millis(number(text.wait_ms)).min(CHANGES_WAIT_MAX);
        Ok(Self {
            since: number(text.since),
            wait,
        })
    }
}

/// The whole catalogue at one revision, public keys included.
#[utoipa::path(get, path = "/v1/catalogue/snapshot", tag = "feeds",
    responses((status = 200, body = Object, description = "version and catalogue")))]
pub(crate) async fn catalogue_snapshot(
    State(app): State<App>,
    ticket: Ticket,
) -> Result<Json<CatalogueSnapshot>, Refusal> {
    must_view(&app, &ticket)?;
    let catalogue = app.authority.catalogue().for_nodes();
    Ok(Json(CatalogueSnapshot {
        version: ENTRY_VERSION,
        catalogue,
    }))
}

/// What happened after a revision. With `wait_ms` the answer is held until something happens, at most 25 s.
#[utoipa::path(get, path = "/v1/catalogue/changes", tag = "feeds",
    params(("since" = Option<u64>, Query), ("wait_ms" = Option<u64>, Query)),
    responses((status = 200, body = Object, description = "entries, revision, resync")))]
pub(crate) async fn catalogue_changes(
    State(app): State<App>,
    ticket: Ticket,
    at: Since,
) -> Result<Json<CatalogueChanges>, Refusal> {
    must_view(&app, &ticket)?;
    let since = Revision(at.since);
    if since > app.authority.catalogue().revision() {
        // Another process may have told of more than is known here. Without looking, its reader would be sent back.
        app.catch_up().await?;
    }
    // Watched before it is looked at, so that nothing slips in between.
    let mut watch = app.authority.watch();
    watch.mark_unchanged();
    let changes = app.authority.history().entries_after(since);
    let nothing_yet = changes.entries.is_empty() && !changes.resync;
    if !nothing_yet || at.wait.is_zero() {
        return Ok(Json(changes));
    }
    tokio::select! {
        _ = watch.wait_for(|catalogue| catalogue.revision() != since) => {}
        () = tokio::time::sleep(at.wait) => {}
        () = app.stopping.cancelled() => {}
    }
    let changes = app.authority.history().entries_after(since);
    Ok(Json(changes))
}

/// All tenants, and the number of the next change.
#[utoipa::path(get, path = "/v1/tenants/snapshot", tag = "feeds",
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn tenants_snapshot(
    State(app): State<App>,
    ticket: Ticket,
) -> Result<Json<Value>, Refusal> {
    must_view(&app, &ticket)?;
    let catalogue = app.authority.catalogue();
    let items: Vec<TenantRecord> = catalogue
        .tenants()
        .map(|(tenant, entry)| TenantRecord {
            tenant_id: tenant.clone(),
            display_name: entry.display_name.clone(),
        })
        .collect();
    Ok(Json(
        json!({ "items": items, "next_seq": catalogue.sequences().tenants }),
    ))
}

/// Changes to tenants from a number on.
#[utoipa::path(get, path = "/v1/tenants/changes", tag = "feeds",
    params(("since" = Option<u64>, Query)),
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn tenants_changes(
    State(app): State<App>,
    ticket: Ticket,
    at: Since,
) -> Result<Json<Value>, Refusal> {
    changes(&app, &ticket, Feed::Tenants, &at).await
}

/// All namespaces, and the number of the next change.
#[utoipa::path(get, path = "/v1/namespaces/snapshot", tag = "feeds",
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn namespaces_snapshot(
    State(app): State<App>,
    ticket: Ticket,
) -> Result<Json<Value>, Refusal> {
    must_view(&app, &ticket)?;
    let catalogue = app.authority.catalogue();
    let items: Vec<NamespaceRecord> = catalogue
        .namespaces()
        .map(|(tenant, namespace, entry)| NamespaceRecord {
            tenant_id: tenant.clone(),
            namespace: namespace.clone(),
            display_name: entry.display_name.clone(),
        })
        .collect();
    Ok(Json(
        json!({ "items": items, "next_seq": catalogue.sequences().namespaces }),
    ))
}

/// Changes to namespaces from a number on.
#[utoipa::path(get, path = "/v1/namespaces/changes", tag = "feeds",
    params(("since" = Option<u64>, Query)),
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn namespaces_changes(
    State(app): State<App>,
    ticket: Ticket,
    at: Since,
) -> Result<Json<Value>, Refusal> {
    changes(&app, &ticket, Feed::Namespaces, &at).await
}

/// All streams, and the number of the next change.
#[utoipa::path(get, path = "/v1/streams/snapshot", tag = "feeds",
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn streams_snapshot(
    State(app): State<App>,
    ticket: Ticket,
) -> Result<Json<Value>, Refusal> {
    must_view(&app, &ticket)?;
    let catalogue = app.authority.catalogue();
    let items: Vec<_> = catalogue.streams().collect();
    Ok(Json(
        json!({ "items": items, "next_seq": catalogue.sequences().streams }),
    ))
}

/// Changes to streams from a number on.
#[utoipa::path(get, path = "/v1/streams/changes", tag = "feeds",
    params(("since" = Option<u64>, Query)),
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn streams_changes(
    State(app): State<App>,
    ticket: Ticket,
    at: Since,
) -> Result<Json<Value>, Refusal> {
    changes(&app, &ticket, Feed::Streams, &at).await
}

/// All caches, and the number of the next change.
#[utoipa::path(get, path = "/v1/caches/snapshot", tag = "feeds",
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn caches_snapshot(
    State(app): State<App>,
    ticket: Ticket,
) -> Result<Json<Value>, Refusal> {
    must_view(&app, &ticket)?;
    let catalogue = app.authority.catalogue();
    let items: Vec<_> = catalogue.caches().collect();
    Ok(Json(
        json!({ "items": items, "next_seq": catalogue.sequences().caches }),
    ))
}

/// Changes to caches from a number on.
#[utoipa::path(get, path = "/v1/caches/changes", tag = "feeds",
    params(("since" = Option<u64>, Query)),
    responses((status = 200, body = Object, description = "items, next_seq")))]
pub(crate) async fn caches_changes(
    State(app): State<App>,
    ticket: Ticket,
    at: Since,
) -> Result<Json<Value>, Refusal> {
    changes(&app, &ticket, Feed::Caches, &at).await
}

async fn changes(
    app: &App,
    ticket: &Ticket,
    feed: Feed,
    at: &Since,
) -> Result<Json<Value>, Refusal> {
    must_view(app, ticket)?;
    let read = || app.authority.history().rows_from(feed, at.since);
    let (mut items, mut next_seq) = read();
    if next_seq < at.since {
        app.catch_up().await?;
        (items, next_seq) = read();
    }
    Ok(Json(json!({ "items": items, "next_seq": next_seq })))
}

fn must_view(app: &App, ticket: &Ticket) -> Result<(), Refusal> {
    app.caller(ticket)?
        .must(Action::NodeView, &Resource::Cluster)
}
