//! Caches, counters and watches of a real node, by what the published protocol says on the wire.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use felix_e2e::raw::{Listener, Stream, Wire};
use felix_e2e::{Home, Node};
use felix_wire::error::Failure;
use felix_wire::message::{CacheConditionResult, CacheEvent, CacheWatchStarted, Message};
use serde_json::{Value, json};

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

/// A cache as a client holds it.
struct Cache<'a> {
    wire: &'a Wire,
    stream: Stream,
    name: &'a str,
    request_id: u64,
}

impl<'a> Cache<'a> {
    async fn of(wire: &'a Wire, name: &'a str) -> Self {
        Self {
            wire,
            stream: wire.authenticated().await.unwrap(),
            name,
            request_id: 0,
        }
    }

    async fn ask(&mut self, kind: &str, fields: Value) -> Message {
        self.request_id += 1;
        let mut ask = json!({
            "type": kind, "tenant_id": "dev", "namespace": "default", "cache": self.name,
            "request_id": self.request_id,
        });
        ask.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        self.stream.ask_json(&ask).await.unwrap()
    }

    async fn put(&mut self, key: &str, value: &str) {
        let answer = self.ask("cache_put", put(key, value)).await;
        assert!(matches!(answer, Message::CacheOk(ok) if ok.request_id == self.request_id));
    }

