//! Reading a payload costs at most four times its bytes, however it is made up.
//!
//! A program of its own, because the allocator counts for the whole process; and one test, because
//! it would count for the others too. Counted is everything that was ever allocated, also when it
//! was given back, so the bound holds for the peak all the more.

use std::alloc::System;

use bytes::{Bytes, BytesMut};
use felix_wire::extension::requests::{
    Ask, CacheGetMany, Call, GroupDescribe, GroupDiscard, List, Text,
};
use felix_wire::frame::{Accepts, split};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::publish::PublishTooLong;
use felix_wire::{EventBatch, Extension, Extensions, Flags, Incoming, Message, Names, Publish};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What a small message may cost beyond four times its bytes: a few strings and one error.
const SMALL_CHANGE: usize = 4096;

fn spent<T>(work: impl FnOnce() -> T) -> usize {
    let region = Region::new(ALLOCATOR);
    let kept = work();
    let spent = region.change().bytes_allocated;
    drop(kept);
    spent
}

fn repeated(head: &str, item: &str, count: usize, tail: &str) -> String {
    [head, &vec![item; count].join(","), tail].concat()
}

const NAMES: &str = r#""tenant_id":"t","namespace":"d","stream":"s""#;

fn messages() -> Vec<String> {
    let many = 20_000;
    let payloads = |item| {
        let head = format!(r#"{{"type":"publish_batch",{NAMES},"payloads":["#);
        repeated(&head, item, many, "]}")
    };
    let changes = |item| {
        let head = format!(
            r#"{{"type":"commit",{NAMES},"entity_key":"","event":"","request_id":1,"changes":["#
        );
        repeated(&head, item, many, "]}")
    };
    let list = |kind: &str, field: &str, item: &str, rest: &str| {
        let head = format!(r#"{{"type":"{kind}",{rest}"{field}":["#);
        repeated(&head, item, many, "]}")
    };
    let id = r#""request_id":1,"#;
    let view = r#"{"type":"shard_inspect_info","request_id":1,"view":{"node_id":"n","role":"leader","phase":"active","shards":1,"serving":true,"replicas":["#;
    vec![
        payloads(r#""""#),
        payloads(r#""YQ==""#),
        payloads(r#""\u0059Q==""#),
        payloads("null"),
        changes(r#"{"op":"delete","key":""}"#),
        changes(r#"{"op":"put","key":"","value":""}"#),
        changes(r#"{"op":"delete","key":"k"}"#),
        list("group_dead_letter_list", "offsets", "0", id),
        list(
            "topology_view",
            "brokers",
            r#"{"addr":"","node_id":""}"#,
            "",
        ),
        list(
            "topology_view",
            "brokers",
            r#"{"addr":"a","node_id":"n"}"#,
            "",
        ),
        list(
            "shard_owners_view",
            "owners",
            r#"{"shard":0,"generation":0}"#,
            id,
        ),
        list(
            "shard_owners_view",
            "owners",
            r#"{"shard":0,"generation":0,"addr":"a"}"#,
            id,
        ),
        list(
            "group_records",
            "records",
            r#"{"offset":0,"payload":"","attempts":0}"#,
            id,
        ),
        list(
            "stream_records",
            "records",
            r#"{"offset":0,"payload":"YQ==","timestamp_micros":0}"#,
            r#""request_id":1,"next_offset":1,"#,
        ),
        list(
            "subscriptions_list_info",
            "subscriptions",
            r#"{"tenant_id":"","namespace":"","stream":"","shard":0,"subscriber_id":0,"policy":"","depth":0,"capacity":0,"dropped":0,"tail":0,"age_ms":0}"#,
            r#""request_id":1,"node_id":"n","#,
        ),
        list("auth_ok", "listener_ports", "1", r#""server_flags":1,"#),
        repeated(view, r#"{"node_id":"","role":"","state":""}"#, many, "]}}"),
        list(
            "auth",
            "extensions",
            r#""""#,
            r#""tenant_id":"t","token":"k","#,
        ),
        list("cache_ok", "zzz", "[]", id),
        list("zzz", "zzz", "{}", id),
        list("extension", "body", r#"{"a":[]}"#, r#""name":"x","#),
        format!(
            r#"{{"type":"cache_get",{NAMES},"cache":"c","key":"\n{}"}}"#,
            "k".repeat(100_000)
        ),
        format!(r#"{{"type":"{}\n"}}"#, "z".repeat(100_000)),
        format!(r#"{{"{}\n":1,"type":"ok"}}"#, "z".repeat(100_000)),
        format!(
            r#"{{"type":"publish",{NAMES},"payload":"\u0041{}"}}"#,
            "AAAA".repeat(25_000)
        ),
        format!(
            r#"{{"type":"publish_batch",{NAMES},"payloads":["\u0041AAA{}"]}}"#,
            "AAAA".repeat(25_000)
        ),
        format!(r#"{{"type":"cache_ok","zzz":{}"#, "[".repeat(100_000)),
        "\"".repeat(100_000),
    ]
}

/// Lists of the shortest items, and one call with nothing in it that could be shorter.
fn calls() -> Result<Vec<Bytes>, PublishTooLong> {
    const MANY: usize = 100_000;
    let keys = List::build(std::iter::repeat_n(Text::default(), MANY))?;
    let offsets = List::build(std::iter::repeat_n(0_u64, MANY))?;
    let (shard, group) = (0, Text::from("g"));
    let asks: [Ask; 3] = [
        CacheGetMany { keys }.into(),
        GroupDiscard {
            shard,
            group: group.clone(),
            offsets: Some(offsets),
        }
        .into(),
        GroupDescribe { shard, group }.into(),
    ];
    let names = Names::new("t", "d", "s")?;
    let frames = asks.into_iter().map(|ask| {
        let mut frame = BytesMut::new();
        let names = names.clone();
        Call { names, ask }.encode_into(1, &mut frame)?;
        Ok(frame.freeze())
    });
    frames.collect()
}

#[test]
fn reading_costs_at_most_four_times_what_was_received() {
    for text in messages() {
        let cost = spent(|| Message::decode(text.as_bytes()));
        let most = 4 * text.len() + SMALL_CHANGE;
        let start: String = text.chars().take(200).collect();
        assert!(cost <= most, "{cost} bytes for {} of {start}", text.len());
    }

    let mut publish = Vec::from(&b"\0\x01t\0\x01d\0\x01s"[..]);
    publish.extend_from_slice(&100_000_u32.to_be_bytes());
    publish.resize(publish.len() + 400_000, 0);
    let publish = Bytes::from(publish);
    let cost = spent(|| Publish::decode(Flags::PUBLISH, publish.clone()));
    assert!(
        cost <= SMALL_CHANGE,
        "{cost} bytes to read a publish in place"
    );

    let accepts = Accepts {
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        extensions: true,
    };
    for call in calls().unwrap() {
        let split = split(&mut BytesMut::from(&call[..]), accepts);
        let Ok(Some(Incoming::Extension(frame))) = split else {
            panic!("no frame")
        };
        let granted: Extensions = Extension::ALL.into_iter().collect();
        let cost = spent(|| frame.request(granted));
        assert!(cost <= 256, "{cost} bytes to read a call in place");
    }

    let events = publish.slice(9..);
    let cost = spent(|| EventBatch::decode(Flags::EVENT_SHARED, events.clone()));
    assert!(cost <= SMALL_CHANGE, "{cost} bytes to read events in place");
}
