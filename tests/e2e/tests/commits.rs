//! Commits: an event and the state it changes, never one without the other, for any reader and through kills.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use felix_e2e::raw::{Stream, Wire};
use felix_e2e::{Home, eventually};
use felix_wire::error::Code;
use felix_wire::extension::requests::{self, List, Precondition, Reply, StateList};
use felix_wire::extension::{Answer, Extension, Extensions};
use felix_wire::frame::Incoming;
use felix_wire::message::{
    Change, Commit, Message, RefusedReason, Start, StateGet, StateValue, StreamRead, Subscribe,
};
use serde_json::json;
use tokio::task::JoinSet;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn stream(home: &Home, name: &str, shards: u32) {
    let shards = shards.to_string();
    home.ok(&["stream", "create", name, "--shards", &shards])
        .await
        .unwrap();
}

fn put(key: &str, value: &str) -> Change {
    Change::Put {
        key: key.into(),
        value: value.to_owned().into(),
    }
}

fn delete(key: &str) -> Change {
    Change::Delete { key: key.into() }
}

fn commit(stream: &str, entity: &str, event: &str, changes: Vec<Change>) -> Commit {
    Commit {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: stream.into(),
        entity_key: entity.to_owned().into(),
        event: event.to_owned().into(),
        changes,
        request_id: 7,
        expected_offset: None,
        shard: None,
    }
}

async fn landed(asks: &mut Stream, commit: Commit) -> u64 {
    match asks.ask(commit).await.unwrap() {
        Message::CommitOk(ok) => {
            assert_eq!(ok.request_id, 7);
            ok.offset
        }
        other => panic!("{other:?}"),
    }
}

async fn refused(asks: &mut Stream, commit: Commit) -> (Code, String) {
    match asks.ask(commit).await.unwrap() {
        Message::Error(failure) => (
            failure.code().unwrap(),
            failure.reason().unwrap_or_default().to_owned(),
        ),
        other => panic!("{other:?}"),
    }
}

async fn state(asks: &mut Stream, stream: &str, entity: &str, key: &str) -> StateValue {
    let ask = StateGet {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: stream.into(),
        entity_key: entity.to_owned().into(),
        key: key.into(),
        request_id: 9,
        shard: None,
    };
    match asks.ask(ask).await.unwrap() {
        Message::StateValue(value) => {
            assert_eq!(value.request_id, 9);
            value
        }
        other => panic!("{other:?}"),
    }
}

fn text(value: &StateValue) -> Option<&str> {
    let bytes = value.value.as_ref()?;
    Some(std::str::from_utf8(bytes).unwrap())
}

fn subscribe(stream: &str, records: bool) -> Subscribe {
    Subscribe {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: stream.into(),
        subscription_id: None,
        start: Some(Start::Earliest),
        shard: None,
        queue_capacity: None,
        records,
    }
}

/// Everything a stream with one shard holds, page by page.
async fn all(asks: &mut Stream, stream: &str) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        let ask = StreamRead {
            tenant_id: "dev".into(),
            namespace: "default".into(),
            stream: stream.into(),
            shard: 0,
            from,
            end: None,
            max_records: 0,
            max_bytes: 0,
            request_id: 1,
        };
        let page = match asks.ask(ask).await.unwrap() {
            Message::StreamRecords(page) => page,
            other => panic!("{other:?}"),
        };
        if page.next_offset == from {
            return found;
        }
        from = page.next_offset;
        let texts = page.records.into_iter().map(|record| {
            let payload = String::from_utf8(record.payload.to_vec()).unwrap();
            (record.offset, payload)
        });
        found.extend(texts);
    }
}

