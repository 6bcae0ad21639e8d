//! How often, from where and how much is fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use felix_auth::fetch::HttpFetch;
use felix_auth::oidc::{
    AddressRules, Algorithms, BadDocument, BadUrl, Fetch, FetchFailed, Fetched, KeysUnavailable,
    UpstreamRefused, Verifier, VerifyFailed,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::idp::{Idp, Key, Mood};
use crate::{HERE, NOW, World, read};

#[tokio::test]
async fn a_thousand_forged_tokens_with_random_key_ids_cause_at_most_two_key_fetches() {
    let world = World::new().await;
    for n in 0..1000 {
        let mut header = world.key.header();
        header["kid"] = json!(format!("random-{n}-{}", getrandom::u64().unwrap()));
        let token = world
            .key
            .sign_with(&header, &world.idp.claims("alice", NOW));
        // Spread over 30 s.
        let refused = world.verify_after(&token, n * 30 / 1000).await;
        assert_eq!(refused, Err(UpstreamRefused::UnknownKey.into()));
    }
    assert!(world.idp.key_fetches() <= 2, "{}", world.idp.key_fetches());
    assert_eq!(world.idp.discoveries(), 1);
}

#[tokio::test]
async fn a_provider_behind_tls_is_believed_by_who_trusts_its_authority_and_by_nobody_else() {
    let certificate = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (own, other) = (certificate(), certificate());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.cert.der().clone()],
            own.signing_key.serialize_der().try_into().unwrap(),
        )
        .unwrap();
    let mut world = World::new().await;
    world.idp = Idp::start_tls(&[&world.key], tls).await;
    let token = world.token(|_| {});
    for (root, trusted) in [(None, false), (Some(&other), false), (Some(&own), true)] {
        let roots = root
            .map(|root| root.cert.der().clone())
            .into_iter()
            .collect();
        let fetch = HttpFetch::trusting(HERE, roots);
        world.verifier = Verifier::new(Arc::new(fetch), Algorithms::default());
        let verified = world.verify(&token).await;
        assert_eq!(verified.is_ok(), trusted, "{verified:?}");
    }
    assert_eq!((world.idp.key_fetches(), world.idp.discoveries()), (1, 1));
}

#[tokio::test]
async fn a_thousand_at_once_share_one_fetch() {
    let world = Arc::new(World::new().await);
    let token = world.token(|_| {});
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let (world, token) = (Arc::clone(&world), token.clone());
        all.spawn(async move { world.verify(&token).await.is_ok() });
    }
    assert!(all.join_all().await.into_iter().all(|good| good));
    assert_eq!((world.idp.key_fetches(), world.idp.discoveries()), (1, 1));
}

#[tokio::test]
async fn a_new_key_is_found_after_half_a_minute_and_an_old_one_ends_when_documents_age() {
    let world = World::new().await;
    let old = world.token(|_| {});
    assert!(world.verify(&old).await.is_ok());
    let next = Key::ec("k2");
    world.idp.publish(&[&next]);
    let new = next.sign(&world.idp.claims("alice", NOW));
    let unknown = Err(UpstreamRefused::UnknownKey.into());
    assert_eq!(
        world.verify_after(&new, 29).await,
        unknown,
        "asked too lately"
    );
    assert!(
        world.verify_after(&old, 29).await.is_ok(),
        "the set is fresh"
    );
    assert!(world.verify_after(&new, 30).await.is_ok());
    assert_eq!(world.verify_after(&old, 31).await, unknown, "it is gone");
    assert_eq!(world.idp.key_fetches(), 2);
}

#[tokio::test]
async fn documents_are_looked_at_again_every_five_minutes() {
    let world = World::new().await;
    let token = world.token(|_| {});
    for (seconds, fetches) in [(0, 1), (299, 1), (300, 2), (599, 2), (600, 3)] {
        assert!(world.verify_after(&token, seconds).await.is_ok());
        assert_eq!(world.idp.key_fetches(), fetches, "after {seconds} s");
    }
}

