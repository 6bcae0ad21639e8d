//! Exchange of providers' tokens.

use std::sync::Arc;

use felix_auth::oidc::principal_id;
use felix_auth::{Audience, issuer_digest};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::common::{self, World};
use crate::idp::{Key, Mood};
use crate::login::{Login, now};

#[tokio::test]
async fn a_persons_token_becomes_a_felix_token_with_exactly_his_rights() {
    let login = Login::new().await;
    let id = principal_id(&login.idp.issuer, "alice");
    login
        .grant(&id, "stream.subscribe", "stream:acme/ns/s")
        .await;
    let answer = login.sign_in(&json!({})).await;
    assert_eq!(
        (&answer["expires_in"], &answer["token_type"]),
        (&json!(900), &json!("Bearer"))
    );
    assert_eq!(answer["refresh_expires_in"], 43_200);
    let principal = login
        .principal(&answer["felix_token"], Audience::Broker)
        .await;
    assert_eq!(*principal.subject, *id);
    assert_eq!(&*principal.roles, ["role:writer".into()]);
    assert_eq!(principal.idp, Some(issuer_digest(&login.idp.issuer).into()));
    assert!(principal.session.is_some() && principal.token_id.is_some());
    assert_eq!(
        login.grants(&answer["felix_token"]).await,
        [
            "stream.publish:stream:acme/ns/room.*",
            "stream.subscribe:stream:acme/ns/s",
            "cache.read:cache:acme/ns/c"
        ]
    );
    // Who he is can be looked up, and so can his session.
    let people = login.world.get("/v1/tenants/acme/principals").await.body;
    assert_eq!(people["items"][0]["principal_id"], json!(id));
    assert_eq!(people["items"][0]["issuer"], json!(login.idp.issuer));
    assert_eq!(people["items"][0]["subject"], "alice");
    let sessions = login.world.get("/v1/tenants/acme/sessions").await.body;
    assert_eq!(sessions["items"][0]["subject"], "alice");
    assert_eq!(sessions["items"][0]["from"], "127.0.0.1");
    assert!(!sessions.to_string().contains("secret"), "{sessions}");
}

