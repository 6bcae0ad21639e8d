//! Which tokens open what, and what the others are told.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::{Audience, Claims, SigningKey, mint};
use felix_e2e::raw::{Target, Wire, offer};
use felix_e2e::said::{code, failure, still_serves};
use felix_e2e::{Home, Node, eventually};
use felix_model::TimeMs;
use felix_wire::error::Code;
use felix_wire::message::{Auth, Message};
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
    let now = TimeMs(now * 1000);
    let claims = Claims::new(
        "dev".parse().unwrap(),
        "p:dev".to_owned(),
        Audience::Broker,
        (now, 600),
        vec!["stream.publish:stream:dev/*/*".parse().unwrap()],
    );
    mint(&SigningKey::generate().unwrap(), &claims).unwrap()
}
