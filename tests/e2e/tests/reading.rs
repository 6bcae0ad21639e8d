//! Where reading begins, what is handed out, and how a subscription ends.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use felix_client::{PageLimits, ReadFailed, Record, SubscriptionFilter};
use felix_e2e::raw::{Listener, Target, Wire};
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::Code;
use felix_wire::message::{
    CursorReason, Message, Start, Subscribe, SubscribeCursorError, Subscribed,
};
use serde_json::json;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

fn ask(stream: &str, start: Start) -> Subscribe {
    Subscribe {
        tenant_id: "dev".to_owned(),
        namespace: "default".to_owned(),
        stream: stream.to_owned(),
        subscription_id: None,
        start: Some(start),
        shard: None,
        queue_capacity: None,
        records: false,
    }
}

async fn subscribe(wire: &Wire, ask: Subscribe) -> (Subscribed, Listener) {
    match wire.subscribe(ask).await.unwrap() {
        (Message::Subscribed(subscribed), Some(events)) => (subscribed, events),
        (other, _) => panic!("not subscribed: {other:?}"),
    }
}

async fn cursor_error(wire: &Wire, ask: Subscribe) -> SubscribeCursorError {
    match wire.subscribe(ask).await.unwrap() {
        (Message::SubscribeCursorError(error), None) => error,
        (other, _) => panic!("subscribed: {other:?}"),
    }
}

async fn publish_numbers(node: &Node, stream: &str, numbers: std::ops::Range<u64>) {
    let client = node.client().await.unwrap();
    for number in numbers {
        client.publish(stream, number.to_string()).await.unwrap();
    }
}

/// Reads up to an offset (exclusive) and expects every offset from the first on, each with its number.
async fn expect_numbers(events: &mut Listener, numbers: std::ops::Range<u64>) {
    let mut next = numbers.start;
    while next < numbers.end {
        for event in events.events().await.unwrap().events() {
            assert_eq!(event.offset, Some(next));
            assert_eq!(&event.payload[..], next.to_string().as_bytes());
            next += 1;
        }
    }
}

#[tokio::test]
async fn a_subscription_is_told_where_it_begins_and_where_history_ends() {
    let home = home();
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    publish_numbers(&node, "orders", 0..10).await;
    for (start, first) in [
        (Start::Earliest, 0),
        (Start::Offset(0), 0),
        (Start::Offset(4), 4),
        (Start::Offset(10), 10),
        (Start::Latest, 10),
    ] {
        let mut ask = ask("orders", start);
        ask.queue_capacity = Some(7);
        let (subscribed, mut events) = subscribe(&wire, ask).await;
        assert_eq!(subscribed.start_offset, Some(first), "{start:?}");
        assert_eq!(subscribed.live_offset, Some(10), "{start:?}");
        assert_eq!(subscribed.queue_capacity, Some(7));
        expect_numbers(&mut events, first..10).await;
    }
    let error = cursor_error(&wire, ask("orders", Start::Offset(11))).await;
    assert_eq!(error.reason, CursorReason::InFuture);
    assert_eq!((error.requested, error.available), (11, 10));
    // Of an empty stream, offset 0 is the next one.
    home.ok(&["stream", "create", "empty"]).await.unwrap();
    let (subscribed, _) = subscribe(&wire, ask("empty", Start::Offset(0))).await;
    assert_eq!(
        (subscribed.start_offset, subscribed.live_offset),
        (Some(0), Some(0))
    );
    let (answer, _) = wire.subscribe(ask("ordres", Start::Latest)).await.unwrap();
    let Message::Error(failure) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(failure.code(), Some(Code::NotFound));
    assert!(failure.message.contains("orders"), "{failure:?}");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_in_memory_stream_shows_no_offsets() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "memory", "--durable", "false"])
        .await
        .unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let (subscribed, mut events) = subscribe(&wire, ask("memory", Start::Latest)).await;
    assert_eq!(
        (subscribed.start_offset, subscribed.live_offset),
        (None, None)
    );
    let mut stream = wire.authenticated().await.unwrap();
    let target = Target {
        stream: "memory",
        request_id: 1,
        ..Target::default()
    };
    let ack = stream.publish(&target, &[b"a", b"b"]).await.unwrap();
    assert_eq!(ack.outcome, Ok(None));
    let mut payloads = Vec::new();
    while payloads.len() < 2 {
        let batch = events.events().await.unwrap();
        assert_eq!((batch.base_offset, batch.skipped_before), (None, 0));
        payloads.extend(batch.events().map(|event| event.payload));
    }
    assert_eq!(payloads, ["a", "b"]);
    for kind in ["stream_read", "offset_for_time"] {
        let ask = json!({"type": kind, "tenant_id": "dev", "namespace": "default",
            "stream": "memory", "shard": 0, "from": 0, "at_micros": 0, "request_id": 2});
        let Message::Error(failure) = stream.ask_json(&ask).await.unwrap() else {
            panic!("{kind} of a stream without a log");
        };
        assert_eq!(failure.code(), Some(Code::InvalidRequest));
    }
    node.stop().await.unwrap();
}

