//! What the provider grants and what it refuses, over HTTP as programs see it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use reqwest::redirect::Policy;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::desk::{Desk, NoTokens};
use super::people::Person;
use super::request::{Grantable, loopback};
use super::{CLIENT_ID, Provider, ProviderFailed};

const BACK: &str = "http://127.0.0.1:4567/callback";
const VERIFIER: &str = "a-verifier-of-more-than-forty-three-characters-~";

struct World {
    provider: Provider,
    http: reqwest::Client,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let any = "127.0.0.1:0".parse().expect("an address");
        let provider = Provider::start(any, directory.path())
            .await
            .expect("a provider");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .redirect(Policy::none())
            .build()
            .expect("a client");
        Self {
            provider,
            http,
            _directory: directory,
        }
    }

    /// The good request, with changes; an empty value leaves the parameter out.
    fn asked(&self, changes: &[(&str, &str)]) -> Url {
        let challenge = challenge();
        let mut fields: BTreeMap<&str, &str> = BTreeMap::from([
            ("response_type", "code"),
            ("client_id", CLIENT_ID),
            ("redirect_uri", BACK),
            ("scope", "openid profile"),
            ("state", "s t&ate"),
            ("nonce", "n1"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("prompt", "none"),
            ("login_hint", "Ada"),
        ]);
        fields.extend(changes.iter().copied());
        fields.retain(|_, value| !value.is_empty());
        let url = format!("{}/authorize", self.provider.issuer());
        Url::parse_with_params(&url, fields).expect("a URL")
    }

    async fn authorize(&self, changes: &[(&str, &str)]) -> Answer {
        answer(self.http.get(self.asked(changes))).await
    }

    async fn token(&self, fields: &[(&str, &str)]) -> Answer {
        let url = format!("{}/token", self.provider.issuer());
        answer(form(self.http.post(url), fields)).await
    }

    async fn code(&self, changes: &[(&str, &str)]) -> String {
        let came = self.authorize(changes).await;
        came.query("code").unwrap_or_else(|| panic!("{came:?}"))
    }

    async fn redeem(&self, code: &str, changes: &[(&str, &str)]) -> Answer {
        let mut fields: BTreeMap<&str, &str> = BTreeMap::from([
            ("grant_type", "authorization_code"),
            ("client_id", CLIENT_ID),
            ("code", code),
            ("redirect_uri", BACK),
            ("code_verifier", VERIFIER),
        ]);
        fields.extend(changes.iter().copied());
        fields.retain(|_, value| !value.is_empty());
        let fields: Vec<(&str, &str)> = fields.into_iter().collect();
        self.token(&fields).await
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Answer {
    fn query(&self, name: &str) -> Option<String> {
        let location: Url = self.headers.get("location")?.to_str().ok()?.parse().ok()?;
        let found = location.query_pairs().find(|(found, _)| found == name);
        found.map(|(_, value)| value.into_owned())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("json")
    }

    fn error(&self) -> (u16, String) {
        (
            self.status,
            self.json()["error"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.text().await.expect("a body"),
    }
}

fn form(request: reqwest::RequestBuilder, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let url = Url::parse_with_params("http://form", fields).expect("fields");
    request
        .header("content-type", "application/x-www-form-urlencoded")
        .body(url.query().unwrap_or_default().to_owned())
}

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER.as_bytes()))
}

fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).expect("a body");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).expect("base64")).expect("json")
}

#[tokio::test]
async fn a_code_brings_tokens_that_say_who_and_for_whom() {
    let world = World::new().await;
    let came = world.authorize(&[]).await;
    assert_eq!(came.status, 303);
    assert_eq!(came.query("state").as_deref(), Some("s t&ate"));
    assert_eq!(came.query("iss").as_deref(), Some(world.provider.issuer()));
    let code = came.query("code").expect("a code");
    let given = world.redeem(&code, &[]).await;
    assert_eq!(given.status, 200, "{given:?}");
    assert_eq!(given.headers["cache-control"], "no-store");
    let claims = claims(given.json()["id_token"].as_str().expect("a token"));
    assert_eq!(claims["iss"], world.provider.issuer());
    assert_eq!(
        (&claims["aud"], &claims["sub"]),
        (&CLIENT_ID.into(), &"ada".into())
    );
    assert_eq!(
        (&claims["nonce"], &claims["name"]),
        (&"n1".into(), &"Ada".into())
    );
    assert_eq!(claims["groups"], serde_json::json!(["people", "admins"]));
}

