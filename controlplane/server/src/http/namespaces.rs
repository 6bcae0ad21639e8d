//! Namespaces of a tenant.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Resource};
use felix_meta::http::Page;
use felix_meta::{Command, NamespaceRecord, NamespaceSpec};
use felix_model::TenantId;

use super::body::{Raw, name};
use super::caller::Ticket;
use super::error::Refusal;
use super::page::Paging;
use crate::app::App;

/// The namespaces that the caller manages.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/namespaces", tag = "namespaces",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<NamespaceRecord>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Json<Page<NamespaceRecord>>, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let tenant_id: TenantId = name("tenant_id", &tenant)?;
    let window = paging.read()?;
    let catalogue = app.authority.catalogue();
    let all = catalogue
        .tenant(&tenant)
        .into_iter()
        .flat_map(|entry| &entry.namespaces);
    let mine = all
        .filter(|(namespace, _)| {
            let resource = Resource::Namespace {
                tenant: &tenant,
                namespace: namespace.as_ref(),
            };
            caller.may(Action::NamespaceManage, &resource)
        })
        .map(|(namespace, entry)| {
            let record = NamespaceRecord {
                tenant_id: tenant_id.clone(),
                namespace: namespace.clone(),
                display_name: entry.display_name.clone(),
            };
            (namespace.to_string(), record)
        });
    Ok(Json(window.cut(mine)))
}

/// Makes a namespace, or says that it is there as asked.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/namespaces", tag = "namespaces",
    params(("tenant_id" = String, Path)), request_body = NamespaceSpec,
    responses((status = 201, body = NamespaceRecord), (status = 200, body = NamespaceRecord)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<NamespaceRecord>), Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let spec: NamespaceSpec = body.read()?;
    let resource = Resource::Namespace {
        tenant: &tenant,
        namespace: spec.namespace.as_ref(),
    };
    caller.must(Action::NamespaceManage, &resource)?;
    let tenant_id: TenantId = name("tenant_id", &tenant)?;
    let namespace = spec.namespace.clone();
    let event = app
        .authority
        .submit(Command::CreateNamespace(tenant_id.clone(), spec))
        .await?;
    let status = if event.is_some() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let catalogue = app.authority.catalogue();
    let entry = catalogue
        .namespace(&tenant, namespace.as_ref())
        .ok_or_else(|| Refusal::not_found("the namespace was deleted meanwhile"))?;
    let display_name = entry.display_name.clone();
    Ok((
        status,
        Json(NamespaceRecord {
            tenant_id,
            namespace,
            display_name,
        }),
    ))
}

/// Deletes a namespace and everything in it.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/namespaces/{namespace}", tag = "namespaces",
    params(("tenant_id" = String, Path), ("namespace" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    ticket: Ticket,
) -> Result<StatusCode, Refusal> {
    let caller = app.caller_of(&ticket, &tenant)?;
    let resource = Resource::Namespace {
        tenant: &tenant,
        namespace: &namespace,
    };
    caller.must(Action::NamespaceManage, &resource)?;
    let (tenant_id, namespace_name) = (name("tenant_id", &tenant)?, name("namespace", &namespace)?);
    let command = Command::DeleteNamespace(tenant_id, namespace_name);
    match app.authority.submit(command).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(failed) => {
            let catalogue = app.authority.catalogue();
            let close = catalogue.close_namespaces(&tenant, &namespace, |name| {
                let resource = Resource::Namespace {
                    tenant: &tenant,
                    namespace: name,
                };
                caller.may(Action::NamespaceManage, &resource)
            });
            Err(super::streams::with_close(failed, &close))
        }
    }
}
