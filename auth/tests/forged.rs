//! Tokens that somebody made up, each refused for its own reason.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::{
    Action, ActorToken, Audience, Claims, KeySet, LEEWAY_SECONDS, LIFETIME_SECONDS_MAX, Resource,
    SigningKey, TOKEN_BYTES_MAX, TokenRefused, claimed_tenant, issuer_digest, mint, verify,
};
use felix_model::{TenantId, TimeMs};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

#[test]
fn a_good_token_becomes_the_principal_it_speaks_for() {
    let world = World::new();
    let principal = world.verify(&mint(&world.key, &claims()).unwrap()).unwrap();
    assert_eq!(&*principal.subject, "p:alice");
    assert_eq!(principal.expires_at_ms, TimeMs((NOW + 900) * 1000));
    let stream = Resource::Stream {
        tenant: "t",
        namespace: "ns",
        stream: "orders",
    };
    assert!(principal.allows(Action::StreamPublish, &stream));
    assert!(!principal.allows(Action::StreamSubscribe, &stream));
    assert!(!principal.loopback_only);
}

#[test]
fn forged_claims_are_refused_each_for_its_own_reason() {
    let missing = |claim| TokenRefused::MissingClaim { claim };
    check(
        |body| body["exp"] = json!(NOW - 60),
        TokenRefused::Expired {
            late_by_seconds: 60,
        },
    );
    check(|body| body["exp"] = Value::Null, missing("exp"));
    check(|body| body["exp"] = json!("tomorrow"), missing("exp"));
    check(|body| body["exp"] = json!(-1), missing("exp"));
    check(
        |body| drop(body.as_object_mut().unwrap().remove("exp")),
        missing("exp"),
    );
    check(
        |body| body["exp"] = json!(253_370_764_800_u64),
        TokenRefused::LifeTooLong {
            life_seconds: 253_370_764_800 - NOW,
            limit: LIFETIME_SECONDS_MAX,
        },
    );
    check(
        |body| body["iat"] = json!(NOW + 100),
        TokenRefused::NotYetValid {
            early_by_seconds: 100,
        },
    );
    check(
        |body| body["nbf"] = json!(NOW + 100),
        TokenRefused::NotYetValid {
            early_by_seconds: 100,
        },
    );
    check(|body| body["nbf"] = json!("later"), missing("nbf"));
    check(
        |body| drop(body.as_object_mut().unwrap().remove("iat")),
        missing("iat"),
    );
    check(|body| body["iat_ms"] = json!("soon"), missing("iat_ms"));
    check(|body| body["iat_ms"] = Value::Null, missing("iat_ms"));
    check(
        |body| body["iss"] = json!("https://login.example.com"),
        TokenRefused::WrongIssuer,
    );
    check(
        |body| drop(body.as_object_mut().unwrap().remove("iss")),
        missing("iss"),
    );
    check(
        |body| body["aud"] = json!("felix-controlplane"),
        TokenRefused::WrongAudience,
    );
    check(
        |body| body["aud"] = json!(["a", "b"]),
        TokenRefused::WrongAudience,
    );
    check(|body| body["aud"] = json!([]), TokenRefused::WrongAudience);
    check(
        |body| body["aud"] = json!("felix-broker2"),
        TokenRefused::WrongAudience,
    );
    check(
        |body| drop(body.as_object_mut().unwrap().remove("aud")),
        missing("aud"),
    );
    check(
        |body| body["tid"] = json!("other"),
        TokenRefused::WrongTenant,
    );
    check(
        |body| drop(body.as_object_mut().unwrap().remove("tid")),
        missing("tid"),
    );
    check(
        |body| drop(body.as_object_mut().unwrap().remove("sub")),
        missing("sub"),
    );
    check(|body| body["sub"] = json!(""), missing("sub"));
    check(
        |body| body["perms"] = json!("stream.publish:stream:t/ns/s"),
        missing("perms"),
    );
    check(|body| body["perms"] = json!([1]), missing("perms"));
    check(
        |body| drop(body.as_object_mut().unwrap().remove("perms")),
        missing("perms"),
    );
    check(|body| body["act"] = json!("p:bob"), missing("act"));
    check(|body| body["act"] = Value::Null, missing("act"));
    check(
        |body| body["act"] = json!({"sub": "p:gateway", "roles": "role:x"}),
        missing("act"),
    );
    check(|body| body["may_act"] = json!({}), missing("may_act"));
    check(|body| body["sid"] = json!(7), missing("sid"));
    check(|body| body["jti"] = json!(""), missing("jti"));
    check(|body| body["roles"] = json!("role:x"), missing("roles"));
    check(|body| body["idp"] = json!([]), missing("idp"));
    check(|body| body["nbf"] = Value::Null, missing("nbf"));
    check(|body| body["loopback"] = json!("no"), missing("loopback"));
    check(|body| *body = json!([]), TokenRefused::Malformed);
}