/// Records that a reader of the test below reads.
const RUN: u64 = 80;

#[tokio::test]
async fn whoever_joins_while_everything_flows_misses_nothing_and_sees_nothing_twice() {
    const READERS: u64 = 10;
    const JOINS_EACH: u64 = 100;
    let home = home();
    let node = home.start().await.unwrap();
    let publisher = node.client().await.unwrap().publisher("orders").unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(flat_out(
        publisher,
        Arc::clone(&acknowledged),
        Arc::clone(&done),
    ));
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..READERS {
        let client = node.client().await.unwrap();
        let acknowledged = Arc::clone(&acknowledged);
        readers.spawn(async move {
            for join in 0..JOINS_EACH {
                let before = acknowledged.load(Ordering::Acquire);
                // History across the join, the very tail, and whatever is newest, in turn.
                let from = match (reader + join) % 3 {
                    0 => Some(before.saturating_sub(RUN / 2)),
                    1 => Some(before),
                    _ => None,
                };
                let ask = client.subscribe("orders");
                let ask = match from {
                    Some(offset) => ask.from_offset(offset),
                    None => ask,
                };
                let mut subscription = ask.await.unwrap();
                let first = subscription.next().await.unwrap().unwrap();
                let mut next = first.offset.unwrap();
                assert!(next >= from.unwrap_or(before), "{next} after {before}");
                assert_eq!(next, from.unwrap_or(next));
                assert_eq!(&first.payload[..], next.to_string().as_bytes());
                for _ in 1..RUN {
                    next += 1;
                    let event = subscription.next().await.unwrap().unwrap();
                    assert_eq!(event.offset, Some(next));
                    assert_eq!(&event.payload[..], next.to_string().as_bytes());
                }
                assert_eq!(subscription.lost(), 0);
            }
        });
    }
    readers.join_all().await;
    done.store(true, Ordering::Release);
    let published = load.await.unwrap();
    assert!(published > RUN, "{published}");
    node.stop().await.unwrap();
}

/// Publishes numbers, several in flight, until told to stop. Number n has offset n.
async fn flat_out(
    publisher: felix_client::Publisher,
    acknowledged: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
) -> u64 {
    let mut in_flight = std::collections::VecDeque::new();
    let mut number = 0;
    while !done.load(Ordering::Acquire) {
        in_flight.push_back(publisher.send(number.to_string()).await.unwrap());
        number += 1;
        if in_flight.len() >= 128 {
            let published = in_flight.pop_front().unwrap().await.unwrap();
            acknowledged.store(published.offset.unwrap() + 1, Ordering::Release);
        }
    }
    for receipt in in_flight {
        receipt.await.unwrap();
    }
    number
}

