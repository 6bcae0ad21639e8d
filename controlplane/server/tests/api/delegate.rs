//! Acting for somebody else.

use felix_auth::oidc::principal_id;
use felix_auth::{Audience, Revocation, Revocations, RevokedKind};
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

#[tokio::test]
async fn a_delegated_token_is_taken_back_with_the_right_to_act_however_the_actor_held_it() {
    let stage = Stage::new().await;
    let world = &stage.login.world;
    // By a role, which a group has.
    stage
        .login
        .grant("role:delegates", "token.delegate", "tenant:acme")
        .await;
    let group = format!("group:{}#gateways", stage.login.idp.issuer);
    stage.login.give(&group, "role:delegates").await;
    let gateway = stage.login.upstream(|claims| {
        claims["sub"] = json!("gateway");
        claims["groups"] = json!(["gateways"]);
    });
    let own = json!({"audience": "felix-controlplane", "requested": ["token.delegate"]});
    let rule =
        json!({"subject": "role:delegates", "object": "tenant:acme", "action": "token.delegate"});
    let gift = json!({"user": group, "role": "role:delegates"});
    for (what, taken) in [("policies", &rule), ("groupings", &gift)] {
        let path = format!("/v1/tenants/acme/rbac/{what}");
        let actor = stage.login.exchange(&gateway, &own).await;
        assert_eq!(actor.status, 200, "{path}: {actor:?}");
        let actor = actor.body["felix_token"].as_str().unwrap();
        let subject = stage.login.sign_in(&json!({ "actor_token": actor })).await;
        let made = stage.delegate(actor, &body(&subject["felix_token"])).await;
        assert_eq!(made.status, 200, "{path}: {made:?}");
        let token = &made.body["access_token"];
        assert_eq!(stage.covered_by(token).await, None, "{path}");
        let gone = world.call("DELETE", &path, &world.admin, Some(taken)).await;
        assert_eq!(gone.status, 204, "{path}: {gone:?}");
        assert!(stage.covered_by(token).await.is_some(), "{path}");
        let again = stage.delegate(actor, &body(&subject["felix_token"])).await;
        assert_eq!((again.status, again.code()), (401, "revoked"), "{path}");
        // It is given again for the next round.
        assert_eq!(world.post(&path, taken).await.status, 204);
    }
}

#[tokio::test]
async fn a_delegated_token_ends_with_the_session_its_actor_acted_in() {
    let stage = Stage::new().await;
    let id = principal_id(&stage.login.idp.issuer, "gateway");
    stage
        .login
        .grant(&id, "token.delegate", "tenant:acme")
        .await;
    let gateway = stage.login.upstream(|claims| {
        claims["sub"] = json!("gateway");
        claims["groups"] = json!([]);
    });
    let own = json!({"audience": "felix-controlplane"});
    let actor = stage.login.exchange(&gateway, &own).await.body;
    let token = actor["felix_token"].as_str().unwrap();
    let subject = stage.login.sign_in(&json!({ "actor_token": token })).await;
    let made = stage.delegate(token, &body(&subject["felix_token"])).await;
    let delegated = &made.body["access_token"];
    assert_eq!(stage.covered_by(delegated).await, None, "{made:?}");
    let path = "/v1/tenants/acme/token/revoke";
    let out = json!({"refresh_token": actor["refresh_token"]});
    let out = stage.login.world.call("POST", path, "", Some(&out)).await;
    assert_eq!(out.status, 204);
    let by = stage.covered_by(delegated).await;
    assert_eq!(by, Some(RevokedKind::Session));
    let person = stage.covered_by(&subject["felix_token"]).await;
    assert_eq!(person, None, "what the person holds himself stays good");
}

impl Stage {
    /// What takes a token for brokers back, as brokers judge it: by the catalogue that they follow.
    async fn covered_by(&self, token: &Value) -> Option<RevokedKind> {
        let principal = self.login.principal(token, Audience::Broker).await;
        let snapshot = self.login.world.api().catalogue().await.unwrap();
        let entry = snapshot.catalogue.tenant("acme").unwrap();
        let records = entry.revocations.iter().map(|record| Revocation {
            kind: record.kind,
            id: &record.id,
            not_before_ms: record.not_before_ms,
        });
        let covers = Revocations::new(records).covers(&principal);
        covers.map(|by| by.kind)
    }
}
