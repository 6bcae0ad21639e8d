//! Who did what: the audit, and the ids of requests.

use felix_meta::audit::{AuditItem, ChainHead, verify};
use felix_meta::http::AuditPage;
use serde_json::json;

use crate::common::{BOOTSTRAP, World, answer, stream};

const AUDIT: &str = "/v1/tenants/acme/audit";

#[tokio::test]
async fn an_admin_change_says_who_what_before_after_and_from_where() {
    let world = World::new().await;
    let streams = "/v1/tenants/acme/namespaces/ns/streams";
    world.post(streams, &stream("s")).await;
    let patch = json!({"retention": {"max_age_seconds": 60, "max_size_bytes": null}});
    world.patch(&format!("{streams}/s"), &patch).await;
    let page = read(&world, AUDIT).await;
    let last = page.items.last().unwrap();
    let by = last.by.as_ref().unwrap();
    assert_eq!(
        (by.principal.as_str(), by.tenant.as_str()),
        ("p:admin", "acme")
    );
    assert_eq!(by.from, "127.0.0.1");
    assert!(!by.request.is_empty());
    assert_eq!(
        (last.what.as_str(), last.target.as_str()),
        ("stream_updated", "ns/s")
    );
    assert_eq!(last.before["retention"]["max_age_seconds"], json!(null));
    assert_eq!(last.after["stream"]["retention"]["max_age_seconds"], 60);
}

#[tokio::test]
async fn every_route_that_changes_something_says_who_did_it() {
    let world = World::new().await;
    let space = "/v1/tenants/acme/namespaces/ns";
    let rule = json!({"subject": "role:r", "object": "tenant:acme", "action": "rbac.view"});
    let gift = json!({"user": "p:x", "role": "role:r"});
    let calls = [
        ("POST", format!("{space}/streams"), Some(stream("s"))),
        (
            "POST",
            format!("{space}/caches"),
            Some(json!({"cache": "c"})),
        ),
        (
            "POST",
            format!("{space}/resources"),
            Some(json!({"streams": [stream("s2")]})),
        ),
        (
            "PATCH",
            format!("{space}/streams/s"),
            Some(json!({"durable": false})),
        ),
        (
            "PATCH",
            format!("{space}/caches/c"),
            Some(json!({"display_name": "C"})),
        ),
        ("DELETE", format!("{space}/streams/s"), None),
        ("DELETE", format!("{space}/caches/c"), None),
        ("DELETE", space.into(), None),
        (
            "POST",
            "/v1/tenants/acme/rbac/policies".into(),
            Some(rule.clone()),
        ),
        (
            "POST",
            "/v1/tenants/acme/rbac/groupings".into(),
            Some(gift.clone()),
        ),
        (
            "DELETE",
            "/v1/tenants/acme/rbac/groupings".into(),
            Some(gift),
        ),
        (
            "DELETE",
            "/v1/tenants/acme/rbac/policies".into(),
            Some(rule),
        ),
        ("POST", "/v1/tenants/acme/signing-keys".into(), None),
    ];
    let before = read(&world, AUDIT).await.head.seq;
    for (method, path, body) in &calls {
        let answer = world.call(method, path, &world.admin, body.as_ref()).await;
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
    }
    let page = read(&world, &format!("{AUDIT}?after={before}")).await;
    // That somebody logged in before is written when it suits.
    let changes = page.items.iter().filter(|item| item.what != "login");
    assert_eq!(changes.clone().count(), calls.len());
    for item in changes {
        assert_eq!(item.by.as_ref().unwrap().principal, "p:admin", "{item:?}");
    }
}

#[tokio::test]
async fn the_chain_of_a_tenant_and_of_the_cluster_hold_page_by_page() {
    let world = World::new().await;
    for n in 0..7 {
        let body = stream(&format!("s{n}"));
        world
            .post("/v1/tenants/acme/namespaces/ns/streams", &body)
            .await;
    }
    let operator = auditor(&world).await;
    for (path, token) in [
        (AUDIT, world.admin.as_str()),
        ("/v1/audit", operator.as_str()),
    ] {
        let (mut end, mut after, mut lines) = (ChainHead::default(), 0, 0);
        loop {
            let url = format!("{path}?after={after}&limit=3");
            let page = read_as(&world, &url, token).await;
            end = verify(&end, &page.items).unwrap();
            lines += page.items.len();
            match page.next_after {
                Some(next) => after = next,
                None => {
                    assert_eq!(end, page.head);
                    break;
                }
            }
        }
        assert!(lines >= 9, "{path}: {lines}");
    }
}