#[test]
fn what_a_token_says_of_its_origin_is_in_the_principal() {
    let world = World::new();
    let mut full = claims();
    full.actor = Some("p:gateway".into());
    let acted_with = ActorToken {
        session: Some("gs1".into()),
        token_id: Some("gj1".into()),
        roles: vec!["role:delegates".into()],
        idp: None,
    };
    full.actor_token = Some(acted_with.clone());
    full.may_act = Some("p:gateway".into());
    full.session = Some("s1".into());
    full.token_id = Some("j1".into());
    full.roles = vec!["role:writer".into()];
    full.idp = Some(issuer_digest("https://login.example.com"));
    let principal = world.verify(&mint(&world.key, &full).unwrap()).unwrap();
    assert_eq!(principal.actor.as_deref(), Some("p:gateway"));
    assert_eq!(principal.actor_token.as_deref(), Some(&acted_with));
    assert_eq!(principal.may_act.as_deref(), Some("p:gateway"));
    assert_eq!(principal.session.as_deref(), Some("s1"));
    assert_eq!(principal.token_id.as_deref(), Some("j1"));
    assert_eq!(&*principal.roles, ["role:writer".into()]);
    assert_eq!(principal.idp.as_deref(), Some("4b246bc1a12459de"));
    let bare = world.verify(&mint(&world.key, &claims()).unwrap()).unwrap();
    assert!(bare.session.is_none() && bare.may_act.is_none() && bare.roles.is_empty());
}

#[test]
fn a_token_says_to_the_millisecond_when_it_was_minted_and_never_later_than_its_second() {
    let world = World::new();
    let mut claims = claims();
    claims.issued_at_ms = TimeMs(NOW * 1000 + 250);
    let principal = world.verify(&mint(&world.key, &claims).unwrap()).unwrap();
    assert_eq!(principal.issued_at_ms, TimeMs(NOW * 1000 + 250));
    assert_eq!(principal.expires_at_ms, TimeMs((NOW + 900) * 1000));
    let with = |iat_ms: Option<u64>| {
        let mut body = body();
        if let Some(at) = iat_ms {
            body["iat_ms"] = json!(at);
        }
        let token = world.sign(&world.header(), &body);
        world.verify(&token).unwrap().issued_at_ms
    };
    assert_eq!(with(None), TimeMs(NOW * 1000), "the start of its second");
    assert_eq!(with(Some(NOW * 1000 + 999)), TimeMs(NOW * 1000 + 999));
    assert_eq!(with(Some((NOW + 60) * 1000)), TimeMs(NOW * 1000 + 999));
    assert_eq!(with(Some((NOW - 60) * 1000)), TimeMs((NOW - 60) * 1000));
}

#[test]
fn a_token_of_another_type_is_refused() {
    let world = World::new();
    for typ in [
        "logout+jwt",
        "dpop+jwt",
        "secevent+jwt",
        "token-introspection+jwt",
        "",
    ] {
        let mut header = world.header();
        header.typ = Some(typ.into());
        let refused = world.verify(&world.sign(&header, &body())).unwrap_err();
        assert_eq!(refused, TokenRefused::WrongType, "{typ}");
    }
    for typ in [
        None,
        Some("JWT"),
        Some("jwt"),
        Some("at+jwt"),
        Some("application/at+jwt"),
    ] {
        let mut header = world.header();
        header.typ = typ.map(str::to_owned);
        assert!(
            world.verify(&world.sign(&header, &body())).is_ok(),
            "{typ:?}"
        );
    }
}

