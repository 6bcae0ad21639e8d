//! People of an identity provider, until the provider is not trusted any more.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

#[path = "../../../auth/tests/oidc/idp.rs"]
mod idp;

use std::time::{SystemTime, UNIX_EPOCH};

use felix_client::{Client, ReadFailed, Start, Subscription};
use felix_e2e::{Home, Node};
use idp::{Idp, Key};
use reqwest::Method;
use serde_json::{Value, json};

const EXCHANGE: &str = "/v1/tenants/dev/token/exchange";
const REFRESH: &str = "/v1/tenants/dev/token/refresh";

/// Trusts a provider, whose group `readers` may read every stream.
async fn trust(node: &Node, idp: &Idp) {
    let post = |path: &'static str, body: Value| async move {
        let admin = &node.ready().controlplane_token;
        let done = node.controlplane(admin, Method::POST, path, Some(&body));
        done.await.unwrap()
    };
    let issuer = json!({
        "issuer": idp.issuer, "audiences": ["app"], "discovery_url": null, "jwks_url": null,
        "claim_mappings": {"subject_claim": "sub", "groups_claim": "groups"},
    });
    post("/v1/tenants/dev/idp-issuers", issuer).await;
    let rule =
        json!({"subject": "role:reader", "action": "stream.subscribe", "object": "stream:dev/*/*"});
    post("/v1/tenants/dev/rbac/policies", rule).await;
    let readers = format!("group:{}#readers", idp.issuer);
    let gift = json!({"user": readers, "role": "role:reader"});
    post("/v1/tenants/dev/rbac/groupings", gift).await;
}

/// Somebody of a provider who signed in.
struct Person {
    upstream: String,
    refresh_token: String,
    subscription: Subscription,
    _client: Client,
}

impl Person {
    async fn sign_in(node: &Node, idp: &Idp, key: &Key, name: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut claims = idp.claims(name, since.as_secs());
        claims["groups"] = json!(["readers"]);
        let upstream = key.sign(&claims);
        let whole = json!({});
        let signed_in = node.controlplane(&upstream, Method::POST, EXCHANGE, Some(&whole));
        let signed_in = signed_in.await.unwrap();
        let text = |field: &str| signed_in[field].as_str().unwrap().to_owned();
        let client = node.client_with(&text("felix_token")).await.unwrap();
        let subscription = client.subscribe("orders").from(Start::Latest);
        Self {
            upstream,
            refresh_token: text("refresh_token"),
            subscription: subscription.await.unwrap(),
            _client: client,
        }
    }
}

/// The status of a call that is refused.
async fn refused(node: &Node, bearer: &str, path: &str, body: &Value) -> u16 {
    let answer = node.controlplane(bearer, Method::POST, path, Some(body));
    answer.await.unwrap_err().status().unwrap().as_u16()
}

#[tokio::test]
async fn removing_an_issuer_ends_what_its_people_have_open_and_their_sessions_and_nobody_elses() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let key = Key::ec("k1");
    let (leaves, stays) = (Idp::start(&[&key]).await, Idp::start(&[&key]).await);
    trust(&node, &leaves).await;
    trust(&node, &stays).await;
    let mut alice = Person::sign_in(&node, &leaves, &key, "alice").await;
    let mut bob = Person::sign_in(&node, &stays, &key, "bob").await;

    home.ok(&["idp", "rm", &leaves.issuer, "--yes"])
        .await
        .unwrap();
    let ended = alice.subscription.next().await.unwrap_err();
    let ReadFailed::Ended(why) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (why.code.as_str(), why.reason.as_deref()),
        ("revoked", Some("issuer"))
    );
    let again = json!({"refresh_token": alice.refresh_token});
    assert_eq!(refused(&node, "", REFRESH, &again).await, 403);
    assert_eq!(
        refused(&node, &alice.upstream, EXCHANGE, &json!({})).await,
        403
    );
    let sessions = home.ok(&["session", "ls", "--json"]).await.unwrap();
    assert!(!sessions.contains(&leaves.issuer), "{sessions}");
    assert!(sessions.contains(&stays.issuer), "{sessions}");

    let publisher = node.client().await.unwrap();
    publisher.publish("orders", "on").await.unwrap();
    assert!(bob.subscription.next().await.is_ok());
    let next = json!({"refresh_token": bob.refresh_token});
    let renewed = node.controlplane("", Method::POST, REFRESH, Some(&next));
    assert!(renewed.await.unwrap()["felix_token"].is_string());
    node.stop().await.unwrap();
}
