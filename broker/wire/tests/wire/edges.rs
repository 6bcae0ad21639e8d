//! What is refused, and what odd input means.

use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::frame::{Accepts, split};
use felix_wire::message::{Change, ExtensionRequest, RawJson, Unknown};
use felix_wire::{
    Ack, Code, Detail, EventHead, Failure, Flags, FrameRefused, Header, Malformed, Message,
    NamedCode, Outgoing, Publish, Retry, Stamps,
};

use crate::support::{Content, EVERYTHING, hex, read, rows};

#[test]
fn what_is_refused_and_what_is_accepted_is_as_the_table_says() {
    for [name, verdict, what, input] in rows::<4>("refused.txt") {
        let accepted = match &what[..] {
            "frame" => read(&hex(&input))
                .map(drop)
                .map_err(|unread| format!("{unread:?}")),
            "message" => Message::decode(input.as_bytes())
                .map(drop)
                .map_err(|error| error.to_string()),
            _ => panic!("{name}: {what}"),
        };
        match &verdict[..] {
            "accepted" => assert_eq!(accepted, Ok(()), "{name}"),
            "refused" => assert!(accepted.is_err(), "{name}"),
            _ => panic!("{name}: {verdict}"),
        }
    }
}

fn decode(text: &str) -> Message {
    Message::decode(text.as_bytes()).unwrap()
}

