//! What was revoked ends what is open, and opens nothing any more.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use felix_client::{ReadFailed, Start};
use felix_e2e::raw::{Listener, Stream, Target, Wire, offer};
use felix_e2e::revocation::{self, Kind};
use felix_e2e::said::{failure, still_serves};
use felix_e2e::{Home, Node};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Answer;
use felix_wire::extension::requests::{GroupPoll, List, MemberHeartbeat, MemberJoin, Reply};
use felix_wire::message::{CacheWatch, Message, Subscribe};

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

fn subscribe() -> Subscribe {
    Subscribe {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: "orders".into(),
        shard: None,
        subscription_id: None,
        start: None,
        queue_capacity: None,
        records: false,
    }
}

fn watch() -> CacheWatch {
    CacheWatch {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        cache: "rooms".into(),
        key: None,
        prefix: Some(String::new()),
        shard: None,
        from_offset: None,
        retained: false,
        subscription_id: None,
    }
}

fn poll(wait_ms: u32) -> GroupPoll {
    GroupPoll {
        shard: 0,
        group: "workers".into(),
        max_records: 1,
        max_bytes: 0,
        wait_ms,
        visibility_ms: 0,
        consumer: None,
        reclaim: false,
    }
}

fn is_revoked(failure: &Failure, word: &str) {
    assert_eq!(failure.code(), Some(Code::Revoked), "{failure:?}");
    assert_eq!(failure.reason(), Some(word), "{failure:?}");
}

/// The last word of a stream that ends so.
async fn ends_revoked(listener: &mut Listener, word: &str) {
    is_revoked(&failure(listener.message().await.unwrap()), word);
    listener.ended().await.unwrap();
}

async fn watched(wire: &Wire) -> Listener {
    let mut stream = wire.authenticated().await.unwrap();
    let answer = stream.ask(watch()).await.unwrap();
    assert!(
        matches!(answer, Message::CacheWatchStarted(_)),
        "{answer:?}"
    );
    let mut events = wire.events().await.unwrap();
    let hello = events.message().await.unwrap();
    assert!(matches!(hello, Message::EventStreamHello(_)), "{hello:?}");
    events
}

async fn is_refused(node: &Node, token: &str, word: &str) {
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut stream: Stream = wire.open().await.unwrap();
    let answer = stream.ask(offer().auth("dev", token)).await.unwrap();
    is_revoked(&failure(answer), word);
}

#[tokio::test]
async fn everything_a_principal_has_open_ends_and_others_go_on() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["cache", "create", "rooms"]).await.unwrap();
    home.ok(&["stream", "create", "work"]).await.unwrap();
    let token = revocation::alice(&home, &node).await.unwrap();
    let alice = Wire::connect(node.ready())
        .await
        .unwrap()
        .with_token(token.as_str());
    let (_, events) = alice.subscribe(subscribe()).await.unwrap();
    let mut events = events.unwrap();
    let mut watched = watched(&alice).await;
    let mut idle = alice.authenticated().await.unwrap();
    let mut publishes = alice.authenticated().await.unwrap();
    let to = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    publishes
        .publish(&to, &[b"x"])
        .await
        .unwrap()
        .outcome
        .unwrap();
    let mut member = alice.authenticated().await.unwrap();
    let join = MemberJoin {
        group: "team".into(),
        member: "a".into(),
        session_ms: 60_000,
        held: List::build([0_u32; 0]).unwrap(),
    };
    let Answer::Reply(_) = member.call("orders", join).await.unwrap() else {
        panic!("not joined")
    };
    let mut polls = alice.authenticated().await.unwrap();
    polls.call("work", poll(0)).await.unwrap();
    let other = Wire::connect(node.ready()).await.unwrap();
    let mut other = other.authenticated().await.unwrap();
    still_serves(&mut other).await;

    let polling = polls.call("work", poll(30_000));
    let (polled, revoked) =
        tokio::join!(polling, revocation::revoke(&node, Kind::Principal, &token));
    revoked.unwrap();
    // It is taken back, and gives nothing.
    let Answer::Reply(Reply::GroupPoll(polled)) = polled.unwrap() else {
        panic!("the poll was not taken back")
    };
    assert_eq!(polled.records.iter().count(), 0);
    ends_revoked(&mut polls.incoming, "principal").await;
    for listener in [
        &mut events,
        &mut watched,
        &mut idle.incoming,
        &mut publishes.incoming,
    ] {
        loop {
            // The event published above may come first.
            match listener.message().await {
                Ok(last) => break is_revoked(&failure(last), "principal"),
                Err(felix_e2e::raw::WireFailed::Unexpected(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        listener.ended().await.unwrap();
    }
    ends_revoked(&mut member.incoming, "principal").await;
    is_refused(&node, &token, "principal").await;
    still_serves(&mut other).await;
    // Whoever joins under the member's name now is the first to do so.
    let again = MemberHeartbeat {
        group: "team".into(),
        member: "a".into(),
        generation: 0,
        held: List::build([0_u32; 0]).unwrap(),
    };
    let Answer::Refused(refused) = other.call("orders", again).await.unwrap() else {
        panic!("the member is in")
    };
    assert_eq!(refused.failure.reason(), Some("unknown_member"));
    assert!(
        node.metric("felix_broker_tokens_revoked_total")
            .await
            .unwrap()
            >= 1.0
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn our_clients_subscription_ends_with_the_code_whatever_was_revoked() {
    for (kind, word) in [
        (Kind::Key, "key_retired"),
        (Kind::Role, "role"),
        (Kind::Token, "token"),
        (Kind::Session, "session"),
        (Kind::Delegation, "role"),
        (Kind::Tenant, "tenant_gone"),
    ] {
        let home = home();
        let node = home.start().await.unwrap();
        let token = revocation::token_for(&home, &node, kind).await.unwrap();
        let client = node.client_with(&token).await.unwrap();
        let subscription = client.subscribe("orders").from(Start::Latest);
        let mut subscription = subscription.await.unwrap();
        revocation::revoke(&node, kind, &token).await.unwrap();
        let ended = subscription.next().await.unwrap_err();
        let ReadFailed::Ended(refused) = ended else {
            panic!("{kind:?}: {ended:?}")
        };
        assert_eq!(refused.code, "revoked", "{kind:?}");
        assert_eq!(refused.reason.as_deref(), Some(word), "{kind:?}");
        let failed = client.publish("orders", "x").await.unwrap_err();
        assert!(
            ["revoked", "unauthenticated", "not_sent", "unanswered"].contains(&failed.code()),
            "{failed:?}"
        );
    }
}
