//! Every way of publishing, and what each is answered with.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use felix_client::Record;
use felix_e2e::raw::{Stream, Target, Wire, offer};
use felix_e2e::said::publish_failure as failure;
use felix_e2e::{Home, Node, eventually};
use felix_wire::error::{Code, Retry};
use felix_wire::message::{Message, RefusedReason};
use felix_wire::negotiate::Features;
use felix_wire::publish::Producer;
use serde_json::{Value, json};

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn stream_of(node: &Node) -> Stream {
    let wire = Wire::connect(node.ready()).await.unwrap();
    wire.authenticated().await.unwrap()
}

/// A request of this type to a stream of the development namespace, with further fields.
fn ask(kind: &str, stream: &str, more: &Value) -> Value {
    let mut ask =
        json!({"type": kind, "tenant_id": "dev", "namespace": "default", "stream": stream});
    for (name, value) in more.as_object().unwrap() {
        ask[name] = value.clone();
    }
    ask
}

fn b64(payload: &str) -> String {
    STANDARD.encode(payload)
}

/// The offset in a `publish_ok`.
fn offset(answer: &Message) -> Option<u64> {
    match answer {
        Message::PublishOk(ok) => ok.offset,
        other => panic!("not published: {other:?}"),
    }
}

/// The reason in a `publish_refused`.
fn reason(answer: Message) -> RefusedReason {
    match answer {
        Message::PublishRefused(refused) => refused.reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn to(stream: &str, request_id: u64) -> Target<'_> {
    Target {
        stream,
        request_id,
        ..Target::default()
    }
}

/// The payloads of one shard.
async fn shard(node: &Node, stream: &str, shard: u32) -> Vec<String> {
    let client = node.client().await.unwrap();
    let limits = felix_client::PageLimits::default();
    let page = client.stream_read(stream, shard, 0, limits).await.unwrap();
    let text =
        |record: felix_client::StreamRecord| String::from_utf8_lossy(&record.payload).into_owned();
    page.records.into_iter().map(text).collect()
}

#[tokio::test]
async fn json_publishes_are_answered_as_they_ask_to_be() {
    let home = home();
    let node = home.start().await.unwrap();
    let mut stream = stream_of(&node).await;
    for more in [
        json!({"payload": b64("a")}),
        json!({"payload": b64("b"), "ack": "none", "request_id": 1}),
        // Never answered, not even to be refused.
        json!({"payload": b64("x"), "shard": 7, "ack": "none"}),
    ] {
        let silent = ask("publish", "orders", &more).to_string();
        let frame = felix_wire::Frame {
            flags: felix_wire::Flags::NONE,
            payload: silent.into(),
        };
        stream.write(&frame.encode()).await.unwrap();
    }
    let more = json!({"payload": b64("c"), "ack": "per_message", "request_id": 2});
    let answer = stream
        .ask_json(&ask("publish", "orders", &more))
        .await
        .unwrap();
    assert_eq!(offset(&answer), Some(2));
    let more = json!({"payloads": [b64("d"), b64("e")], "ack": "per_batch", "request_id": 3});
    let answer = stream
        .ask_json(&ask("publish_batch", "orders", &more))
        .await
        .unwrap();
    assert_eq!(offset(&answer), Some(3));
    let more = json!({"payload": b64("x"), "ack": "per_message"});
    let answer = stream
        .ask_json(&ask("publish", "orders", &more))
        .await
        .unwrap();
    let Message::Error(refused) = answer else {
        panic!("an ack was asked for without a request: {answer:?}");
    };
    assert_eq!(refused.code(), Some(Code::InvalidRequest));
    let more = json!({"payloads": [], "ack": "per_batch", "request_id": 4});
    let answer = stream
        .ask_json(&ask("publish_batch", "orders", &more))
        .await
        .unwrap();
    assert_eq!(failure(answer).code(), Some(Code::InvalidRequest));
    let more = json!({"payload": "YQ", "ack": "per_message", "request_id": 5});
    let answer = stream
        .ask_json(&ask("publish", "orders", &more))
        .await
        .unwrap();
    assert_eq!(failure(answer).code(), Some(Code::InvalidRequest));
    assert_eq!(
        home.payloads("orders").await.unwrap(),
        ["a", "b", "c", "d", "e"]
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_named_shard_is_written_to_and_one_that_is_not_there_is_refused() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "wide", "--shards", "4"])
        .await
        .unwrap();
    let mut stream = stream_of(&node).await;
    let more = json!({"payloads": [b64("here")], "shard": 2, "key": b64("k7"),
        "ack": "per_batch", "request_id": 1});
    let answer = stream
        .ask_json(&ask("publish_batch", "wide", &more))
        .await
        .unwrap();
    assert_eq!(offset(&answer), Some(0));
    let more =
        json!({"payload": b64("nowhere"), "shard": 4, "ack": "per_message", "request_id": 2});
    let answer = stream
        .ask_json(&ask("publish", "wide", &more))
        .await
        .unwrap();
    let refused = failure(answer);
    assert_eq!(refused.code(), Some(Code::InvalidRequest));
    assert_eq!(refused.retry(), Retry::Fatal);
    // By key: the shards of the protocol's own examples, over 4.
    for (key, expected) in [("order-1", 3), ("customer-2", 2), ("k7", 0)] {
        let target = Target {
            key: Some(key.as_bytes()),
            ..to("wide", 9)
        };
        let ack = stream.publish(&target, &[key.as_bytes()]).await.unwrap();
        assert!(ack.outcome.is_ok(), "{ack:?}");
        assert_eq!(shard(&node, "wide", expected).await.last().unwrap(), key);
    }
    assert_eq!(shard(&node, "wide", 2).await, ["here", "customer-2"]);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_key_that_was_routed_over_another_width_is_refused_and_may_be_tried_again() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "wide", "--shards", "4"])
        .await
        .unwrap();
    let mut stream = stream_of(&node).await;
    let keyed = |request_id| Target {
        key: Some(b"order-1"),
        ..to("wide", request_id)
    };
    let width = |shards: u32, more: Value| {
        let mut width = ask("publish_width", "wide", &more);
        width["shards"] = shards.into();
        let frame = felix_wire::Frame {
            flags: felix_wire::Flags::NONE,
            payload: width.to_string().into(),
        };
        frame.encode()
    };
    for declared in [
        width(8, json!({})),
        width(4, json!({"routing": "jump_hash"})),
    ] {
        stream.write(&declared).await.unwrap();
        let refused = stream.publish(&keyed(1), &[b"stale"]).await.unwrap();
        let refused = refused.outcome.unwrap_err();
        assert_eq!(refused.code(), Some(Code::StaleWidth));
        assert_eq!(refused.retry(), Retry::Retry);
        let more = json!({"payload": b64("stale"), "key": b64("order-1"),
            "ack": "per_message", "request_id": 2});
        let answer = stream
            .ask_json(&ask("publish", "wide", &more))
            .await
            .unwrap();
        assert_eq!(failure(answer).code(), Some(Code::StaleWidth));
        // Without a key there is nothing to route, and other streams are not meant.
        let ack = stream.publish(&to("wide", 3), &[b"unkeyed"]).await.unwrap();
        assert!(ack.outcome.is_ok());
        let other = Target {
            stream: "orders",
            ..keyed(4)
        };
        assert!(
            stream
                .publish(&other, &[b"x"])
                .await
                .unwrap()
                .outcome
                .is_ok()
        );
    }
    stream.write(&width(4, json!({}))).await.unwrap();
    let ack = stream.publish(&keyed(5), &[b"fresh"]).await.unwrap();
    assert_eq!(ack.outcome, Ok(Some(0)));
    assert_eq!(shard(&node, "wide", 3).await, ["fresh"]);
    assert_eq!(shard(&node, "wide", 0).await, ["unkeyed", "unkeyed"]);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_conditional_publish_appends_at_the_expected_offset_or_names_the_real_one() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "memory", "--durable", "false"])
        .await
        .unwrap();
    let mut stream = stream_of(&node).await;
    let publish_if = |stream: &str, expected: u64, payloads: &[&str]| {
        let payloads: Vec<String> = payloads.iter().map(|one| b64(one)).collect();
        let more = json!({"payloads": payloads, "expected_offset": expected, "request_id": 1});
        ask("publish_if", stream, &more)
    };
    let answer = stream.ask_json(&publish_if("orders", 0, &["a", "b"])).await;
    assert_eq!(offset(&answer.unwrap()), Some(0));
    for wrong in [0, 1, 3, u64::MAX] {
        let answer = stream.ask_json(&publish_if("orders", wrong, &["x"])).await;
        assert_eq!(
            reason(answer.unwrap()),
            RefusedReason::OffsetMismatch { tail: 2 },
            "{wrong}"
        );
    }
    let answer = stream.ask_json(&publish_if("orders", 2, &["c"])).await;
    assert_eq!(offset(&answer.unwrap()), Some(2));
    let answer = stream
        .ask_json(&publish_if("orders", 3, &[]))
        .await
        .unwrap();
    assert_eq!(failure(answer).code(), Some(Code::InvalidRequest));
    let answer = stream.ask_json(&publish_if("memory", 0, &["x"])).await;
    let Message::Error(refused) = answer.unwrap() else {
        panic!("a condition on a stream without offsets");
    };
    assert_eq!(refused.code(), Some(Code::InvalidRequest));
    // Of many that expect the same offset, one wins.
    let client = node.client().await.unwrap();
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..8 {
        let client = client.clone();
        racers.spawn(async move {
            client
                .publish_if("orders", 3, [format!("racer {racer}")])
                .await
        });
    }
    let outcomes = racers.join_all().await;
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(won, 1, "{outcomes:?}");
    assert_eq!(home.payloads("orders").await.unwrap().len(), 4);
    node.stop().await.unwrap();
}