#[tokio::test]
async fn what_is_published_verifies_what_is_signed_and_the_key_outlives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let any = "127.0.0.1:0".parse().expect("an address");
    let first = Provider::start(any, directory.path())
        .await
        .expect("a provider");
    let jwks = first.state.keys.jwks();
    let file = directory.path().join("provider.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&file).expect("a file").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    first.shutdown().await;
    let again = Provider::start(any, directory.path())
        .await
        .expect("a provider");
    assert_eq!(again.state.keys.jwks(), jwks);
    let key = &jwks["keys"][0];
    assert_eq!(
        (&key["kty"], &key["alg"], &key["use"]),
        (&"EC".into(), &"ES256".into(), &"sig".into())
    );
    std::fs::write(&file, "nonsense").expect("written");
    again.shutdown().await;
    let refused = Provider::start(any, directory.path()).await;
    assert!(matches!(refused, Err(ProviderFailed::Key(_))));
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    let refused = Provider::start(everywhere, directory.path()).await;
    assert!(matches!(refused, Err(ProviderFailed::NotLoopback { .. })));
}

#[tokio::test]
async fn another_program_and_another_machine_are_told_nothing_at_their_address() {
    let world = World::new().await;
    for change in [
        ("client_id", "other"),
        ("client_id", ""),
        ("redirect_uri", ""),
        ("redirect_uri", "https://example.com/callback"),
        ("redirect_uri", "http://127.0.0.1.example.com/"),
        ("redirect_uri", "http://127.0.0.1@example.com/"),
        ("redirect_uri", "https://127.0.0.1:4567/callback"),
        ("redirect_uri", "http://127.0.0.1:4567/callback#x"),
        ("redirect_uri", "http:\\\\127.0.0.1:4567/"),
        ("redirect_uri", "javascript:alert(1)"),
    ] {
        let refused = world.authorize(&[change]).await;
        assert_eq!(refused.status, 400, "{change:?}");
        assert!(refused.headers.get("location").is_none(), "{change:?}");
    }
    let long = "s".repeat(2049);
    assert_eq!(world.authorize(&[("state", &long)]).await.status, 400);
}

#[tokio::test]
async fn each_thing_that_a_request_must_have_is_missed_by_its_code() {
    let world = World::new().await;
    for (change, code) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("response_type", ""), "unsupported_response_type"),
        (("response_mode", "fragment"), "invalid_request"),
        (("scope", "profile"), "invalid_scope"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("prompt", "none login"), "invalid_request"),
        (("login_hint", ""), "login_required"),
        (("login_hint", "<b>"), "login_required"),
        (("request", "x"), "request_not_supported"),
        (("request_uri", "x"), "request_uri_not_supported"),
    ] {
        let denied = world.authorize(&[change]).await;
        assert_eq!(denied.query("error").as_deref(), Some(code), "{change:?}");
        assert_eq!(denied.query("state").as_deref(), Some("s t&ate"));
        assert_eq!(
            denied.query("iss").as_deref(),
            Some(world.provider.issuer())
        );
        assert_eq!(denied.query("code"), None);
    }
}

#[tokio::test]
async fn a_code_is_good_once_and_its_second_use_takes_back_what_was_given() {
    let world = World::new().await;
    let code = world.code(&[]).await;
    let given = world.redeem(&code, &[]).await.json();
    assert_eq!(
        world.redeem(&code, &[]).await.error(),
        (400, "invalid_grant".into())
    );
    let refresh = given["refresh_token"].as_str().expect("a token");
    let refused = world
        .token(&[
            ("grant_type", "refresh_token"),
            ("client_id", CLIENT_ID),
            ("refresh_token", refresh),
        ])
        .await;
    assert_eq!(refused.error(), (400, "invalid_grant".into()));
}

#[tokio::test]
async fn a_code_goes_to_the_address_and_the_verifier_it_was_made_for() {
    let world = World::new().await;
    for change in [
        ("redirect_uri", "http://127.0.0.1:4567/callback/"),
        ("redirect_uri", "http://127.0.0.1:4568/callback"),
        ("redirect_uri", "http://localhost:4567/callback"),
        ("redirect_uri", ""),
        ("code_verifier", ""),
        ("code_verifier", "short"),
        (
            "code_verifier",
            "another-verifier-of-more-than-forty-three-characters",
        ),
        ("code", "unknown"),
    ] {
        let code = world.code(&[]).await;
        let refused = world.redeem(&code, &[change]).await;
        assert_eq!(refused.error(), (400, "invalid_grant".into()), "{change:?}");
    }
}

