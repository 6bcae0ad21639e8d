//! One stream from the broker's side, as a transcript.

use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::extension::RecordsHead;
use felix_wire::frame::split;
use felix_wire::{
    BinaryAck, Features, Flags, Heard, Message, Offer, Outgoing, Peer, Producer, Refusal, Request,
    Served, Session, Ways, Window,
};

use crate::support::{all_extensions, hex, to_hex};

const AUTH: &str = r#"{"type":"auth","tenant_id":"t1","token":"tok","client_flags":8191,"client_features":4218945535,"client_features_hi":31}"#;
const OLD_AUTH: &str = r#"{"type":"auth","tenant_id":"t1","token":"tok"}"#;
const OUR_AUTH: &str = r#"{"type":"auth","tenant_id":"t1","token":"tok","client_flags":8191,"client_features":2048,"extensions":["records"]}"#;

fn json(text: &str) -> Bytes {
    let mut frame = BytesMut::from(&b"FLX1\0\x01\0\0"[..]);
    frame.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame.freeze()
}

fn served() -> Served {
    Served {
        flags: Flags::ALL,
        features: Features::ALL,
        publish_window: 256,
        listener_ports: Vec::new(),
        extensions: all_extensions(),
    }
}

/// Says every frame to a fresh stream, finds every token good, and tells what comes of it.
fn transcript(ways: Ways, frames: &[Bytes]) -> String {
    let mut session = Session::new(ways);
    let mut told = String::new();
    for frame in frames {
        let mut buffer = BytesMut::from(&frame[..]);
        let heard = match split(&mut buffer, session.accepts()) {
            Ok(Some(incoming)) => session.hear(incoming),
            Ok(None) => panic!("half a frame"),
            Err(refused) => Heard::Refused(session.unreadable(refused)),
        };
        match heard {
            Heard::Auth(auth, offer) => {
                writeln!(told, "auth {}", auth.tenant_id).unwrap();
                session.open(served().grant(&offer).peer);
            }
            Heard::Publish(publish) => {
                let id = publish.request.map(|request| request.id);
                writeln!(told, "publish {id:?}").unwrap();
            }
            Heard::Request(message) => writeln!(told, "request {}", message.type_name()).unwrap(),
            Heard::Extension { correlation, .. } => {
                writeln!(told, "extension {correlation}").unwrap();
            }
            Heard::Refused(refusal) => {
                told.push_str(&tell(&refusal));
                if refusal.ends {
                    return told;
                }
            }
        }
    }
    told
}

fn tell(
    Refusal {
        answer,
        publish,
        ends,
    }: &Refusal,
) -> String {
    let answer = match answer {
        None => "silence".to_owned(),
        Some(answer) if answer.starts_with(b"FLX1\0\x01\0\0") => {
            String::from_utf8(answer[12..].to_vec()).unwrap()
        }
        Some(answer) => to_hex(answer),
    };
    let place = if *publish { ", in its place" } else { "" };
    let end = if *ends { ", end" } else { "" };
    format!("refused {answer}{place}{end}\n")
}

fn both(frames: &[Bytes]) -> String {
    transcript(Ways::Both, frames)
}

