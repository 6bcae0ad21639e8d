//! Our own frames: their vectors, and what is refused.

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_wire::extension::requests::CallKind;
use felix_wire::extension::{
    Answer, Deliver, Expiring, ExtensionFrame, Extensions, Kind, PublishRecords, Published,
    RecordsHead, Refused, Renew, Renewed, Request,
};
use felix_wire::{Code, Failure, NamedCode, Owner, Producer, Retry};

use crate::support::{Content, all_extensions, hex, read, rows, to_hex};

const BATCH: &[u8] = b"batch";

const HEAD: RecordsHead<'static> = RecordsHead {
    silent: false,
    shard: None,
    key: None,
    producer: None,
    expected_offset: None,
    tenant: "t1",
    namespace: "default",
    stream: "demo",
};

fn publish(head: RecordsHead<'_>, correlation: u64) -> Bytes {
    let batch = Bytes::from_static(BATCH);
    let mut frame = head.encode(correlation, &batch).unwrap();
    frame.put_slice(&batch);
    frame.freeze()
}

fn published(offset: Option<u64>, owner: Option<Owner>) -> Bytes {
    let mut frame = BytesMut::new();
    Published { offset, owner }.encode_into(7, &mut frame);
    frame.freeze()
}

fn deliver(first: u64, skipped_before: u64, lost: u64) -> Bytes {
    let mut frame = Deliver::head(3, first, skipped_before, lost, BATCH.len());
    frame.put_slice(BATCH);
    frame.freeze()
}

fn node_2() -> Owner {
    let addr = Some("10.0.0.2:5000".to_owned());
    Owner {
        node_id: "node-2".to_owned(),
        addr,
        generation: 4,
    }
}

fn mismatch() -> Refused {
    let failure =
        Failure::new(Code::InvalidRequest, "the next offset is 9").with_reason("offset_mismatch");
    Refused {
        failure,
        number: Some(9),
        owner: None,
    }
}

fn led_elsewhere() -> Refused {
    let owner = Some(Box::new(node_2()));
    Refused {
        failure: Failure::new(Code::NotLeader, "m"),
        number: None,
        owner,
    }
}

fn renew() -> Renew {
    Renew {
        identity: 2,
        token: "tok".to_owned(),
    }
}

/// The frames of `extension.txt`, made from values.
fn written() -> Vec<(&'static str, Bytes)> {
    let producer = Some(Producer {
        id: 0x1122,
        sequence: 3,
    });
    let everything = RecordsHead {
        silent: true,
        shard: Some(2),
        key: Some(b"k7"),
        producer,
        expected_offset: Some(9),
        ..HEAD
    };
    let busy = Failure::new(Code::Overloaded, "busy")
        .with_reason("tenant_quota")
        .with_retry_after_ms(50);
    vec![
        ("publish", publish(HEAD, 7)),
        (
            "publish to a shard",
            publish(
                RecordsHead {
                    shard: Some(2),
                    ..HEAD
                },
                7,
            ),
        ),
        (
            "publish with an empty key",
            publish(
                RecordsHead {
                    key: Some(b""),
                    ..HEAD
                },
                7,
            ),
        ),
        (
            "publish with a sequence",
            publish(RecordsHead { producer, ..HEAD }, 7),
        ),
        (
            "publish with everything, unanswered",
            publish(everything, u64::MAX),
        ),
        ("published in memory", published(None, None)),
        ("published at 42", published(Some(42), None)),
        (
            "published at 42 by another broker",
            published(Some(42), Some(node_2())),
        ),
        ("refused for a while", Refused::from(busy).encode(7)),
        ("refused for the offset", mismatch().encode(7)),
        ("refused for the leader", led_elsewhere().encode(7)),
        ("deliver from 10", deliver(10, 0, 0)),
        ("deliver behind a hole", deliver(10, 3, 0)),
        ("deliver with loss", deliver(10, 0, 4)),
        ("deliver with both", deliver(10, 3, 4)),
        ("expiring", Expiring { left_ms: 60_000 }.encode(2)),
        ("renew", renew().encode(9).unwrap()),
        ("renewed", Renewed { left_ms: 900_000 }.encode(9)),
    ]
}

#[test]
fn every_frame_is_written_as_its_vector_says() {
    let vectors: Vec<_> = rows::<2>("extension.txt");
    let written = written();
    let lines: Vec<String> = written
        .iter()
        .map(|(name, frame)| format!("{name} | {}", to_hex(frame)))
        .collect();
    let expected: Vec<String> = vectors.iter().map(|row| row.join(" | ")).collect();
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn every_frame_is_read_as_what_it_was_made_from() {
    for [name, frame] in rows::<2>("extension.txt") {
        let bytes = hex(&frame);
        let correlation = u64::from_be_bytes(*bytes[8..].first_chunk().unwrap());
        let again = match read(&bytes).unwrap() {
            Content::Request(Request::PublishRecords(request)) => {
                assert_eq!(request.batch, BATCH, "{name}");
                publish(head_of(&request), correlation)
            }
            Content::Answer(Answer::Published(Published { offset, owner })) => {
                published(offset, owner)
            }
            Content::Answer(Answer::Refused(refused)) => refused.encode(correlation),
            Content::Answer(Answer::Deliver(Deliver {
                first,
                skipped_before,
                lost,
                batches,
            })) => {
                assert_eq!(batches, BATCH, "{name}");
                deliver(first, skipped_before, lost)
            }
            Content::Answer(Answer::Expiring(expiring)) => expiring.encode(correlation),
            Content::Answer(Answer::Renewed(renewed)) => renewed.encode(correlation),
            Content::Request(Request::Renew(renew)) => renew.encode(correlation).unwrap(),
            Content::Request(Request::Call(_)) | Content::Answer(Answer::Reply(_)) => {
                panic!("{name} is a call")
            }
            Content::Message(_) | Content::Publish(_) | Content::Ack(_) | Content::Events(_) => {
                panic!("{name} is not one of ours")
            }
        };
        assert_eq!(to_hex(&again), frame, "{name}");
    }
}

fn head_of(request: &PublishRecords) -> RecordsHead<'_> {
    RecordsHead {
        silent: request.silent,
        shard: request.shard,
        key: request.key.as_deref(),
        producer: request.producer,
        expected_offset: request.expected_offset,
        tenant: request.names.tenant(),
        namespace: request.names.namespace(),
        stream: request.names.stream(),
    }
}

