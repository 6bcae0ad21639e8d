//! A subscription that stands, and how tests read it.

use bytes::Bytes;
use felix_client::{Client, Event, Subscription};

use super::fake::{FakeBroker, FakeConn, FakeStream};

/// A client with one subscription that stands at offset 0.
pub(crate) struct Reading {
    pub(crate) broker: FakeBroker,
    pub(crate) client: Client,
    pub(crate) conn: FakeConn,
    pub(crate) subscription: Subscription,
    pub(crate) events: FakeStream,
    pub(crate) _pipe: FakeStream,
}

pub(crate) async fn reading(start: Option<u64>) -> Reading {
    let broker = FakeBroker::start();
    let (client, conn, pipe) = broker.client().await;
    let subscribe = async { client.subscribe("orders").await };
    let (subscription, (_, events)) = tokio::join!(subscribe, conn.serve(1, start));
    let subscription = subscription.unwrap();
    Reading {
        broker,
        client,
        conn,
        subscription,
        events,
        _pipe: pipe,
    }
}

pub(crate) async fn next(subscription: &mut Subscription) -> Event {
    subscription
        .next()
        .await
        .expect("no failure")
        .expect("an event")
}

pub(crate) async fn payloads(subscription: &mut Subscription, count: usize) -> Vec<Bytes> {
    let mut all = Vec::new();
    while all.len() < count {
        all.push(next(subscription).await.payload);
    }
    all
}