#[tokio::test]
async fn readers_see_the_event_and_the_state_has_the_changes() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    home.ok(&["pub", "ledger", "plain"]).await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let changes = vec![put("total", "12"), put("secret-key", "secret-value")];
    assert_eq!(
        landed(&mut asks, commit("ledger", "order-7", "paid", changes)).await,
        1
    );
    let value = state(&mut asks, "ledger", "order-7", "total").await;
    assert_eq!(
        (text(&value), value.version, value.as_of),
        (Some("12"), Some(1), Some(1))
    );
    let changes = vec![delete("secret-key"), put("total", "0"), put("total", "1")];
    assert_eq!(
        landed(&mut asks, commit("ledger", "order-7", "more", changes)).await,
        2
    );
    let gone = state(&mut asks, "ledger", "order-7", "secret-key").await;
    assert_eq!(
        (gone.value, gone.version, gone.as_of),
        (None, None, Some(2))
    );
    let value = state(&mut asks, "ledger", "order-7", "total").await;
    assert_eq!((text(&value), value.version), (Some("1"), Some(2)));
    let nobody = state(&mut asks, "ledger", "order-8", "total").await;
    assert_eq!((nobody.value, nobody.version), (None, None));

    let expected: Vec<(u64, String)> = (0..)
        .zip(["plain", "paid", "more"].map(str::to_owned))
        .collect();
    assert_eq!(all(&mut asks, "ledger").await, expected);
    let (_, events) = wire.subscribe(subscribe("ledger", false)).await.unwrap();
    let mut events = events.unwrap();
    let mut found = Vec::new();
    while found.len() < 3 {
        for event in events.events().await.unwrap().events() {
            found.push((
                event.offset.unwrap(),
                String::from_utf8(event.payload.to_vec()).unwrap(),
            ));
        }
    }
    assert_eq!(found, expected);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_reader_of_whole_batches_is_not_shown_what_is_internal() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    landed(
        &mut asks,
        commit(
            "ledger",
            "order-7",
            "paid",
            vec![put("secret-key", "secret-value")],
        ),
    )
    .await;
    let (_, events) = wire.subscribe(subscribe("ledger", true)).await.unwrap();
    let frame = events.unwrap().frame().await.unwrap().unwrap();
    let Incoming::Extension(frame) = frame else {
        panic!("{frame:?}");
    };
    let granted = Extensions::from_iter([Extension::Records]);
    let Answer::Deliver(delivered) = frame.answer(granted).unwrap() else {
        panic!("no delivery");
    };
    let header = felix_model::verify(&delivered.batches).unwrap();
    assert!(!header.is_internal());
    assert!(!delivered.batches.windows(6).any(|bytes| bytes == b"secret"));
    assert!(delivered.batches.windows(4).any(|bytes| bytes == b"paid"));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_expected_offset_that_is_not_the_next_one_refuses_the_whole_commit() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    home.ok(&["pub", "ledger", "plain"]).await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let mut ask = commit("ledger", "e", "x", vec![put("k", "v")]);
    ask.expected_offset = Some(0);
    let Message::PublishRefused(refused) = asks.ask(ask.clone()).await.unwrap() else {
        panic!("not refused");
    };
    assert_eq!(refused.request_id, 7);
    assert_eq!(refused.reason, RefusedReason::OffsetMismatch { tail: 1 });
    assert_eq!(state(&mut asks, "ledger", "e", "k").await.value, None);
    assert_eq!(all(&mut asks, "ledger").await.len(), 1);
    ask.expected_offset = Some(1);
    assert_eq!(landed(&mut asks, ask).await, 1);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn two_entities_on_one_shard_that_use_the_same_key_stay_apart() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    for (entity, value) in [("a", "1"), ("ab", "2"), ("", "3")] {
        landed(
            &mut asks,
            commit("ledger", entity, "x", vec![put("bk", value)]),
        )
        .await;
    }
    for (entity, value, version) in [("a", "1", 0), ("ab", "2", 1), ("", "3", 2)] {
        let found = state(&mut asks, "ledger", entity, "bk").await;
        assert_eq!((text(&found), found.version), (Some(value), Some(version)));
    }
    assert_eq!(state(&mut asks, "ledger", "ab", "k").await.value, None);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_no_commit_is_refused_with_a_code_and_changes_nothing() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 2).await;
    home.ok(&["stream", "create", "memory", "--durable", "false"])
        .await
        .unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let fine = commit("ledger", "e", "x", vec![put("k", "v")]);
    let named = |stream: &str| Commit {
        stream: stream.into(),
        ..fine.clone()
    };
    let invalid = (Code::InvalidRequest, "not_durable".to_owned());
    assert_eq!(refused(&mut asks, named("memory")).await, invalid);
    assert_eq!(refused(&mut asks, named("legder")).await.0, Code::NotFound);
    let elsewhere = Commit {
        shard: Some(2),
        ..fine.clone()
    };
    assert_eq!(refused(&mut asks, elsewhere).await.0, Code::InvalidRequest);
    let large = commit("ledger", "e", &"x".repeat(2 << 20), vec![]);
    let limit = (Code::LimitExceeded, "record_bytes".to_owned());
    assert_eq!(refused(&mut asks, large).await, limit);
    let large = commit("ledger", "e", "x", vec![put("k", &"v".repeat(2 << 20))]);
    assert_eq!(refused(&mut asks, large).await, limit);
    let long = commit("ledger", "e", "x", vec![put(&"k".repeat(1_025), "v")]);
    assert_eq!(refused(&mut asks, long).await.0, Code::LimitExceeded);
    let many = commit("ledger", "e", "x", vec![delete("k"); 1_001]);
    assert_eq!(refused(&mut asks, many).await.0, Code::LimitExceeded);

    // Two events, none, or an operation on another stream have no form on the wire.
    let x = STANDARD.encode("x");
    let whole = json!({"type": "commit", "tenant_id": "dev", "namespace": "default", "stream": "ledger",
        "entity_key": x, "event": x, "changes": [], "request_id": 7});
    let bent = [
        ("event", json!([x, x])),
        ("event", json!(null)),
        ("changes", json!(null)),
        (
            "changes",
            json!([{"op": "publish", "key": "k", "value": x}]),
        ),
        ("changes", json!([{"op": "put", "key": "k"}])),
        ("entity_key", json!("not base64!")),
    ];
    for (field, value) in bent {
        let mut message = whole.clone();
        message[field] = value;
        let mut asks = wire.authenticated().await.unwrap();
        match asks.ask_json(&message).await.unwrap() {
            Message::Error(failure) => {
                assert_eq!(failure.code(), Some(Code::InvalidRequest), "{message}");
            }
            other => panic!("{message}: {other:?}"),
        }
    }
    let narrowed = node
        .token(
            &home,
            json!({"requested": [], "permissions": ["stream.subscribe:stream:dev/default/ledger"]}),
        )
        .await
        .unwrap();
    let reader = Wire::connect(node.ready())
        .await
        .unwrap()
        .with_token(narrowed);
    let mut reading = reader.authenticated().await.unwrap();
    assert_eq!(refused(&mut reading, fine.clone()).await.0, Code::Forbidden);
    assert_eq!(state(&mut reading, "ledger", "e", "k").await.value, None);
    let narrowed = node
        .token(
            &home,
            json!({"requested": [], "permissions": ["stream.publish:stream:dev/default/ledger"]}),
        )
        .await
        .unwrap();
    let writer = Wire::connect(node.ready())
        .await
        .unwrap()
        .with_token(narrowed);
    let mut writing = writer.authenticated().await.unwrap();
    assert_eq!(landed(&mut writing, fine).await, 0);
    let ask = StateGet {
        tenant_id: "dev".into(),
        namespace: "default".into(),
        stream: "ledger".into(),
        entity_key: "e".into(),
        key: "k".into(),
        request_id: 9,
        shard: None,
    };
    match writing.ask(ask).await.unwrap() {
        Message::Error(failure) => assert_eq!(failure.code(), Some(Code::Forbidden)),
        other => panic!("{other:?}"),
    }
    node.stop().await.unwrap();
}