#[test]
fn an_unknown_type_keeps_its_name_and_its_id_if_that_is_one() {
    let unknown = |request_type: &str, request_id| {
        Message::Unknown(Unknown {
            request_type: request_type.to_owned(),
            request_id,
        })
    };
    assert_eq!(
        decode(r#"{"type":"zzz","request_id":4}"#),
        unknown("zzz", Some(4))
    );
    assert_eq!(
        decode(r#"{"request_id":"4","type":"zzz"}"#),
        unknown("zzz", None)
    );
    assert_eq!(
        decode(r#"{"type":"zzz","request_id":-4}"#),
        unknown("zzz", None)
    );
    assert_eq!(
        decode(r#"{"type":"zzz","request_id":4.0}"#),
        unknown("zzz", None)
    );
    assert_eq!(decode(r#"{"type":"z\u007az"}"#), unknown("zzz", None));
    assert_eq!(
        unknown("zzz", None).encode()[12..],
        br#"{"type":"zzz"}"#[..]
    );
    assert_eq!(
        unknown("z", Some(1)).encode()[12..],
        br#"{"type":"z","request_id":1}"#[..]
    );
}

#[test]
fn unknown_codes_are_kept_and_unknown_classes_are_fatal() {
    let Message::Error(failure) =
        decode(r#"{"type":"error","message":"m","code":"too_early","retry":"someday"}"#)
    else {
        panic!("no error")
    };
    assert_eq!(failure.code, Some(NamedCode::Unknown("too_early".into())));
    assert_eq!(failure.retry, Some(Retry::Fatal));
    let frame = hex("464c5831000102100000000e0100000000000000070000004d63");
    let Ok(Content::Ack(ack)) = read(&frame) else {
        panic!("no answer")
    };
    let failure = ack.outcome.unwrap_err();
    assert_eq!(failure.code, Some(NamedCode::Unknown("code_77".into())));
    assert_eq!(failure.retry(), Retry::Fatal);
}

#[test]
fn an_ok_answer_drops_what_belongs_to_failures() {
    for frame in [
        "464c5831000100100000000d0000000000000000070002 6869",
        "464c5831000102100000000e0000000000000000070000000302",
    ] {
        let Ok(Content::Ack(ack)) = read(&hex(frame)) else {
            panic!("no answer")
        };
        assert_eq!(
            ack,
            Ack {
                request_id: 7,
                outcome: Ok(None),
                owner: None
            }
        );
    }
}

#[test]
fn the_codes_and_classes_have_the_numbers_and_names_of_the_protocol() {
    let table = [
        (1, "unauthenticated", Retry::Fatal),
        (2, "forbidden", Retry::Fatal),
        (3, "not_found", Retry::RetryAfter),
        (4, "invalid_request", Retry::Fatal),
        (5, "shard_unavailable", Retry::Retry),
        (6, "not_leader", Retry::Redirect),
        (7, "quorum_timeout", Retry::OutcomeUnknown),
        (8, "leadership_lost", Retry::OutcomeUnknown),
        (9, "unacknowledged", Retry::OutcomeUnknown),
        (10, "overloaded", Retry::RetryAfter),
        (11, "limit_exceeded", Retry::Fatal),
        (12, "draining", Retry::Retry),
        (13, "internal", Retry::OutcomeUnknown),
        (14, "storage", Retry::OutcomeUnknown),
        (15, "stale_claim", Retry::Retry),
        (16, "revoked", Retry::Fatal),
        (17, "stale_width", Retry::Retry),
        (18, "feature_not_enabled", Retry::Fatal),
        (19, "stream_has_commits", Retry::Fatal),
    ];
    assert_eq!(table.len(), Code::ALL.len());
    for (number, name, retry) in table {
        let code = Code::from_number(number).unwrap();
        assert_eq!((code.number(), code.name()), (number, name));
        assert_eq!(Code::from_name(name), Some(code));
        assert_eq!(code.default_retry(), retry);
        assert_eq!(
            Failure {
                retry: None,
                ..Failure::new(code, "")
            }
            .retry(),
            retry
        );
    }
    assert_eq!(Code::from_number(0), None);
    let classes = [
        "retry",
        "retry_after",
        "redirect",
        "outcome_unknown",
        "fatal",
    ];
    for (byte, name) in (1..).zip(classes) {
        let class = Retry::from_byte(byte);
        assert_eq!((class.byte(), class.name()), (byte, name));
        assert_eq!(Retry::from_name(name), class);
    }
    assert_eq!(Retry::from_byte(0), Retry::Fatal);
    assert_eq!(Retry::from_byte(6), Retry::Fatal);
}

#[test]
fn a_failure_without_a_known_code_or_class_is_fatal() {
    assert_eq!(Failure::uncoded("no").retry(), Retry::Fatal);
    let unknown = Some(NamedCode::Unknown("too_early".into()));
    assert_eq!(
        Failure {
            code: unknown,
            ..Failure::uncoded("no")
        }
        .retry(),
        Retry::Fatal
    );
}

#[test]
fn a_request_is_named_by_the_error_even_if_the_rest_is_not_readable() {
    let flags = Flags::PUBLISH | Flags::PUBLISH_ACKED;
    let cut = hex("000000000000000702 0002 74");
    let error = Publish::decode(flags, cut).unwrap_err();
    assert_eq!(error.request_id, Some(7));
    assert_eq!(
        error.reason,
        Malformed::Truncated {
            field: "tenant",
            missing: 1
        }
    );
    assert_eq!(error.failure().code(), Some(Code::InvalidRequest));
    let error = Publish::decode(flags, hex("00000000000000")).unwrap_err();
    assert_eq!(error.request_id, None);
    let error =
        Message::decode(br#"{"request_id":5,"type":"publish","payload":"YQ"}"#).unwrap_err();
    assert_eq!(error.request_id, Some(5));
    assert_eq!(error.request_type.as_deref(), Some("publish"));
}

#[test]
fn a_batch_of_too_many_payloads_is_over_a_limit_and_not_malformed() {
    let count = felix_model::limits::BATCH_RECORDS_MAX + 1;
    let mut payload = BytesMut::from(&hex("0000000000000007020001740001640001 73")[..]);
    payload.extend_from_slice(&count.to_be_bytes());
    payload.resize(payload.len() + 4 * count as usize, 0);
    let flags = Flags::PUBLISH | Flags::PUBLISH_ACKED;
    let error = Publish::decode(flags, payload.freeze()).unwrap_err();
    assert_eq!(error.failure().code(), Some(Code::LimitExceeded));
}

#[test]
fn a_header_alone_decides_that_a_frame_is_too_long() {
    let accepts = Accepts {
        payload_bytes_max: 64 * 1024,
        extensions: false,
    };
    let mut whole = BytesMut::from(
        &Header {
            flags: Flags::NONE,
            length: 65_536,
        }
        .encode()[..],
    );
    assert_eq!(split(&mut whole, accepts), Ok(None));
    let mut over = BytesMut::from(
        &Header {
            flags: Flags::NONE,
            length: 65_537,
        }
        .encode()[..],
    );
    let refused = FrameRefused::TooLong {
        length: 65_537,
        limit: 65_536,
    };
    assert_eq!(split(&mut over, accepts), Err(refused));
    let mut huge = BytesMut::from(
        &Header {
            flags: Flags::NONE,
            length: u32::MAX,
        }
        .encode()[..],
    );
    assert!(matches!(
        split(&mut huge, EVERYTHING),
        Err(FrameRefused::TooLong { .. })
    ));
}

#[test]
fn our_own_frames_are_strange_where_no_extension_was_granted() {
    let accepts = Accepts {
        extensions: false,
        ..EVERYTHING
    };
    let mut buffer = BytesMut::from(&b"FXX1"[..]);
    assert_eq!(
        split(&mut buffer, accepts),
        Err(FrameRefused::Magic { found: *b"FXX1" })
    );
    assert_eq!(split(&mut buffer, EVERYTHING), Ok(None));
}

#[test]
fn a_name_that_no_length_can_say_is_not_sent() {
    let long = "s".repeat(65_536);
    let outgoing = Outgoing {
        request: None,
        producer: None,
        key: None,
        tenant: "t",
        namespace: "d",
        stream: &long,
    };
    let payloads = Payloads::build([&b"a"[..]]).unwrap();
    assert_eq!(
        outgoing.encode(&payloads).unwrap_err().to_string(),
        "stream of 65536 bytes is over 65535"
    );
    assert!(
        Outgoing {
            stream: &long[1..],
            ..outgoing
        }
        .encode(&payloads)
        .is_ok()
    );
    let big = vec![0; 16 * 1024 * 1024 - 8];
    let payloads = Payloads::build([&big[..]]).unwrap();
    let refused = Outgoing {
        stream: "s",
        ..outgoing
    }
    .encode(&payloads)
    .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a frame payload of 16777225 bytes is over the limit of 16777216"
    );
}

#[test]
fn a_publisher_whose_name_is_too_long_is_not_named() {
    let payloads = Payloads::build([&b"a"[..]]).unwrap();
    let name = "n".repeat(256);
    for (publisher, expected) in [(&name[..], ""), (&name[1..], &name[1..])] {
        let head = EventHead {
            publisher: Some(publisher),
            ..EventHead::default()
        };
        let mut frame = head.encode(&payloads.bytes, Stamps::Absent);
        frame.extend_from_slice(&payloads.bytes);
        let Ok(Content::Events(batch)) = read(&frame) else {
            panic!("no events")
        };
        assert_eq!(batch.publisher.as_deref(), Some(expected));
    }
}

#[test]
fn a_message_longer_than_its_length_can_say_is_cut_between_characters() {
    let text = "é".repeat(40_000);
    let failure = Failure::new(Code::Internal, text.clone()).with_reason(text);
    let mut buffer = BytesMut::new();
    Ack {
        request_id: 1,
        outcome: Err(failure),
        owner: None,
    }
    .encode_into(Flags::ALL, &mut buffer);
    let Ok(Content::Ack(ack)) = read(&buffer) else {
        panic!("no answer")
    };
    let failure = ack.outcome.unwrap_err();
    assert_eq!(failure.message, "é".repeat(32_767));
    assert_eq!(failure.reason(), Some(&failure.message[..]));
}

#[test]
fn an_answer_has_only_the_fields_its_reader_offered_to_read() {
    let failure = Failure::new(Code::Overloaded, "m")
        .with_reason("tenant_quota")
        .with_retry_after_ms(1);
    let failed = Ack {
        request_id: 1,
        outcome: Err(failure),
        owner: None,
    };
    let flags_of = |ack: &Ack, reads| {
        let mut buffer = BytesMut::new();
        ack.encode_into(reads, &mut buffer);
        Header::decode(buffer.first_chunk().unwrap()).unwrap().flags
    };
    let code = Flags::ACK | Flags::ACK_CODE;
    assert_eq!(flags_of(&failed, Flags::ORIGINAL), Flags::ACK);
    assert_eq!(flags_of(&failed, code), code);
    assert_eq!(flags_of(&failed, Flags::ACK_DETAIL), Flags::ACK);
    assert_eq!(flags_of(&failed, Flags::ALL), code | Flags::ACK_DETAIL);
    let done = Ack {
        request_id: 1,
        outcome: Ok(Some(4)),
        owner: None,
    };
    assert_eq!(flags_of(&done, code), Flags::ACK);
    assert_eq!(flags_of(&done, Flags::ALL), Flags::ACK | Flags::ACK_OFFSET);
}

#[test]
fn a_token_is_never_printed() {
    let auth = decode(r#"{"type":"auth","tenant_id":"t1","token":"hush"}"#);
    assert!(!format!("{auth:?}").contains("hush"));
}

#[test]
fn the_body_of_an_extension_request_is_passed_on_as_it_came() {
    let text = r#"{"type":"extension","name":"x","body":{"b":1, "a":[1.50,null]}}"#;
    let Message::Extension(ExtensionRequest { body, .. }) = decode(text) else {
        panic!("no extension")
    };
    assert_eq!(body, RawJson::new(r#"{"b":1, "a":[1.50,null]}"#).ok());
    assert_eq!(decode(text).encode()[12..], *text.as_bytes());
    assert!(RawJson::new("{").is_err());
}

#[test]
fn a_detail_without_content_is_kept_as_an_empty_object() {
    let text = r#"{"type":"error","message":"m","code":"internal","detail":{}}"#;
    let Message::Error(failure) = decode(text) else {
        panic!("no error")
    };
    assert_eq!(failure.detail, Some(Detail::default()));
}

#[test]
fn a_delete_passes_over_a_value() {
    let text = r#"{"type":"commit","tenant_id":"t","namespace":"d","stream":"s","entity_key":"","event":"","changes":[{"value":"YQ==","op":"delete","key":"k"}],"request_id":1}"#;
    let Message::Commit(commit) = decode(text) else {
        panic!("no commit")
    };
    assert_eq!(
        commit.changes,
        [Change::Delete {
            key: "k".to_owned()
        }]
    );
}

#[test]
fn more_names_than_any_list_has_are_refused() {
    let auth = |count: usize| {
        let names = vec![r#""a""#; count].join(",");
        let text =
            format!(r#"{{"type":"auth","tenant_id":"t","token":"k","extensions":[{names}]}}"#);
        Message::decode(text.as_bytes())
    };
    assert!(auth(256).is_ok());
    assert!(auth(257).is_err());
}

#[test]
fn frames_come_off_a_buffer_one_by_one_however_the_bytes_arrive() {
    let first = decode(r#"{"type":"ok"}"#).encode();
    let second = decode(r#"{"type":"topology"}"#).encode();
    let stream = [&first[..], &second[..]].concat();
    let mut buffer = BytesMut::new();
    let mut seen = Vec::new();
    for byte in stream {
        buffer.extend_from_slice(&[byte]);
        while let Some(frame) = split(&mut buffer, EVERYTHING).unwrap() {
            let felix_wire::Incoming::Published(frame) = frame else {
                panic!("not published")
            };
            seen.push(frame.encode());
        }
    }
    assert_eq!(seen, [first, second]);
    assert_eq!(buffer, Bytes::new());
}