#[tokio::test]
async fn while_a_provider_is_away_its_last_keys_serve_for_an_hour() {
    let world = World::new().await;
    let token = world.token(|_| {});
    assert!(world.verify(&token).await.is_ok());
    world.idp.behave(Mood::Status(503));
    assert!(world.verify_after(&token, 3599).await.is_ok());
    let failed = KeysUnavailable::Fetch(FetchFailed::Status(503));
    assert_eq!(world.verify_after(&token, 3630).await, Err(failed.into()));
}

#[tokio::test]
async fn a_failure_is_remembered_too() {
    let world = World::new().await;
    world.idp.behave(Mood::Status(500));
    let token = world.token(|_| {});
    let failed: VerifyFailed = KeysUnavailable::Fetch(FetchFailed::Status(500)).into();
    for seconds in [0, 1, 29] {
        assert_eq!(
            world.verify_after(&token, seconds).await,
            Err(failed.clone())
        );
    }
    assert_eq!(world.idp.key_fetches(), 1);
    world.idp.behave(Mood::Good);
    assert!(world.verify_after(&token, 30).await.is_ok());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (world, inside) = (World::new().await, World::new().await);
    world
        .idp
        .behave(Mood::Redirect(format!("{}/keys", inside.idp.issuer)));
    let outcome = world.verify(&world.token(|_| {})).await;
    let failed = KeysUnavailable::Fetch(FetchFailed::Status(302));
    assert_eq!(outcome, Err(failed.into()));
    assert_eq!(inside.idp.key_fetches(), 0);
}

#[tokio::test]
async fn a_document_that_is_too_large_is_cut_off_whatever_it_says_of_its_length() {
    let world = World::new().await;
    world.idp.behave(Mood::Huge(10 * 1024 * 1024));
    let outcome = world.verify(&world.token(|_| {})).await;
    let failed = KeysUnavailable::Fetch(FetchFailed::TooLarge { limit: 256 * 1024 });
    assert_eq!(outcome, Err(failed.into()));
}

#[tokio::test]
async fn a_document_that_is_none_is_refused() {
    let world = World::new().await;
    world.idp.behave(Mood::Text("<html>".into()));
    let outcome = world.verify(&world.token(|_| {})).await;
    let failed = KeysUnavailable::Document(BadDocument::Malformed);
    assert_eq!(outcome, Err(failed.into()));
}

#[tokio::test]
async fn a_discovery_document_of_another_issuer_is_refused() {
    let world = World::new().await;
    world.idp.call_itself("https://evil.example");
    let outcome = world.verify(&world.token(|_| {})).await;
    let failed = KeysUnavailable::Document(BadDocument::OtherIssuer);
    assert_eq!(outcome, Err(failed.into()));
    assert_eq!(world.idp.key_fetches(), 0);
}

#[tokio::test]
async fn a_silent_provider_is_given_up_after_five_seconds() {
    let world = World::new().await;
    world.idp.behave(Mood::Silent);
    let outcome = world.verify(&world.token(|_| {})).await;
    let failed = KeysUnavailable::Fetch(FetchFailed::Timeout { seconds: 5 });
    assert_eq!(outcome, Err(failed.into()));
}

