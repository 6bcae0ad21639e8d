//! Members of a group: each is given shards of the stream, and no record is passed over when they come and go.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use felix_e2e::Home;
use felix_e2e::raw::{Stream, Target, Wire};
use felix_wire::error::Code;
use felix_wire::extension::Answer;
use felix_wire::extension::requests::{
    Claim, GroupAck, GroupPoll, List, MemberHeartbeat, MemberJoin, MemberLeave, Reply,
};

/// Sessions in these tests have two seconds; what has not happened after this long does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn stream(home: &Home, name: &str, shards: u32) {
    let shards = shards.to_string();
    home.ok(&["stream", "create", name, "--shards", &shards])
        .await
        .unwrap();
}

fn member_join(member: &str, held: &[u32]) -> MemberJoin {
    MemberJoin {
        group: "workers".into(),
        member: member.into(),
        session_ms: 2_000,
        held: List::build(held.iter().copied()).unwrap(),
    }
}

fn member_beat(member: &str, generation: u64, held: &[u32]) -> MemberHeartbeat {
    MemberHeartbeat {
        group: "workers".into(),
        member: member.into(),
        generation,
        held: List::build(held.iter().copied()).unwrap(),
    }
}

fn assigned(answer: Answer) -> (u64, Vec<u32>) {
    match answer {
        Answer::Reply(Reply::MemberJoin(it) | Reply::MemberHeartbeat(it)) => {
            (it.generation, it.assigned.iter().collect())
        }
        other => panic!("{other:?}"),
    }
}

/// Beats until a member has as many shards as it should, giving back what it is not assigned.
async fn beats(asks: &mut Stream, member: &str, held: &mut (u64, Vec<u32>), until: usize) {
    let beating = async {
        loop {
            let beat = member_beat(member, held.0, &held.1);
            *held = assigned(asks.call("jobs", beat).await.unwrap());
            if held.1.len() == until {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, beating).await;
    assert!(in_time.is_ok(), "{member} has {held:?}, not {until}");
}

#[tokio::test]
async fn members_share_the_shards_and_whose_holder_dies_goes_to_the_others() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "jobs", 4).await;
    let (first, second) = (
        Wire::connect(node.ready()).await.unwrap(),
        Wire::connect(node.ready()).await.unwrap(),
    );
    let mut a = first.authenticated().await.unwrap();
    let mut b = second.authenticated().await.unwrap();
    let mut has_a = assigned(a.call("jobs", member_join("a", &[])).await.unwrap());
    beats(&mut a, "a", &mut has_a, 4).await;
    let mut has_b = assigned(b.call("jobs", member_join("b", &[])).await.unwrap());
    assert_eq!(has_b.1, [0_u32; 0]);
    beats(&mut a, "a", &mut has_a, 2).await;
    beats(&mut a, "a", &mut has_a, 2).await;
    beats(&mut b, "b", &mut has_b, 2).await;
    let mut all = [has_a.1.clone(), has_b.1.clone()].concat();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    // One goes silently; its session is over in two seconds.
    second.close().await;
    beats(&mut a, "a", &mut has_a, 4).await;
    // The broker forgets everybody; members say what they hold, and keep it.
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut a = wire.authenticated().await.unwrap();
    match a
        .call("jobs", member_beat("a", has_a.0, &has_a.1))
        .await
        .unwrap()
    {
        Answer::Refused(refused) => {
            assert_eq!(refused.failure.code(), Some(Code::StaleClaim));
            assert_eq!(refused.failure.reason(), Some("unknown_member"));
        }
        other => panic!("{other:?}"),
    }
    let again = assigned(a.call("jobs", member_join("a", &has_a.1)).await.unwrap());
    assert_eq!(again.1, [0, 1, 2, 3]);
    let leave = MemberLeave {
        group: "workers".into(),
        member: "a".into(),
    };
    let left = a.call("jobs", leave.clone()).await.unwrap();
    assert!(matches!(left, Answer::Reply(Reply::MemberLeave(left)) if left.existed));
    let left = a.call("jobs", leave).await.unwrap();
    assert!(matches!(left, Answer::Reply(Reply::MemberLeave(left)) if !left.existed));
    node.stop().await.unwrap();
}

/// Polls each shard a member has once, and acknowledges what came.
async fn work(asks: &mut Stream, shards: &[u32], done: &mut BTreeSet<String>) {
    for &shard in shards {
        let poll = GroupPoll {
            shard,
            group: "workers".into(),
            max_records: 7,
            max_bytes: 0,
            wait_ms: 0,
            visibility_ms: 60_000,
            consumer: None,
            reclaim: false,
        };
        let records = match asks.call("jobs", poll).await.unwrap() {
            Answer::Reply(Reply::GroupPoll(polled)) => polled.records,
            other => panic!("{other:?}"),
        };
        let claims = records.iter().map(|record| Claim {
            offset: record.offset,
            attempts: record.attempts,
        });
        let ack = GroupAck {
            shard,
            group: "workers".into(),
            claims: List::build(claims).unwrap(),
            consumer: None,
        };
        match asks.call("jobs", ack).await.unwrap() {
            Answer::Reply(Reply::GroupAck(settled)) => assert!(settled.unsettled.is_empty()),
            other => panic!("{other:?}"),
        }
        for record in records.iter() {
            let payload = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            assert!(done.insert(payload), "acknowledged, and handed out again");
        }
    }
}

#[tokio::test]
async fn a_worker_that_joins_and_leaves_twenty_times_makes_nobody_pass_over_a_record() {
    let home = home();
    let node = home.start().await.unwrap();
    stream(&home, "jobs", 2).await;
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut publishes = wire.authenticated().await.unwrap();
    let mut a = wire.authenticated().await.unwrap();
    let mut has_a = assigned(a.call("jobs", member_join("a", &[])).await.unwrap());
    beats(&mut a, "a", &mut has_a, 2).await;
    let mut done = BTreeSet::new();
    let mut sent: u64 = 0;
    for _ in 0..20 {
        for _ in 0..10 {
            let (key, payload) = (format!("key-{sent}"), sent.to_string());
            let to = Target {
                stream: "jobs",
                request_id: sent + 1,
                key: Some(key.as_bytes()),
                producer: None,
            };
            publishes.publish(&to, &[payload.as_bytes()]).await.unwrap();
            sent += 1;
        }
        let other = Wire::connect(node.ready()).await.unwrap();
        let mut b = other.authenticated().await.unwrap();
        let mut has_b = assigned(b.call("jobs", member_join("b", &[])).await.unwrap());
        work(&mut a, &has_a.1, &mut done).await;
        // What it is no longer assigned it has finished: it says so and goes on.
        beats(&mut a, "a", &mut has_a, 1).await;
        beats(&mut a, "a", &mut has_a, 1).await;
        beats(&mut b, "b", &mut has_b, 1).await;
        assert_ne!(has_a.1, has_b.1);
        work(&mut b, &has_b.1, &mut done).await;
        let leave = MemberLeave {
            group: "workers".into(),
            member: "b".into(),
        };
        b.call("jobs", leave).await.unwrap();
        beats(&mut a, "a", &mut has_a, 2).await;
    }
    for _ in 0..sent {
        work(&mut a, &has_a.1, &mut done).await;
    }
    let expected: BTreeSet<String> = (0..sent).map(|number| number.to_string()).collect();
    assert_eq!(done, expected);
    node.stop().await.unwrap();
}
