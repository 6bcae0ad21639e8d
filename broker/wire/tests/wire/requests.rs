//! Calls and their replies: their vectors, and what holds for every value.

use bytes::{Bytes, BytesMut};
use felix_wire::extension::requests::{
    Ask, Call, CallKind, CounterValue, GroupPoll, Listed, Reply, Text,
};
use felix_wire::extension::{Answer, Extension, Kind, Refused, Request};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::{Code, Names};
use proptest::prelude::*;

use crate::samples::{self, Parts};
use crate::support::{Content, hex, read, rows, to_hex};

pub(crate) fn names() -> Names {
    Names::new("t1", "default", "demo").unwrap()
}

pub(crate) fn call(ask: Ask) -> Bytes {
    let mut frame = BytesMut::new();
    let call = Call {
        names: names(),
        ask,
    };
    call.encode_into(7, &mut frame).unwrap();
    frame.freeze()
}

pub(crate) fn reply(reply: &Reply) -> Bytes {
    let mut frame = BytesMut::new();
    reply.encode_into(7, &mut frame).unwrap();
    frame.freeze()
}

/// `GroupPoll` becomes `group poll`.
pub(crate) fn words(kind: CallKind) -> String {
    let mut words = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// The frames of `requests.txt`, made from values.
fn written() -> Vec<(String, Bytes)> {
    let mut frames = Vec::new();
    for (what, parts) in [("least", Parts::least()), ("most", Parts::most())] {
        for ask in samples::asks(&parts) {
            frames.push((format!("{}, {what}", words(ask.kind())), call(ask)));
        }
        for answer in samples::replies(&parts) {
            let name = format!("{}, answered, {what}", words(answer.kind()));
            frames.push((name, reply(&answer)));
        }
    }
    let mismatch = [Some(42), None].map(|current| Refused::version_mismatch("k", current));
    frames.push(("another version".to_owned(), mismatch[0].encode(7)));
    frames.push(("no version".to_owned(), mismatch[1].encode(7)));
    frames
}

#[test]
fn every_call_and_every_reply_is_written_as_its_vector_says() {
    let expected: Vec<String> = rows::<2>("requests.txt")
        .iter()
        .map(|row| row.join(" | "))
        .collect();
    let written = written();
    let lines: Vec<String> = written
        .iter()
        .map(|(name, frame)| format!("{name} | {}", to_hex(frame)))
        .collect();
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn every_vector_is_read_as_what_it_was_made_from() {
    for [name, frame] in rows::<2>("requests.txt") {
        let again = match read(&hex(&frame)).unwrap() {
            Content::Request(Request::Call(read)) => call(read.ask),
            Content::Answer(Answer::Reply(read)) => reply(&read),
            Content::Answer(Answer::Refused(refused)) => refused.encode(7),
            other @ (Content::Message(_)
            | Content::Publish(_)
            | Content::Ack(_)
            | Content::Events(_)
            | Content::Request(_)
            | Content::Answer(_)) => panic!("{name} reads as {other:?}"),
        };
        assert_eq!(to_hex(&again), frame, "{name}");
    }
}

#[test]
fn there_is_a_sample_of_every_call_and_of_every_reply() {
    let parts = Parts::most();
    let all = CallKind::ALL.iter().copied();
    let all: Vec<_> = all
        .filter(|kind| kind.extension() == Extension::Requests)
        .collect();
    let asked: Vec<_> = samples::asks(&parts).iter().map(Ask::kind).collect();
    let answered: Vec<_> = samples::replies(&parts).iter().map(Reply::kind).collect();
    assert_eq!(asked, all);
    assert_eq!(answered, all);
}

#[test]
fn the_kind_of_a_reply_is_that_of_its_call_with_one_bit_set() {
    for &kind in CallKind::ALL {
        assert_eq!(kind.reply_number(), kind.number() | 0x0080);
        assert_eq!(CallKind::from_number(kind.number()), Some(kind));
        assert_eq!(CallKind::from_reply_number(kind.reply_number()), Some(kind));
        assert_eq!(CallKind::from_reply_number(kind.number()), None);
        assert_eq!(
            Kind::from_number(kind.reply_number()),
            Some(Kind::Reply(kind))
        );
    }
}

#[test]
fn the_names_of_a_call_stand_as_in_a_publish() {
    let frame = call(samples::asks(&Parts::least()).remove(0));
    let names = names();
    assert!(frame[20..].starts_with(names.raw()));
    assert_eq!(names.raw(), &b"\0\x02t1\0\x07default\0\x04demo"[..]);
    let parts = (names.tenant(), names.namespace(), names.stream());
    assert_eq!(parts, ("t1", "default", "demo"));
}

#[test]
fn what_stands_behind_the_last_field_is_refused() {
    for frame in [
        call(samples::asks(&Parts::least()).remove(0)),
        reply(&Reply::CounterGet(CounterValue {
            value: None,
            repeated: false,
        })),
    ] {
        let mut longer = BytesMut::from(&frame[..]);
        longer.extend_from_slice(b"x");
        let length = u32::try_from(longer.len() - 20).unwrap();
        longer[16..20].copy_from_slice(&length.to_be_bytes());
        assert!(read(&longer).is_err(), "{frame:?}");
    }
}

#[test]
fn a_frame_that_is_too_long_for_a_peer_is_not_written() {
    let mut frame = BytesMut::from(&b"before"[..]);
    let ask = samples::asks(&Parts {
        value: vec![0; PAYLOAD_BYTES_MAX],
        ..Parts::least()
    })
    .remove(2);
    let call = Call {
        names: names(),
        ask,
    };
    assert!(call.encode_into(1, &mut frame).is_err());
    assert_eq!(frame, &b"before"[..]);
}

#[test]
fn a_text_that_is_not_utf_8_is_refused() {
    let frame = call(samples::asks(&Parts::least()).remove(0));
    let mut broken = BytesMut::from(&frame[..]);
    // The last byte is the key's only one.
    let last = broken.len() - 1;
    broken[last] = 0xff;
    assert!(read(&broken).is_err());
}

#[test]
fn a_list_hands_out_its_items_as_often_as_it_is_asked() {
    let Reply::CacheList(listed) = samples::replies(&Parts::most()).remove(4) else {
        panic!("no list")
    };
    let once: Vec<Listed> = listed.entries.iter().collect();
    assert_eq!(once, listed.entries.iter().collect::<Vec<_>>());
    assert_eq!(once.len(), listed.entries.len());
    assert!(!listed.entries.is_empty());
}

#[test]
fn a_refused_condition_says_what_is_there() {
    let refused = Refused::version_mismatch("k", Some(42));
    assert_eq!(refused.failure.code(), Some(Code::InvalidRequest));
    assert_eq!(refused.failure.reason(), Some("version_mismatch"));
    assert_eq!(refused.number, Some(42));
    assert_eq!(Refused::version_mismatch("k", None).number, None);
    let refused = Refused::offset_mismatch(9);
    assert_eq!(refused.failure.reason(), Some("offset_mismatch"));
    assert_eq!(refused.number, Some(9));
}

#[test]
fn a_reply_to_another_call_is_no_answer() {
    use felix_wire::extension::requests::Asks as _;
    let polled = samples::replies(&Parts::most()).remove(10);
    assert!(GroupPoll::reply(polled.clone()).is_some());
    assert!(felix_wire::extension::requests::GroupAck::reply(polled).is_none());
}

pub(crate) fn parts() -> impl Strategy<Value = Parts> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let numbers = (any::<u64>(), any::<u32>(), any::<i64>());
    let flags = (any::<bool>(), any::<bool>());
    (numbers, flags, "\\PC{0,12}", bytes(), bytes(), 0..5_usize).prop_map(
        |((wide, narrow, signed), (there, set), text, key, value, count)| Parts {
            wide,
            narrow,
            signed,
            there,
            set,
            text,
            key,
            value,
            count,
        },
    )
}

proptest! {
    #[test]
    fn calls_and_replies_are_read_as_they_were_written(parts in parts(), correlation: u64) {
        for ask in samples::asks(&parts) {
            let call = Call { names: names(), ask };
            let mut frame = BytesMut::new();
            call.encode_into(correlation, &mut frame).unwrap();
            prop_assert_eq!(&frame[8..16], &correlation.to_be_bytes());
            let Ok(Content::Request(Request::Call(read))) = read(&frame) else {
                panic!("{call:?}")
            };
            prop_assert_eq!(read, call);
        }
        for reply in samples::replies(&parts) {
            let mut frame = BytesMut::new();
            reply.encode_into(correlation, &mut frame).unwrap();
            let Ok(Content::Answer(Answer::Reply(read))) = read(&frame) else {
                panic!("{reply:?}")
            };
            prop_assert_eq!(read, reply);
        }
    }

    #[test]
    fn a_text_is_what_it_was_made_from(text in "\\PC{0,40}") {
        let copied = Text::from(text.as_str());
        prop_assert_eq!(copied.as_str(), &text);
        prop_assert_eq!(Text::from(text.clone()).to_string(), text);
    }
}
