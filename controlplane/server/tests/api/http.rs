//! The API as an HTTP client sees it: statuses, codes and bodies.

use crate::common::{BOOTSTRAP, World, stream};
use felix_auth::{Audience, Claims, SigningKey, mint};
use felix_model::TimeMs;
use serde_json::{Value, json};

const STREAMS: &str = "/v1/tenants/acme/namespaces/ns/streams";
const CACHES: &str = "/v1/tenants/acme/namespaces/ns/caches";

#[tokio::test]
async fn a_stranger_is_told_401_whatever_exists() {
    let world = World::new().await;
    for path in [
        "/v1/tenants/acme/namespaces",
        "/v1/tenants/nobody/namespaces",
        "/v1/tenants/not%20a%20name/namespaces",
        "/v1/tenants/acme/namespaces/ns/streams/unknown",
        "/v1/tenants/acme/signing-keys",
        "/v1/tenants/acme/rbac/policies",
        "/v1/tenants",
        "/v1/catalogue/snapshot",
        "/v1/streams/changes?since=0",
    ] {
        let none = world.call("GET", path, "", None).await;
        assert_eq!((none.status, none.code()), (401, "unauthorized"), "{path}");
        let junk = world.call("GET", path, "junk", None).await;
        assert_eq!((junk.status, junk.code()), (401, "unauthorized"), "{path}");
    }
    let stranger = world
        .call("POST", STREAMS, "", Some(&json!("nonsense")))
        .await;
    assert_eq!(
        stranger.status, 401,
        "a body is read only for those who are known"
    );
}

