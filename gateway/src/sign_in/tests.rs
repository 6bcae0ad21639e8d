//! Signing in at the gateway as a browser does it, against a provider that does what the test says: every attack of
//! design that meets these routes, by name.

mod bench;
mod sign_out;

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use reqwest::Method;
use reqwest::header::{ORIGIN, SET_COOKIE};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::bench::{Bench, Browser, PATIENCE, location, refused};
use super::cookie;
use crate::identity::now;
use crate::stub::provider::{CLIENT, Manners};

#[tokio::test]
async fn a_person_signs_in_and_his_page_holds_no_token() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    assert_eq!(browser.session(&bench).await, json!({"signed_in": false}));
    let answer = bench.signs_in(&mut browser).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(location(&answer), "/board/7");
    let cookies: Vec<_> = answer.headers().get_all(SET_COOKIE).iter().collect();
    let cookie = cookies[0].to_str().unwrap();
    for word in [
        "__Host-felix_session=",
        "; HttpOnly",
        "; Secure",
        "; SameSite=Lax",
        "; Path=/",
    ] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let session = browser.session(&bench).await;
    assert_eq!(
        (&session["signed_in"], &session["subject"]),
        (&json!(true), &json!("ann"))
    );
    assert!(session["expires_in_ms"].as_u64().unwrap() > 0);
    for secret in bench.provider.provider.secrets() {
        assert!(!session.to_string().contains(&secret));
    }
    let token = bench.found(&browser).unwrap().id_token().await.unwrap();
    assert!(
        bench
            .provider
            .provider
            .secrets()
            .contains(&token.reveal().to_owned())
    );
}

#[tokio::test]
async fn a_missing_mismatched_or_reused_state_is_refused() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    let asked = bench.begin(&mut browser, "").await;
    let code = bench.provider.provider.agree(&asked);
    let bad = StatusCode::BAD_REQUEST;
    for (query, says) in [
        (format!("code={code}"), "which login"),
        (format!("code={code}&state="), "empty"),
        (format!("code={code}&state=guessed"), "no login under way"),
        (
            format!("code={code}&state={0}&state={0}", asked["state"]),
            "twice",
        ),
    ] {
        refused(
            browser
                .get(&bench, &format!("/auth/callback?{query}"))
                .await,
            bad,
            says,
        )
        .await;
    }
    // None of these ended the login, and the right answer does, for good.
    let back = format!("/auth/callback?code={code}&state={}", asked["state"]);
    assert_eq!(
        browser.get(&bench, &back).await.status(),
        StatusCode::SEE_OTHER
    );
    refused(browser.get(&bench, &back).await, bad, "no login under way").await;
}

