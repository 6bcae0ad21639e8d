//! Sessions: how they go on and end.

use felix_auth::oidc::principal_id;
use felix_meta::{Command, RevokedKind};
use felix_model::TimeMs;
use serde_json::{Value, json};

use crate::common::{Answer, tenant};
use crate::login::{Login, now};

#[tokio::test]
async fn a_refresh_token_is_good_once_and_using_it_twice_ends_the_session_for_both() {
    let login = Login::new().await;
    let first = login
        .sign_in(&json!({"audience": "felix-controlplane"}))
        .await;
    let first_refresh = first["refresh_token"].as_str().unwrap();
    let second = login.refresh(first_refresh).await;
    assert_eq!(second.status, 200, "{second:?}");
    let second_refresh = second.body["refresh_token"].as_str().unwrap();
    assert_ne!(first_refresh, second_refresh);
    let own = |token: Value| {
        let login = &login;
        async move {
            let path = "/v1/tenants/acme/sessions";
            login
                .world
                .call("GET", path, token.as_str().unwrap(), None)
                .await
        }
    };
    assert_eq!(own(second.body["felix_token"].clone()).await.status, 200);
    let replayed = login.refresh(first_refresh).await;
    is_refused(&replayed);
    is_refused(&login.refresh(second_refresh).await);
    let revoked = own(second.body["felix_token"].clone()).await;
    assert_eq!((revoked.status, revoked.code()), (401, "revoked"));
    let sessions = login.world.get("/v1/tenants/acme/sessions").await.body;
    assert!(sessions["items"].as_array().unwrap().is_empty());
    // Signing in anew helps at once, within the second of the revocation.
    let again = login
        .sign_in(&json!({"audience": "felix-controlplane"}))
        .await;
    assert_eq!(own(again["felix_token"].clone()).await.status, 200);
}

#[tokio::test]
async fn a_wrong_secret_spends_the_token_it_was_guessed_for() {
    let login = Login::new().await;
    let token = login.sign_in(&json!({})).await;
    let token = token["refresh_token"].as_str().unwrap();
    let (head, _) = token.split_once('.').unwrap();
    is_refused(&login.refresh(&format!("{head}.{}", "A".repeat(43))).await);
    is_refused(&login.refresh(token).await);
}

#[tokio::test]
async fn of_two_at_once_at_most_one_goes_on_and_the_session_does_not_outlive_it() {
    let login = Login::new().await;
    let token = login.sign_in(&json!({})).await;
    let token = token["refresh_token"].as_str().unwrap();
    let (one, other) = tokio::join!(login.refresh(token), login.refresh(token));
    let good: Vec<&Answer> = [&one, &other]
        .into_iter()
        .filter(|answer| answer.status == 200)
        .collect();
    assert!(good.len() <= 1);
    for answer in good {
        is_refused(
            &login
                .refresh(answer.body["refresh_token"].as_str().unwrap())
                .await,
        );
    }
}

#[tokio::test]
async fn every_refusal_of_a_refresh_token_is_the_same() {
    let login = Login::new().await;
    let nobody = format!("{}-0.{}", "0".repeat(32), "A".repeat(43));
    for token in ["", "x", ".", nobody.as_str(), &"A".repeat(10_000)] {
        is_refused(&login.refresh(token).await);
    }
    let token = login.sign_in(&json!({})).await;
    let body = json!({"refresh_token": token["refresh_token"]});
    for tenant in ["ops", "nobody"] {
        let path = format!("/v1/tenants/{tenant}/token/refresh");
        is_refused(&login.world.call("POST", &path, "", Some(&body)).await);
    }
    let malformed = login
        .world
        .call(
            "POST",
            "/v1/tenants/acme/token/refresh",
            "",
            Some(&json!({})),
        )
        .await;
    assert_eq!(malformed.status, 400);
}

