//! Day zero: the bootstrap listener.

use crate::common::{self, BOOTSTRAP, World};
use felix_auth::{Action, Audience, KeySet, PublicKey, Resource, verify};
use felix_model::TimeMs;
use serde_json::json;

#[tokio::test]
async fn a_tenant_is_initialized_once_and_its_administrator_can_work() {
    let world = World::new().await;
    let body =
        json!({"display_name": "New", "idp_issuers": [], "initial_admin_principals": ["p:alice"]});
    let first = world.bootstrap("new/initialize", BOOTSTRAP, &body).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.body["status"], "initialized");
    assert_eq!(
        first.body["jwks_url"],
        "/v1/tenants/new/.well-known/jwks.json"
    );
    let again = world.bootstrap("new/initialize", BOOTSTRAP, &body).await;
    assert_eq!((again.status, again.code()), (409, "already_initialized"));
    let alice = common::token(&world.plane, "new", "p:alice");
    let made = world
        .call(
            "POST",
            "/v1/tenants/new/namespaces",
            &alice,
            Some(&json!({"namespace": "default"})),
        )
        .await;
    assert_eq!(made.status, 201);
}

#[tokio::test]
async fn a_tenant_row_made_before_can_still_be_initialized() {
    let world = World::new().await;
    let row = json!({"tenant_id": "new", "display_name": "Old"});
    world
        .call("POST", "/v1/tenants", &world.operator, Some(&row))
        .await;
    let done = world
        .bootstrap("new/initialize", BOOTSTRAP, &json!({"display_name": "New"}))
        .await;
    assert_eq!(done.status, 200);
}

#[tokio::test]
async fn without_the_bootstrap_token_nothing_happens() {
    let world = World::new().await;
    for token in ["", "wrong", "the bootstrap toke", "the bootstrap token2"] {
        for verb in ["initialize", "dev-token"] {
            let body = json!({"principal": "p:admin"});
            let refused = world.bootstrap(&format!("acme/{verb}"), token, &body).await;
            assert_eq!(
                (refused.status, refused.code()),
                (401, "unauthorized"),
                "{token} {verb}"
            );
        }
    }
}

#[tokio::test]
async fn rules_that_do_not_follow_the_grammar_or_name_another_tenant_are_refused() {
    let world = World::new().await;
    for (object, action) in [
        ("stream:other/ns/*", "stream.publish"),
        ("stream:*", "stream.publish"),
        ("stream:new/ns/*", "stream.fly"),
    ] {
        let rule = json!({"subject": "role:x", "object": object, "action": action});
        let refused = world
            .bootstrap("new/initialize", BOOTSTRAP, &json!({"policies": [rule]}))
            .await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "validation_error"),
            "{object}"
        );
    }
    let issuer = json!({"idp_issuers": [{"issuer": "https://login.example.com"}]});
    assert_eq!(
        world
            .bootstrap("new/initialize", BOOTSTRAP, &issuer)
            .await
            .status,
        400
    );
    let unknown = json!({"displayname": "typo"});
    assert_eq!(
        world
            .bootstrap("new/initialize", BOOTSTRAP, &unknown)
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn a_development_token_holds_what_the_roles_give_narrowed_to_what_was_asked() {
    let world = World::new().await;
    let body = json!({
        "principal": "p:admin",
        "permissions": ["stream.publish:stream:acme/ns/orders", "cache.watch:cache:acme/ns/config"],
    });
    let minted = world.bootstrap("acme/dev-token", BOOTSTRAP, &body).await;
    assert_eq!(minted.status, 200, "{minted:?}");
    assert_eq!(
        (&minted.body["expires_in"], &minted.body["token_type"]),
        (&json!(900), &json!("Bearer"))
    );
    let principal = verified(&world, minted.body["felix_token"].as_str().unwrap());
    let grants: Vec<String> = principal
        .permissions
        .grants()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        grants,
        [
            "stream.publish:stream:acme/ns/orders",
            "cache.watch:cache:acme/ns/config"
        ]
    );
    assert!(!principal.loopback_only);
}

#[tokio::test]
async fn a_token_asked_for_more_than_is_held_or_of_nobody_is_refused() {
    let world = World::new().await;
    let refused = |body: serde_json::Value, path: &'static str| {
        let world = &world;
        async move {
            let answer = world.bootstrap(path, BOOTSTRAP, &body).await;
            (
                answer.status,
                answer.body["message"].as_str().unwrap().to_owned(),
            )
        }
    };
    let none = (403, "no permissions".to_owned());
    assert_eq!(
        refused(json!({"principal": "p:nobody"}), "acme/dev-token").await,
        none
    );
    assert_eq!(
        refused(json!({"principal": "p:admin"}), "unknown/dev-token").await,
        none
    );
    let cluster = json!({"principal": "p:admin", "requested": ["node.view"]});
    assert_eq!(refused(cluster, "acme/dev-token").await, none);
    for bad in [
        json!({"principal": ""}),
        json!({"principal": "p:admin", "audience": "felix-gateway"}),
        json!({"principal": "p:admin", "requested": ["stream.fly"]}),
        json!({"principal": "p:admin", "resources": ["stream:*"]}),
        json!({"principal": "p:admin", "ttl_seconds": 0}),
        json!({"principal": "p:admin", "ttl_seconds": 1_u64 << 40}),
        json!({"principal": "p:admin", "requested": ["stream.publish"],
            "permissions": ["stream.publish:stream:acme/ns/s"]}),
    ] {
        assert_eq!(refused(bad.clone(), "acme/dev-token").await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_long_lived_token_is_good_only_on_this_machine() {
    let world = World::new().await;
    let body = json!({"principal": "p:admin", "ttl_seconds": 30 * 24 * 3600});
    let minted = world.bootstrap("acme/dev-token", BOOTSTRAP, &body).await;
    let principal = verified(&world, minted.body["felix_token"].as_str().unwrap());
    assert!(principal.loopback_only);
    let stream = Resource::Stream {
        tenant: "acme",
        namespace: "any",
        stream: "any",
    };
    assert!(principal.allows(Action::StreamPublish, &stream));
}

fn verified(world: &World, token: &str) -> felix_auth::Principal {
    let catalogue = world.plane.authority().catalogue();
    let entry = catalogue.tenant("acme").unwrap();
    let keys: Vec<PublicKey> = entry
        .keys
        .iter()
        .map(|key| PublicKey {
            kid: key.kid.clone(),
            x: key.x.clone(),
        })
        .collect();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = TimeMs(u64::try_from(now.as_millis()).unwrap());
    verify(
        token,
        &common::tenant("acme"),
        Audience::Broker,
        &KeySet::new(&keys),
        now,
    )
    .unwrap()
}