#[tokio::test]
async fn a_state_from_another_browser_is_refused_and_ends_nothing() {
    let bench = Bench::new(Manners::default()).await;
    let (mut victim, mut attacker) = (Browser::default(), Browser::default());
    let asked = bench.begin(&mut attacker, "").await;
    let back = bench.back(&asked);
    // Login CSRF: the victim is made to finish the attacker's login, with no login of his own and with one.
    let bad = StatusCode::BAD_REQUEST;
    refused(victim.get(&bench, &back).await, bad, "another browser").await;
    bench.begin(&mut victim, "").await;
    refused(victim.get(&bench, &back).await, bad, "another browser").await;
    assert!(bench.found(&victim).is_none());
    assert_eq!(
        attacker.get(&bench, &back).await.status(),
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn a_missing_nonce_or_a_replayed_id_token_is_refused() {
    for nonce in [Value::Null, json!("of-another-login")] {
        let claims = json!({"nonce": nonce});
        let bench = Bench::new(Manners {
            claims,
            ..Manners::default()
        })
        .await;
        let answer = bench.signs_in(&mut Browser::default()).await;
        refused(answer, StatusCode::BAD_GATEWAY, "not accepted").await;
    }
}

#[tokio::test]
async fn an_id_token_of_another_issuer_client_or_time_is_refused() {
    for claims in [
        json!({"iss": "https://evil.example"}),
        json!({"aud": "another"}),
        json!({"aud": [CLIENT, "another"], "azp": "another"}),
        json!({"aud": [CLIENT, "another"]}),
        json!({"exp": 1}),
        json!({"exp": null}),
        json!({"sub": null}),
    ] {
        let says = claims.to_string();
        let bench = Bench::new(Manners {
            claims,
            ..Manners::default()
        })
        .await;
        let answer = bench.signs_in(&mut Browser::default()).await;
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "{says}");
    }
    let claims = json!({"aud": [CLIENT, "project"], "azp": CLIENT});
    let bench = Bench::new(Manners {
        claims,
        ..Manners::default()
    })
    .await;
    let answer = bench.signs_in(&mut Browser::default()).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn every_login_is_bound_with_pkce_s256_and_words_of_its_own() {
    let bench = Bench::new(Manners::default()).await;
    let (mut browser, mut seen) = (Browser::default(), Vec::new());
    for _ in 0..3 {
        let asked = bench.begin(&mut browser, "").await;
        assert_eq!(asked["response_type"], "code");
        assert_eq!(asked["code_challenge_method"], "S256");
        for word in ["state", "nonce", "code_challenge"] {
            assert!(asked[word].len() >= 43, "{asked:?}");
            seen.push(asked[word].clone());
        }
    }
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all);
    // The provider holds the verifier against another challenge.
    let mut asked = bench.begin(&mut browser, "").await;
    asked.insert("code_challenge".into(), "of-another".into());
    let answer = browser.get(&bench, &bench.back(&asked)).await;
    refused(answer, StatusCode::FORBIDDEN, "invalid_grant").await;
}

#[tokio::test]
async fn an_answer_of_another_provider_is_not_redeemed_at_this_one() {
    let manners = Manners {
        names_itself: true,
        ..Manners::default()
    };
    let bench = Bench::new(manners).await;
    let mut browser = Browser::default();
    for iss in ["&iss=https%3A%2F%2Fevil.example", ""] {
        let asked = bench.begin(&mut browser, "").await;
        let back = format!("{}{iss}", bench.back(&asked));
        refused(
            browser.get(&bench, &back).await,
            StatusCode::BAD_GATEWAY,
            "issuer",
        )
        .await;
    }
    assert_eq!(bench.provider.provider.redeemed(), 0);
    let asked = bench.begin(&mut browser, "").await;
    let back = format!("{}&iss={}", bench.back(&asked), bench.provider.served.url());
    assert_eq!(
        browser.get(&bench, &back).await.status(),
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn nobody_is_sent_elsewhere_after_signing_in_and_the_redirect_address_is_exact() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    for bad in [
        "https://evil.example",
        "//evil.example",
        "/%5Cevil.example",
        "javascript:alert(1)",
    ] {
        let answer = browser
            .get(&bench, &format!("/auth/login?return_to={bad}"))
            .await;
        refused(answer, StatusCode::BAD_REQUEST, "a path on this site").await;
    }
    let asked = bench.begin(&mut browser, "").await;
    let own = format!("{}/auth/callback", bench.served.url());
    assert_eq!(asked["redirect_uri"], own);
    // A request that says it was sent elsewhere gets no address made of what it says.
    let elsewhere = [("host", "evil.example")];
    let answer = browser
        .send(&bench, Method::GET, "/auth/login", &elsewhere)
        .await;
    refused(answer, StatusCode::SERVICE_UNAVAILABLE, "public_url").await;
}

#[tokio::test]
async fn neither_code_nor_token_is_in_a_url_afterwards_or_in_the_log() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    // Every task of this test runs on this thread.
    let _logging = tracing::subscriber::set_default(subscriber);
    let secrets = {
        let bench = Bench::new(Manners {
            refreshes: true,
            ..Manners::default()
        })
        .await;
        let mut browser = Browser::default();
        let answer = bench.signs_in(&mut browser).await;
        assert_eq!(answer.headers()["referrer-policy"], "no-referrer");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(location(&answer), "/board/7");
        let asked = bench.begin(&mut browser, "").await;
        let failing = format!("/auth/callback?code=stolen-code&state={}", asked["state"]);
        let answer = browser.get(&bench, &failing).await;
        let text = answer.text().await.unwrap();
        assert!(!text.contains("stolen-code"), "{text}");
        let mut secrets = bench.provider.provider.secrets();
        secrets.push("stolen-code".into());
        secrets.extend(browser.cookies.into_values());
        secrets
    };
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("somebody signed in"), "{said}");
    for line in said.lines().filter(|line| line.contains("felix_gateway")) {
        for secret in &secrets {
            assert!(!line.contains(secret.as_str()), "{line}");
        }
    }
}

#[tokio::test]
async fn no_other_site_may_read_an_answer() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    bench.signs_in(&mut browser).await;
    let foreign = [
        (ORIGIN.as_str(), "https://evil.example"),
        ("accept-encoding", "gzip, br"),
        ("access-control-request-method", "POST"),
    ];
    for (method, path) in [
        (Method::GET, "/auth/session"),
        (Method::OPTIONS, "/auth/logout"),
    ] {
        let answer = browser.send(&bench, method, path, &foreign).await;
        let headers = answer.headers();
        assert!(
            !headers
                .keys()
                .any(|name| name.as_str().starts_with("access-control"))
        );
        // Nothing secret is compressed beside what somebody else wrote.
        assert!(headers.get("content-encoding").is_none());
    }
}

