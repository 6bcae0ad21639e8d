//! The other readings of a stream through the Rust client: caches, counters, watches, groups, commits and scheduled
//! records, against a real broker.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use felix_client::{
    CacheFailed, Client, CommitFailed, Condition, Group, ListOptions, PollOptions, Record, Start,
    WatchFrom, WatchSignal,
};
use felix_e2e::{Home, Node};
use tokio::time::timeout;

/// Far above what anything here takes, so that a stall fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn started() -> (Home, Node, Client) {
    let home = home();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    (home, node, client)
}

#[tokio::test]
async fn a_cache_keeps_versions_lists_its_keys_and_reads_many_at_once() {
    let (home, _node, client) = started().await;
    home.ok(&["cache", "create", "wide", "--shards", "4"])
        .await
        .unwrap();
    let cache = client.cache("wide").unwrap();
    for key in 0..20 {
        let stored = cache
            .put(&format!("user-{key:02}"), format!("v{key}"))
            .await;
        assert!(stored.unwrap().is_some());
    }
    let entry = cache.get("user-07").await.unwrap().unwrap();
    assert_eq!(&entry.value[..], b"v7");
    let options = ListOptions {
        prefix: "user-".to_owned(),
        limit: 7,
        ..ListOptions::default()
    };
    let page = cache.list(options).await.unwrap();
    let keys: Vec<&str> = page.entries.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys.first().copied(), Some("user-00"));
    assert_eq!((keys.len(), page.next.as_deref()), (7, Some("user-06")));
    let many = cache.get_many(["user-03", "nobody", "user-19"]).await;
    let there: Vec<bool> = many.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true]);
    assert_eq!(
        &cache.delete("user-03").await.unwrap().unwrap().value[..],
        b"v3"
    );
    assert_eq!(cache.get("user-03").await.unwrap(), None);
}

/// Case B49: the current version is there without asking again.
#[tokio::test]
async fn a_refused_condition_carries_the_current_version() {
    let (_home, _node, client) = started().await;
    let cache = client.cache("config").unwrap();
    let mismatch = |current_version| Err(CacheFailed::VersionMismatch { current_version });
    let first = cache.put_if("k", "1", Condition::Absent, None).await;
    let first = first.unwrap().unwrap();
    let again = cache.put_if("k", "2", Condition::Absent, None).await;
    assert_eq!(again, mismatch(Some(first)));
    let second = cache
        .put_if("k", "2", Condition::Version(first), None)
        .await;
    let second = second.unwrap().unwrap();
    assert!(second > first);
    let stale = cache
        .put_if("k", "3", Condition::Version(first), None)
        .await;
    assert_eq!(stale, mismatch(Some(second)));
    assert_eq!(
        cache.delete_if("k", first).await,
        Err(CacheFailed::VersionMismatch {
            current_version: Some(second)
        })
    );
    cache.delete_if("k", second).await.unwrap();
    let gone = cache
        .put_if("k", "3", Condition::Version(second), None)
        .await;
    assert_eq!(gone, mismatch(None));
}

#[tokio::test]
async fn a_counter_counts_a_repeated_add_once() {
    let (_home, _node, client) = started().await;
    let counter = client.counter("config").unwrap();
    assert_eq!(counter.get("hits").await.unwrap(), None);
    assert_eq!(counter.add("hits", 5).await.unwrap(), 5);
    let added = counter.add_once("hits", -2, "job-1").await.unwrap();
    assert_eq!((added.value, added.repeated), (3, false));
    let added = counter.add_once("hits", -2, "job-1").await.unwrap();
    assert_eq!((added.value, added.repeated), (3, true));
    assert_eq!(counter.get("hits").await.unwrap(), Some(3));
}