#[tokio::test]
async fn an_address_of_the_own_network_in_a_url_is_refused() {
    let fetch = HttpFetch::new(AddressRules::default());
    for (url, expected) in [
        ("https://10.0.0.1/keys", BadUrl::Address),
        ("https://[fd00::1]/keys", BadUrl::Address),
        ("https://169.254.169.254/latest/meta-data/", BadUrl::Address),
        ("https://localhost/keys", BadUrl::Address),
        ("http://127.0.0.1/keys", BadUrl::NotHttps),
    ] {
        assert_eq!(fetch.check(url).await, Err(expected.clone()), "{url}");
        assert_eq!(fetch.get(url).await, Err(expected.into()), "{url}");
    }
    // A provider may not send the fetch for keys into the network either.
    let world = World::new().await;
    let mut trust = world.trust();
    trust.jwks_url = Some("https://10.0.0.1/keys");
    let token = read(&world.token(|_| {})).unwrap();
    let verifier = Verifier::new(Arc::new(HttpFetch::new(HERE)), Algorithms::default());
    let outcome = verifier.verify(&token, &trust, world.began).await;
    let failed = KeysUnavailable::Fetch(FetchFailed::Url(BadUrl::Address));
    assert_eq!(outcome, Err(failed.into()));
}

#[tokio::test]
async fn a_name_that_resolves_into_the_own_network_is_refused() {
    let hosts = [
        ("here.example", vec!["127.0.0.1"]),
        ("inside.example", vec!["10.1.2.3"]),
        ("mixed.example", vec!["8.8.8.8", "192.168.0.1"]),
        ("metadata.example", vec!["169.254.169.254"]),
        ("mapped.example", vec!["::ffff:127.0.0.1"]),
    ];
    let table = hosts
        .iter()
        .map(|(host, addresses)| {
            let addresses = addresses.iter().map(|one| one.parse().unwrap()).collect();
            ((*host).to_owned(), addresses)
        })
        .collect();
    let fetch = HttpFetch::knowing(AddressRules::default(), table);
    for (host, _) in hosts {
        let url = format!("https://{host}/keys");
        assert_eq!(fetch.check(&url).await, Err(BadUrl::Address), "{host}");
        assert_eq!(fetch.get(&url).await, Err(FetchFailed::Address), "{host}");
    }
    let unknown = "https://nobody.example/keys";
    assert_eq!(fetch.check(unknown).await, Ok(()), "it may resolve later");
    assert_eq!(fetch.get(unknown).await, Err(FetchFailed::Address));
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let world = World::new().await;
    let rules = AddressRules {
        loopback: true,
        insecure_http: true,
        private: false,
    };
    let here = vec!["127.0.0.1".parse().unwrap()];
    let fetch = HttpFetch::knowing(rules, [("idp.example".to_owned(), here)].into());
    let port = world.idp.issuer.rsplit(':').next().unwrap();
    let keys = fetch
        .get(&format!("http://idp.example:{port}/keys"))
        .await
        .unwrap();
    assert!(keys.starts_with(b"{\"keys\""));
}

/// Answers nothing until it is let.
#[derive(Debug)]
struct Held {
    inside: HttpFetch,
    gate: Semaphore,
    fetches: AtomicUsize,
}

impl Fetch for Held {
    fn get<'a>(&'a self, url: &'a str) -> Fetched<'a> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            self.inside.get(url).await
        })
    }
}

#[tokio::test]
async fn who_hangs_up_does_not_cut_off_the_fetch_for_the_others() {
    let world = World::new().await;
    let held = Arc::new(Held {
        inside: HttpFetch::new(HERE),
        gate: Semaphore::new(0),
        fetches: AtomicUsize::new(0),
    });
    let verifier = Verifier::new(Arc::clone(&held) as Arc<dyn Fetch>, Algorithms::default());
    let token = read(&world.token(|_| {})).unwrap();
    let (trust, at) = (world.trust(), world.began);
    {
        let first = verifier.verify(&token, &trust, at);
        tokio::pin!(first);
        // It begins its fetch, and then its caller is gone.
        while held.fetches.load(Ordering::SeqCst) == 0 {
            tokio::select! {
                biased;
                _ = &mut first => panic!("nothing was answered yet"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    held.gate.add_permits(2);
    assert!(verifier.verify(&token, &trust, at).await.is_ok());
    assert_eq!(held.fetches.load(Ordering::SeqCst), 2, "discovery and keys");
}