async fn producer(stream: &mut Stream) -> u64 {
    let init = felix_wire::message::ProducerInit { request_id: 1 };
    match stream.ask(init).await.unwrap() {
        Message::ProducerInitOk(ok) => ok.producer_id,
        other => panic!("{other:?}"),
    }
}

/// An idempotent publish in the binary form, which is answered in JSON.
async fn binary(stream: &mut Stream, id: u64, sequence: u64, payload: &str) -> Message {
    let target = Target {
        producer: Some(Producer { id, sequence }),
        ..to("orders", 50 + sequence)
    };
    stream.send(&target, &[payload.as_bytes()]).await.unwrap();
    stream.message().await.unwrap()
}

async fn text(stream: &mut Stream, id: u64, sequence: u64, payload: &str) -> Message {
    let more = json!({"payloads": [b64(payload)], "request_id": 60 + sequence,
        "producer_id": id, "sequence": sequence});
    let ask = ask("publish_idempotent", "orders", &more);
    stream.ask_json(&ask).await.unwrap()
}

#[tokio::test]
async fn an_idempotent_batch_is_appended_once_whatever_its_form_also_across_a_kill() {
    let home = home();
    let node = home.start().await.unwrap();
    let mut stream = stream_of(&node).await;
    let id = producer(&mut stream).await;
    assert_ne!(producer(&mut stream).await, id);
    assert_eq!(offset(&binary(&mut stream, id, 0, "a").await), Some(0));
    assert_eq!(offset(&text(&mut stream, id, 1, "b").await), Some(1));
    // Sent again, in the other form, each is answered with where it went the first time.
    assert_eq!(offset(&text(&mut stream, id, 0, "a").await), Some(0));
    assert_eq!(offset(&binary(&mut stream, id, 1, "b").await), Some(1));
    refusals(&mut stream, id, 2).await;
    node.kill().await.unwrap();

    let node = home.start().await.unwrap();
    let mut stream = stream_of(&node).await;
    assert_eq!(offset(&binary(&mut stream, id, 1, "b").await), Some(1));
    assert_eq!(offset(&text(&mut stream, id, 0, "a").await), Some(0));
    refusals(&mut stream, id, 2).await;
    assert_eq!(offset(&binary(&mut stream, id, 2, "c").await), Some(2));
    assert_eq!(home.payloads("orders").await.unwrap(), ["a", "b", "c"]);
    node.stop().await.unwrap();
}

