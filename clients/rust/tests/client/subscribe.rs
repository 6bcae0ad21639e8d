//! Subscriptions: how they begin, what they deliver and how they end.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use felix_client::{ReadFailed, Signal, Start};
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, Payloads};
use felix_wire::error::{Code, Failure};
use felix_wire::event::EventHead;
use felix_wire::extension::Deliver;
use felix_wire::message::{
    self, CursorReason, EventMany, EventOne, EventStreamHello, Message, NotLeader, OffsetValue,
    StreamDeleted, StreamShardsView, SubscribeCursorError,
};

use super::fake::{Authority, FakeBroker, subscribed};
use super::reading::{Reading, next, payloads, reading};

#[tokio::test]
async fn events_come_with_their_offsets_and_batches_as_they_were_sent() {
    let mut reading = reading(Some(0)).await;
    reading.events.batch(Some(0), &["a", "b"]).await;
    reading.events.batch(Some(2), &["c", "d"]).await;
    let first = next(&mut reading.subscription).await;
    assert_eq!((first.offset, first.payload), (Some(0), "a".into()));
    assert_eq!(reading.subscription.position(), Some(1));
    assert_eq!(next(&mut reading.subscription).await.offset, Some(1));
    let batch = reading.subscription.next_batch().await.unwrap().unwrap();
    assert_eq!(
        (batch.first_offset(), batch.next_offset()),
        (Some(2), Some(4))
    );
    assert_eq!(batch.payloads().collect::<Vec<_>>(), ["c", "d"]);
}

#[tokio::test]
async fn a_hello_may_come_first_and_one_that_is_late_holds_up_nobody() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let serve = async {
        let (_, mut first) = conn.subscribe().await;
        let mut early = conn.events(1).await;
        early.batch(Some(0), &["early"]).await;
        first.say(subscribed(1, Some(0))).await;
        let (_, mut second) = conn.subscribe().await;
        // This stream is accepted before the next one and says nothing.
        let mut late = conn.silent_events().await;
        late.write(Bytes::from_static(b"FLX1")).await;
        second.say(subscribed(3, Some(0))).await;
        let mut events = conn.events(3).await;
        events.batch(Some(0), &["not held up"]).await;
        (early, late, events)
    };
    let subscribe = async {
        let mut first = client.subscribe("orders").await.unwrap();
        let mut second = client.subscribe("orders").await.unwrap();
        (
            next(&mut first).await.payload,
            next(&mut second).await.payload,
        )
    };
    let (payloads, _streams) = tokio::join!(subscribe, serve);
    assert_eq!(payloads, ("early".into(), "not held up".into()));
}

