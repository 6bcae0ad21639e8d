//! Signing out, here and at the provider.

use axum::http::StatusCode;
use openidconnect::url::Url;
use reqwest::Method;
use reqwest::header::ORIGIN;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::timeout;

use super::bench::{Bench, Browser, PATIENCE, location, refused};
use super::cookie;
use crate::stub::provider::{CLIENT, Manners};

#[tokio::test]
async fn another_site_cannot_sign_anybody_out() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    bench.signs_in(&mut browser).await;
    let own = bench.served.url();
    let header = ("x-felix-sign-out", "1");
    let refused = StatusCode::FORBIDDEN;
    for headers in [
        vec![],
        vec![header],
        vec![(ORIGIN.as_str(), "https://evil.example"), header],
        vec![(ORIGIN.as_str(), "null"), header],
        // A form of our own could be framed elsewhere; only a script says the header.
        vec![(ORIGIN.as_str(), own.as_str())],
    ] {
        assert_eq!(
            browser.signs_out(&bench, &headers).await,
            refused,
            "{headers:?}"
        );
    }
    assert_eq!(
        browser.get(&bench, "/auth/logout").await.status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    assert!(bench.found(&browser).is_some());
    let good = [(ORIGIN.as_str(), own.as_str()), header];
    assert_eq!(
        browser.signs_out(&bench, &good).await,
        StatusCode::NO_CONTENT
    );
    assert!(!browser.cookies.contains_key(cookie::SESSION));
}

#[tokio::test]
async fn signing_out_ends_what_came_in_by_the_sign_in() {
    let bench = Bench::new(Manners::default()).await;
    let (mut browser, mut other) = (Browser::default(), Browser::default());
    bench.signs_in(&mut browser).await;
    bench.signs_in(&mut other).await;
    let session = bench.found(&browser).unwrap();
    let socket = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.over().await }
    });
    let headers = [
        (ORIGIN.as_str(), &*bench.served.url()),
        ("x-felix-sign-out", "1"),
    ];
    assert_eq!(
        browser.signs_out(&bench, &headers).await,
        StatusCode::NO_CONTENT
    );
    timeout(PATIENCE, socket).await.unwrap().unwrap();
    assert!(session.id_token().await.is_err());
    assert!(
        bench.found(&other).is_some(),
        "another browser stays signed in"
    );
}

fn known_for_it() -> Manners {
    Manners {
        signs_out: true,
        ..Manners::default()
    }
}

/// Signs out here; what the page is told.
async fn leaves(bench: &Bench, browser: &mut Browser) -> Value {
    let own = bench.served.url();
    let headers = [(ORIGIN.as_str(), own.as_str()), ("x-felix-sign-out", "1")];
    let answer = browser
        .send(bench, Method::POST, "/auth/logout", &headers)
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let text = answer.text().await.unwrap();
    for secret in bench.provider.provider.secrets() {
        assert!(!text.contains(&secret), "the page is given no token");
    }
    serde_json::from_str(&text).unwrap()
}

/// Goes on to the provider; what it is asked.
async fn goes_on(bench: &Bench, browser: &mut Browser, query: &str) -> BTreeMap<String, String> {
    let path = format!("/auth/logout/continue{query}");
    let answer = browser.get(bench, &path).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(answer.headers()["referrer-policy"], "no-referrer");
    let url = Url::parse(location(&answer)).unwrap();
    let endpoint = format!("{}/end", bench.provider.served.url());
    assert!(url.as_str().starts_with(&endpoint), "{url}");
    url.query_pairs().into_owned().collect()
}

#[tokio::test]
async fn a_person_signs_out_at_the_provider_too_and_his_page_still_holds_no_token() {
    let bench = Bench::new(known_for_it()).await;
    let mut browser = Browser::default();
    bench.signs_in(&mut browser).await;
    let token = bench.found(&browser).unwrap().id_token().await.unwrap();
    let told = leaves(&bench, &mut browser).await;
    assert_eq!(told, json!({"continue_at": "/auth/logout/continue"}));
    assert!(bench.found(&browser).is_none());
    let asked = goes_on(&bench, &mut browser, "?return_to=/board/7").await;
    assert_eq!(asked["id_token_hint"], token.reveal());
    assert_eq!(asked["client_id"], CLIENT);
    let done = format!("{}/auth/logout/done", bench.served.url());
    assert_eq!(asked["post_logout_redirect_uri"], done);
    assert!(asked["state"].len() >= 43);
    let back = format!("/auth/logout/done?state={}", asked["state"]);
    let answer = browser.get(&bench, &back).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(location(&answer), "/board/7");
    assert!(browser.cookies.keys().all(|name| !name.contains("logout")));
    refused(
        browser.get(&bench, &back).await,
        StatusCode::BAD_REQUEST,
        "no sign-out",
    )
    .await;
}

#[tokio::test]
async fn a_sign_out_is_gone_on_with_once_and_by_nobody_else_and_leads_nowhere_else() {
    let bench = Bench::new(known_for_it()).await;
    let (mut browser, mut other) = (Browser::default(), Browser::default());
    let bad = StatusCode::BAD_REQUEST;
    let on = "/auth/logout/continue";
    refused(browser.get(&bench, on).await, bad, "no sign-out").await;
    bench.signs_in(&mut browser).await;
    leaves(&bench, &mut browser).await;
    refused(other.get(&bench, on).await, bad, "no sign-out").await;
    for elsewhere in ["https://evil.example", "//evil.example", "/auth/login"] {
        let path = format!("{on}?return_to={elsewhere}");
        refused(browser.get(&bench, &path).await, bad, "path on this site").await;
    }
    let asked = goes_on(&bench, &mut browser, "").await;
    refused(browser.get(&bench, on).await, bad, "no sign-out").await;
    for query in ["", "?state=", "?state=guessed"] {
        let answer = browser
            .get(&bench, &format!("/auth/logout/done{query}"))
            .await;
        assert_eq!(answer.status(), bad, "{query}");
    }
    let back = format!("/auth/logout/done?state={}", asked["state"]);
    assert_eq!(other.get(&bench, &back).await.status(), bad);
}

#[tokio::test]
async fn where_the_provider_has_no_sign_out_of_its_own_there_is_nowhere_to_go_on_to() {
    for end in ["javascript:alert(1)", "not an address"] {
        let bench = Bench::new(Manners {
            signs_out: true,
            ends_at: Some(end.to_owned()),
            ..Manners::default()
        })
        .await;
        let mut browser = Browser::default();
        bench.signs_in(&mut browser).await;
        let own = bench.served.url();
        let headers = [(ORIGIN.as_str(), own.as_str()), ("x-felix-sign-out", "1")];
        assert_eq!(
            browser.signs_out(&bench, &headers).await,
            StatusCode::NO_CONTENT
        );
        assert!(browser.cookies.keys().all(|name| !name.contains("logout")));
    }
}
