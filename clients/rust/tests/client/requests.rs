//! Requests with one answer.

use std::time::Duration;

use felix_client::{CallFailed, PageLimits, PublishFailed, ReadFailed, Retry, Routing};
use felix_wire::Served;
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    CursorReason, Message, PublishOk, PublishRefused, RefusedReason, StreamRecord, StreamRecords,
    StreamShardsView, SubscribeCursorError,
};
use felix_wire::negotiate::Features;

use super::fake::{FakeBroker, served};

#[tokio::test]
async fn a_width_is_asked_for() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (Message::StreamShards(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        assert_eq!(
            (ask.namespace.as_str(), ask.stream.as_str()),
            ("ns", "orders")
        );
        let routing = Some("jump_hash".to_owned());
        stream
            .say(StreamShardsView {
                shards: 4,
                request_id: ask.request_id,
                routing,
            })
            .await;
    };
    let client = client.in_namespace("ns").unwrap();
    let (width, ()) = tokio::join!(client.stream_shards("orders"), answer);
    let width = width.unwrap();
    assert_eq!((width.shards, width.routing), (4, Routing::JumpHash));
}

#[tokio::test]
async fn a_width_of_nothing_means_that_there_is_no_such_stream() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (Message::StreamShards(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        let request_id = ask.request_id;
        stream
            .say(StreamShardsView {
                shards: 0,
                request_id,
                routing: None,
            })
            .await;
    };
    let (width, ()) = tokio::join!(client.stream_shards("orders"), answer);
    assert_eq!(width.unwrap_err().code(), "not_found");
}

#[tokio::test]
async fn a_read_is_repeated_until_the_shard_is_ready() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (_, mut stream) = conn.asked().await;
        let moving = Failure::new(Code::ShardUnavailable, "moving").with_reason("moving");
        stream.say(Message::Error(moving)).await;
        drop(conn.stream().await);
        let (Message::StreamRead(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        assert_eq!((ask.from, ask.max_records), (3, 10));
        let record = StreamRecord {
            offset: 3,
            payload: "x".into(),
            publisher: None,
            timestamp_micros: 1,
        };
        let request_id = ask.request_id;
        stream
            .say(StreamRecords {
                records: vec![record],
                next_offset: 4,
                request_id,
            })
            .await;
    };
    let limits = PageLimits {
        records: 10,
        ..PageLimits::default()
    };
    let (page, ()) = tokio::join!(client.stream_read("orders", 0, 3, limits), answer);
    let page = page.unwrap();
    assert_eq!((page.records.len(), page.next_offset), (1, 4));
}

#[tokio::test]
async fn an_offset_that_is_gone_names_the_oldest() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (_, mut stream) = conn.asked().await;
        let reason = CursorReason::TooOld;
        let gone = SubscribeCursorError {
            reason,
            requested: 0,
            available: 9,
            trim_headers: None,
        };
        stream.say(gone).await;
    };
    let read = client.stream_read("orders", 0, 0, PageLimits::default());
    let (failed, ()) = tokio::join!(read, answer);
    assert_eq!(
        failed.unwrap_err(),
        ReadFailed::TooOld {
            requested: 0,
            oldest: 9
        }
    );
}

#[tokio::test]
async fn a_conditional_publish_says_what_stood_in_its_way() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (Message::PublishIf(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        assert_eq!((ask.expected_offset, ask.payloads.count), (7, 2));
        stream
            .say(PublishOk {
                request_id: ask.request_id,
                offset: Some(7),
            })
            .await;
        let (Message::PublishIf(ask), mut stream) = conn.asked().await else {
            panic!()
        };
        let reason = RefusedReason::OffsetMismatch { tail: 9 };
        let message = String::new();
        stream
            .say(PublishRefused {
                request_id: ask.request_id,
                reason,
                message,
            })
            .await;
    };
    let publish = async {
        let first = client.publish_if("orders", 7, ["a", "b"]).await;
        (first, client.publish_if("orders", 7, ["a", "b"]).await)
    };
    let ((first, second), ()) = tokio::join!(publish, answer);
    assert_eq!(first.unwrap().offset, Some(7));
    assert_eq!(
        second.unwrap_err(),
        PublishFailed::OffsetMismatch {
            next: 9,
            expected: 7
        }
    );
}

#[tokio::test]
async fn a_conditional_publish_that_may_have_happened_is_not_repeated() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let lose = async {
        let _asked = conn.asked().await;
        conn.drop_dead();
    };
    let (failed, ()) = tokio::join!(client.publish_if("orders", 0, ["a"]), lose);
    assert_eq!(failed.unwrap_err().retry(), Retry::OutcomeUnknown);
}

#[tokio::test]
async fn what_the_broker_does_not_offer_is_not_asked() {
    let broker = FakeBroker::start();
    let accept = async {
        let conn = broker.accept().await;
        let mut pipe = conn.stream().await;
        pipe.welcome(&Served {
            features: Features::NONE,
            ..served()
        })
        .await;
        (conn, pipe)
    };
    let (client, _kept) = tokio::join!(broker.builder().connect(), accept);
    let client = client.unwrap();
    let failed = client.topology().await.unwrap_err();
    assert_eq!(
        failed,
        CallFailed::Unsupported {
            feature: "topology"
        }
    );
    assert_eq!(
        client
            .publish_if("orders", 0, ["a"])
            .await
            .unwrap_err()
            .code(),
        "unsupported"
    );
}

#[tokio::test]
async fn a_request_nobody_answers_fails_in_time() {
    let broker = FakeBroker::start();
    let builder = broker.builder().request_timeout(Duration::from_millis(50));
    let (client, _conn, _pipe) = broker.connected(builder).await;
    assert_eq!(
        client.stream_shards("orders").await.unwrap_err().code(),
        "unanswered"
    );
}

#[tokio::test]
async fn a_wrong_answer_is_a_typed_error() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        let (_, mut stream) = conn.asked().await;
        stream
            .say(PublishOk {
                request_id: 1,
                offset: None,
            })
            .await;
    };
    let (failed, ()) = tokio::join!(client.stream_shards("orders"), answer);
    assert_eq!(failed.unwrap_err().code(), "protocol");
}
