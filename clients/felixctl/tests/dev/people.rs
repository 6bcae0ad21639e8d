//! The people of a development node: who signs in may do what a board and the console need.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, Url};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::node::Node;

const VERIFIER: &str = "a-verifier-of-more-than-forty-three-characters-~";
const BACK: &str = "http://127.0.0.1:1/callback";

#[tokio::test(flavor = "multi_thread")]
async fn who_signs_in_opens_a_board_and_only_the_first_of_them_administers() {
    let node = tokio::task::spawn_blocking(Node::ephemeral)
        .await
        .expect("a node");
    let ready = node.ready();
    let http = client();
    let grace = exchange(&http, &ready, &sign_in(&http, &ready, "Grace").await).await;
    let room = format!(
        "{}/v1/tenants/dev/namespaces/default/templates/board/rooms/plans",
        text(&ready, "controlplane_url")
    );
    let opened = http
        .post(&room)
        .bearer_auth(&grace)
        .send()
        .await
        .expect("an answer");
    assert_eq!(opened.status(), 201);
    let opened: Value = opened.json().await.expect("json");
    let (streams, caches) = (&opened["streams"], &opened["caches"]);
    assert_eq!(streams[0]["stream"]["stream"], "board-plans-edits");
    assert_eq!(streams[1]["stream"]["durable"], false);
    assert_eq!(caches.as_array().map(Vec::len), Some(3));
    let issuers = format!(
        "{}/v1/tenants/dev/idp-issuers",
        text(&ready, "controlplane_url")
    );
    let status = async |token: &str| {
        let answer = http
            .get(&issuers)
            .bearer_auth(token)
            .send()
            .await
            .expect("an answer");
        answer.status().as_u16()
    };
    assert_eq!(status(&grace).await, 403);
    let ada = exchange(&http, &ready, &sign_in(&http, &ready, "Ada").await).await;
    assert_eq!(status(&ada).await, 200);
    let opened = node.json(&["namespace", "template", "open", "board", "plans"]);
    assert!(opened.to_string().contains("board-plans-seq"), "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_moved_its_ports_trusts_its_own_provider_and_forgets_the_old_one() {
    let home = tempfile::tempdir().expect("a home");
    let first = tokio::task::spawn_blocking(|| Node::start(home, &[]))
        .await
        .expect("a node");
    let old = text(&first.ready(), "issuer_url");
    let (home, _) = first.stop();
    let again = tokio::task::spawn_blocking(|| Node::start(home, &[]))
        .await
        .expect("a node");
    let ready = again.ready();
    assert_ne!(text(&ready, "issuer_url"), old);
    let http = client();
    let token = exchange(&http, &ready, &sign_in(&http, &ready, "Mary Ann").await).await;
    assert!(!token.is_empty());
    let trusted = again.json(&["idp", "ls"]).to_string();
    assert!(trusted.contains(&text(&ready, "issuer_url")), "{trusted}");
    assert!(!trusted.contains(&old), "{trusted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_tells_pages_where_to_sign_in() {
    let node = tokio::task::spawn_blocking(Node::ephemeral)
        .await
        .expect("a node");
    let ready = node.ready();
    let gateway = text(&ready, "gateway_url");
    assert_eq!(text(&ready, "console_url"), format!("{gateway}/console/"));
    let said = client()
        .get(format!("{gateway}/oidc"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(said.status(), 200);
    let said = said.text().await.expect("a body");
    assert!(
        said.contains(&text(&ready, "issuer_url")) && said.contains("felix-dev"),
        "{said}"
    );
}

fn client() -> Client {
    // It fails when that was said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let none = reqwest::redirect::Policy::none();
    Client::builder().redirect(none).build().expect("a client")
}

fn text(ready: &Value, field: &str) -> String {
    ready[field].as_str().expect(field).to_owned()
}

async fn sign_in(http: &Client, ready: &Value, name: &str) -> String {
    let issuer = text(ready, "issuer_url");
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER.as_bytes()));
    let fields = [
        ("response_type", "code"),
        ("client_id", "felix-dev"),
        ("redirect_uri", BACK),
        ("scope", "openid"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("prompt", "none"),
        ("login_hint", name),
    ];
    let url = Url::parse_with_params(&format!("{issuer}/authorize"), fields).expect("a URL");
    let came = http.get(url).send().await.expect("an answer");
    let back: Url = came.headers()["location"]
        .to_str()
        .expect("text")
        .parse()
        .expect("a URL");
    let code = back
        .query_pairs()
        .find(|(name, _)| name == "code")
        .expect("a code")
        .1
        .into_owned();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "felix-dev"),
        ("code", &code),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
    ];
    let form = Url::parse_with_params("http://form", form).expect("fields");
    let given = http
        .post(format!("{issuer}/token"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.query().expect("fields").to_owned());
    let given: Value = given
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("json");
    given
        .get("id_token")
        .and_then(Value::as_str)
        .expect("a token")
        .to_owned()
}

async fn exchange(http: &Client, ready: &Value, id_token: &str) -> String {
    let url = format!(
        "{}/v1/tenants/dev/token/exchange",
        text(ready, "controlplane_url")
    );
    let asked = http
        .post(url)
        .bearer_auth(id_token)
        .json(&json!({ "audience": "felix-controlplane" }));
    let answer = asked.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.expect("json");
    answer
        .get("felix_token")
        .and_then(Value::as_str)
        .expect("a token")
        .to_owned()
}
