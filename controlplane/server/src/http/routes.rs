//! Every path of the API and who answers it.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::error::Refusal;
use super::{
    audit, caches, consistency, feeds, issuers, keys, members, namespaces, nodes, openapi, quotas,
    rbac, resources, revocations, service_accounts, sessions, streams, system, templates, tenants,
    tokens, watch,
};
use crate::app::App;
use crate::limits::BODY_BYTES_MAX;

const TENANT: &str = "/v1/tenants/{tenant_id}";
const SPACE: &str = "/v1/tenants/{tenant_id}/namespaces/{namespace}";
const TEMPLATE: &str = "/templates/{template}";

/// Collects routes and remembers them, so that a test can hold them against the OpenAPI document.
struct Routes {
    router: Router<App>,
    seen: Vec<(&'static str, String)>,
}

impl Routes {
    fn add(mut self, method: &'static str, path: &str, handler: MethodRouter<App>) -> Self {
        self.router = self.router.route(path, handler);
        self.seen.push((method, path.to_owned()));
        self
    }

    fn get(self, path: &str, handler: MethodRouter<App>) -> Self {
        self.add("get", path, handler)
    }

    fn below(
        self,
        base: &str,
        method: &'static str,
        rest: &str,
        handler: MethodRouter<App>,
    ) -> Self {
        self.add(method, &format!("{base}{rest}"), handler)
    }
}

pub(crate) fn router(app: App) -> Router {
    routes()
        .router
        .fallback(|| async { Refusal::not_found("no such path; see /v1/openapi.json") })
        .method_not_allowed_fallback(|| async { Refusal::method_not_allowed() })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(app.clone(), consistency::confirm))
        .layer(from_fn_with_state(app.clone(), watch::api))
        .with_state(app)
}

fn routes() -> Routes {
    let routes = Routes {
        router: Router::new(),
        seen: Vec::new(),
    }
    .get("/v1/openapi.json", get(openapi::document))
    .get("/v1/system/info", get(system::info))
    .get("/v1/system/live", get(system::live))
    .get("/v1/system/ready", get(system::ready))
    .get("/v1/system/health", get(system::health))
    .add("post", "/v1/system/backup", post(system::backup))
    .get("/v1/controlplane/members", get(members::list))
    .add("post", "/v1/controlplane/members", post(members::add))
    .add(
        "delete",
        "/v1/controlplane/members/{member}",
        delete(members::remove),
    )
    .get("/v1/regions", get(system::regions))
    .get("/v1/regions/{region_id}", get(system::region))
    .get("/v1/catalogue/snapshot", get(feeds::catalogue_snapshot))
    .get("/v1/catalogue/changes", get(feeds::catalogue_changes))
    .get("/v1/tenants/snapshot", get(feeds::tenants_snapshot))
    .get("/v1/tenants/changes", get(feeds::tenants_changes))
    .get("/v1/namespaces/snapshot", get(feeds::namespaces_snapshot))
    .get("/v1/namespaces/changes", get(feeds::namespaces_changes))
    .get("/v1/streams/snapshot", get(feeds::streams_snapshot))
    .get("/v1/streams/changes", get(feeds::streams_changes))
    .get("/v1/caches/snapshot", get(feeds::caches_snapshot))
    .get("/v1/caches/changes", get(feeds::caches_changes))
    .get("/v1/audit", get(audit::of_cluster))
    .add(
        "post",
        "/v1/nodes/{node_id}/credential",
        post(nodes::credential),
    )
    .get("/v1/tenants", get(tenants::list))
    .add("post", "/v1/tenants", post(tenants::create))
    .below(TENANT, "delete", "", delete(tenants::delete));
    of_identity(of_a_namespace(of_quotas(of_a_tenant(routes))))
}

fn of_quotas(routes: Routes) -> Routes {
    let (namespace, principal) = (
        "/quotas/namespaces/{namespace}",
        "/quotas/principals/{principal}",
    );
    routes
        .below(TENANT, "get", "/quotas", get(quotas::list))
        .below(TENANT, "put", "/quotas", put(quotas::set_tenant))
        .below(TENANT, "delete", "/quotas", delete(quotas::remove_tenant))
        .below(TENANT, "get", namespace, get(quotas::get_namespace))
        .below(TENANT, "put", namespace, put(quotas::set_namespace))
        .below(
            TENANT,
            "delete",
            namespace,
            delete(quotas::remove_namespace),
        )
        .below(TENANT, "get", principal, get(quotas::get_principal))
        .below(TENANT, "put", principal, put(quotas::set_principal))
        .below(
            TENANT,
            "delete",
            principal,
            delete(quotas::remove_principal),
        )
}

