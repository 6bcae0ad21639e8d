//! Quotas: who sets them, and what holds then.

use serde_json::json;

use crate::common::{BOOTSTRAP, World, token};

const QUOTAS: &str = "/v1/tenants/acme/quotas";

#[tokio::test]
async fn quotas_of_every_scope_are_set_listed_and_removed() {
    let world = World::new().await;
    let scopes = [
        (
            QUOTAS.to_owned(),
            json!({"connections": 5, "cache_bytes": 1000}),
        ),
        (
            format!("{QUOTAS}/namespaces/ns"),
            json!({"publish_bytes_per_second": 10}),
        ),
        (
            format!("{QUOTAS}/principals/p:x"),
            json!({"subscriptions": 3}),
        ),
    ];
    for (path, limits) in &scopes {
        let set = put(&world, path, limits).await;
        assert_eq!(set, 200, "{path}");
    }
    let listed = world.get(QUOTAS).await.body;
    let items = listed["items"].as_array().unwrap();
    let names: Vec<_> = items
        .iter()
        .map(|one| (&one["scope"], &one["name"]))
        .collect();
    assert_eq!(names[0], (&json!("tenant"), &json!("acme")));
    assert_eq!(names[1], (&json!("namespace"), &json!("ns")));
    assert_eq!(names[2], (&json!("principal"), &json!("p:x")));
    let page = world.get(&format!("{QUOTAS}?limit=2")).await.body;
    let next = format!("{QUOTAS}?cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(world.get(&next).await.body["items"], json!([items[2]]));
    let catalogue = world.plane.authority().catalogue();
    let holds = catalogue.effective("acme", Some("ns"), Some("p:x"));
    assert_eq!((holds.connections, holds.subscriptions), (Some(5), Some(3)));
    assert_eq!(holds.publish_bytes_per_second, Some(10));
    let one = world.get(&scopes[2].0).await.body;
    assert_eq!(one["limits"]["subscriptions"], 3);
    for (path, _) in &scopes[1..] {
        assert_eq!(world.delete(path).await.status, 204);
        assert_eq!(world.delete(path).await.status, 404);
        assert_eq!(world.get(path).await.status, 404);
    }
}

#[tokio::test]
async fn a_tenant_may_tighten_its_own_quota_and_only_the_installation_loosens_it() {
    let world = World::new().await;
    let operator = quota_operator(&world).await;
    let limits = |connections: u64| json!({"connections": connections});
    let by_operator = async |method: &str, body: Option<serde_json::Value>| {
        let answer = world.call(method, QUOTAS, &operator, body.as_ref()).await;
        answer.status
    };
    assert_eq!(by_operator("PUT", Some(limits(10))).await, 200);
    assert_eq!(put(&world, QUOTAS, &limits(11)).await, 403);
    assert_eq!(put(&world, QUOTAS, &json!({"subscriptions": 5})).await, 403);
    assert_eq!(put(&world, QUOTAS, &limits(9)).await, 200);
    assert_eq!(world.delete(QUOTAS).await.status, 403);
    assert_eq!(by_operator("PUT", Some(limits(20))).await, 200);
    assert_eq!(by_operator("DELETE", None).await, 204);
}

#[tokio::test]
async fn quotas_need_their_right_and_tell_strangers_nothing() {
    let world = World::new().await;
    let viewer = world
        .token_with("p:v", &[("rbac.view", "tenant:acme")])
        .await;
    let manager = world
        .token_with("p:q", &[("quota.manage", "tenant:acme")])
        .await;
    let limits = json!({"subscriptions": 3});
    let path = format!("{QUOTAS}/principals/p:x");
    let refused = world.call("PUT", &path, &viewer, Some(&limits)).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    assert_eq!(
        world
            .call("PUT", &path, &manager, Some(&limits))
            .await
            .status,
        200
    );
    let said = async |path: &str| {
        let answer = world.call("GET", path, &world.operator, None).await;
        (answer.status, answer.body["message"].clone())
    };
    let unknown = said("/v1/tenants/nobody/quotas").await;
    assert_eq!(said(QUOTAS).await, unknown);
    assert_eq!(unknown.0, 401);
    for (path, body) in [
        (QUOTAS.to_owned(), json!({"connections": 0})),
        (QUOTAS.to_owned(), json!({"connection": 1})),
        (format!("{QUOTAS}/namespaces/ns"), json!({"connections": 1})),
        (
            format!("{QUOTAS}/principals/p:x"),
            json!({"cache_bytes": 1}),
        ),
    ] {
        assert_eq!(put(&world, &path, &body).await, 400, "{path} {body}");
    }
    let missing = put(&world, &format!("{QUOTAS}/namespaces/none"), &limits).await;
    assert_eq!(missing, 404);
}

async fn put(world: &World, path: &str, body: &serde_json::Value) -> u16 {
    world
        .call("PUT", path, &world.admin, Some(body))
        .await
        .status
}

async fn quota_operator(world: &World) -> String {
    let rules = json!({
        "policies": [{"subject": "role:q", "object": "cluster:*", "action": "quota.manage"}],
        "groupings": [{"user": "p:q", "role": "role:q"}],
    });
    let made = world
        .bootstrap("quotas/initialize", BOOTSTRAP, &rules)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    token(&world.plane, "quotas", "p:q")
}