#[tokio::test]
async fn a_revocation_by_a_clock_that_is_ahead_delays_a_session_and_does_not_end_it() {
    let login = Login::new().await;
    let token = login.sign_in(&json!({})).await;
    let revoke = Command::Revoke {
        tenant_id: tenant("acme"),
        kind: RevokedKind::Role,
        id: "role:writer".into(),
        not_before_ms: TimeMs((now() + 50) * 1000),
        reason: "a rule was removed elsewhere".into(),
        now_ms: TimeMs(now() * 1000),
    };
    login.world.plane.authority().submit(revoke).await.unwrap();
    let later = login
        .refresh(token["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!((later.status, later.code()), (503, "unavailable"));
    let sessions = login.world.get("/v1/tenants/acme/sessions").await.body;
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn roles_are_looked_up_anew_and_narrowing_and_audience_stay() {
    let login = Login::new().await;
    let asked = json!({"requested": [], "permissions": ["stream.publish:stream:acme/ns/room.1"]});
    let token = login.sign_in(&asked).await;
    // More rights come; the session does not get them.
    login
        .grant("role:writer", "stream.publish", "stream:acme/*/*")
        .await;
    login
        .grant("role:writer", "cache.write", "cache:acme/ns/c")
        .await;
    let next = login
        .refresh(token["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(
        login.grants(&next.body["felix_token"]).await,
        ["stream.publish:stream:acme/ns/room.1"]
    );
    let other_audience = json!({
        "refresh_token": next.body["refresh_token"],
        "audience": "felix-controlplane",
    });
    let path = "/v1/tenants/acme/token/refresh";
    let refused = login
        .world
        .call("POST", path, "", Some(&other_audience))
        .await;
    assert_eq!(refused.status, 400, "and it is not spent by that");
    // The rights go; so does the session.
    for object in ["stream:acme/ns/room.*", "stream:acme/*/*"] {
        let rule = json!({"subject": "role:writer", "object": object, "action": "stream.publish"});
        let path = "/v1/tenants/acme/rbac/policies";
        let removed = login
            .world
            .call("DELETE", path, &login.world.admin, Some(&rule))
            .await;
        assert_eq!(removed.status, 204);
    }
    is_refused(
        &login
            .refresh(next.body["refresh_token"].as_str().unwrap())
            .await,
    );
    let sessions = login.world.get("/v1/tenants/acme/sessions").await.body;
    assert!(sessions["items"].as_array().unwrap().is_empty(), "it ended");
}

#[tokio::test]
async fn signing_out_ends_the_session_and_is_answered_alike_for_no_session() {
    let login = Login::new().await;
    let token = login.sign_in(&json!({})).await;
    let path = "/v1/tenants/acme/token/revoke";
    let out = |token: Value| {
        let login = &login;
        async move {
            let body = json!({ "refresh_token": token });
            login.world.call("POST", path, "", Some(&body)).await.status
        }
    };
    assert_eq!(out(token["refresh_token"].clone()).await, 204);
    assert_eq!(out(token["refresh_token"].clone()).await, 204);
    assert_eq!(out(json!("nonsense")).await, 204);
    is_refused(
        &login
            .refresh(token["refresh_token"].as_str().unwrap())
            .await,
    );
}

#[tokio::test]
async fn an_operator_ends_a_session_and_others_do_not_see_it() {
    let login = Login::new().await;
    let token = login
        .sign_in(&json!({"audience": "felix-controlplane"}))
        .await;
    let felix_token = token["felix_token"].as_str().unwrap();
    let listed = login.world.get("/v1/tenants/acme/sessions").await.body;
    let id = listed["items"][0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/v1/tenants/acme/sessions/{id}");
    let stranger = login
        .world
        .token_with("p:stranger", &[("rbac.view", "tenant:acme")])
        .await;
    let hidden = login.world.call("DELETE", &path, &stranger, None).await;
    assert_eq!(hidden.status, 404);
    let seen = login
        .world
        .call("GET", "/v1/tenants/acme/sessions", &stranger, None)
        .await;
    assert!(seen.body["items"].as_array().unwrap().is_empty());
    assert_eq!(login.world.delete(&path).await.status, 204);
    let ended = login
        .world
        .call("GET", "/v1/tenants/acme/sessions", felix_token, None)
        .await;
    assert_eq!((ended.status, ended.code()), (401, "revoked"));
    is_refused(
        &login
            .refresh(token["refresh_token"].as_str().unwrap())
            .await,
    );
    assert_eq!(login.world.delete(&path).await.status, 404);
    // One may end one's own.
    let own = login
        .sign_in(&json!({"audience": "felix-controlplane"}))
        .await;
    let felix_token = own["felix_token"].as_str().unwrap();
    let whose = format!(
        "/v1/tenants/acme/sessions?principal={}",
        principal_id(&login.idp.issuer, "alice")
    );
    let listed = login
        .world
        .call("GET", &whose, felix_token, None)
        .await
        .body;
    let id = listed["items"][0]["session_id"].as_str().unwrap();
    let path = format!("/v1/tenants/acme/sessions/{id}");
    assert_eq!(
        login
            .world
            .call("DELETE", &path, felix_token, None)
            .await
            .status,
        204
    );
}

fn is_refused(answer: &Answer) {
    assert_eq!(
        (answer.status, answer.code(), &answer.body["message"]),
        (
            403,
            "sign_in_again",
            &json!("the refresh token is not good; sign in again")
        ),
        "{answer:?}"
    );
}
