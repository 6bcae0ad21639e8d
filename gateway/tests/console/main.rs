//! The console's API in front of a real node, in one process.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says where"
)]

mod groups;
mod live;
mod node;
mod strangers;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use felix_client::Record;
use reqwest::Method;
use serde_json::{Value, json};

use node::{Node, http, read};

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn text(shown: &Value) -> String {
    let bytes = STANDARD.decode(shown["base64"].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Publishes records `0..count`, each with its number as value and a header, in batches of thirty.
async fn publish(node: &Node, stream: &str, count: u64) {
    let client = node.client().await;
    let numbers: Vec<u64> = (0..count).collect();
    for chunk in numbers.chunks(30) {
        let records = chunk.iter().map(|number| {
            Record::new(format!("record {number}"))
                .key("k")
                .header("n", number.to_string())
        });
        client.publish_batch(stream, records).await.unwrap();
    }
    client.close().await;
}

fn offsets(page: &Value) -> Vec<u64> {
    let records = page["records"].as_array().unwrap();
    records
        .iter()
        .map(|row| row["offset"].as_u64().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_shows_and_does_not_change_unless_the_gateway_says_so() {
    let node = Node::start(false).await;
    let ann = node.admin("dev");
    assert_eq!(ann.get("/me").await.ok()["writable"], false);
    let record = json!({"key": null, "headers": [], "value": base64("x")});
    let refused = ann.post("/ns/default/streams/orders/records", record).await;
    assert_eq!(refused.refused(), (403, "read_only"));
    let entry = json!({"key": "a", "value": base64("x"), "if_absent": true});
    let refused = ann
        .change(Method::PUT, "/ns/default/caches/config/entry", entry)
        .await;
    assert_eq!(refused.refused(), (403, "read_only"));
    let page = ann.get("/ns/default/streams/orders/records").await.ok();
    assert_eq!((page["end"].as_u64(), offsets(&page).len()), (Some(0), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_shown_anything_without_a_sign_in_and_every_refusal_has_one_shape() {
    let node = Node::start(true).await;
    let asked = http()
        .get(format!("{}/console/api/me", node.url))
        .send()
        .await
        .unwrap();
    assert_eq!(asked.headers()["cache-control"], "no-store");
    assert_eq!(read(asked).await.refused(), (401, "signed_out"));
    let ann = node.admin("dev");
    assert_eq!(ann.get("/nowhere").await.refused(), (404, "not_found"));
    assert_eq!(
        ann.get("/explain?action=x").await.refused(),
        (400, "invalid")
    );
    assert_eq!(
        ann.get("/ns/default/streams/nothere").await.refused(),
        (404, "not_found")
    );
    let long = json!({"key": null, "headers": [], "value": "A".repeat(24 * 1024 * 1024)});
    let refused = ann.post("/ns/default/streams/orders/records", long).await;
    assert_eq!(refused.refused(), (413, "too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_needs_the_header_and_the_origin_that_other_sites_do_not_have() {
    let node = Node::start(true).await;
    let ann = node.admin("dev");
    let path = "/ns/default/streams/orders/records";
    let record = json!({"key": null, "headers": [], "value": base64("x")});
    let plain = ann
        .open(Method::POST, path)
        .json(&record)
        .send()
        .await
        .unwrap();
    assert_eq!(read(plain).await.refused(), (403, "csrf"));
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let request = ann.open(Method::POST, path).header("x-felix-console", "1");
        let foreign = request
            .header("origin", origin)
            .json(&record)
            .send()
            .await
            .unwrap();
        assert_eq!(
            read(foreign).await.refused(),
            (403, "foreign_origin"),
            "{origin}"
        );
    }
    let request = ann.open(Method::POST, path).header("x-felix-console", "1");
    let own = request
        .header("origin", &node.url)
        .json(&record)
        .send()
        .await
        .unwrap();
    assert_eq!(read(own).await.ok()["offset"], 0);
    // A cookie alone, which any site can have sent, changes nothing without saying where it comes from.
    let url = format!("{}/console/api{path}", node.url);
    let cookie = http()
        .post(url)
        .header("x-felix-console", "1")
        .header("cookie", "__Host-felix=x");
    let refused = read(cookie.json(&record).send().await.unwrap()).await;
    assert_eq!(refused.refused(), (403, "foreign_origin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_begins_exactly_at_the_offset_that_was_asked_for() {
    let node = Node::start(false).await;
    publish(&node, "orders", 100).await;
    let ann = node.admin("dev");
    let page = ann
        .get("/ns/default/streams/orders/records?from=57&count=20")
        .await
        .ok();
    assert_eq!(page["from"], 57);
    assert_eq!(offsets(&page), (57..77).collect::<Vec<_>>());
    assert_eq!(text(&page["records"][0]["value"]), "record 57");
    assert_eq!(text(&page["records"][0]["key"]), "k");
    assert_eq!(page["records"][0]["headers"][0]["name"], "n");
    assert_eq!(
        (page["next"].as_u64(), page["previous"].as_u64()),
        (Some(77), Some(57))
    );
    let back = ann
        .get("/ns/default/streams/orders/records?before=57&count=20")
        .await
        .ok();
    assert_eq!(offsets(&back), (37..57).collect::<Vec<_>>());
    let newest = ann
        .get("/ns/default/streams/orders/records?before=end&count=3")
        .await
        .ok();
    assert_eq!(
        (offsets(&newest), newest["next"].as_u64()),
        (vec![97, 98, 99], None)
    );
    let end = ann
        .get("/ns/default/streams/orders/records?from=100")
        .await
        .ok();
    assert_eq!((end["from"].as_u64(), offsets(&end).len()), (Some(100), 0));
    let beyond = ann.get("/ns/default/streams/orders/records?from=101").await;
    assert_eq!(beyond.refused(), (409, "offset_in_future"));
    assert_eq!(beyond.body["number"], 100);
    let by_time = ann
        .get("/ns/default/streams/orders/records?from=-1h&count=1")
        .await
        .ok();
    assert_eq!(offsets(&by_time), [0]);
    let one = ann.get("/ns/default/streams/orders/records/57").await.ok();
    assert_eq!(text(&one["value"]), "record 57");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_token_sees_nothing_and_rights_decide_what_is_listed() {
    let node = Node::start(true).await;
    publish(&node, "orders", 3).await;
    let stranger = node.admin("other");
    for path in [
        "/me",
        "/ns/default/streams",
        "/ns/default/streams/orders/records",
        "/ns/default/caches",
    ] {
        let refused = stranger.get(path).await;
        assert_eq!(refused.refused(), (403, "forbidden"), "{path}");
        assert!(!refused.body.to_string().contains("record 0"));
    }
    let reader = node.person("dev", &["stream.subscribe:stream:dev/default/orders"]);
    let listed = reader.get("/ns/default/streams").await.ok();
    let names: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["stream"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["orders"]);
    assert_eq!(listed["items"][0]["shards"][0]["end"], 3);
    let hidden = reader.get("/ns/default/streams/payments/records").await;
    assert!(matches!(
        hidden.refused(),
        (403, "forbidden") | (404, "not_found")
    ));
    let record = json!({"key": null, "headers": [], "value": base64("x")});
    let refused = reader
        .post("/ns/default/streams/orders/records", record)
        .await;
    assert_eq!(refused.refused(), (403, "forbidden"));
    let why = reader
        .get("/explain?action=stream.publish&object=stream:dev/default/orders")
        .await
        .ok();
    assert_eq!(
        (why["allowed"].as_bool(), why["near"][0]["grant"].as_str()),
        (
            Some(false),
            Some("stream.subscribe:stream:dev/default/orders")
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_looks_into_keys_values_and_headers_and_says_how_far_it_came() {
    let node = Node::start(false).await;
    publish(&node, "orders", 100).await;
    let ann = node.admin("dev");
    let search = async |query: &str| {
        ann.get(&format!("/ns/default/streams/orders/search?{query}"))
            .await
            .ok()
    };
    let found = search("q=RECORD%2042&most=1000").await;
    assert_eq!(found["matches"][0]["offset"], 42);
    assert_eq!(
        (found["scanned"].as_u64(), found["next"].as_u64()),
        (Some(100), None)
    );
    let part = search("q=record%2042&most=40").await;
    assert_eq!(
        (
            part["matches"].as_array().unwrap().len(),
            part["next"].as_u64()
        ),
        (0, Some(40))
    );
    let header = search("q=99&in=headers&from=50").await;
    assert_eq!(header["matches"][0]["offset"], 99);
    assert_eq!(
        search("q=99&in=key").await["matches"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_written_only_under_the_version_that_was_seen() {
    let node = Node::start(true).await;
    let ann = node.admin("dev");
    let path = "/ns/default/caches/config/entry";
    let put = async |body: Value| ann.change(Method::PUT, path, body).await;
    let blind = put(json!({"key": "a", "value": base64("0")})).await;
    assert_eq!(blind.refused(), (400, "invalid"));
    let first = put(json!({"key": "a", "value": base64("1"), "if_absent": true}))
        .await
        .ok();
    let version = first["version"].as_u64().unwrap();
    let second = put(json!({"key": "a", "value": base64("2"), "if_version": version}))
        .await
        .ok();
    let conflict = put(json!({"key": "a", "value": base64("3"), "if_version": version})).await;
    assert_eq!(conflict.refused(), (409, "version_mismatch"));
    assert_eq!(conflict.body["number"], second["version"]);
    let keys = ann
        .get("/ns/default/caches/config/keys?prefix=a")
        .await
        .ok();
    assert_eq!(
        (
            keys["items"][0]["key"].as_str(),
            text(&keys["items"][0]["value"])
        ),
        (Some("a"), "2".to_owned())
    );
    let history = ann
        .get("/ns/default/caches/config/history?key=a")
        .await
        .ok();
    let versions: Vec<u64> = history["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["version"].as_u64().unwrap())
        .collect();
    assert_eq!(versions, [version, second["version"].as_u64().unwrap()]);
    let gone = ann
        .change(
            Method::DELETE,
            &format!("{path}?key=a&if_version={}", second["version"]),
            Value::Null,
        )
        .await;
    gone.ok();
    assert!(ann.get(&format!("{path}?key=a")).await.ok()["version"].is_null());
    let history = ann
        .get("/ns/default/caches/config/history?key=a")
        .await
        .ok();
    assert!(history["changes"][2]["value"].is_null());
    let counter = "/ns/default/caches/config/counter";
    let sum = ann
        .post(counter, json!({"key": "n", "delta": 5}))
        .await
        .ok();
    assert_eq!(sum["value"], "5");
    assert_eq!(
        ann.get(&format!("{counter}?key=n")).await.ok()["value"],
        "5"
    );
}
