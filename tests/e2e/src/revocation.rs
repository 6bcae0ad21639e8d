//! Taking back what somebody may do, and how long it takes until what he has open has ended.

use std::time::{Duration, Instant};

use felix_wire::error::Code;
use felix_wire::message::{Message, Subscribe};
use serde_json::{Value, json};

use crate::raw::{Wire, WireFailed};
use crate::{Home, Node, NodeFailed};

/// The role that is given and taken.
const ROLE: &str = "role:e2e-reader";

/// The principal it is given to.
const ALICE: &str = "p:alice";

/// What is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A principal: a role is taken from him.
    Principal,
    /// A role: one of its rights is taken away.
    Role,
    /// The key that signed his token.
    Key,
    /// One token, by its id.
    Token,
    /// The session of a service account.
    Session,
    /// The right of an actor to act for others, under a token that was delegated to him.
    Delegation,
    /// The tenant.
    Tenant,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Principal,
        Self::Role,
        Self::Key,
        Self::Token,
        Self::Session,
        Self::Delegation,
        Self::Tenant,
    ];
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum NotRevoked {
    /// The node.
    #[error(transparent)]
    Node(#[from] NodeFailed),
    /// The control plane.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// The wire.
    #[error(transparent)]
    Wire(#[from] WireFailed),
    /// The stream ended otherwise.
    #[error("{0}")]
    Otherwise(String),
}

/// One delay.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// What was revoked.
    pub kind: Kind,
    /// From the control plane's answer to the end of the subscription; nothing when it came first.
    pub took: Duration,
}

async fn ask(
    node: &Node,
    method: reqwest::Method,
    path: &str,
    body: Option<&Value>,
) -> reqwest::Result<Value> {
    let token = &node.ready().controlplane_token;
    node.controlplane(token, method, path, body).await
}

fn grouping() -> Value {
    json!({"user": ALICE, "role": ROLE})
}

fn policy(action: &str, object: &str) -> Value {
    json!({"subject": ROLE, "object": object, "action": action})
}

/// What lets a gateway act for others.
fn may_act() -> Value {
    json!({"subject": "role:delegates", "object": "tenant:dev", "action": "token.delegate"})
}

/// Gives a principal what he needs by a role of tenant `dev`, and him a token.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn alice(home: &Home, node: &Node) -> reqwest::Result<String> {
    let post = reqwest::Method::POST;
    for (action, object) in [
        ("stream.subscribe", "stream:dev/*/*"),
        ("stream.publish", "stream:dev/*/*"),
        ("cache.read", "cache:dev/*/*"),
    ] {
        let path = "/v1/tenants/dev/rbac/policies";
        ask(node, post.clone(), path, Some(&policy(action, object))).await?;
    }
    let path = "/v1/tenants/dev/rbac/groupings";
    ask(node, post, path, Some(&grouping())).await?;
    node.token(home, json!({"principal": ALICE, "ttl_seconds": 3600}))
        .await
}

/// Gives a service account the same, and a token that belongs to a session.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn worker(home: &Home, node: &Node) -> reqwest::Result<String> {
    worker_for(home, node, &json!({})).await
}

/// The worker's token with which a gateway acts that has the right to it by a role.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn delegated(home: &Home, node: &Node) -> reqwest::Result<String> {
    let post = reqwest::Method::POST;
    let path = "/v1/tenants/dev/rbac/policies";
    ask(node, post.clone(), path, Some(&may_act())).await?;
    let gift = json!({"user": "p:gateway", "role": "role:delegates"});
    let path = "/v1/tenants/dev/rbac/groupings";
    ask(node, post.clone(), path, Some(&gift)).await?;
    let own = json!({"principal": "p:gateway", "audience": "felix-controlplane"});
    let gateway = node.token(home, own).await?;
    let person = worker_for(home, node, &json!({"actor_token": gateway})).await?;
    let body = json!({
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": person,
    });
    let path = "/v1/tenants/dev/token/delegate";
    let answer = node.controlplane(&gateway, post, path, Some(&body)).await?;
    let token = answer.get("access_token").and_then(Value::as_str);
    Ok(token.unwrap_or_default().to_owned())
}

async fn worker_for(home: &Home, node: &Node, exchange: &Value) -> reqwest::Result<String> {
    alice(home, node).await?;
    let post = reqwest::Method::POST;
    let gift = json!({"user": "sa:worker", "role": ROLE});
    let path = "/v1/tenants/dev/rbac/groupings";
    ask(node, post.clone(), path, Some(&gift)).await?;
    let accounts = "/v1/tenants/dev/service-accounts";
    let account = json!({"name": "worker"});
    ask(node, post.clone(), accounts, Some(&account)).await?;
    let (keys, nothing) = (format!("{accounts}/worker/keys"), json!({}));
    let key = ask(node, post, &keys, Some(&nothing)).await?;
    let key = key.get("key").and_then(Value::as_str).unwrap_or_default();
    let url = format!(
        "{}/v1/tenants/dev/token/exchange",
        node.ready().controlplane_url
    );
    let answer = crate::outside::http().post(url).bearer_auth(key);
    let answer = answer.json(exchange).send();
    let answer: Value = answer.await?.error_for_status()?.json().await?;
    let token = answer.get("felix_token").and_then(Value::as_str);
    Ok(token.unwrap_or_default().to_owned())
}

