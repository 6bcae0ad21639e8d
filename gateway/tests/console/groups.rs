//! Groups: moved only as was shown, and their dead letters.

use felix_client::{Claim, PollOptions};
use serde_json::{Value, json};

use super::node::Node;
use super::{publish, text};

const GROUP: &str = "/ns/default/groups/orders/billing";

fn field(body: &Value, name: &str) -> Option<u64> {
    body["moves"][0][name].as_u64()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_moved_to_what_the_plan_showed_and_the_plan_moves_nothing() {
    let node = Node::start(true).await;
    publish(&node, "orders", 100).await;
    let client = node.client().await;
    let group = client.group("orders", "billing").unwrap();
    let options = PollOptions {
        max_records: 10,
        ..PollOptions::default()
    };
    let polled = group.poll(0, &options).await.unwrap();
    let claims: Vec<Claim> = polled
        .iter()
        .map(|one| Claim {
            offset: one.offset,
            attempts: one.attempts,
        })
        .collect();
    group.ack(0, &claims, None).await.unwrap();

    let ann = node.admin("dev");
    let listed = ann.get("/ns/default/groups").await.ok();
    assert_eq!(
        (
            listed["items"][0]["group"].as_str(),
            listed["items"][0]["shards"][0]["lag"].as_u64()
        ),
        (Some("billing"), Some(90))
    );
    let plan = ann.get(&format!("{GROUP}/plan?to=57")).await.ok();
    assert_eq!(
        (
            field(&plan, "current"),
            field(&plan, "target"),
            field(&plan, "end")
        ),
        (Some(10), Some(57), Some(100))
    );
    assert_eq!(ann.get(GROUP).await.ok()["shards"][0]["committed"], 10);
    for (to, target) in [("earliest", 0), ("latest", 100), ("-1h", 0)] {
        let plan = ann.get(&format!("{GROUP}/plan?to={to}&shard=0")).await.ok();
        assert_eq!(field(&plan, "target"), Some(target), "{to}");
    }
    assert_eq!(
        ann.get(&format!("{GROUP}/plan?to=101")).await.refused(),
        (409, "offset_in_future")
    );
    let beyond = ann
        .post(
            &format!("{GROUP}/seek"),
            json!({"offsets": [{"shard": 0, "offset": 101}]}),
        )
        .await;
    assert_eq!(beyond.refused(), (400, "invalid"));
    let sought = ann
        .post(
            &format!("{GROUP}/seek"),
            json!({"offsets": [{"shard": 0, "offset": 57}]}),
        )
        .await
        .ok();
    assert_eq!(
        (field(&sought, "target"), &sought["moves"][0]["moved"]),
        (Some(57), &json!(true))
    );
    assert_eq!(ann.get(GROUP).await.ok()["shards"][0]["committed"], 57);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_shown_with_their_reason_handed_out_again_and_dropped() {
    let node = Node::start(true).await;
    publish(&node, "orders", 5).await;
    let client = node.client().await;
    let group = client.group("orders", "billing").unwrap();
    let options = PollOptions {
        max_records: 3,
        ..PollOptions::default()
    };
    let polled = group.poll(0, &options).await.unwrap();
    let claims: Vec<Claim> = polled
        .iter()
        .map(|one| Claim {
            offset: one.offset,
            attempts: one.attempts,
        })
        .collect();
    group
        .set_aside(0, &claims, "cannot be read", None)
        .await
        .unwrap();

    let ann = node.admin("dev");
    let letters = ann
        .get(&format!("{GROUP}/letters?shard=0&limit=2"))
        .await
        .ok();
    assert_eq!(
        (
            letters["items"].as_array().unwrap().len(),
            letters["next"].as_str()
        ),
        (2, Some("1"))
    );
    assert_eq!(letters["items"][0]["reason"], "cannot be read");
    assert_eq!(text(&letters["items"][0]["value"]), "record 0");
    let all = ann
        .post(
            &format!("{GROUP}/letters/discard"),
            json!({"shard": 0, "offsets": []}),
        )
        .await;
    assert_eq!(all.refused(), (400, "invalid"));
    let redriven = ann
        .post(
            &format!("{GROUP}/letters/redrive"),
            json!({"shard": 0, "offsets": [0, 4]}),
        )
        .await
        .ok();
    assert_eq!(
        (redriven["count"].as_u64(), &redriven["missing"]),
        (Some(1), &json!([4]))
    );
    ann.post(
        &format!("{GROUP}/letters/discard"),
        json!({"shard": 0, "offsets": [1]}),
    )
    .await
    .ok();
    let left = ann.get(&format!("{GROUP}/letters?shard=0")).await.ok();
    assert_eq!(
        left["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["offset"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [2]
    );
}