#[tokio::test]
async fn a_refusal_is_noted_once_with_its_count_and_the_first_request() {
    let world = World::new().await;
    for _ in 0..5 {
        let url = url(&world, "/v1/tenants/acme/namespaces");
        let request = world.http.get(url).bearer_auth("nonsense");
        let refused = answer(
            request
                .header("x-request-id", "first")
                .send()
                .await
                .unwrap(),
        )
        .await;
        assert_eq!(
            (refused.status, refused.body["request_id"].as_str()),
            (401, Some("first"))
        );
    }
    let nobody = world
        .token_with("p:nobody", &[("rbac.view", "tenant:acme")])
        .await;
    let keys = "/v1/tenants/acme/signing-keys";
    let refused = world.call("GET", keys, &nobody, None).await;
    assert_eq!(refused.status, 403);
    world.plane.write_audit().await;
    let page = read(&world, &format!("{AUDIT}?what=refused")).await;
    let records = page.items.iter();
    let records = records.flat_map(|item| item.after["records"].as_array().unwrap());
    let of = |reason: &'static str| records.clone().filter(move |one| one["reason"] == reason);
    // The first is written at once, and how often it came again when the round is over.
    let strangers: Vec<_> = of("unauthorized").collect();
    let count = strangers.iter().map(|one| one["count"].as_u64().unwrap());
    assert_eq!(count.sum::<u64>(), 5);
    assert!(strangers.len() <= 2, "{strangers:?}");
    for stranger in strangers {
        assert_eq!(stranger["request"], "first");
        assert_eq!(stranger["from"], "127.0.0.1");
        let nobody = stranger.get("principal").is_none();
        assert!(nobody, "who proves nothing is nobody");
    }
    let known = of("forbidden").next().unwrap();
    assert_eq!(known["principal"], "p:nobody");
    let of_him = read(&world, &format!("{AUDIT}?what=refused&principal=p:nobody")).await;
    assert_eq!(of_him.items.len(), 1);
}

#[tokio::test]
async fn a_login_is_noted_and_a_wrong_bootstrap_token_refused() {
    let world = World::new().await;
    let spec = json!({"principal": "p:admin"});
    let minted = world.bootstrap("acme/dev-token", BOOTSTRAP, &spec).await;
    assert_eq!(minted.status, 200);
    world.bootstrap("acme/dev-token", "wrong", &spec).await;
    world.plane.write_audit().await;
    let logins = read(&world, &format!("{AUDIT}?what=login&principal=p:admin")).await;
    assert_eq!(logins.items[0].after["records"][0]["reason"], "dev_token");
    let refused = read(&world, &format!("{AUDIT}?what=refused")).await;
    assert_eq!(refused.items.len(), 1);
    let all = serde_json::to_string(&read(&world, AUDIT).await).unwrap();
    let token = minted.body["felix_token"].as_str().unwrap();
    assert!(!all.contains(token) && !all.contains(BOOTSTRAP));
}

#[tokio::test]
async fn the_audit_needs_its_own_right_and_shows_a_tenant_only_its_own() {
    let world = World::new().await;
    let manager = world
        .token_with("p:m", &[("tenant.manage", "tenant:acme")])
        .await;
    let refused = world.call("GET", AUDIT, &manager, None).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    let refused = world.call("GET", "/v1/audit", &world.admin, None).await;
    assert_eq!(refused.status, 403);
    let unknown = world
        .call("GET", "/v1/tenants/nobody/audit", &world.admin, None)
        .await;
    assert_eq!(unknown.status, 401);
    let page = read(&world, AUDIT).await;
    let other = |item: &AuditItem| item.tenant_id.as_ref().is_none_or(|t| t.as_ref() != "acme");
    assert!(!page.items.iter().any(other));
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "after=-1",
        "after=1&after=2",
    ] {
        let refused = world.get(&format!("{AUDIT}?{query}")).await;
        assert_eq!(refused.status, 400, "{query}");
    }
}

#[tokio::test]
async fn every_answer_names_its_request_and_every_refusal_has_the_one_body() {
    let world = World::new().await;
    for path in ["/v1/nowhere", "/v1/tenants/%ff/namespaces", "/v1/tenants"] {
        let sent = world.http.get(url(&world, path)).send().await.unwrap();
        let id = sent.headers()["x-request-id"].to_str().unwrap().to_owned();
        let body = answer(sent).await.body;
        assert_eq!(body["request_id"], json!(id), "{path}: {body}");
        assert!(body["code"].is_string() && body["message"].is_string());
    }
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = world.http.get(url(&world, "/v1/system/info"));
    let sent = request.header("traceparent", trace).send().await.unwrap();
    assert_eq!(
        sent.headers()["x-request-id"],
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
}

async fn auditor(world: &World) -> String {
    let rules = json!({
        "policies": [{"subject": "role:a", "object": "cluster:*", "action": "audit.view"}],
        "groupings": [{"user": "p:auditor", "role": "role:a"}],
    });
    let made = world
        .bootstrap("auditors/initialize", BOOTSTRAP, &rules)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    crate::common::token(&world.plane, "auditors", "p:auditor")
}

async fn read(world: &World, path: &str) -> AuditPage {
    read_as(world, path, &world.admin).await
}

async fn read_as(world: &World, path: &str, token: &str) -> AuditPage {
    let answer = world.call("GET", path, token, None).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_value(answer.body).unwrap()
}

fn url(world: &World, path: &str) -> String {
    format!("http://{}{path}", world.plane.addresses().api)
}