/// A claim of a token, unverified.
fn claim(token: &str, claim: &str) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&body).ok()?;
    claims.get(claim)?.as_str().map(str::to_owned)
}

/// Revokes something that a token of [`alice`] or [`worker`] rests on. Returns with the control plane's answer.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn revoke(node: &Node, kind: Kind, token: &str) -> reqwest::Result<()> {
    let (post, delete) = (reqwest::Method::POST, reqwest::Method::DELETE);
    match kind {
        Kind::Principal => {
            let path = "/v1/tenants/dev/rbac/groupings";
            ask(node, delete, path, Some(&grouping())).await?;
        }
        Kind::Role => {
            let path = "/v1/tenants/dev/rbac/policies";
            let lost = policy("cache.read", "cache:dev/*/*");
            ask(node, delete, path, Some(&lost)).await?;
        }
        Kind::Key => rotate(node, &node.ready().controlplane_token).await?,
        Kind::Token => {
            let id = claim(token, "jti").unwrap_or_default();
            let revoked = json!({"kind": "token", "id": id});
            ask(node, post, "/v1/tenants/dev/revocations", Some(&revoked)).await?;
        }
        Kind::Session => {
            let id = claim(token, "sid").unwrap_or_default();
            let path = format!("/v1/tenants/dev/sessions/{id}");
            ask(node, delete, &path, None).await?;
        }
        Kind::Delegation => {
            let path = "/v1/tenants/dev/rbac/policies";
            ask(node, delete, path, Some(&may_act())).await?;
        }
        Kind::Tenant => {
            ask(node, delete, "/v1/tenants/dev", None).await?;
        }
    }
    Ok(())
}

/// Stages a key, signs with it, and takes the one before away, as after a theft. The token is an administrator's.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn rotate(node: &Node, token: &str) -> reqwest::Result<()> {
    let (post, delete) = (reqwest::Method::POST, reqwest::Method::DELETE);
    let ask = async |method, path: &str| node.controlplane(token, method, path, None).await;
    let keys = "/v1/tenants/dev/signing-keys";
    let before = ask(reqwest::Method::GET, keys).await?;
    let staged = ask(post.clone(), keys).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let old = before.get("current").map(text).unwrap_or_default();
    let verifying = staged.get("verifying").and_then(Value::as_array);
    let new = verifying
        .into_iter()
        .flatten()
        .map(text)
        .find(|kid| *kid != old)
        .unwrap_or_default();
    ask(post, &format!("{keys}/{new}/activate")).await?;
    ask(delete, &format!("{keys}/{old}")).await?;
    Ok(())
}

/// A token that rests on what is to be revoked.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn token_for(home: &Home, node: &Node, kind: Kind) -> reqwest::Result<String> {
    match kind {
        Kind::Session => worker(home, node).await,
        Kind::Delegation => delegated(home, node).await,
        Kind::Principal | Kind::Role | Kind::Key | Kind::Token | Kind::Tenant => {
            alice(home, node).await
        }
    }
}

/// Measures every kind of revocation on nodes of its own.
///
/// # Errors
/// [`NotRevoked`] when something did not end as it must.
pub async fn run(home: impl Fn() -> Result<Home, String>) -> Result<Vec<Delay>, NotRevoked> {
    let mut delays = Vec::new();
    for kind in Kind::ALL {
        let home = home().map_err(NotRevoked::Otherwise)?;
        let node = home.start().await?;
        let token = token_for(&home, &node, kind).await?;
        let wire = Wire::connect(node.ready()).await?;
        let wire = wire.with_token(token.as_str());
        let ask = Subscribe {
            tenant_id: "dev".into(),
            namespace: "default".into(),
            stream: "orders".into(),
            shard: None,
            subscription_id: None,
            start: None,
            queue_capacity: None,
            records: false,
        };
        let (_, events) = wire.subscribe(ask).await?;
        let mut events = events.ok_or_else(|| NotRevoked::Otherwise("no subscription".into()))?;
        let ended = tokio::spawn(async move { (events.message().await, Instant::now()) });
        revoke(&node, kind, &token).await?;
        let answered = Instant::now();
        let joined = ended.await;
        let (last, at) = joined.map_err(|error| NotRevoked::Otherwise(error.to_string()))?;
        let last = last?;
        let revoked =
            matches!(&last, Message::Error(failure) if failure.code() == Some(Code::Revoked));
        if !revoked {
            return Err(NotRevoked::Otherwise(format!("{kind:?}: {last:?}")));
        }
        let took = at.saturating_duration_since(answered);
        delays.push(Delay { kind, took });
    }
    Ok(delays)
}
