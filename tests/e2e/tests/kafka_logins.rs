//! Who may log in at a Kafka listener, and what the others are told.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

mod kafka_wire;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use felix_e2e::{Home, Node};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, MetadataRequest, MetadataResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_wire::Wire;
use serde_json::json;

const SASL_AUTHENTICATION_FAILED: i16 = 58;

async fn started() -> (Home, Node) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    (home, node)
}

/// A connection that has shown a credential, and what was said of it: the error, and its words.
async fn login(node: &Node, tenant: &str, secret: &str) -> (Wire, i16, String) {
    let mut wire = Wire::connect(&node.ready().kafka_bootstrap).await;
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    let greeted: SaslHandshakeResponse = wire.ask(ApiKey::SaslHandshake, 1, &plain).await.unwrap();
    assert_eq!(greeted.error_code, 0);
    let shown = Bytes::from(format!("\0{tenant}\0{secret}"));
    let request = SaslAuthenticateRequest::default().with_auth_bytes(shown);
    let said = wire.ask(ApiKey::SaslAuthenticate, 1, &request).await;
    let said: SaslAuthenticateResponse = said.unwrap();
    let words = said.error_message.unwrap_or_default().to_string();
    (wire, said.error_code, words)
}

#[tokio::test]
async fn every_bad_token_is_refused_and_none_says_whether_a_tenant_exists() {
    let (_home, node) = started().await;
    let good = node.ready().token.clone();
    let (header, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let kid: serde_json::Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    let none = json!({"alg": "none", "kid": kid["kid"], "typ": "JWT"}).to_string();
    let none = URL_SAFE_NO_PAD.encode(none);
    let mut spoilt = signature.as_bytes().to_vec();
    spoilt[0] = if spoilt[0] == b'A' { b'B' } else { b'A' };
    let spoilt = String::from_utf8(spoilt).unwrap();
    for bad in [
        format!("{none}.{body}."),
        format!("{none}.{body}.{signature}"),
        format!("{header}.{body}.{spoilt}"),
        "not a token".to_owned(),
        String::new(),
        "x".repeat(20_000),
    ] {
        let (mut wire, code, words) = login(&node, "dev", &bad).await;
        assert_eq!(code, SASL_AUTHENTICATION_FAILED, "{words}");
        assert!(
            bad.is_empty() || !words.contains(&bad),
            "it is not repeated"
        );
        let all = MetadataRequest::default().with_topics(None);
        let answer: Option<MetadataResponse> = wire.ask(ApiKey::Metadata, 9, &all).await;
        assert!(answer.is_none(), "the connection ends");
        let (_, nobodys, same) = login(&node, "nobody", &bad).await;
        assert_eq!((nobodys, same), (code, words));
    }
    // Whoever has a token that the tenant signed knows of the tenant, and is told what is wrong with the token.
    let (_, code, words) = login(&node, "dev", &node.ready().controlplane_token).await;
    assert_eq!(code, SASL_AUTHENTICATION_FAILED, "{words}");
    assert!(words.contains("audience"), "{words}");
    let (mut wire, code, words) = login(&node, "dev", &good).await;
    assert_eq!(code, 0, "{words}");
    assert_eq!(wire.produce("orders", "x").await, 0);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_of_another_tenant_sees_no_topic_of_this_one_and_is_told_so_as_of_none() {
    let (home, node) = started().await;
    let eve = json!({"initial_admin_principals": ["p:eve"]});
    node.bootstrap(&home, "tenants/other/initialize", &eve)
        .await
        .unwrap();
    let eve = json!({"principal": "p:eve"});
    let minted = node.bootstrap(&home, "tenants/other/dev-token", &eve);
    let minted = minted.await.unwrap();
    let token = minted["felix_token"].as_str().unwrap();
    let (_, code, words) = login(&node, "dev", token).await;
    assert_eq!(code, SASL_AUTHENTICATION_FAILED);
    let (_, _, same) = login(&node, "nobody", token).await;
    assert_eq!(words, same);

    let (mut wire, code, words) = login(&node, "other", token).await;
    assert_eq!(code, 0, "{words}");
    let all = MetadataRequest::default().with_topics(None);
    let seen: MetadataResponse = wire.ask(ApiKey::Metadata, 9, &all).await.unwrap();
    assert!(seen.topics.is_empty(), "{seen:?}");
    let named = |name: &'static str| {
        let name = TopicName(StrBytes::from_static_str(name));
        MetadataRequestTopic::default().with_name(Some(name))
    };
    // One that this tenant has, under each of its names, and one that nobody has.
    let names = ["orders", "default.orders", "dev.orders", "nothing"];
    let asked = MetadataRequest::default().with_topics(Some(names.map(named).into()));
    let seen: MetadataResponse = wire.ask(ApiKey::Metadata, 9, &asked).await.unwrap();
    let codes: Vec<i16> = seen.topics.iter().map(|topic| topic.error_code).collect();
    assert!(
        codes.iter().all(|code| *code == codes[0] && *code != 0),
        "{codes:?}"
    );
    let none = wire.produce("nothing", "x").await;
    assert_ne!(none, 0);
    for name in names {
        assert_eq!(wire.produce(name, "x").await, none, "{name}");
    }
    assert!(home.payloads("orders").await.unwrap().is_empty());
    node.stop().await.unwrap();
}
