//! Every vector, broken in every small way. Nothing may panic, and nothing may be read as longer
//! than it is.

use bytes::BytesMut;
use felix_wire::extension::{Answer, Request};
use felix_wire::frame::{HEADER_BYTES, split};
use felix_wire::{Flags, Message, Publish};

use crate::support::{Content, EVERYTHING, Unread, every_frame, read, rows};

/// Puts a length into a header so that the frame is whole again.
fn with_length(frame: &[u8]) -> BytesMut {
    let mut frame = BytesMut::from(frame);
    let (header, at) = if frame.starts_with(b"FXX1") {
        (20, 16)
    } else {
        (HEADER_BYTES, 8)
    };
    let length = u32::try_from(frame.len() - header).unwrap();
    frame[at..at + 4].copy_from_slice(&length.to_be_bytes());
    frame
}

#[test]
fn a_stream_cut_anywhere_is_a_frame_that_has_not_arrived() {
    for (name, frame) in every_frame() {
        for end in 0..frame.len() {
            let mut buffer = BytesMut::from(&frame[..end]);
            assert_eq!(
                split(&mut buffer, EVERYTHING),
                Ok(None),
                "{name} cut at {end}"
            );
            assert_eq!(buffer, frame[..end], "{name} cut at {end}");
        }
    }
}

#[test]
fn a_payload_cut_anywhere_is_refused() {
    for (name, frame) in every_frame() {
        let start = if frame.starts_with(b"FXX1") {
            20
        } else {
            HEADER_BYTES
        };
        for end in start..frame.len() {
            match read(&with_length(&frame[..end])) {
                // Batches reach to the end of the frame and are not looked into here.
                Ok(
                    Content::Request(Request::PublishRecords(_))
                    | Content::Answer(Answer::Deliver(_)),
                )
                | Err(Unread::Malformed) => {}
                Ok(content) => panic!("{name} cut at {end} reads as {content:?}"),
                Err(Unread::Incomplete | Unread::NoFrame) => panic!("{name} cut at {end}"),
                Err(Unread::Publish(malformed)) => {
                    let flags = Flags::from_bits(u16::from_be_bytes([frame[6], frame[7]]));
                    let named = flags.contains(Flags::PUBLISH_ACKED) && end >= start + 8;
                    assert_eq!(malformed.request_id.is_some(), named, "{name} cut at {end}");
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_reads_as_something_else() {
    let mut read_differently = 0;
    for (_, frame) in every_frame() {
        let original = read(&frame).unwrap();
        for bit in 0..frame.len() * 8 {
            let mut broken = BytesMut::from(&frame[..]);
            broken[bit / 8] ^= 0x80 >> (bit % 8);
            if read(&broken).is_ok_and(|content| content != original) {
                read_differently += 1;
            }
        }
    }
    assert!(
        read_differently > 1000,
        "only {read_differently} flips were read at all"
    );
}

#[test]
fn a_count_or_length_far_over_what_follows_is_refused() {
    for (name, frame) in every_frame() {
        if frame.starts_with(b"FLX1\0\x01\0\0") {
            continue;
        }
        let start = if frame.starts_with(b"FXX1") {
            20
        } else {
            HEADER_BYTES
        };
        for at in start..frame.len().saturating_sub(4) {
            for value in [u32::MAX, u32::MAX / 2, 1 << 24, 1 << 16] {
                let mut broken = BytesMut::from(&frame[..]);
                broken[at..at + 4].copy_from_slice(&value.to_be_bytes());
                if let Ok(Content::Events(batch)) = read(&broken) {
                    assert!((batch.count as usize) < frame.len(), "{name} at {at}");
                }
            }
        }
    }
}

#[test]
fn a_count_that_four_bytes_a_payload_cannot_hold_is_refused_before_anything_is_reserved() {
    let names = b"\0\x01t\0\x01d\0\x01s";
    for (count, room, accepted) in [(3_u32, 12, true), (4, 15, false), (4, 16, true)] {
        let mut payload = BytesMut::from(&names[..]);
        payload.extend_from_slice(&count.to_be_bytes());
        payload.resize(payload.len() + room, 0);
        let read = Publish::decode(Flags::PUBLISH, payload.freeze());
        assert_eq!(read.is_ok(), accepted, "{count} payloads in {room} bytes");
    }
}

#[test]
fn a_message_with_a_flipped_bit_is_refused_or_can_be_written_again() {
    for [name, _, text] in rows::<3>("messages.txt") {
        for bit in 0..text.len() * 8 {
            let mut broken = text.clone().into_bytes();
            broken[bit / 8] ^= 0x80 >> (bit % 8);
            if let Ok(message) = Message::decode(&broken) {
                let again = message.encode();
                assert_eq!(
                    Message::decode(&again[HEADER_BYTES..]),
                    Ok(message),
                    "{name} {bit}"
                );
            }
        }
    }
}

#[test]
fn deep_nesting_is_walked_over_and_not_climbed_into() {
    let deep = |depth: usize| {
        let text = format!(
            r#"{{"type":"cache_ok","zzz":{}{},"request_id":1}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        Message::decode(text.as_bytes())
    };
    assert!(deep(1_000_000).is_ok());
    let typed = format!(
        r#"{{"type":"group_dead_letter_list","offsets":{}{},"request_id":1}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(Message::decode(typed.as_bytes()).is_err());
}