#[test]
fn refusals_are_read_field_by_field() {
    let Ok(Content::Answer(Answer::Refused(refused))) = read(&led_elsewhere().encode(7)) else {
        panic!("no refusal")
    };
    assert_eq!(refused, led_elsewhere());
    let Ok(Content::Answer(Answer::Refused(refused))) = read(&mismatch().encode(7)) else {
        panic!("no refusal")
    };
    assert_eq!(refused.number, Some(9));
    assert_eq!(
        refused.failure.code,
        Some(NamedCode::Known(Code::InvalidRequest))
    );
    assert_eq!(refused.failure.reason(), Some("offset_mismatch"));
    assert_eq!(refused.failure.retry(), Retry::Fatal);
}

fn frame(kind: u16, flags: u16, body: &[u8]) -> ExtensionFrame {
    ExtensionFrame {
        kind,
        flags,
        correlation: 5,
        body: Bytes::copy_from_slice(body),
    }
}

fn reason(refused: &Refused) -> (Option<Code>, Option<&str>) {
    (refused.failure.code(), refused.failure.reason())
}

#[test]
fn a_kind_nobody_knows_or_nobody_granted_is_refused_with_a_code() {
    let unknown = frame(0x7f01, 0, b"").request(all_extensions()).unwrap_err();
    assert_eq!(
        reason(&unknown),
        (Some(Code::FeatureNotEnabled), Some("unknown_kind"))
    );
    let kind = Kind::PublishRecords.number();
    let not_granted = frame(kind, 0, b"").request(Extensions::NONE).unwrap_err();
    assert_eq!(
        reason(&not_granted),
        (Some(Code::FeatureNotEnabled), Some("unknown_kind"))
    );
}

#[test]
fn a_client_that_answers_and_a_broker_that_asks_are_refused() {
    let reply = Kind::Reply(CallKind::CacheGet);
    for kind in [
        Kind::Refused,
        Kind::Published,
        Kind::Deliver,
        Kind::Expiring,
        Kind::Renewed,
        reply,
    ] {
        let refused = frame(kind.number(), 0, b"")
            .request(all_extensions())
            .unwrap_err();
        assert_eq!(
            reason(&refused),
            (Some(Code::InvalidRequest), Some("not_a_request"))
        );
    }
    for kind in [
        Kind::PublishRecords,
        Kind::Renew,
        Kind::Call(CallKind::CacheGet),
    ] {
        let asks = frame(kind.number(), 0, b"")
            .answer(all_extensions())
            .unwrap_err();
        assert_eq!(
            reason(&asks),
            (Some(Code::InvalidRequest), Some("not_an_answer"))
        );
    }
}

#[test]
fn an_unknown_flag_is_refused_as_it_may_change_the_body() {
    for kind in Kind::all() {
        let strange = frame(kind.number(), 0x8000, &[0; 64]);
        let refused = if matches!(kind, Kind::PublishRecords | Kind::Renew | Kind::Call(_)) {
            strange.request(all_extensions()).map(drop)
        } else {
            strange.answer(all_extensions()).map(drop)
        };
        let malformed = (Some(Code::InvalidRequest), Some("malformed"));
        assert_eq!(reason(&refused.unwrap_err()), malformed, "{kind:?}");
    }
}

#[test]
fn names_that_nobody_here_knows_are_passed_over() {
    let names = [
        "nobody's", "records", "", "reauth", "raw", "requests", "records",
    ]
    .map(str::to_owned);
    let known = Extensions::from_names(&names);
    assert_eq!(known, all_extensions());
    assert_eq!(known.names(), ["records", "requests", "raw", "reauth"]);
    assert!(Extensions::from_names(&names[..1]).is_empty());
}

#[test]
fn a_token_too_long_for_its_length_is_not_written_and_none_is_shown() {
    let long = Renew {
        identity: 1,
        token: "x".repeat(65_536),
    };
    assert_eq!(long.encode(1), None);
    assert!(!format!("{:?}", renew()).contains("tok"));
}

#[test]
fn every_kind_has_its_own_number() {
    for kind in Kind::all() {
        assert_eq!(Kind::from_number(kind.number()), Some(kind));
    }
    assert_eq!(Kind::from_number(0), None);
}
