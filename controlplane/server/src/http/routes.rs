//! Every path of the API and who answers it.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, delete, get, patch, post};

use super::error::Refusal;
use super::{
    audit, caches, consistency, feeds, keys, members, namespaces, openapi, rbac, resources,
    streams, system, tenants, watch,
};
use crate::app::App;
use crate::limits::BODY_BYTES_MAX;

const TENANT: &str = "/v1/tenants/{tenant_id}";
const SPACE: &str = "/v1/tenants/{tenant_id}/namespaces/{namespace}";

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
        .merge(later())
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
    .get("/v1/tenants", get(tenants::list))
    .add("post", "/v1/tenants", post(tenants::create))
    .below(TENANT, "delete", "", delete(tenants::delete));
    of_a_namespace(of_a_tenant(routes))
}

fn of_a_tenant(routes: Routes) -> Routes {
    routes
        .below(TENANT, "get", "/.well-known/jwks.json", get(keys::jwks))
        .below(TENANT, "get", "/signing-keys", get(keys::list))
        .below(TENANT, "post", "/signing-keys", post(keys::stage))
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
}

/// Published paths that this version does not serve, told apart from paths that do not exist.
fn later() -> Router<App> {
    let mut router = Router::new();
    for rest in [
        "/token/exchange",
        "/token/refresh",
        "/token/delegate",
        "/idp-issuers",
        "/idp-issuers/{issuer}",
        "/refresh-tokens/revoke",
    ] {
        let refuse = || async {
            Refusal::not_enabled("tokens of identity providers are not exchanged by this version")
        };
        router = router.route(&format!("{TENANT}{rest}"), any(refuse));
    }
    router
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