/// What is refused of a producer whose next sequence is `next`.
async fn refusals(stream: &mut Stream, id: u64, next: u64) {
    let gap = RefusedReason::SequenceGap { expected: next };
    assert_eq!(reason(binary(stream, id, next + 3, "x").await), gap);
    assert_eq!(reason(text(stream, id, next + 1, "x").await), gap);
    let reused = binary(stream, id, 0, "another").await;
    assert_eq!(reason(reused), RefusedReason::SequenceReused);
    let unknown = text(stream, id ^ 1, 7, "x").await;
    assert_eq!(reason(unknown), RefusedReason::UnknownProducer);
}

#[tokio::test]
async fn a_batch_older_than_what_is_remembered_is_refused_and_not_appended() {
    let home = home();
    let node = home.start().await.unwrap();
    let mut stream = stream_of(&node).await;
    let id = producer(&mut stream).await;
    for sequence in 0..100 {
        let answer = binary(&mut stream, id, sequence, &format!("{sequence}")).await;
        assert_eq!(offset(&answer), Some(sequence));
    }
    assert_eq!(offset(&binary(&mut stream, id, 99, "99").await), Some(99));
    assert_eq!(offset(&binary(&mut stream, id, 40, "40").await), Some(40));
    let old = binary(&mut stream, id, 3, "3").await;
    assert_eq!(reason(old), RefusedReason::SequenceExpired);
    assert_eq!(home.payloads("orders").await.unwrap().len(), 100);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn answers_leave_in_the_order_of_their_requests_in_every_form() {
    const REQUESTS: u64 = 240;
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "slow", "--sync", "on_commit"])
        .await
        .unwrap();
    let mut stream = stream_of(&node).await;
    // Written at once, fast and slow, good and bad, and answered only then.
    for id in 0..REQUESTS {
        match id % 6 {
            0 => stream.send(&to("slow", id), &[b"slow"]).await.unwrap(),
            1 => stream.send(&to("absent", id), &[b"x"]).await.unwrap(),
            3 => {
                let more = json!({"payload": b64("text"), "ack": "per_message", "request_id": id});
                let frame = felix_wire::Frame {
                    flags: felix_wire::Flags::NONE,
                    payload: ask("publish", "slow", &more).to_string().into(),
                };
                stream.write(&frame.encode()).await.unwrap();
            }
            4 => stream.send(&to("orders", id), &[]).await.unwrap(),
            _ => stream.send(&to("orders", id), &[b"fast"]).await.unwrap(),
        }
    }
    for id in 0..REQUESTS {
        if id % 6 == 3 {
            match stream.message().await.unwrap() {
                Message::PublishOk(ok) => assert_eq!(ok.request_id, id),
                other => panic!("{id}: {other:?}"),
            }
            continue;
        }
        let ack = stream.incoming.ack().await.unwrap();
        assert_eq!(ack.request_id, id);
        let expected = match id % 6 {
            1 => Some(Code::NotFound),
            4 => Some(Code::InvalidRequest),
            _ => None,
        };
        assert_eq!(ack.outcome.err().and_then(|failed| failed.code()), expected);
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_nothing_of_its_batch_is_written() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "small", "--max-record-size", "1KiB"])
        .await
        .unwrap();
    let mut stream = stream_of(&node).await;
    let (fits, over) = (vec![b'x'; 1_000], vec![b'x'; 1_025]);
    for (name, batch) in [
        ("small", vec![over.as_slice()]),
        ("small", vec![b"a".as_slice(), &over, b"b"]),
    ] {
        let ack = stream.publish(&to(name, 1), &batch).await.unwrap();
        let refused = ack.outcome.unwrap_err();
        assert_eq!(refused.code(), Some(Code::LimitExceeded), "{refused:?}");
        assert_eq!(refused.retry(), Retry::Fatal);
        assert!(refused.message.contains("1024"), "{refused:?}");
    }
    let many: Vec<&[u8]> = vec![&fits; 10];
    let ack = stream.publish(&to("small", 2), &many).await.unwrap();
    assert_eq!(ack.outcome, Ok(Some(0)));
    let default = vec![0; 1024 * 1024 + 1];
    let ack = stream.publish(&to("orders", 3), &[&default]).await.unwrap();
    assert_eq!(ack.outcome.unwrap_err().code(), Some(Code::LimitExceeded));
    let client = node.client().await.unwrap();
    let failed = client.publish("small", over).await.unwrap_err();
    assert_eq!(failed.code(), "limit_exceeded");
    assert_eq!(shard(&node, "small", 0).await.len(), 10);
    assert!(home.payloads("orders").await.unwrap().is_empty());
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_tenant_over_its_rate_is_told_how_long_to_wait_and_then_goes_on() {
    const PUBLISHES: u64 = 30;
    let home = home().variable("FELIX_TENANT_PUBLISH_MSGS_PER_SEC", "2");
    let node = home.start().await.unwrap();
    let mut stream = stream_of(&node).await;
    for id in 0..PUBLISHES {
        stream.send(&to("orders", id), &[b"x"]).await.unwrap();
    }
    let (mut taken, mut refused) = (0, 0);
    for id in 0..PUBLISHES {
        let ack = stream.incoming.ack().await.unwrap();
        assert_eq!(ack.request_id, id);
        match ack.outcome {
            Ok(offset) => {
                assert_eq!(offset, Some(taken));
                taken += 1;
            }
            Err(failed) => {
                assert_eq!(failed.code(), Some(Code::Overloaded));
                assert_eq!(failed.reason(), Some("tenant_quota"));
                assert_eq!(failed.retry(), Retry::RetryAfter);
                assert!(failed.retry_after_ms().is_some_and(|ms| ms > 0));
                refused += 1;
            }
        }
    }
    assert!(taken >= 1 && refused >= 1, "{taken} and {refused}");
    assert!(
        node.metric("felix_tenant_publish_throttled_total")
            .await
            .unwrap()
            >= 1.0
    );
    let client = node.client().await.unwrap();
    let again = eventually(|| async { client.publish("orders", "later").await.ok() }).await;
    assert!(again.is_some());
    node.stop().await.unwrap();
}

