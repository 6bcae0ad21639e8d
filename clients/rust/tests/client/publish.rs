//! Publishing, and what becomes of it when answers are late, wrong or missing.

use std::time::Duration;

use bytes::Bytes;
use felix_client::{Ack, Client, Publisher, Receipt, Record, Retry};
use felix_model::Records;
use felix_wire::ack;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Published, Refused, Request};
use felix_wire::frame::Incoming;
use felix_wire::message::{AckMode, Message, PublishOk};
use felix_wire::publish::BinaryAck;
use felix_wire::{Extension, Served};

use super::fake::{FakeBroker, FakeStream, served};

fn orders(client: &Client) -> Publisher {
    client.publisher("orders").unwrap()
}

async fn sent(publisher: &Publisher, payloads: &[&'static str]) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for payload in payloads {
        receipts.push(publisher.send(*payload).await.unwrap());
    }
    receipts
}

#[tokio::test]
async fn many_publishes_are_in_flight_and_each_gets_its_own_answer() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let receipts = sent(&orders(&client), &["a", "b", "c"]).await;
    for expected in ["a", "b", "c"] {
        let publish = pipe.publish().await;
        assert_eq!(publish.names.stream(), "orders");
        assert_eq!(
            publish.payloads.iter().collect::<Vec<_>>(),
            [expected.as_bytes()]
        );
    }
    for (id, offset) in [(1, 40), (2, 41), (3, 42)] {
        pipe.ack(id, Some(offset)).await;
    }
    let mut offsets = Vec::new();
    for receipt in receipts {
        offsets.push(receipt.await.unwrap().offset);
    }
    assert_eq!(offsets, [Some(40), Some(41), Some(42)]);
}

#[tokio::test]
async fn answers_in_another_order_find_their_publishes() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let receipts = sent(&orders(&client), &["a", "b"]).await;
    pipe.publish_id().await;
    pipe.publish_id().await;
    pipe.ack(2, Some(7)).await;
    pipe.say(PublishOk {
        request_id: 1,
        offset: Some(6),
    })
    .await;
    let mut receipts = receipts.into_iter();
    assert_eq!(receipts.next().unwrap().await.unwrap().offset, Some(6));
    assert_eq!(receipts.next().unwrap().await.unwrap().offset, Some(7));
}

#[tokio::test]
async fn a_refusal_reaches_the_caller_with_code_class_and_time() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let publish = client.publish("orders", "a");
    let refuse = async {
        let request_id = pipe.publish_id().await;
        let failure = Failure::new(Code::Overloaded, "full").with_retry_after_ms(50);
        pipe.answer(ack::Ack {
            request_id,
            outcome: Err(failure),
            owner: None,
        })
        .await;
    };
    let (failed, ()) = tokio::join!(publish, refuse);
    let failed = failed.unwrap_err();
    assert_eq!(failed.code(), "overloaded");
    assert_eq!(failed.retry(), Retry::RetryAfter(Duration::from_millis(50)));
}

#[tokio::test]
async fn a_lost_answer_is_an_unknown_outcome_and_nothing_is_sent_twice() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let die = async {
        pipe.publish_id().await;
        conn.drop_dead();
    };
    let (failed, ()) = tokio::join!(client.publish("orders", "once"), die);
    assert_eq!(failed.unwrap_err().retry(), Retry::OutcomeUnknown);

    let again = async {
        let (conn, mut pipe) = broker.welcome().await;
        let publish = pipe.publish().await;
        assert_eq!(publish.payloads.iter().next(), Some(b"next".as_slice()));
        pipe.ack(1, Some(1)).await;
        conn
    };
    let (published, _conn) = tokio::join!(client.publish("orders", "next"), again);
    assert_eq!(published.unwrap().offset, Some(1));
}

