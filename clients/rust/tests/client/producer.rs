//! Idempotent producers.

use felix_client::{Client, IdempotentProducer, Receipt, Record};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    Message, ProducerInitOk, PublishError, PublishOk, PublishRefused, RefusedReason,
    StreamShardsView,
};

use super::fake::{FakeBroker, FakeConn, FakeStream};

async fn producer(client: &Client, conn: &FakeConn) -> IdempotentProducer {
    let answer = async {
        let (Message::ProducerInit(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        stream
            .say(ProducerInitOk {
                request_id: ask.request_id,
                producer_id: 77,
            })
            .await;
    };
    let (producer, ()) = tokio::join!(client.idempotent_producer("orders"), answer);
    producer.unwrap()
}

async fn sent(producer: &IdempotentProducer, payloads: &[&'static str]) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for payload in payloads {
        receipts.push(producer.send(*payload).await.unwrap());
    }
    receipts
}

/// Request, sequence and payload of the next batch.
async fn batch(pipe: &mut FakeStream) -> (u64, u64, String) {
    let publish = pipe.publish().await;
    let producer = publish.producer.expect("an idempotent publish");
    assert_eq!(producer.id, 77);
    let payload = publish.payloads.iter().next().expect("a payload");
    (
        publish.request.unwrap().id,
        producer.sequence,
        String::from_utf8_lossy(payload).into_owned(),
    )
}

async fn offsets(receipts: Vec<Receipt>) -> Vec<u64> {
    let mut offsets = Vec::new();
    for receipt in receipts {
        offsets.push(receipt.await.unwrap().offset.unwrap());
    }
    offsets
}

async fn ok(pipe: &mut FakeStream, request_id: u64, offset: u64) {
    pipe.say(PublishOk {
        request_id,
        offset: Some(offset),
    })
    .await;
}

#[tokio::test]
async fn sequences_begin_at_zero_and_are_in_flight_together() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let receipts = sent(&producer, &["a", "b", "c"]).await;
    for sequence in 0..3 {
        let (id, found, _) = batch(&mut pipe).await;
        assert_eq!(found, sequence);
        ok(&mut pipe, id, 100 + sequence).await;
    }
    assert_eq!(offsets(receipts).await, [100, 101, 102]);
}

#[tokio::test]
async fn after_a_loss_everything_unanswered_is_sent_again_in_order_under_the_same_sequences() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let receipts = sent(&producer, &["a", "b", "c"]).await;
    let (id, _, _) = batch(&mut pipe).await;
    batch(&mut pipe).await;
    ok(&mut pipe, id, 0).await;
    let mut receipts = receipts.into_iter();
    assert_eq!(receipts.next().unwrap().await.unwrap().offset, Some(0));
    conn.drop_dead();

    let (_conn, mut pipe) = broker.welcome().await;
    for (sequence, payload) in [(1, "b"), (2, "c")] {
        let (id, found, text) = batch(&mut pipe).await;
        assert_eq!((found, text.as_str()), (sequence, payload));
        ok(&mut pipe, id, sequence).await;
    }
    assert_eq!(offsets(receipts.collect()).await, [1, 2]);
    let last = sent(&producer, &["d"]).await;
    let (id, sequence, _) = batch(&mut pipe).await;
    assert_eq!(sequence, 3);
    ok(&mut pipe, id, 3).await;
    assert_eq!(offsets(last).await, [3]);
}

#[tokio::test]
async fn a_refusal_that_may_pass_is_tried_again_together_with_what_followed_it() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let receipts = sent(&producer, &["a", "b"]).await;
    let (first, _, _) = batch(&mut pipe).await;
    let (second, _, _) = batch(&mut pipe).await;
    let full = Failure::new(Code::Overloaded, "full").with_retry_after_ms(1);
    pipe.say(PublishError::new(first, full)).await;
    let reason = RefusedReason::SequenceGap { expected: 0 };
    pipe.say(PublishRefused {
        request_id: second,
        reason,
        message: String::new(),
    })
    .await;
    for sequence in 0..2 {
        let (id, found, _) = batch(&mut pipe).await;
        assert_eq!(found, sequence);
        ok(&mut pipe, id, sequence).await;
    }
    assert_eq!(offsets(receipts).await, [0, 1]);
}

#[tokio::test]
async fn a_producer_the_broker_forgot_ends() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let receipts = sent(&producer, &["a", "b"]).await;
    let (first, _, _) = batch(&mut pipe).await;
    ok(&mut pipe, first, 0).await;
    let (second, _, _) = batch(&mut pipe).await;
    let reason = RefusedReason::UnknownProducer;
    pipe.say(PublishRefused {
        request_id: second,
        reason,
        message: "who?".to_owned(),
    })
    .await;
    let mut receipts = receipts.into_iter();
    receipts.next().unwrap().await.unwrap();
    let ended = receipts.next().unwrap().await.unwrap_err();
    assert_eq!(ended.code(), "producer_ended");
    assert_eq!(
        producer.publish("c").await.unwrap_err().code(),
        "producer_ended"
    );
}

#[tokio::test]
async fn sixty_four_batches_are_in_flight_and_no_more() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let mut receipts = sent(&producer, &["x"; 64]).await;
    let next = producer.send("y");
    tokio::pin!(next);
    let poll = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(Future::poll(next.as_mut(), cx).is_pending())
    });
    assert!(poll.await);
    for sequence in 0..64 {
        let (id, found, _) = batch(&mut pipe).await;
        assert_eq!(found, sequence);
        ok(&mut pipe, id, sequence).await;
    }
    receipts.push(next.await.unwrap());
    let (id, sequence, _) = batch(&mut pipe).await;
    assert_eq!(sequence, 64);
    ok(&mut pipe, id, 64).await;
    assert_eq!(offsets(receipts).await, (0..65).collect::<Vec<_>>());
}

#[tokio::test]
async fn each_shard_has_sequences_of_its_own() {
    let broker = FakeBroker::start();
    let (client, conn, mut pipe) = broker.client().await;
    let producer = producer(&client, &conn).await;
    let serve = async {
        let (Message::StreamShards(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        let request_id = ask.request_id;
        stream
            .say(StreamShardsView {
                shards: 4,
                request_id,
                routing: None,
            })
            .await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (id, sequence, payload) = batch(&mut pipe).await;
            ok(&mut pipe, id, sequence).await;
            seen.push((payload, sequence));
        }
        seen
    };
    let publish = async {
        // With four shards these keys go to shards 0, 3 and 0.
        for key in ["a", "order-1", "k7"] {
            producer.publish(Record::new(key).key(key)).await.unwrap();
        }
    };
    let (seen, ()) = tokio::join!(serve, publish);
    let expected = [("a", 0), ("order-1", 0), ("k7", 1)];
    assert_eq!(
        seen,
        expected.map(|(key, sequence)| (key.to_owned(), sequence))
    );
}