#[test]
fn a_claim_written_twice_is_refused() {
    let world = World::new();
    let twice = body().to_string().replacen('{', r#"{"sub":"p:root","#, 1);
    let refused = world.verify(&world.sign_text(&twice)).unwrap_err();
    assert_eq!(refused, TokenRefused::Malformed);
}

#[test]
fn clocks_may_differ_by_the_leeway_and_no_more() {
    let world = World::new();
    let token = mint(&world.key, &claims()).unwrap();
    let at = |seconds: u64| {
        verify(
            &token,
            &tenant("t"),
            Audience::Broker,
            &world.keys,
            TimeMs(seconds * 1000),
        )
    };
    assert!(at(NOW - LEEWAY_SECONDS).is_ok());
    assert!(at(NOW - LEEWAY_SECONDS - 1).is_err());
    assert!(at(NOW + 900 + LEEWAY_SECONDS - 1).is_ok());
    assert!(at(NOW + 900 + LEEWAY_SECONDS).is_err());
}

#[test]
fn an_audience_among_several_is_enough() {
    let world = World::new();
    let mut body = body();
    body["aud"] = json!(["felix-controlplane", "felix-broker"]);
    assert!(world.verify(&world.sign(&world.header(), &body)).is_ok());
}

#[test]
fn a_header_cannot_choose_the_algorithm() {
    let world = World::new();
    for alg in [
        "none", "None", "NONE", "HS256", "RS256", "ES256", "EdDSA2", "",
    ] {
        let token = world.raw(&json!({ "alg": alg, "kid": world.key.kid() }), "");
        assert_eq!(
            world.verify(&token).unwrap_err(),
            TokenRefused::WrongAlgorithm,
            "{alg}"
        );
    }
}

#[test]
fn the_public_key_is_no_hmac_secret() {
    let world = World::new();
    let public = URL_SAFE_NO_PAD.decode(&world.key.public().x).unwrap();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some(world.key.kid().to_owned());
    for secret in [public.as_slice(), world.key.public().x.as_bytes()] {
        let secret = EncodingKey::from_secret(secret).unwrap();
        let token = jsonwebtoken::encode(&header, &body(), &secret).unwrap();
        assert_eq!(
            world.verify(&token).unwrap_err(),
            TokenRefused::WrongAlgorithm
        );
    }
}

#[test]
fn a_key_id_is_only_looked_up_among_the_tenants_own_keys() {
    let world = World::new();
    for kid in [
        "",
        "../../etc/passwd",
        "' OR 1=1 --",
        "https://evil.example/key",
        "unknown",
    ] {
        let mut header = world.header();
        header.kid = Some(kid.into());
        let token = world.sign(&header, &body());
        assert_eq!(
            world.verify(&token).unwrap_err(),
            TokenRefused::UnknownKey,
            "{kid}"
        );
    }
    let mut header = world.header();
    header.kid = None;
    assert_eq!(
        world.verify(&world.sign(&header, &body())).unwrap_err(),
        TokenRefused::UnknownKey
    );
}

#[test]
fn a_key_named_in_the_header_is_not_used() {
    let world = World::new();
    let own = SigningKey::generate().unwrap();
    let header = json!({
        "alg": "EdDSA",
        "kid": world.key.kid(),
        "jku": "https://evil.example/jwks.json",
        "x5u": "https://evil.example/cert.pem",
        "jwk": own.public().to_jwk(),
    });
    let token = world.raw(&header, "AAAA");
    assert!(matches!(
        world.verify(&token).unwrap_err(),
        TokenRefused::Malformed | TokenRefused::BadSignature
    ));
}

#[test]
fn a_critical_header_is_refused() {
    let world = World::new();
    let header = json!({ "alg": "EdDSA", "kid": world.key.kid(), "crit": ["exp"] });
    assert_eq!(
        world.verify(&world.raw(&header, "AAAA")).unwrap_err(),
        TokenRefused::CriticalHeader
    );
}

#[test]
fn a_token_signed_by_another_key_of_the_same_id_is_refused() {
    let world = World::new();
    let thief = World::new();
    let token = thief.sign(&world.header(), &body());
    assert_eq!(
        world.verify(&token).unwrap_err(),
        TokenRefused::BadSignature
    );
}

#[test]
fn changing_any_byte_of_a_token_spoils_it() {
    let world = World::new();
    let token = mint(&world.key, &claims()).unwrap();
    for at in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(bytes).unwrap();
        // The last character of a part may hold bits that decode to nothing; a strict decoder refuses those too.
        assert!(world.verify(&forged).is_err(), "byte {at}");
    }
}

