//! Live views: nothing is missed by who comes back, and nobody has more of them than his share.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::time::timeout;

use super::node::{Node, Person, read};
use super::{publish, text};

/// A live view that is read.
struct View {
    response: reqwest::Response,
    rest: String,
}

/// One event of it.
struct Told {
    name: String,
    id: String,
    data: Value,
}

impl View {
    async fn open(person: &Person<'_>, path: &str, last: Option<&str>) -> Self {
        let mut request = person.open(Method::GET, path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            rest: String::new(),
        }
    }

    async fn next(&mut self) -> Told {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().trim().to_owned()
                };
                let told = Told {
                    name: field("event:"),
                    id: field("id:"),
                    data: serde_json::from_str(&field("data:")).unwrap_or_default(),
                };
                self.rest = rest.to_owned();
                if told.name.is_empty() {
                    continue;
                }
                return told;
            }
            let chunk = timeout(Duration::from_secs(30), self.response.chunk())
                .await
                .unwrap()
                .unwrap();
            self.rest
                .push_str(&String::from_utf8_lossy(&chunk.unwrap()));
        }
    }

    /// Records until there are so many, and the last id.
    async fn records(&mut self, count: usize) -> (Vec<Value>, String) {
        let mut records = Vec::new();
        let mut id = String::new();
        while records.len() < count {
            let told = self.next().await;
            if told.name == "records" {
                records.extend(told.data.as_array().unwrap().iter().cloned());
                id = told.id;
            }
        }
        (records, id)
    }
}

const TAIL: &str = "/ns/default/streams/orders/tail";

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_comes_back_with_its_last_id_misses_nothing() {
    let node = Node::start(false).await;
    publish(&node, "orders", 10).await;
    let ann = node.admin("dev");
    let mut view = View::open(&ann, TAIL, None).await;
    let first = view.next().await;
    assert_eq!(
        (first.name.as_str(), first.id.as_str()),
        ("position", "0:10")
    );
    drop(view);
    // It saw nothing, and still comes back to what was published meanwhile.
    publish(&node, "orders", 5).await;
    let mut view = View::open(&ann, TAIL, Some(&first.id)).await;
    let (records, id) = view.records(5).await;
    assert_eq!(
        records
            .iter()
            .map(|one| one["offset"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [10, 11, 12, 13, 14]
    );
    assert_eq!(
        (text(&records[0]["value"]), text(&records[0]["key"])),
        ("record 0".to_owned(), "k".to_owned())
    );
    assert_eq!(id, "0:15");
    let mut earlier = View::open(&ann, &format!("{TAIL}?shard=0&from=3"), None).await;
    assert_eq!(earlier.records(12).await.0[0]["offset"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_cache_are_told_as_they_are_committed() {
    let node = Node::start(false).await;
    let ann = node.admin("dev");
    let mut view = View::open(&ann, "/ns/default/caches/config/watch?prefix=a", None).await;
    let cache = node.client().await.cache("config").unwrap();
    cache.put("b", "0").await.unwrap();
    cache.put("a1", "1").await.unwrap();
    let told = view.next().await;
    assert_eq!(
        (told.name.as_str(), told.data[0]["key"].as_str()),
        ("changes", Some("a1"))
    );
    assert_eq!(text(&told.data[0]["value"]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_person_has_so_many_live_views_and_others_have_theirs() {
    let node = Node::start(false).await;
    let ann = node.admin("dev");
    let mut views = Vec::new();
    for _ in 0..8 {
        views.push(View::open(&ann, TAIL, None).await);
    }
    // Another token of hers is no way around it.
    let other = node.person("dev", &["stream.subscribe:stream:dev/default/orders"]);
    for token in [&ann, &other] {
        let ninth = token.open(Method::GET, TAIL).send().await.unwrap();
        assert_eq!(read(ninth).await.refused(), (429, "too_many_requests"));
    }
    let bob = node.bob();
    View::open(&bob, TAIL, None).await.next().await;
    // What Ann looks at in other ways is not held up.
    ann.get("/ns/default/streams").await.ok();
}
