//! A subscriber that stops reading, beside others that do not.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use felix_client::{SubscriptionFilter, SubscriptionView};
use felix_e2e::raw::{Listener, Wire};
use felix_e2e::{Home, Node, eventually};
use felix_wire::message::{Message, Start, Subscribe};

/// Large, so that what is in flight inside QUIC is soon a small part of it.
const PAYLOAD_BYTES: usize = 256 * 1024;

/// Between two records while the stopped reader catches up: few enough not to overflow it again.
const TRICKLE: Duration = Duration::from_millis(50);

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

fn payload(number: u64) -> Vec<u8> {
    let mut payload = vec![0; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

fn number(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload[..8].try_into().unwrap())
}

/// A subscriber on a connection of its own that reads nothing until it is asked to.
async fn stopped(node: &Node, stream: &str) -> (Wire, Listener) {
    let wire = Wire::connect(node.ready()).await.unwrap();
    let ask = Subscribe {
        tenant_id: "dev".to_owned(),
        namespace: "default".to_owned(),
        stream: stream.to_owned(),
        subscription_id: None,
        start: Some(Start::Latest),
        shard: None,
        queue_capacity: None,
        records: false,
    };
    let (answer, events) = wire.subscribe(ask).await.unwrap();
    assert!(matches!(answer, Message::Subscribed(_)), "{answer:?}");
    (wire, events.unwrap())
}

async fn listed(client: &felix_client::Client) -> Vec<SubscriptionView> {
    let filter = SubscriptionFilter::default();
    let page = client.subscriptions(filter, None, None).await.unwrap();
    page.subscriptions
}

#[tokio::test]
async fn a_durable_stream_keeps_everything_for_a_reader_that_stopped() {
    const RECORDS: u64 = 400;
    let home = home();
    let node = home.start().await.unwrap();
    let (_wire, mut events) = stopped(&node, "orders").await;
    let client = node.client().await.unwrap();
    let mut beside = client.subscribe("orders").await.unwrap();
    for expected in 0..RECORDS {
        // Each is acknowledged and delivered to the other before the next: nobody waits for the stopped one.
        let published = client.publish("orders", payload(expected)).await.unwrap();
        assert_eq!(published.offset, Some(expected));
        let event = beside.next().await.unwrap().unwrap();
        assert_eq!(event.offset, Some(expected));
    }
    let rows = listed(&client).await;
    let behind = rows.iter().map(|row| row.depth).max().unwrap();
    assert!(behind > RECORDS / 2, "{rows:?}");
    let mut next = 0;
    while next < RECORDS {
        let batch = events.events().await.unwrap();
        for event in batch.events() {
            assert_eq!(event.offset, Some(next));
            assert_eq!(number(&event.payload), next);
            next += 1;
        }
    }
    assert!(listed(&client).await.iter().all(|row| row.dropped == 0));
    assert_eq!(
        node.metric("felix_sub_queue_dropped_total").await.unwrap(),
        0.0
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_in_memory_stream_that_drops_the_new_tells_how_many_were_lost() {
    let seen = overflow("drop_new").await;
    // What was owed before the overflow is there without a hole.
    let first: Vec<u64> = seen.iter().copied().take(100).collect();
    assert_eq!(first, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_in_memory_stream_that_drops_the_old_tells_how_many_were_lost() {
    overflow("drop_old").await;
}

/// Overflows a reader that stopped and reads on afterwards. Gives what it saw.
async fn overflow(policy: &str) -> BTreeSet<u64> {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&[
        "stream",
        "create",
        "memory",
        "--durable",
        "false",
        "--overflow",
        policy,
    ])
    .await
    .unwrap();
    let (_wire, mut events) = stopped(&node, "memory").await;
    let client = node.client().await.unwrap();
    let mut beside = client.subscribe("memory").await.unwrap();
    let mut published = 0;
    loop {
        client.publish("memory", payload(published)).await.unwrap();
        let event = beside.next().await.unwrap().unwrap();
        assert_eq!(number(&event.payload), published);
        published += 1;
        if published % 20 == 0 {
            let rows = listed(&client).await;
            assert!(rows.iter().all(|row| row.policy == policy), "{rows:?}");
            if rows.iter().any(|row| row.dropped > 20) {
                break;
            }
        }
        assert!(published < 2_000, "nothing is lost and nothing is bounded");
    }
    // It reads on, beside a trickle of records, until it is at the tail.
    let mut trickle = tokio::time::interval(TRICKLE);
    let mut seen = BTreeSet::new();
    let mut last = None;
    while last != Some(published - 1) {
        let batch = tokio::select! {
            biased;
            batch = events.events() => batch.unwrap(),
            _ = trickle.tick() => {
                client.publish("memory", payload(published)).await.unwrap();
                published += 1;
                continue;
            }
        };
        assert_eq!(batch.base_offset, None, "an offset of an in-memory stream");
        for event in batch.events() {
            let found = number(&event.payload);
            assert!(
                last.is_none_or(|last| last < found),
                "{last:?} then {found}"
            );
            last = Some(found);
            seen.insert(found);
        }
    }
    let lost = published - seen.len() as u64;
    assert!(lost > 20, "{lost} lost");
    let rows = listed(&client).await;
    let dropped: u64 = rows.iter().map(|row| row.dropped).sum();
    assert_eq!(dropped, lost, "{rows:?}");
    let metric = eventually(|| async {
        let metric = node.metric("felix_sub_queue_dropped_total").await.unwrap();
        (metric >= lost as f64).then_some(metric)
    });
    assert_eq!(metric.await, Some(lost as f64));
    // The one beside it lost nothing.
    assert_eq!(beside.lost(), 0);
    node.stop().await.unwrap();
    seen
}
