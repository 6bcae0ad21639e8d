//! Templates of a namespace, and the rooms that people open by them.
//!
//! Who manages the namespace sets templates. A room is opened by whoever holds `template.use` over the namespace and
//! some right of use on each of the room's streams and caches: so nobody fills the namespace with rooms that he could
//! not enter, and nobody needs the right to create whatever he likes.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Resource};
use felix_meta::http::{CacheItem, ItemStatus, Page, ResourcesAnswer, StreamItem};
use felix_meta::{CacheSpec, Command, Event, StreamSpec, TemplateRecord, TemplateSpec};

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;

/// What lets somebody use a stream.
const USE_OF_STREAMS: [Action; 2] = [Action::StreamPublish, Action::StreamSubscribe];
/// What lets somebody use a cache.
const USE_OF_CACHES: [Action; 4] = [
    Action::CacheRead,
    Action::CacheWrite,
    Action::CacheWatch,
    Action::CounterAdd,
];

/// The templates of a namespace.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/templates", tag = "templates",
    params(("tenant_id" = String, Path), ("namespace" = String, Path),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<TemplateRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<TemplateRecord>>, Refusal> {
    must(&app, &ticket, &tenant, &namespace, Action::TemplateUse)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let space = catalogue.namespace(&tenant, &namespace);
    let all = space.into_iter().flat_map(|space| &space.templates);
    Ok(Json(window.cut(
        all.map(|(name, held)| (name.clone(), held.record.clone())),
    )))
}

/// One template.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/templates/{template}", tag = "templates",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("template" = String, Path)),
    responses((status = 200, body = TemplateRecord)))]
pub(crate) async fn get(
    State(app): State<App>,
    Path((tenant, namespace, template)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<Json<TemplateRecord>, Refusal> {
    must(&app, &ticket, &tenant, &namespace, Action::TemplateUse)?;
    held(&app, &tenant, &namespace, &template).map(Json)
}

/// Sets a template. Rooms that exist keep what they have and get what is new when they are opened again.
#[utoipa::path(put, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/templates/{template}", tag = "templates",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("template" = String, Path)),
    request_body = TemplateSpec, responses((status = 200, body = TemplateRecord)))]
pub(crate) async fn set(
    State(app): State<App>,
    Path((tenant, namespace, template)): Path<(String, String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<TemplateRecord>, Refusal> {
    must(&app, &ticket, &tenant, &namespace, Action::NamespaceManage)?;
    let spec: TemplateSpec = body.read()?;
    let record = spec.named(
        name("tenant_id", &tenant)?,
        name("namespace", &namespace)?,
        template,
    );
    let command = Command::SetTemplate(record.clone());
    app.authority.submit(command).await?;
    Ok(Json(record))
}

/// Removes a template. The streams and caches of its rooms stay.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/templates/{template}", tag = "templates",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("template" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path((tenant, namespace, template)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    must(&app, &ticket, &tenant, &namespace, Action::NamespaceManage)?;
    let command = Command::RemoveTemplate {
        tenant_id: name("tenant_id", &tenant)?,
        namespace: name("namespace", &namespace)?,
        template,
    };
    app.authority.submit(command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Opens a room: makes those of its streams and caches that are missing, all at once. Opening it again changes nothing.
#[utoipa::path(post,
    path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/templates/{template}/rooms/{scope}", tag = "templates",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("template" = String, Path),
        ("scope" = String, Path)),
    responses((status = 201, body = ResourcesAnswer), (status = 200, body = ResourcesAnswer)))]