#[tokio::test]
async fn the_window_the_broker_grants_is_kept() {
    let broker = FakeBroker::start();
    let connect = broker.builder().connect();
    let accept = async {
        let conn = broker.accept().await;
        let mut pipe = conn.stream().await;
        pipe.welcome(&Served {
            publish_window: 2,
            ..served()
        })
        .await;
        (conn, pipe)
    };
    let (client, (_conn, mut pipe)) = tokio::join!(connect, accept);
    let publisher = orders(&client.unwrap());
    let _receipts = sent(&publisher, &["a", "b"]).await;
    let third = publisher.send("c");
    tokio::pin!(third);
    assert!(is_pending(third.as_mut()).await);
    pipe.publish_id().await;
    pipe.ack(1, None).await;
    let _third = third.await.unwrap();
    assert_eq!(pipe.publish_id().await, 2);
    assert_eq!(pipe.publish_id().await, 3);
}

#[tokio::test]
async fn the_byte_budget_makes_publishers_wait_and_a_larger_payload_still_goes() {
    let broker = FakeBroker::start();
    let builder = broker.builder().inflight_bytes(1_000);
    let (client, _conn, mut pipe) = broker.connected(builder).await;
    let publisher = orders(&client);
    let large = publisher.send(vec![7u8; 10_000]).await.unwrap();
    let next = publisher.send("b");
    tokio::pin!(next);
    assert!(is_pending(next.as_mut()).await);
    assert_eq!(
        pipe.publish().await.payloads.iter().next().unwrap(),
        [7u8; 10_000]
    );
    pipe.ack(1, None).await;
    large.await.unwrap();
    let _next = next.await.unwrap();
    assert_eq!(pipe.publish_id().await, 2);
}

#[tokio::test]
async fn an_error_on_the_stream_fails_what_is_outstanding_and_the_next_publish_gets_another() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let end = async {
        pipe.publish_id().await;
        pipe.say(Message::Error(Failure::new(Code::Internal, "bug")))
            .await;
    };
    let (failed, ()) = tokio::join!(client.publish("orders", "a"), end);
    assert_eq!(failed.unwrap_err().retry(), Retry::OutcomeUnknown);
    let again = async {
        let mut pipe = conn.welcome().await;
        let id = pipe.publish_id().await;
        pipe.ack(id, Some(3)).await;
        pipe
    };
    let (published, _pipe) = tokio::join!(client.publish("orders", "b"), again);
    assert_eq!(published.unwrap().offset, Some(3));
}

#[tokio::test]
async fn an_answer_to_nothing_ends_the_stream() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let end = async {
        pipe.publish_id().await;
        pipe.ack(99, None).await;
    };
    let (failed, ()) = tokio::join!(client.publish("orders", "a"), end);
    assert_eq!(failed.unwrap_err().code(), "unanswered");
}

#[tokio::test]
async fn a_publish_nobody_answers_fails_in_time() {
    let broker = FakeBroker::start();
    let builder = broker.builder().request_timeout(Duration::from_millis(50));
    let (client, _conn, _pipe) = broker.connected(builder).await;
    let failed = client.publish("orders", "a").await.unwrap_err();
    assert_eq!(failed.retry(), Retry::OutcomeUnknown);
}

#[tokio::test]
async fn closing_delivers_what_has_no_answer() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let silent = orders(&client).ack(Ack::None);
    let close = async {
        for _ in 0..500 {
            silent.publish(vec![1u8; 1_000]).await.unwrap();
        }
        client.close().await;
    };
    let read = async {
        let mut count = 0;
        while let Some(Incoming::Published(_)) = pipe.frame().await {
            count += 1;
        }
        count
    };
    let ((), count) = tokio::join!(close, read);
    assert_eq!(count, 500);
    assert_eq!(silent.publish("late").await.unwrap_err().code(), "closed");
}

#[tokio::test]
async fn closing_waits_for_answers() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let receipt = orders(&client).send("a").await.unwrap();
    let answer = async {
        let id = pipe.publish_id().await;
        pipe.ack(id, Some(5)).await;
        assert_eq!(pipe.frame().await, None);
    };
    tokio::join!(client.close(), answer);
    assert_eq!(receipt.await.unwrap().offset, Some(5));
}

