//! The catalogue as a broker follows it.

use crate::common::{self, World, stream};
use felix_controlplane_client::{Api, Follower, FollowerState, TokenSource};
use felix_meta::{NamespaceSpec, Revision, StreamSpec, TenantRecord};
use serde_json::{Value, json};

const STREAMS: &str = "/v1/tenants/acme/namespaces/ns/streams";

#[tokio::test]
async fn a_follower_learns_of_a_change_without_asking() {
    let world = World::new().await;
    let follower = Follower::start(world.api()).await.unwrap();
    assert_eq!(
        follower.current().revision(),
        world.plane.authority().catalogue().revision()
    );
    world.post(STREAMS, &stream("orders")).await;
    let newest = world.plane.authority().catalogue();
    let seen = follower.wait_for(newest.revision()).await;
    assert_eq!(*seen, newest.for_nodes());
}

#[tokio::test]
async fn a_refresh_after_a_create_was_answered_always_shows_it() {
    let world = World::new().await;
    let follower = Follower::start(world.api()).await.unwrap();
    for n in 0..20 {
        let name = format!("s{n}");
        assert_eq!(world.post(STREAMS, &stream(&name)).await.status, 201);
        let seen = follower.refresh().await.unwrap();
        assert!(seen.stream("acme", "ns", &name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn many_who_refresh_at_once_all_see_what_was_there_before() {
    let world = World::new().await;
    let follower = Follower::start(world.api()).await.unwrap();
    world.post(STREAMS, &stream("orders")).await;
    let all: Vec<_> = (0..100)
        .map(|_| {
            let follower = follower.clone();
            tokio::spawn(async move { follower.refresh().await })
        })
        .collect();
    for one in all {
        assert!(
            one.await
                .unwrap()
                .unwrap()
                .stream("acme", "ns", "orders")
                .is_some()
        );
    }
}

#[tokio::test]
async fn public_keys_travel_with_the_catalogue_and_private_ones_do_not() {
    let world = World::new().await;
    let follower = Follower::start(world.api()).await.unwrap();
    let staged = world
        .call("POST", "/v1/tenants/acme/signing-keys", &world.admin, None)
        .await;
    let kid = staged.body["verifying"][1].as_str().unwrap();
    let seen = follower.refresh().await.unwrap();
    assert!(
        seen.tenant("acme")
            .unwrap()
            .keys
            .iter()
            .any(|key| key.kid == kid)
    );
    for path in ["/v1/catalogue/snapshot", "/v1/catalogue/changes?since=0"] {
        let shown = world
            .call("GET", path, &world.operator, None)
            .await
            .body
            .to_string();
        assert!(shown.contains(kid) && !shown.contains("secret"), "{path}");
    }
}

#[tokio::test]
async fn a_follower_keeps_its_copy_while_the_control_plane_is_away_and_catches_up_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = common::config();
    config.data_dir = dir.path().to_path_buf();
    // An address of its own: while it is away, no other test can be given its port.
    config.bind = "127.83.17.5:0".parse().unwrap();
    let plane = felix_controlplane::ControlPlane::start(config.clone())
        .await
        .unwrap();
    plane
        .initialize(&common::tenant("ops"), common::operators())
        .await
        .unwrap();
    config.bind = plane.addresses().api;
    let url = format!("http://{}", config.bind);
    let token = TokenSource::fixed(&common::token(&plane, "ops", "p:operator"));
    let api = Api::new(&url, token).unwrap();
    let follower = Follower::start(api.clone()).await.unwrap();
    let before = follower.current();
    plane.shutdown().await;
    let mut state = follower.state();
    state
        .wait_for(|state| matches!(state, FollowerState::Retrying { .. }))
        .await
        .unwrap();
    assert_eq!(follower.current(), before);
    assert!(follower.refresh().await.is_err());
    let plane = felix_controlplane::ControlPlane::start(config)
        .await
        .unwrap();
    let tenant = TenantRecord {
        tenant_id: common::tenant("new"),
        display_name: "N".into(),
    };
    api.create_tenant(&tenant).await.unwrap();
    let revision = plane.authority().catalogue().revision();
    assert!(follower.wait_for(revision).await.tenant("new").is_some());
}

#[tokio::test]
async fn a_held_request_is_answered_when_the_control_plane_drains() {
    let world = World::new().await;
    let url = format!("http://{}", world.plane.addresses().api);
    let since = world.plane.authority().catalogue().revision();
    let held = tokio::spawn(
        world
            .http
            .get(format!(
                "{url}/v1/catalogue/changes?since={since}&wait_ms=25000"
            ))
            .bearer_auth(&world.operator)
            .send(),
    );
    // The request is under way once it is counted.
    let metrics = format!("http://{}/metrics", world.plane.addresses().metrics);
    loop {
        let text = world
            .http
            .get(&metrics)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        if text.contains("felix_inflight_requests 1") {
            break;
        }
        tokio::task::yield_now().await;
    }
    world.plane.shutdown().await;
    let answer = common::answer(held.await.unwrap().unwrap()).await;
    assert_eq!((answer.status, &answer.body["entries"]), (200, &json!([])));
}

#[tokio::test]
async fn a_reader_from_the_future_is_told_to_take_a_snapshot() {
    let world = World::new().await;
    let far = world
        .call(
            "GET",
            "/v1/catalogue/changes?since=999999",
            &world.operator,
            None,
        )
        .await;
    assert_eq!(far.body["resync"], true);
    let nonsense = world
        .call(
            "GET",
            "/v1/catalogue/changes?since=x",
            &world.operator,
            None,
        )
        .await;
    assert_eq!(
        nonsense.body["entries"][0]["revision"], 1,
        "what is no number is 0"
    );
}

#[tokio::test]
async fn the_published_feeds_start_from_a_snapshot_and_go_on_without_gaps() {
    let world = World::new().await;
    let get = |path: String| {
        let world = &world;
        async move { world.call("GET", &path, &world.operator, None).await.body }
    };
    world.post(STREAMS, &stream("a")).await;
    let snapshot = get("/v1/streams/snapshot".into()).await;
    assert_eq!(snapshot["items"][0]["stream"], "a");
    let next = snapshot["next_seq"].as_u64().unwrap();
    world.post(STREAMS, &stream("b")).await;
    world
        .patch(&format!("{STREAMS}/b"), &json!({"durable": false}))
        .await;
    world.delete(&format!("{STREAMS}/a")).await;
    let changes = get(format!("/v1/streams/changes?since={next}")).await;
    let ops: Vec<&Value> = changes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["op"])
        .collect();
    assert_eq!(ops, ["created", "updated", "deleted"]);
    assert_eq!(changes["items"][0]["seq"], json!(next));
    assert_eq!(changes["items"][2]["stream"], Value::Null);
    assert_eq!(changes["next_seq"], json!(next + 3));
    world.delete("/v1/tenants/acme/namespaces/ns").await;
    let changes = get(format!("/v1/streams/changes?since={}", next + 3)).await;
    assert_eq!(
        changes["items"][0]["key"]["stream"], "b",
        "a namespace takes its streams along"
    );
    let spaces = get("/v1/namespaces/changes?since=0".into()).await;
    assert_eq!(spaces["items"][1]["op"], "deleted");
    for feed in ["tenants", "caches"] {
        let snapshot = get(format!("/v1/{feed}/snapshot")).await;
        assert!(snapshot["next_seq"].is_u64(), "{feed}");
    }
}

#[tokio::test]
async fn the_typed_calls_speak_the_same_api() {
    let world = World::new().await;
    let url = format!("http://{}", world.plane.addresses().api);
    let api = Api::new(&url, TokenSource::fixed(&world.admin)).unwrap();
    let acme = common::tenant("acme");
    let spec = NamespaceSpec {
        namespace: "more".parse().unwrap(),
        display_name: None,
    };
    assert!(api.create_namespace(&acme, &spec).await.unwrap().created);
    assert!(!api.create_namespace(&acme, &spec).await.unwrap().created);
    let more = spec.namespace;
    for n in 0..5 {
        let spec = StreamSpec::new(format!("s{n}").parse().unwrap());
        api.create_stream(&acme, &more, &spec).await.unwrap();
    }
    assert_eq!(api.streams(&acme, &more).await.unwrap().len(), 5);
    let missing = api
        .stream(&acme, &more, &"s9".parse().unwrap())
        .await
        .unwrap_err();
    assert!(missing.is_not_found());
    assert!(missing.to_string().contains("did you mean"), "{missing}");
    api.delete_namespace(&acme, &more).await.unwrap();
    assert_eq!(api.policies(&acme).await.unwrap().len(), 6);
    assert_eq!(api.signing_keys(&acme).await.unwrap().verifying.len(), 1);
    assert!(world.plane.authority().catalogue().revision() > Revision(8));
    api.ready().await.unwrap();
}
