//! The vectors of messages, read and written.

use std::collections::BTreeSet;

use felix_wire::Message;
use felix_wire::message::{RefusedReason, Start, Subscribe};

use crate::support::{rows, to_hex};

#[test]
fn every_message_is_written_exactly_as_it_was_read() {
    for [name, length, text] in rows::<3>("messages.txt") {
        assert_eq!(length.parse(), Ok(text.len()), "{name}");
        let message = Message::decode(text.as_bytes()).unwrap();
        assert!(!matches!(message, Message::Unknown(_)), "{name}");
        let frame = message.encode();
        assert_eq!(std::str::from_utf8(&frame[12..]), Ok(&text[..]), "{name}");
        let header = format!("464c583100010000{:08x}", text.len());
        assert_eq!(to_hex(&frame[..12]), header, "{name}");
        assert_eq!(Message::decode(&frame[12..]), Ok(message), "{name}");
    }
}

#[test]
fn every_type_has_a_vector() {
    let seen: BTreeSet<String> = rows::<3>("messages.txt")
        .into_iter()
        .map(|[_, _, text]| {
            Message::decode(text.as_bytes())
                .unwrap()
                .type_name()
                .to_owned()
        })
        .collect();
    let known: BTreeSet<String> = Message::TYPES
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(seen, known);
}

#[test]
fn messages_are_read_into_the_fields_they_name() {
    let subscribe = |text: &str| match Message::decode(text.as_bytes()) {
        Ok(Message::Subscribe(subscribe)) => subscribe,
        other => panic!("{other:?}"),
    };
    let by_name = |wanted: &str| {
        let found = rows::<3>("messages.txt")
            .into_iter()
            .find(|[name, _, _]| name == wanted);
        found.unwrap()[2].clone()
    };
    assert_eq!(
        subscribe(&by_name("subscribe shard")),
        Subscribe {
            tenant_id: "t1".to_owned(),
            namespace: "default".to_owned(),
            stream: "demo".to_owned(),
            subscription_id: None,
            start: Some(Start::Offset(17)),
            shard: Some(3),
            queue_capacity: Some(1024),
            records: false,
        }
    );
    let Ok(Message::PublishRefused(refused)) =
        Message::decode(by_name("publish_refused nl").as_bytes())
    else {
        panic!("no refusal")
    };
    let addr = Some("10.0.0.2:5000".to_owned());
    assert_eq!(
        refused.reason,
        RefusedReason::NotLeader {
            node_id: "node-2".to_owned(),
            addr
        }
    );
}
