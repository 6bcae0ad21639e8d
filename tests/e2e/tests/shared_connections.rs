//! Many people over one connection, as a gateway serves them: each stream is judged by its own token.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use felix_client::{Client, Start, TokenSource};
use felix_e2e::outside::eventually;
use felix_e2e::revocation::{self, Kind};
use felix_e2e::{Home, Node};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What has not happened after this long does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

async fn started() -> (Home, Node) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    (home, node)
}

/// The developer's client, and a second person on its connection.
async fn two(home: &Home, node: &Node, alice: TokenSource) -> (Client, Client) {
    home.ok(&["cache", "create", "rooms"]).await.unwrap();
    let dev = node.builder().connect().await.unwrap();
    let alice = dev.with_token(alice).await.unwrap();
    (dev, alice)
}

#[tokio::test]
async fn two_people_on_one_connection_do_what_each_may_and_no_more() {
    let (home, node) = started().await;
    let token = revocation::alice(&home, &node).await.unwrap();
    let before = node.metric("felix_broker_connections").await.unwrap();
    let (dev, alice) = two(&home, &node, TokenSource::fixed(token)).await;
    let mut events = alice.subscribe("orders").from(Start::Latest).await.unwrap();
    dev.publish("orders", "from the developer").await.unwrap();
    alice.publish("orders", "from alice").await.unwrap();
    for expected in ["from the developer", "from alice"] {
        let event = timeout(PATIENCE, events.next()).await.unwrap().unwrap();
        assert_eq!(event.unwrap().payload, expected.as_bytes());
    }
    // She reads caches, and writes none.
    dev.cache("rooms").unwrap().put("1", "a").await.unwrap();
    let rooms = alice.cache("rooms").unwrap();
    assert!(rooms.get("1").await.unwrap().is_some());
    let refused = rooms.put("1", "b").await.unwrap_err();
    assert!(refused.to_string().contains("cache.write"), "{refused}");
    // A refusal ends nothing.
    alice.publish("orders", "again").await.unwrap();
    let connections = node.metric("felix_broker_connections").await.unwrap();
    assert!(connections <= before + 1.0, "{connections} connections");
}

#[tokio::test]
async fn whoever_leaves_a_shared_connection_leaves_it_to_the_others() {
    let (home, node) = started().await;
    let token = revocation::alice(&home, &node).await.unwrap();
    let (dev, alice) = two(&home, &node, TokenSource::fixed(token.as_str())).await;
    let again = alice.with_token(TokenSource::fixed(token)).await.unwrap();
    alice.publish("orders", "x").await.unwrap();
    alice.close().await;
    assert!(alice.publish("orders", "y").await.is_err());
    drop(alice);
    again.publish("orders", "z").await.unwrap();
    drop(again);
    dev.publish("orders", "still here").await.unwrap();
}

#[tokio::test]
async fn an_idle_person_who_is_revoked_is_noticed_at_his_token_source_and_others_go_on() {
    let (home, node) = started().await;
    let token = revocation::alice(&home, &node).await.unwrap();
    let (asked, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let source = TokenSource::provider({
        let (token, asked, again) = (token.clone(), Arc::clone(&asked), Arc::clone(&again));
        move || {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            if !first {
                again.notify_one();
            }
            let token = first.then(|| token.clone()).ok_or("there is no other");
            async move { token }
        }
    });
    let (dev, alice) = two(&home, &node, source).await;
    alice.publish("orders", "x").await.unwrap();
    revocation::revoke(&node, Kind::Principal, &token)
        .await
        .unwrap();
    timeout(PATIENCE, again.notified()).await.unwrap();
    let refused = eventually(|| async { alice.publish("orders", "y").await.err() }).await;
    assert!(refused.is_some());
    dev.publish("orders", "z").await.unwrap();
}