#[tokio::test]
async fn batches_keys_and_modes_stand_in_the_frame() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let publisher = orders(&client).ack(Ack::Batch);
    let records = ["a", "b"].map(|payload| Record::new(payload).key("k7"));
    let publish = publisher.publish_batch(records);
    let answer = async {
        let publish = pipe.publish().await;
        assert_eq!(publish.request.unwrap().ack, BinaryAck::PerBatch);
        assert_eq!(publish.key, Some(Bytes::from_static(b"k7")));
        assert_eq!(publish.payloads.count, 2);
        pipe.ack(1, Some(9)).await;
    };
    let (published, ()) = tokio::join!(publish, answer);
    assert_eq!(published.unwrap().offset, Some(9));
}

#[tokio::test]
async fn headers_and_times_go_by_the_records_extension() {
    let broker = FakeBroker::start();
    let (client, _conn, mut pipe) = broker.client().await;
    let record = Record::new("a").key("k").header("h", "v").timestamp_ms(77);
    let answer = async {
        let (correlation, request) = rich(&mut pipe).await;
        assert_eq!(request.key, Some(Bytes::from_static(b"k")));
        let read: Vec<_> = Records::new(&request.batch)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(read[0].timestamp_ms, 77);
        assert_eq!(read[0].headers.last(b"h"), Some(Some("v".into())));
        let mut frame = bytes::BytesMut::new();
        Published {
            offset: Some(8),
            owner: None,
        }
        .encode_into(correlation, &mut frame);
        pipe.write(frame.freeze()).await;

        let (correlation, _) = rich(&mut pipe).await;
        let refused = Refused::from(Failure::new(Code::LimitExceeded, "too large"));
        pipe.write(refused.encode(correlation)).await;
    };
    let publish = async {
        let published = client.publish("orders", record.clone()).await;
        (published, client.publish("orders", record).await)
    };
    let ((published, refused), ()) = tokio::join!(publish, answer);
    assert_eq!(published.unwrap().offset, Some(8));
    assert_eq!(refused.unwrap_err().code(), "limit_exceeded");
}

async fn rich(pipe: &mut FakeStream) -> (u64, felix_wire::extension::PublishRecords) {
    let Some(Incoming::Extension(frame)) = pipe.frame().await else {
        panic!("not a frame of an extension");
    };
    let granted = [Extension::Records].into_iter().collect();
    let correlation = frame.correlation;
    let Request::PublishRecords(request) = frame.request(granted).unwrap() else {
        panic!("not a publish")
    };
    (correlation, request)
}

#[tokio::test]
async fn a_shard_can_be_named_without_the_extension() {
    let broker = FakeBroker::start();
    let connect = broker.builder().connect();
    let accept = async {
        let conn = broker.accept().await;
        let mut pipe = conn.stream().await;
        pipe.welcome(&Served {
            extensions: felix_wire::Extensions::NONE,
            ..served()
        })
        .await;
        (conn, pipe)
    };
    let (client, (_conn, mut pipe)) = tokio::join!(connect, accept);
    let client = client.unwrap();
    let publisher = orders(&client).shard(2);
    let answer = async {
        let Message::PublishBatch(batch) = pipe.message().await else {
            panic!("JSON")
        };
        assert_eq!(
            (batch.shard, batch.ack),
            (Some(2), Some(AckMode::PerMessage))
        );
        pipe.say(PublishOk {
            request_id: batch.request_id.unwrap(),
            offset: Some(1),
        })
        .await;
    };
    let (published, ()) = tokio::join!(publisher.publish("a"), answer);
    assert_eq!(published.unwrap().offset, Some(1));
    let refused = client
        .publish("orders", Record::new("a").header("h", "v"))
        .await;
    assert_eq!(refused.unwrap_err().code(), "unsupported");
}

#[tokio::test]
async fn what_nobody_could_take_is_refused_at_once() {
    let broker = FakeBroker::start();
    let (client, _conn, _pipe) = broker.client().await;
    let code = |failed: felix_client::PublishFailed| failed.code().to_owned();
    assert_eq!(code(client.publisher("a/b").unwrap_err()), "malformed");
    let large = vec![0u8; 16 * 1024 * 1024];
    assert_eq!(
        code(client.publish("orders", large).await.unwrap_err()),
        "too_large"
    );
}

/// Polls once.
async fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut future = future;
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}
