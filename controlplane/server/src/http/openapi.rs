//! The OpenAPI document, made from the handlers.

use axum::Json;
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};

use super::{
    audit, caches, consistency, feeds, issuers, keys, members, namespaces, nodes, quotas, rbac,
    resources, revocations, service_accounts, sessions, streams, system, templates, tenants,
    tokens,
};

/// The form of a key set document, for the document's sake.
#[derive(ToSchema)]
#[schema(as = Jwks)]
#[expect(
    dead_code,
    reason = "it describes felix_auth::Jwks, which knows nothing of OpenAPI"
)]
pub(crate) struct JwksDocument {
    /// All keys that verify.
    keys: Vec<JwkDocument>,
}

/// The form of one key, for the document's sake.
#[derive(ToSchema)]
#[schema(as = Jwk)]
#[expect(
    dead_code,
    reason = "it describes felix_auth::Jwk, which knows nothing of OpenAPI"
)]
pub(crate) struct JwkDocument {
    /// `OKP`.
    kty: String,
    /// `Ed25519`.
    crv: String,
    /// `EdDSA`.
    alg: String,
    /// `sig`.
    #[schema(rename = "use")]
    key_use: String,
    /// Key id.
    kid: String,
    /// The point in base64url.
    x: String,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Felix control plane",
        description = "Tenants, namespaces, streams, caches, keys and rules."
    ),
    paths(
        document,
        system::info,
        system::live,
        system::ready,
        system::health,
        system::backup,
        members::list,
        members::add,
        members::remove,
        system::regions,
        system::region,
        audit::of_cluster,
        audit::of_tenant,
        quotas::list,
        quotas::set_tenant,
        quotas::remove_tenant,
        quotas::get_namespace,
        quotas::set_namespace,
        quotas::remove_namespace,
        quotas::get_principal,
        quotas::set_principal,
        quotas::remove_principal,
        revocations::list,
        revocations::create,
        revocations::of_principal,
        keys::replace,
        nodes::credential,
        tenants::list,
        tenants::create,
        tenants::delete,
        namespaces::list,
        namespaces::create,
        namespaces::delete,
        streams::list,
        streams::create,
        streams::get,
        streams::update,
        streams::delete,
        caches::list,
        caches::create,
        caches::get,
        caches::update,
        caches::delete,
        resources::create,
        templates::list,
        templates::get,
        templates::set,
        templates::remove,
        templates::open_room,
        keys::jwks,
        keys::list,
        keys::stage,
        keys::activate,
        keys::retire,
        rbac::policies,
        rbac::add_policy,
        rbac::remove_policy,
        rbac::groupings,
        rbac::add_grouping,
        rbac::remove_grouping,
        tokens::exchange,
        tokens::refresh,
        tokens::revoke,
        tokens::delegate,
        issuers::list,
        issuers::set,
        issuers::remove,
        service_accounts::list,
        service_accounts::create,
        service_accounts::get,
        service_accounts::update,
        service_accounts::delete,
        service_accounts::keys,
        service_accounts::add_key,
        service_accounts::remove_key,
        sessions::list,
        sessions::end,
        sessions::principals,
        feeds::catalogue_snapshot,
        feeds::catalogue_changes,
        feeds::tenants_snapshot,
        feeds::tenants_changes,
        feeds::namespaces_snapshot,
        feeds::namespaces_changes,
        feeds::streams_snapshot,
        feeds::streams_changes,
        feeds::caches_snapshot,
        feeds::caches_changes,
    ),
    components(schemas(felix_meta::http::ErrorBody))
)]
struct Document;

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "system", security(()),
    responses((status = 200, body = Object)))]
pub(crate) async fn document() -> Json<Value> {
    Json(build())
}

/// The document, with what holds for every call said once: the credential and the body of a refusal.
pub(crate) fn build() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    let bearer = json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" });
    if let Some(components) = document
        .get_mut("components")
        .and_then(Value::as_object_mut)
    {
        components.insert("securitySchemes".into(), json!({ "bearer": bearer }));
    }
    let refusal = json!({
        "description": "refused",
        "content": {
            "application/json": { "schema": { "$ref": "#/components/schemas/ErrorBody" } }
        }
    });
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (method, operation) in paths
        .into_iter()
        .flat_map(serde_json::Map::values_mut)
        .filter_map(Value::as_object_mut)
        .flatten()
    {
        let Some(operation) = operation.as_object_mut() else {
            continue;
        };
        if method == "get" {
            let parameters = operation
                .entry("parameters")
                .or_insert_with(|| json!([]))
                .as_array_mut();
            parameters.into_iter().for_each(|all| {
                all.push(json!({
                    "name": consistency::PARAMETER, "in": "query", "required": false,
                    "schema": { "type": "string", "enum": consistency::VALUES },
                    "description": "whether to answer with what is known here, or with the newest state there is",
                }));
            });
        }
        if let Some(responses) = operation
            .get_mut("responses")
            .and_then(Value::as_object_mut)
        {
            responses.insert("default".into(), refusal.clone());
        }
        operation
            .entry("security")
            .or_insert_with(|| json!([{ "bearer": [] }]));
    }
    document
}