#[tokio::test]
async fn the_token_endpoint_knows_one_client_without_a_password() {
    let world = World::new().await;
    let code = world.code(&[]).await;
    for change in [
        ("client_id", "other"),
        ("client_id", ""),
        ("client_secret", "x"),
    ] {
        let refused = world.redeem(&code, &[change]).await;
        assert_eq!(
            refused.error(),
            (401, "invalid_client".into()),
            "{change:?}"
        );
    }
    let url = format!("{}/token", world.provider.issuer());
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT_ID),
    ];
    let basic = form(
        world.http.post(&url).basic_auth(CLIENT_ID, Some("x")),
        &fields,
    );
    assert_eq!(answer(basic).await.error(), (401, "invalid_client".into()));
    let grant = world.redeem(&code, &[("grant_type", "password")]).await;
    assert_eq!(grant.error(), (400, "unsupported_grant_type".into()));
    let twice = world
        .http
        .post(&url)
        .header("content-type", "application/x-www-form-urlencoded");
    let twice = twice.body(format!("client_id={CLIENT_ID}&client_id=other"));
    assert_eq!(answer(twice).await.error(), (400, "invalid_request".into()));
    assert_eq!(
        world.redeem(&code, &[]).await.status,
        200,
        "the code was not spent by these"
    );
}

#[tokio::test]
async fn a_refresh_token_is_good_once_and_its_second_use_ends_the_sign_in() {
    let world = World::new().await;
    let first = world.redeem(&world.code(&[]).await, &[]).await.json();
    let refresh = async |token: &Value| {
        let token = token.as_str().expect("a token");
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", CLIENT_ID),
            ("refresh_token", token),
        ];
        world.token(&fields).await
    };
    let second = refresh(&first["refresh_token"]).await.json();
    let renewed = claims(second["id_token"].as_str().expect("a token"));
    assert_eq!(renewed["sub"], "ada");
    assert!(renewed.get("nonce").is_none());
    assert_ne!(second["refresh_token"], first["refresh_token"]);
    assert_eq!(
        refresh(&first["refresh_token"]).await.error(),
        (400, "invalid_grant".into())
    );
    assert_eq!(
        refresh(&second["refresh_token"]).await.error(),
        (400, "invalid_grant".into())
    );
}

#[tokio::test]
async fn signing_out_ends_the_sign_in_and_leads_back_to_this_machine_only() {
    let world = World::new().await;
    let given = world.redeem(&world.code(&[]).await, &[]).await.json();
    let url = format!("{}/end-session", world.provider.issuer());
    let out = |back: &'static str| {
        let hint = given["id_token"].as_str().expect("a token");
        let fields = [
            ("id_token_hint", hint),
            ("post_logout_redirect_uri", back),
            ("state", "x"),
        ];
        answer(
            world
                .http
                .get(Url::parse_with_params(&url, fields).expect("a URL")),
        )
    };
    assert_eq!(out("https://example.com/").await.status, 400);
    let away = out("http://localhost:8787/").await;
    assert_eq!(
        (away.status, away.query("state").as_deref()),
        (303, Some("x"))
    );
    let token = given["refresh_token"].as_str().expect("a token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", CLIENT_ID),
        ("refresh_token", token),
    ];
    assert_eq!(
        world.token(&fields).await.error(),
        (400, "invalid_grant".into())
    );
}

#[tokio::test]
async fn the_page_offers_people_says_what_it_is_and_runs_nothing() {
    let world = World::new().await;
    let evil = "\"><script>alert(1)</script>";
    let page = world
        .authorize(&[("prompt", ""), ("state", evil), ("login_hint", evil)])
        .await;
    assert_eq!(page.status, 200);
    for text in [
        "Ada",
        "Grace",
        "Linus",
        "no passwords",
        "this\nmachine only",
    ] {
        assert!(page.text.contains(text), "{text}");
    }
    assert!(!page.text.contains("<script>"));
    let policy = page.headers["content-security-policy"]
        .to_str()
        .expect("text");
    assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(page.headers["x-frame-options"], "DENY");
    let chosen = async |choice: (&str, &str)| {
        let asked = world.asked(&[("prompt", ""), ("login_hint", "")]);
        let mut fields: Vec<(String, String)> = asked.query_pairs().into_owned().collect();
        fields.push((choice.0.to_owned(), choice.1.to_owned()));
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let url = format!("{}/authorize", world.provider.issuer());
        answer(form(world.http.post(url), &fields)).await
    };
    assert!(chosen(("person", "Grace")).await.query("code").is_some());
    assert!(chosen(("name", "Mary Ann")).await.query("code").is_some());
    assert_eq!(
        chosen(("person", "")).await.query("error").as_deref(),
        Some("access_denied")
    );
    assert_eq!(chosen(("name", "<b>")).await.status, 200, "the page again");
}

