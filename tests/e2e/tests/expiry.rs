//! Tokens that run out while something is open: renewed in place, or ended so that nothing is missed.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use felix_client::{Signal, Start, TokenSource};
use felix_e2e::raw::{Listener, Stream, Target, Wire, offer};
use felix_e2e::said::failure;
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Answer, Extension, Extensions, Renew};
use felix_wire::frame::Incoming;
use felix_wire::message::{Message, ShardMoved, Start as From, Subscribe};
use felix_wire::negotiate::Offer;
use serde_json::json;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn short(home: &Home, node: &Node, seconds: u64) -> String {
    node.token(home, json!({"ttl_seconds": seconds}))
        .await
        .unwrap()
}

fn keeps() -> Offer {
    Offer {
        extensions: Extensions::from_iter([Extension::Reauth]),
        ..offer()
    }
}

fn subscribe_from(offset: u64) -> Subscribe {
    Subscribe {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: "orders".into(),
        shard: None,
        subscription_id: None,
        start: Some(From::Offset(offset)),
        queue_capacity: None,
        records: false,
    }
}

fn renewals(node: &Node) -> impl Future<Output = f64> {
    let metric = node.metric("felix_broker_token_renewals_total");
    async move { metric.await.unwrap() }
}

#[tokio::test]
async fn our_client_goes_on_under_one_token_after_the_other_and_nothing_is_lost_or_repeated() {
    let home = Arc::new(home());
    let node = Arc::new(home.start().await.unwrap());
    let minted = Arc::new(AtomicUsize::new(0));
    let source = TokenSource::provider({
        let (home, node, minted) = (Arc::clone(&home), Arc::clone(&node), Arc::clone(&minted));
        move || {
            let (home, node) = (Arc::clone(&home), Arc::clone(&node));
            minted.fetch_add(1, Ordering::SeqCst);
            async move { node.token(&home, json!({"ttl_seconds": 3})).await }
        }
    });
    let client = node.builder().token_source(source).connect().await.unwrap();
    let mut subscription = client
        .subscribe("orders")
        .from(Start::Earliest)
        .await
        .unwrap();
    home.ok(&["cache", "create", "rooms"]).await.unwrap();
    let cache = client.cache("rooms").unwrap();
    let mut published = 0_u64;
    // Until several tokens have run out and been replaced.
    while renewals(&node).await < 9.0 {
        let at = client
            .publish("orders", published.to_string())
            .await
            .unwrap();
        assert_eq!(at.offset, Some(published));
        cache.put("last", published.to_string()).await.unwrap();
        published += 1;
        let Some(Signal::Batch(batch)) = subscription.next_signal().await.unwrap() else {
            panic!("the subscription was interrupted")
        };
        assert_eq!(batch.first_offset(), Some(published - 1));
        assert_eq!(batch.len(), 1);
    }
    assert!(minted.load(Ordering::SeqCst) >= 3);
    assert_eq!(
        node.metric("felix_broker_tokens_expired_total")
            .await
            .unwrap(),
        0.0
    );
    assert_eq!(
        home.payloads("orders").await.unwrap().len() as u64,
        published
    );
}