#[tokio::test]
async fn a_body_narrows_and_never_widens() {
    let login = Login::new().await;
    let publish = "stream.publish:stream:acme/ns/room.1";
    for (body, expected) in [
        (
            json!({"requested": ["stream.publish"]}),
            Ok(vec!["stream.publish:stream:acme/ns/room.*"]),
        ),
        (
            json!({"resources": ["stream:acme/ns/*"]}),
            Ok(vec!["stream.publish:stream:acme/ns/room.*"]),
        ),
        (
            json!({"requested": [], "permissions": [publish]}),
            Ok(vec![publish]),
        ),
        (
            json!({"requested": [], "permissions": ["cache.write:cache:acme/ns/c"]}),
            Err(403),
        ),
        (json!({"requested": ["stream.manage"]}), Err(403)),
        (json!({"resources": ["stream:ops/ns/*"]}), Err(403)),
        (json!({"requested": []}), Err(403)),
        (json!({"permissions": [publish]}), Err(400)),
        (
            json!({"requested": ["cache.read"], "permissions": [publish]}),
            Err(400),
        ),
        (
            json!({"requested": [], "resources": ["stream:acme/ns/*"], "permissions": [publish]}),
            Err(400),
        ),
        (json!({"requested": ["stream.fly"]}), Err(400)),
        (json!({"resources": ["stream:*"]}), Err(400)),
        (json!({"audience": "somebody"}), Err(400)),
        (json!({"unknown": 1}), Err(400)),
        (json!([]), Err(400)),
    ] {
        let answer = login.exchange(&login.upstream(|_| {}), &body).await;
        match expected {
            Ok(grants) => {
                let found = login.grants(&answer.body["felix_token"]).await;
                assert_eq!(found, grants, "{body}");
            }
            Err(status) => assert_eq!(answer.status, status, "{body}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_body_quotes_no_token() {
    let login = Login::new().await;
    let body = json!({"actor_token": ["eyJhbGciOiJzZWNyZXQ"], "requested": "eyJhbGciOiJzZWNyZXQ"});
    let answer = login.exchange(&login.upstream(|_| {}), &body).await;
    assert_eq!(answer.status, 400);
    assert!(!answer.body.to_string().contains("eyJ"), "{answer:?}");
}

#[tokio::test]
async fn a_token_is_for_its_audience_alone() {
    let login = Login::new().await;
    let broker = login.sign_in(&json!({"audience": "felix-broker"})).await;
    let path = "/v1/tenants/acme/sessions";
    let token = broker["felix_token"].as_str().unwrap();
    assert_eq!(login.world.call("GET", path, token, None).await.status, 401);
    let api = login
        .sign_in(&json!({"audience": "felix-controlplane"}))
        .await;
    let token = api["felix_token"].as_str().unwrap();
    let own = login.world.call("GET", path, token, None).await;
    assert_eq!(own.status, 200);
    assert_eq!(own.body["items"].as_array().unwrap().len(), 2, "his own");
    let others = login
        .world
        .call("GET", "/v1/tenants/acme/principals", token, None)
        .await;
    assert_eq!(others.status, 403);
}

#[tokio::test]
async fn forged_tokens_are_refused_and_the_answer_tells_only_what_is_no_secret() {
    let login = Login::new().await;
    let other = Key::ec("k1");
    let mut unknown = login.key.header();
    unknown["kid"] = json!("nobody");
    let claims = login.idp.claims("alice", now());
    let mut none = login.key.header();
    none["alg"] = json!("none");
    for (bearer, status) in [
        (String::new(), 401),
        ("not a token".into(), 401),
        ("A".repeat(20_000), 401),
        (login.key.sign_with(&none, &claims), 401),
        (
            login.upstream(|claims| claims["exp"] = json!(now() - 100)),
            401,
        ),
        (
            login.upstream(|claims| claims["iat"] = json!(now() + 100)),
            401,
        ),
        (login.upstream(|claims| claims["sub"] = Value::Null), 401),
        (login.upstream(|claims| claims["events"] = json!({})), 401),
        (
            login.upstream(|claims| claims["aud"] = json!("another")),
            403,
        ),
        (
            login.upstream(|claims| claims["iss"] = json!("https://evil.example")),
            403,
        ),
        (login.upstream(|claims| claims["groups"] = json!([7])), 403),
        (other.sign(&claims), 403),
        (login.key.sign_with(&unknown, &claims), 403),
    ] {
        let answer = login.exchange(&bearer, &json!({})).await;
        assert_eq!(answer.status, status, "{bearer}: {answer:?}");
        if status == 403 {
            assert_eq!(
                answer.body["message"],
                "the credential is not accepted for this tenant"
            );
        }
    }
}

#[tokio::test]
async fn forged_key_ids_over_http_cause_at_most_two_key_fetches() {
    let login = Login::new().await;
    for n in 0..100 {
        let mut header = login.key.header();
        header["kid"] = json!(format!("random-{n}"));
        let token = login
            .key
            .sign_with(&header, &login.idp.claims("alice", now()));
        // Half of them at a tenant that does not exist, and that trusts nobody.
        let tenant = if n % 2 == 0 { "acme" } else { "nobody" };
        let path = format!("/v1/tenants/{tenant}/token/exchange");
        let answer = login.world.call("POST", &path, &token, None).await;
        assert_eq!(answer.status, 403);
    }
    assert!(login.idp.key_fetches() <= 2, "{}", login.idp.key_fetches());
}

#[tokio::test]
async fn while_a_provider_cannot_be_reached_new_logins_fail_at_once_and_alike_for_every_tenant() {
    let login = Login::new().await;
    login.idp.behave(Mood::Status(500));
    let token = login.upstream(|_| {});
    for tenant in ["acme", "ops", "nobody"] {
        let path = format!("/v1/tenants/{tenant}/token/exchange");
        let answer = login.world.call("POST", &path, &token, None).await;
        assert_eq!(
            (answer.status, answer.code()),
            (503, "unavailable"),
            "{tenant}"
        );
    }
    assert_eq!(login.idp.key_fetches(), 1);
}

#[tokio::test]
async fn who_may_do_nothing_makes_nobody_else_at_his_address_wait() {
    let login = Login::new().await;
    let nothing = json!({"requested": ["stream.manage"]});
    for _ in 0..260 {
        let refused = login.exchange(&login.upstream(|_| {}), &nothing).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    }
    let login = Arc::new(login);
    let mut comers = JoinSet::new();
    for _ in 0..64 {
        let login = Arc::clone(&login);
        let comes = async move { login.exchange(&login.upstream(|_| {}), &json!({})).await };
        comers.spawn(comes);
    }
    for answer in comers.join_all().await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn a_valid_token_of_one_tenant_is_nothing_at_another() {
    let login = Login::new().await;
    let token = login.upstream(|_| {});
    for tenant in ["ops", "nobody", "acme2", "a/b", "..", "%00"] {
        let path = format!("/v1/tenants/{}/token/exchange", tenant.replace('/', "%2F"));
        let answer = login.world.call("POST", &path, &token, None).await;
        assert!([403, 404].contains(&answer.status), "{tenant}: {answer:?}");
    }
}

#[tokio::test]
async fn a_connection_only_token_needs_the_right_to_act_for_others() {
    let login = Login::new().await;
    let body = json!({"audience": "felix-broker", "requested": [], "permissions": []});
    let refused = login.exchange(&login.upstream(|_| {}), &body).await;
    assert_eq!(
        (refused.status, &refused.body["message"]),
        (403, &json!("no permissions"))
    );
    let id = principal_id(&login.idp.issuer, "alice");
    login.grant(&id, "token.delegate", "tenant:acme").await;
    let answer = login.sign_in(&body).await;
    assert!(login.grants(&answer["felix_token"]).await.is_empty());
    // And goes on being one.
    let next = login
        .refresh(answer["refresh_token"].as_str().unwrap())
        .await;
    assert!(login.grants(&next.body["felix_token"]).await.is_empty());
    let api = json!({"audience": "felix-controlplane", "requested": [], "permissions": []});
    assert_eq!(
        login.exchange(&login.upstream(|_| {}), &api).await.status,
        400
    );
}

#[tokio::test]
async fn a_token_names_the_actor_whose_token_was_brought() {
    let login = Login::new().await;
    let gateway = login
        .world
        .token_with("p:gateway", &[("token.delegate", "tenant:acme")])
        .await;
    let body = |token: &str| {
        json!({
            "actor_token": token,
            "actor_token_type": "urn:ietf:params:oauth:token-type:jwt",
        })
    };
    let answer = login.sign_in(&body(&gateway)).await;
    let principal = login
        .principal(&answer["felix_token"], Audience::Broker)
        .await;
    assert_eq!(principal.may_act.as_deref(), Some("p:gateway"));
    let next = login
        .refresh(answer["refresh_token"].as_str().unwrap())
        .await;
    let principal = login
        .principal(&next.body["felix_token"], Audience::Broker)
        .await;
    assert_eq!(principal.may_act.as_deref(), Some("p:gateway"), "kept");
    let no_right = common::token(&login.world.plane, "acme", "p:admin");
    let foreign = login.world.operator.clone();
    for bad in [no_right.as_str(), foreign.as_str(), "nonsense"] {
        let refused = login.exchange(&login.upstream(|_| {}), &body(bad)).await;
        assert_eq!((refused.status, refused.code()), (403, "actor_refused"));
    }
}

#[tokio::test]
async fn a_tenant_can_begin_with_providers_it_trusts() {
    let world = World::new().await;
    let key = Key::ec("k1");
    let idp = crate::idp::Idp::start(&[&key]).await;
    let id = principal_id(&idp.issuer, "alice");
    let spec = json!({
        "display_name": "New",
        "idp_issuers": [{"issuer": idp.issuer, "audiences": ["app"]}],
        "initial_admin_principals": [id],
    });
    let made = world
        .bootstrap("new/initialize", common::BOOTSTRAP, &spec)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let token = key.sign(&idp.claims("alice", now()));
    let path = "/v1/tenants/new/token/exchange";
    let body = json!({"audience": "felix-controlplane"});
    let answer = world.call("POST", path, &token, Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let bad = json!({"idp_issuers": [{"issuer": "http://10.0.0.1", "audiences": ["app"]}]});
    let refused = world
        .bootstrap("bad/initialize", common::BOOTSTRAP, &bad)
        .await;
    assert_eq!(refused.status, 400);
}
