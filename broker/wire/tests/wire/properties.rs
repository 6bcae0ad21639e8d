//! What holds for every value: whatever is written is read as the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::extension::{Answer, Deliver, PublishRecords, RecordsHead, Refused, Request};
use felix_wire::frame::split;
use felix_wire::{
    Ack, BinaryAck, Code, Detail, EventHead, Failure, Flags, Message, NamedCode, Outgoing, Owner,
    Producer, Retry, Stamps,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value};

use crate::support::{Content, EVERYTHING, read, rows};

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..most)
}

fn failure() -> impl Strategy<Value = Failure> {
    let code = prop_oneof![
        select(&Code::ALL[..]).prop_map(NamedCode::Known),
        (20..u16::MAX).prop_map(NamedCode::from_number),
    ];
    let detail = (option::of("[a-z_]{1,9}"), option::of(1..u64::MAX)).prop_map(
        |(reason, retry_after_ms)| Detail {
            reason,
            retry_after_ms,
        },
    );
    (
        "\\PC{0,40}",
        code,
        select(&Retry::ALL[..]),
        option::of(detail),
    )
        .prop_map(|(message, code, retry, detail)| Failure {
            message,
            code: Some(code),
            retry: Some(retry),
            detail,
        })
}

fn owner() -> impl Strategy<Value = Owner> {
    ("\\PC{0,20}", option::of("[0-9.:]{1,20}"), any::<u64>()).prop_map(
        |(node_id, addr, generation)| Owner {
            node_id,
            addr,
            generation,
        },
    )
}

fn request() -> impl Strategy<Value = (Option<felix_wire::Request>, Option<Producer>)> {
    let acked = (
        any::<u64>(),
        select(vec![BinaryAck::PerMessage, BinaryAck::PerBatch]),
    )
        .prop_map(|(id, ack)| (Some(felix_wire::Request { id, ack }), None));
    let producer =
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(request_id, id, sequence)| {
            let request = felix_wire::Request {
                id: request_id,
                ack: BinaryAck::PerBatch,
            };
            (Some(request), Some(Producer { id, sequence }))
        });
    prop_oneof![Just((None, None)), acked, producer]
}