pub(crate) async fn open_room(
    State(app): State<App>,
    Path((tenant, namespace, template, scope)): Path<(String, String, String, String)>,
    ticket: Ticket,
) -> Result<(StatusCode, Json<ResourcesAnswer>), Refusal> {
    let caller = must(&app, &ticket, &tenant, &namespace, Action::TemplateUse)?;
    let record = held(&app, &tenant, &namespace, &template)?;
    let (streams, caches) = record
        .room(&scope)
        .map_err(|error| Refusal::invalid(format!("`scope`: {error}")))?;
    must_use(&caller, &record, &streams, &caches)?;
    let command = Command::OpenRoom {
        tenant_id: record.tenant_id.clone(),
        namespace: record.namespace.clone(),
        template,
        scope,
    };
    let event = app.authority.submit(command).await?;
    let status = if event.is_some() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    answer(&app, &record, &streams, &caches, event).map(|answer| (status, Json(answer)))
}

fn must(
    app: &App,
    ticket: &Ticket,
    tenant: &str,
    namespace: &str,
    action: Action,
) -> Result<Caller, Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    caller.must(action, &Resource::Namespace { tenant, namespace })?;
    Ok(caller)
}

/// Refuses unless the caller may use each part of the room in some way.
fn must_use(
    caller: &Caller,
    record: &TemplateRecord,
    streams: &[StreamSpec],
    caches: &[CacheSpec],
) -> Result<(), Refusal> {
    let (tenant, namespace) = (record.tenant_id.as_ref(), record.namespace.as_ref());
    let any = |actions: &[Action], resource: &Resource<'_>| {
        actions.iter().any(|action| caller.may(*action, resource))
    };
    for spec in streams {
        let stream = spec.stream.as_ref();
        let resource = Resource::Stream {
            tenant,
            namespace,
            stream,
        };
        if !any(&USE_OF_STREAMS, &resource) {
            let message = format!("this needs a right to use stream `{stream}`");
            return Err(Refusal::forbidden(message));
        }
    }
    for spec in caches {
        let cache = spec.cache.as_ref();
        let resource = Resource::Cache {
            tenant,
            namespace,
            cache,
        };
        if !any(&USE_OF_CACHES, &resource) {
            let message = format!("this needs a right to use cache `{cache}`");
            return Err(Refusal::forbidden(message));
        }
    }
    Ok(())
}

fn held(
    app: &App,
    tenant: &str,
    namespace: &str,
    template: &str,
) -> Result<TemplateRecord, Refusal> {
    let catalogue = app.authority.catalogue();
    catalogue
        .find_template(tenant, namespace, template)
        .map(|held| held.record.clone())
        .map_err(|missing| Refusal::not_found(missing.to_string()))
}

/// The whole room, in the order of the template. What was made is in the event; the rest was there before.
fn answer(
    app: &App,
    record: &TemplateRecord,
    streams: &[StreamSpec],
    caches: &[CacheSpec],
    event: Option<Event>,
) -> Result<ResourcesAnswer, Refusal> {
    let (new_streams, new_caches) = match event {
        Some(Event::RoomOpened {
            streams, caches, ..
        }) => (streams, caches),
        _ => (Vec::new(), Vec::new()),
    };
    let made: BTreeSet<&str> = new_streams.iter().map(|one| one.stream.as_ref()).collect();
    let made_caches: BTreeSet<&str> = new_caches.iter().map(|one| one.cache.as_ref()).collect();
    let status = |made| match made {
        true => ItemStatus::Created,
        false => ItemStatus::Unchanged,
    };
    let gone = || Refusal::not_found("a part of the room was deleted meanwhile");
    let (tenant, namespace) = (record.tenant_id.as_ref(), record.namespace.as_ref());
    let catalogue = app.authority.catalogue();
    let mut answer = ResourcesAnswer::default();
    for spec in streams {
        let name = spec.stream.as_ref();
        let held = catalogue.stream(tenant, namespace, name).ok_or_else(gone)?;
        answer.streams.push(StreamItem {
            status: status(made.contains(name)),
            stream: Arc::clone(held),
        });
    }
    for spec in caches {
        let name = spec.cache.as_ref();
        let held = catalogue.cache(tenant, namespace, name).ok_or_else(gone)?;
        answer.caches.push(CacheItem {
            status: status(made_caches.contains(name)),
            cache: Arc::clone(held),
        });
    }
    Ok(answer)
}
