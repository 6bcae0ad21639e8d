//! Keys, rules and roles of a tenant.

use crate::common::{self, World};
use serde_json::{Value, json};

#[tokio::test]
async fn keys_are_staged_activated_and_retired() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/signing-keys";
    let first = world.get(path).await.body["current"]
        .as_str()
        .unwrap()
        .to_owned();
    let staged = world.call("POST", path, &world.admin, None).await;
    assert_eq!(
        (staged.status, &staged.body["current"]),
        (201, &json!(first))
    );
    let second = staged.body["verifying"][1].as_str().unwrap().to_owned();
    let jwks = world
        .call("GET", "/v1/tenants/acme/.well-known/jwks.json", "", None)
        .await
        .body;
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 2);
    assert_eq!(jwks["keys"][1]["kid"], json!(second));
    assert_eq!(jwks["keys"][1]["crv"], "Ed25519");
    let activate = format!("{path}/{second}/activate");
    let activated = world.call("POST", &activate, &world.admin, None).await;
    assert_eq!(activated.body["current"], json!(second));
    assert_eq!(
        world.delete(&format!("{path}/{second}")).await.status,
        409,
        "it is current"
    );
    assert_eq!(
        world.get(path).await.status,
        200,
        "the old key still verifies"
    );
    let fresh = common::token(&world.plane, "acme", "p:admin");
    let retired = world.delete(&format!("{path}/{first}")).await;
    assert_eq!(
        (retired.status, &retired.body["verifying"]),
        (200, &json!([second]))
    );
    assert_eq!(
        world.get(path).await.status,
        401,
        "tokens of the old key are worth nothing now"
    );
    let unknown = world
        .call("DELETE", &format!("{path}/{first}"), &fresh, None)
        .await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn the_keys_of_a_tenant_that_does_not_exist_are_an_empty_set() {
    let world = World::new().await;
    let jwks = world
        .call("GET", "/v1/tenants/nobody/.well-known/jwks.json", "", None)
        .await;
    assert_eq!((jwks.status, jwks.body), (200, json!({"keys": []})));
}

#[tokio::test]
async fn rules_are_written_only_within_ones_own_scope() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/rbac/policies";
    let rule = |object: &str, action: &str| json!({"subject": "role:x", "object": object, "action": action});
    let status = |body: Value| {
        let world = &world;
        async move { world.post(path, &body).await.status }
    };
    assert_eq!(
        status(rule("stream:acme/ns/room.*", "stream.publish")).await,
        204
    );
    assert_eq!(
        status(rule("stream:acme/ns/room.*", "stream.publish")).await,
        204,
        "again"
    );
    assert_eq!(status(rule("stream:ops/ns/*", "stream.publish")).await, 403);
    assert_eq!(status(rule("cluster:*", "node.view")).await, 403);
    assert_eq!(status(rule("node:a", "node.manage")).await, 403);
    assert_eq!(
        status(rule("stream:acme/*/named", "stream.publish")).await,
        400
    );
    assert_eq!(status(rule("stream:acme/ns/s", "stream.fly")).await, 400);
    assert_eq!(
        status(rule("cache:acme/ns/c/key", "cache.manage")).await,
        400
    );
    let small = world
        .token_with(
            "p:small",
            &[
                ("rbac.policy.manage", "namespace:acme/ns"),
                ("rbac.view", "namespace:acme/ns"),
            ],
        )
        .await;
    let as_small = |method, body: Value| {
        let (world, small) = (&world, &small);
        async move { world.call(method, path, small, Some(&body)).await.status }
    };
    assert_eq!(
        as_small("POST", rule("cache:acme/ns/c", "cache.read")).await,
        204
    );
    assert_eq!(
        as_small("POST", rule("cache:acme/other/c", "cache.read")).await,
        403
    );
    assert_eq!(
        as_small("POST", rule("tenant:acme", "tenant.manage")).await,
        403
    );
    let seen = world.call("GET", path, &small, None).await.body;
    assert!(
        seen.as_array()
            .unwrap()
            .iter()
            .all(|rule| rule["object"].as_str().unwrap().contains("acme/ns")),
        "{seen}"
    );
    assert_eq!(
        as_small("DELETE", rule("cache:acme/ns/c", "cache.read")).await,
        204
    );
    assert_eq!(
        as_small("DELETE", rule("cache:acme/ns/c", "cache.read")).await,
        404
    );
}

#[tokio::test]
async fn a_role_is_given_only_by_who_could_write_all_its_rules() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/rbac/groupings";
    let small = world
        .token_with(
            "p:small",
            &[("rbac.assignment.manage", "namespace:acme/ns")],
        )
        .await;
    world
        .token_with("role:inner", &[("stream.publish", "stream:acme/ns/*")])
        .await;
    world
        .token_with("role:outer", &[("stream.publish", "stream:acme/*/*")])
        .await;
    let gift = |role: &str| json!({"user": "p:bob", "role": role});
    let give = |token: String, role: &'static str| {
        let (world, body) = (&world, gift(role));
        async move { world.call("POST", path, &token, Some(&body)).await.status }
    };
    assert_eq!(give(small.clone(), "role:inner").await, 204);
    assert_eq!(give(small.clone(), "role:outer").await, 403);
    assert_eq!(give(small.clone(), "role:tenant-admin").await, 403);
    assert_eq!(
        give(small, "role:empty").await,
        403,
        "it may bring anything later"
    );
    assert_eq!(give(world.admin.clone(), "role:empty").await, 204);
    // A role that holds a wider role is as wide as that one.
    let nested = json!({"user": "role:inner", "role": "role:outer"});
    assert_eq!(world.post(path, &nested).await.status, 204);
    assert_eq!(
        world
            .call("DELETE", path, &world.admin, Some(&gift("role:inner")))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn rbac_listings_are_bare_lists_until_a_page_is_asked_for() {
    let world = World::new().await;
    let bare = world.get("/v1/tenants/acme/rbac/groupings").await.body;
    assert_eq!(
        bare,
        json!([{"user": "p:admin", "role": "role:tenant-admin"}])
    );
    let page = world
        .get("/v1/tenants/acme/rbac/policies?limit=2")
        .await
        .body;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert!(page["next_cursor"].is_string());
}

#[tokio::test]
async fn a_group_is_named_with_its_issuer() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/rbac/groupings";
    for (user, status) in [
        ("group:https://login.example.com#writers", 204),
        ("group:https://login.example.com#a#b", 204),
        ("group:writers", 400),
        ("group:#writers", 400),
        ("group:https://login.example.com#", 400),
    ] {
        let gift = json!({"user": user, "role": "role:x"});
        assert_eq!(world.post(path, &gift).await.status, status, "{user}");
    }
}
