//! Subscriptions that begin again: after a loss, elsewhere, and when they were overtaken.

use felix_client::Signal;
use felix_wire::message::{
    self, CursorReason, ShardMoved, SubscribeCursorError, SubscriptionLagged,
};

use super::fake::Authority;
use super::reading::{next, payloads, reading};

#[tokio::test]
async fn after_a_loss_reading_goes_on_at_the_next_offset() {
    let mut reading = reading(Some(0)).await;
    reading.events.batch(Some(0), &["a", "b"]).await;
    assert_eq!(payloads(&mut reading.subscription, 2).await, ["a", "b"]);
    let resume = async {
        reading.conn.drop_dead();
        let (conn, pipe) = reading.broker.welcome().await;
        let (subscribe, mut events) = conn.serve(9, Some(2)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(2)));
        events.batch(Some(2), &["c"]).await;
        (conn, pipe, events)
    };
    let read = async {
        let signal = reading.subscription.next_signal().await.unwrap().unwrap();
        assert!(
            matches!(signal, Signal::Resumed { at: Some(2) }),
            "{signal:?}"
        );
        payloads(&mut reading.subscription, 1).await
    };
    let (read, _kept) = tokio::join!(read, resume);
    assert_eq!(read, ["c"]);
    assert_eq!(reading.subscription.lost(), 0);
}

#[tokio::test]
async fn a_quiet_subscription_resumes_where_it_began() {
    let mut reading = reading(Some(17)).await;
    let resume = async {
        reading.events.reset();
        let (subscribe, events) = reading.conn.serve(2, Some(17)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(17)));
        events
    };
    let (signal, _events) = tokio::join!(reading.subscription.next_signal(), resume);
    assert!(matches!(signal, Ok(Some(Signal::Resumed { at: Some(17) }))));
}

#[tokio::test]
async fn a_reconnection_goes_on_although_nobody_waits_for_it_long() {
    let mut reading = reading(Some(0)).await;
    reading.conn.drop_dead();
    let resume = async {
        let (conn, pipe) = reading.broker.welcome().await;
        let (_, mut events) = conn.serve(9, Some(0)).await;
        events.batch(Some(0), &["a"]).await;
        (conn, pipe, events)
    };
    let read = async {
        loop {
            tokio::select! {
                biased;
                event = reading.subscription.next() => return event.unwrap().unwrap().payload,
                () = tokio::task::yield_now() => {}
            }
        }
    };
    let (payload, _kept) = tokio::join!(read, resume);
    assert_eq!(payload, "a");
}

#[tokio::test]
async fn a_moved_shard_is_followed_to_the_broker_that_was_named() {
    let authority = Authority::new();
    let (old, new) = (authority.broker(), authority.broker());
    let (client, conn, _pipe) = old.client().await;
    let subscribe = async { client.subscribe("orders").await };
    let (subscription, (_, mut events)) = tokio::join!(subscribe, conn.serve(1, Some(0)));
    let mut subscription = subscription.unwrap();
    events.batch(Some(0), &["a"]).await;
    let moved = ShardMoved {
        subscription_id: 1,
        resume_from: Some(1),
        node_id: Some("b".to_owned()),
        addr: Some(new.address()),
        generation: 2,
    };
    events.say(moved).await;
    events.finish();
    assert_eq!(payloads(&mut subscription, 1).await, ["a"]);
    let follow = async {
        let (conn, pipe) = new.welcome().await;
        let (subscribe, mut events) = conn.serve(1, Some(1)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(1)));
        events.batch(Some(1), &["b"]).await;
        (conn, pipe, events)
    };
    let read = async {
        let signal = subscription.next_signal().await.unwrap().unwrap();
        (signal, payloads(&mut subscription, 1).await)
    };
    let ((signal, read), _kept) = tokio::join!(read, follow);
    let address = new.address();
    assert!(matches!(signal, Signal::Moved { at: Some(1), broker } if broker == address));
    assert_eq!(read, ["b"]);
}

#[tokio::test]
async fn a_subscription_that_lagged_goes_on_after_the_last_event_it_got() {
    let mut reading = reading(Some(0)).await;
    reading.events.batch(Some(0), &["a"]).await;
    reading
        .events
        .say(SubscriptionLagged {
            subscription_id: 1,
            resume_from: 1,
        })
        .await;
    reading.events.finish();
    assert_eq!(payloads(&mut reading.subscription, 1).await, ["a"]);
    let serve = async {
        let (subscribe, events) = reading.conn.serve(2, Some(1)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(1)));
        events
    };
    let (signal, _events) = tokio::join!(reading.subscription.next_signal(), serve);
    assert!(matches!(
        signal,
        Ok(Some(Signal::Lagged {
            lost: 0,
            at: Some(1)
        }))
    ));
}

#[tokio::test]
async fn who_was_overtaken_by_retention_is_told_how_much_is_missing() {
    let mut reading = reading(Some(5)).await;
    let serve = async {
        reading.events.reset();
        let (_, mut refused) = reading.conn.subscribe().await;
        let reason = CursorReason::TooOld;
        let gone = SubscribeCursorError {
            reason,
            requested: 5,
            available: 30,
            trim_headers: None,
        };
        refused.say(gone).await;
        let (subscribe, events) = reading.conn.serve(2, Some(30)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(30)));
        events
    };
    let (signal, _events) = tokio::join!(reading.subscription.next_signal(), serve);
    assert!(matches!(
        signal,
        Ok(Some(Signal::Lagged {
            lost: 25,
            at: Some(30)
        }))
    ));
    assert_eq!(reading.subscription.lost(), 25);
}

#[tokio::test]
async fn an_in_memory_stream_resumes_with_the_newest() {
    let mut reading = reading(None).await;
    reading.events.batch(None, &["a"]).await;
    assert_eq!(next(&mut reading.subscription).await.offset, None);
    let resume = async {
        reading.events.reset();
        let (subscribe, events) = reading.conn.serve(2, None).await;
        assert_eq!(subscribe.start, Some(message::Start::Latest));
        events
    };
    let (signal, _events) = tokio::join!(reading.subscription.next_signal(), resume);
    assert!(matches!(signal, Ok(Some(Signal::Resumed { at: None }))));
}
