//! Records that become visible at a given time, and batches of acks, by our own client and a broker that is really
//! killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::time::{Duration, SystemTime};

use felix_client::{Claim, GroupRecord, PollOptions};
use felix_e2e::{Home, Node, eventually};

const STREAM: &str = "orders";

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

fn claim(record: &GroupRecord) -> Claim {
    Claim {
        offset: record.offset,
        attempts: record.attempts,
    }
}

async fn payloads(home: &Home) -> Vec<String> {
    home.payloads(STREAM).await.unwrap()
}

async fn restarted(home: &Home, node: Node) -> Node {
    node.kill().await.unwrap();
    home.start().await.unwrap()
}

#[tokio::test]
async fn scheduled_records_appear_once_in_the_order_of_their_times_through_kills() {
    let home = home();
    let mut node = home.start().await.unwrap();
    home.ok(&["stream", "create", STREAM]).await.unwrap();
    let now = SystemTime::now();
    let schedule = node.client().await.unwrap().schedule(STREAM).unwrap();
    for number in (0..40_u32).rev() {
        let due = now + Duration::from_millis(4_000 + u64::from(number) * 30);
        let added = schedule
            .add_named(&format!("s{number}"), due, number.to_string())
            .await
            .unwrap();
        assert!(!added.repeated);
    }
    let far = now + Duration::from_secs(3_600);
    schedule.add_named("never", far, "never").await.unwrap();
    let again = schedule.add_named("never", now, "never").await.unwrap();
    assert!(again.repeated);
    assert!(again.due_ms > 0);
    // Killed before, amid and after: each is there once all the same.
    for wanted in [0, 10, 25, 40] {
        let reached = async || (payloads(&home).await.len() >= wanted).then_some(());
        eventually(reached).await.unwrap();
        node = restarted(&home, node).await;
    }
    let expected: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    assert_eq!(payloads(&home).await, expected);
    let schedule = node.client().await.unwrap().schedule(STREAM).unwrap();
    let known = schedule.add_named("s7", now, "7").await.unwrap();
    assert!(known.repeated, "appended a short time ago");
    assert!(schedule.cancel("never").await.unwrap());
    assert!(!schedule.cancel("never").await.unwrap());
    // In the past it is due at once.
    schedule.add(now, "late").await.unwrap();
    let late = async || (payloads(&home).await.len() == 41).then_some(());
    eventually(late).await.unwrap();
    let metric = node.metric("felix_scheduled_records").await.unwrap();
    assert!(metric.abs() < f64::EPSILON, "{metric}");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_batch_of_acks_finishes_what_stands_and_names_what_does_not() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", STREAM]).await.unwrap();
    let client = node.client().await.unwrap();
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    client.publish_batch(STREAM, numbers).await.unwrap();
    let group = client.group(STREAM, "g").unwrap();
    let options = PollOptions {
        max_records: 60,
        consumer: Some("w1".to_owned()),
        ..PollOptions::default()
    };
    let records = group.poll(0, &options).await.unwrap();
    assert_eq!(records.len(), 60);
    let claims: Vec<Claim> = records.iter().map(claim).collect();
    // Another consumer's claims are not his to finish.
    let foreign = group.ack(0, &claims, Some("w2")).await.unwrap();
    assert_eq!(foreign.len(), 60);
    let (odd, even): (Vec<Claim>, Vec<Claim>) =
        claims.into_iter().partition(|claim| claim.offset % 2 == 1);
    assert_eq!(group.ack(0, &odd, Some("w1")).await.unwrap(), []);
    let node = restarted(&home, node).await;
    let client = node.client().await.unwrap();
    let group = client.group(STREAM, "g").unwrap();
    // Nobody got them since, so their deliveries can still be finished.
    assert_eq!(group.ack(0, &even[..10], Some("w1")).await.unwrap(), []);
    let mut left = Vec::new();
    loop {
        let records = group.poll(0, &options).await.unwrap();
        if records.is_empty() {
            break;
        }
        let claims: Vec<Claim> = records.iter().map(claim).collect();
        left.extend(records.iter().map(|record| record.offset));
        assert_eq!(group.ack(0, &claims, Some("w1")).await.unwrap(), []);
    }
    let expected: Vec<u64> = (20..60).step_by(2).chain(60..100).collect();
    assert_eq!(left, expected);
    let standing = group.describe(0).await.unwrap();
    assert_eq!(standing.committed, Some(100));
    node.stop().await.unwrap();
}
