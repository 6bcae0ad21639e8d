//! Caches, counters and commits, over calls in binary and over the published messages.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use felix_client::{CacheFailed, CommitFailed, Condition, ListOptions, Retry};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Refused;
use felix_wire::extension::requests::{
    self as wire, Ask, CacheGot, CacheGotMany, CacheListed, CacheStored, Committed, CounterValue,
    Entry, List, Listed, Reply, Slot,
};
use felix_wire::message::{self, CacheCondition, Message};

use super::fake::FakeBroker;

fn entry(version: u64, value: &'static str) -> Entry {
    Entry {
        version,
        expires_at_ms: 0,
        value: value.into(),
    }
}

fn got(value: &'static str) -> Reply {
    let entry = Some(entry(7, value));
    Reply::CacheGet(CacheGot { entry })
}

fn key_of(ask: &Ask) -> &str {
    match ask {
        Ask::CacheGet(ask) => ask.key.as_str(),
        other => panic!("not a get: {other:?}"),
    }
}

#[tokio::test]
async fn many_calls_are_unanswered_on_one_stream_and_answered_in_any_order() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let answer = async {
        let mut line = conn.line().await;
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(line.call().await);
        }
        for (id, ask) in asked.into_iter().rev() {
            let value = if key_of(&ask) == "a" { "A" } else { "other" };
            line.reply(id, got(value)).await;
        }
        line
    };
    let cache = client.cache("sessions").unwrap();
    let (a, b, c, _line) = tokio::join!(cache.get("a"), cache.get("b"), cache.get("c"), answer);
    let a = a.unwrap().unwrap();
    assert_eq!((&a.value[..], a.version), (b"A".as_slice(), Some(7)));
    assert_eq!(b.unwrap().unwrap().value, "other");
    assert_eq!(c.unwrap().unwrap().value, "other");
}

#[tokio::test]
async fn a_read_is_repeated_and_a_plain_write_is_not() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        line.call().await;
        line.reset();
        let mut line = conn.line().await;
        let (id, _) = line.call().await;
        line.reply(id, got("again")).await;
        line.call().await;
        line.reset();
    };
    let ask = async {
        let read = cache.get("a").await.unwrap().unwrap();
        (read, cache.put("a", "b").await.unwrap_err())
    };
    let ((read, failed), ()) = tokio::join!(ask, answer);
    assert_eq!(read.value, "again");
    assert_eq!(failed.retry(), Retry::OutcomeUnknown);
}

#[tokio::test]
async fn a_write_that_the_broker_says_was_not_applied_is_repeated() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        let (id, _) = line.call().await;
        line.refuse(id, Failure::new(Code::ShardUnavailable, "moving"))
            .await;
        let (id, _) = line.call().await;
        let version = 9;
        line.reply(id, Reply::CachePut(CacheStored { version }))
            .await;
        line
    };
    let (stored, _line) = tokio::join!(cache.put("a", "b"), answer);
    assert_eq!(stored.unwrap(), Some(9));
}

#[tokio::test]
async fn an_add_with_an_idempotency_key_is_repeated_until_it_is_answered() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let counter = client.counter("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        let (_, first) = line.call().await;
        line.reset();
        let mut line = conn.line().await;
        let (id, second) = line.call().await;
        assert_eq!(first, second);
        let value = Some(5);
        let repeated = true;
        line.reply(id, Reply::CounterAdd(CounterValue { value, repeated }))
            .await;
        line
    };
    let (added, _line) = tokio::join!(counter.add_once("hits", 5, "job-1"), answer);
    let added = added.unwrap();
    assert_eq!((added.value, added.repeated), (5, true));
}

#[tokio::test]
async fn a_refused_condition_names_the_current_version() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        for current in [Some(42), None] {
            let (id, ask) = line.call().await;
            let Ask::CachePut(put) = ask else { panic!() };
            assert_eq!(put.condition, Some(wire::Condition::Version(3)));
            line.refuse(id, Refused::version_mismatch("a", current))
                .await;
        }
        line
    };
    let put = || cache.put_if("a", "b", Condition::Version(3), None);
    let ask = async { (put().await, put().await) };
    let ((first, second), _line) = tokio::join!(ask, answer);
    let mismatch = |current_version| Err(CacheFailed::VersionMismatch { current_version });
    assert_eq!(first, mismatch(Some(42)));
    assert_eq!(second, mismatch(None));
}

#[tokio::test]
async fn a_mismatch_after_an_attempt_without_an_answer_may_be_its_own_write() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        line.call().await;
        line.reset();
        let mut line = conn.line().await;
        let (id, _) = line.call().await;
        line.refuse(id, Refused::version_mismatch("a", Some(42)))
            .await;
        line
    };
    let put = cache.put_if("a", "b", Condition::Absent, None);
    let (failed, _line) = tokio::join!(put, answer);
    assert_eq!(failed.unwrap_err().retry(), Retry::OutcomeUnknown);
}

