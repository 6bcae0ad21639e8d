//! How long a sign-in goes on, and what a later one says of it.

use felix_auth::oidc::principal_id;
use felix_controlplane::Config;
use felix_meta::{Command, SessionRecord};
use felix_model::TimeMs;
use serde_json::{Value, json};

use crate::common::{config, tenant, token};
use crate::login::{Login, now};

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn a_sign_in_by_a_provider_has_a_greatest_age_however_often_it_is_refreshed() {
    let login = Login::new().await;
    let first = login.sign_in(&json!({})).await;
    assert_eq!(first["refresh_expires_in"], 12 * 3600, "by default");
    let mut refresh_token = first["refresh_token"].clone();
    // Eleven hours pass, in which it was refreshed again and again.
    login.age(11 * HOUR_MS).await;
    let later = login.refresh(refresh_token.as_str().unwrap()).await;
    assert_eq!(later.status, 200, "{later:?}");
    let left = later.body["refresh_expires_in"].as_u64().unwrap();
    assert!(left <= 3600, "what is left of the twelve hours: {left}");
    refresh_token = later.body["refresh_token"].clone();
    login.age(HOUR_MS).await;
    let over = login.refresh(refresh_token.as_str().unwrap()).await;
    assert_eq!((over.status, over.code()), (403, "sign_in_again"));
    // Signing in again helps.
    login.sign_in(&json!({})).await;
}

#[tokio::test]
async fn an_operator_says_how_old_sign_ins_may_get_and_those_with_keys_of_ours_get_older() {
    let login = Login::with(Config {
        sign_in_max_age_seconds: 600,
        ..config()
    })
    .await;
    let person = login.sign_in(&json!({})).await;
    assert_eq!(person["refresh_expires_in"], 600);
    let account = json!({"name": "bot"});
    let path = "/v1/tenants/acme/service-accounts";
    assert_eq!(login.world.post(path, &account).await.status, 201);
    login.give("sa:bot", "role:writer").await;
    let key = login
        .world
        .post(&format!("{path}/bot/keys"), &json!({}))
        .await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let program = login.exchange(&key, &json!({})).await.body;
    assert_eq!(program["refresh_expires_in"], 2_592_000);
    login.age(700_000).await;
    let person = login
        .refresh(person["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!((person.status, person.code()), (403, "sign_in_again"));
    let program = login
        .refresh(program["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(program.status, 200, "{program:?}");
}

#[tokio::test]
async fn a_group_that_was_left_is_left_in_every_session_once_the_provider_says_so() {
    let login = Login::new().await;
    let elsewhere = login.sign_in(&json!({})).await;
    // A token that says nothing of groups is no news of them, and neither is one made before the session began.
    let id = principal_id(&login.idp.issuer, "alice");
    login
        .grant(&id, "stream.publish", "stream:acme/ns/own")
        .await;
    let silent = login.upstream(|claims| drop(claims.as_object_mut().unwrap().remove("groups")));
    assert_eq!(login.exchange(&silent, &json!({})).await.status, 200);
    let older = login.upstream(|claims| {
        claims["groups"] = json!(["readers"]);
        claims["iat"] = json!(now() - 30);
    });
    assert_eq!(login.exchange(&older, &json!({})).await.status, 200);
    let next = login
        .refresh(elsewhere["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(next.status, 200, "{next:?}");
    let granted = login.grants(&next.body["felix_token"]).await;
    assert!(granted.contains(&"stream.publish:stream:acme/ns/room.*".to_owned()));
    let left = login.upstream(|claims| claims["groups"] = json!(["readers"]));
    let anew = login.exchange(&left, &json!({})).await;
    assert_eq!(
        login.grants(&anew.body["felix_token"]).await,
        ["stream.publish:stream:acme/ns/own"]
    );
    let old = login
        .refresh(next.body["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!((old.status, old.code()), (403, "sign_in_again"));
    assert!(login.is_taken_back(&next.body["felix_token"]).await);
    let kept = login
        .refresh(anew.body["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(kept.status, 200, "{kept:?}");
}

#[tokio::test]
async fn whoever_has_left_his_last_group_loses_his_sessions_although_he_gets_no_new_one() {
    let login = Login::new().await;
    let session = login.sign_in(&json!({})).await;
    let left = login.upstream(|claims| claims["groups"] = json!([]));
    let refused = login.exchange(&left, &json!({})).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let old = login
        .refresh(session["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!((old.status, old.code()), (403, "sign_in_again"));
    assert!(login.is_taken_back(&session["felix_token"]).await);
}

impl Login {
    /// Makes every session so much older, as if that time had passed.
    async fn age(&self, by_ms: u64) {
        let authority = self.world.plane.authority();
        let catalogue = authority.catalogue();
        let entry = catalogue.tenant("acme").unwrap();
        let earlier = |at: TimeMs| TimeMs(at.0 - by_ms);
        let held: Vec<SessionRecord> = entry
            .sessions
            .iter()
            .map(|session| SessionRecord::clone(session))
            .collect();
        for mut session in held {
            let end = Command::EndSession {
                tenant_id: tenant("acme"),
                session_id: session.session_id.clone(),
                reason: String::new(),
                now_ms: TimeMs(1),
            };
            authority.submit(end).await.unwrap();
            // What a refresh a moment ago left of it: only the time since the sign-in is greater.
            session.created_at_ms = earlier(session.created_at_ms);
            let open = Command::OpenSession {
                tenant_id: tenant("acme"),
                session,
                principal: None,
            };
            authority.submit(open).await.unwrap();
        }
    }

    async fn is_taken_back(&self, felix_token: &Value) -> bool {
        let principal = self
            .principal(felix_token, felix_auth::Audience::Broker)
            .await;
        let admin = token(&self.world.plane, "acme", "p:admin");
        let path = "/v1/tenants/acme/revocations";
        let listed = self.world.call("GET", path, &admin, None).await.body;
        let items = listed["items"].as_array().unwrap();
        items.iter().any(|item| {
            item["id"] == json!(principal.session.as_deref().unwrap())
                && item["not_before_ms"].as_u64().unwrap() >= principal.issued_at_ms.0
        })
    }
}
