//! Caches of a namespace.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, NamePattern, Object, Resource};
use felix_meta::http::Page;
use felix_meta::{CachePatch, CacheRecord, CacheSpec, Catalogue, Command, Event};

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use super::page::Paging;
use super::streams::{no_namespace, with_close};
use crate::app::App;

/// The caches that the caller manages.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/caches", tag = "caches",
    params(("tenant_id" = String, Path), ("namespace" = String, Path),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<CacheRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<Arc<CacheRecord>>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let any = Object::Cache {
        tenant: tenant.as_str().into(),
        namespace: NamePattern::Exact(namespace.as_str().into()),
        cache: NamePattern::Any,
    };
    caller.must_to_some(Action::CacheManage, &any)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let space = catalogue
        .namespace(&tenant, &namespace)
        .ok_or_else(|| no_namespace(&catalogue, &caller, &tenant, &namespace))?;
    let mine = space
        .caches
        .iter()
        .filter(|(cache, _)| manages(&caller, &tenant, &namespace, cache.as_ref()))
        .map(|(cache, record)| (cache.to_string(), Arc::clone(record)));
    Ok(Json(window.cut(mine)))
}

/// Makes a cache, or says that it is there as asked.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/caches", tag = "caches",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)), request_body = CacheSpec,
    responses((status = 201, body = CacheRecord), (status = 200, body = CacheRecord)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<Arc<CacheRecord>>), Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let spec: CacheSpec = body.read()?;
    caller.must(
        Action::CacheManage,
        &resource(&tenant, &namespace, spec.cache.as_ref()),
    )?;
    let cache = spec.cache.clone();
    let command = Command::CreateResources {
        tenant_id: name("tenant_id", &tenant)?,
        namespace: name("namespace", &namespace)?,
        streams: vec![],
        caches: vec![spec],
    };
    let event = app.authority.submit(command).await?;
    if let Some(Event::ResourcesCreated { caches, .. }) = event
        && let Some(made) = caches.into_iter().next()
    {
        return Ok((StatusCode::CREATED, Json(made)));
    }
    let catalogue = app.authority.catalogue();
    let held = catalogue
        .cache(&tenant, &namespace, cache.as_ref())
        .ok_or_else(|| Refusal::not_found("the cache was deleted meanwhile"))?;
    Ok((StatusCode::OK, Json(Arc::clone(held))))
}

/// One cache.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/caches/{cache}", tag = "caches",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("cache" = String, Path)),
    responses((status = 200, body = CacheRecord)))]
pub(crate) async fn get(
    State(app): State<App>,
    Path((tenant, namespace, cache)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<Json<Arc<CacheRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(Action::CacheManage, &resource(&tenant, &namespace, &cache))?;
    let catalogue = app.authority.catalogue();
    match catalogue.find_cache(&tenant, &namespace, &cache) {
        Ok(record) => Ok(Json(Arc::clone(record))),
        Err(missing) => {
            let close = close(&catalogue, &caller, &tenant, &namespace, &cache);
            Err(Refusal::not_found(missing.to_string()).did_you_mean(&close))
        }
    }
}

/// Changes a cache.
#[utoipa::path(patch, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/caches/{cache}", tag = "caches",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("cache" = String, Path)),
    request_body = CachePatch, responses((status = 200, body = CacheRecord)))]
pub(crate) async fn update(
    State(app): State<App>,
    Path((tenant, namespace, cache)): Path<(String, String, String)>,
    ticket: Ticket,
    body: Raw,
) -> Result<Json<Arc<CacheRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(Action::CacheManage, &resource(&tenant, &namespace, &cache))?;
    let patch: CachePatch = body.read()?;
    let command = Command::UpdateCache(
        name("tenant_id", &tenant)?,
        name("namespace", &namespace)?,
        name("cache", &cache)?,
        patch,
    );
    let outcome = app.authority.submit(command).await;
    let catalogue = app.authority.catalogue();
    match outcome {
        Ok(Some(Event::CacheUpdated { cache })) => Ok(Json(cache)),
        Ok(_) => catalogue
            .cache(&tenant, &namespace, &cache)
            .map(|held| Json(Arc::clone(held)))
            .ok_or_else(|| Refusal::not_found("the cache was deleted meanwhile")),
        Err(failed) => {
            let close = close(&catalogue, &caller, &tenant, &namespace, &cache);
            Err(with_close(failed, &close))
        }
    }
}

/// Deletes a cache and its entries.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}/caches/{cache}", tag = "caches",
    params(("tenant_id" = String, Path), ("namespace" = String, Path), ("cache" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path((tenant, namespace, cache)): Path<(String, String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    caller.must(Action::CacheManage, &resource(&tenant, &namespace, &cache))?;
    let command = Command::DeleteCache(
        name("tenant_id", &tenant)?,
        name("namespace", &namespace)?,
        name("cache", &cache)?,
    );
    match app.authority.submit(command).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(failed) => {
            let catalogue = app.authority.catalogue();
            let close = close(&catalogue, &caller, &tenant, &namespace, &cache);
            Err(with_close(failed, &close))
        }
    }
}

fn close(
    catalogue: &Catalogue,
    caller: &Caller,
    tenant: &str,
    namespace: &str,
    cache: &str,
) -> Vec<String> {
    catalogue.close_caches(tenant, namespace, cache, |name| {
        manages(caller, tenant, namespace, name)
    })
}

fn manages(caller: &Caller, tenant: &str, namespace: &str, cache: &str) -> bool {
    caller.may(Action::CacheManage, &resource(tenant, namespace, cache))
}

const fn resource<'a>(tenant: &'a str, namespace: &'a str, cache: &'a str) -> Resource<'a> {
    Resource::Cache {
        tenant,
        namespace,
        cache,
    }
}
