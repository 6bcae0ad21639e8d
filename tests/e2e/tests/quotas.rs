//! What a quota of the catalogue does on a node, and that it is lifted with the quota.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use felix_e2e::raw::{Stream, Target, Wire};
use felix_e2e::said::failure;
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Answer;
use felix_wire::extension::requests::CachePut;
use felix_wire::message::{Message, Subscribe};
use serde_json::{Value, json};

async fn limit(node: &Node, limits: &Value) {
    limit_of(node, "", limits).await;
}

/// Sets a quota of the tenant, or of what the path behind it names.
async fn limit_of(node: &Node, whose: &str, limits: &Value) {
    let base = &node.ready().controlplane_url;
    let url = format!("{base}/v1/tenants/dev/quotas{whose}");
    // It fails when that was said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::Client::new()
        .put(url)
        .bearer_auth(&node.ready().controlplane_token)
        .json(limits)
        .send();
    answer.await.unwrap().error_for_status().unwrap();
}

/// Waits until the broker has followed: what it lists for the tenant says so.
async fn followed(node: &Node, bound: &str, limit: u64) {
    let seen = eventually(|| async {
        let listed: Value = node.admin("quotas").await.unwrap().json().await.unwrap();
        let tenants = listed["tenants"].as_array().unwrap().clone();
        let dev = tenants.into_iter().find(|one| one["tenant"] == "dev")?;
        (dev["limits"][bound] == limit).then_some(())
    });
    seen.await.unwrap();
}

fn is_exceeded(failure: &Failure) {
    assert_eq!(failure.code(), Some(Code::Overloaded), "{failure:?}");
    assert_eq!(failure.reason(), Some("quota_exceeded"), "{failure:?}");
    assert!(failure.retry_after_ms() > Some(0), "{failure:?}");
}

async fn subscribe(stream: &mut Stream) -> Message {
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
    stream.ask(ask).await.unwrap()
}

#[tokio::test]
async fn every_kind_of_write_and_every_reader_is_under_the_tenants_quota() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    home.ok(&["cache", "create", "rooms"]).await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut stream = wire.authenticated().await.unwrap();
    assert!(matches!(
        subscribe(&mut stream).await,
        Message::Subscribed(_)
    ));

    // A rate so low that one write pays for a long time.
    limit(
        &node,
        &json!({"publish_bytes_per_second": 1, "subscriptions": 1}),
    )
    .await;
    followed(&node, "subscriptions", 1).await;
    is_exceeded(&failure(subscribe(&mut stream).await));
    let to = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    stream
        .publish(&to, &[&[7; 4096]])
        .await
        .unwrap()
        .outcome
        .unwrap();
    let refused = stream.publish(&to, &[b"x"]).await.unwrap().outcome;
    is_exceeded(&refused.unwrap_err());
    let put = |key: &str| CachePut {
        key: key.into(),
        value: "v".into(),
        ttl_ms: None,
        condition: None,
    };
    let Answer::Refused(refused) = stream.call("rooms", put("k")).await.unwrap() else {
        panic!("the write was taken")
    };
    is_exceeded(&refused.failure);
    let add = json!({"type": "counter_add", "tenant_id": "dev", "namespace": "default",
        "cache": "rooms", "key": "n", "delta": 1, "request_id": 4});
    is_exceeded(&failure(stream.ask_json(&add).await.unwrap()));
    let commit = json!({"type": "commit", "tenant_id": "dev", "namespace": "default",
        "stream": "orders", "entity_key": "ZQ==", "event": "ZQ==",
        "changes": [{"op": "put", "key": "k", "value": "dg=="}], "request_id": 5});
    match stream.ask_json(&commit).await.unwrap() {
        Message::Error(failure) => is_exceeded(&failure),
        other => panic!("{other:?}"),
    }

    limit(&node, &json!({"cache_bytes": 10})).await;
    followed(&node, "cache_bytes", 10).await;
    assert_eq!(
        stream.publish(&to, &[b"x"]).await.unwrap().outcome,
        Ok(Some(1))
    );
    let Answer::Reply(_) = stream.call("rooms", put("k")).await.unwrap() else {
        panic!("the write was refused")
    };
    let Answer::Refused(refused) = stream.call("rooms", put("a-longer-key")).await.unwrap() else {
        panic!("the write was taken")
    };
    is_exceeded(&refused.failure);
    assert!(node.metric("felix_quota_refused_total").await.unwrap() >= 5.0);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_namespaces_and_a_principals_quota_hold_for_them_and_for_nobody_else() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let admin = node.ready().controlplane_token.clone();
    home.ok(&["namespace", "create", "beside"]).await.unwrap();
    home.ok(&["-n", "beside", "stream", "create", "orders"])
        .await
        .unwrap();
    let given = json!({"user": "p:other", "role": "role:tenant-admin"});
    let path = "/v1/tenants/dev/rbac/groupings";
    node.controlplane(&admin, reqwest::Method::POST, path, Some(&given))
        .await
        .unwrap();
    let other = json!({"principal": "p:other"});
    let other = node.token(&home, other).await.unwrap();
    let (here, beside) = (node.builder(), node.builder().namespace("beside"));
    let (here, beside) = (
        here.connect().await.unwrap(),
        beside.connect().await.unwrap(),
    );
    let others = node.builder().namespace("beside").token(other.as_str());
    let others = others.connect().await.unwrap();

    let little = json!({"publish_records_per_second": 1});
    limit_of(&node, "/namespaces/default", &little).await;
    let refused = eventually(|| async { here.publish("orders", "x").await.err() });
    let refused = refused.await.unwrap();
    assert_eq!(refused.code(), "overloaded", "{refused}");
    assert!(refused.to_string().contains("quota_exceeded"), "{refused}");
    beside.publish("orders", "x").await.unwrap();

    limit_of(&node, "/principals/p:dev", &little).await;
    let refused = eventually(|| async { beside.publish("orders", "x").await.err() });
    let refused = refused.await.unwrap();
    assert!(refused.to_string().contains("quota_exceeded"), "{refused}");
    others.publish("orders", "x").await.unwrap();
    node.stop().await.unwrap();
}