proptest! {
    #[test]
    fn a_publish_is_read_as_it_was_written(
        (request, producer) in request(),
        key in option::of(bytes(20)),
        names in ("\\PC{0,20}", "\\PC{0,20}", "\\PC{0,20}"),
        list in vec(bytes(50), 0..20),
    ) {
        let payloads = Payloads::build(list.iter().map(Vec::as_slice)).unwrap();
        let frame = Outgoing {
            request,
            producer,
            key: key.as_deref(),
            tenant: &names.0,
            namespace: &names.1,
            stream: &names.2,
        }
        .encode(&payloads)
        .unwrap();
        let Ok(Content::Publish(publish)) = read(&frame) else { panic!("no publish") };
        prop_assert_eq!(publish.request, request);
        prop_assert_eq!(publish.producer, producer);
        prop_assert_eq!(publish.key.as_deref(), key.as_deref());
        prop_assert_eq!(publish.names.tenant(), names.0);
        prop_assert_eq!(publish.names.namespace(), names.1);
        prop_assert_eq!(publish.names.stream(), names.2);
        prop_assert_eq!(publish.payloads, payloads);
    }

    #[test]
    fn an_answer_is_read_as_it_was_written(
        request_id: u64,
        outcome in prop_oneof![
            option::of(any::<u64>()).prop_map(Ok),
            failure().prop_map(Err),
        ],
        owner in option::of(owner()),
    ) {
        let ack = Ack { request_id, outcome, owner };
        let mut frame = BytesMut::new();
        ack.encode_into(Flags::ALL, &mut frame);
        match read(&frame) {
            Ok(Content::Ack(read)) => prop_assert_eq!(read, ack),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_are_read_as_they_were_written(
        subscription_id in option::of(any::<u64>()),
        base in option::of((any::<u32>().prop_map(u64::from), any::<u64>())),
        publisher in option::of("\\PC{0,60}"),
        list in vec((any::<u64>(), bytes(50)), 0..20),
        stamps in select(vec![Stamps::Absent, Stamps::Present]),
    ) {
        let (base_offset, skipped_before) = base.unzip();
        let head = EventHead {
            subscription_id,
            base_offset,
            skipped_before: skipped_before.unwrap_or(0),
            publisher: publisher.as_deref(),
        };
        let payloads = Payloads::build(list.iter().map(|(_, payload)| payload.as_slice())).unwrap();
        let body = match stamps {
            Stamps::Absent => payloads.bytes,
            Stamps::Present => {
                felix_wire::event::stamped(&payloads, list.iter().map(|(time, _)| *time))
            }
        };
        let mut frame = head.encode(&body, stamps);
        frame.extend_from_slice(&body);
        let Ok(Content::Events(batch)) = read(&frame) else { panic!("no events") };
        prop_assert_eq!(batch.subscription_id, subscription_id);
        prop_assert_eq!(batch.base_offset, base_offset);
        prop_assert_eq!(batch.skipped_before, skipped_before.unwrap_or(0));
        prop_assert_eq!(batch.publisher.as_deref(), publisher.as_deref());
        prop_assert_eq!(batch.events().count(), list.len());
        for ((index, event), (time, payload)) in (0..).zip(batch.events()).zip(list) {
            prop_assert_eq!(event.offset, base_offset.map(|base| base + index));
            prop_assert_eq!(event.timestamp_micros, (stamps == Stamps::Present).then_some(time));
            prop_assert_eq!(event.payload, payload);
        }
    }

    #[test]
    fn records_are_read_as_they_were_written(
        correlation: u64,
        silent: bool,
        shard in option::of(any::<u32>()),
        key in option::of(bytes(20)),
        producer in option::of((any::<u64>(), any::<u64>())),
        expected_offset in option::of(any::<u64>()),
        batch in bytes(200),
    ) {
        let producer = producer.map(|(id, sequence)| Producer { id, sequence });
        let batch = Bytes::from(batch);
        let head = RecordsHead {
            silent,
            shard,
            key: key.as_deref(),
            producer,
            expected_offset,
            tenant: "t1",
            namespace: "default",
            stream: "demo",
        };
        let mut frame = head.encode(correlation, &batch).unwrap();
        frame.extend_from_slice(&batch);
        let Ok(Content::Request(Request::PublishRecords(read))) = read(&frame) else {
            panic!("no publish")
        };
        let PublishRecords { names, .. } = read.clone();
        let expected = PublishRecords {
            silent,
            shard,
            key: key.map(Bytes::from),
            producer,
            expected_offset,
            names,
            batch,
        };
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn refusals_and_deliveries_of_our_own_are_read_as_they_were_written(
        failure in failure(),
        number in option::of(any::<u64>()),
        owner in option::of(owner()),
        first: u64,
        skipped_before: u64,
        lost: u64,
        batches in bytes(200),
    ) {
        let failure = Failure {
            detail: failure.detail.filter(|detail| *detail != Detail::default()),
            ..failure
        };
        let refused = Refused { failure, number, owner: owner.map(Box::new) };
        match read(&refused.encode(1)) {
            Ok(Content::Answer(Answer::Refused(read))) => prop_assert_eq!(read, refused),
            other => panic!("{other:?}"),
        }
        let mut frame = Deliver::head(1, first, skipped_before, lost, batches.len());
        frame.extend_from_slice(&batches);
        let batches = Bytes::from(batches);
        let deliver = Deliver { first, skipped_before, lost, batches };
        match read(&frame) {
            Ok(Content::Answer(Answer::Deliver(read))) => prop_assert_eq!(read, deliver),
            other => panic!("{other:?}"),
        }
    }

    /// Takes a message that has a vector, puts other values into it, and adds what a reader has to
    /// pass over.
    #[test]
    fn a_message_is_written_as_what_it_was_read_from(
        [_, _, text] in select(rows::<3>("messages.txt")),
        seed in vec(any::<u64>(), 1..40),
        texts in vec("\\PC{0,12}", 1..10),
    ) {
        let mut values = Values { numbers: seed, texts, next: 0 };
        let value = values.replace("", serde_json::from_str(&text).unwrap());
        let message = Message::decode(values.loosely(&value).as_bytes()).unwrap();
        let frame = message.encode();
        prop_assert_eq!(Message::decode(&frame[12..]), Ok(message));
        let written: Value = serde_json::from_slice(&frame[12..]).unwrap();
        prop_assert_eq!(written, value);
    }

    #[test]
    fn no_bytes_make_reading_panic(noise in bytes(200), flags: u16) {
        let _ = read(&noise);
        let mut frame = BytesMut::from(&b"FLX1\0\x01"[..]);
        frame.extend_from_slice(&flags.to_be_bytes());
        frame.extend_from_slice(&u32::try_from(noise.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&noise);
        let _ = read(&frame);
        let _ = Message::decode(&noise);
        let mut frame = BytesMut::from(&b"FXX1\x01"[..]);
        frame.extend_from_slice(&flags.to_be_bytes()[..1]);
        frame.extend_from_slice(&noise);
        prop_assert!(split(&mut frame, EVERYTHING).is_ok() || frame.len() > 3);
    }
}

/// Values to put into a message in place of those it has.
struct Values {
    numbers: Vec<u64>,
    texts: Vec<String>,
    next: usize,
}

/// Fields whose text is one of a few words.
const WORDS: [&str; 8] = [
    "type",
    "op",
    "kind",
    "ack",
    "retry",
    "reason",
    "start",
    "condition",
];
/// Fields whose text is base64.
const BASE64: [&str; 8] = [
    "payload",
    "payloads",
    "value",
    "entity_key",
    "event",
    "headers",
    "trim_headers",
    "base64 key",
];
/// Fields of 64 bits; every other number is kept within 16.
const WIDE: [&str; 10] = [
    "request_id",
    "offset",
    "base_offset",
    "expected_offset",
    "producer_id",
    "sequence",
    "subscription_id",
    "resume_from",
    "ttl_ms",
    "timestamp_micros",
];
/// Numbers that are left out when they are 0, and the bits that belong together.
const KEPT: [&str; 7] = [
    "client_features",
    "client_features_hi",
    "server_features",
    "attempts",
    "max_records",
    "max_bytes",
    "visibility_ms",
];

impl Values {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.numbers[self.next % self.numbers.len()]
    }

    fn text(&mut self) -> String {
        self.next += 1;
        self.texts[self.next % self.texts.len()].clone()
    }

    fn replace(&mut self, field: &str, value: Value) -> Value {
        match value {
            Value::Number(_) if KEPT.contains(&field) => value,
            Value::Number(_) if WIDE.contains(&field) => self.number().into(),
            Value::Number(_) if field == "delta" => (self.number().cast_signed()).into(),
            Value::Number(_) => (self.number() & 0xffff).into(),
            Value::String(_) if WORDS.contains(&field) => value,
            Value::String(_) if BASE64.contains(&field) => STANDARD.encode(self.text()).into(),
            Value::String(_) => self.text().into(),
            Value::Array(list) => list
                .into_iter()
                .map(|item| self.replace(field, item))
                .collect(),
            Value::Object(fields) => {
                let publishes = fields
                    .get("type")
                    .and_then(Value::as_str)
                    .is_some_and(|name| name.starts_with("publish"));
                let replace = |(name, value): (String, Value)| {
                    let field = if publishes && name == "key" {
                        "base64 key"
                    } else {
                        &name
                    };
                    let value = self.replace(field, value);
                    (name, value)
                };
                Value::Object(fields.into_iter().map(replace).collect())
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    /// The object with its fields in another order, spaces between, and fields nobody knows.
    fn loosely(&mut self, value: &Value) -> String {
        let empty = Map::new();
        let fields = value.as_object().unwrap_or(&empty);
        let mut parts: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{:?} :\t{value}", name))
            .collect();
        parts.push(format!("\"zzz\":{}", Value::from(self.text())));
        parts.push(format!("\"yyy\":[{{\"type\":{}}}]", self.number()));
        let turn = usize::try_from(self.number() % 7).unwrap() % parts.len();
        parts.rotate_left(turn);
        format!(" {{{}\n}} ", parts.join(" ,"))
    }
}
