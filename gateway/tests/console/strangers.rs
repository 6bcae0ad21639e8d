//! Who brings a token that is none, or none for where he is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::json;

use crate::node::{Node, read};

const EXPLAIN: &str = "/explain?action=stream.publish&object=stream:dev/default/orders";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_nobody_signed_is_answered_nothing_not_even_about_itself() {
    let node = Node::start(false).await;
    let claims = json!({
        "sub": "p:admin", "tid": "dev", "aud": "felix-broker",
        "perms": ["stream.publish:stream:dev/default/*"],
    });
    let body = URL_SAFE_NO_PAD.encode(claims.to_string());
    let good = node.admin("dev");
    let (signed, _) = good.token.rsplit_once('.').unwrap();
    for forged in [
        format!("eyJhbGciOiJFZERTQSJ9.{body}.c2lnbmF0dXJl"),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([7; 64])),
    ] {
        let refused = node.bearer(&forged).get(EXPLAIN).await;
        assert_eq!(refused.refused(), (401, "signed_out"));
        assert!(!refused.body.to_string().contains(&forged));
    }
    assert_eq!(good.get(EXPLAIN).await.ok()["allowed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_development_is_taken_from_this_machine_and_not_through_it() {
    let node = Node::start(false).await;
    let developer = node.developer();
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
    ] {
        let request = developer.open(Method::GET, "/me").header(name, value);
        let refused = read(request.send().await.unwrap()).await;
        assert_eq!(refused.refused(), (401, "signed_out"), "{name}");
    }
    assert_eq!(developer.get("/me").await.ok()["via"], "token");
    // He is known by now, and where he asks from is looked at all the same.
    let request = developer.open(Method::GET, "/me");
    let request = request.header("x-forwarded-for", "203.0.113.9");
    let refused = read(request.send().await.unwrap()).await;
    assert_eq!(refused.refused(), (401, "signed_out"));
    // A token that is good everywhere is good through a proxy.
    let admin = node.admin("dev");
    let request = admin.open(Method::GET, "/me");
    let request = request.header("x-forwarded-for", "203.0.113.9");
    read(request.send().await.unwrap()).await.ok();
}