/// Case B50: a watch by prefix sees the changes of every shard.
#[tokio::test]
async fn a_prefix_is_watched_over_all_four_shards_and_forty_keys_come() {
    let (home, _node, client) = started().await;
    home.ok(&["cache", "create", "wide", "--shards", "4"])
        .await
        .unwrap();
    let cache = client.cache("wide").unwrap();
    let mut live = cache.watch_prefix("user-").await.unwrap();
    for key in 0..40 {
        cache.put(&format!("user-{key}"), "v").await.unwrap();
    }
    cache.put("other", "v").await.unwrap();
    let mut keys = BTreeSet::new();
    let mut shards = BTreeSet::new();
    while keys.len() < 40 {
        let change = timeout(PATIENCE, live.next()).await.unwrap();
        let change = change.unwrap().unwrap();
        assert!(change.key.starts_with("user-"));
        assert!(keys.insert(change.key));
        shards.insert(change.shard);
    }
    assert_eq!(shards.len(), 4);

    let mut retained = cache.watch_prefix("user-").retained().await.unwrap();
    let mut values = 0;
    loop {
        match timeout(PATIENCE, retained.next_signal()).await.unwrap() {
            Ok(Some(WatchSignal::Change(change))) if change.retained => values += 1,
            Ok(Some(WatchSignal::CaughtUp { values: told })) => {
                assert_eq!((told, values), (40, 40));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    cache.delete("user-7").await.unwrap();
    let change = timeout(PATIENCE, retained.next()).await.unwrap();
    let change = change.unwrap().unwrap();
    assert_eq!((change.key.as_str(), change.value), ("user-7", None));
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_when_the_broker_is_killed() {
    let home = home().on_fixed_ports().unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let cache = client.cache("config").unwrap();
    cache.put("a", "1").await.unwrap();
    let watch = cache.watch("a").from(WatchFrom::Offset(0));
    let mut watched = watch.await.unwrap();
    let first = timeout(PATIENCE, watched.next()).await.unwrap();
    assert_eq!(&first.unwrap().unwrap().value.unwrap()[..], b"1");
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let after = node.client().await.unwrap();
    let stored = after.cache("config").unwrap().put("a", "2").await;
    let stored = stored.unwrap().unwrap();
    let next = timeout(PATIENCE, watched.next()).await.unwrap();
    let next = next.unwrap().unwrap();
    assert_eq!((next.offset, &next.value.unwrap()[..]), (stored, &b"2"[..]));
}

#[tokio::test]
async fn a_commit_lands_once_with_its_state_or_not_at_all() {
    let (_home, _node, client) = started().await;
    let state = client.state("orders", "order-7").unwrap();
    let paid = client.commit("orders", "order-7", "paid");
    let paid = paid.put("status", "paid").put("sum", "12").once("req-1");
    let first = paid.clone().await.unwrap();
    assert!(!first.repeated);
    let again = paid.await.unwrap();
    assert_eq!((again.offset, again.repeated), (first.offset, true));
    let status = state.get("status").await.unwrap().unwrap();
    assert_eq!(&status.value[..], b"paid");
    assert_eq!(status.version, Some(first.offset));
    let cancel = client
        .commit("orders", "order-7", "cancelled")
        .delete("status");
    let refused = cancel.clone().if_version("status", None).await;
    assert!(matches!(refused,
        Err(CommitFailed::VersionMismatch { current_version, .. })
            if current_version == Some(first.offset)));
    let refused = cancel.clone().at_offset(first.offset).await;
    let next = first.offset + 1;
    assert_eq!(refused, Err(CommitFailed::OffsetMismatch { next }));
    let cancelled = cancel.if_version("status", Some(first.offset)).await;
    assert_eq!(cancelled.unwrap().offset, next);
    let left: Vec<String> = state
        .list("")
        .await
        .unwrap()
        .into_iter()
        .map(|it| it.key)
        .collect();
    assert_eq!(left, ["sum"]);
}

#[tokio::test]
async fn dead_letters_keep_their_bytes_and_are_redriven_or_discarded() {
    let (_home, _node, client) = started().await;
    let record = Record::new("poison").key("k").header("h", "v");
    client.publish("orders", record).await.unwrap();
    client.publish("orders", "fine").await.unwrap();
    let group = client.group("orders", "billing").unwrap();
    let mut consumer = worker(&group, "w1").await;
    let poison = consumer.next().await.unwrap().unwrap();
    assert_eq!(poison.key.as_deref(), Some(&b"k"[..]));
    poison.set_aside("cannot be parsed").await.unwrap();
    let fine = consumer.next().await.unwrap().unwrap();
    fine.ack().await.unwrap();
    let letters = group.dead_letters(0, None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = letters.first().unwrap();
    assert_eq!(letter.value.as_deref(), Some(&b"poison"[..]));
    assert_eq!((letter.attempts, letter.headers.len()), (1, 1));
    assert_eq!(group.redrive(0, None).await.unwrap().count, 1);
    let again = consumer.next().await.unwrap().unwrap();
    assert_eq!(again.value.as_deref(), Some(&b"poison"[..]));
    let offset = again.offset;
    again.set_aside("still").await.unwrap();
    let discarded = group.discard(0, Some(&[offset, 999])).await.unwrap();
    assert_eq!((discarded.count, &discarded.missing[..]), (1, &[999][..]));
    consumer.close().await;
    let standing = group.describe(0).await.unwrap();
    assert_eq!((standing.lag, standing.dead_letters), (0, 0));
    let groups = client.groups("orders", 0).await.unwrap();
    assert!(groups.iter().any(|(name, _)| name == "billing"));
    assert!(group.delete(0).await.unwrap());
}

async fn worker(group: &Group, name: &str) -> felix_client::Consumer {
    let options = group.consumer(name).wait(Duration::from_millis(100));
    options.session(Duration::from_secs(3)).await.unwrap()
}

#[tokio::test]
async fn what_was_not_acknowledged_comes_again_and_a_position_can_be_moved() {
    let (_home, _node, client) = started().await;
    for value in ["a", "b", "c"] {
        client.publish("orders", value).await.unwrap();
    }
    let group = client.group("orders", "audit").unwrap();
    group.create(0, Start::Offset(1)).await.unwrap();
    let options = PollOptions {
        visibility: Duration::from_millis(200),
        wait: Duration::from_secs(10),
        ..PollOptions::default()
    };
    let first = group.poll(0, &options).await.unwrap();
    let offsets: Vec<u64> = first.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [1, 2]);
    let again = group.poll(0, &options).await.unwrap();
    assert_eq!(
        again.first().map(|it| (it.offset, it.attempts)),
        Some((1, 2))
    );
    let position = group.seek(0, Start::Earliest).await.unwrap();
    assert_eq!((position.offset, position.moved), (0, true));
    let all = group.poll(0, &options).await.unwrap();
    assert_eq!(all.first().map(|it| it.offset), Some(0));
}

/// Case B45: an idle worker takes work again when there is some, also after its broker was killed.
#[tokio::test]
async fn an_idle_worker_goes_on_when_its_broker_was_killed() {
    let home = home().on_fixed_ports().unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    client.publish("orders", "one").await.unwrap();
    let group = client.group("orders", "billing").unwrap();
    let mut consumer = worker(&group, "w1").await;
    let one = timeout(PATIENCE, consumer.next()).await.unwrap();
    one.unwrap().unwrap().ack().await.unwrap();
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let after = node.client().await.unwrap();
    after.publish("orders", "two").await.unwrap();
    let two = async {
        loop {
            // A poll that failed for good while the broker was away is told, and is tried again all the same.
            if let Ok(Some(delivery)) = consumer.next().await {
                break delivery;
            }
        }
    };
    let two = timeout(PATIENCE, two).await.unwrap();
    assert_eq!(two.value.as_deref(), Some(&b"two"[..]));
    two.ack().await.unwrap();
}

/// Case B51: shards change hands twenty times, and every record is acknowledged by somebody.
#[tokio::test]
async fn workers_come_and_go_and_no_record_is_skipped() {
    const RECORDS: u64 = 400;
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "jobs", "--shards", "2"])
        .await
        .unwrap();
    let acked: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let group = client.group("jobs", "workers").unwrap();
    let steady = tokio::spawn(work(group.clone(), "steady", Arc::clone(&acked), None));
    let publish = async {
        for job in 0..RECORDS {
            let record = Record::new(format!("{job}")).key(format!("{}", job % 16));
            client.publish("jobs", record).await.unwrap();
        }
    };
    let come_and_go = async {
        for _ in 0..20 {
            let some = Some(3);
            let acked = Arc::clone(&acked);
            work(group.clone(), "guest", acked, some).await;
        }
    };
    timeout(PATIENCE * 3, async {
        tokio::join!(publish, come_and_go);
        while acked.lock().unwrap().len() < usize::try_from(RECORDS).unwrap() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    steady.abort();
    for shard in 0..2 {
        let standing = group.describe(shard).await.unwrap();
        assert_eq!((standing.lag, standing.dead_letters), (0, 0), "{shard}");
    }
}

/// Acknowledges records, this many or without end; a guest that gets none goes after a while.
async fn work(
    group: Group,
    name: &str,
    acked: Arc<Mutex<BTreeMap<String, u32>>>,
    most: Option<u32>,
) {
    let mut consumer = worker(&group, name).await;
    let mut done = 0;
    while most.is_none_or(|most| done < most) {
        let next = timeout(Duration::from_millis(1_500), consumer.next());
        let delivery = match next.await {
            Ok(Ok(Some(delivery))) => delivery,
            Ok(Ok(None)) => break,
            Ok(Err(failed)) => panic!("{failed}"),
            Err(_) if most.is_some() => break,
            Err(_) => continue,
        };
        let value = String::from_utf8(delivery.value.clone().unwrap().to_vec()).unwrap();
        if delivery.ack().await.is_ok() {
            *acked.lock().unwrap().entry(value).or_default() += 1;
        }
        done += 1;
    }
    consumer.close().await;
}

#[tokio::test]
async fn a_record_becomes_visible_at_its_time_unless_it_was_taken_back() {
    let (_home, _node, client) = started().await;
    let schedule = client.schedule("orders").unwrap();
    let soon = SystemTime::now() + Duration::from_millis(300);
    let later = SystemTime::now() + Duration::from_secs(3_600);
    let mut orders = client.subscribe("orders").from_earliest().await.unwrap();
    schedule.add(soon, "soon").await.unwrap();
    let kept = schedule.add_named("call-back", later, "later").await;
    assert_eq!(kept.unwrap().id, "call-back");
    let again = schedule.add_named("call-back", later, "other").await;
    assert!(again.unwrap().repeated);
    let event = timeout(PATIENCE, orders.next()).await.unwrap();
    assert_eq!(&event.unwrap().unwrap().payload[..], b"soon");
    let waiting = schedule.list(10).await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(
        waiting.first().unwrap().value.as_deref(),
        Some(&b"later"[..])
    );
    assert!(schedule.cancel("call-back").await.unwrap());
    assert!(!schedule.cancel("call-back").await.unwrap());
}
