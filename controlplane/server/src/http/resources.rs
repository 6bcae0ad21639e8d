//! The batch that makes streams and caches, all of them or none.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Resource};
use felix_meta::http::{CacheItem, ItemStatus, ResourcesAnswer, ResourcesSpec, StreamItem};
use felix_meta::limits::BATCH_ITEMS_MAX;
use felix_meta::{Command, Event};

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use crate::app::App;

/// Makes up to 256 streams and caches of a namespace, all of them or none.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/resources", tag = "resources",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)), request_body = ResourcesSpec,
    responses((status = 201, body = ResourcesAnswer), (status = 200, body = ResourcesAnswer)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<ResourcesAnswer>), Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let spec: ResourcesSpec = body.read()?;
    let items = spec.streams.len() + spec.caches.len();
    if !(1..=BATCH_ITEMS_MAX).contains(&items) {
        let message = format!("a batch has from 1 to {BATCH_ITEMS_MAX} items, not {items}");
        return Err(Refusal::invalid(message));
    }
    must_manage_all(&caller, &tenant, &namespace, &spec)?;
    let command = Command::CreateResources {
        tenant_id: name("tenant_id", &tenant)?,
        namespace: name("namespace", &namespace)?,
        streams: spec.streams.clone(),
        caches: spec.caches.clone(),
    };
    let event = app.authority.submit(command).await?;
    let status = if event.is_some() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    answer(&app, &tenant, &namespace, &spec, event).map(|answer| (status, Json(answer)))
}

fn must_manage_all(
    caller: &Caller,
    tenant: &str,
    namespace: &str,
    spec: &ResourcesSpec,
) -> Result<(), Refusal> {
    for item in &spec.streams {
        let stream = item.stream.as_ref();
        caller.must(
            Action::StreamManage,
            &Resource::Stream {
                tenant,
                namespace,
                stream,
            },
        )?;
    }
    for item in &spec.caches {
        let cache = item.cache.as_ref();
        caller.must(
            Action::CacheManage,
            &Resource::Cache {
                tenant,
                namespace,
                cache,
            },
        )?;
    }
    Ok(())
}

/// The items in the order of the request. What was made is in the event; the rest was there before.
fn answer(
    app: &App,
    tenant: &str,
    namespace: &str,
    spec: &ResourcesSpec,
    event: Option<Event>,
) -> Result<ResourcesAnswer, Refusal> {
    let (new_streams, new_caches) = match event {
        Some(Event::ResourcesCreated { streams, caches }) => (streams, caches),
        _ => (Vec::new(), Vec::new()),
    };
    let made: BTreeSet<&str> = new_streams.iter().map(|one| one.stream.as_ref()).collect();
    let made_caches: BTreeSet<&str> = new_caches.iter().map(|one| one.cache.as_ref()).collect();
    let gone = || Refusal::not_found("an item was deleted meanwhile");
    let status = |made| {
        if made {
            ItemStatus::Created
        } else {
            ItemStatus::Unchanged
        }
    };
    let catalogue = app.authority.catalogue();
    let mut answer = ResourcesAnswer::default();
    for item in &spec.streams {
        let name = item.stream.as_ref();
        let held = catalogue.stream(tenant, namespace, name).ok_or_else(gone)?;
        let status = status(made.contains(name));
        answer.streams.push(StreamItem {
            status,
            stream: Arc::clone(held),
        });
    }
    for item in &spec.caches {
        let name = item.cache.as_ref();
        let held = catalogue.cache(tenant, namespace, name).ok_or_else(gone)?;
        let status = status(made_caches.contains(name));
        answer.caches.push(CacheItem {
            status,
            cache: Arc::clone(held),
        });
    }
    Ok(answer)
}
