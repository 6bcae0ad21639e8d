use bytes::{BufMut as _, BytesMut};
use proptest::prelude::*;

use super::*;

fn code(text: &str) -> (Code, Option<u64>) {
    let fault = Message::read(text).unwrap_err();
    (fault.code, fault.id)
}

fn binary(flags: u16, payload: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_slice(&[2, 32]);
    frame.put_u16_le(flags);
    frame.put_u32_le(1);
    frame.put_u64_le(77);
    frame.put_bytes(0, 16);
    frame.put_slice(payload);
    frame
}

#[test]
fn a_publish_is_read_in_both_forms() {
    let text = r#"{"type":"publish","stream":"edits","payload":"aGk=","ack":true,"id":77}"#;
    let Message::Publish(publish) = Message::read(text).unwrap() else {
        panic!("a publish");
    };
    assert_eq!(
        (publish.payload.as_ref(), publish.ack, publish.id),
        (&b"hi"[..], true, 77)
    );
    let Message::Publish(same) = Message::read_binary(binary(1, b"hi").freeze()).unwrap() else {
        panic!("a publish");
    };
    assert_eq!(same.stream, Named::Number(1));
    assert_eq!(
        (same.payload, same.ack, same.id),
        (publish.payload, true, 77)
    );
}

#[test]
fn a_publish_has_a_number_in_both_forms_only_when_it_says_so() {
    let seq = |read: Result<Message, Fault>| {
        let Message::Publish(publish) = read.unwrap() else {
            panic!("a publish");
        };
        publish.seq
    };
    let text = r#"{"type":"publish","stream":"edits","payload":"","ack":true,"id":1,"seq":9}"#;
    assert_eq!(seq(Message::read(text)), Some(9));
    let mut frame = binary(3, b"hi");
    frame[16] = 9;
    assert_eq!(seq(Message::read_binary(frame.clone().freeze())), Some(9));
    frame[2] = 1;
    assert_eq!(seq(Message::read_binary(frame.freeze())), None);
}

#[test]
fn what_cannot_be_read_is_a_bad_request_with_its_id() {
    assert_eq!(code("{"), (Code::BadRequest, None));
    assert_eq!(code("[]"), (Code::BadRequest, None));
    assert_eq!(
        code(r#"{"type":"publish","id":3}"#),
        (Code::BadRequest, Some(3))
    );
    let wrong = r#"{"type":"publish","stream":"s","payload":"aGk","ack":true,"id":3}"#;
    assert_eq!(code(wrong), (Code::BadRequest, Some(3)));
    assert_eq!(code(r#"{"type":"join"}"#), (Code::BadRequest, None));
    assert_eq!(
        code(r#"{"type":"dance","id":9}"#),
        (Code::Unsupported, Some(9))
    );
}

#[test]
fn a_subscription_begins_live_or_at_an_offset() {
    let from = |text: &str| {
        let text = format!(r#"{{"type":"subscribe","stream":"s","from":{text}}}"#);
        match Message::read(&text) {
            Ok(Message::Subscribe { wanted }) => Some(wanted.from),
            _ => None,
        }
    };
    assert_eq!(from(r#""live""#), Some(Begin::Word(Live::Live)));
    assert_eq!(from("12"), Some(Begin::Offset(12)));
    assert_eq!(from(r#""earliest""#), None);
    assert_eq!(from("-1"), None);
}

#[test]
fn a_conditional_put_says_what_must_hold() {
    let put = |text: &str| {
        let text = format!(
            r#"{{"type":"cache_put_if","cache":"c","key":"k","payload":"","if":{text},"id":1}}"#
        );
        match Message::read(&text) {
            Ok(Message::CachePutIf { condition, .. }) => Some(condition),
            _ => None,
        }
    };
    assert_eq!(put(r#""absent""#), Some(Condition::Absent));
    assert_eq!(put(r#"{"version":4}"#), Some(Condition::Version(4)));
    assert_eq!(put(r#"{"version":"x"}"#), None);
}

#[test]
fn a_join_says_which_protocol_scope_and_features() {
    let join = Join::read(
        r#"{"type":"join","board":"b-1","token":"t","features":["binary",3]}"#,
        "board",
    );
    let join = join.unwrap();
    assert_eq!(
        (join.scope.as_str(), join.features),
        ("b-1", vec!["binary".to_owned()])
    );
    let named = |text, field| Join::read(text, field).map(|join| join.session);
    let text = r#"{"type":"join","board":"b","session":"tab-1"}"#;
    assert_eq!(named(text, "board").unwrap().as_deref(), Some("tab-1"));
    let text = r#"{"type":"join","session":"b"}"#;
    assert_eq!(named(text, "session").unwrap(), None);
    let fault = |text| Join::read(text, "board").unwrap_err().code;
    assert_eq!(
        fault(r#"{"type":"join","board":"b","session":"a b"}"#),
        Code::BadRequest
    );
    assert_eq!(
        fault(r#"{"type":"join","board":"b","protocol":2}"#),
        Code::Unsupported
    );
    assert_eq!(fault(r#"{"type":"join","board":"b/1"}"#), Code::BadRequest);
    assert_eq!(fault(r#"{"type":"join","room":"b"}"#), Code::BadRequest);
    assert_eq!(fault(r#"{"type":"publish"}"#), Code::BadRequest);
}

proptest! {
    #[test]
    fn no_text_and_no_frame_upsets_the_reader(text in ".{0,200}", frame in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Message::read(&text);
        let _ = Join::read(&text, "board");
        let _ = Message::read_binary(frame.into());
    }

    #[test]
    fn no_damage_to_a_message_upsets_the_reader(at in 0usize..80, byte in 32u8..127) {
        let mut text = br#"{"type":"publish","stream":"edits","payload":"aGk=","ack":true,"id":77}"#.to_vec();
        let at = at % text.len();
        text[at] = byte;
        let text = String::from_utf8(text).unwrap();
        let _ = Message::read(&text);
    }

    #[test]
    fn every_payload_survives_both_forms(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = format!(
            r#"{{"type":"publish","stream":"s","payload":"{}","ack":false,"id":1}}"#,
            STANDARD.encode(&payload),
        );
        let read = |message| match message {
            Ok(Message::Publish(publish)) => publish.payload,
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(&read(Message::read(&text))[..], &payload[..]);
        prop_assert_eq!(&read(Message::read_binary(binary(0, &payload).freeze()))[..], &payload[..]);
    }
}

#[test]
fn what_a_message_says_wrong_is_repeated_in_part_only() {
    let long = "é".repeat(50_000);
    let join = format!(r#"{{"type":"join","board":"b","protocol":"{long}"}}"#);
    let mut faults = vec![Join::read(&join, "board").unwrap_err()];
    for text in [
        format!(r#"{{"type":"{long}"}}"#),
        format!(r#"{{"type":"cache_get","cache":"c","key":"k","id":"{long}"}}"#),
        format!(r#"{{"type":"subscribe","stream":"s","from":"{long}"}}"#),
    ] {
        faults.push(Message::read(&text).unwrap_err());
    }
    for fault in faults {
        let told = fault.to_text();
        assert!(told.len() < 1_024, "{} bytes: {:.80}", told.len(), told);
    }
}