fn binary(entity: &str, event: &str, changes: &[(&str, Option<&str>)]) -> requests::Commit {
    let changes = changes.iter().map(|(key, value)| requests::Change {
        key: (*key).into(),
        value: value.map(|value| value.to_owned().into()),
    });
    requests::Commit {
        entity: entity.to_owned().into(),
        event: event.to_owned().into(),
        changes: List::build(changes).unwrap(),
        expected_offset: None,
        preconditions: None,
        once: None,
        shard: None,
    }
}

#[tokio::test]
async fn a_commit_sent_again_under_its_idempotency_key_lands_once_also_after_a_kill() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    let send = || requests::Commit {
        once: Some("attempt-1".into()),
        ..binary("e", "paid", &[("k", Some("v"))])
    };
    let told = |answer: Answer| match answer {
        Answer::Reply(Reply::Commit(committed)) => (committed.offset, committed.repeated),
        other => panic!("{other:?}"),
    };
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    assert_eq!(told(asks.call("ledger", send()).await.unwrap()), (0, false));
    assert_eq!(told(asks.call("ledger", send()).await.unwrap()), (0, true));
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    assert_eq!(told(asks.call("ledger", send()).await.unwrap()), (0, true));
    let other = requests::Commit {
        once: Some("attempt-1".into()),
        ..binary("e", "paid twice", &[])
    };
    match asks.call("ledger", other).await.unwrap() {
        Answer::Refused(refused) => {
            assert_eq!(refused.failure.reason(), Some("idempotency_key_reused"));
        }
        other => panic!("{other:?}"),
    }
    // A stop writes the state down, and the next start goes on from there.
    assert!(node.stop().await.unwrap().success());
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    assert_eq!(told(asks.call("ledger", send()).await.unwrap()), (0, true));
    assert_eq!(all(&mut asks, "ledger").await.len(), 1);
    assert_eq!(text(&state(&mut asks, "ledger", "e", "k").await), Some("v"));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn preconditions_are_told_with_the_current_version_and_states_are_listed() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let guarded = |version: Option<u64>| requests::Commit {
        preconditions: Some(
            List::build([Precondition {
                key: "b".into(),
                version,
            }])
            .unwrap(),
        ),
        ..binary(
            "e",
            "x",
            &[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))],
        )
    };
    let first = asks.call("ledger", guarded(None)).await.unwrap();
    assert!(matches!(first, Answer::Reply(Reply::Commit(ok)) if ok.offset == 0));
    match asks.call("ledger", guarded(None)).await.unwrap() {
        Answer::Refused(refused) => {
            assert_eq!(refused.failure.reason(), Some("version_mismatch"));
            assert_eq!(refused.number, Some(0));
        }
        other => panic!("{other:?}"),
    }
    let second = asks.call("ledger", guarded(Some(0))).await.unwrap();
    assert!(matches!(second, Answer::Reply(Reply::Commit(ok)) if ok.offset == 1));
    let page = |after: Option<&str>| StateList {
        entity: "e".into(),
        prefix: "".into(),
        limit: 2,
        after: after.map(Into::into),
        shard: None,
    };
    let listed = |answer: Answer| match answer {
        Answer::Reply(Reply::StateList(listed)) => {
            let keys: Vec<_> = listed
                .entries
                .iter()
                .map(|entry| (entry.key.as_str().to_owned(), entry.version))
                .collect();
            (keys, listed.more, listed.as_of)
        }
        other => panic!("{other:?}"),
    };
    let (keys, more, as_of) = listed(asks.call("ledger", page(None)).await.unwrap());
    assert_eq!(keys, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!((more, as_of), (true, Some(1)));
    let (keys, more, _) = listed(asks.call("ledger", page(Some("b"))).await.unwrap());
    assert_eq!((keys, more), (vec![("c".to_owned(), 1)], false));
    node.stop().await.unwrap();
}