#[tokio::test]
async fn acks_on_acceptance_guess_no_offset_and_a_client_may_insist_on_the_write() {
    let home = home().variable("FELIX_ACK_ON_COMMIT", "0");
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut easy = offer();
    easy.features = easy.features.without(Features::ACK_ON_COMMIT);
    let mut stream = wire.authenticated_with(&easy).await.unwrap();
    for id in 0..50 {
        let ack = stream.publish(&to("orders", id), &[b"x"]).await.unwrap();
        // The write may be quicker than the answer; then the offset is known, and never guessed.
        assert!(
            ack.outcome == Ok(None) || ack.outcome == Ok(Some(id)),
            "{ack:?}"
        );
    }
    let mut strict = wire.authenticated().await.unwrap();
    let ack = strict.publish(&to("orders", 1), &[b"y"]).await.unwrap();
    assert!(matches!(ack.outcome, Ok(Some(_))), "{ack:?}");
    // What depends on the outcome waits for it.
    let id = producer(&mut stream).await;
    assert!(offset(&binary(&mut stream, id, 0, "z").await).is_some());
    node.stop().await.unwrap();
    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("orders").await.unwrap().len(), 52);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn keys_headers_and_times_come_out_as_they_went_in_and_payloads_do_for_everybody() {
    let home = home();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let rich = Record::new("rich")
        .key("k")
        .header("h", "1")
        .header("h", "2")
        .timestamp_ms(1_700_000_000_123);
    assert_eq!(
        client.publish("orders", rich).await.unwrap().offset,
        Some(0)
    );
    let keyed = Record::new("keyed").key("");
    assert_eq!(
        client.publish("orders", keyed).await.unwrap().offset,
        Some(1)
    );
    let batch = [Record::new("a"), Record::new("b").header("only", "here")];
    let published = client.publish_batch("orders", batch).await.unwrap();
    assert_eq!(published.offset, Some(2));

    let mut whole = client
        .subscribe("orders")
        .from_earliest()
        .records()
        .await
        .unwrap();
    let first = whole.next().await.unwrap().unwrap();
    assert_eq!(first.offset, Some(0));
    assert_eq!(first.key.as_deref(), Some(b"k".as_slice()));
    assert_eq!(first.headers.last(b"h"), Some(Some("2".into())));
    assert_eq!(first.timestamp_micros, Some(1_700_000_000_123_000));
    let second = whole.next().await.unwrap().unwrap();
    assert_eq!(
        (&second.payload[..], second.offset),
        (&b"keyed"[..], Some(1))
    );
    assert_eq!(second.key.as_deref(), Some(b"".as_slice()));
    assert_eq!(whole.next().await.unwrap().unwrap().key, None);
    let last = whole.next().await.unwrap().unwrap();
    assert_eq!(last.headers.last(b"only"), Some(Some("here".into())));

    let mut plain = client.subscribe("orders").from_earliest().await.unwrap();
    for (offset, payload) in (0..).zip(["rich", "keyed", "a", "b"]) {
        let event = plain.next().await.unwrap().unwrap();
        assert_eq!(
            (event.offset, &event.payload[..]),
            (Some(offset), payload.as_bytes())
        );
        assert_eq!(event.key, None);
    }
    // In memory as well.
    home.ok(&["stream", "create", "memory", "--durable", "false"])
        .await
        .unwrap();
    let mut live = client.subscribe("memory").records().await.unwrap();
    let record = Record::new("m").key("k").header("h", "v");
    assert_eq!(client.publish("memory", record).await.unwrap().offset, None);
    let event = live.next().await.unwrap().unwrap();
    assert_eq!(event.key.as_deref(), Some(b"k".as_slice()));
    assert_eq!(event.headers.last(b"h"), Some(Some("v".into())));
    node.stop().await.unwrap();
}