#[tokio::test]
async fn an_offset_that_retention_took_is_answered_with_the_oldest_there_is() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "short", "--retention-size", "1MiB"])
        .await
        .unwrap();
    let client = node.client().await.unwrap();
    let publisher = client.publisher("short").unwrap();
    for _ in 0..200 {
        publisher.publish(vec![7; 32 * 1024]).await.unwrap();
    }
    let oldest = eventually(|| async {
        let shards = node.shards().await.unwrap();
        let short = shards
            .iter()
            .find(|shard| shard["stream"] == "dev/default/short")?;
        short["start"].as_u64().filter(|start| *start > 0)
    });
    let oldest = oldest.await.expect("retention takes something");
    match client.subscribe("short").from_offset(0).await {
        Err(ReadFailed::TooOld {
            requested: 0,
            oldest: named,
        }) => assert!(named >= oldest),
        other => panic!("{other:?}"),
    }
    match client
        .stream_read("short", 0, 0, PageLimits::default())
        .await
    {
        Err(ReadFailed::TooOld { oldest: named, .. }) => assert!(named >= oldest),
        other => panic!("{other:?}"),
    }
    let mut subscription = client.subscribe("short").from_earliest().await.unwrap();
    let first = subscription.next().await.unwrap().unwrap();
    assert!(first.offset.unwrap() >= oldest);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn pages_follow_each_other_and_end_at_the_tail() {
    let home = home();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    for batch in 0..5u64 {
        let numbers = (0..5).map(|index| (5 * batch + index).to_string());
        client.publish_batch("orders", numbers).await.unwrap();
    }
    let limits = |records, bytes, end| PageLimits {
        records,
        bytes,
        end,
    };
    let mut from = 0;
    let mut read = Vec::new();
    while from < 25 {
        let page = client.stream_read("orders", 0, from, limits(7, 0, None));
        let page = page.await.unwrap();
        assert!(!page.records.is_empty() && page.records.len() <= 7);
        assert_eq!(page.records[0].offset, from);
        from = page.next_offset;
        read.extend(page.records);
    }
    assert_eq!(from, 25);
    for (number, record) in (0..).zip(&read) {
        assert_eq!(record.offset, number);
        assert_eq!(&record.payload[..], number.to_string().as_bytes());
        assert!(record.timestamp_micros > 0);
    }
    let page = client.stream_read("orders", 0, 3, limits(0, 0, Some(6)));
    let page = page.await.unwrap();
    let offsets: Vec<u64> = page.records.iter().map(|record| record.offset).collect();
    assert_eq!((offsets, page.next_offset), (vec![3, 4, 5], 6));
    let page = client.stream_read("orders", 0, 10, limits(0, 1, None));
    let page = page.await.unwrap();
    assert_eq!((page.records.len(), page.next_offset), (1, 11));
    let page = client.stream_read("orders", 0, 25, limits(0, 0, None));
    let page = page.await.unwrap();
    assert_eq!((page.records.len(), page.next_offset), (0, 25));
    match client
        .stream_read("orders", 0, 26, limits(0, 0, None))
        .await
    {
        Err(ReadFailed::InFuture {
            requested: 26,
            next: 25,
        }) => {}
        other => panic!("{other:?}"),
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_time_is_turned_into_the_first_offset_at_or_after_it() {
    let home = home();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    for (at, payload) in [(1_000, "a"), (2_000, "b"), (3_000, "c")] {
        let record = Record::new(payload).timestamp_ms(at * 1_000);
        client.publish("orders", record).await.unwrap();
    }
    for (seconds, offset) in [
        (0, Some(0)),
        (1_000, Some(0)),
        (1_001, Some(1)),
        (2_000, Some(1)),
        (3_000, Some(2)),
        (3_001, None),
    ] {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        let found = client.offset_for_time("orders", 0, time).await.unwrap();
        assert_eq!(found, offset, "{seconds}");
    }
    let time = UNIX_EPOCH + Duration::from_secs(1_500);
    let mut subscription = client.subscribe("orders").from_time(time).await.unwrap();
    let first = subscription.next().await.unwrap().unwrap();
    assert_eq!((first.offset, &first.payload[..]), (Some(1), &b"b"[..]));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_deleted_stream_ends_its_readers_and_one_of_the_same_name_begins_anew() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "brief"]).await.unwrap();
    publish_numbers(&node, "brief", 0..5).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let (subscribed, mut events) = subscribe(&wire, ask("brief", Start::Earliest)).await;
    expect_numbers(&mut events, 0..5).await;
    let mut stream = wire.authenticated().await.unwrap();
    let target = Target {
        stream: "brief",
        request_id: 1,
        ..Target::default()
    };
    assert_eq!(
        stream.publish(&target, &[b"5"]).await.unwrap().outcome,
        Ok(Some(5))
    );
    expect_numbers(&mut events, 5..6).await;
    let incarnation = incarnation(&node).await.unwrap();
    home.ok(&["stream", "rm", "brief", "--yes"]).await.unwrap();
    match events.message().await.unwrap() {
        Message::StreamDeleted(deleted) => {
            assert_eq!(deleted.subscription_id, subscribed.subscription_id);
        }
        other => panic!("{other:?}"),
    }
    events.ended().await.unwrap();
    // The handle that this stream has is of the one that is gone.
    let refused = stream.publish(&target, &[b"x"]).await.unwrap().outcome;
    assert_eq!(refused.unwrap_err().code(), Some(Code::NotFound));
    home.ok(&["stream", "create", "brief"]).await.unwrap();
    let again = eventually(|| async {
        let client = node.client().await.unwrap();
        client.publish("brief", "0").await.ok()
    });
    assert_eq!(again.await.unwrap().offset, Some(0));
    assert_eq!(
        stream.publish(&target, &[b"1"]).await.unwrap().outcome,
        Ok(Some(1))
    );
    let (subscribed, mut events) = subscribe(&wire, ask("brief", Start::Earliest)).await;
    assert_eq!(subscribed.live_offset, Some(2));
    expect_numbers(&mut events, 0..2).await;
    let newer = self::incarnation(&node).await.unwrap();
    assert_ne!(newer, incarnation);
    node.stop().await.unwrap();
}

