//! Connecting, being refused, and finding another broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use felix_client::{Client, ConnectFailed, ReconnectPolicy, Retry};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{BrokerAddress, Message, TopologyView};
use felix_wire::negotiate::Features;
use felix_wire::{Extension, Served};

use super::fake::{Authority, FakeBroker, served};

fn refusal(code: Code) -> Message {
    Message::Error(Failure::new(code, "no"))
}

#[tokio::test]
async fn the_token_and_everything_the_client_reads_are_offered() {
    let broker = FakeBroker::start();
    let accept = async {
        let conn = broker.accept().await;
        let mut pipe = conn.stream().await;
        let auth = pipe.welcome(&served()).await;
        (conn, pipe, auth)
    };
    let (client, (_conn, _pipe, auth)) = tokio::join!(broker.builder().connect(), accept);
    assert_eq!(
        (auth.tenant_id.as_str(), auth.token.as_str()),
        ("t1", "tok")
    );
    assert_eq!(auth.client_flags, Some(0x1fff));
    assert_eq!(auth.extensions, Extension::ALL.map(Extension::name));
    assert_eq!(client.unwrap().broker(), Some(broker.address()));
}

#[tokio::test]
async fn a_refused_token_is_final_and_names_the_code() {
    let broker = FakeBroker::start();
    let refuse = async {
        let conn = broker.accept().await;
        let mut stream = conn.stream().await;
        stream.auth().await;
        stream.say(refusal(Code::Unauthenticated)).await;
        (conn, stream)
    };
    let (failed, _kept) = tokio::join!(broker.builder().connect(), refuse);
    let failed = failed.unwrap_err();
    assert!(matches!(failed, ConnectFailed::Refused(_)));
    assert_eq!(
        (failed.code(), failed.retry()),
        ("unauthenticated", Retry::Fatal)
    );
}

#[tokio::test]
async fn a_provider_is_asked_once_more_when_its_token_was_refused() {
    let broker = FakeBroker::start();
    let asked = Arc::new(AtomicUsize::new(0));
    let provider = {
        let asked = Arc::clone(&asked);
        move || {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, String>(format!("token-{number}")) }
        }
    };
    let accept = async {
        let conn = broker.accept().await;
        let mut first = conn.stream().await;
        assert_eq!(first.auth().await.token, "token-0");
        first.say(refusal(Code::Unauthenticated)).await;
        let mut second = conn.stream().await;
        assert_eq!(second.welcome(&served()).await.token, "token-1");
        (conn, first, second)
    };
    let connect = broker.builder().token_provider(provider).connect();
    let (client, _kept) = tokio::join!(connect, accept);
    client.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_provider_that_has_only_the_refused_token_is_not_asked_for_ever() {
    let broker = FakeBroker::start();
    let refuse = async {
        let conn = broker.accept().await;
        let mut stream = conn.stream().await;
        stream.auth().await;
        stream.say(refusal(Code::Unauthenticated)).await;
        (conn, stream)
    };
    let provider = || async { Ok::<_, String>("same".to_owned()) };
    let connect = broker.builder().token_provider(provider).connect();
    let (failed, _kept) = tokio::join!(connect, refuse);
    assert!(matches!(failed.unwrap_err(), ConnectFailed::Refused(_)));
}

#[tokio::test]
async fn a_provider_that_fails_is_a_final_typed_error() {
    let broker = FakeBroker::start();
    let provider = || async { Err::<String, _>("boom") };
    let connect = broker.builder().token_provider(provider).connect();
    let (failed, _conn) = tokio::join!(connect, broker.accept());
    let failed = failed.unwrap_err();
    assert_eq!((failed.code(), failed.retry()), ("no_token", Retry::Fatal));
}

#[tokio::test]
async fn a_broker_that_is_leaving_is_passed_over() {
    let authority = Authority::new();
    let (leaving, staying) = (authority.broker(), authority.broker());
    let refuse = async {
        let conn = leaving.accept().await;
        let mut stream = conn.stream().await;
        stream.auth().await;
        stream.say(refusal(Code::Draining)).await;
        (conn, stream)
    };
    let connect = leaving.builder().broker(staying.address()).connect();
    let (client, _refused, _welcomed) = tokio::join!(connect, refuse, staying.welcome());
    assert_eq!(client.unwrap().broker(), Some(staying.address()));
}

