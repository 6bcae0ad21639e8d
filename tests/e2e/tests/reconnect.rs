//! What a client sees of a node that is killed and comes back on the same ports.

use std::time::Duration;

use felix_e2e::Home;

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
