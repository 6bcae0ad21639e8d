//! What providers' tokens are believed, and each forgery with its own reason.

use felix_auth::oidc::{
    Algorithms, GROUPS_MAX, UPSTREAM_LIFE_SECONDS_MAX, UpstreamRefused, VerifyFailed, principal_id,
};
use felix_auth::{Audience, Claims, SigningKey, TOKEN_BYTES_MAX, mint};
use felix_model::TimeMs;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::idp::Key;
use crate::{NOW, World, read};

#[tokio::test]
async fn a_good_token_names_the_person_and_his_groups() {
    let world = World::new().await;
    let token = world.token(|claims| claims["groups"] = json!(["b", "a", "b"]));
    let vouched = world.verify(&token).await.unwrap();
    assert_eq!(vouched.subject, "alice");
    assert_eq!(vouched.groups, ["a", "b"]);
    assert!(vouched.groups_are_told);
    assert_eq!(vouched.issuer, world.idp.issuer);
    assert_eq!(
        vouched.principal_id,
        principal_id(&world.idp.issuer, "alice")
    );
    assert_eq!(vouched.principal_id.len(), 64);
}

#[test]
fn a_principals_id_is_the_digest_that_the_field_knows() {
    // printf 'https://login.example.com|alice' | sha256sum
    assert_eq!(
        principal_id("https://login.example.com", "alice"),
        "1b298e232078d3a05828b29f20143ab17404568f248d7541071a6c901d2e2c25"
    );
}

