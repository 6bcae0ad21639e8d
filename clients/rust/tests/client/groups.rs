//! Groups and their workers.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use felix_client::{Claim, Client, ConsumerOptions, PollOptions, ReconnectPolicy};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::requests::{
    self as wire, Ask, GroupPoll, GroupPolled, List, MemberAssigned, MemberLeft, Reply, Settled,
    Unsettled,
};
use felix_wire::message::{self, Message};
use tokio::sync::mpsc;

use super::fake::{FakeBroker, FakeStream};

fn claimed(offset: u64) -> wire::Claimed {
    wire::Claimed {
        offset,
        attempts: 1,
        skipped_before: 0,
        timestamp_ms: 5,
        key: Some("k".into()),
        headers: List::default(),
        value: Some("work".into()),
    }
}

pub(super) fn polled(offsets: impl IntoIterator<Item = u64>) -> Reply {
    let records = List::build(offsets.into_iter().map(claimed)).unwrap();
    Reply::GroupPoll(GroupPolled { records })
}

pub(super) fn settled(unsettled: Vec<Unsettled>) -> Settled {
    let unsettled = List::build(unsettled).unwrap();
    Settled { unsettled }
}

pub(super) fn assigned(generation: u64, shards: &[u32]) -> MemberAssigned {
    MemberAssigned {
        generation,
        shards: 4,
        heartbeat_ms: 50,
        assigned: List::build(shards.iter().copied()).unwrap(),
    }
}

pub(super) fn options(client: &Client) -> ConsumerOptions {
    let group = client.group("orders", "billing").unwrap();
    group.consumer("w1").wait(Duration::from_millis(20))
}

/// The next call that is no heartbeat; heartbeats are answered with this assignment.
pub(super) async fn beyond_heartbeats(line: &mut FakeStream, now: &MemberAssigned) -> (u64, Ask) {
    loop {
        match line.call().await {
            (id, Ask::MemberHeartbeat(_)) => {
                line.reply(id, Reply::MemberHeartbeat(now.clone())).await;
            }
            other => return other,
        }
    }
}

pub(super) async fn joined(line: &mut FakeStream, assigned: &MemberAssigned) {
    let (id, Ask::MemberJoin(join)) = line.call().await else {
        panic!("not a join")
    };
    assert_eq!((join.member.as_str(), join.held.len()), ("w1", 0));
    line.reply(id, Reply::MemberJoin(assigned.clone())).await;
}

fn as_poll(ask: &Ask) -> &GroupPoll {
    match ask {
        Ask::GroupPoll(poll) => poll,
        other => panic!("not a poll: {other:?}"),
    }
}

#[tokio::test]
async fn a_poll_hands_out_whole_records_and_an_ack_names_deliveries() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let group = client.group("orders", "billing").unwrap();
    let serve = async {
        let mut line = conn.line().await;
        let (id, ask) = line.call().await;
        let poll = as_poll(&ask);
        assert_eq!((poll.shard, poll.max_records, poll.wait_ms), (2, 32, 100));
        line.reply(id, polled([7, 8])).await;
        let (id, Ask::GroupAck(ack)) = line.call().await else {
            panic!()
        };
        let claims: Vec<_> = ack.claims.iter().collect();
        assert_eq!(claims.len(), 2);
        let stale = Unsettled {
            offset: 8,
            attempts: 1,
            code: Code::StaleClaim.number(),
        };
        line.reply(id, Reply::GroupAck(settled(vec![stale]))).await;
        line
    };
    let work = async {
        let wait = Duration::from_millis(100);
        let options = PollOptions {
            wait,
            ..PollOptions::default()
        };
        let records = group.poll(2, &options).await.unwrap();
        let claims: Vec<Claim> = records
            .iter()
            .map(|record| Claim {
                offset: record.offset,
                attempts: record.attempts,
            })
            .collect();
        (records, group.ack(2, &claims, None).await.unwrap())
    };
    let ((records, unsettled), _line) = tokio::join!(work, serve);
    assert_eq!(records[0].key.as_deref(), Some(b"k".as_slice()));
    assert_eq!(unsettled[0].claim.offset, 8);
    assert_eq!(unsettled[0].code, "stale_claim");
}