#[tokio::test]
async fn a_broker_without_calls_is_asked_in_the_published_messages() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let (Message::CacheGet(get), mut stream) = conn.asked().await else {
            panic!()
        };
        let value = message::CacheValue {
            tenant_id: get.tenant_id,
            namespace: get.namespace,
            cache: get.cache,
            key: get.key,
            value: Some("v".into()),
            request_id: get.request_id,
            version: Some(7),
        };
        stream.say(value).await;
        let (Message::CachePutIf(put), mut stream) = conn.asked().await else {
            panic!()
        };
        assert_eq!(put.condition, CacheCondition::Absent);
        let request_id = put.request_id;
        let (applied, version) = (false, Some(42));
        stream
            .say(message::CacheConditionResult {
                applied,
                version,
                request_id,
            })
            .await;
        let (Message::CounterAdd(add), mut stream) = conn.asked().await else {
            panic!()
        };
        let request_id = add.request_id;
        let value = Some(add.delta);
        stream
            .say(message::CounterValue { value, request_id })
            .await;
    };
    let ask = async {
        let read = cache.get("a").await.unwrap().unwrap();
        let put = cache.put_if("a", "b", Condition::Absent, None).await;
        let counter = client.counter("sessions").unwrap();
        (read, put, counter.add("hits", 3).await)
    };
    let ((read, put, sum), ()) = tokio::join!(ask, answer);
    assert_eq!((&read.value[..], read.version), (b"v".as_slice(), Some(7)));
    let current_version = Some(42);
    assert_eq!(put, Err(CacheFailed::VersionMismatch { current_version }));
    assert_eq!(sum, Ok(3));
    let listed = cache.list(ListOptions::default()).await;
    assert_eq!(listed.unwrap_err().code(), "unsupported");
}

#[tokio::test]
async fn many_keys_are_read_in_as_many_requests_as_their_values_need() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        for expected in [vec!["a", "b", "c"], vec!["c"]] {
            let (id, ask) = line.call().await;
            let Ask::CacheGetMany(many) = ask else {
                panic!()
            };
            let keys: Vec<String> = many.keys.iter().map(|key| key.to_string()).collect();
            assert_eq!(keys, expected);
            let slots = keys.iter().take(2).map(|key| Slot {
                entry: (key != "b").then(|| entry(1, "v")),
            });
            let slots = List::build(slots).unwrap();
            line.reply(id, Reply::CacheGetMany(CacheGotMany { slots }))
                .await;
        }
        line
    };
    let (entries, _line) = tokio::join!(cache.get_many(["a", "b", "c"]), answer);
    let there: Vec<bool> = entries.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true]);
}

#[tokio::test]
async fn a_list_goes_on_after_the_last_key_of_its_page() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let cache = client.cache("sessions").unwrap();
    let answer = async {
        let mut line = conn.line().await;
        let (id, _) = line.call().await;
        let entries = ["a", "b"].map(|key| Listed {
            key: key.into(),
            entry: entry(1, ""),
        });
        let entries = List::build(entries).unwrap();
        line.reply(
            id,
            Reply::CacheList(CacheListed {
                entries,
                more: true,
            }),
        )
        .await;
        line
    };
    let (page, _line) = tokio::join!(cache.list(ListOptions::default()), answer);
    let page = page.unwrap();
    assert_eq!(page.next.as_deref(), Some("b"));
    assert_eq!(page.entries.len(), 2);
}

#[tokio::test]
async fn a_commit_carries_its_conditions_and_names_what_stood_in_its_way() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let answer = async {
        let mut line = conn.line().await;
        let (id, ask) = line.call().await;
        let Ask::Commit(commit) = ask else { panic!() };
        assert_eq!(
            (&commit.entity[..], &commit.event[..]),
            (&b"e"[..], &b"ev"[..])
        );
        assert_eq!((commit.changes.len(), commit.expected_offset), (2, Some(4)));
        assert_eq!(commit.preconditions.unwrap().len(), 1);
        let (offset, repeated) = (4, false);
        line.reply(id, Reply::Commit(Committed { offset, repeated }))
            .await;
        let (id, _) = line.call().await;
        line.refuse(id, Refused::offset_mismatch(9)).await;
        line
    };
    let ask = async {
        let commit = client.commit("orders", "e", "ev").put("a", "1").delete("b");
        let commit = commit.at_offset(4).if_version("a", None);
        let first = commit.clone().await;
        (first, commit.await)
    };
    let ((first, second), _line) = tokio::join!(ask, answer);
    assert_eq!(first.unwrap().offset, 4);
    assert_eq!(second, Err(CommitFailed::OffsetMismatch { next: 9 }));
}
