//! The vectors of binary frames, and those of the published crate, read and written.

use std::fs;

use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::{
    Ack, BinaryAck, Code, Event, EventBatch, EventHead, Failure, Flags, Message, NamedCode,
    Outgoing, Owner, Producer, Publish, Request, Retry, Stamps,
};
use serde_json::Value;

use crate::support::{Content, hex, read, rows, to_hex, vector_path};

const NAMES: Outgoing<'static> = Outgoing {
    request: None,
    producer: None,
    key: None,
    tenant: "t1",
    namespace: "default",
    stream: "demo",
};

fn payloads(list: &[&str]) -> Payloads {
    Payloads::build(list.iter().map(|payload| payload.as_bytes())).unwrap()
}

fn publish(outgoing: Outgoing<'_>, list: &[&str]) -> Bytes {
    outgoing.encode(&payloads(list)).unwrap()
}

fn request(id: u64, ack: BinaryAck) -> Option<Request> {
    Some(Request { id, ack })
}

fn ack(request_id: u64, outcome: Result<Option<u64>, Failure>, owner: Option<Owner>) -> Bytes {
    let mut buffer = BytesMut::new();
    Ack {
        request_id,
        outcome,
        owner,
    }
    .encode_into(Flags::ALL, &mut buffer);
    buffer.freeze()
}

fn node_2() -> Option<Owner> {
    let addr = Some("10.0.0.2:5000".to_owned());
    Some(Owner {
        node_id: "node-2".to_owned(),
        addr,
        generation: 4,
    })
}

fn events(head: EventHead<'_>, list: &Bytes, stamps: Stamps) -> Bytes {
    let mut frame = head.encode(list, stamps);
    frame.extend_from_slice(list);
    frame.freeze()
}

fn plain_events(head: EventHead<'_>) -> Bytes {
    events(head, &payloads(&["a", "bc"]).bytes, Stamps::Absent)
}

