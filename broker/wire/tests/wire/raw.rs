//! Calls of the `raw` extension and their replies: their vectors, and what holds for every value.

use bytes::{Bytes, BytesMut};
use felix_wire::extension::raw::RawError;
use felix_wire::extension::requests::{Ask, Call, CallKind, Reply};
use felix_wire::extension::{Answer, Extension, Extensions, Request};
use felix_wire::frame::{Incoming, split};
use felix_wire::{Code, Failure};
use proptest::prelude::*;

use crate::raw_samples;
use crate::requests::{call, names, parts, reply, words};
use crate::samples::Parts;
use crate::support::{Content, EVERYTHING, hex, read, rows, to_hex};

/// The frames of `raw.txt`, made from values.
fn written() -> Vec<(String, Bytes)> {
    let mut frames = Vec::new();
    for (what, parts) in [("least", Parts::least()), ("most", Parts::most())] {
        for ask in raw_samples::asks(&parts) {
            frames.push((format!("{}, {what}", words(ask.kind())), call(ask)));
        }
        for answer in raw_samples::replies(&parts) {
            let name = format!("{}, answered, {what}", words(answer.kind()));
            frames.push((name, reply(&answer)));
        }
    }
    frames
}

#[test]
fn every_call_and_every_reply_is_written_as_its_vector_says() {
    let expected: Vec<String> = rows::<2>("raw.txt")
        .iter()
        .map(|row| row.join(" | "))
        .collect();
    let lines: Vec<String> = written()
        .iter()
        .map(|(name, frame)| format!("{name} | {}", to_hex(frame)))
        .collect();
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn every_vector_is_read_as_what_it_was_made_from() {
    for [name, frame] in rows::<2>("raw.txt") {
        let again = match read(&hex(&frame)).unwrap() {
            Content::Request(Request::Call(read)) => call(read.ask),
            Content::Answer(Answer::Reply(read)) => reply(&read),
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
        .filter(|kind| kind.extension() == Extension::Raw)
        .collect();
    let asked: Vec<_> = raw_samples::asks(&parts).iter().map(Ask::kind).collect();
    let answered: Vec<_> = raw_samples::replies(&parts)
        .iter()
        .map(Reply::kind)
        .collect();
    assert_eq!(asked, all);
    assert_eq!(answered, all);
}

#[test]
fn a_call_is_refused_where_only_the_other_extension_was_granted() {
    for (frame, granted) in [
        (
            call(raw_samples::asks(&Parts::least()).remove(0)),
            Extension::Requests,
        ),
        (
            call(crate::samples::asks(&Parts::least()).remove(0)),
            Extension::Raw,
        ),
    ] {
        let mut buffer = BytesMut::from(&frame[..]);
        let Ok(Some(Incoming::Extension(frame))) = split(&mut buffer, EVERYTHING) else {
            panic!("no frame of ours")
        };
        let granted: Extensions = [granted].into_iter().collect();
        let refused = frame.request(granted).unwrap_err();
        assert_eq!(refused.failure.code(), Some(Code::FeatureNotEnabled));
    }
}

#[test]
fn no_two_errors_share_a_number_or_a_word() {
    let mut words: Vec<_> = RawError::ALL.iter().map(|error| error.word()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), RawError::ALL.len());
    assert!(
        RawError::ALL
            .windows(2)
            .all(|pair| pair[0].number() < pair[1].number())
    );
}

#[test]
fn an_outcome_that_is_unknown_never_reads_as_a_batch_that_was_not_appended() {
    // After these a producer of the Kafka protocol sends the same batch again under its sequence.
    let again = [
        RawError::NotLeader,
        RawError::RequestTimedOut,
        RawError::StorageError,
    ];
    for code in Code::ALL {
        let failure = Failure::new(code, "m");
        if failure.retry() == felix_wire::Retry::OutcomeUnknown {
            assert!(again.contains(&RawError::of(&failure.into())), "{code}");
        }
    }
}

proptest! {
    #[test]
    fn calls_and_replies_are_read_as_they_were_written(parts in parts(), correlation: u64) {
        for ask in raw_samples::asks(&parts) {
            let call = Call { names: names(), ask };
            let mut frame = BytesMut::new();
            call.encode_into(correlation, &mut frame).unwrap();
            let Ok(Content::Request(Request::Call(read))) = read(&frame) else {
                panic!("{call:?}")
            };
            prop_assert_eq!(read, call);
        }
        for reply in raw_samples::replies(&parts) {
            let mut frame = BytesMut::new();
            reply.encode_into(correlation, &mut frame).unwrap();
            let Ok(Content::Answer(Answer::Reply(read))) = read(&frame) else {
                panic!("{reply:?}")
            };
            prop_assert_eq!(read, reply);
        }
    }
}
