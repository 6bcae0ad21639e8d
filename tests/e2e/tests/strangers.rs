//! What a node makes of peers that it does not know, and of requests that it does not serve.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use felix_e2e::raw::{Target, Wire, offer};
use felix_e2e::said::{code, failure, node_serves, still_serves};
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::Code;
use felix_wire::extension::Extensions;
use felix_wire::flags::Flags;
use felix_wire::frame::{Frame, HEADER_BYTES, Header};
use felix_wire::message::{Auth, Message, ProducerInit};
use felix_wire::negotiate::{Features, Offer};
use quinn::{ConnectionError, VarInt};
use serde_json::json;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn wire(node: &Node) -> Wire {
    Wire::connect(node.ready()).await.unwrap()
}

fn as_auth(node: &Node, token: &str) -> Auth {
    offer().auth(node.ready().tenant.as_str(), token)
}

#[tokio::test]
async fn one_port_takes_clients_with_and_without_the_protocol_name_and_refuses_other_names() {
    let home = home();
    let node = home.start().await.unwrap();
    for protocols in [&[][..], &[b"felix/1".as_slice()][..]] {
        let wire = Wire::offering(node.ready(), protocols).await.unwrap();
        let mut stream = wire.authenticated().await.unwrap();
        still_serves(&mut stream).await;
        wire.close().await;
    }
    for protocol in [b"h3".as_slice(), b"felix-internal/1"] {
        let refused = Wire::offering(node.ready(), &[protocol]).await.unwrap_err();
        // Alert 120 (no_application_protocol) as QUIC carries alerts: 0x100 + 120.
        assert!(refused.to_string().contains("120"), "{refused}");
    }
    node_serves(&node).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_auth_is_refused_by_name_and_ended() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let mut stream = wire.open().await.unwrap();
    let answer = stream.ask(ProducerInit { request_id: 1 }).await.unwrap();
    assert_eq!(code(answer), Some(Code::Unauthenticated));
    stream.incoming.ended().await.unwrap();
    let mut stream = wire.open().await.unwrap();
    let target = Target {
        stream: "orders",
        ..Target::default()
    };
    stream.send(&target, &[b"x"]).await.unwrap();
    let answer = stream.message().await.unwrap();
    assert_eq!(code(answer), Some(Code::Unauthenticated));
    stream.incoming.ended().await.unwrap();
    // The connection is not to blame.
    still_serves(&mut wire.authenticated().await.unwrap()).await;
    assert!(home.payloads("orders").await.unwrap().is_empty());
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_frame_of_a_stranger_is_refused_before_its_payload_is_sent() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let header = |length| Header {
        flags: Flags::NONE,
        length,
    };
    let mut stream = wire.open().await.unwrap();
    // Only the header: whoever waits for the payload waits for ever.
    stream.write(&header(64 * 1024 + 1).encode()).await.unwrap();
    let refused = failure(stream.message().await.unwrap());
    assert_eq!(refused.code(), Some(Code::InvalidRequest), "{refused:?}");
    stream.incoming.ended().await.unwrap();
    // Of the very limit, it is read, and then it is no message.
    let mut stream = wire.open().await.unwrap();
    stream.write(&header(64 * 1024).encode()).await.unwrap();
    stream.write(&[b'x'; 64 * 1024]).await.unwrap();
    let refused = failure(stream.message().await.unwrap());
    assert_eq!(refused.code(), Some(Code::InvalidRequest), "{refused:?}");
    assert!(!refused.message.contains("65536"), "{refused:?}");
    // Somebody known may send more.
    let mut stream = wire.authenticated().await.unwrap();
    let target = Target {
        stream: "orders",
        request_id: 5,
        ..Target::default()
    };
    let ack = stream.publish(&target, &[&[7; 100_000]]).await.unwrap();
    assert_eq!(ack.outcome, Ok(Some(0)));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_unknown_flag_a_wrong_magic_and_another_version_end_the_stream_with_a_code() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let good = Frame {
        flags: Flags::NONE,
        payload: bytes::Bytes::from_static(b"{\"type\":\"topology\"}"),
    };
    let good = good.encode();
    for (at, byte, what) in [
        (6, 0x80, "an unknown flag"),
        (0, b'X', "the magic"),
        (5, 2, "the version"),
        (7, 0x04, "events from a client"),
    ] {
        let mut bad = good.to_vec();
        bad[at] = byte;
        let mut stream = wire.authenticated().await.unwrap();
        stream.write(&bad).await.unwrap();
        let answer = stream.message().await.unwrap();
        assert_eq!(code(answer), Some(Code::InvalidRequest), "{what}");
        stream.incoming.ended().await.unwrap();
    }
    node_serves(&node).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_auth_is_refused_and_the_stream_goes_on() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let mut stream = wire.authenticated().await.unwrap();
    let again = as_auth(&node, &node.ready().token);
    let answer = stream.ask(again).await.unwrap();
    assert_eq!(code(answer), Some(Code::InvalidRequest));
    still_serves(&mut stream).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_older_than_negotiation_is_answered_with_ok_and_with_words_it_reads() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let old = Offer {
        flags: None,
        features: Features::NONE,
        reads_second_word: false,
        extensions: Extensions::NONE,
    };
    let mut stream = wire.open().await.unwrap();
    let auth = old.auth("dev", node.ready().token.as_str());
    assert_eq!(stream.ask(auth).await.unwrap(), Message::Ok);
    let target = Target {
        stream: "orders",
        request_id: 3,
        ..Target::default()
    };
    let ack = stream.publish(&target, &[b"x"]).await.unwrap();
    assert_eq!((ack.request_id, ack.outcome), (3, Ok(None)));
    let ask = json!({"type": "stream_read", "tenant_id": "dev", "namespace": "default",
        "stream": "nothing", "shard": 0, "from": 0, "request_id": 9});
    let refused = failure(stream.ask_json(&ask).await.unwrap());
    assert_eq!(refused.code, None, "a code for a client that reads none");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn one_address_gets_as_many_connections_as_it_may_and_one_more_when_one_goes() {
    let home = home().variable("FELIX_MAX_CONNECTIONS_PER_IP", "3");
    limited_to_three(&home).await;
}

#[tokio::test]
async fn all_addresses_together_get_as_many_connections_as_they_may() {
    let home = home().variable("FELIX_MAX_CLIENT_CONNECTIONS", "3");
    limited_to_three(&home).await;
}

async fn limited_to_three(home: &Home) {
    let node = home.start().await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        let wire = wire(&node).await;
        still_serves(&mut wire.authenticated().await.unwrap()).await;
        open.push(wire);
    }
    let refused = Wire::connect(node.ready()).await.unwrap_err();
    let felix_e2e::raw::WireFailed::Lost(ConnectionError::ConnectionClosed(close)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        close.error_code,
        quinn::TransportErrorCode::CONNECTION_REFUSED
    );
    assert_eq!(
        node.metric("felix_quic_connections_refused_total")
            .await
            .unwrap(),
        1.0
    );
    // Those who are in do not notice.
    still_serves(&mut open[0].authenticated().await.unwrap()).await;
    open.pop().unwrap().close().await;
    let ready = node.ready();
    let again = eventually(|| async { Wire::connect(ready).await.ok() }).await;
    still_serves(
        &mut again
            .expect("a place is free")
            .authenticated()
            .await
            .unwrap(),
    )
    .await;
    for wire in open {
        wire.close().await;
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_on_which_nobody_says_who_he_is_is_closed_with_code_one() {
    let home = home();
    let node = home.start().await.unwrap();
    let silent = wire(&node).await;
    // Half a frame is no word either.
    let mut half = silent.open().await.unwrap();
    half.write(b"FLX1").await.unwrap();
    let known = wire(&node).await;
    let mut stream = known.authenticated().await.unwrap();
    match silent.connection.closed().await {
        ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code, VarInt::from_u32(1));
            assert_eq!(&close.reason[..], b"authentication timeout");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        node.metric("felix_quic_auth_timeout_total").await.unwrap(),
        1.0
    );
    // One that spoke up stays, however quiet it is afterwards.
    still_serves(&mut stream).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn strangers_streams_wait_for_each_other_and_not_for_ever() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    // As many as are read at once, each with the beginning of a frame.
    let mut waiting = Vec::new();
    for _ in 0..16 {
        let mut stream = wire.open().await.unwrap();
        stream.write(b"FLX1").await.unwrap();
        waiting.push(stream);
    }
    let mut next = wire.open().await.unwrap();
    next.say(as_auth(&node, &node.ready().token)).await.unwrap();
    // The first ones end, each in its way; then the next one's turn comes.
    for (index, mut stream) in waiting.into_iter().enumerate() {
        if index % 2 == 0 {
            stream.finish().unwrap();
        } else {
            stream.write(&[0; HEADER_BYTES]).await.unwrap();
            assert_eq!(
                code(stream.message().await.unwrap()),
                Some(Code::InvalidRequest)
            );
        }
    }
    let answer = next.message().await.unwrap();
    assert!(matches!(answer, Message::AuthOk(_)), "{answer:?}");
    still_serves(&mut next).await;
    // Streams that are known do not count: forty of them at once are usual.
    let mut many = Vec::new();
    for _ in 0..40 {
        many.push(wire.authenticated().await.unwrap());
    }
    for stream in &mut many {
        still_serves(stream).await;
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_announcement_on_a_one_way_stream_is_taken_and_makes_the_connection_known() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let auth = Auth {
        tenant_id: "dev".to_owned(),
        token: node.ready().token.clone(),
        client_flags: None,
        client_features: None,
        client_features_hi: None,
        extensions: Vec::new(),
    };
    let mut announce = wire.connection.open_uni().await.unwrap();
    announce
        .write_all(&Message::from(auth).encode())
        .await
        .unwrap();
    announce.finish().unwrap();
    // A stranger, opened after the announcement, would be closed with the connection.
    let closed = wire.connection.closed();
    tokio::pin!(closed);
    let other = self::wire(&node).await;
    let outcome = tokio::select! {
        closed = &mut closed => Err(closed),
        closed = other.connection.closed() => Ok(closed),
    };
    // The connection opened later is gone first: the announced one was known.
    assert!(outcome.is_ok(), "{outcome:?}");
    still_serves(&mut wire.authenticated().await.unwrap()).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn what_later_versions_serve_is_refused_by_name_and_the_stream_stays() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let mut stream = wire.authenticated().await.unwrap();
    let ask = json!({"type": "trim_before", "tenant_id": "dev", "namespace": "default",
        "stream": "orders", "shard": 0, "before": 0, "expected_offset": 0, "request_id": 4});
    let refused = failure(stream.ask_json(&ask).await.unwrap());
    assert_eq!(refused.code(), Some(Code::FeatureNotEnabled));
    assert_eq!(refused.reason(), Some("head_trim"));
    still_serves(&mut stream).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_nobody_knows_is_answered_with_its_own_name() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = wire(&node).await;
    let mut stream = wire.authenticated().await.unwrap();
    let answer = stream
        .ask_json(&json!({"type": "make_coffee", "request_id": 12}))
        .await
        .unwrap();
    let Message::Unsupported(unsupported) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(unsupported.request_type, "make_coffee");
    assert_eq!(unsupported.request_id, Some(12));
    let ask = json!({"type": "extension", "name": "x.y", "request_id": 13, "body": {"a": 1}});
    let answer = stream.ask_json(&ask).await.unwrap();
    let Message::Unsupported(unsupported) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(unsupported.extension.as_deref(), Some("x.y"));
    still_serves(&mut stream).await;
    node.stop().await.unwrap();
}