/// What one entity's events say its state is.
fn fold(events: &[(u64, String)]) -> BTreeMap<String, (u64, u64, Option<u64>)> {
    let mut states: BTreeMap<String, (u64, u64, Option<u64>)> = BTreeMap::new();
    for (offset, event) in events {
        let (entity, number) = event.split_once('/').unwrap();
        let number: u64 = number.parse().unwrap();
        let odd = states.get(entity).and_then(|state| state.2);
        let odd = if number.is_multiple_of(3) {
            None
        } else {
            Some(*offset).or(odd)
        };
        states.insert(entity.to_owned(), (number, *offset, odd));
    }
    states
}

/// Commits as fast as the answers come until the node is gone; gives the offsets that were acknowledged.
async fn commit_until_killed(wire: Wire, entity: String, first: u64) -> Vec<(u64, String)> {
    let mut acknowledged = Vec::new();
    let Ok(mut asks) = wire.authenticated().await else {
        return acknowledged;
    };
    for number in first.. {
        let event = format!("{entity}/{number}");
        let odd = if number.is_multiple_of(3) {
            delete("odd")
        } else {
            put("odd", &number.to_string())
        };
        let changes = vec![put("last", &number.to_string()), odd];
        match asks.ask(commit("ledger", &entity, &event, changes)).await {
            Ok(Message::CommitOk(ok)) => acknowledged.push((ok.offset, event)),
            Ok(Message::Error(failure)) => panic!("{failure:?}"),
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
    }
    acknowledged
}

#[tokio::test]
async fn events_and_state_agree_after_kills_under_load() {
    const ENTITIES: u64 = 8;
    let home = home();
    let mut node = home.start().await.unwrap();
    stream(&home, "ledger", 1).await;
    let mut acknowledged: Vec<(u64, String)> = Vec::new();
    for round in 0..3 {
        let mut committing = JoinSet::new();
        for entity in 0..ENTITIES {
            let wire = Wire::connect(node.ready()).await.unwrap();
            let first = round * 1_000_000;
            committing.spawn(commit_until_killed(wire, format!("entity-{entity}"), first));
        }
        // Killed while all of them have commits on their way.
        let wire = Wire::connect(node.ready()).await.unwrap();
        let mut asks = wire.authenticated().await.unwrap();
        let before = acknowledged.len() as u64;
        while state(&mut asks, "ledger", "entity-0", "last")
            .await
            .as_of
            .is_none_or(|as_of| as_of < before + 400)
        {}
        node.kill().await.unwrap();
        while let Some(done) = committing.join_next().await {
            acknowledged.extend(done.unwrap());
        }
        node = home.start().await.unwrap();
        let wire = Wire::connect(node.ready()).await.unwrap();
        let mut asks = wire.authenticated().await.unwrap();
        let events = all(&mut asks, "ledger").await;
        for (offset, event) in &acknowledged {
            let found = &events[usize::try_from(*offset).unwrap()];
            assert_eq!(
                found,
                &(*offset, event.clone()),
                "an acknowledged commit is there"
            );
        }
        for (entity, (number, offset, odd)) in fold(&events) {
            let last = state(&mut asks, "ledger", &entity, "last").await;
            assert_eq!(text(&last), Some(number.to_string().as_str()), "{entity}");
            assert_eq!(last.version, Some(offset), "{entity}");
            let found = state(&mut asks, "ledger", &entity, "odd").await;
            assert_eq!(found.version, odd, "{entity}");
            assert_eq!(last.as_of, events.last().map(|(offset, _)| *offset));
        }
        if round == 1 {
            // The third round begins from a state that was written down.
            assert!(node.stop().await.unwrap().success());
            node = home.start().await.unwrap();
        }
    }
    assert!(
        acknowledged.len() as u64 > ENTITIES * 50,
        "{}",
        acknowledged.len()
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_refused_commit_leaves_nothing_and_a_stopped_broker_has_written_the_state_down() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "orders", 1).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let mut unexpected = commit("orders", "order-7", "paid", vec![put("state", "paid")]);
    unexpected.expected_offset = Some(9);
    let answer = asks.ask(unexpected).await.unwrap();
    assert!(matches!(answer, Message::PublishRefused(_)), "{answer:?}");
    let beside_log = |name: &str| {
        let (data, name) = (home.data(), name.to_owned());
        find(&data, &name)
    };
    assert!(node.stop().await.unwrap().success());
    let node = home.start().await.unwrap();
    // The log was read, and has no commit: retention goes on, and the next start reads nothing.
    assert_eq!(beside_log("commits"), None);
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let paid = commit("orders", "order-7", "paid", vec![put("state", "paid")]);
    assert_eq!(landed(&mut asks, paid).await, 0);
    assert!(beside_log("commits").is_some());
    assert!(node.stop().await.unwrap().success());
    let first = std::fs::read(beside_log("state").unwrap()).unwrap();
    // What is no commit moves on how far the state reaches.
    let node = home.start().await.unwrap();
    home.ok(&["pub", "orders", "plain"]).await.unwrap();
    assert!(node.stop().await.unwrap().success());
    let second = std::fs::read(beside_log("state").unwrap()).unwrap();
    assert_ne!(first, second);
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let found = state(&mut asks, "orders", "order-7", "state").await;
    assert_eq!(text(&found), Some("paid"));
    node.stop().await.unwrap();
}

/// The file of this name somewhere below a directory.
fn find(directory: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).find_map(|path| {
        if path.is_dir() {
            find(&path, name)
        } else {
            path.ends_with(name).then_some(path)
        }
    })
}