#[tokio::test]
async fn a_page_of_another_site_reads_nothing_and_no_other_name_leads_here() {
    let world = World::new().await;
    let url = format!(
        "{}/.well-known/openid-configuration",
        world.provider.issuer()
    );
    let from = |origin: &'static str| answer(world.http.get(&url).header("origin", origin));
    let own = from("http://localhost:5173").await;
    assert_eq!(
        own.headers["access-control-allow-origin"],
        "http://localhost:5173"
    );
    assert_eq!(own.json()["issuer"], world.provider.issuer());
    for origin in [
        "https://example.com",
        "null",
        "http://127.0.0.1.example.com",
    ] {
        let other = from(origin).await;
        assert!(
            other.headers.get("access-control-allow-origin").is_none(),
            "{origin}"
        );
    }
    let rebound = answer(world.http.get(&url).header("host", "evil.example.com")).await;
    assert_eq!(rebound.status, 421);
    let preflight = world.http.request(
        reqwest::Method::OPTIONS,
        format!("{}/token", world.provider.issuer()),
    );
    let preflight = answer(preflight.header("origin", "http://127.0.0.1:8787")).await;
    assert_eq!(preflight.status, 204);
}

#[test]
fn codes_and_sign_ins_are_bounded_and_run_out() {
    let mut desk = Desk::default();
    let give = |desk: &mut Desk, number: usize, now: u64| {
        let grantable = Grantable {
            redirect_uri: BACK.into(),
            nonce: None,
            scope: "openid".into(),
            challenge: challenge(),
        };
        let person = Person::named("Ada").expect("a person");
        desk.give_code(
            &format!("c{number}"),
            &format!("s{number}"),
            person,
            grantable,
            now,
        );
    };
    for number in 0..300 {
        give(&mut desk, number, 0);
    }
    let redeem =
        |desk: &mut Desk, code: &str, now: u64| desk.redeem(code, BACK, VERIFIER, "r", now);
    assert_eq!(
        redeem(&mut desk, "c0", 0),
        Err(NoTokens::Code),
        "dropped for newer ones"
    );
    assert!(redeem(&mut desk, "c299", 59).is_ok());
    assert_eq!(
        redeem(&mut desk, "c298", 60),
        Err(NoTokens::Code),
        "a minute is over"
    );
    let life = 30 * 24 * 3600;
    assert!(desk.refresh("s299.r", "r2", 59 + life - 1).is_ok());
    assert_eq!(
        desk.refresh("s299.r2", "r3", 59 + 2 * life),
        Err(NoTokens::Refresh)
    );
    for number in 1000..6000 {
        give(&mut desk, number, 0);
        assert!(redeem(&mut desk, &format!("c{number}"), 0).is_ok());
    }
    assert_eq!(
        desk.refresh("s1000.r", "x", 1),
        Err(NoTokens::Refresh),
        "dropped for newer ones"
    );
    assert!(desk.refresh("s5999.r", "x", 1).is_ok());
}

#[test]
fn names_are_people_and_nothing_else() {
    let ada = Person::named(" ada ").expect("a person");
    assert_eq!((ada.name(), ada.subject().as_str()), ("Ada", "ada"));
    assert_eq!(ada.groups(), ["people", "admins"]);
    let other = Person::named("Mary Ann").expect("a person");
    assert_eq!(
        (other.subject().as_str(), other.groups()),
        ("mary-ann", vec!["people"])
    );
    for name in ["", " ", "<b>", "a\nb", "-a", &"x".repeat(65)] {
        assert!(Person::named(name).is_err(), "{name:?}");
    }
}

#[test]
fn only_http_addresses_of_this_machine_are_led_back_to() {
    for good in [
        "http://127.0.0.1:1/",
        "http://localhost/cb?x=1",
        "http://[::1]:9/a",
    ] {
        assert!(loopback(good).is_some(), "{good}");
    }
    for bad in [
        "http://127.0.0.2/",
        "http://127.1/",
        "http://LOCALHOST/",
        "ftp://localhost/",
        "/cb",
        "http://u@localhost/",
    ] {
        assert!(loopback(bad).is_none(), "{bad}");
    }
}