#[tokio::test]
async fn a_broker_that_says_nothing_does_not_hold_up_the_next() {
    let authority = Authority::new();
    let (mute, staying) = (authority.broker(), authority.broker());
    let connect = mute.builder().broker(staying.address()).connect();
    let (client, _mute, _welcomed) = tokio::join!(connect, mute.accept(), staying.welcome());
    assert_eq!(client.unwrap().broker(), Some(staying.address()));
}

#[tokio::test]
async fn an_untrusted_broker_is_named_with_the_reason() {
    let (known, stranger) = (FakeBroker::start(), FakeBroker::start());
    let refuse = async {
        let conn = known.accept().await;
        let mut stream = conn.stream().await;
        stream.auth().await;
        stream.say(refusal(Code::Draining)).await;
        (conn, stream)
    };
    let connect = known.builder().broker(stranger.address()).connect();
    let (failed, _kept, ()) = tokio::join!(connect, refuse, stranger.turned_down());
    let failed = failed.unwrap_err().to_string();
    assert!(
        failed.contains(&stranger.address()) && failed.contains("certificate"),
        "{failed}"
    );
}

#[tokio::test]
async fn a_wrong_name_is_refused() {
    let broker = FakeBroker::start();
    let connect = broker.builder().server_name("broker.example").connect();
    let (failed, ()) = tokio::join!(connect, broker.turned_down());
    let failed = failed.unwrap_err();
    assert_eq!(failed.code(), "unreachable");
    assert!(failed.to_string().contains("certificate"), "{failed}");
}

#[tokio::test]
async fn a_lost_broker_is_replaced_by_one_that_was_learned() {
    let authority = Authority::new();
    let (entry, learned) = (authority.broker(), authority.broker());
    let with_topology = Served {
        features: Features::ALL,
        ..served()
    };
    let accept = async {
        let conn = entry.accept().await;
        let mut pipe = conn.stream().await;
        pipe.welcome(&with_topology).await;
        let (request, mut stream) = conn.asked().await;
        assert_eq!(request, Message::Topology);
        let node_id = "b".to_owned();
        let brokers = vec![BrokerAddress {
            node_id,
            addr: learned.address(),
        }];
        stream.say(TopologyView { brokers }).await;
        stream.finish();
        // The client has read the view once it has let go of the stream.
        stream.stopped().await;
        (conn, pipe)
    };
    let (client, (conn, _pipe)) = tokio::join!(entry.builder().connect(), accept);
    let client: Client = client.unwrap();
    conn.drop_dead();
    drop(entry);
    let serve = async {
        let (conn, mut pipe) = learned.welcome().await;
        let id = pipe.publish_id().await;
        pipe.ack(id, Some(0)).await;
        (conn, pipe)
    };
    let publish = async {
        // Until the client has heard of the loss, a publish may still be sent into it.
        while let Err(failed) = client.publish("orders", "a").await {
            assert_eq!(failed.code(), "unanswered");
        }
    };
    let ((), _kept) = tokio::join!(publish, serve);
    assert_eq!(client.broker(), Some(learned.address()));
}

#[tokio::test]
async fn a_client_that_may_not_wait_reports_the_loss() {
    let broker = FakeBroker::start();
    let builder = broker
        .builder()
        .reconnect(ReconnectPolicy::never())
        .connect_timeout(Duration::from_millis(100));
    let (client, conn, _pipe) = broker.connected(builder).await;
    conn.drop_dead();
    conn.0.closed().await;
    drop(broker);
    let failed = loop {
        // Until the client has heard of the loss, a publish may still be sent.
        let failed = client.publish("orders", "a").await.unwrap_err();
        if failed.code() != "unanswered" {
            break failed;
        }
    };
    assert_eq!(
        (failed.code(), failed.retry()),
        ("unreachable", Retry::Retry)
    );
}

#[tokio::test]
async fn a_closed_client_answers_everything_with_closed() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    client.close().await;
    conn.0.closed().await;
    assert_eq!(
        client.publish("orders", "a").await.unwrap_err().code(),
        "closed"
    );
    assert_eq!(client.topology().await.unwrap_err().code(), "closed");
    assert_eq!(client.broker(), None);
}

#[tokio::test]
async fn the_connection_closes_with_the_last_handle() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let clone = client.clone();
    drop(client);
    assert!(conn.0.close_reason().is_none());
    drop(clone);
    conn.0.closed().await;
}