/// The state of each entity is spread over commits of which compaction drops most.
#[tokio::test]
async fn compaction_drops_commits_and_leaves_the_state_as_it_was() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "ledger", "--cleanup", "compact"])
        .await
        .unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut asks = wire.authenticated().await.unwrap();
    let padding = "x".repeat(20_000);
    let mut expected = BTreeMap::new();
    for number in 0..400_u64 {
        let entity = format!("entity-{}", number % 4);
        let (often, seldom) = ("often".to_owned(), format!("seldom-{}", number % 40));
        let mut changes = vec![put(&often, &format!("{number} {padding}"))];
        // These keys are written once, deleted once, and some of them written again.
        if !(40..=380).contains(&number) {
            changes.push(put(&seldom, &number.to_string()));
            expected.insert((entity.clone(), seldom.clone()), Some(number));
        } else if (200..220).contains(&number) {
            changes.push(delete(&seldom));
            expected.insert((entity.clone(), seldom.clone()), None);
        }
        let offset = landed(&mut asks, commit("ledger", &entity, "x", changes)).await;
        assert_eq!(offset, number);
        expected.insert((entity, often), Some(number));
    }
    let compacted = || async {
        let wire = Wire::connect(node.ready()).await.ok()?;
        let mut asks = wire.authenticated().await.ok()?;
        let left = all(&mut asks, "ledger").await.len();
        (left < 300).then_some(())
    };
    let has_run = eventually(compacted).await;
    assert_eq!(has_run, Some(()), "nothing was compacted");
    holds(&mut asks, &expected).await;
    // Killed, the state is what is left of the log; stopped, what was written down.
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    holds(&mut wire.authenticated().await.unwrap(), &expected).await;
    assert!(node.stop().await.unwrap().success());
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    holds(&mut wire.authenticated().await.unwrap(), &expected).await;
    node.stop().await.unwrap();
}

async fn holds(asks: &mut Stream, expected: &BTreeMap<(String, String), Option<u64>>) {
    for ((entity, key), version) in expected {
        let found = state(asks, "ledger", entity, key).await;
        assert_eq!(found.version, *version, "{entity} {key}");
        assert_eq!(found.value.is_some(), version.is_some(), "{entity} {key}");
        assert_eq!(found.as_of, Some(399));
    }
}
