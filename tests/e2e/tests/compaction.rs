//! A stream of which the newest record of each key stays.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use felix_client::{PageLimits, Record};
use felix_e2e::{Home, Node, eventually};

const KEYS: u64 = 100;

/// Large enough for ten thousand to be worth a few compactions.
const PADDING: usize = 400;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

fn value(number: u64) -> String {
    format!("{number} {}", "x".repeat(PADDING))
}

fn key(number: u64) -> u64 {
    number * 7919 % KEYS
}

/// Publishes numbers, each at the offset that it is.
async fn publish(node: &Node, numbers: Range<u64>) {
    let publisher = node.client().await.unwrap().publisher("users").unwrap();
    let mut receipts = Vec::new();
    for number in numbers {
        let record = Record::new(value(number)).key(format!("user-{}", key(number)));
        receipts.push((number, publisher.send(record).await.unwrap()));
    }
    for (number, receipt) in receipts {
        assert_eq!(receipt.await.unwrap().offset, Some(number));
    }
}

/// Waits until a run of compaction is over that has taken something.
async fn compacted(node: &Node) {
    let has_run = || async {
        let bytes = node.metric("felix_compaction_bytes_in_total").await.ok()?;
        (bytes > 0.0).then_some(())
    };
    eventually(has_run).await.expect("nothing was compacted");
}

/// What a subscriber from the start on gets up to `end`, each at its offset and none of them lost.
async fn subscribed(node: &Node, end: u64, whole_records: bool) -> BTreeSet<u64> {
    let client = node.client().await.unwrap();
    let subscribe = client.subscribe("users").from_earliest();
    let mut subscription = if whole_records {
        subscribe.records().await.unwrap()
    } else {
        subscribe.await.unwrap()
    };
    let mut found = BTreeSet::new();
    // The last record is the newest of its key, so it is always there.
    while !found.contains(&(end - 1)) {
        let event = subscription.next().await.unwrap().unwrap();
        let offset = event.offset.unwrap();
        assert_eq!(event.payload, value(offset), "offset {offset}");
        if whole_records {
            assert_eq!(event.key.unwrap(), format!("user-{}", key(offset)));
        }
        assert!(
            found.last().is_none_or(|last| *last < offset),
            "offset {offset}"
        );
        found.insert(offset);
    }
    assert_eq!(subscription.lost(), 0);
    found
}

/// The same, page by page.
async fn pages(node: &Node, end: u64) -> BTreeSet<u64> {
    let client = node.client().await.unwrap();
    let mut found = BTreeSet::new();
    let mut next = 0;
    while next < end {
        let limits = PageLimits {
            bytes: 50_000,
            ..PageLimits::default()
        };
        let page = client.stream_read("users", 0, next, limits).await.unwrap();
        for record in &page.records {
            assert_eq!(record.payload, value(record.offset));
            found.insert(record.offset);
        }
        assert!(page.next_offset > next);
        next = page.next_offset;
    }
    found
}

/// Of each key the newest is there.
fn newest_are_in(found: &BTreeSet<u64>, end: u64) {
    let newest: BTreeMap<u64, u64> = (0..end).map(|number| (key(number), number)).collect();
    for (key, number) in &newest {
        assert!(
            found.contains(number),
            "the newest of key {key}, {number}, is lost"
        );
    }
}

/// The same, and where anything is missing no key is there twice.
fn check(found: &BTreeSet<u64>, end: u64) {
    newest_are_in(found, end);
    let missing = (0..end).rev().find(|number| !found.contains(number));
    let missing = missing.expect("nothing was compacted");
    let below: Vec<u64> = found.range(..missing).map(|number| key(*number)).collect();
    let keys: BTreeSet<&u64> = below.iter().collect();
    assert_eq!(
        keys.len(),
        below.len(),
        "a key is there twice below {missing}"
    );
}

#[tokio::test]
async fn of_a_compacted_stream_the_newest_record_of_each_key_stays_at_its_offset_also_through_kill_9()
 {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&[
        "stream",
        "create",
        "users",
        "--cleanup",
        "compact",
        "--shards",
        "1",
    ])
    .await
    .unwrap();
    publish(&node, 0..4_000).await;
    compacted(&node).await;
    // The broker still has the newest few mebibytes in memory, as they were written.
    newest_are_in(&subscribed(&node, 4_000, false).await, 4_000);
    // A run may be under way when the process ends.
    publish(&node, 4_000..8_000).await;
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    publish(&node, 8_000..10_000).await;
    compacted(&node).await;
    let found = subscribed(&node, 10_000, true).await;
    check(&found, 10_000);
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let again = subscribed(&node, 10_000, false).await;
    check(&again, 10_000);
    assert!(again.is_subset(&found), "a record came back");
    let pages = pages(&node, 10_000).await;
    assert!(pages.is_subset(&again));
    check(&pages, 10_000);
    node.stop().await.unwrap();
}
