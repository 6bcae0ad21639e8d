//! What becomes of claims when a consumer ends, and of calls when an answer is lost.

use std::time::Duration;

use felix_client::{Claim, Group, PollOptions, Retry, Start};
use felix_wire::error::Code;
use felix_wire::extension::requests::{
    self as wire, Ask, LettersMoved, List, MemberLeft, Reply, Unsettled,
};
use tokio::sync::mpsc;

use super::fake::{FakeBroker, FakeConn, FakeStream};
use super::groups::{assigned, beyond_heartbeats, joined, options, polled, settled};

#[tokio::test]
async fn a_claim_that_lapsed_before_its_consumer_ended_is_refused_at_once() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let serve = async {
        let now = assigned(1, &[0]);
        let mut line = conn.line().await;
        joined(&mut line, &now).await;
        let mut handed = false;
        loop {
            match beyond_heartbeats(&mut line, &now).await {
                (id, Ask::GroupPoll(_)) => {
                    let first = !std::mem::replace(&mut handed, true);
                    line.reply(id, polled(first.then_some(9))).await;
                }
                (id, Ask::MemberLeave(_)) => {
                    let left = MemberLeft { existed: true };
                    line.reply(id, Reply::MemberLeave(left)).await;
                    return line;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let options = options(&client).visibility(Duration::from_millis(300));
        let mut consumer = options.await.unwrap();
        let record = consumer.next().await.unwrap().unwrap();
        consumer.close().await;
        assert!(record.has_lapsed());
        record.ack().await.unwrap_err()
    };
    let (failed, _line) = tokio::join!(work, serve);
    assert_eq!(failed.code(), "stale_claim");
}

#[tokio::test]
async fn a_shard_that_was_revoked_is_held_for_as_long_as_a_claim_was_prolonged() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let (settle, mut may_settle) = mpsc::unbounded_channel::<()>();
    let serve = async {
        let mut line = conn.line().await;
        let mut now = assigned(1, &[0]);
        joined(&mut line, &now).await;
        let (mut handed, mut revoked) = (false, 0);
        loop {
            match line.call().await {
                (id, Ask::GroupPoll(_)) => {
                    let first = !std::mem::replace(&mut handed, true);
                    line.reply(id, polled(first.then_some(9))).await;
                }
                (id, Ask::GroupExtend(extend)) => {
                    let (visible_ms, unsettled) = (extend.extend_ms, List::default());
                    let extended = wire::GroupExtended {
                        visible_ms,
                        unsettled,
                    };
                    line.reply(id, Reply::GroupExtend(extended)).await;
                    now = assigned(2, &[]);
                }
                (id, Ask::MemberHeartbeat(beat)) => {
                    line.reply(id, Reply::MemberHeartbeat(now.clone())).await;
                    if beat.generation == 2 {
                        assert_eq!(beat.held.len(), 1);
                        revoked += 1;
                        // Heartbeats are 50 ms apart, so the claim of the poll has lapsed.
                        if revoked == 10 {
                            settle.send(()).unwrap();
                        }
                    }
                }
                (id, Ask::GroupAck(_)) => {
                    line.reply(id, Reply::GroupAck(settled(Vec::new()))).await;
                    return line;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let work = async {
        let options = options(&client).visibility(Duration::from_millis(400));
        let mut consumer = options.await.unwrap();
        let mut record = consumer.next().await.unwrap().unwrap();
        record.extend(Duration::from_secs(60)).await.unwrap();
        may_settle.recv().await.unwrap();
        record.ack().await.unwrap();
        consumer
    };
    let (_consumer, _line) = tokio::join!(work, serve);
}

/// Takes a call, loses its answer, and gives the call that comes next.
async fn lost_and_next(conn: &FakeConn) -> (Ask, FakeStream, u64, Ask) {
    let mut line = conn.line().await;
    let (_, first) = line.call().await;
    line.finish();
    let mut line = conn.line().await;
    let (id, next) = line.call().await;
    (first, line, id, next)
}

fn group(client: &felix_client::Client) -> Group {
    client.group("orders", "billing").unwrap()
}

#[tokio::test]
async fn what_would_do_another_thing_the_second_time_is_sent_once() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let group = group(&client);
    let work = async {
        let failures = [
            group.seek(0, Start::Latest).await.unwrap_err(),
            group.seek(0, Start::Offset(3)).await.unwrap_err(),
            group.delete(0).await.unwrap_err(),
            group.redrive(0, None).await.unwrap_err(),
            group.discard(0, None).await.unwrap_err(),
        ];
        for failed in failures {
            assert_eq!(failed.code(), "unanswered");
            assert_eq!(failed.retry(), Retry::OutcomeUnknown);
        }
    };
    let mut calls = Vec::new();
    let serve = async {
        loop {
            let mut line = conn.line().await;
            calls.push(line.call().await.1);
            line.finish();
        }
    };
    tokio::select! {
        () = work => {}
        () = serve => {}
    }
    assert_eq!(calls.len(), 5, "{calls:?}");
}

#[tokio::test]
async fn named_dead_letters_are_moved_in_the_end() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let group = group(&client);
    let serve = async {
        let (first, mut line, id, next) = lost_and_next(&conn).await;
        assert_eq!(first, next);
        let missing = List::default();
        let moved = LettersMoved { count: 1, missing };
        line.reply(id, Reply::GroupRedrive(moved)).await;
        line
    };
    let (moved, _line) = tokio::join!(group.redrive(0, Some(&[4])), serve);
    assert_eq!(moved.unwrap().count, 1);
}

#[tokio::test]
async fn a_record_that_a_lost_answer_set_aside_is_set_aside() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let group = group(&client);
    let serve = async {
        let (_, mut line, id, _) = lost_and_next(&conn).await;
        let refused = [(4, Code::InvalidRequest), (5, Code::StaleClaim)];
        let refused = refused.map(|(offset, code)| Unsettled {
            offset,
            attempts: 1,
            code: code.number(),
        });
        let reply = Reply::GroupSetAside(settled(refused.to_vec()));
        line.reply(id, reply).await;
        line
    };
    let claims = [4, 5].map(|offset| Claim {
        offset,
        attempts: 1,
    });
    let (unsettled, _line) = tokio::join!(group.set_aside(0, &claims, "bad", None), serve);
    let unsettled = unsettled.unwrap();
    assert_eq!(unsettled.len(), 1);
    assert_eq!(unsettled[0].claim.offset, 5);
}

#[tokio::test]
async fn a_poll_that_is_sent_again_waits_only_for_what_is_left() {
    let broker = FakeBroker::start();
    let (client, conn, _pipe) = broker.calling(broker.builder()).await;
    let group = group(&client);
    let serve = async {
        let (first, mut line, id, next) = lost_and_next(&conn).await;
        line.reply(id, polled([])).await;
        let (Ask::GroupPoll(first), Ask::GroupPoll(next)) = (first, next) else {
            panic!("not polls")
        };
        (first.wait_ms, next.wait_ms, line)
    };
    let options = PollOptions {
        wait: Duration::from_secs(60),
        ..PollOptions::default()
    };
    let (polled, (first, next, _line)) = tokio::join!(group.poll(0, &options), serve);
    polled.unwrap();
    assert_eq!(first, 60_000);
    assert!(next < first, "{next}");
}