fn of_a_tenant(routes: Routes) -> Routes {
    routes
        .below(TENANT, "get", "/.well-known/jwks.json", get(keys::jwks))
        .below(TENANT, "get", "/signing-keys", get(keys::list))
        .below(TENANT, "post", "/signing-keys", post(keys::stage))
        .below(
            TENANT,
            "post",
            "/signing-keys/emergency",
            post(keys::replace),
        )
        .below(
            TENANT,
            "post",
            "/signing-keys/{kid}/activate",
            post(keys::activate),
        )
        .below(
            TENANT,
            "delete",
            "/signing-keys/{kid}",
            delete(keys::retire),
        )
        .below(TENANT, "get", "/audit", get(audit::of_tenant))
        .below(TENANT, "get", "/revocations", get(revocations::list))
        .below(TENANT, "post", "/revocations", post(revocations::create))
        .below(
            TENANT,
            "post",
            "/refresh-tokens/revoke",
            post(revocations::of_principal),
        )
        .below(TENANT, "get", "/rbac/policies", get(rbac::policies))
        .below(TENANT, "post", "/rbac/policies", post(rbac::add_policy))
        .below(
            TENANT,
            "delete",
            "/rbac/policies",
            delete(rbac::remove_policy),
        )
        .below(TENANT, "get", "/rbac/groupings", get(rbac::groupings))
        .below(TENANT, "post", "/rbac/groupings", post(rbac::add_grouping))
        .below(
            TENANT,
            "delete",
            "/rbac/groupings",
            delete(rbac::remove_grouping),
        )
        .below(TENANT, "get", "/namespaces", get(namespaces::list))
        .below(TENANT, "post", "/namespaces", post(namespaces::create))
}

fn of_a_namespace(routes: Routes) -> Routes {
    routes
        .below(SPACE, "delete", "", delete(namespaces::delete))
        .below(SPACE, "post", "/resources", post(resources::create))
        .below(SPACE, "get", "/streams", get(streams::list))
        .below(SPACE, "post", "/streams", post(streams::create))
        .below(SPACE, "get", "/streams/{stream}", get(streams::get))
        .below(SPACE, "patch", "/streams/{stream}", patch(streams::update))
        .below(
            SPACE,
            "delete",
            "/streams/{stream}",
            delete(streams::delete),
        )
        .below(SPACE, "get", "/caches", get(caches::list))
        .below(SPACE, "post", "/caches", post(caches::create))
        .below(SPACE, "get", "/caches/{cache}", get(caches::get))
        .below(SPACE, "patch", "/caches/{cache}", patch(caches::update))
        .below(SPACE, "delete", "/caches/{cache}", delete(caches::delete))
        .below(SPACE, "get", "/templates", get(templates::list))
        .below(SPACE, "get", TEMPLATE, get(templates::get))
        .below(SPACE, "put", TEMPLATE, put(templates::set))
        .below(SPACE, "delete", TEMPLATE, delete(templates::remove))
        .below(
            SPACE,
            "post",
            &format!("{TEMPLATE}/rooms/{{scope}}"),
            post(templates::open_room),
        )
}

/// Who somebody is: signing in, and who may.
fn of_identity(routes: Routes) -> Routes {
    let accounts = "/service-accounts/{name}";
    routes
        .below(TENANT, "post", "/token/exchange", post(tokens::exchange))
        .below(TENANT, "post", "/token/refresh", post(tokens::refresh))
        .below(TENANT, "post", "/token/revoke", post(tokens::revoke))
        .below(TENANT, "post", "/token/delegate", post(tokens::delegate))
        .below(TENANT, "get", "/idp-issuers", get(issuers::list))
        .below(TENANT, "post", "/idp-issuers", post(issuers::set))
        .below(
            TENANT,
            "delete",
            "/idp-issuers/{issuer}",
            delete(issuers::remove),
        )
        .below(
            TENANT,
            "get",
            "/service-accounts",
            get(service_accounts::list),
        )
        .below(
            TENANT,
            "post",
            "/service-accounts",
            post(service_accounts::create),
        )
        .below(TENANT, "get", accounts, get(service_accounts::get))
        .below(TENANT, "patch", accounts, patch(service_accounts::update))
        .below(TENANT, "delete", accounts, delete(service_accounts::delete))
        .below(
            TENANT,
            "get",
            &format!("{accounts}/keys"),
            get(service_accounts::keys),
        )
        .below(
            TENANT,
            "post",
            &format!("{accounts}/keys"),
            post(service_accounts::add_key),
        )
        .below(
            TENANT,
            "delete",
            &format!("{accounts}/keys/{{key_id}}"),
            delete(service_accounts::remove_key),
        )
        .below(TENANT, "get", "/sessions", get(sessions::list))
        .below(
            TENANT,
            "delete",
            "/sessions/{session_id}",
            delete(sessions::end),
        )
        .below(TENANT, "get", "/principals", get(sessions::principals))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_openapi_document_lists_exactly_the_routes_that_exist() {
        let served: BTreeSet<(String, String)> = routes()
            .seen
            .into_iter()
            .map(|(method, path)| (method.to_owned(), path))
            .collect();
        let document = openapi::build();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                described.insert((method.clone(), path.clone()));
            }
        }
        assert_eq!(described, served);
    }
}