#[tokio::test]
async fn a_worker_polls_its_shards_and_settles_what_gathered_in_one_request() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let serve = async {
        let now = assigned(1, &[0]);
        let mut line = conn.line().await;
        joined(&mut line, &now).await;
        let mut polls = 0;
        loop {
            match beyond_heartbeats(&mut line, &now).await {
                (id, Ask::GroupPoll(poll)) => {
                    assert_eq!(poll.reclaim, polls == 0);
                    polls += 1;
                    let offsets = if polls == 1 { 0..20 } else { 0..0 };
                    line.reply(id, polled(offsets)).await;
                }
                (id, Ask::GroupAck(ack)) => {
                    tell.send(ack.claims.len()).unwrap();
                    line.reply(id, Reply::GroupAck(settled(Vec::new()))).await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let mut consumer = options(&client).await.unwrap();
        let mut acks = Vec::new();
        for offset in 0..20 {
            let record = consumer.next().await.unwrap().unwrap();
            assert_eq!(record.offset, offset);
            acks.push(record.ack());
        }
        for ack in acks {
            ack.await.unwrap();
        }
        consumer
    };
    tokio::select! {
        never = serve => never,
        _consumer = work => {}
    }
    let mut batches = Vec::new();
    while let Ok(batch) = told.try_recv() {
        batches.push(batch);
    }
    assert_eq!(batches.iter().sum::<usize>(), 20);
    assert!(batches.len() < 20, "{batches:?}");
}

#[tokio::test]
async fn every_end_of_a_poll_leads_to_the_next_one() {
    let broker = FakeBroker::start();
    let builder = broker.builder().request_timeout(Duration::from_millis(100));
    let (client, conn, _pipe) = broker.calling(builder).await;
    let serve = async {
        let now = assigned(1, &[3]);
        let mut line = conn.line().await;
        joined(&mut line, &now).await;
        // Nothing, a refusal that says to try again, one that does not, and no answer at all.
        let (id, _) = beyond_heartbeats(&mut line, &now).await;
        line.reply(id, polled([])).await;
        let (id, _) = beyond_heartbeats(&mut line, &now).await;
        line.refuse(id, Failure::new(Code::ShardUnavailable, "moving"))
            .await;
        let (id, _) = beyond_heartbeats(&mut line, &now).await;
        line.refuse(id, Failure::new(Code::Forbidden, "no")).await;
        beyond_heartbeats(&mut line, &now).await;
        let (id, ask) = beyond_heartbeats(&mut line, &now).await;
        assert_eq!(as_poll(&ask).shard, 3);
        line.reply(id, polled([5])).await;
        let (_, ask) = beyond_heartbeats(&mut line, &now).await;
        as_poll(&ask);
        line
    };
    let work = async {
        let mut consumer = options(&client).await.unwrap();
        let failed = consumer.next().await.unwrap_err();
        assert_eq!(failed.code(), "forbidden");
        let record = consumer.next().await.unwrap().unwrap();
        (record.offset, consumer)
    };
    let ((offset, _consumer), _line) = tokio::join!(work, serve);
    assert_eq!(offset, 5);
}

#[tokio::test]
async fn a_shard_is_given_back_only_when_what_came_of_it_is_settled() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let (settle, mut may_settle) = mpsc::unbounded_channel::<()>();
    let serve = async {
        let mut line = conn.line().await;
        let mut now = assigned(1, &[0, 1]);
        joined(&mut line, &now).await;
        let (mut handed, mut revoked, mut acked) = (false, 0, false);
        loop {
            match line.call().await {
                (id, Ask::GroupPoll(poll)) => {
                    let first = poll.shard == 1 && !handed;
                    handed |= first;
                    line.reply(id, polled(first.then_some(9))).await;
                    if first {
                        now = assigned(2, &[0]);
                    }
                }
                (id, Ask::GroupAck(_)) => {
                    acked = true;
                    line.reply(id, Reply::GroupAck(settled(Vec::new()))).await;
                }
                (id, Ask::MemberHeartbeat(beat)) => {
                    let held: BTreeSet<u32> = beat.held.iter().collect();
                    line.reply(id, Reply::MemberHeartbeat(now.clone())).await;
                    if beat.generation == 2 && held.contains(&1) {
                        assert!(!acked);
                        revoked += 1;
                        if revoked == 3 {
                            settle.send(()).unwrap();
                        }
                    }
                    if beat.generation == 2 && !held.contains(&1) {
                        assert!(acked && revoked >= 3);
                        return line;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let mut consumer = options(&client).await.unwrap();
        let record = consumer.next().await.unwrap().unwrap();
        assert_eq!((record.shard, record.offset), (1, 9));
        may_settle.recv().await.unwrap();
        record.ack().await.unwrap();
        consumer
    };
    let (_consumer, _line) = tokio::join!(work, serve);
}

#[tokio::test]
async fn a_worker_that_was_forgotten_joins_again_with_what_it_holds() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let serve = async {
        let now = assigned(1, &[2]);
        let mut line = conn.line().await;
        joined(&mut line, &now).await;
        loop {
            match line.call().await {
                (id, Ask::MemberHeartbeat(_)) => {
                    let unknown = Failure::new(Code::StaleClaim, "who?");
                    line.refuse(id, unknown.with_reason("unknown_member")).await;
                }
                (id, Ask::GroupPoll(_)) => line.reply(id, polled([])).await,
                (_, Ask::MemberJoin(join)) => return join.held.iter().collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        }
    };
    let (consumer, held) = tokio::join!(options(&client), serve);
    drop(consumer.unwrap());
    assert_eq!(held, [2]);
}

#[tokio::test]
async fn a_worker_that_is_not_heard_stops_when_its_session_has_passed() {
    let broker = FakeBroker::start();
    let builder = broker.builder().request_timeout(Duration::from_millis(100));
    // It may wait for long before it says again that it is alive, but not with shards in its hands.
    let policy = ReconnectPolicy::default().first(Duration::from_millis(5));
    let builder = builder.reconnect(policy.longest(Duration::from_secs(600)));
    let (client, conn, _pipe) = broker.calling(builder).await;
    let serve = async {
        let mut line = conn.line().await;
        joined(&mut line, &assigned(1, &[2])).await;
        loop {
            match line.call().await {
                // Not answered, until nothing is held any more.
                (_, Ask::MemberHeartbeat(beat)) if beat.held.is_empty() => return,
                (_, Ask::MemberHeartbeat(_)) => {}
                (id, Ask::GroupPoll(_)) => line.reply(id, polled([])).await,
                other => panic!("{other:?}"),
            }
        }
    };
    let options = options(&client).session(Duration::from_millis(200));
    let (consumer, ()) = tokio::join!(options, serve);
    drop(consumer.unwrap());
}

#[tokio::test]
async fn a_worker_that_closes_gives_back_what_it_did_not_hand_out_and_leaves() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let serve = async {
        let now = assigned(1, &[0]);
        let mut line = conn.line().await;
        joined(&mut line, &now).await;
        let mut polls = 0;
        let mut back = Vec::new();
        loop {
            match beyond_heartbeats(&mut line, &now).await {
                (id, Ask::GroupPoll(_)) => {
                    polls += 1;
                    line.reply(id, polled(if polls == 1 { 0..3 } else { 0..0 }))
                        .await;
                }
                (id, Ask::GroupNack(nack)) => {
                    back.extend(nack.claims.iter().map(|claim| claim.offset));
                    line.reply(id, Reply::GroupNack(settled(Vec::new()))).await;
                }
                (id, Ask::GroupAck(_)) => {
                    line.reply(id, Reply::GroupAck(settled(Vec::new()))).await;
                }
                (id, Ask::MemberLeave(_)) => {
                    line.reply(id, Reply::MemberLeave(MemberLeft { existed: true }))
                        .await;
                    return back;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let mut consumer = options(&client).await.unwrap();
        let record = consumer.next().await.unwrap().unwrap();
        record.ack().await.unwrap();
        consumer.close().await;
    };
    let ((), back) = tokio::join!(work, serve);
    assert_eq!(back, [1, 2]);
}

#[tokio::test]
async fn without_calls_a_worker_polls_every_shard_in_the_published_messages() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.client().await;
    let serve = async {
        loop {
            let (asked, mut stream) = conn.asked().await;
            match asked {
                Message::StreamShards(ask) => {
                    let request_id = ask.request_id;
                    stream
                        .say(message::StreamShardsView {
                            shards: 2,
                            request_id,
                            routing: None,
                        })
                        .await;
                }
                Message::GroupPoll(poll) => {
                    let request_id = poll.request_id;
                    let records = (poll.shard == 1 && poll.reclaim).then(|| message::GroupRecord {
                        offset: 4,
                        payload: "p".into(),
                        attempts: 2,
                        skipped_before: None,
                        publisher: None,
                        timestamp_micros: Some(5_000),
                    });
                    let records = records.into_iter().collect();
                    stream
                        .say(message::GroupRecords {
                            records,
                            request_id,
                        })
                        .await;
                }
                Message::GroupAck(ack) => {
                    assert_eq!((ack.shard, ack.offset), (1, 4));
                    let request_id = ack.request_id;
                    stream.say(message::CacheOk { request_id }).await;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let mut consumer = options(&client).await.unwrap();
        let record = consumer.next().await.unwrap().unwrap();
        assert_eq!(
            (record.shard, record.attempts, record.timestamp_ms),
            (1, 2, 5)
        );
        record.ack().await.unwrap();
    };
    tokio::select! {
        () = serve => {}
        () = work => {}
    }
}
