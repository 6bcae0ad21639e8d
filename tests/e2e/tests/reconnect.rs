//! What a client sees of a node that is killed and comes back on the same ports.

use std::time::Duration;

use felix_client::{CallFailed, PublishFailed, Publisher, ReconnectPolicy, Retry};
use felix_e2e::Home;
use felix_e2e::raw::Wire;

/// Longer than any reconnect takes; the test ends as soon as the record is there.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_subscription_goes_on_where_it_was_after_a_kill() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e"))
        .unwrap()
        .on_fixed_ports()
        .unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let mut subscription = client.subscribe("orders").from_earliest().await.unwrap();
    let mut expected = 0;
    for _ in 0..5 {
        client.publish("orders", "before").await.unwrap();
        let event = tokio::time::timeout(SOON, subscription.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(event.offset, Some(expected));
        expected += 1;
    }
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    // Published by another client, so that only the subscription has to find its way back.
    for _ in 0..5 {
        home.ok(&["pub", "orders", "after"]).await.unwrap();
    }
    for _ in 0..5 {
        let event = tokio::time::timeout(SOON, subscription.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(
            (event.offset, &event.payload[..]),
            (Some(expected), &b"after"[..])
        );
        expected += 1;
    }
    // The same client publishes again, once it has a connection.
    let published = tokio::time::timeout(SOON, client.publish("orders", "again"))
        .await
        .unwrap();
    assert_eq!(published.unwrap().offset, Some(expected));
    node.stop().await.unwrap();
}

/// What became of a publish, with its payload.
type Outcome = (String, Result<Option<u64>, PublishFailed>);

async fn publish(publisher: &Publisher, payload: String) -> Outcome {
    let published = publisher.publish(payload.clone()).await;
    (payload, published.map(|published| published.offset))
}

#[tokio::test]
async fn while_the_one_node_is_away_publishes_fail_as_retryable_or_wait_and_nothing_acked_is_lost()
{
    const BEFORE: u64 = 50;
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e"))
        .unwrap()
        .on_fixed_ports()
        .unwrap();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "safe", "--sync", "on_commit"])
        .await
        .unwrap();
    let patient = node.client().await.unwrap();
    let impatient = node
        .builder()
        .connect_timeout(Duration::from_secs(1))
        .reconnect(ReconnectPolicy::never());
    let impatient = impatient.connect().await.unwrap();
    let (patient, impatient) = (
        patient.publisher("safe").unwrap(),
        impatient.publisher("safe").unwrap(),
    );
    for number in 0..BEFORE {
        let publisher = if number % 2 == 0 {
            &patient
        } else {
            &impatient
        };
        let (_, published) = publish(publisher, format!("before {number}")).await;
        assert_eq!(published.unwrap(), Some(number));
    }
    // Seen by somebody else, so that the clients under test are surprised.
    let watch = Wire::connect(node.ready()).await.unwrap();
    assert!(node.stop().await.unwrap().success());
    watch.connection.closed().await;
    let waiting = tokio::spawn({
        let patient = patient.clone();
        async move { publish(&patient, "waits".to_owned()).await }
    });
    for number in 0..5 {
        let (payload, outcome) = publish(&impatient, format!("away {number}")).await;
        assert_retryable(&payload, &outcome.unwrap_err());
    }
    assert!(!waiting.is_finished());

    let node = home.start().await.unwrap();
    let (payload, outcome) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(
        (payload.as_str(), outcome.unwrap()),
        ("waits", Some(BEFORE))
    );
    // The impatient one finds the node, too, without being told.
    let mut tries = 0;
    let after = loop {
        let (payload, outcome) = publish(&impatient, format!("after {tries}")).await;
        match outcome {
            Ok(offset) => break (payload, offset),
            Err(failed) => assert_retryable(&payload, &failed),
        }
        tries += 1;
        assert!(tries < 1_000, "it does not find the node again");
    };
    assert_eq!(after.1, Some(BEFORE + 1));
    let mut expected: Vec<_> = (0..BEFORE)
        .map(|number| format!("before {number}"))
        .collect();
    // Nothing was sent while nobody was there.
    expected.extend(["waits".to_owned(), after.0]);
    assert_eq!(home.payloads("safe").await.unwrap(), expected);
    node.stop().await.unwrap();
}

/// A publish that nobody took is typed, and says whether sending it again can do it twice.
fn assert_retryable(payload: &str, failed: &PublishFailed) {
    let is_typed = matches!(failed, PublishFailed::Call(_));
    let in_doubt = matches!(failed, PublishFailed::Call(CallFailed::Unanswered { .. }));
    let retry = failed.retry();
    let right = is_typed && (retry.is_safe() || (in_doubt && retry == Retry::OutcomeUnknown));
    assert!(right, "{payload}: {failed}: {:?}", failed.retry());
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_nobody_and_catches_up_completely() {
    const RECORDS: u64 = 3_000;
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    // Each on a connection of its own, as two people would be; the first does not read for now.
    let stopped = node.client().await.unwrap();
    let mut stopped = stopped.subscribe("orders").from_earliest().await.unwrap();
    let reading = node.client().await.unwrap();
    let mut reading = reading.subscribe("orders").from_earliest().await.unwrap();
    let payload = vec![7; 8 * 1024];
    for number in 0..RECORDS {
        let published = client.publish("orders", payload.clone()).await.unwrap();
        assert_eq!(published.offset, Some(number));
        let event = tokio::time::timeout(SOON, reading.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(event.offset, Some(number));
    }
    for number in 0..RECORDS {
        let event = tokio::time::timeout(SOON, stopped.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(
            (event.offset, event.payload.len()),
            (Some(number), payload.len())
        );
    }
    assert_eq!(stopped.lost(), 0);
    node.stop().await.unwrap();
}
