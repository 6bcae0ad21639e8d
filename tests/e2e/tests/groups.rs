//! Consumer groups as published clients see them, with a real broker that is really killed.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use felix_client::Client;
use felix_e2e::raw::Wire;
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::message::{GroupDescription, GroupPosition, GroupRecord, Message};
use serde_json::{Value, json};

const STREAM: &str = "orders";

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

/// One request on a stream of its own, as the published client sends it.
async fn ask(wire: &Wire, kind: &str, extra: Value) -> Message {
    let mut request = json!({
        "type": kind, "tenant_id": "dev", "namespace": "default", "stream": STREAM,
        "shard": 0, "group": "g", "request_id": 7,
    });
    for (field, value) in extra.as_object().unwrap() {
        request[field] = value.clone();
    }
    let mut stream = wire.authenticated().await.unwrap();
    let answer = stream.ask_json(&request).await.unwrap();
    stream.finish().unwrap();
    answer
}

async fn poll(wire: &Wire, extra: Value) -> Vec<GroupRecord> {
    let mut all = json!({ "max_records": 10, "wait_ms": 0 });
    for (field, value) in extra.as_object().unwrap() {
        all[field] = value.clone();
    }
    match ask(wire, "group_poll", all).await {
        Message::GroupRecords(records) => records.records,
        other => panic!("{other:?}"),
    }
}

async fn fine(wire: &Wire, kind: &str, extra: Value) {
    let answer = ask(wire, kind, extra).await;
    assert!(matches!(answer, Message::CacheOk(_)), "{kind}: {answer:?}");
}

async fn refused(wire: &Wire, kind: &str, extra: Value) -> Failure {
    match ask(wire, kind, extra).await {
        Message::Error(failure) => failure,
        other => panic!("{kind}: {other:?}"),
    }
}

async fn describe(wire: &Wire) -> GroupDescription {
    match ask(wire, "group_describe", json!({})).await {
        Message::GroupDescription(description) => description,
        other => panic!("{other:?}"),
    }
}

async fn seek(wire: &Wire, extra: Value) -> GroupPosition {
    match ask(wire, "group_seek", extra).await {
        Message::GroupPosition(position) => position,
        other => panic!("{other:?}"),
    }
}

async fn dead_letters(wire: &Wire) -> Vec<u64> {
    match ask(wire, "group_dead_letters", json!({})).await {
        Message::GroupDeadLetterList(list) => list.offsets,
        other => panic!("{other:?}"),
    }
}

fn offsets(records: &[GroupRecord]) -> Vec<u64> {
    records.iter().map(|record| record.offset).collect()
}

async fn publish(client: &Client, numbers: std::ops::Range<u64>) {
    let payloads: Vec<String> = numbers.map(|number| number.to_string()).collect();
    if !payloads.is_empty() {
        client.publish_batch(STREAM, payloads).await.unwrap();
    }
}

async fn started(home: &Home, records: u64) -> (Node, Wire) {
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", STREAM]).await.unwrap();
    publish(&node.client().await.unwrap(), 0..records).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    (node, wire)
}

async fn restarted(home: &Home, node: Node) -> (Node, Wire) {
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    (node, wire)
}