#[tokio::test]
async fn rsa_keys_and_allowed_algorithms_work_and_others_do_not() {
    for (allowed, algorithm, good) in [
        ("ES256,RS256", Algorithm::RS256, true),
        ("ES256,RS256", Algorithm::RS512, false),
        ("ES256,RS512", Algorithm::RS512, true),
        ("PS256", Algorithm::PS256, true),
        ("RS256", Algorithm::PS256, false),
    ] {
        let world = World::allowing(allowed.parse().unwrap()).await;
        let key = Key::rsa("r1", algorithm);
        world.idp.publish(&[&key]);
        let token = key.sign(&world.idp.claims("alice", NOW));
        let outcome = world.verify(&token).await;
        assert_eq!(
            outcome.is_ok(),
            good,
            "{allowed} {algorithm:?}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn alg_none_in_any_spelling_is_refused() {
    let world = World::new().await;
    let good = world.token(|_| {});
    let body = good.split('.').nth(1).unwrap();
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let mut header = world.key.header();
        header["alg"] = json!(alg);
        let signed = world.key.sign_with(&header, &json!({}));
        let head = signed.split('.').next().unwrap();
        for signature in ["", "AAAA", good.split('.').nth(2).unwrap()] {
            let token = format!("{head}.{body}.{signature}");
            assert_eq!(
                read(&token).unwrap_err(),
                UpstreamRefused::Algorithm,
                "{alg}"
            );
        }
    }
    assert_eq!(world.idp.key_fetches(), 0, "nobody was asked about them");
}

#[tokio::test]
async fn hs256_signed_with_the_public_key_is_refused() {
    let world = World::new().await;
    let rsa = Key::rsa("k1", Algorithm::RS256);
    world.idp.publish(&[&rsa]);
    for secret in [
        rsa.jwk["n"].as_str().unwrap().as_bytes().to_vec(),
        rsa.jwk.to_string().into_bytes(),
    ] {
        let mut header = jsonwebtoken::Header::new(Algorithm::HS256);
        header.kid = Some("k1".into());
        let secret = jsonwebtoken::EncodingKey::from_secret(&secret).unwrap();
        let claims = world.idp.claims("alice", NOW);
        let token = jsonwebtoken::encode(&header, &claims, &secret).unwrap();
        assert_eq!(world.refusal(&token).await, UpstreamRefused::Algorithm);
    }
}

#[tokio::test]
async fn the_header_cannot_choose_another_algorithm_for_a_key() {
    let world = World::allowing("ES256,RS256,PS256,RS512,EdDSA".parse().unwrap()).await;
    let rsa = Key::rsa("k1", Algorithm::RS256);
    world.idp.publish(&[&rsa]);
    // The same key pair, so the signature itself would fit.
    let same = Key::rsa("k1", Algorithm::PS256);
    let token = same.sign(&world.idp.claims("alice", NOW));
    assert_eq!(world.refusal(&token).await, UpstreamRefused::KeyAlgorithm);
}

#[tokio::test]
async fn a_key_id_means_nothing_but_a_key_of_the_issuers_own_set() {
    let world = World::new().await;
    for kid in [
        "",
        "../../../etc/passwd",
        "/dev/null",
        "' UNION SELECT 'x' --",
        "https://evil.example/key",
        "k1\u{0}",
        "K1",
    ] {
        let mut header = world.key.header();
        header["kid"] = json!(kid);
        let token = world
            .key
            .sign_with(&header, &world.idp.claims("alice", NOW));
        assert_eq!(
            world.refusal(&token).await,
            UpstreamRefused::UnknownKey,
            "{kid}"
        );
    }
    let mut header = world.key.header();
    header.as_object_mut().unwrap().remove("kid");
    let token = world
        .key
        .sign_with(&header, &world.idp.claims("alice", NOW));
    assert_eq!(world.refusal(&token).await, UpstreamRefused::NoKey);
}

#[tokio::test]
async fn the_key_of_another_issuer_vouches_for_nobody_here() {
    let (world, other) = (World::new().await, World::new().await);
    // The other issuer signs a token that names this one, with the same key id.
    let token = other.key.sign(&world.idp.claims("alice", NOW));
    assert_eq!(world.refusal(&token).await, UpstreamRefused::Signature);
    // And one of its own is not for who trusts this one only.
    let token = other.token(|_| {});
    let read = read(&token).unwrap();
    let refused = world
        .verifier
        .verify(&read, &world.trust(), world.began)
        .await;
    assert!(
        matches!(refused, Err(VerifyFailed::Refused(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_key_id_that_two_keys_share_is_refused() {
    let world = World::new().await;
    let twin = Key::ec("k1");
    world.idp.publish(&[&world.key, &twin]);
    let token = world.token(|_| {});
    assert_eq!(world.refusal(&token).await, UpstreamRefused::AmbiguousKey);
}

#[tokio::test]
async fn keys_named_in_the_header_are_not_used_and_not_fetched() {
    let world = World::new().await;
    let thief = Key::ec("k1");
    let mut header = world.key.header();
    header["jwk"] = thief.jwk.clone();
    header["jku"] = json!(format!("{}/evil", world.idp.issuer));
    header["x5u"] = json!(format!("{}/evil", world.idp.issuer));
    let token = thief.sign_with(&header, &world.idp.claims("alice", NOW));
    assert_eq!(world.refusal(&token).await, UpstreamRefused::Signature);
    assert_eq!(world.idp.other_requests(), 0);
}

#[test]
fn a_critical_header_is_refused() {
    let key = Key::ec("k1");
    for crit in [json!(["exp"]), json!([]), Value::Null] {
        let mut header = key.header();
        header["crit"] = crit;
        let token = key.sign_with(&header, &json!({}));
        assert_eq!(read(&token).unwrap_err(), UpstreamRefused::CriticalHeader);
    }
}

#[tokio::test]
async fn times_are_held_against_the_clock_with_a_minute_of_leeway() {
    let world = World::new().await;
    let life = UPSTREAM_LIFE_SECONDS_MAX;
    for (change, expected) in [
        (json!({"exp": NOW - 59, "iat": NOW - 600}), None),
        (
            json!({"exp": NOW - 60, "iat": NOW - 600}),
            Some("upstream_expired"),
        ),
        (json!({"exp": null}), Some("upstream_claim")),
        (json!({"exp": "tomorrow"}), Some("upstream_claim")),
        (json!({"exp": -1}), Some("upstream_claim")),
        (json!({"exp": 1e300}), Some("upstream_claim")),
        (
            json!({"exp": 253_370_764_800_u64}),
            Some("upstream_life_too_long"),
        ),
        (json!({"exp": NOW + life}), None),
        (
            json!({"exp": NOW + life + 1}),
            Some("upstream_life_too_long"),
        ),
        (json!({"iat": NOW + 60}), None),
        (json!({"iat": NOW + 61}), Some("upstream_not_yet_valid")),
        (json!({"iat": null}), Some("upstream_claim")),
        (json!({"nbf": NOW + 60}), None),
        (json!({"nbf": NOW + 61}), Some("upstream_not_yet_valid")),
        (json!({"nbf": "later"}), Some("upstream_claim")),
        (
            json!({"iat": NOW as f64 - 0.5, "exp": NOW as f64 + 600.5}),
            None,
        ),
    ] {
        expect(&world, &change, expected).await;
    }
    let token = world.token(|claims| drop(claims.as_object_mut().unwrap().remove("exp")));
    assert_eq!(world.refusal(&token).await, UpstreamRefused::Claim("exp"));
}

#[tokio::test]
async fn audience_issuer_and_subject_must_be_there_and_right() {
    let world = World::new().await;
    for (change, expected) in [
        (json!({"aud": ["x", "app"]}), None),
        (json!({"aud": "other"}), None),
        (json!({"aud": "app2"}), Some("upstream_audience")),
        (json!({"aud": "App"}), Some("upstream_audience")),
        (json!({"aud": []}), Some("upstream_audience")),
        (json!({"aud": ["app", 7]}), Some("upstream_claim")),
        (json!({"aud": null}), Some("upstream_claim")),
        (json!({"aud": {"app": true}}), Some("upstream_claim")),
        (
            json!({"iss": format!("{}/", world.idp.issuer)}),
            Some("upstream_issuer"),
        ),
        (
            json!({"iss": "https://evil.example"}),
            Some("upstream_issuer"),
        ),
        (json!({"iss": null}), Some("upstream_claim")),
        (json!({"iss": ""}), Some("upstream_claim")),
        (json!({"sub": null}), Some("upstream_claim")),
        (json!({"sub": ""}), Some("upstream_claim")),
        (json!({"sub": 7}), Some("upstream_claim")),
        (
            json!({"sub": "a".repeat(257)}),
            Some("upstream_mapped_claim"),
        ),
        (json!({"sub": "a\nb"}), Some("upstream_mapped_claim")),
    ] {
        expect(&world, &change, expected).await;
    }
}

#[tokio::test]
async fn a_token_made_for_something_else_is_refused() {
    let world = World::new().await;
    for (typ, good) in [
        ("JWT", true),
        ("at+jwt", true),
        ("application/at+JWT", true),
        ("logout+jwt", false),
        ("dpop+jwt", false),
        ("secevent+jwt", false),
        ("oauth-authz-req+jwt", false),
        ("", false),
    ] {
        let mut header = world.key.header();
        header["typ"] = json!(typ);
        let token = world
            .key
            .sign_with(&header, &world.idp.claims("alice", NOW));
        assert_eq!(world.verify(&token).await.is_ok(), good, "{typ}");
    }
    for (change, expected) in [
        (json!({"events": {}}), Some("upstream_wrong_type")),
        (json!({"typ": "Refresh"}), Some("upstream_wrong_type")),
        (json!({"typ": "Logout"}), Some("upstream_wrong_type")),
        (json!({"typ": "Bearer"}), None),
        (json!({"cnf": {"jkt": "x"}}), Some("upstream_bound")),
        (json!({"nonce": "n", "azp": "someone"}), None),
    ] {
        expect(&world, &change, expected).await;
    }
}

#[tokio::test]
async fn a_felix_token_is_no_token_of_a_provider() {
    let world = World::allowing("ES256,RS256,EdDSA".parse::<Algorithms>().unwrap()).await;
    let key = SigningKey::generate().unwrap();
    let claims = Claims::new(
        "t".parse().unwrap(),
        "p:alice".into(),
        Audience::Broker,
        (TimeMs(NOW * 1000), 900),
        vec![],
    );
    let token = mint(&key, &claims).unwrap();
    let refused = world.refusal(&token).await;
    assert_eq!(refused, UpstreamRefused::UnknownKey);
}

#[tokio::test]
async fn huge_deep_and_crowded_tokens_are_refused() {
    let world = World::new().await;
    let huge = "A".repeat(1024 * 1024);
    assert!(matches!(
        read(&huge).unwrap_err(),
        UpstreamRefused::TooLarge {
            limit: TOKEN_BYTES_MAX,
            ..
        }
    ));
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    let deep = {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(deep)
    };
    let head = world.token(|_| {});
    let head = head.split('.').next().unwrap();
    let token = format!("{head}.{deep}.AAAA");
    assert_eq!(read(&token).unwrap_err(), UpstreamRefused::Malformed);
    let many: Vec<String> = (0..=GROUPS_MAX).map(|n| format!("g{n}")).collect();
    let token = world.token(|claims| claims["groups"] = json!(many));
    assert_eq!(
        world.refusal(&token).await,
        UpstreamRefused::TooManyGroups {
            found: GROUPS_MAX + 1,
            limit: GROUPS_MAX
        }
    );
    let ten_thousand: Vec<u16> = (0..10_000).collect();
    let token = world.token(|claims| claims["groups"] = json!(ten_thousand));
    assert!(matches!(
        read(&token).unwrap_err(),
        UpstreamRefused::TooLarge { .. }
    ));
}

#[tokio::test]
async fn claims_are_mapped_as_the_tenant_says() {
    let world = World::new().await;
    let token = world.token(|claims| {
        claims["oid"] = json!("0-1-2");
        claims["email"] = json!("alice@example.com");
        claims["realm_access"] = json!({"roles": ["writer"]});
        claims["https://example.com/groups"] = json!("one");
        claims["bad"] = json!([1]);
    });
    let verify = |subject_claim: &'static str, groups_claim: &'static str| {
        let (world, token) = (&world, read(&token).unwrap());
        async move {
            let mut trust = world.trust();
            (trust.subject_claim, trust.groups_claim) = (subject_claim, groups_claim);
            world.verifier.verify(&token, &trust, world.began).await
        }
    };
    let vouched = verify("oid", "/realm_access/roles").await.unwrap();
    assert_eq!(
        (vouched.subject.as_str(), vouched.groups),
        ("0-1-2", vec!["writer".to_owned()])
    );
    let vouched = verify("sub", "https://example.com/groups").await.unwrap();
    assert_eq!(vouched.groups, ["one"]);
    assert!(verify("missing", "groups").await.is_err());
    assert!(verify("sub", "bad").await.is_err());
    assert_eq!(
        verify("email", "groups").await,
        Err(UpstreamRefused::EmailNotVerified.into())
    );
}

#[tokio::test]
async fn changing_or_cutting_a_token_anywhere_spoils_it() {
    let world = World::new().await;
    let token = world.token(|_| {});
    for at in (0..token.len()).step_by(7) {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(bytes).unwrap();
        assert!(world.verify(&forged).await.is_err(), "byte {at}");
        assert!(world.verify(&token[..at]).await.is_err(), "cut at {at}");
    }
    for text in [
        "",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "a.b.c.d.e",
        "é.é.é",
        "W10.W10.AA",
    ] {
        assert_eq!(
            read(text).unwrap_err(),
            UpstreamRefused::Malformed,
            "{text}"
        );
    }
}

async fn expect(world: &World, change: &Value, expected: Option<&str>) {
    let token = world.token(|claims| {
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
    });
    let outcome = match world.verify(&token).await {
        Ok(_) => None,
        Err(VerifyFailed::Refused(refused)) => Some(refused.code()),
        Err(VerifyFailed::Unavailable(why)) => panic!("{why}"),
    };
    assert_eq!(outcome, expected, "{change}");
}
