//! Acting for somebody else.

use felix_auth::Audience;
use serde_json::{Value, json};

use crate::common::{self, Answer};
use crate::login::Login;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

struct Stage {
    login: Login,
    gateway: String,
    /// A person's token that names the gateway.
    subject: Value,
}

impl Stage {
    async fn new() -> Self {
        let login = Login::new().await;
        let gateway = login
            .world
            .token_with("p:gateway", &[("token.delegate", "tenant:acme")])
            .await;
        let answer = login.sign_in(&json!({ "actor_token": gateway })).await;
        let subject = answer["felix_token"].clone();
        Self {
            login,
            gateway,
            subject,
        }
    }

    async fn delegate(&self, caller: &str, body: &Value) -> Answer {
        let path = "/v1/tenants/acme/token/delegate";
        self.login
            .world
            .call("POST", path, caller, Some(body))
            .await
    }
}

fn body(subject: &Value) -> Value {
    json!({ "grant_type": GRANT, "subject_token": subject })
}

#[tokio::test]
async fn a_gateway_acts_for_a_person_with_no_more_and_no_longer_than_he_has() {
    let stage = Stage::new().await;
    let whole = stage.delegate(&stage.gateway, &body(&stage.subject)).await;
    assert_eq!(whole.status, 200, "{whole:?}");
    assert_eq!(
        whole.body["issued_token_type"],
        "urn:ietf:params:oauth:token-type:jwt"
    );
    let of = |token: Value| {
        let login = &stage.login;
        async move { login.principal(&token, Audience::Broker).await }
    };
    let person = of(stage.subject.clone()).await;
    let delegated = of(whole.body["access_token"].clone()).await;
    assert_eq!(delegated.subject, person.subject);
    assert_eq!(delegated.actor.as_deref(), Some("p:gateway"));
    assert_eq!(delegated.may_act, None);
    assert_eq!(
        delegated.session, person.session,
        "it ends with his session"
    );
    assert_ne!(delegated.token_id, person.token_id);
    assert!(delegated.expires_at_ms <= person.expires_at_ms);
    assert_eq!(delegated.permissions.grants(), person.permissions.grants());
    let mut narrow = body(&stage.subject);
    narrow["permissions"] = json!([
        "stream.publish:stream:acme/*/*",
        "cache.write:cache:acme/ns/c"
    ]);
    let narrowed = stage.delegate(&stage.gateway, &narrow).await;
    assert_eq!(
        stage.login.grants(&narrowed.body["access_token"]).await,
        ["stream.publish:stream:acme/ns/room.*"],
        "a wider ask yields what he has, and another nothing"
    );
}

#[tokio::test]
async fn who_may_not_act_is_refused() {
    let stage = Stage::new().await;
    let other = stage
        .login
        .world
        .token_with("p:other-gateway", &[("token.delegate", "tenant:acme")])
        .await;
    let plain = stage.login.sign_in(&json!({})).await;
    let whole = stage.delegate(&stage.gateway, &body(&stage.subject)).await;
    let admin = common::token(&stage.login.world.plane, "acme", "p:admin");
    let mut none = body(&stage.subject);
    none["permissions"] = json!([]);
    let mut foreign = body(&stage.subject);
    foreign["permissions"] = json!(["stream.publish:stream:ops/ns/*"]);
    let mut many = body(&stage.subject);
    many["permissions"] = json!(vec!["stream.publish:stream:acme/ns/room.1"; 1025]);
    for (caller, body, status, words) in [
        (&stage.gateway, many, 400, "1024"),
        (&other, body(&stage.subject), 403, "another actor"),
        (&stage.gateway, body(&plain["felix_token"]), 403, "no actor"),
        (
            &stage.gateway,
            body(&whole.body["access_token"]),
            403,
            "delegated already",
        ),
        (&admin, body(&stage.subject), 403, "token.delegate"),
        (&stage.login.world.operator, body(&stage.subject), 401, ""),
        (&stage.gateway, none, 403, "no permissions"),
        (&stage.gateway, foreign, 403, "no permissions"),
        (
            &stage.gateway,
            body(&json!("nonsense")),
            401,
            "subject_token",
        ),
        (
            &stage.gateway,
            body(&json!(stage.gateway)),
            401,
            "subject_token",
        ),
        (
            &stage.gateway,
            json!({"grant_type": "password", "subject_token": "x"}),
            400,
            "grant_type",
        ),
        (&stage.gateway, json!({"grant_type": GRANT}), 400, ""),
    ] {
        let refused = stage.delegate(caller, &body).await;
        assert_eq!(refused.status, status, "{words}: {refused:?}");
        let message = refused.body["message"].as_str().unwrap();
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[tokio::test]
async fn a_delegated_token_ends_with_the_session_it_came_from() {
    let stage = Stage::new().await;
    let sessions = stage
        .login
        .world
        .get("/v1/tenants/acme/sessions")
        .await
        .body;
    let id = sessions["items"][0]["session_id"].as_str().unwrap();
    let path = format!("/v1/tenants/acme/sessions/{id}");
    assert_eq!(stage.login.world.delete(&path).await.status, 204);
    let refused = stage.delegate(&stage.gateway, &body(&stage.subject)).await;
    assert_eq!((refused.status, refused.code()), (401, "revoked"));
}