/// What an event stream holds until it ends: the offsets, and the last message.
async fn to_the_end(events: &mut Listener) -> (Vec<u64>, Message) {
    let mut offsets = Vec::new();
    loop {
        match events.frame().await.unwrap() {
            Some(Incoming::Published(frame)) if frame.flags.bits() == 0 => {
                let last = Message::decode(&frame.payload).unwrap();
                events.ended().await.unwrap();
                return (offsets, last);
            }
            Some(Incoming::Published(frame)) => {
                let batch = felix_wire::EventBatch::decode(frame.flags, frame.payload).unwrap();
                offsets.extend(batch.events().filter_map(|event| event.offset));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_published_clients_subscription_is_told_where_to_go_on_and_misses_nothing() {
    let home = home();
    let node = home.start().await.unwrap();
    let mut writer = Wire::connect(node.ready())
        .await
        .unwrap()
        .authenticated()
        .await
        .unwrap();
    let mut next = 0;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let token = short(&home, &node, 1).await;
        let reader = Wire::connect(node.ready()).await.unwrap().with_token(token);
        let (_, events) = reader.subscribe(subscribe_from(next)).await.unwrap();
        let mut events = events.unwrap();
        let reading = to_the_end(&mut events);
        tokio::pin!(reading);
        let (offsets, last) = loop {
            let to = Target {
                stream: "orders",
                request_id: 1,
                ..Target::default()
            };
            tokio::select! {
                read = &mut reading => break read,
                ack = writer.publish(&to, &[b"x"]) => { ack.unwrap().outcome.unwrap(); }
            }
        };
        let Message::ShardMoved(ShardMoved {
            resume_from: Some(from),
            node_id: Some(_),
            ..
        }) = last
        else {
            panic!("{last:?}")
        };
        seen.extend(offsets);
        assert_eq!(from, seen.len() as u64);
        next = from;
    }
    let expected: Vec<u64> = (0..next).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn what_is_asked_under_a_token_that_ran_out_is_refused_and_not_done() {
    let home = home();
    let node = home.start().await.unwrap();
    let token = short(&home, &node, 1).await;
    let wire = Wire::connect(node.ready()).await.unwrap().with_token(token);
    let (mut publishes, mut asks) = (
        wire.authenticated().await.unwrap(),
        wire.authenticated().await.unwrap(),
    );
    let mut calls = wire.authenticated().await.unwrap();
    let expired = eventually(|| async {
        let expired = node
            .metric("felix_broker_tokens_expired_total")
            .await
            .unwrap();
        (expired > 0.0).then_some(())
    });
    expired.await.expect("the token runs out");
    let to = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    let refused = publishes
        .publish(&to, &[b"x"])
        .await
        .unwrap()
        .outcome
        .unwrap_err();
    assert!(ran_out(&refused), "{refused:?}");
    publishes.incoming.ended().await.unwrap();
    let topology = failure(asks.ask(Message::Topology).await.unwrap());
    assert!(ran_out(&topology), "{topology:?}");
    asks.incoming.ended().await.unwrap();
    let get = felix_wire::extension::requests::CacheGet { key: "k".into() };
    let Answer::Refused(refused) = calls.call("rooms", get).await.unwrap() else {
        panic!("not refused")
    };
    assert!(ran_out(&refused.failure), "{refused:?}");
    calls.incoming.ended().await.unwrap();
    assert!(home.payloads("orders").await.unwrap().is_empty());
}

fn ran_out(failure: &Failure) -> bool {
    failure.code() == Some(Code::Unauthenticated) && failure.reason() == Some("token_expired")
}

/// The next frame of the extension on a stream that keeps tokens, with what it is about.
async fn told(stream: &mut Stream) -> (u64, Answer) {
    match stream.incoming.frame().await.unwrap() {
        Some(Incoming::Extension(frame)) => {
            (frame.correlation, frame.answer(keeps().extensions).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

async fn renew(stream: &mut Stream, identity: u64, token: String) -> Answer {
    let renew = Renew { identity, token };
    stream.write(&renew.encode(77).unwrap()).await.unwrap();
    loop {
        if let (77, answer) = told(stream).await {
            return answer;
        }
    }
}

#[tokio::test]
async fn only_the_same_principal_renews_and_rights_that_are_gone_end_what_needs_them() {
    let home = home();
    let node = home.start().await.unwrap();
    let token = short(&home, &node, 6).await;
    let wire = Wire::connect(node.ready()).await.unwrap().with_token(token);
    let mut keeper = wire.authenticated_with(&keeps()).await.unwrap();
    let (_, events) = wire.subscribe(subscribe_from(0)).await.unwrap();
    let mut events = events.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let (identity, Answer::Expiring(expiring)) = told(&mut keeper).await else {
        panic!("not told that the token runs out")
    };
    assert!(expiring.left_ms <= 7_000, "{expiring:?}");
    // Somebody else's token, a bad one, and one for what is not there.
    node.bootstrap(
        &home,
        "tenants/other/initialize",
        &json!({"initial_admin_principals": ["p:eve"]}),
    )
    .await
    .unwrap();
    let other = node
        .bootstrap(
            &home,
            "tenants/other/dev-token",
            &json!({"principal": "p:eve"}),
        )
        .await
        .unwrap();
    let other = other["felix_token"].as_str().unwrap().to_owned();
    let good = node.ready().token.clone();
    for (identity, token, reason) in [
        (identity, other, "token_unknown_key"),
        (identity, "bad".to_owned(), "token_malformed"),
        (identity + 1_000, good, "identity"),
    ] {
        let Answer::Refused(refused) = renew(&mut keeper, identity, token).await else {
            panic!("not refused: {reason}")
        };
        assert_eq!(refused.failure.reason(), Some(reason), "{refused:?}");
    }
    // The same principal with less.
    let less = json!({"permissions": ["stream.publish:stream:dev/default/orders"]});
    let less = node.token(&home, less).await.unwrap();
    let Answer::Renewed(renewed) = renew(&mut keeper, identity, less).await else {
        panic!("not renewed")
    };
    assert!(renewed.left_ms > 60_000, "{renewed:?}");
    let (_, last) = to_the_end(&mut events).await;
    assert_eq!(failure(last).code(), Some(Code::Forbidden));
    let to = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    assert_eq!(
        asks.publish(&to, &[b"x"]).await.unwrap().outcome,
        Ok(Some(0))
    );
    let read = json!({"type": "stream_read", "tenant_id": "dev", "namespace": "default",
        "stream": "orders", "shard": 0, "from": 0, "request_id": 2});
    let refused = failure(asks.ask_json(&read).await.unwrap());
    assert_eq!(refused.code(), Some(Code::Forbidden));
}
