//! A control plane on free ports, with a tenant, an operator, and plain HTTP calls to it.

use felix_controlplane::{Config, ControlPlane, Secret};
use felix_controlplane_client::{Api, TokenSource};
use felix_meta::http::{DevTokenSpec, InitializeSpec};
use felix_meta::{Grouping, Policy};
use felix_model::TenantId;
use serde_json::{Value, json};

pub(crate) const BOOTSTRAP: &str = "the bootstrap token";

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) http: reqwest::Client,
    /// Token of the administrator of tenant `acme`.
    pub(crate) admin: String,
    /// Token of the operator: may manage tenants and follow the catalogue, and nothing inside a tenant.
    pub(crate) operator: String,
}

/// A client for HTTP. The library wants to know who does its TLS even where there is none.
pub(crate) fn http() -> reqwest::Client {
    // It fails when that was said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// What an HTTP call came to.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// The code of a refusal; empty when it is none.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

impl World {
    /// A control plane that keeps nothing, with tenants `acme` and `ops`, and namespace `acme/ns`.
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn with(config: Config) -> Self {
        let plane = ControlPlane::start_ephemeral(config).await.unwrap();
        let admins = InitializeSpec {
            initial_admin_principals: vec!["p:admin".into()],
            ..InitializeSpec::default()
        };
        plane.initialize(&tenant("acme"), admins).await.unwrap();
        plane.initialize(&tenant("ops"), operators()).await.unwrap();
        let admin = token(&plane, "acme", "p:admin");
        let operator = token(&plane, "ops", "p:operator");
        let world = Self {
            plane,
            http: http(),
            admin,
            operator,
        };
        let made = world
            .post("/v1/tenants/acme/namespaces", &json!({"namespace": "ns"}))
            .await;
        assert_eq!(made.status, 201, "{made:?}");
        world
    }

    /// Calls with the administrator's token.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &self.admin, None).await
    }

    /// Calls with the administrator's token.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &self.admin, Some(body)).await
    }

    /// Calls with the administrator's token.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, &self.admin, Some(body)).await
    }

    /// Calls with the administrator's token.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &self.admin, None).await
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Answer {
        let url = format!("http://{}{path}", self.plane.addresses().api);
        let mut request = self.http.request(method.parse().unwrap(), url);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn bootstrap(&self, path: &str, token: &str, body: &Value) -> Answer {
        let address = self.plane.addresses().bootstrap.unwrap();
        let url = format!("http://{address}/internal/bootstrap/tenants/{path}");
        let request = self
            .http
            .post(url)
            .header("X-Felix-Bootstrap-Token", token)
            .json(body);
        answer(request.send().await.unwrap()).await
    }

    /// A token of `acme` that holds exactly these grants, through rules written for it.
    pub(crate) async fn token_with(&self, principal: &str, grants: &[(&str, &str)]) -> String {
        for (action, object) in grants {
            let rule = json!({"subject": principal, "object": object, "action": action});
            let added = self.post("/v1/tenants/acme/rbac/policies", &rule).await;
            assert_eq!(added.status, 204, "{added:?}");
        }
        token(&self.plane, "acme", principal)
    }

    /// Typed calls with the operator's token.
    pub(crate) fn api(&self) -> Api {
        let url = format!("http://{}", self.plane.addresses().api);
        Api::new(&url, TokenSource::fixed(&self.operator)).unwrap()
    }
}

pub(crate) async fn answer(response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status, body }
}

pub(crate) fn config() -> Config {
    let free = "127.0.0.1:0".parse().unwrap();
    Config {
        bind: free,
        metrics_bind: free,
        bootstrap_enabled: true,
        bootstrap_bind_addr: free,
        bootstrap_token: Secret(BOOTSTRAP.into()),
        bootstrap_dev_tokens: true,
        shutdown_predrain_ms: 0,
        ..Config::default()
    }
}

pub(crate) fn token(plane: &ControlPlane, tenant_name: &str, principal: &str) -> String {
    let spec = DevTokenSpec {
        principal: principal.into(),
        audience: Some("felix-controlplane".into()),
        ..DevTokenSpec::default()
    };
    plane
        .dev_token(&tenant(tenant_name), &spec)
        .unwrap()
        .felix_token
}

pub(crate) fn operators() -> InitializeSpec {
    let rule = |action: &str| Policy {
        subject: "role:operator".into(),
        object: "cluster:*".into(),
        action: action.into(),
    };
    InitializeSpec {
        policies: vec![
            rule("tenant.manage"),
            rule("node.view"),
            rule("node.manage"),
        ],
        groupings: vec![Grouping {
            user: "p:operator".into(),
            role: "role:operator".into(),
        }],
        ..InitializeSpec::default()
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// The body of a plain durable stream.
pub(crate) fn stream(name: &str) -> Value {
    json!({
        "stream": name,
        "kind": "Stream",
        "shards": 1,
        "retention": {"max_age_seconds": null, "max_size_bytes": null},
        "consistency": "Leader",
        "delivery": "AtLeastOnce",
        "durable": true,
    })
}