#[tokio::test]
async fn acks_for_claims_made_before_a_kill_are_accepted_and_nothing_comes_again() {
    let home = home();
    let (node, wire) = started(&home, 10).await;
    let records = poll(&wire, json!({})).await;
    assert_eq!(offsets(&records), (0..10).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.attempts == 1));
    let (node, wire) = restarted(&home, node).await;
    for offset in 0..10 {
        fine(&wire, "group_ack", json!({ "offset": offset })).await;
    }
    assert_eq!(poll(&wire, json!({})).await, []);
    let group = describe(&wire).await;
    assert_eq!((group.committed, group.tail), (Some(10), 10));
    assert_eq!((group.in_flight, group.owed), (0, 0));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_names_itself_takes_its_own_claims_over_at_once() {
    let home = home();
    let (node, first) = started(&home, 3).await;
    let named = json!({ "consumer": "w1", "reclaim": true });
    assert_eq!(offsets(&poll(&first, named.clone()).await), [0, 1, 2]);
    // Somebody else, and the same connection, get nothing.
    let second = Wire::connect(node.ready()).await.unwrap();
    let other = json!({ "consumer": "w2", "reclaim": true });
    assert_eq!(poll(&second, other).await, []);
    assert_eq!(poll(&first, named.clone()).await, []);
    let third = Wire::connect(node.ready()).await.unwrap();
    let again = poll(&third, named.clone()).await;
    assert_eq!(offsets(&again), [0, 1, 2]);
    assert!(again.iter().all(|record| record.attempts == 2), "{again:?}");
    // Once for a connection.
    assert_eq!(poll(&third, named).await, []);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_kill_after_every_odd_ack_leaves_exactly_the_even_ones() {
    let home = home();
    let (node, wire) = started(&home, 1_000).await;
    let mut seen = Vec::new();
    while seen.len() < 1_000 {
        let records = poll(&wire, json!({ "max_records": 200, "wait_ms": 5_000 })).await;
        assert!(!records.is_empty(), "after {}", seen.len());
        seen.extend(offsets(&records));
    }
    assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
    for offset in (1..1_000).step_by(2) {
        fine(&wire, "group_ack", json!({ "offset": offset })).await;
    }
    let (node, wire) = restarted(&home, node).await;
    assert_eq!(describe(&wire).await.owed, 500);
    let mut left = Vec::new();
    loop {
        let records = poll(&wire, json!({ "max_records": 64 })).await;
        if records.is_empty() {
            break;
        }
        for record in &records {
            assert_eq!(record.attempts, 2);
            assert_eq!(record.payload, record.offset.to_string());
            fine(&wire, "group_ack", json!({ "offset": record.offset })).await;
        }
        left.extend(offsets(&records));
    }
    assert_eq!(left, (0..1_000).step_by(2).collect::<Vec<_>>());
    assert_eq!(describe(&wire).await.committed, Some(1_000));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn poison_is_set_aside_after_five_attempts_and_holds_up_nobody() {
    let home = home();
    let (node, wire) = started(&home, 4).await;
    for attempt in 1..=5 {
        let records = poll(&wire, json!({ "max_records": 1 })).await;
        assert_eq!(offsets(&records), [0]);
        assert_eq!(records.first().unwrap().attempts, attempt);
        let nack = json!({ "offset": 0, "attempts": attempt });
        fine(&wire, "group_nack", nack).await;
    }
    assert_eq!(dead_letters(&wire).await, [0]);
    assert_eq!(offsets(&poll(&wire, json!({})).await), [1, 2, 3]);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn attempts_are_counted_through_kills() {
    let home = home();
    let (mut node, mut wire) = started(&home, 1).await;
    for attempt in 1..=5 {
        let records = poll(&wire, json!({})).await;
        assert_eq!(records.first().unwrap().attempts, attempt);
        (node, wire) = restarted(&home, node).await;
    }
    let set_aside = eventually(async || (dead_letters(&wire).await == [0]).then_some(())).await;
    assert!(set_aside.is_some(), "{:?}", describe(&wire).await);
    assert_eq!(poll(&wire, json!({})).await, []);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn dead_letters_survive_a_kill_and_are_redriven_or_discarded() {
    let home = home();
    let (node, wire) = started(&home, 3).await;
    poll(&wire, json!({})).await;
    for offset in 0..3 {
        fine(&wire, "group_dead_letter", json!({ "offset": offset })).await;
    }
    let again = refused(&wire, "group_dead_letter", json!({ "offset": 1 })).await;
    assert_eq!(again.code(), Some(Code::InvalidRequest));
    fine(&wire, "group_discard", json!({ "offset": 0 })).await;
    let (node, wire) = restarted(&home, node).await;
    assert_eq!(dead_letters(&wire).await, [1, 2]);
    fine(&wire, "group_redrive", json!({ "offset": 2 })).await;
    let gone = refused(&wire, "group_redrive", json!({ "offset": 2 })).await;
    assert_eq!(gone.code(), Some(Code::InvalidRequest));
    let redriven = poll(&wire, json!({})).await;
    assert_eq!(offsets(&redriven), [2]);
    let record = redriven.first().unwrap();
    assert_eq!((record.attempts, &record.payload[..]), (1, &b"2"[..]));
    fine(&wire, "group_ack", json!({ "offset": 2 })).await;
    let (node, wire) = restarted(&home, node).await;
    assert_eq!(dead_letters(&wire).await, [1]);
    assert_eq!(poll(&wire, json!({})).await, []);
    let metric = node.metric("felix_group_dead_letters").await.unwrap();
    assert!((metric - 1.0).abs() < f64::EPSILON, "{metric}");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_seek_voids_claims_and_if_new_moves_only_what_never_was() {
    let home = home();
    let (node, wire) = started(&home, 10).await;
    let created = seek(&wire, json!({ "start": "latest", "if_new": true })).await;
    assert_eq!((created.offset, created.moved), (10, true));
    let kept = seek(&wire, json!({ "start": "earliest", "if_new": true })).await;
    assert_eq!((kept.offset, kept.moved), (10, false));
    let moved = seek(&wire, json!({ "start": { "offset": 4 } })).await;
    assert_eq!((moved.offset, moved.moved), (4, true));
    assert_eq!(offsets(&poll(&wire, json!({})).await), [4, 5, 6, 7, 8, 9]);
    seek(&wire, json!({ "start": { "offset": 6 } })).await;
    let stale = refused(&wire, "group_ack", json!({ "offset": 7 })).await;
    assert_eq!(stale.code(), Some(Code::StaleClaim));
    fine(&wire, "group_ack", json!({ "offset": 5 })).await;
    let nack = json!({ "offset": 7, "attempts": 1 });
    let stale = refused(&wire, "group_nack", nack).await;
    assert_eq!(stale.code(), Some(Code::StaleClaim));
    assert_eq!(offsets(&poll(&wire, json!({})).await), [6, 7, 8, 9]);
    let beyond = refused(&wire, "group_seek", json!({ "start": { "offset": 11 } })).await;
    assert_eq!(beyond.code(), Some(Code::InvalidRequest));
    let past = refused(&wire, "group_ack", json!({ "offset": 10 })).await;
    assert_eq!(past.code(), Some(Code::InvalidRequest));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_is_extended_returned_and_named_by_its_attempts() {
    let home = home();
    let (node, wire) = started(&home, 2).await;
    poll(&wire, json!({ "max_records": 1, "visibility_ms": 60_000 })).await;
    let extend = json!({ "offset": 0, "attempts": 1, "extend_ms": 90_000 });
    match ask(&wire, "group_extend", extend).await {
        Message::GroupExtended(extended) => assert_eq!(extended.visible_ms, 90_000),
        other => panic!("{other:?}"),
    }
    let nothing = json!({ "offset": 0, "attempts": 1, "extend_ms": 0 });
    let zero = refused(&wire, "group_extend", nothing).await;
    assert_eq!(zero.code(), Some(Code::InvalidRequest));
    for kind in ["group_extend", "group_nack"] {
        let other = json!({ "offset": 0, "attempts": 2, "extend_ms": 5, "delay_ms": 5 });
        let stale = refused(&wire, kind, other).await;
        assert_eq!(stale.code(), Some(Code::StaleClaim), "{kind}");
        assert_eq!(stale.retry(), Retry::Fatal, "{kind}");
    }
    // Given back for an hour: not now, but the next one is.
    let rest = json!({ "offset": 0, "attempts": 1, "delay_ms": 3_600_000 });
    fine(&wire, "group_nack", rest).await;
    assert_eq!(offsets(&poll(&wire, json!({})).await), [1]);
    let group = describe(&wire).await;
    assert_eq!((group.in_flight, group.owed), (1, 1));
    // A claim that lapses is owed again, and a poll that waits gets it then.
    seek(&wire, json!({ "start": "earliest" })).await;
    poll(&wire, json!({ "visibility_ms": 50 })).await;
    let again = poll(&wire, json!({ "wait_ms": 20_000 })).await;
    assert_eq!(offsets(&again), [0, 1]);
    assert!(again.iter().all(|record| record.attempts == 2));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_waiting_poll_gets_what_is_published_and_one_whose_client_left_takes_nothing() {
    let home = home();
    let (node, wire) = started(&home, 0).await;
    let left = Wire::connect(node.ready()).await.unwrap();
    let mut gone = left.authenticated().await.unwrap();
    let request = json!({
        "type": "group_poll", "tenant_id": "dev", "namespace": "default", "stream": STREAM,
        "shard": 0, "group": "g", "request_id": 1, "max_records": 10, "wait_ms": 30_000,
    });
    gone.write(&frame(&request)).await.unwrap();
    gone.finish().unwrap();
    let waits = async || (waiting(&node).await == 1).then_some(());
    eventually(waits).await.unwrap();
    left.close().await;
    let left_alone = async || (waiting(&node).await == 0).then_some(());
    eventually(left_alone).await.unwrap();
    let client = node.client().await.unwrap();
    let (records, ()) = tokio::join!(poll(&wire, json!({ "wait_ms": 30_000 })), async {
        eventually(async || (waiting(&node).await == 1).then_some(()))
            .await
            .unwrap();
        publish(&client, 0..3).await;
    });
    assert_eq!(offsets(&records), [0, 1, 2]);
    assert!(records.iter().all(|record| record.attempts == 1));
    assert!(
        records
            .iter()
            .all(|record| record.timestamp_micros.is_some())
    );
    node.stop().await.unwrap();
}

fn frame(request: &Value) -> bytes::Bytes {
    felix_wire::frame::Frame {
        flags: felix_wire::flags::Flags::NONE,
        payload: request.to_string().into(),
    }
    .encode()
}

/// Polls that wait, as the operator's listing has them.
async fn waiting(node: &Node) -> u64 {
    let listing: Value = node.admin("groups").await.unwrap().json().await.unwrap();
    let groups = listing["groups"].as_array().unwrap();
    groups
        .iter()
        .map(|group| group["waiting_polls"].as_u64().unwrap())
        .sum()
}

#[tokio::test]
async fn a_deleted_group_begins_anew_and_an_in_memory_stream_has_none() {
    let home = home();
    let (node, wire) = started(&home, 2).await;
    poll(&wire, json!({})).await;
    fine(&wire, "group_ack", json!({ "offset": 0 })).await;
    for existed in [true, false] {
        match ask(&wire, "group_delete", json!({})).await {
            Message::GroupDeleted(deleted) => assert_eq!(deleted.existed, existed),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(describe(&wire).await.committed, None);
    assert_eq!(offsets(&poll(&wire, json!({})).await), [0, 1]);
    home.ok(&["stream", "create", "ring", "--durable", "false"])
        .await
        .unwrap();
    let in_memory = json!({ "stream": "ring", "max_records": 1, "wait_ms": 0 });
    let failure = refused(&wire, "group_poll", in_memory).await;
    assert_eq!(failure.code(), Some(Code::InvalidRequest));
    assert_eq!(failure.reason(), Some("not_durable"));
    let long = json!({ "group": "x".repeat(129), "max_records": 1, "wait_ms": 0 });
    let failure = refused(&wire, "group_poll", long).await;
    assert_eq!(failure.code(), Some(Code::InvalidRequest));
    // A stream that is created again under its name has no groups of the earlier one.
    home.ok(&["stream", "rm", STREAM, "--yes"]).await.unwrap();
    home.ok(&["stream", "create", STREAM]).await.unwrap();
    publish(&node.client().await.unwrap(), 0..1).await;
    assert_eq!(describe(&wire).await.committed, None);
    assert_eq!(offsets(&poll(&wire, json!({})).await), [0]);
    node.stop().await.unwrap();
}
