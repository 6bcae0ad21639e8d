//! Streams of a namespace.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, NamePattern, Object, Resource};
use felix_meta::http::Page;
use felix_meta::{Catalogue, Command, Event, StreamPatch, StreamRecord, StreamSpec};

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;
use crate::authority::WriteFailed;

/// The streams that the caller manages.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/streams", tag = "streams",
    params(("tenant_id" = String, Path), ("namespace" = String, Path),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<StreamRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<Arc<StreamRecord>>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let any = Object::Stream {
        tenant: tenant.as_str().into(),
        namespace: NamePattern::Exact(namespace.as_str().into()),
        stream: NamePattern::Any,
    };
    caller.must_to_some(Action::StreamManage, &any)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let space = catalogue
        .namespace(&tenant, &namespace)
        .ok_or_else(|| no_namespace(&catalogue, &caller, &tenant, &namespace))?;
    let mine = space
        .streams
        .iter()
        .filter(|(stream, _)| manages(&caller, &tenant, &namespace, stream.as_ref()))
        .map(|(stream, record)| (stream.to_string(), Arc::clone(record)));
    Ok(Json(window.cut(mine)))
}

/// Makes a stream, or says that it is there as asked.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/streams", tag = "streams",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)), request_body = StreamSpec,
    responses((status = 201, body = StreamRecord), (status = 200, body = StreamRecord)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<Arc<StreamRecord>>), Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let spec: StreamSpec = body.read()?;
    caller.must(
        Action::StreamManage,
        &resource(&tenant, &namespace, spec.stream.as_ref()),
    )?;
    let stream = spec.stream.clone();
    let command = Command::CreateResources {
        tenant_id: name("tenant_id", &tenant)?,
        namespace: name("namespace", &namespace)?,
        streams: vec![spec],
        caches: vec![],
    };
    let event = app.authority.submit(command).await?;
    if let Some(Event::ResourcesCreated { streams, .. }) = event
        && let Some(made) = streams.into_iter().next()
    {
        return Ok((StatusCode::CREATED, Json(made)));
    }
    let catalogue = app.authority.catalogue();
    let held = catalogue
        .stream(&tenant, &namespace, stream.as_ref())
        .ok_or_else(|| Refusal::not_found("the stream was deleted meanwhile"))?;
    Ok((StatusCode::OK, Json(Arc::clone(held))))
}

/// One stream.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/streams/{stream}", tag = "streams",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("stream" = String, Path)),
    responses((status = 200, body = StreamRecord)))]
pub(crate) async fn get(
    State(app): State<App>,
    Path((tenant, namespace, stream)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<Json<Arc<StreamRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(
        Action::StreamManage,
        &resource(&tenant, &namespace, &stream),
    )?;
    let catalogue = app.authority.catalogue();
    match catalogue.find_stream(&tenant, &namespace, &stream) {
        Ok(record) => Ok(Json(Arc::clone(record))),
        Err(missing) => {
            let close = close(&catalogue, &caller, &tenant, &namespace, &stream);
            Err(Refusal::not_found(missing.to_string()).did_you_mean(&close))
        }
    }
}

/// Changes a stream. `retention` is replaced whole.
#[utoipa::path(patch, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/streams/{stream}", tag = "streams",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("stream" = String, Path)),
    request_body = StreamPatch, responses((status = 200, body = StreamRecord)))]
pub(crate) async fn update(
    State(app): State<App>,
    Path((tenant, namespace, stream)): Path<(String, String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<Arc<StreamRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(
        Action::StreamManage,
        &resource(&tenant, &namespace, &stream),
    )?;
    let patch: StreamPatch = body.read()?;
    let command = Command::UpdateStream(
        name("tenant_id", &tenant)?,
        name("namespace", &namespace)?,
        name("stream", &stream)?,
        patch,
    );
    let outcome = app.authority.submit(command).await;
    let catalogue = app.authority.catalogue();
    match outcome {
        Ok(Some(Event::StreamUpdated { stream })) => Ok(Json(stream)),
        Ok(_) => catalogue
            .stream(&tenant, &namespace, &stream)
            .map(|held| Json(Arc::clone(held)))
            .ok_or_else(|| Refusal::not_found("the stream was deleted meanwhile")),
        Err(failed) => {
            let close = close(&catalogue, &caller, &tenant, &namespace, &stream);
            Err(with_close(failed, &close))
        }
    }
}

/// Deletes a stream and its records.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/streams/{stream}", tag = "streams",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("stream" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path((tenant, namespace, stream)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(
        Action::StreamManage,
        &resource(&tenant, &namespace, &stream),
    )?;
    let command = Command::DeleteStream(
        name("tenant_id", &tenant)?,
        name("namespace", &namespace)?,
        name("stream", &stream)?,
    );
    match app.authority.submit(command).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(failed) => {
            let catalogue = app.authority.catalogue();
            let close = close(&catalogue, &caller, &tenant, &namespace, &stream);
            Err(with_close(failed, &close))
        }
    }
}

/// A failed write, with what a misspelt name may have meant if something was missing.
pub(super) fn with_close(failed: WriteFailed, close: &[String]) -> Refusal {
    let refusal = Refusal::from(failed);
    if refusal.status == StatusCode::NOT_FOUND {
        refusal.did_you_mean(close)
    } else {
        refusal
    }
}

/// The refusal for a namespace that is not there.
pub(super) fn no_namespace(
    catalogue: &Catalogue,
    caller: &Caller,
    tenant: &str,
    namespace: &str,
) -> Refusal {
    let close = catalogue.close_namespaces(tenant, namespace, |name| {
        caller.may(
            Action::NamespaceManage,
            &Resource::Namespace {
                tenant,
                namespace: name,
            },
        )
    });
    Refusal::not_found(format!("no namespace `{namespace}`")).did_you_mean(&close)
}

fn close(
    catalogue: &Catalogue,
    caller: &Caller,
    tenant: &str,
    namespace: &str,
    stream: &str,
) -> Vec<String> {
    catalogue.close_streams(tenant, namespace, stream, |name| {
        manages(caller, tenant, namespace, name)
    })
}

fn manages(caller: &Caller, tenant: &str, namespace: &str, stream: &str) -> bool {
    caller.may(Action::StreamManage, &resource(tenant, namespace, stream))
}

const fn resource<'a>(tenant: &'a str, namespace: &'a str, stream: &'a str) -> Resource<'a> {
    Resource::Stream {
        tenant,
        namespace,
        stream,
    }
}