#[tokio::test]
async fn signing_in_gives_a_new_session_and_the_one_before_is_worth_nothing() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    // Fixation: a cookie that somebody planted is not taken over.
    let planted = "A".repeat(43);
    browser
        .cookies
        .insert(cookie::SESSION.into(), planted.clone());
    bench.signs_in(&mut browser).await;
    let first = browser.cookies[cookie::SESSION].clone();
    assert_ne!(first, planted);
    let before = bench.found(&browser).unwrap();
    bench.signs_in(&mut browser).await;
    assert_ne!(browser.cookies[cookie::SESSION], first);
    timeout(PATIENCE, before.over()).await.unwrap();
    browser.cookies.insert(cookie::SESSION.into(), first);
    assert!(bench.found(&browser).is_none());
}

#[tokio::test]
async fn a_provider_that_is_away_stops_logins_at_once_and_nobody_who_is_in() {
    let manners = Manners {
        refreshes: true,
        life_s: Some(30),
        ..Manners::default()
    };
    let bench = Bench::new(manners).await;
    let mut browser = Browser::default();
    bench.signs_in(&mut browser).await;
    bench
        .provider
        .provider
        .behave(|manners| manners.away = Some(StatusCode::BAD_GATEWAY));
    // His token soon runs out, and what is held is still good.
    let session = bench.found(&browser).unwrap();
    assert!(session.id_token().await.is_ok());
    let asked = bench.begin(&mut browser, "").await;
    let answer = browser.get(&bench, &bench.back(&asked)).await;
    refused(
        answer,
        StatusCode::SERVICE_UNAVAILABLE,
        "Signing in did not work",
    )
    .await;
    // And where nothing is known of the provider, it is said at once.
    let away = Manners {
        away: Some(StatusCode::BAD_GATEWAY),
        ..Manners::default()
    };
    let bench = Bench::new(away).await;
    for _ in 0..3 {
        let answer = Browser::default().get(&bench, "/auth/login").await;
        refused(answer, StatusCode::SERVICE_UNAVAILABLE, "cannot be reached").await;
    }
}

#[tokio::test]
async fn a_sign_in_is_renewed_at_the_provider_once_for_all_who_ask_and_ends_when_it_refuses() {
    let manners = Manners {
        refreshes: true,
        life_s: Some(30),
        ..Manners::default()
    };
    let bench = Bench::new(manners).await;
    let mut browser = Browser::default();
    bench.signs_in(&mut browser).await;
    bench
        .provider
        .provider
        .behave(|manners| manners.life_s = Some(600));
    let session = bench.found(&browser).unwrap();
    let ask = || {
        let session = Arc::clone(&session);
        tokio::spawn(async move { session.id_token().await.map(|token| token.digest()) })
    };
    let (first, second) = (ask(), ask());
    let (first, second) = (
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
    );
    assert_eq!(first, second);
    assert_eq!(bench.provider.provider.refreshed(), 1);
    assert!(session.until().0 > now().0 + 60_000);

    bench
        .provider
        .provider
        .behave(|manners| manners.life_s = Some(30));
    let mut other = Browser::default();
    bench.signs_in(&mut other).await;
    bench
        .provider
        .provider
        .behave(|manners| manners.refuses_refresh = true);
    let session = bench.found(&other).unwrap();
    assert!(session.id_token().await.is_err());
    timeout(PATIENCE, session.over()).await.unwrap();
    assert_eq!(other.session(&bench).await, json!({"signed_in": false}));
}

#[tokio::test]
async fn a_person_signs_in_in_only_so_many_browsers_at_once() {
    let bench = Bench::new(Manners::default()).await;
    let mut browsers = Vec::new();
    for _ in 0..17 {
        let mut browser = Browser::default();
        bench.signs_in(&mut browser).await;
        browsers.push(browser);
    }
    let standing = browsers
        .iter()
        .filter(|browser| bench.found(browser).is_some());
    assert_eq!(standing.count(), 16);
}

#[tokio::test]
async fn somebody_else_can_sign_in_where_the_provider_knows_the_browser() {
    let bench = Bench::new(Manners::default()).await;
    let mut browser = Browser::default();
    let asked = bench.begin(&mut browser, "?prompt=login").await;
    assert_eq!(asked["prompt"], "login");
    let answer = browser.get(&bench, "/auth/login?prompt=none").await;
    refused(answer, StatusCode::BAD_REQUEST, "prompt").await;
}