#[test]
fn a_token_cut_anywhere_is_refused() {
    let world = World::new();
    let token = mint(&world.key, &claims()).unwrap();
    for end in 0..token.len() {
        assert!(world.verify(&token[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn what_is_no_token_is_refused_as_such() {
    let world = World::new();
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "é.é.é",
        "e30.e30.",
        "bnVsbA.e30.AA",
    ] {
        let refused = world.verify(text).unwrap_err();
        assert_eq!(refused, TokenRefused::Malformed, "{text}");
    }
}

#[test]
fn a_huge_token_is_refused_by_its_length_alone() {
    let world = World::new();
    let token = "A".repeat(TOKEN_BYTES_MAX + 1);
    let refused = TokenRefused::TooLarge {
        size: TOKEN_BYTES_MAX + 1,
        limit: TOKEN_BYTES_MAX,
    };
    assert_eq!(world.verify(&token).unwrap_err(), refused);
    assert_eq!(claimed_tenant(&token).unwrap_err(), refused);
}

#[test]
fn a_token_that_every_verifier_would_refuse_is_not_minted() {
    let world = World::new();
    let mut long = claims();
    long.expires_at = NOW + LIFETIME_SECONDS_MAX + 1;
    assert!(mint(&world.key, &long).is_err());
    let mut wide = claims();
    wide.permissions = (0..500)
        .map(|n| {
            format!("stream.publish:stream:t/ns/a-rather-long-room-name-{n}")
                .parse()
                .unwrap()
        })
        .collect();
    assert!(mint(&world.key, &wide).is_err());
}

#[test]
fn the_words_do_not_tell_whether_a_tenant_exists() {
    let (ours, theirs) = (World::new(), World::new());
    let token = mint(&ours.key, &claims()).unwrap();
    let at = |tenant_name: &str, keys: &KeySet| {
        let now = TimeMs(NOW * 1000);
        verify(&token, &tenant(tenant_name), Audience::Broker, keys, now)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        at("exists", &theirs.keys),
        at("does-not", &KeySet::default())
    );
}

#[test]
fn a_fresh_token_cures_expiry_and_a_rotated_key_and_nothing_else() {
    let cured = [
        TokenRefused::Expired { late_by_seconds: 1 },
        TokenRefused::UnknownKey,
        TokenRefused::NotYetValid {
            early_by_seconds: 1,
        },
    ];
    assert!(cured.iter().all(TokenRefused::is_cured_by_a_fresh_token));
    for refused in [
        TokenRefused::BadSignature,
        TokenRefused::WrongTenant,
        TokenRefused::Malformed,
    ] {
        assert!(!refused.is_cured_by_a_fresh_token());
    }
}

#[test]
fn a_key_verifies_until_it_is_retired() {
    let (old, new) = (
        SigningKey::generate().unwrap(),
        SigningKey::generate().unwrap(),
    );
    let token = mint(&old, &claims()).unwrap();
    let at = |keys: &KeySet| {
        verify(
            &token,
            &tenant("t"),
            Audience::Broker,
            keys,
            TimeMs(NOW * 1000),
        )
        .map(|_| ())
    };
    assert_eq!(at(&KeySet::new([old.public(), new.public()])), Ok(()));
    assert_eq!(
        at(&KeySet::new([new.public()])),
        Err(TokenRefused::UnknownKey)
    );
}

/// Forges a token with the real key and other claims.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the table reads better without borrows"
)]
fn check(forge: impl Fn(&mut Value), expected: TokenRefused) {
    let world = World::new();
    let mut body = body();
    forge(&mut body);
    let token = world.sign(&world.header(), &body);
    assert_eq!(world.verify(&token).unwrap_err(), expected, "{body}");
}

struct World {
    key: SigningKey,
    keys: KeySet,
}

impl World {
    fn new() -> Self {
        let key = SigningKey::generate().unwrap();
        let keys = KeySet::new([key.public()]);
        Self { key, keys }
    }

    fn verify(&self, token: &str) -> Result<felix_auth::Principal, TokenRefused> {
        verify(
            token,
            &tenant("t"),
            Audience::Broker,
            &self.keys,
            TimeMs(NOW * 1000),
        )
    }

    fn header(&self) -> Header {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.key.kid().to_owned());
        header
    }

    /// Signs whatever it is given.
    fn sign(&self, header: &Header, body: &Value) -> String {
        let mut document = vec![
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        document.extend(URL_SAFE_NO_PAD.decode(self.key.to_secret()).unwrap());
        jsonwebtoken::encode(header, body, &EncodingKey::from_ed_der(&document)).unwrap()
    }

    /// Signs a body exactly as it is written.
    fn sign_text(&self, body: &str) -> String {
        use ed25519_dalek::Signer;
        let seed: [u8; 32] = URL_SAFE_NO_PAD
            .decode(self.key.to_secret())
            .unwrap()
            .try_into()
            .unwrap();
        let header = json!({"alg": "EdDSA", "kid": self.key.kid()}).to_string();
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(body)
        );
        let signature = ed25519_dalek::SigningKey::from_bytes(&seed).sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }

    /// A token with a header and a signature that no library would write.
    #[expect(clippy::unused_self, reason = "it reads as the world's like the rest")]
    fn raw(&self, header: &Value, signature: &str) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(header), part(&body()))
    }
}

fn body() -> Value {
    json!({
        "iss": "felix-auth",
        "aud": "felix-broker",
        "sub": "p:alice",
        "tid": "t",
        "iat": NOW,
        "exp": NOW + 900,
        "perms": ["stream.publish:stream:t/ns/*", "an.unknown.action:stream:t/ns/*"],
    })
}

fn claims() -> Claims {
    Claims::new(
        tenant("t"),
        "p:alice".into(),
        Audience::Broker,
        (TimeMs(NOW * 1000), 900),
        vec!["stream.publish:stream:t/ns/*".parse().unwrap()],
    )
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}
