//! What a node makes of peers that it does not know, and of frames that nobody should send.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::{Audience, Claims, SigningKey, mint};
use felix_e2e::raw::{Stream, Target, Wire, offer};
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::Code;
use felix_wire::flags::Flags;
use felix_wire::frame::{Frame, HEADER_BYTES, Header};
use felix_wire::message::{Auth, Message, ProducerInit};
use felix_wire::negotiate::{Features, Offer};
use felix_wire::{Failure, extension::Extensions};
use quinn::{ConnectionError, VarInt};
use serde_json::json;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn wire(node: &Node) -> Wire {
    Wire::connect(node.ready()).await.unwrap()
}

/// The failure in an `error`.
fn failure(message: Message) -> Failure {
    match message {
        Message::Error(failure) => failure,
        other => panic!("not refused: {other:?}"),
    }
}

fn code(message: Message) -> Option<Code> {
    failure(message).code()
}

/// The stream still answers.
async fn still_serves(stream: &mut Stream) {
    let answer = stream.ask(ProducerInit { request_id: 77 }).await.unwrap();
    assert!(matches!(answer, Message::ProducerInitOk(ok) if ok.request_id == 77));
}

/// The node as a whole still takes records.
async fn node_serves(node: &Node) {
    let client = node.client().await.unwrap();
    client.publish("orders", "still here").await.unwrap();
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
async fn every_bad_token_is_refused_with_a_word_of_its_own() {
    let home = home();
    let node = home.start().await.unwrap();
    let good = node.ready().token.clone();
    let [header, body, signature] = parts(&good);
    let stranger = stranger_token();
    let [_, _, foreign] = parts(&stranger);
    let kid = header_of(&good)["kid"].clone();
    let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none", "kid": kid, "typ": "JWT"}).to_string());
    let wire = wire(&node).await;
    for (token, reason) in [
        (stranger.clone(), "token_unknown_key"),
        (format!("{header}.{body}.{foreign}"), "token_bad_signature"),
        (format!("{none}.{body}."), "token_wrong_algorithm"),
        (
            format!("{none}.{body}.{signature}"),
            "token_wrong_algorithm",
        ),
        (
            node.ready().controlplane_token.clone(),
            "token_wrong_audience",
        ),
        ("not a token".to_owned(), "token_malformed"),
        (String::new(), "token_malformed"),
        ("x".repeat(20_000), "token_too_large"),
    ] {
        let mut stream = wire.open().await.unwrap();
        let refused = failure(stream.ask(as_auth(&node, &token)).await.unwrap());
        assert_eq!(refused.code(), Some(Code::Unauthenticated), "{refused:?}");
        assert_eq!(refused.reason(), Some(reason), "{refused:?}");
        stream.incoming.ended().await.unwrap();
    }
    // A tenant that does not exist is spoken of as one whose key is not known.
    let mut stream = wire.open().await.unwrap();
    let auth = offer().auth("nobody", good.as_str());
    let refused = failure(stream.ask(auth).await.unwrap());
    assert_eq!(refused.reason(), Some("token_unknown_key"), "{refused:?}");
    // The client says it in a type of its own, at once.
    let failed = node.client_with(&stranger).await.unwrap_err();
    assert!(failed.to_string().contains("unauthenticated"), "{failed}");
    still_serves(&mut wire.authenticated().await.unwrap()).await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_that_has_run_out_is_refused() {
    let home = home();
    let node = home.start().await.unwrap();
    let token = node.token(&home, json!({"ttl_seconds": 1})).await.unwrap();
    let wire = wire(&node).await;
    let (wire, node) = (&wire, &node);
    let auth = || as_auth(node, &token);
    let refused = eventually(|| async {
        let mut stream = wire.open().await.unwrap();
        match stream.ask(auth()).await.unwrap() {
            Message::AuthOk(_) => None,
            answer => Some(failure(answer)),
        }
    });
    let refused = refused.await.expect("the token runs out");
    assert_eq!(refused.code(), Some(Code::Unauthenticated));
    assert_eq!(refused.reason(), Some("token_expired"), "{refused:?}");
}

#[tokio::test]
async fn a_token_of_another_tenant_opens_nothing_of_this_one() {
    let home = home();
    let node = home.start().await.unwrap();
    let eve = json!({"initial_admin_principals": ["p:eve"]});
    node.bootstrap(&home, "tenants/other/initialize", &eve)
        .await
        .unwrap();
    let eve = json!({"principal": "p:eve"});
    let minted = node
        .bootstrap(&home, "tenants/other/dev-token", &eve)
        .await
        .unwrap();
    let token = minted["felix_token"].as_str().unwrap();
    let wire = wire(&node).await;
    let mut stream = wire.open().await.unwrap();
    let refused = failure(stream.ask(as_auth(&node, token)).await.unwrap());
    assert_eq!(refused.code(), Some(Code::Unauthenticated), "{refused:?}");
    // With its own tenant it is welcome, and may still not name the other.
    let mut stream = wire.open().await.unwrap();
    let answer = stream.ask(offer().auth("other", token)).await.unwrap();
    assert!(matches!(answer, Message::AuthOk(_)), "{answer:?}");
    let target = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    let refused = stream.publish(&target, &[b"x"]).await.unwrap().outcome;
    assert_eq!(refused.unwrap_err().code(), Some(Code::Forbidden));
    for ask in [
        json!({"type": "subscribe", "tenant_id": "dev", "namespace": "default", "stream": "orders"}),
        json!({"type": "stream_shards", "tenant_id": "dev", "namespace": "default",
            "stream": "orders", "request_id": 2}),
    ] {
        let answer = stream.ask_json(&ask).await.unwrap();
        assert_eq!(code(answer), Some(Code::Forbidden), "{ask}");
    }
    assert!(home.payloads("orders").await.unwrap().is_empty());
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_allows_what_it_says_and_nothing_else() {
    let home = home();
    let node = home.start().await.unwrap();
    let only = |permission: &str| json!({"permissions": [permission]});
    let reads = node
        .token(&home, only("stream.subscribe:stream:dev/default/orders"))
        .await
        .unwrap();
    let writes = node
        .token(&home, only("stream.publish:stream:dev/default/orders"))
        .await
        .unwrap();
    let target = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    let subscribe = json!({"type": "subscribe", "tenant_id": "dev", "namespace": "default",
        "stream": "orders", "start": "earliest"});
    let read = json!({"type": "stream_read", "tenant_id": "dev", "namespace": "default",
        "stream": "orders", "shard": 0, "from": 0, "request_id": 2});
    let inspect = json!({"type": "subscriptions_list", "filter": {}, "request_id": 3});

    let reader = wire(&node).await.with_token(reads.as_str());
    let mut stream = reader.authenticated().await.unwrap();
    let refused = stream.publish(&target, &[b"x"]).await.unwrap().outcome;
    assert_eq!(refused.unwrap_err().code(), Some(Code::Forbidden));
    let answer = stream.ask_json(&read).await.unwrap();
    assert!(matches!(answer, Message::StreamRecords(_)), "{answer:?}");
    let answer = stream.ask_json(&inspect).await.unwrap();
    assert_eq!(code(answer), Some(Code::Forbidden));

    let writer = wire(&node).await.with_token(writes.as_str());
    let mut stream = writer.authenticated().await.unwrap();
    let ack = stream.publish(&target, &[b"x"]).await.unwrap();
    assert_eq!(ack.outcome, Ok(Some(0)));
    for ask in [&subscribe, &read, &inspect] {
        let answer = stream.ask_json(ask).await.unwrap();
        assert_eq!(code(answer), Some(Code::Forbidden), "{ask}");
    }
    // Another stream is out of reach, whether it exists or not, in the same words.
    home.ok(&["stream", "create", "secret"]).await.unwrap();
    let mut said = Vec::new();
    for name in ["secret", "absent"] {
        let target = Target {
            stream: name,
            request_id: 9,
            ..Target::default()
        };
        let refused = stream.publish(&target, &[b"x"]).await.unwrap().outcome;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Some(Code::Forbidden));
        said.push(refused.message.replace(name, "*"));
    }
    assert_eq!(said[0], said[1]);
    let client = node.client_with(&reads).await.unwrap();
    let failed = client.publish("orders", "x").await.unwrap_err();
    assert_eq!(failed.code(), "forbidden");
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
    let object = json!({"tenant_id": "dev", "namespace": "default", "cache": "config",
        "stream": "orders", "shard": 0, "group": "g", "key": "k", "value": "dg==", "delta": 1,
        "ttl_ms": null, "condition": "absent", "version": 1, "prefix": "", "entity_key": "YQ==",
        "event": "YQ==", "changes": [], "max_records": 1, "wait_ms": 0, "offset": 0,
        "start": "earliest", "before": 0, "expected_offset": 0, "attempts": 1, "extend_ms": 1});
    for (kind, reason) in [
        ("cache_put", "cache"),
        ("cache_get", "cache"),
        ("cache_delete", "cache"),
        ("cache_put_if", "cache"),
        ("cache_delete_if", "cache"),
        ("counter_add", "counter"),
        ("counter_get", "counter"),
        ("commit", "commit"),
        ("state_get", "state"),
        ("group_poll", "group"),
        ("group_ack", "group"),
        ("group_nack", "group"),
        ("group_describe", "group"),
        ("trim_before", "head_trim"),
    ] {
        let mut ask = object.clone();
        ask["type"] = kind.into();
        ask["request_id"] = 4.into();
        let refused = failure(stream.ask_json(&ask).await.unwrap());
        assert_eq!(refused.code(), Some(Code::FeatureNotEnabled), "{kind}");
        assert_eq!(refused.reason(), Some(reason), "{kind}");
    }
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

#[tokio::test]
async fn mutilated_frames_never_end_the_process() {
    const ROUNDS: u64 = 600;
    let home = home();
    let node = home.start().await.unwrap();
    let frames = golden_frames();
    assert!(frames.len() > 100, "{} vectors", frames.len());
    let mut random = Random(0x0f1e_2d3c);
    let mut open = Some(wire(&node).await);
    for round in 0..ROUNDS {
        let here = match open.take() {
            Some(here) if here.connection.close_reason().is_none() => here,
            _ => wire(&node).await,
        };
        let mut stream = if round % 3 == 0 {
            here.open().await.unwrap()
        } else {
            here.authenticated().await.unwrap()
        };
        for _ in 0..random.below(3) + 1 {
            let frame = &frames[random.below(frames.len())];
            let frame = random.mutilate(frame);
            // The broker may have had enough of this stream.
            let _ = stream.write(&frame).await;
        }
        let _ = stream.finish();
        // Whatever it answers, it comes to an end of the stream.
        while let Ok(Some(_)) = stream.incoming.frame().await {}
        open = Some(here);
    }
    node_serves(&node).await;
    let status = node.stop().await.unwrap();
    assert!(status.success(), "{status}");
}

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Turns bits, cuts, repeats or leaves alone.
    fn mutilate(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next().to_be_bytes()[0],
                2 => bytes.truncate(at.max(1)),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    }
}

/// The frames of the vectors: those in hexadecimal, and a frame around each message.
fn golden_frames() -> Vec<Vec<u8>> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/wire");
    let mut frames = Vec::new();
    for file in ["frames.txt", "extension.txt", "refused.txt", "messages.txt"] {
        let text = std::fs::read_to_string(vectors.join(file)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let last = line.rsplit('|').next().unwrap_or_default().trim();
            if let Some(start) = line.find('{') {
                let payload = bytes::Bytes::copy_from_slice(line[start..].trim().as_bytes());
                let flags = Flags::NONE;
                frames.push(Frame { flags, payload }.encode().to_vec());
            } else if let Some(bytes) = from_hex(last) {
                frames.push(bytes);
            }
        }
    }
    frames
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok())
        .collect()
}

fn parts(token: &str) -> [&str; 3] {
    let parts: Vec<&str> = token.split('.').collect();
    parts.try_into().unwrap()
}

fn header_of(token: &str) -> serde_json::Value {
    let [header, ..] = parts(token);
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap()
}

/// A token for tenant `dev` that says everything right, signed by nobody in particular.
fn stranger_token() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = Claims {
        tenant: "dev".parse().unwrap(),
        subject: "p:dev".to_owned(),
        audience: Audience::Broker,
        issued_at: now,
        expires_at: now + 600,
        permissions: vec!["stream.publish:stream:dev/*/*".parse().unwrap()],
        actor: None,
        loopback_only: false,
    };
    mint(&SigningKey::generate().unwrap(), &claims).unwrap()
}