/// The incarnation of stream `brief` that is open.
async fn incarnation(node: &Node) -> Option<u64> {
    let shards = node.shards().await.unwrap();
    let brief = shards
        .iter()
        .find(|shard| shard["stream"] == "dev/default/brief" && shard["state"] == "open")?;
    brief["incarnation"].as_u64()
}

#[tokio::test]
async fn a_subscription_is_over_once_the_client_stops_its_stream() {
    let home = home();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let (first, mut events) = subscribe(&wire, ask("orders", Start::Latest)).await;
    let (second, mut other) = subscribe(&wire, ask("orders", Start::Latest)).await;
    assert_ne!(first.subscription_id, second.subscription_id);
    let ids = async || {
        let filter = SubscriptionFilter::default();
        let page = client.subscriptions(filter, None, None).await.unwrap();
        let ids = page
            .subscriptions
            .iter()
            .filter_map(|row| row.subscription_id);
        ids.collect::<Vec<u64>>()
    };
    assert_eq!(ids().await, [first.subscription_id, second.subscription_id]);
    events.stop();
    let left = eventually(|| async {
        let ids = ids().await;
        (ids.len() == 1).then_some(ids)
    });
    assert_eq!(left.await.unwrap(), [second.subscription_id]);
    publish_numbers(&node, "orders", 0..1).await;
    expect_numbers(&mut other, 0..1).await;
    // With the connection, the rest goes.
    wire.close().await;
    let left = eventually(|| async { ids().await.is_empty().then_some(()) });
    assert!(left.await.is_some());
    assert_eq!(
        node.metric("felix_broker_subscriptions").await.unwrap(),
        0.0
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn the_inside_of_a_node_is_for_those_who_may_view_it() {
    let home = home();
    let node = home.start().await.unwrap();
    publish_numbers(&node, "orders", 0..3).await;
    let operator = node.client().await.unwrap();
    let shard = operator.inspect_shard("orders", 0).await.unwrap();
    assert_eq!((shard.role.as_str(), shard.serving), ("leader", true));
    assert_eq!((shard.tail, shard.committed), (Some(3), Some(3)));
    let spec = json!({"permissions": ["stream.subscribe:stream:dev/default/*"]});
    let token = node.token(&home, spec).await.unwrap();
    let reader = node.client_with(&token).await.unwrap();
    let failed = reader.inspect_shard("orders", 0).await.unwrap_err();
    assert_eq!(failed.code(), "forbidden");
    let filter = SubscriptionFilter::default();
    let failed = reader.subscriptions(filter, None, None).await.unwrap_err();
    assert_eq!(failed.code(), "forbidden");
    node.stop().await.unwrap();
}
