//! Keys that change, and tokens that are taken back.

use felix_meta::{Command, SessionAsk, SessionRecord};
use felix_model::TimeMs;
use serde_json::json;

use crate::common::{Answer, World, tenant, token};

const KEYS: &str = "/v1/tenants/acme/signing-keys";
const REVOCATIONS: &str = "/v1/tenants/acme/revocations";
const NAMESPACES: &str = "/v1/tenants/acme/namespaces";

#[tokio::test]
async fn a_rotation_has_no_moment_in_which_a_good_token_is_refused() {
    let world = World::new().await;
    let old = world.admin.clone();
    let staged = world.post(KEYS, &json!({})).await;
    assert_eq!(staged.status, 201);
    let first = staged.body["current"].as_str().unwrap().to_owned();
    let second = kids(&staged).into_iter().find(|kid| *kid != first).unwrap();
    assert!(
        published(&world).await.contains(&second),
        "before it signs, it is known"
    );
    assert!(
        works(&world, &old).await && works(&world, &token(&world.plane, "acme", "p:admin")).await
    );
    let activated = world
        .post(&format!("{KEYS}/{second}/activate"), &json!({}))
        .await;
    assert_eq!(
        (activated.status, activated.body["current"].as_str()),
        (200, Some(&*second))
    );
    let new = token(&world.plane, "acme", "p:admin");
    assert!(
        works(&world, &old).await && works(&world, &new).await,
        "both sides of it"
    );
    let refused = world.delete(&format!("{KEYS}/{second}")).await;
    assert_eq!((refused.status, refused.code()), (409, "conflict"));
    let retired = world
        .call("DELETE", &format!("{KEYS}/{first}"), &new, None)
        .await;
    assert_eq!(retired.status, 200);
    assert!(
        !works(&world, &old).await,
        "what the retired key signed is worth nothing"
    );
    assert!(works(&world, &new).await);
    assert_eq!(published(&world).await, [second]);
    let unknown = world
        .call("DELETE", &format!("{KEYS}/{first}"), &new, None)
        .await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn an_emergency_rotation_is_one_call_and_leaves_only_the_new_key() {
    let world = World::new().await;
    world.post(KEYS, &json!({})).await;
    let rotated = world.post(&format!("{KEYS}/emergency"), &json!({})).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    assert_eq!(kids(&rotated), [rotated.body["current"].as_str().unwrap()]);
    assert!(!works(&world, &world.admin).await);
    assert!(works(&world, &token(&world.plane, "acme", "p:admin")).await);
    assert_eq!(published(&world).await, kids(&rotated));
}

#[tokio::test]
async fn a_token_minted_before_its_principal_was_revoked_is_refused_here_too() {
    let world = World::new().await;
    let victim = world
        .token_with("p:v", &[("ns.manage", "namespace:acme/*")])
        .await;
    let other = world
        .token_with("p:o", &[("ns.manage", "namespace:acme/*")])
        .await;
    assert!(works(&world, &victim).await);
    let spec = json!({"kind": "principal", "id": "p:v", "reason": "lost laptop"});
    let made = world.post(REVOCATIONS, &spec).await;
    assert_eq!(
        (made.status, &made.body["reason"]),
        (201, &json!("lost laptop"))
    );
    let refused = world.call("GET", NAMESPACES, &victim, None).await;
    assert_eq!((refused.status, refused.code()), (401, "revoked"));
    assert!(works(&world, &other).await);
    let listed = world.get(REVOCATIONS).await.body;
    let ours = |one: &&serde_json::Value| one["id"] == "p:v" && one["kind"] == "principal";
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.iter().filter(ours).count(), 1, "{items:?}");
}

#[tokio::test]
async fn removing_a_rule_takes_back_what_was_minted_with_it() {
    let world = World::new().await;
    let held = world
        .token_with("p:v", &[("ns.manage", "namespace:acme/*")])
        .await;
    assert!(works(&world, &held).await);
    let rule = json!({"subject": "p:v", "object": "namespace:acme/*", "action": "ns.manage"});
    let path = "/v1/tenants/acme/rbac/policies";
    let removed = world.call("DELETE", path, &world.admin, Some(&rule)).await;
    assert_eq!(removed.status, 204);
    assert!(!works(&world, &held).await);
}

