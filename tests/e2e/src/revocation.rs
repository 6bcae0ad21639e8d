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
    /// The tenant.
    Tenant,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Principal, Self::Role, Self::Key, Self::Tenant];
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
    let url = format!("{}{path}", node.ready().controlplane_url);
    let mut request = crate::outside::http()
        .request(method, url)
        .bearer_auth(&node.ready().controlplane_token);
    if let Some(body) = body {
        request = request.json(body);
    }
    let text = request.send().await?.error_for_status()?.text().await?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

fn grouping() -> Value {
    json!({"user": ALICE, "role": ROLE})
}

fn policy(action: &str, object: &str) -> Value {
    json!({"subject": ROLE, "object": object, "action": action})
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

/// Revokes something that the token of [`alice`] rests on. Returns with the control plane's answer.
///
/// # Errors
/// When the node does not answer, or refuses.
pub async fn revoke(_home: &Home, node: &Node, kind: Kind) -> reqwest::Result<()> {
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
        Kind::Key => {
            let keys = "/v1/tenants/dev/signing-keys";
            let before = ask(node, reqwest::Method::GET, keys, None).await?;
            let staged = ask(node, post.clone(), keys, None).await?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let old = before.get("current").map(text).unwrap_or_default();
            let verifying = staged.get("verifying").and_then(Value::as_array);
            let new = verifying
                .into_iter()
                .flatten()
                .map(text)
                .find(|kid| *kid != old)
                .unwrap_or_default();
            ask(node, post, &format!("{keys}/{new}/activate"), None).await?;
            ask(node, delete, &format!("{keys}/{old}"), None).await?;
        }
        Kind::Tenant => {
            ask(node, delete, "/v1/tenants/dev", None).await?;
        }
    }
    Ok(())
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
        let token = alice(&home, &node).await?;
        let wire = Wire::connect(node.ready()).await?.with_token(token);
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
        revoke(&home, &node, kind).await?;
        let answered = Instant::now();
        let joined = ended.await;
        let (last, at) = joined.map_err(|error| NotRevoked::Otherwise(error.to_string()))?;
        match last? {
            Message::Error(failure) if failure.code() == Some(Code::Revoked) => {}
            other => return Err(NotRevoked::Otherwise(format!("{kind:?}: {other:?}"))),
        }
        let took = at.saturating_duration_since(answered);
        delays.push(Delay { kind, took });
    }
    Ok(delays)
}
