//! Watching a cache over all its shards, through everything that ends an event stream.

use felix_client::{Cache, Change, WatchFrom, WatchSignal, Watched};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    CacheEvent, CacheShardsView, CacheWatch, CacheWatchLagged, CacheWatchStarted, CursorReason,
    Message, ShardMoved, SubscribeCursorError,
};

use super::fake::{FakeBroker, FakeConn, FakeStream};

fn event(key: &str, offset: u64) -> CacheEvent {
    CacheEvent {
        key: key.to_owned(),
        value: Some("v".into()),
        offset,
        expires_at_millis: 0,
    }
}

impl FakeConn {
    async fn says_shards(&self, shards: u32) {
        let (Message::CacheShards(ask), mut stream) = self.asked().await else {
            panic!("not a question for the width")
        };
        let request_id = ask.request_id;
        stream.say(CacheShardsView { shards, request_id }).await;
    }

    /// Answers a watch and opens its event stream.
    async fn serves_watch(
        &self,
        resume_offset: u64,
        retained_count: Option<u64>,
    ) -> (CacheWatch, FakeStream) {
        self.serves(resume_offset, retained_count, false).await
    }

    async fn serves(
        &self,
        resume_offset: u64,
        retained_count: Option<u64>,
        resnapshot: bool,
    ) -> (CacheWatch, FakeStream) {
        let (Message::CacheWatch(watch), mut stream) = self.asked().await else {
            panic!("not a watch")
        };
        let subscription_id = 100 + u64::from(watch.shard.unwrap_or(50)) + resume_offset * 1000;
        stream
            .say(CacheWatchStarted {
                subscription_id,
                resume_offset,
                resnapshot,
                retained_count,
            })
            .await;
        (watch, self.events(subscription_id).await)
    }
}

fn cache(client: &felix_client::Client) -> Cache {
    client.cache("sessions").unwrap()
}

#[tokio::test]
async fn a_prefix_is_watched_in_every_shard_and_all_changes_come() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        conn.says_shards(4).await;
        let mut shards = Vec::new();
        for _ in 0..4 {
            let (watch, mut events) = conn.serves_watch(0, None).await;
            assert_eq!(watch.prefix.as_deref(), Some("user-"));
            let shard = watch.shard.unwrap();
            for offset in 0..10 {
                events
                    .say(event(&format!("user-{shard}-{offset}"), offset))
                    .await;
            }
            shards.push((shard, events));
        }
        shards
    };
    let cache = cache(&client);
    let (watched, mut shards) = tokio::join!(cache.watch_prefix("user-"), answer);
    shards.sort_by_key(|(shard, _)| *shard);
    let numbers: Vec<u32> = shards.iter().map(|(shard, _)| *shard).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let mut watched = watched.unwrap();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let change = watched.next().await.unwrap().unwrap();
        assert!(!change.retained);
        keys.insert((change.shard, change.offset, change.key));
    }
    assert_eq!(keys.len(), 40);
}

#[tokio::test]
async fn current_values_come_first_and_their_end_is_told_once_for_all_shards() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let answer = async {
        conn.says_shards(2).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let (watch, mut events) = conn.serves_watch(9, Some(2)).await;
            assert!(watch.retained);
            events.say(event("a", 7)).await;
            events.say(event("b", 3)).await;
            kept.push(events);
        }
        kept
    };
    let cache = cache(&client);
    let watch = cache.watch_prefix("").retained();
    let (watched, mut kept) = tokio::join!(watch, answer);
    let mut watched = watched.unwrap();
    for _ in 0..4 {
        let change = watched.next_signal().await.unwrap().unwrap();
        assert!(matches!(change, WatchSignal::Change(change) if change.retained));
    }
    let signal = watched.next_signal().await.unwrap().unwrap();
    assert_eq!(signal, WatchSignal::CaughtUp { values: 4 });
    kept[0].say(event("c", 9)).await;
    assert!(!watched.next().await.unwrap().unwrap().retained);
}