#[tokio::test]
async fn a_future_that_is_dropped_loses_nothing() {
    let mut reading = reading(Some(0)).await;
    let send = async {
        for offset in 0..50 {
            reading.events.batch(Some(offset), &["x"]).await;
            tokio::task::yield_now().await;
        }
    };
    let read = async {
        let mut seen = Vec::new();
        while seen.len() < 50 {
            tokio::select! {
                biased;
                event = reading.subscription.next() => seen.push(event.unwrap().unwrap().offset.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        seen
    };
    let ((), seen) = tokio::join!(send, read);
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn missing_offsets_are_counted_unless_they_hold_no_event() {
    let mut reading = reading(Some(0)).await;
    reading.events.batch(Some(0), &["a"]).await;
    let head = EventHead {
        base_offset: Some(4),
        skipped_before: 2,
        ..EventHead::default()
    };
    reading.events.batch_with(head, &["b"]).await;
    reading.subscription.next_batch().await.unwrap().unwrap();
    let batch = reading.subscription.next_batch().await.unwrap().unwrap();
    assert_eq!(batch.lost_before(), 1);
    assert_eq!(reading.subscription.lost(), 1);
}

#[tokio::test]
async fn what_was_delivered_before_is_not_delivered_again() {
    let mut reading = reading(Some(0)).await;
    reading.events.batch(Some(0), &["a", "b"]).await;
    reading.events.batch(Some(0), &["a", "b"]).await;
    reading.events.batch(Some(1), &["b", "c"]).await;
    assert_eq!(
        payloads(&mut reading.subscription, 3).await,
        ["a", "b", "c"]
    );
}

#[tokio::test]
async fn events_of_the_oldest_form_are_read() {
    let mut reading = reading(Some(0)).await;
    let (tenant_id, namespace, stream) =
        ("t1".to_owned(), "default".to_owned(), "orders".to_owned());
    let one = EventOne {
        tenant_id: tenant_id.clone(),
        namespace: namespace.clone(),
        stream: stream.clone(),
        payload: "a".into(),
        offset: Some(0),
    };
    reading.events.say(one).await;
    let payloads_sent = Payloads::build([b"b".as_slice(), b"c"]).unwrap();
    let many = EventMany {
        tenant_id,
        namespace,
        stream,
        payloads: payloads_sent,
        base_offset: Some(1),
    };
    reading.events.say(many).await;
    assert_eq!(
        payloads(&mut reading.subscription, 3).await,
        ["a", "b", "c"]
    );
    assert_eq!(reading.subscription.position(), Some(3));
}

#[tokio::test]
async fn a_deleted_stream_is_told_and_ends() {
    let mut reading = reading(Some(0)).await;
    reading
        .events
        .say(StreamDeleted { subscription_id: 1 })
        .await;
    reading.events.finish();
    let signal = reading.subscription.next_signal().await;
    assert!(matches!(signal, Ok(Some(Signal::Deleted))));
    assert!(matches!(reading.subscription.next_signal().await, Ok(None)));
}

#[tokio::test]
async fn an_error_is_told_once_and_a_plain_end_is_the_end() {
    let mut first = reading(Some(0)).await;
    first
        .events
        .say(Message::Error(Failure::new(Code::Revoked, "gone")))
        .await;
    let failed = first.subscription.next().await.unwrap_err();
    assert_eq!(failed.code(), "revoked");
    assert!(matches!(first.subscription.next().await, Ok(None)));
    let mut second = reading(Some(0)).await;
    second.events.finish();
    assert!(matches!(second.subscription.next().await, Ok(None)));
}

#[tokio::test]
async fn nonsense_on_an_event_stream_ends_it_with_a_typed_error() {
    let mut reading = reading(Some(0)).await;
    reading
        .events
        .say(EventStreamHello { subscription_id: 1 })
        .await;
    assert_eq!(
        reading.subscription.next().await.unwrap_err().code(),
        "protocol"
    );
}

#[tokio::test]
async fn dropping_a_subscription_tells_the_broker() {
    let Reading {
        subscription,
        mut events,
        conn,
        client,
        ..
    } = reading(Some(0)).await;
    drop(subscription);
    events.stopped().await;
    drop((conn, client));
}

#[tokio::test]
async fn refusals_of_a_start_are_typed() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let cursor = |reason, available| {
        Message::from(SubscribeCursorError {
            reason,
            requested: 3,
            available,
            trim_headers: None,
        })
    };
    let unknown = Message::Error(Failure::new(Code::NotFound, "no such stream"));
    let answers = [
        cursor(CursorReason::TooOld, 9),
        cursor(CursorReason::InFuture, 2),
        unknown,
    ];
    let serve = async {
        for answer in answers {
            conn.subscribe().await.1.say(answer).await;
        }
    };
    let ask = async {
        let mut failures = Vec::new();
        for _ in 0..3 {
            failures.push(client.subscribe("orders").from_offset(3).await.unwrap_err());
        }
        failures
    };
    let (failures, ()) = tokio::join!(ask, serve);
    assert_eq!(
        failures[0],
        ReadFailed::TooOld {
            requested: 3,
            oldest: 9
        }
    );
    assert_eq!(
        failures[1],
        ReadFailed::InFuture {
            requested: 3,
            next: 2
        }
    );
    assert_eq!(failures[2].code(), "not_found");
}

#[tokio::test]
async fn a_redirect_is_followed() {
    let authority = Authority::new();
    let (entry, leader) = (authority.broker(), authority.broker());
    let (client, conn, _pipe) = entry.client().await;
    let serve = async {
        let (_, mut stream) = conn.subscribe().await;
        let node_id = "b".to_owned();
        stream
            .say(NotLeader {
                node_id,
                addr: Some(leader.address()),
                generation: 1,
            })
            .await;
        let (conn, pipe) = leader.welcome().await;
        let (_, mut events) = conn.serve(1, Some(0)).await;
        events.batch(Some(0), &["a"]).await;
        (conn, pipe, events)
    };
    let read = async {
        let mut subscription = client.subscribe("orders").await.unwrap();
        payloads(&mut subscription, 1).await
    };
    let (read, _kept) = tokio::join!(read, serve);
    assert_eq!(read, ["a"]);
}

#[tokio::test]
async fn a_time_is_looked_up_and_nothing_is_missed_when_nothing_is_that_recent_yet() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer_time = async |offset| {
        let (Message::OffsetForTime(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        assert_eq!(ask.at_micros, 5_000_000);
        stream
            .say(OffsetValue {
                offset,
                request_id: ask.request_id,
            })
            .await;
    };
    let serve = async {
        answer_time(None).await;
        let (_, at_end) = conn.serve(1, Some(8)).await;
        // Two records were appended between the question and the subscription.
        answer_time(Some(6)).await;
        let (subscribe, events) = conn.serve(2, Some(6)).await;
        assert_eq!(subscribe.start, Some(message::Start::Offset(6)));
        (at_end, events)
    };
    let time = UNIX_EPOCH + Duration::from_secs(5);
    let subscribe = async { client.subscribe("orders").from_time(time).await };
    let (subscription, _kept) = tokio::join!(subscribe, serve);
    assert_eq!(subscription.unwrap().position(), Some(6));
}

#[tokio::test]
async fn whole_records_are_delivered_on_request() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let serve = async {
        let (subscribe, mut events) = conn.serve(4, Some(10)).await;
        assert!(subscribe.records);
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder
            .push(3, Some(b"k"), Some(b"v"), &[(b"h", Some(b"x"))])
            .unwrap();
        builder.push(4, Some(b"k"), None, &[]).unwrap();
        let mut batch = builder.finish().unwrap();
        felix_model::patch(&mut batch, Offset(10), Generation(0));
        let mut frame = Deliver::head(4, 10, 0, 0, batch.len());
        frame.extend_from_slice(&batch);
        events.write(frame.freeze()).await;
        events
    };
    let read = async {
        let mut subscription = client.subscribe("orders").records().await.unwrap();
        (next(&mut subscription).await, next(&mut subscription).await)
    };
    let ((first, second), _events) = tokio::join!(read, serve);
    assert_eq!(
        (first.offset, first.key, first.payload),
        (Some(10), Some("k".into()), "v".into())
    );
    assert_eq!(first.headers.last(b"h"), Some(Some("x".into())));
    assert_eq!(first.timestamp_micros, Some(3_000));
    assert!(second.is_tombstone && second.payload.is_empty());
}

#[tokio::test]
async fn all_shards_are_merged_and_resumed_by_position() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let serve = async {
        let (Message::StreamShards(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        let request_id = ask.request_id;
        stream
            .say(StreamShardsView {
                shards: 2,
                request_id,
                routing: None,
            })
            .await;
        let mut streams = Vec::new();
        for _ in 0..2 {
            let (subscribe, mut stream) = conn.subscribe().await;
            let shard = subscribe.shard.unwrap_or(0);
            let start = if shard == 1 { 40 } else { 0 };
            let wanted = if shard == 1 {
                message::Start::Offset(40)
            } else {
                message::Start::Earliest
            };
            assert_eq!(subscribe.start, Some(wanted));
            stream.say(subscribed(u64::from(shard), Some(start))).await;
            let mut events = conn.events(u64::from(shard)).await;
            events.batch(Some(start), &["x", "y"]).await;
            streams.push(events);
        }
        streams
    };
    let read = async {
        let resume = BTreeMap::from([(1, 40)]);
        let all = client
            .subscribe_all("orders")
            .from(Start::Earliest)
            .resume(resume);
        let mut all = all.await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let event = all.next().await.unwrap().unwrap();
            seen.push((event.shard, event.offset.unwrap()));
        }
        (seen, all.positions())
    };
    let ((seen, positions), _streams) = tokio::join!(read, serve);
    for (shard, first) in [(0, 0), (1, 40)] {
        let own: Vec<_> = seen
            .iter()
            .filter(|event| event.0 == shard)
            .map(|event| event.1)
            .collect();
        assert_eq!(own, (first..first + own.len() as u64).collect::<Vec<_>>());
        assert_eq!(positions.get(&shard), Some(&(first + own.len() as u64)));
    }
}
