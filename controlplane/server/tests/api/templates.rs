//! Templates over HTTP: who sets them, who opens rooms by them.

use serde_json::{Value, json};

use crate::common::World;

const SPACE: &str = "/v1/tenants/acme/namespaces/ns";

#[tokio::test]
async fn a_person_opens_a_room_that_he_may_use_and_opening_it_again_changes_nothing() {
    let world = with_template().await;
    let grants = [
        ("template.use", "namespace:acme/ns"),
        ("stream.subscribe", "stream:acme/ns/board-*"),
        ("cache.read", "cache:acme/ns/*"),
    ];
    let ada = world.token_with("p:ada", &grants).await;
    let room = format!("{SPACE}/templates/board/rooms/plans");
    let made = world.call("POST", &room, &ada, None).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["streams"][0]["status"], "created");
    assert_eq!(
        made.body["streams"][0]["stream"]["stream"],
        "board-plans-edits"
    );
    assert_eq!(
        made.body["caches"][0]["cache"]["cache"],
        "board-plans-presence"
    );
    let again = world.call("POST", &room, &ada, None).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.body["streams"][0]["status"], "unchanged");
    let there = world
        .get(&format!("{SPACE}/streams/board-plans-edits"))
        .await;
    assert_eq!(there.status, 200);
}

#[tokio::test]
async fn rooms_need_the_right_to_templates_and_a_use_of_every_part() {
    let world = with_template().await;
    let of_one = [
        ("template.use", "namespace:acme/ns"),
        ("stream.subscribe", "stream:acme/ns/board-mine-*"),
        ("cache.read", "cache:acme/ns/board-mine-presence"),
    ];
    let one = world.token_with("p:one", &of_one).await;
    let user = world.token_with("p:user", &of_one[1..]).await;
    let mut without_cache = of_one;
    without_cache[2] = ("cache.read", "cache:acme/ns/other");
    let half = world.token_with("p:half", &without_cache).await;
    let open = async |scope: &str, token: &str| {
        let path = format!("{SPACE}/templates/board/rooms/{scope}");
        world.call("POST", &path, token, None).await.status
    };
    assert_eq!(open("mine", &user).await, 403, "no right to templates");
    assert_eq!(open("mine", &half).await, 403, "no use of the cache");
    assert_eq!(open("other", &one).await, 403, "no use of that room");
    assert_eq!(open("mine", &one).await, 201);
    assert_eq!(open("other", &world.admin).await, 201, "who manages may");
    assert_eq!(open("mine", "").await, 401);
    assert_eq!(open("a.b", &world.admin).await, 400);
    let unknown = format!("{SPACE}/templates/nothing/rooms/a");
    assert_eq!(world.call("POST", &unknown, &one, None).await.status, 404);
}

#[tokio::test]
async fn templates_are_set_by_who_manages_the_namespace_and_seen_by_who_uses_them() {
    let world = with_template().await;
    let path = format!("{SPACE}/templates/board");
    let user = world
        .token_with("p:user", &[("template.use", "namespace:acme/ns")])
        .await;
    let stranger = world
        .token_with("p:other", &[("stream.subscribe", "stream:acme/ns/s")])
        .await;
    let call = async |method: &str, path: &str, token: &str, body: Option<&Value>| {
        world.call(method, path, token, body).await
    };
    assert_eq!(
        call("PUT", &path, &user, Some(&template(5))).await.status,
        403
    );
    assert_eq!(call("DELETE", &path, &user, None).await.status, 403);
    assert_eq!(call("GET", &path, &stranger, None).await.status, 403);
    let seen = call("GET", &path, &user, None).await;
    assert_eq!((seen.status, &seen.body["prefix"]), (200, &json!("board-")));
    let listed = call("GET", &format!("{SPACE}/templates"), &user, None).await;
    assert_eq!(listed.body["items"], json!([seen.body]));
    let misspelt = json!({"prefix": "x-", "stream": []});
    let refused = call("PUT", &path, &world.admin, Some(&misspelt)).await;
    assert_eq!((refused.status, refused.code()), (400, "validation_error"));
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(world.delete(&path).await.status, 404);
}

#[tokio::test]
async fn the_last_room_is_refused_as_a_conflict_and_the_audit_has_who_opened_the_others() {
    let world = with_template().await;
    let open = async |scope: &str| {
        let path = format!("{SPACE}/templates/board/rooms/{scope}");
        world.post(&path, &json!({})).await
    };
    assert_eq!(open("a").await.status, 201);
    assert_eq!(open("b").await.status, 201);
    let refused = open("c").await;
    assert_eq!((refused.status, refused.code()), (409, "conflict"));
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .contains("2 rooms")
    );
    let audit = world.get("/v1/tenants/acme/audit?limit=1000").await.body;
    let items = audit["items"].as_array().unwrap();
    let opened: Vec<&Value> = items
        .iter()
        .filter(|one| one["what"] == "room_opened")
        .collect();
    assert_eq!(opened.len(), 2);
    assert_eq!(opened[0]["target"], "ns/board/a");
}

async fn with_template() -> World {
    let world = World::new().await;
    let path = format!("{SPACE}/templates/board");
    let set = world
        .call("PUT", &path, &world.admin, Some(&template(2)))
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    world
}

fn template(rooms_max: u32) -> Value {
    json!({
        "prefix": "board-",
        "streams": [{
            "stream": "edits", "kind": "Stream", "shards": 1, "retention": {}, "consistency": "Leader",
            "delivery": "AtLeastOnce", "durable": true,
        }],
        "caches": [{"cache": "presence", "durable": false}],
        "rooms_max": rooms_max,
    })
}