#[tokio::test]
async fn a_watch_goes_on_behind_the_last_change_after_every_kind_of_end() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let cache = cache(&client);
    let first = async {
        let (watch, mut events) = conn.serves_watch(5, None).await;
        assert_eq!((watch.key.as_deref(), watch.from_offset), (Some("a"), None));
        events.say(event("a", 8)).await;
        events
    };
    let (watched, mut events) = tokio::join!(cache.watch("a"), first);
    let mut watched = watched.unwrap();
    assert_eq!(watched.next().await.unwrap().unwrap().offset, 8);

    events.say(CacheWatchLagged { resume_from: 9 }).await;
    events.finish();
    let mut events = served_again(&conn, 9, 11).await;
    assert_eq!(watched.next().await.unwrap().unwrap().offset, 11);

    events
        .say(ShardMoved {
            resume_from: Some(12),
            ..moved()
        })
        .await;
    events.finish();
    let mut events = served_again(&conn, 12, 30).await;
    assert_eq!(watched.next().await.unwrap().unwrap().offset, 30);

    events.reset();
    let _events = served_again(&conn, 31, 40).await;
    assert_eq!(watched.next().await.unwrap().unwrap().offset, 40);
}

/// Serves a watch that goes on at `from`, with one change.
async fn served_again(conn: &FakeConn, from: u64, change: u64) -> FakeStream {
    let (watch, mut events) = conn.serves_watch(change, None).await;
    assert_eq!(watch.from_offset, Some(from));
    events.say(event("a", change)).await;
    events
}

fn moved() -> ShardMoved {
    ShardMoved {
        subscription_id: 1,
        resume_from: None,
        generation: 1,
        node_id: Some("node-2".to_owned()),
        addr: None,
    }
}

#[tokio::test]
async fn a_watch_goes_on_over_a_new_connection() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let serve = async {
        let (_, mut events) = conn.serves_watch(5, None).await;
        events.say(event("a", 8)).await;
        events
    };
    let cache = cache(&client);
    let watch = cache.watch("a").from(WatchFrom::Offset(5));
    let (watched, _events) = tokio::join!(watch, serve);
    let mut watched = watched.unwrap();
    assert_eq!(watched.next().await.unwrap().unwrap().offset, 8);
    conn.drop_dead();
    let again = async {
        let (conn, pipe) = broker.welcome().await;
        let (watch, mut events) = conn.serves_watch(9, None).await;
        assert_eq!(watch.from_offset, Some(9));
        events.say(event("a", 9)).await;
        (conn, pipe, events)
    };
    let (next, _kept) = tokio::join!(watched.next(), again);
    assert_eq!(next.unwrap().unwrap().offset, 9);
}

#[tokio::test]
async fn a_cache_that_does_not_exist_is_told_at_once() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let cache = cache(&client);
    let (failed, ()) = tokio::join!(cache.watch_prefix(""), conn.says_shards(0));
    assert_eq!(failed.unwrap_err().code(), "not_found");
}

async fn change(watched: &mut Watched) -> Change {
    match watched.next_signal().await.unwrap() {
        Some(WatchSignal::Change(change)) => change,
        other => panic!("not a change: {other:?}"),
    }
}

async fn signal(watched: &mut Watched) -> WatchSignal {
    watched.next_signal().await.unwrap().unwrap()
}

/// A watch of one key from offset 5 that was handed the change of offset 8.
async fn watching(client: &felix_client::Client, conn: &FakeConn) -> (Watched, FakeStream) {
    let cache = cache(client);
    let serve = async {
        let (_, mut events) = conn.serves_watch(5, None).await;
        events.say(event("a", 8)).await;
        events
    };
    let watch = cache.watch("a").from(WatchFrom::Offset(5));
    let (watched, events) = tokio::join!(watch, serve);
    let mut watched = watched.unwrap();
    assert_eq!(change(&mut watched).await.offset, 8);
    (watched, events)
}