#[tokio::test]
async fn revoking_refresh_tokens_says_how_many_there_were() {
    let world = World::new().await;
    for id in ["a", "b"] {
        let opened = world.plane.authority().submit(open(id, "p:v")).await;
        assert!(opened.unwrap().is_some());
    }
    let path = "/v1/tenants/acme/refresh-tokens/revoke";
    let body = json!({"principal_id": "p:v"});
    let revoked = world.post(path, &body).await;
    assert_eq!((revoked.status, revoked.body), (200, json!({"revoked": 2})));
    assert_eq!(world.post(path, &body).await.body, json!({"revoked": 0}));
}

#[tokio::test]
async fn revocations_need_their_right_and_a_body_that_can_be_meant() {
    let world = World::new().await;
    let viewer = world
        .token_with("p:r", &[("rbac.view", "tenant:acme")])
        .await;
    let spec = json!({"kind": "token", "id": "j"});
    for (method, body) in [("GET", None), ("POST", Some(&spec))] {
        let refused = world.call(method, REVOCATIONS, &viewer, body).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    }
    for body in [
        json!({"kind": "everything", "id": "j"}),
        json!({"kind": "token"}),
        json!({"kind": "token", "id": ""}),
        json!({"kind": "token", "id": "j", "reason": "x".repeat(257)}),
        json!({"kind": "tenant", "id": "ops"}),
        json!({"kind": "token", "id": "j", "until": 3}),
    ] {
        assert_eq!(world.post(REVOCATIONS, &body).await.status, 400, "{body}");
    }
}

async fn works(world: &World, token: &str) -> bool {
    world.call("GET", NAMESPACES, token, None).await.status == 200
}

fn kids(answer: &Answer) -> Vec<String> {
    let all = answer.body["verifying"].as_array().unwrap();
    all.iter()
        .map(|kid| kid.as_str().unwrap().to_owned())
        .collect()
}

async fn published(world: &World) -> Vec<String> {
    let path = "/v1/tenants/acme/.well-known/jwks.json";
    let body = world.call("GET", path, "", None).await.body;
    let keys = body["keys"].as_array().unwrap().clone();
    keys.iter()
        .map(|key| key["kid"].as_str().unwrap().to_owned())
        .collect()
}

fn open(id: &str, principal: &str) -> Command {
    Command::OpenSession {
        tenant_id: tenant("acme"),
        session: SessionRecord {
            session_id: id.into(),
            principal_id: principal.into(),
            issuer: None,
            service_account: None,
            groups: vec![],
            audience: "felix-broker".into(),
            ask: SessionAsk::default(),
            may_act: None,
            created_at_ms: TimeMs(1),
            refreshed_at_ms: TimeMs(1),
            expires_at_ms: TimeMs(u64::MAX),
            generation: 0,
            secret_sha256: "ab".repeat(32),
            from: String::new(),
        },
        principal: None,
    }
}

#[tokio::test]
async fn a_node_gets_a_credential_that_says_who_it_is_and_nothing_more() {
    let world = World::new().await;
    let path = "/v1/nodes/broker-1/credential";
    let refused = world.call("POST", path, &world.admin, None).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    let made = world.call("POST", path, &world.operator, None).await;
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.body["felix_token"].as_str().unwrap();
    let feed = world
        .call("GET", "/v1/catalogue/snapshot", token, None)
        .await;
    assert_eq!(feed.status, 200);
    let text = feed.body.to_string();
    assert!(
        !text.contains("secret_sha256") && !text.contains("\"sessions\""),
        "{text}"
    );
    let own = world.call("POST", path, token, None).await;
    assert_eq!(own.status, 201, "it may ask for its own again");
    let other = "/v1/nodes/broker-2/credential";
    assert_eq!(world.call("POST", other, token, None).await.status, 403);
    assert_eq!(
        world.call("GET", "/v1/tenants", token, None).await.status,
        403
    );
    let bad = world
        .call("POST", "/v1/nodes/UPPER/credential", &world.operator, None)
        .await;
    assert_eq!(bad.status, 400);
    let catalogue = world.plane.authority().catalogue();
    let sessions = &catalogue.tenant("ops").unwrap().sessions;
    let of_node: Vec<_> = sessions.of("node:broker-1").collect();
    assert_eq!(of_node.len(), 2);
    let refresh = made.body["refresh_token"].as_str().unwrap();
    assert!(
        of_node
            .iter()
            .any(|one| refresh.starts_with(&one.session_id))
    );
}