    async fn get(&mut self, key: &str) -> Option<(String, u64)> {
        match self.ask("cache_get", json!({ "key": key })).await {
            Message::CacheValue(found) => {
                assert_eq!((found.key.as_str(), found.cache.as_str()), (key, self.name));
                let value = found.value?;
                let text = String::from_utf8(value.to_vec()).unwrap();
                Some((text, found.version.unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }

    async fn add(&mut self, key: &str, delta: i64) -> Result<i64, Failure> {
        let fields = json!({ "key": key, "delta": delta });
        match self.ask("counter_add", fields).await {
            Message::CounterValue(sum) => Ok(sum.value.unwrap()),
            Message::Error(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    async fn conditional(&mut self, kind: &str, fields: Value) -> CacheConditionResult {
        match self.ask(kind, fields).await {
            Message::CacheConditionResult(result) => result,
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&mut self, kind: &str, fields: Value) -> Failure {
        match self.ask(kind, fields).await {
            Message::Error(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    async fn watch(&self, fields: Value) -> Result<(CacheWatchStarted, Listener), Message> {
        let mut stream = self.wire.authenticated().await.unwrap();
        let mut ask = json!({
            "type": "cache_watch", "tenant_id": "dev", "namespace": "default", "cache": self.name,
        });
        ask.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let answer = stream.ask_json(&ask).await.unwrap();
        let Message::CacheWatchStarted(started) = answer else {
            return Err(answer);
        };
        let mut events = self.wire.events().await.unwrap();
        match events.message().await.unwrap() {
            Message::EventStreamHello(hello) => {
                assert_eq!(hello.subscription_id, started.subscription_id);
            }
            other => panic!("{other:?}"),
        }
        Ok((started, events))
    }
}

fn put(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": base64(value), "ttl_ms": null })
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn reason(failure: &Failure) -> String {
    let detail = failure.detail.as_ref();
    detail
        .and_then(|detail| detail.reason.clone())
        .unwrap_or_default()
}

fn code(failure: &Failure) -> &'static str {
    failure.code().unwrap().name()
}

async fn event(events: &mut Listener) -> CacheEvent {
    match events.message().await.unwrap() {
        Message::CacheEvent(event) => event,
        other => panic!("{other:?}"),
    }
}

fn told(event: &CacheEvent) -> (&str, Option<&[u8]>) {
    (&event.key, event.value.as_deref())
}

async fn node(home: &Home, caches: &[(&str, &[&str])]) -> Node {
    let node = home.start().await.unwrap();
    for (cache, settings) in caches {
        let mut arguments = vec!["cache", "create", cache];
        arguments.extend_from_slice(settings);
        home.ok(&arguments).await.unwrap();
    }
    node
}

#[tokio::test]
async fn values_conditions_and_counters_answer_as_the_protocol_says() {
    let home = home();
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "config").await;
    assert_eq!(cache.get("theme").await, None);
    cache.put("theme", "dark").await;
    let (value, version) = cache.get("theme").await.unwrap();
    assert_eq!(value, "dark");

    // B49: what the version is now comes as data.
    let absent = json!({ "key": "theme", "value": base64("x"), "condition": "absent" });
    let unmet = cache.conditional("cache_put_if", absent).await;
    assert_eq!((unmet.applied, unmet.version), (false, Some(version)));
    let wrong =
        json!({ "key": "theme", "value": base64("x"), "condition": { "version": version + 9 } });
    let unmet = cache.conditional("cache_put_if", wrong).await;
    assert_eq!((unmet.applied, unmet.version), (false, Some(version)));
    let right =
        json!({ "key": "theme", "value": base64("light"), "condition": { "version": version } });
    let met = cache.conditional("cache_put_if", right).await;
    let written = met.version.unwrap();
    assert!(met.applied && written > version);
    assert_eq!(cache.get("theme").await, Some(("light".into(), written)));
    let stale = json!({ "key": "theme", "version": version });
    let unmet = cache.conditional("cache_delete_if", stale).await;
    assert_eq!((unmet.applied, unmet.version), (false, Some(written)));
    let current = json!({ "key": "theme", "version": written });
    let met = cache.conditional("cache_delete_if", current.clone()).await;
    assert_eq!((met.applied, met.version), (true, None));
    let unmet = cache.conditional("cache_delete_if", current).await;
    assert_eq!((unmet.applied, unmet.version), (false, None));

    cache.put("gone", "soon").await;
    match cache.ask("cache_delete", json!({ "key": "gone" })).await {
        Message::CacheValue(removed) => assert_eq!(removed.value.as_deref(), Some(&b"soon"[..])),
        other => panic!("{other:?}"),
    }
    assert_eq!(cache.get("gone").await, None);

    // Counters have names of their own.
    match cache.ask("counter_get", json!({ "key": "gone" })).await {
        Message::CounterValue(sum) => assert_eq!(sum.value, None),
        other => panic!("{other:?}"),
    }
    assert_eq!(cache.add("gone", 5).await, Ok(5));
    assert_eq!(cache.add("gone", -7).await, Ok(-2));
    assert_eq!(cache.get("gone").await, None);
    assert_eq!(cache.add("top", i64::MAX).await, Ok(i64::MAX));
    let overflow = cache.add("top", 1).await.unwrap_err();
    assert_eq!(code(&overflow), "invalid_request");
    assert_eq!(reason(&overflow), "overflow");
    assert_eq!(cache.add("top", 0).await, Ok(i64::MAX));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_code_and_the_stream_goes_on() {
    let home = home();
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "config").await;
    let long = "k".repeat(5000);
    for (fields, code_expected) in [
        (put("", "x"), "invalid_request"),
        (put(&long, "x"), "limit_exceeded"),
        (put("k", &"x".repeat(1024 * 1024 + 1)), "limit_exceeded"),
        (
            json!({ "key": "k", "value": base64("x"), "ttl_ms": -1 }),
            "invalid_request",
        ),
        (
            json!({ "key": "k", "value": "%%%", "ttl_ms": null }),
            "invalid_request",
        ),
        (
            json!({ "key": "k", "value": base64("x"), "ttl_ms": null, "namespace": "none" }),
            "not_found",
        ),
        (
            json!({ "key": "k", "value": base64("x"), "ttl_ms": null, "tenant_id": "other" }),
            "forbidden",
        ),
    ] {
        let refused = cache.refused("cache_put", fields).await;
        assert_eq!(code(&refused), code_expected, "{refused:?}");
    }
    for fields in [
        json!({}),
        json!({ "key": "a", "prefix": "a" }),
        json!({ "prefix": "", "retained": true, "from_offset": 0 }),
        json!({ "prefix": "", "shard": 7 }),
    ] {
        match cache.watch(fields).await {
            Err(Message::Error(failure)) => assert_eq!(code(&failure), "invalid_request"),
            other => panic!("{other:?}"),
        }
    }
    match cache
        .watch(json!({ "prefix": "", "from_offset": 99 }))
        .await
    {
        Err(Message::SubscribeCursorError(error)) => {
            assert_eq!((error.requested, error.available), (99, 0))
        }
        other => panic!("{other:?}"),
    }
    let misspelt = json!({ "key": "k", "cache": "confg" });
    let refused = cache.refused("cache_get", misspelt).await;
    assert_eq!(code(&refused), "not_found");
    assert!(refused.message.contains("`config`"), "{refused:?}");
    assert_eq!(cache.get("k").await, None);
    cache.put("k", "v").await;
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_value_expires_on_reads_in_conditions_and_for_those_who_watch() {
    let home = home();
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "config").await;
    let (_, mut events) = cache.watch(json!({ "key": "k" })).await.unwrap();
    let mut short = put("k", "v");
    short["ttl_ms"] = json!(700);
    assert!(matches!(
        cache.ask("cache_put", short).await,
        Message::CacheOk(_)
    ));
    let set = event(&mut events).await;
    assert_eq!(told(&set), ("k", Some(&b"v"[..])));
    assert!(set.expires_at_millis > 0);
    let gone = event(&mut events).await;
    assert_eq!(told(&gone), ("k", None));
    assert!(gone.offset > set.offset);
    assert_eq!(cache.get("k").await, None);
    let absent = json!({ "key": "k", "value": base64("new"), "condition": "absent" });
    assert!(cache.conditional("cache_put_if", absent).await.applied);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_begins_with_what_is_there_or_at_an_offset_and_misses_nothing() {
    let home = home();
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "config").await;
    for number in 0..300 {
        cache
            .put(&format!("a{}", number % 100), &number.to_string())
            .await;
        cache.add("a1", 1).await.unwrap();
    }
    cache.put("b", "other").await;
    let (started, mut events) = cache
        .watch(json!({ "prefix": "a", "retained": true }))
        .await
        .unwrap();
    assert_eq!(started.retained_count, Some(100));
    assert!(!started.resnapshot);
    cache.put("a0", "live").await;
    let mut seen = BTreeMap::new();
    for _ in 0..100 {
        let event = event(&mut events).await;
        assert!(event.offset < started.resume_offset);
        let value = String::from_utf8(event.value.unwrap().to_vec()).unwrap();
        seen.insert(event.key, value);
    }
    let expected: BTreeMap<_, _> = (0..100)
        .map(|key| (format!("a{key}"), (200 + key).to_string()))
        .collect();
    assert_eq!(seen, expected);
    let live = event(&mut events).await;
    assert_eq!(told(&live), ("a0", Some(&b"live"[..])));
    assert!(live.offset >= started.resume_offset);

    // From an offset: every change once, the counters' none.
    let (started, mut events) = cache
        .watch(json!({ "prefix": "", "from_offset": 0 }))
        .await
        .unwrap();
    assert_eq!((started.retained_count, started.resnapshot), (None, false));
    let mut last = None;
    for _ in 0..302 {
        let event = event(&mut events).await;
        assert!(last.is_none_or(|last| event.offset > last));
        last = Some(event.offset);
    }
    // A key that does not exist has no current value.
    let (started, _events) = cache
        .watch(json!({ "key": "nothing", "retained": true }))
        .await
        .unwrap();
    assert_eq!(started.retained_count, Some(0));
    node.stop().await.unwrap();
}

/// B50.
#[tokio::test]
async fn a_prefix_of_a_cache_with_four_shards_is_watched_on_all_of_them() {
    let home = home();
    let node = node(&home, &[("wide", &["--shards", "4"])]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "wide").await;
    match cache.watch(json!({ "prefix": "" })).await {
        Err(Message::Error(failure)) => {
            assert_eq!(code(&failure), "invalid_request");
            assert_eq!(reason(&failure), "shard");
        }
        other => panic!("{other:?}"),
    }
    let mut watches = Vec::new();
    for shard in 0..4 {
        let watch = cache.watch(json!({ "prefix": "k", "shard": shard }));
        watches.push(watch.await.unwrap().1);
    }
    let mut counts = [0_u64; 4];
    for number in 0..40 {
        let key = format!("k{number}");
        cache.put(&key, "v").await;
        let shard = felix_model::Routing::Modulo.shard(Some(key.as_bytes()), 4);
        counts[usize::try_from(shard.0).unwrap()] += 1;
    }
    let mut seen = BTreeSet::new();
    for (events, count) in watches.iter_mut().zip(counts) {
        assert!(count > 0, "every shard has keys");
        for _ in 0..count {
            seen.insert(event(events).await.key);
        }
    }
    assert_eq!(seen.len(), 40);
    // A watch of one key finds its shard by itself.
    let (_, mut events) = cache
        .watch(json!({ "key": "k7", "shard": 9 }))
        .await
        .unwrap();
    cache.put("k7", "again").await;
    assert_eq!(told(&event(&mut events).await), ("k7", Some(&b"again"[..])));
    node.stop().await.unwrap();
}

/// B47.
#[tokio::test]
async fn of_many_who_create_a_deleted_key_exactly_one_wins() {
    const CLIENTS: usize = 32;
    let home = home();
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut owner = Cache::of(&wire, "config").await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(wire.authenticated().await.unwrap());
    }
    for round in 0..1000_u64 {
        owner.ask("cache_delete", json!({ "key": "lock" })).await;
        let mut racing = tokio::task::JoinSet::new();
        for (number, mut stream) in clients.drain(..).enumerate() {
            racing.spawn(async move {
                let ask = json!({
                    "type": "cache_put_if", "tenant_id": "dev", "namespace": "default",
                    "cache": "config", "key": "lock", "value": base64(&number.to_string()),
                    "condition": "absent", "request_id": round,
                });
                let answer = stream.ask_json(&ask).await.unwrap();
                (stream, answer)
            });
        }
        let mut won = Vec::new();
        let mut current = BTreeSet::new();
        while let Some(done) = racing.join_next().await {
            let (stream, answer) = done.unwrap();
            clients.push(stream);
            match answer {
                Message::CacheConditionResult(result) if result.applied => {
                    won.push(result.version.unwrap());
                }
                Message::CacheConditionResult(result) => {
                    current.insert(result.version.unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(won.len(), 1, "round {round}");
        assert_eq!(current.into_iter().collect::<Vec<_>>(), won);
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_kills_and_counters_add_up() {
    let home = home();
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    let mut sum = 0;
    for round in 0..5_u64 {
        let node = home.start().await.unwrap();
        let wire = Wire::connect(node.ready()).await.unwrap();
        let mut cache = Cache::of(&wire, "config").await;
        for (key, value) in &expected {
            let (found, _) = cache.get(key).await.unwrap();
            assert_eq!(found, *value, "round {round}");
        }
        if round > 0 {
            assert_eq!(cache.add("hits", 0).await, Ok(sum), "round {round}");
        }
        for number in 0..200 {
            let (key, value) = (format!("k{}", number % 50), format!("{round}-{number}"));
            cache.put(&key, &value).await;
            expected.insert(key, value);
            sum += 3;
            assert_eq!(cache.add("hits", 3).await, Ok(sum));
        }
        if round % 2 == 0 {
            node.kill().await.unwrap();
        } else {
            node.stop().await.unwrap();
        }
    }
    // The index that was written down is not needed: without it, and with a damaged one, the log says the same.
    for damage in [false, true] {
        let index = files(&home.data(), "index").pop().unwrap();
        if damage {
            let mut bytes = std::fs::read(&index).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&index, bytes).unwrap();
        } else {
            std::fs::remove_file(&index).unwrap();
        }
        let node = home.start().await.unwrap();
        let wire = Wire::connect(node.ready()).await.unwrap();
        let mut cache = Cache::of(&wire, "config").await;
        for (key, value) in &expected {
            assert_eq!(cache.get(key).await.unwrap().0, *value);
        }
        assert_eq!(cache.add("hits", 0).await, Ok(sum));
        node.stop().await.unwrap();
    }
}

fn files(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, name));
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_cache_in_memory_evicts_within_its_bound_and_those_who_watch_see_it() {
    let home = home();
    let settings: &[&str] = &["--durable", "false", "--memory-size", "64KiB"];
    let node = node(&home, &[("small", settings)]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "small").await;
    let (_, mut events) = cache.watch(json!({ "prefix": "" })).await.unwrap();
    let value = "x".repeat(1000);
    for number in 0..200 {
        cache.put(&format!("k{number}"), &value).await;
    }
    let mut there = BTreeSet::new();
    for number in 0..200 {
        let key = format!("k{number}");
        if cache.get(&key).await.is_some() {
            there.insert(key);
        }
    }
    assert!((10..64).contains(&there.len()), "{}", there.len());
    let mut seen = BTreeSet::new();
    let mut puts = 0;
    // Every put, and every eviction before the last put; one more change ends it.
    cache.put("end", "").await;
    loop {
        let event = event(&mut events).await;
        match (event.key.as_str(), event.value) {
            ("end", _) => break,
            (_, Some(_)) => {
                puts += 1;
                seen.insert(event.key);
            }
            (_, None) => {
                seen.remove(&event.key);
            }
        }
    }
    assert_eq!(puts, 200);
    assert_eq!(seen, there);
    let refused = cache
        .refused("cache_put", put("large", &"x".repeat(70_000)))
        .await;
    assert_eq!(code(&refused), "limit_exceeded");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_cache_that_is_deleted_and_made_anew_is_empty_and_ends_its_watches() {
    let home = home();
    let node = node(&home, &[("brief", &[])]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "brief").await;
    cache.put("k", "old").await;
    let (_, mut events) = cache.watch(json!({ "key": "k" })).await.unwrap();
    home.ok(&["cache", "rm", "brief", "-y"]).await.unwrap();
    match events.message().await.unwrap() {
        Message::Error(failure) => assert_eq!(code(&failure), "not_found"),
        other => panic!("{other:?}"),
    }
    events.ended().await.unwrap();
    home.ok(&["cache", "create", "brief"]).await.unwrap();
    let mut cache = Cache::of(&wire, "brief").await;
    // What was asked before the broker heard of the new one is retryable.
    let found = loop {
        match cache.ask("cache_get", json!({ "key": "k" })).await {
            Message::CacheValue(found) if found.value.is_none() => break found,
            Message::CacheValue(found) => panic!("{found:?}"),
            Message::Error(failure) => assert_eq!(code(&failure), "not_found"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(found.value, None);
    cache.put("k", "new").await;
    node.stop().await.unwrap();
}

/// A small file system in memory; gone when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a word about it, where mounting is not allowed.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(at)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("SKIPPED: a small disk cannot be mounted without root; nothing was tested");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// B15.
#[tokio::test]
async fn a_put_that_could_not_be_written_is_refused_and_changes_nothing() {
    let home = home();
    let broker = home.data().join("broker");
    let Some(_disk) = SmallDisk::mount(&broker) else {
        return;
    };
    let node = node(&home, &[]).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut cache = Cache::of(&wire, "config").await;
    cache.put("k", "before").await;
    cache.add("hits", 4).await.unwrap();
    let before = cache.get("k").await.unwrap();
    let ballast = broker.join("ballast");
    std::fs::write(&ballast, vec![0; 12 * 1024 * 1024]).unwrap();
    let large = "x".repeat(512 * 1024);
    let mut filled = 0;
    let refused = loop {
        match cache
            .ask("cache_put", put(&format!("fill{filled}"), &large))
            .await
        {
            Message::CacheOk(_) => filled += 1,
            Message::Error(failure) => break failure,
            other => panic!("{other:?}"),
        }
        assert!(filled < 1_000, "a disk of 24 MB takes everything");
    };
    assert_eq!(code(&refused), "overloaded");
    assert_eq!(reason(&refused), "storage_full");
    let refused = cache.refused("cache_put", put("k", &large)).await;
    assert_eq!(reason(&refused), "storage_full");
    assert_eq!(cache.get("k").await.unwrap(), before);
    let is_there = format!("fill{}", filled - 1);
    assert_eq!(cache.get(&is_there).await.unwrap().0, large);
    assert_eq!(cache.get(&format!("fill{filled}")).await, None);
    std::fs::remove_file(&ballast).unwrap();
    let taken = loop {
        match cache.ask("cache_put", put("k", "after")).await {
            Message::CacheOk(_) => break true,
            Message::Error(failure) => assert_eq!(reason(&failure), "storage_full"),
            other => panic!("{other:?}"),
        }
    };
    assert!(taken);
    assert_eq!(cache.get("k").await.unwrap().0, "after");
    assert_eq!(cache.add("hits", 1).await, Ok(5));
    node.stop().await.unwrap();
}