/// The frames of `frames.txt`, made from values.
fn written() -> Vec<(&'static str, Bytes)> {
    let batch = request(7, BinaryAck::PerBatch);
    let producer = Some(Producer {
        id: 0x1122,
        sequence: 3,
    });
    let base = EventHead {
        base_offset: Some(10),
        ..EventHead::default()
    };
    let legacy = EventHead {
        subscription_id: Some(5),
        ..EventHead::default()
    };
    let not_found = || Failure::new(Code::NotFound, "stream not found");
    let times = [1_700_000_000_000_000, 1_700_000_000_000_001];
    let stamped = felix_wire::event::stamped(&payloads(&["a", "bc"]), times);
    let stamped_z = felix_wire::event::stamped(&payloads(&["z"]), [99]);
    vec![
        ("publish plain 0x0001", publish(NAMES, &["hello"])),
        (
            "publish plain 2 payloads 0x0001",
            publish(NAMES, &["a", "bc"]),
        ),
        (
            "publish keyed k7 0x0041",
            publish(
                Outgoing {
                    key: Some(b"k7"),
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish keyed EMPTY key 0x0041",
            publish(
                Outgoing {
                    key: Some(b""),
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish acked rid=7 per_batch 0x0009",
            publish(
                Outgoing {
                    request: batch,
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish acked rid=1 per_message 0x0009",
            publish(
                Outgoing {
                    request: request(1, BinaryAck::PerMessage),
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish acked+keyed rid=7 k7 0x0049",
            publish(
                Outgoing {
                    request: batch,
                    key: Some(b"k7"),
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish idempotent rid=7 pid=0x1122 seq=3 0x0109",
            publish(
                Outgoing {
                    request: batch,
                    producer,
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        (
            "publish idempotent keyed 0x0149",
            publish(
                Outgoing {
                    request: batch,
                    producer,
                    key: Some(b"k7"),
                    ..NAMES
                },
                &["hello"],
            ),
        ),
        ("ack ok rid=7 0x0010", ack(7, Ok(None), None)),
        ("ack ok rid=7 offset=42 0x1010", ack(7, Ok(Some(42)), None)),
        (
            "ack error rid=9 'stream not found' 0x0010",
            ack(9, Err(Failure::uncoded("stream not found")), None),
        ),
        (
            "ack error+code not_found/retry_after 0x0210",
            ack(9, Err(not_found()), None),
        ),
        (
            "ack error+code+detail overloaded 0x0610",
            ack(
                9,
                Err(Failure::new(Code::Overloaded, "busy")
                    .with_reason("publish_queue_full")
                    .with_retry_after_ms(50)),
                None,
            ),
        ),
        ("ack ok+owner 0x0090", ack(7, Ok(None), node_2())),
        ("ack ok+owner+offset 0x1090", ack(7, Ok(Some(42)), node_2())),
        (
            "ack error+code+detail+owner 0x0690",
            ack(
                9,
                Err(Failure::new(Code::ShardUnavailable, "x")
                    .with_reason("moving")
                    .with_retry_after_ms(100)),
                node_2(),
            ),
        ),
        (
            "shared event batch 0x0004",
            plain_events(EventHead::default()),
        ),
        ("shared event batch base 10 0x0024", plain_events(base)),
        (
            "shared event batch base 10 skipped 3 0x0824",
            plain_events(EventHead {
                skipped_before: 3,
                ..base
            }),
        ),
        (
            "shared meta publisher svc base 10 0x2024",
            plain_events(EventHead {
                publisher: Some("svc"),
                ..base
            }),
        ),
        ("per-sub 0x0002 sub=5", plain_events(legacy)),
        (
            "per-sub 0x0022 sub=5 base 10",
            plain_events(EventHead {
                base_offset: Some(10),
                ..legacy
            }),
        ),
        (
            "shared offsets+publisher+timestamps 0x6024",
            events(
                EventHead {
                    publisher: Some("svc"),
                    ..base
                },
                &stamped,
                Stamps::Present,
            ),
        ),
        (
            "shared, everything: base 10, skipped 3, empty publisher, timestamp 99, payload `z` 0x6824",
            events(
                EventHead {
                    skipped_before: 3,
                    publisher: Some(""),
                    ..base
                },
                &stamped_z,
                Stamps::Present,
            ),
        ),
    ]
}

#[test]
fn every_binary_frame_is_written_as_its_vector_says() {
    let vectors = rows::<2>("frames.txt");
    let written = written();
    assert_eq!(vectors.len(), written.len());
    for ([name, frame], (made_name, made)) in vectors.iter().zip(&written) {
        assert_eq!(name, made_name);
        assert_eq!(*frame, to_hex(made), "{name}");
    }
}

/// Writing was seen to be right, so a frame that reads as itself when written again was read right.
#[test]
fn every_binary_frame_is_read_as_what_it_was_made_from() {
    for [name, frame] in rows::<2>("frames.txt") {
        let again = match read(&hex(&frame)).unwrap() {
            Content::Publish(publish) => rewrite_publish(&publish),
            Content::Ack(answer) => ack(answer.request_id, answer.outcome, answer.owner),
            Content::Events(batch) => rewrite_events(&batch),
            Content::Message(_) | Content::Request(_) | Content::Answer(_) => panic!("{name}"),
        };
        assert_eq!(frame, to_hex(&again), "{name}");
    }
}

fn rewrite_publish(publish: &Publish) -> Bytes {
    let outgoing = Outgoing {
        request: publish.request,
        producer: publish.producer,
        key: publish.key.as_deref(),
        tenant: publish.names.tenant(),
        namespace: publish.names.namespace(),
        stream: publish.names.stream(),
    };
    outgoing.encode(&publish.payloads).unwrap()
}

fn rewrite_events(batch: &EventBatch) -> Bytes {
    let head = EventHead {
        subscription_id: batch.subscription_id,
        base_offset: batch.base_offset,
        skipped_before: batch.skipped_before,
        publisher: batch.publisher.as_deref(),
    };
    let list: Vec<Event> = batch.events().collect();
    let payloads = Payloads::build(list.iter().map(|event| &event.payload[..])).unwrap();
    let times: Option<Vec<u64>> = list.iter().map(|event| event.timestamp_micros).collect();
    match times {
        Some(times) => events(
            head,
            &felix_wire::event::stamped(&payloads, times),
            Stamps::Present,
        ),
        None => events(head, &payloads.bytes, Stamps::Absent),
    }
}

#[test]
fn a_publish_is_read_field_by_field() {
    let [_, frame] = rows::<2>("frames.txt")
        .into_iter()
        .find(|[name, _]| name.ends_with("0x0149"))
        .unwrap();
    let Content::Publish(publish) = read(&hex(&frame)).unwrap() else {
        panic!("no publish")
    };
    assert_eq!(publish.request, request(7, BinaryAck::PerBatch));
    assert_eq!(
        publish.producer,
        Some(Producer {
            id: 0x1122,
            sequence: 3
        })
    );
    assert_eq!(publish.key.as_deref(), Some(&b"k7"[..]));
    assert_eq!(publish.names.tenant(), "t1");
    assert_eq!(publish.names.namespace(), "default");
    assert_eq!(publish.names.stream(), "demo");
    assert_eq!(publish.names.raw(), &b"\0\x02t1\0\x07default\0\x04demo"[..]);
    assert_eq!(publish.payloads.iter().collect::<Vec<_>>(), [b"hello"]);
}

#[test]
fn events_are_read_field_by_field() {
    let [_, frame] = rows::<2>("frames.txt")
        .into_iter()
        .find(|[name, _]| name.ends_with("0x6024"))
        .unwrap();
    let Content::Events(batch) = read(&hex(&frame)).unwrap() else {
        panic!("no events")
    };
    assert_eq!(batch.publisher.as_deref(), Some("svc"));
    let event = |offset, timestamp_micros, payload: &'static str| Event {
        offset: Some(offset),
        timestamp_micros: Some(timestamp_micros),
        payload: Bytes::from(payload),
    };
    let expected = [
        event(10, 1_700_000_000_000_000, "a"),
        event(11, 1_700_000_000_000_001, "bc"),
    ];
    assert_eq!(batch.events().collect::<Vec<_>>(), expected);
}

#[test]
fn an_answer_is_read_field_by_field() {
    let [_, frame] = rows::<2>("frames.txt")
        .into_iter()
        .find(|[name, _]| name.ends_with("0x0690"))
        .unwrap();
    let Content::Ack(answer) = read(&hex(&frame)).unwrap() else {
        panic!("no answer")
    };
    assert_eq!(answer.request_id, 9);
    assert_eq!(answer.owner, node_2());
    let failure = answer.outcome.unwrap_err();
    assert_eq!(failure.code, Some(NamedCode::Known(Code::ShardUnavailable)));
    assert_eq!(failure.retry(), Retry::Retry);
    assert_eq!(failure.reason(), Some("moving"));
    assert_eq!(failure.retry_after_ms(), Some(100));
}

#[test]
fn the_vectors_of_the_published_crate_hold() {
    let mut seen = 0;
    for entry in fs::read_dir(vector_path("published")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let vector: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let frame = vector["frame_hex"].as_str().unwrap();
        if let Ok(beside) = fs::read_to_string(path.with_extension("hex")) {
            assert_eq!(beside.trim(), frame, "{path:?}");
        }
        let content = read(&hex(frame)).unwrap();
        check_published(&vector, &content);
        let again = match content {
            Content::Message(message) => message.encode(),
            Content::Publish(publish) => rewrite_publish(&publish),
            Content::Ack(answer) => ack(answer.request_id, answer.outcome, answer.owner),
            Content::Events(_) | Content::Request(_) | Content::Answer(_) => panic!("{path:?}"),
        };
        assert_eq!(to_hex(&again), frame, "{path:?}");
        seen += 1;
    }
    assert_eq!(seen, 17);
}

fn check_published(vector: &Value, content: &Content) {
    match content {
        Content::Message(message) => {
            let text = vector["payload_json"].as_str().unwrap();
            assert_eq!(Message::decode(text.as_bytes()).as_ref(), Ok(message));
        }
        Content::Publish(publish) => {
            assert_eq!(
                vector["request_id"].as_u64(),
                publish.request.map(|request| request.id)
            );
            assert_eq!(
                vector["key_utf8"].as_str().map(str::as_bytes),
                publish.key.as_deref()
            );
            assert_eq!(vector["tenant_id"], publish.names.tenant());
            assert_eq!(vector["namespace"], publish.names.namespace());
            assert_eq!(vector["stream"], publish.names.stream());
            let list = vector["payloads_utf8"].as_array().unwrap();
            let list: Vec<&[u8]> = list
                .iter()
                .map(|payload| payload.as_str().unwrap().as_bytes())
                .collect();
            assert_eq!(publish.payloads.iter().collect::<Vec<_>>(), list);
        }
        Content::Ack(answer) => {
            assert_eq!(vector["request_id"], answer.request_id);
            assert_eq!(vector["status"] == "ok", answer.outcome.is_ok());
            let message = answer
                .outcome
                .as_ref()
                .err()
                .map(|failure| &failure.message[..]);
            assert_eq!(
                vector["message"].as_str().filter(|text| !text.is_empty()),
                message
            );
        }
        Content::Events(_) | Content::Request(_) | Content::Answer(_) => {
            panic!("{vector} is of another kind")
        }
    }
}