#[test]
fn a_stream_begins_with_auth_and_goes_on_with_requests() {
    let told = both(&[
        json(AUTH),
        json(r#"{"type":"topology"}"#),
        hex(
            "464c5831000100090000002900000000000000070200027431000764656661756c74000464656d6f000000010000000568656c6c6f",
        ),
    ]);
    assert_eq!(told, "auth t1\nrequest topology\npublish Some(7)\n");
}

#[test]
fn whatever_comes_before_auth_ends_the_stream() {
    let stranger = "refused {\"type\":\"error\",\"message\":\"the first frame of a stream is `auth`\",\"code\":\"unauthenticated\",\"retry\":\"fatal\"}, end\n";
    assert_eq!(
        both(&[json(r#"{"type":"topology"}"#), json(AUTH)]),
        stranger
    );
    assert_eq!(both(&[json(r#"{"type":"zzz","request_id":1}"#)]), stranger);
    let publish = hex("464c5831000100010000000d00017400016400017300000000");
    assert_eq!(both(&[publish]), stranger);
    let told = both(&[json(r#"{"type":"auth"}"#)]);
    assert!(
        told.contains("invalid_request") && told.ends_with(", end\n"),
        "{told}"
    );
}

#[test]
fn a_frame_over_64_kib_is_refused_before_auth_and_taken_after_it() {
    let long = format!(r#"{{"type":"topology","zzz":"{}"}}"#, "z".repeat(65_536));
    let told = both(&[json(&long)]);
    assert!(
        told.contains("over the limit of 65536") && told.ends_with(", end\n"),
        "{told}"
    );
    assert_eq!(
        both(&[json(AUTH), json(&long)]),
        "auth t1\nrequest topology\n"
    );
}

#[test]
fn a_second_auth_is_refused_and_the_stream_goes_on() {
    let told = both(&[json(AUTH), json(AUTH), json(r#"{"type":"topology"}"#)]);
    assert_eq!(
        told,
        "auth t1\nrefused {\"type\":\"error\",\"message\":\"this stream is authenticated\",\"code\":\"invalid_request\",\"retry\":\"fatal\"}\nrequest topology\n"
    );
}

#[test]
fn an_unknown_request_is_unsupported_to_those_who_read_that_and_an_end_to_others() {
    let told = both(&[json(AUTH), json(r#"{"type":"zzz","request_id":4}"#)]);
    assert_eq!(
        told,
        "auth t1\nrefused {\"type\":\"unsupported\",\"request_type\":\"zzz\",\"request_id\":4}\n"
    );
    let told = both(&[
        json(AUTH),
        json(r#"{"type":"extension","name":"x.y","body":[]}"#),
    ]);
    assert_eq!(
        told,
        "auth t1\nrefused {\"type\":\"unsupported\",\"request_type\":\"extension\",\"extension\":\"x.y\"}\n"
    );
    let told = both(&[json(OLD_AUTH), json(r#"{"type":"zzz","request_id":4}"#)]);
    assert_eq!(
        told,
        "auth t1\nrefused {\"type\":\"error\",\"message\":\"this broker does not know `zzz`\"}, end\n"
    );
}

#[test]
fn a_malformed_publish_is_answered_by_its_id_in_its_own_form() {
    let cut = hex("464c5831000100090000000d000000000000000702000274 31");
    let told = both(&[json(AUTH), cut]);
    assert!(
        told.starts_with("auth t1\nrefused 464c583100010210"),
        "{told}"
    );
    assert!(told.ends_with(", in its place\n"), "{told}");
    let idempotent = hex("464c58310001010900000009000000000000000702");
    let told = both(&[json(AUTH), idempotent]);
    assert!(
        told.contains(r#"{"type":"publish_error","request_id":7,"#),
        "{told}"
    );
    assert!(told.ends_with(", in its place\n"), "{told}");
    let told = both(&[
        json(AUTH),
        json(r#"{"type":"publish","request_id":5,"payload":"YQ"}"#),
    ]);
    assert!(
        told.contains(r#"{"type":"publish_error","request_id":5,"#),
        "{told}"
    );
    assert!(told.ends_with(", in its place\n"), "{told}");
}

#[test]
fn a_malformed_publish_without_an_id_ends_the_stream() {
    for frame in [
        hex("464c5831000100090000000400000000"),
        hex("464c5831000100010000000400000000"),
        json(r#"{"type":"publish","payload":"YQ"}"#),
    ] {
        let told = both(&[json(AUTH), frame]);
        assert!(
            told.contains("invalid_request") && told.ends_with(", end\n"),
            "{told}"
        );
    }
}

#[test]
fn a_malformed_request_of_a_known_type_leaves_the_stream_usable() {
    let told = both(&[json(AUTH), json(r#"{"type":"cache_get","request_id":1}"#)]);
    assert!(
        told.contains("invalid_request") && !told.contains("end"),
        "{told}"
    );
    let told = both(&[json(AUTH), json("{")]);
    assert!(
        told.contains("invalid_request") && told.ends_with(", end\n"),
        "{told}"
    );
}

#[test]
fn what_only_a_broker_says_ends_the_stream() {
    for frame in [
        json(r#"{"type":"ok"}"#),
        json(r#"{"type":"event_stream_hello","subscription_id":1}"#),
        hex("464c5831000100100000000b0000000000000000070000"),
        hex("464c5831000100040000000400000000"),
    ] {
        let told = both(&[json(AUTH), frame]);
        assert!(
            told.contains("invalid_request") && told.ends_with(", end\n"),
            "{told}"
        );
    }
}

#[test]
fn bytes_that_are_no_frame_end_the_stream() {
    for frame in [
        hex("464c58310002000000000000"),
        hex("464c58310001800000000000"),
    ] {
        let told = both(&[json(AUTH), frame]);
        assert!(
            told.contains("invalid_request") && told.ends_with(", end\n"),
            "{told}"
        );
    }
}

#[test]
fn nothing_is_answered_on_a_stream_that_goes_one_way() {
    let publish = hex("464c5831000100010000000d00017400016400017300000000");
    let told = transcript(Ways::OneWay, &[json(OLD_AUTH), publish]);
    assert_eq!(told, "auth t1\npublish None\n");
    let width = json(
        r#"{"type":"publish_width","tenant_id":"t1","namespace":"d","stream":"s","shards":1}"#,
    );
    assert_eq!(
        transcript(Ways::OneWay, &[json(OLD_AUTH), width]),
        "auth t1\nrequest publish_width\n"
    );
    for request in [r#"{"type":"zzz"}"#, r#"{"type":"topology"}"#] {
        let told = transcript(Ways::OneWay, &[json(OLD_AUTH), json(request)]);
        assert_eq!(told, "auth t1\nrefused silence, end\n");
    }
}

#[test]
fn our_own_frames_are_heard_only_where_they_were_granted() {
    let head = RecordsHead {
        silent: false,
        shard: None,
        key: None,
        producer: None,
        expected_offset: None,
        tenant: "t1",
        namespace: "default",
        stream: "demo",
    };
    let frame = head.encode(9, &Bytes::new()).unwrap().freeze();
    assert_eq!(
        both(&[json(OUR_AUTH), frame.clone()]),
        "auth t1\nextension 9\n"
    );
    let told = both(&[json(AUTH), frame]);
    assert!(told.contains("a frame cannot start with"), "{told}");
    let unknown = hex("46585831 7f01 0000 0000000000000005 00000000");
    let told = both(&[json(OUR_AUTH), unknown, json(r#"{"type":"topology"}"#)]);
    assert!(
        told.starts_with("auth t1\nrefused 46585831000100000000000000000005"),
        "{told}"
    );
    assert!(told.ends_with("request topology\n"), "{told}");
}

fn peer(auth: &str) -> Peer {
    let Ok(Message::Auth(auth)) = Message::decode(auth.as_bytes()) else {
        panic!("no auth")
    };
    served().grant(&Offer::of(&auth)).peer
}

#[test]
fn answers_leave_in_the_order_of_requests_when_a_window_was_granted() {
    let mut window = Window::new(&peer(AUTH));
    let mut ready = Vec::new();
    let (first, second, third) = (window.take(), window.take(), window.take());
    window.fill(third, "third", &mut ready);
    window.fill(second, "second", &mut ready);
    assert_eq!(ready, Vec::<&str>::new());
    assert_eq!(window.len(), 3);
    window.fill(first, "first", &mut ready);
    assert_eq!(ready, ["first", "second", "third"]);
    assert!(window.is_empty());
    let fourth = window.take();
    window.fill(fourth, "fourth", &mut ready);
    assert_eq!(ready.len(), 4);
}

#[test]
fn a_full_window_says_so_until_its_oldest_answer_has_left() {
    let mut window = Window::new(&Peer {
        publish_window: Some(2),
        ..peer(AUTH)
    });
    let mut ready = Vec::new();
    let (first, second) = (window.take(), window.take());
    assert!(window.is_full());
    window.fill(second, 2, &mut ready);
    assert!(window.is_full());
    window.fill(first, 1, &mut ready);
    assert!(!window.is_full());
    assert_eq!(ready, [1, 2]);
}

#[test]
fn answers_leave_as_they_come_without_a_window() {
    let mut window = Window::new(&peer(OLD_AUTH));
    let mut ready = Vec::new();
    let (first, second) = (window.take(), window.take());
    window.fill(second, 2, &mut ready);
    assert_eq!((window.len(), window.is_full()), (1, false));
    window.fill(first, 1, &mut ready);
    assert_eq!(ready, [2, 1]);
    assert!(window.is_empty());
}

#[test]
fn a_sequence_needs_a_batch_acknowledgement() {
    let producer = Some(Producer { id: 1, sequence: 0 });
    let outgoing = Outgoing {
        request: Some(Request {
            id: 7,
            ack: BinaryAck::PerBatch,
        }),
        producer,
        key: None,
        tenant: "t1",
        namespace: "default",
        stream: "demo",
    };
    let payloads = Payloads::build([&b"a"[..]]).unwrap();
    let frame = outgoing.encode(&payloads).unwrap();
    assert_eq!(both(&[json(AUTH), frame]), "auth t1\npublish Some(7)\n");
    let request = Some(Request {
        id: 7,
        ack: BinaryAck::PerMessage,
    });
    let frame = Outgoing {
        request,
        ..outgoing
    }
    .encode(&payloads)
    .unwrap();
    let told = both(&[json(AUTH), frame]);
    assert!(told.contains("publish_error"), "{told}");
}