#[tokio::test]
async fn the_newest_state_is_sought_only_for_who_has_a_token_whatever_the_path() {
    let world = World::new().await;
    let forged = world.admin.replace('.', "x.");
    let paths = [
        "/v1/tenants/acme/namespaces",
        "/v1/tenants/acme/.well-known/jwks.json",
        "/v1/system/info",
        "/v1/no/such/path",
    ];
    for path in paths {
        let path = format!("{path}?consistency=linearizable");
        for bearer in ["", "junk", forged.as_str()] {
            let refused = world.call("GET", &path, bearer, None).await;
            assert_eq!(
                (refused.status, refused.code()),
                (401, "unauthorized"),
                "{path}"
            );
        }
        let known = world.get(&path).await;
        assert!(matches!(known.status, 200 | 404), "{path} {known:?}");
        // A key that is not known here may be known elsewhere: it is looked for, and then refused alike.
        let stranger = SigningKey::generate().unwrap();
        let claims = Claims::new(
            "acme".parse().unwrap(),
            "p:admin".to_owned(),
            Audience::ControlPlane,
            (TimeMs(crate::login::now() * 1000), 600),
            Vec::new(),
        );
        let stranger = mint(&stranger, &claims).unwrap();
        let refused = world.call("GET", &path, &stranger, None).await;
        assert_eq!(
            (refused.status, refused.code()),
            (401, "unauthorized"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_token_of_one_tenant_is_worth_nothing_in_another_and_the_words_are_the_same() {
    let world = World::new().await;
    let existing = world
        .call("GET", "/v1/tenants/ops/namespaces", &world.admin, None)
        .await;
    let unknown = world
        .call("GET", "/v1/tenants/nobody/namespaces", &world.admin, None)
        .await;
    assert_eq!(existing.status, 401);
    let said = |answer: &Value| (answer["code"].clone(), answer["message"].clone());
    assert_eq!(said(&existing.body), said(&unknown.body));
}

#[tokio::test]
async fn a_broker_token_is_not_accepted_by_the_api() {
    let world = World::new().await;
    let body = json!({"principal": "p:admin", "audience": "felix-broker"});
    let minted = world.bootstrap("acme/dev-token", BOOTSTRAP, &body).await;
    let token = minted.body["felix_token"].as_str().unwrap().to_owned();
    assert_eq!(world.call("GET", STREAMS, &token, None).await.status, 401);
}

#[tokio::test]
async fn errors_have_the_one_body() {
    let world = World::new().await;
    let answer = world
        .get("/v1/tenants/acme/namespaces/ns/streams/nothing")
        .await;
    let mut body = answer.body.clone();
    let id = body["request_id"].take();
    assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{id}");
    assert_eq!(
        body,
        json!({"code": "not_found", "message": "no stream `nothing`", "request_id": null})
    );
    let nowhere = world.get("/v2/nothing").await;
    assert_eq!((nowhere.status, nowhere.code()), (404, "not_found"));
    let wrong = world.call("PUT", STREAMS, &world.admin, None).await;
    assert_eq!((wrong.status, wrong.code()), (405, "method_not_allowed"));
}

#[tokio::test]
async fn a_stream_is_created_once_found_again_and_conflicts_when_different() {
    let world = World::new().await;
    let created = world.post(STREAMS, &stream("orders")).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.body["stream"], "orders");
    assert_eq!(created.body["tenant_id"], "acme");
    assert_eq!(created.body["replication_factor"], 1);
    let again = world.post(STREAMS, &stream("orders")).await;
    assert_eq!((again.status, &again.body), (200, &created.body));
    let mut other = stream("orders");
    other["shards"] = json!(2);
    let conflict = world.post(STREAMS, &other).await;
    assert_eq!((conflict.status, conflict.code()), (409, "conflict"));
    assert_eq!(
        world.get(&format!("{STREAMS}/orders")).await.body,
        created.body
    );
}

#[tokio::test]
async fn bad_bodies_are_400_and_say_what_is_wrong() {
    let world = World::new().await;
    let with = |field: &str, value: Value| {
        let mut body = stream("s");
        body[field] = value;
        body
    };
    for (body, word) in [
        (json!("text"), "struct"),
        (json!({}), "missing field"),
        (with("stream", json!("-bad")), "begins with"),
        (with("stream", json!("a/b")), "not allowed"),
        (with("shards", json!(0)), "shards"),
        (with("shards", json!("two")), "u32"),
        (with("replication_factor", json!(3)), "replication_factor"),
        (
            with("retention", json!({"max_age_seconds": 0})),
            "max_age_seconds",
        ),
        (with("kind", json!("Topic")), "Topic"),
        (with("consistency", json!("leader")), "leader"),
        (with("region", json!("")), "region"),
        (with("routing", json!("random")), "random"),
        (with("sharding", json!(1)), "sharding"),
        (with("max_record_bytes", json!(1 << 30)), "max_record_bytes"),
    ] {
        let refused = world.post(STREAMS, &body).await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "validation_error"),
            "{body}"
        );
        let message = refused.body["message"].as_str().unwrap();
        assert!(message.contains(word), "{body}: {message}");
    }
    assert_eq!(
        world.get(STREAMS).await.body["items"],
        json!([]),
        "nothing was made"
    );
}

#[tokio::test]
async fn a_patch_replaces_retention_whole_and_refuses_what_is_fixed() {
    let world = World::new().await;
    let mut body = stream("s");
    body["retention"] = json!({"max_age_seconds": 60, "max_size_bytes": 1000});
    world.post(STREAMS, &body).await;
    let path = format!("{STREAMS}/s");
    let patched = world
        .patch(&path, &json!({"retention": {"max_age_seconds": 5}}))
        .await;
    assert_eq!(patched.status, 200);
    let retention = json!({"max_age_seconds": 5, "max_size_bytes": null});
    assert_eq!(patched.body["retention"], retention);
    let empty = world.patch(&path, &json!({})).await;
    assert_eq!((empty.status, empty.body), (200, patched.body));
    assert_eq!(world.patch(&path, &json!({"shards": 5})).await.status, 400);
    assert_eq!(
        world
            .patch(&format!("{STREAMS}/x"), &json!({}))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_misspelt_name_is_answered_with_what_it_may_have_meant() {
    let world = World::new().await;
    world.post(STREAMS, &stream("orders")).await;
    let refused = world.get(&format!("{STREAMS}/ordrs")).await;
    assert_eq!(
        refused.body["message"],
        "no stream `ordrs`; did you mean `orders`?"
    );
    let refused = world.get("/v1/tenants/acme/namespaces/nss/streams").await;
    assert_eq!(
        refused.body["message"],
        "no namespace `nss`; did you mean `ns`?"
    );
}

#[tokio::test]
async fn a_suggestion_never_names_what_its_reader_may_not_manage() {
    let world = World::new().await;
    world.post(STREAMS, &stream("orders")).await;
    let token = world
        .token_with("p:half", &[("stream.manage", "stream:acme/ns/ordrs")])
        .await;
    let refused = world
        .call("GET", &format!("{STREAMS}/ordrs"), &token, None)
        .await;
    assert_eq!(
        (refused.status, refused.body["message"].as_str()),
        (404, Some("no stream `ordrs`"))
    );
}

#[tokio::test]
async fn who_manages_nothing_in_a_namespace_is_not_told_whether_it_exists() {
    let world = World::new().await;
    let token = world
        .token_with("p:other", &[("stream.manage", "stream:acme/other/*")])
        .await;
    for space in ["ns", "nowhere"] {
        for kind in ["streams", "caches"] {
            let path = format!("/v1/tenants/acme/namespaces/{space}/{kind}");
            assert_eq!(
                world.call("GET", &path, &token, None).await.status,
                403,
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_deleted_stream_made_again_is_another_one() {
    let world = World::new().await;
    let path = format!("{STREAMS}/s");
    let first = world.post(STREAMS, &stream("s")).await.body["incarnation"].as_u64();
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(world.get(&path).await.status, 404);
    assert_eq!(world.delete(&path).await.status, 404);
    let second = world.post(STREAMS, &stream("s")).await.body["incarnation"].as_u64();
    assert!(second > first);
}

#[tokio::test]
async fn a_cache_and_a_stream_may_have_one_name() {
    let world = World::new().await;
    world.post(STREAMS, &stream("both")).await;
    let made = world
        .post(
            CACHES,
            &json!({"cache": "both", "display_name": "B", "shards": 0}),
        )
        .await;
    assert_eq!((made.status, &made.body["shards"]), (201, &json!(1)));
    let again = world
        .post(CACHES, &json!({"cache": "both", "display_name": "B"}))
        .await;
    assert_eq!(again.status, 200);
    let other = world
        .post(CACHES, &json!({"cache": "both", "display_name": "C"}))
        .await;
    assert_eq!(other.status, 409);
    let path = format!("{CACHES}/both");
    let patched = world.patch(&path, &json!({"display_name": "C"})).await;
    assert_eq!(
        (patched.status, &patched.body["display_name"]),
        (200, &json!("C"))
    );
    assert_eq!(world.patch(&path, &json!({"shards": 2})).await.status, 400);
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(world.get(&format!("{STREAMS}/both")).await.status, 200);
}

#[tokio::test]
async fn a_batch_answers_item_by_item_in_the_order_asked() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/namespaces/ns/resources";
    world.post(STREAMS, &stream("b")).await;
    let body = json!({"streams": [stream("a"), stream("b")], "caches": [{"cache": "c"}]});
    let made = world.post(path, &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["streams"][0]["status"], "created");
    assert_eq!(made.body["streams"][1]["status"], "unchanged");
    assert_eq!(made.body["caches"][0]["cache"]["cache"], "c");
    assert_eq!(world.post(path, &body).await.status, 200);
}

#[tokio::test]
async fn a_batch_is_checked_in_the_published_order_and_makes_all_or_nothing() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/namespaces/ns/resources";
    let many: Vec<Value> = (0..257).map(|n| stream(&format!("s{n}"))).collect();
    let weak = world
        .token_with("p:weak", &[("stream.manage", "stream:acme/ns/mine")])
        .await;
    let size = world
        .call("POST", path, &weak, Some(&json!({"streams": many})))
        .await;
    assert_eq!(size.status, 400, "size comes before permission");
    let mut bad = stream("theirs");
    bad["shards"] = json!(0);
    let forbidden = world
        .call("POST", path, &weak, Some(&json!({"streams": [bad]})))
        .await;
    assert_eq!(forbidden.status, 403, "permission comes before validity");
    let nowhere = "/v1/tenants/acme/namespaces/nowhere/resources";
    let invalid = world
        .post(nowhere, &json!({"streams": [stream("a"), stream("a")]}))
        .await;
    assert_eq!(invalid.status, 400, "validity comes before existence");
    let missing = world
        .post(nowhere, &json!({"streams": [stream("a")]}))
        .await;
    assert_eq!(missing.status, 404);
    world.post(STREAMS, &stream("taken")).await;
    let mut taken = stream("taken");
    taken["shards"] = json!(7);
    let conflict = world
        .post(path, &json!({"streams": [stream("new"), taken]}))
        .await;
    assert_eq!((conflict.status, conflict.code()), (409, "conflict"));
    assert!(conflict.body["message"].as_str().unwrap().contains("taken"));
    assert_eq!(world.get(&format!("{STREAMS}/new")).await.status, 404);
}

#[tokio::test]
async fn listings_come_in_pages_that_are_full_after_filtering() {
    let world = World::new().await;
    for n in 0..7 {
        world.post(STREAMS, &stream(&format!("s{n}"))).await;
    }
    let token = world
        .token_with(
            "p:some",
            &[
                ("stream.manage", "stream:acme/ns/s1"),
                ("stream.manage", "stream:acme/ns/s3"),
                ("stream.manage", "stream:acme/ns/s6"),
            ],
        )
        .await;
    let page = |path: String| {
        let (world, token) = (&world, &token);
        async move { world.call("GET", &path, token, None).await.body }
    };
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["stream"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = page(format!("{STREAMS}?limit=2")).await;
    assert_eq!(names(&first), ["s1", "s3"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = page(format!("{STREAMS}?limit=2&cursor={cursor}")).await;
    assert_eq!(names(&second), ["s6"]);
    assert_eq!(second["next_cursor"], Value::Null);
    for bad in ["limit=0", "limit=10001", "limit=x", "cursor=%21"] {
        assert_eq!(
            world.get(&format!("{STREAMS}?{bad}")).await.status,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn only_who_manages_the_installation_manages_tenants() {
    let world = World::new().await;
    let body = json!({"tenant_id": "new", "display_name": "New"});
    let forbidden = world.post("/v1/tenants", &body).await;
    assert_eq!((forbidden.status, forbidden.code()), (403, "forbidden"));
    let operator = &world.operator;
    let call = |method, path, body| world.call(method, path, operator, body);
    assert_eq!(call("POST", "/v1/tenants", Some(&body)).await.status, 201);
    assert_eq!(
        call("POST", "/v1/tenants", Some(&body)).await.status,
        409,
        "even an alike one"
    );
    let listed = call("GET", "/v1/tenants", None).await.body;
    assert_eq!(listed["items"][1], body);
    assert_eq!(world.delete("/v1/tenants/acme").await.status, 403);
    assert_eq!(call("DELETE", "/v1/tenants/acme", None).await.status, 204);
    assert_eq!(
        world.get(STREAMS).await.status,
        401,
        "its keys are gone with it"
    );
    assert_eq!(call("DELETE", "/v1/tenants/acme", None).await.status, 404);
}

#[tokio::test]
async fn the_operator_may_nothing_inside_a_tenant() {
    let world = World::new().await;
    assert_eq!(
        world
            .call("GET", STREAMS, &world.operator, None)
            .await
            .status,
        401
    );
    let own = "/v1/tenants/ops/signing-keys";
    assert_eq!(
        world.call("GET", own, &world.operator, None).await.status,
        403
    );
}

#[tokio::test]
async fn system_routes_need_no_token() {
    let world = World::new().await;
    let get = |path| world.call("GET", path, "", None);
    let info = get("/v1/system/info").await;
    assert_eq!(
        (info.status, &info.body["region_id"]),
        (200, &json!("local"))
    );
    for path in ["/v1/system/live", "/v1/system/ready", "/v1/system/health"] {
        assert_eq!(get(path).await.status, 200, "{path}");
    }
    assert_eq!(
        get("/v1/regions").await.body["items"][0]["region_id"],
        "local"
    );
    assert_eq!(get("/v1/regions/local").await.status, 200);
    assert_eq!(get("/v1/regions/mars").await.status, 404);
    let document = get("/v1/openapi.json").await.body;
    assert!(document["paths"]["/v1/tenants"]["post"].is_object());
    world.plane.drain();
    let draining = get("/v1/system/ready").await;
    assert_eq!((draining.status, draining.code()), (503, "not_ready"));
    assert_eq!(get("/v1/system/live").await.status, 200);
}

#[tokio::test]
async fn metrics_count_what_was_refused_and_never_name_a_tenant() {
    let world = World::new().await;
    world.call("GET", STREAMS, "junk", None).await;
    world
        .bootstrap("acme/initialize", "wrong", &json!({}))
        .await;
    let url = format!("http://{}/metrics", world.plane.addresses().metrics);
    let text = world
        .http
        .get(&url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for line in [
        "felix_controlplane_auth_rejected_total{reason=\"token_malformed\"} 1",
        "felix_bootstrap_attempts_total{outcome=\"refused\",reason=\"unauthorized\"} 1",
        "felix_ready_state 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("acme"));
    let ready = url.replace("/metrics", "/ready");
    assert_eq!(world.http.get(ready).send().await.unwrap().status(), 200);
}