#[tokio::test]
async fn a_watch_ends_with_its_cache_whether_that_is_told_or_found_out() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let gone = || Failure::new(Code::NotFound, "the cache was deleted");
    let (mut watched, mut events) = watching(&client, &conn).await;
    events.say(Message::Error(gone())).await;
    assert_eq!(watched.next().await, Ok(None));

    let (mut watched, mut events) = watching(&client, &conn).await;
    events.reset();
    let refuse = async {
        let (Message::CacheWatch(_), mut stream) = conn.asked().await else {
            panic!("not a watch")
        };
        stream.say(Message::Error(gone())).await;
        stream
    };
    let (next, _stream) = tokio::join!(watched.next(), refuse);
    assert_eq!(next, Ok(None));
}

#[tokio::test]
async fn a_cache_that_lost_what_it_held_is_watched_from_its_current_values() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let (mut watched, mut events) = watching(&client, &conn).await;
    events.reset();
    let (Message::CacheWatch(watch), mut stream) = conn.asked().await else {
        panic!("not a watch")
    };
    assert_eq!(watch.from_offset, Some(9));
    stream
        .say(SubscribeCursorError {
            reason: CursorReason::InFuture,
            requested: 9,
            available: 2,
            trim_headers: None,
        })
        .await;
    let (watch, mut events) = conn.serves_watch(2, Some(1)).await;
    assert!(watch.retained && watch.from_offset.is_none());
    events.say(event("a", 1)).await;
    events.say(event("a", 2)).await;
    assert_eq!(
        signal(&mut watched).await,
        WatchSignal::Resnapshot { shard: 0 }
    );
    assert!(change(&mut watched).await.retained);
    assert!(!change(&mut watched).await.retained);
}

#[tokio::test]
async fn current_values_that_were_interrupted_come_again_and_are_counted_once() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let cache = cache(&client);
    let serve = async {
        let (_, mut events) = conn.serves_watch(9, Some(3)).await;
        events.say(event("a", 1)).await;
        events
    };
    let (watched, mut events) = tokio::join!(cache.watch("a").retained(), serve);
    let mut watched = watched.unwrap();
    assert_eq!(change(&mut watched).await.offset, 1);
    events.reset();
    let (watch, mut events) = conn.serves_watch(12, Some(2)).await;
    assert!(watch.retained);
    events.say(event("b", 4)).await;
    events.say(event("c", 11)).await;
    assert_eq!(
        signal(&mut watched).await,
        WatchSignal::Resnapshot { shard: 0 }
    );
    change(&mut watched).await;
    change(&mut watched).await;
    assert_eq!(
        signal(&mut watched).await,
        WatchSignal::CaughtUp { values: 2 }
    );
    events.reset();
    let _events = served_again(&conn, 12, 15).await;
    assert_eq!(change(&mut watched).await.offset, 15);
}

#[tokio::test]
async fn a_newer_value_among_current_ones_hides_no_change() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let (mut watched, mut events) = watching(&client, &conn).await;
    events.reset();
    let (watch, _uncounted) = conn.serves(20, None, true).await;
    assert_eq!(watch.from_offset, Some(9));
    let (watch, mut events) = conn.serves_watch(21, Some(2)).await;
    assert!(watch.retained);
    // Overwritten after the watch began, which is the change of offset 25.
    events.say(event("a", 25)).await;
    events.say(event("b", 20)).await;
    assert_eq!(
        signal(&mut watched).await,
        WatchSignal::Resnapshot { shard: 0 }
    );
    assert!(change(&mut watched).await.retained);
    assert!(change(&mut watched).await.retained);
    events.reset();
    let _events = served_again(&conn, 21, 22).await;
    assert_eq!(change(&mut watched).await.offset, 22);
}
