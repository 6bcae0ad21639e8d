//! A control plane with a tenant that trusts a provider on this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use felix_auth::{Audience, Jwks, KeySet, Principal, verify};
use felix_controlplane::Config;
use felix_model::TimeMs;
use serde_json::{Value, json};

use crate::common::{Answer, World, answer, config};
use crate::idp::{Idp, Key};

pub(crate) struct Login {
    pub(crate) world: World,
    pub(crate) idp: Idp,
    pub(crate) key: Key,
}

impl Login {
    /// The provider is trusted by `acme` for the audience `app`; `role:writer` may publish to `acme/ns/room.*` and read
    /// the cache `acme/ns/c`, and everybody in the provider's group `writers` has it.
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn with(config: Config) -> Self {
        let world = World::with(config).await;
        let key = Key::ec("k1");
        let idp = Idp::start(&[&key]).await;
        let login = Self { world, idp, key };
        let trusted = login
            .world
            .post("/v1/tenants/acme/idp-issuers", &login.issuer())
            .await;
        assert_eq!(trusted.status, 204, "{trusted:?}");
        login
            .grant("role:writer", "stream.publish", "stream:acme/ns/room.*")
            .await;
        login
            .grant("role:writer", "cache.read", "cache:acme/ns/c")
            .await;
        let writers = format!("group:{}#writers", login.idp.issuer);
        login.give(&writers, "role:writer").await;
        login
    }

    pub(crate) fn issuer(&self) -> Value {
        json!({
            "issuer": self.idp.issuer,
            "audiences": ["app"],
            "discovery_url": null,
            "jwks_url": null,
            "claim_mappings": {"subject_claim": "sub", "groups_claim": "groups"},
        })
    }

    pub(crate) async fn grant(&self, subject: &str, action: &str, object: &str) {
        let rule = json!({"subject": subject, "object": object, "action": action});
        let path = "/v1/tenants/acme/rbac/policies";
        assert_eq!(self.world.post(path, &rule).await.status, 204);
    }

    pub(crate) async fn give(&self, user: &str, role: &str) {
        let gift = json!({"user": user, "role": role});
        let path = "/v1/tenants/acme/rbac/groupings";
        assert_eq!(self.world.post(path, &gift).await.status, 204);
    }

    /// A good token of a person in the group `writers`, changed.
    pub(crate) fn upstream(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.idp.claims("alice", now());
        claims["groups"] = json!(["writers"]);
        change(&mut claims);
        self.key.sign(&claims)
    }

    pub(crate) async fn exchange(&self, bearer: &str, body: &Value) -> Answer {
        let path = "/v1/tenants/acme/token/exchange";
        self.world.call("POST", path, bearer, Some(body)).await
    }

    /// Signs the person in and gives the answer to a good exchange.
    pub(crate) async fn sign_in(&self, body: &Value) -> Value {
        let answer = self.exchange(&self.upstream(|_| {}), body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) async fn refresh(&self, refresh_token: &str) -> Answer {
        let body = json!({ "refresh_token": refresh_token });
        let path = "/v1/tenants/acme/token/refresh";
        self.world.call("POST", path, "", Some(&body)).await
    }

    /// Who a token speaks for, by the tenant's published keys.
    pub(crate) async fn principal(&self, token: &Value, audience: Audience) -> Principal {
        let path = "/v1/tenants/acme/.well-known/jwks.json";
        let jwks = self.world.call("GET", path, "", None).await.body;
        let jwks: Jwks = serde_json::from_value(jwks).unwrap();
        let keys = KeySet::from_jwks(&jwks);
        let tenant = "acme".parse().unwrap();
        let at = TimeMs(now() * 1000);
        verify(token.as_str().unwrap(), &tenant, audience, &keys, at).unwrap()
    }

    /// The grants in a token for brokers, as text.
    pub(crate) async fn grants(&self, token: &Value) -> Vec<String> {
        let principal = self.principal(token, Audience::Broker).await;
        let grants = principal.permissions.grants().iter();
        grants.map(ToString::to_string).collect()
    }
}

/// Asks for something with a body, as the named tenant, and keeps everything an answer shows.
pub(crate) async fn seen(world: &World, ask: &Ask<'_>, tenant: &str) -> Seen {
    let path = ask.path.replace("{tenant_id}", tenant);
    let url = format!("http://{}{path}", world.plane.addresses().api);
    let mut request = world.http.request(ask.method.parse().unwrap(), url);
    if !ask.bearer.is_empty() {
        request = request.bearer_auth(ask.bearer);
    }
    if let Some(body) = &ask.body {
        request = request.json(body);
    }
    let response = request.send().await.unwrap();
    let mut headers: Vec<String> = response
        .headers()
        .iter()
        .filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    let mut answer = answer(response).await;
    if let Some(body) = answer.body.as_object_mut() {
        body.remove("request_id");
    }
    let body = answer.body.to_string().replace(tenant, "{tenant_id}");
    Seen {
        status: answer.status,
        body,
        headers,
    }
}

pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) bearer: &'a str,
    pub(crate) body: Option<Value>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) headers: Vec<String>,
}

pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}
