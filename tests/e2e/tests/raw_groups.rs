//! Groups of the Kafka protocol through the Rust client, against a real broker.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use bytes::Bytes;
use felix_client::Client;
use felix_client::raw::{
    ConsumerDescribe, ConsumerHeartbeat, KafkaCommit, KafkaDelete, KafkaDescribe, KafkaHeartbeat,
    KafkaJoin, KafkaJoined, KafkaLeave, KafkaList, KafkaOffsets, KafkaSync, Leaving, List,
    OffsetOf, OffsetsOf, Protocol, Raw, RawError, ShardsOf, Share, StreamName,
};
use felix_e2e::{Home, Node};
use serde_json::json;

/// How long a call may wait for other members, beyond its usual time.
const WAIT: Duration = Duration::from_secs(30);

async fn started() -> (Home, Node, Client) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    home.ok(&["stream", "create", "topic", "--shards", "4"])
        .await
        .unwrap();
    (home, node, client)
}

fn joining(member: &str) -> KafkaJoin {
    KafkaJoin {
        group: "g".into(),
        session_ms: 10_000,
        rebalance_ms: 20_000,
        member: member.into(),
        instance: None,
        protocol_type: "consumer".into(),
        protocols: List::build([Protocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"\0\0\0\0\0\x01\0\x05topic"),
        }])
        .unwrap(),
        client: "test".into(),
        host: "/127.0.0.1".into(),
        id_first: true,
        reads_skip: false,
    }
}

/// Joins as a member of today does: it is told its id first.
async fn joined(raw: &Raw) -> KafkaJoined {
    let told = raw.group(joining(""), WAIT).await.unwrap();
    assert_eq!(told.error, RawError::MemberIdRequired.number());
    let joined = raw
        .group(joining(told.member.as_str()), WAIT)
        .await
        .unwrap();
    assert_eq!(joined.error, 0);
    joined
}

async fn synced(raw: &Raw, joined: &KafkaJoined) -> Bytes {
    let shares = joined.members.iter().map(|member| Share {
        assignment: Bytes::from(format!("for {}", member.member)),
        member: member.member,
    });
    let sync = KafkaSync {
        group: "g".into(),
        generation: joined.generation,
        member: joined.member.clone(),
        instance: None,
        protocol_type: joined.protocol_type.clone(),
        protocol: joined.protocol.clone(),
        shares: List::build(shares).unwrap(),
    };
    let synced = raw.group(sync, WAIT).await.unwrap();
    assert_eq!(synced.error, 0);
    synced.assignment
}

fn committing(member: &str, generation: i64, offset: u64) -> KafkaCommit {
    KafkaCommit {
        group: "g".into(),
        generation,
        member: member.into(),
        instance: None,
        streams: List::build([OffsetsOf {
            namespace: "default".into(),
            stream: "topic".into(),
            shards: List::build([OffsetOf {
                shard: 1,
                offset,
                generation: 0,
                metadata: Some("here".into()),
            }])
            .unwrap(),
        }])
        .unwrap(),
    }
}

async fn commit(raw: &Raw, member: &str, generation: i64, offset: u64) -> Option<RawError> {
    let commit = committing(member, generation, offset);
    let committed = raw.group(commit, Duration::ZERO).await.unwrap();
    assert_eq!(committed.error, 0);
    RawError::from_number(committed.errors.iter().next().unwrap())
}

/// Offset and metadata of the shards that were asked for, or of every one.
async fn positions(raw: &Raw, named: bool) -> Vec<(u32, i64, String)> {
    let of = ShardsOf {
        namespace: "default".into(),
        stream: "topic".into(),
        shards: List::build([0, 1]).unwrap(),
    };
    let ask = KafkaOffsets {
        group: "g".into(),
        streams: named.then(|| List::build([of]).unwrap()),
        member: None,
        epoch: -1,
        stable: false,
    };
    let found = raw.group(ask, Duration::ZERO).await.unwrap();
    assert_eq!(found.error, 0);
    let streams = found.streams.iter();
    let shards = streams.flat_map(|stream| stream.shards.iter().collect::<Vec<_>>());
    shards
        .map(|it| (it.shard, it.offset, it.metadata.to_string()))
        .collect()
}

#[tokio::test]
async fn members_share_out_among_themselves_and_what_is_stale_is_fenced() {
    let (_home, _node, client) = started().await;
    let raw = client.raw();
    let first = joined(&raw).await;
    assert_eq!((first.generation, first.members.len()), (1, 1));
    let share = synced(&raw, &first).await;
    assert_eq!(share, format!("for {}", first.member));
    assert_eq!(commit(&raw, first.member.as_str(), 1, 5).await, None);
    // A second member makes the first join again.
    let second = tokio::spawn({
        let raw = client.raw();
        async move { joined(&raw).await }
    });
    let beat = |generation| KafkaHeartbeat {
        group: "g".into(),
        generation,
        member: first.member.clone(),
        instance: None,
    };
    loop {
        let beaten = raw.group(beat(1), Duration::ZERO).await.unwrap();
        if beaten.error != 0 {
            assert_eq!(beaten.error, RawError::RebalanceInProgress.number());
            break;
        }
        tokio::task::yield_now().await;
    }
    // What it has done it commits before it gives anything up.
    assert_eq!(commit(&raw, first.member.as_str(), 1, 6).await, None);
    let again = raw.group(joining(first.member.as_str()), WAIT);
    let again = again.await.unwrap();
    let second = second.await.unwrap();
    assert_eq!((again.generation, second.generation), (2, 2));
    assert_eq!(again.leader, first.member);
    assert_eq!((again.members.len(), second.members.len()), (2, 0));
    let follower = tokio::spawn({
        let (raw, second) = (client.raw(), second.clone());
        async move { synced(&raw, &second).await }
    });
    synced(&raw, &again).await;
    assert_eq!(follower.await.unwrap(), format!("for {}", second.member));
    let stale = commit(&raw, first.member.as_str(), 1, 9).await;
    assert_eq!(stale, Some(RawError::IllegalGeneration));
    let stranger = commit(&raw, "stranger", 2, 9).await;
    assert_eq!(stranger, Some(RawError::UnknownMemberId));
    assert_eq!(positions(&raw, true).await[1].1, 6);
    let describe = KafkaDescribe {
        groups: List::build(["g".into(), "none".into()]).unwrap(),
    };
    let described = raw.group(describe, Duration::ZERO).await.unwrap();
    let described: Vec<_> = described.groups.iter().collect();
    assert_eq!(described[0].state.as_str(), "Stable");
    let members: Vec<_> = described[0].members.iter().collect();
    assert_eq!((members.len(), members[0].client.as_str()), (2, "test"));
    assert_eq!(described[1].error, RawError::GroupIdNotFound.number());
    let delete = KafkaDelete {
        groups: List::build(["g".into()]).unwrap(),
    };
    let deleted = raw.group(delete.clone(), Duration::ZERO).await.unwrap();
    let error = deleted.errors.iter().next();
    assert_eq!(error, Some(RawError::NonEmptyGroup.number()));
    let leave = KafkaLeave {
        group: "g".into(),
        members: List::build([first.member, second.member].map(|member| Leaving {
            member,
            instance: None,
        }))
        .unwrap(),
    };
    let left = raw.group(leave, Duration::ZERO).await.unwrap();
    assert!(left.members.iter().all(|member| member.error == 0));
    let deleted = raw.group(delete, Duration::ZERO).await.unwrap();
    assert_eq!(deleted.errors.iter().next(), Some(0));
    assert!(positions(&raw, false).await.is_empty());
}

#[tokio::test]
async fn a_position_that_was_answered_is_there_after_a_kill() {
    let (home, node, client) = started().await;
    let raw = client.raw();
    assert_eq!(commit(&raw, "", -1, 41).await, None);
    assert_eq!(commit(&raw, "", -1, 42).await, None);
    let before = positions(&raw, true).await;
    assert_eq!(before, [(0, -1, String::new()), (1, 42, "here".to_owned())]);
    client.close().await;
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let raw = client.raw();
    assert_eq!(positions(&raw, true).await, before);
    assert_eq!(positions(&raw, false).await, before[1..]);
    let list = KafkaList {
        states: List::default(),
        types: List::default(),
    };
    let listed = raw.group(list, Duration::ZERO).await.unwrap().groups;
    let listed: Vec<_> = listed.iter().map(|it| it.group.to_string()).collect();
    assert_eq!(listed, ["g"]);
    // The stream it is in is nobody's: neither its name nor its place can be asked for.
    assert!(client.publish("_groups", "x").await.is_err());
    assert!(client.in_namespace("_system").is_err());
}

fn beating(member: &str, epoch: i64) -> ConsumerHeartbeat {
    let joins = epoch == 0;
    let topic = StreamName {
        namespace: "default".into(),
        stream: "topic".into(),
    };
    ConsumerHeartbeat {
        group: "modern".into(),
        member: member.into(),
        epoch,
        instance: None,
        rack: None,
        rebalance_ms: joins.then_some(20_000),
        streams: joins.then(|| List::build([topic]).unwrap()),
        assignor: None,
        held: joins.then(List::default),
        client: "test".into(),
        host: "/127.0.0.1".into(),
    }
}

#[tokio::test]
async fn the_broker_shares_out_where_members_leave_it_to_it() {
    let (_home, _node, client) = started().await;
    let raw = client.raw();
    let beat = async |beat: ConsumerHeartbeat| raw.group(beat, Duration::ZERO).await.unwrap();
    let one = beat(beating("one", 0)).await;
    let shards = |held: &felix_client::raw::ConsumerHeld| {
        let topics = held.assigned.clone().unwrap_or_default();
        let shards = topics
            .iter()
            .flat_map(|it| it.shards.iter().collect::<Vec<_>>());
        shards.collect::<Vec<_>>()
    };
    assert_eq!((one.error, shards(&one)), (0, vec![0, 1, 2, 3]));
    let two = beat(beating("two", 0)).await;
    assert!(shards(&two).is_empty());
    let less = beat(beating("one", one.epoch)).await;
    assert_eq!(shards(&less).len(), 2);
    // Until it says that it gave the others back, nobody gets them.
    assert!(shards(&beat(beating("two", two.epoch)).await).is_empty());
    let mut given_back = beating("one", less.epoch);
    given_back.held = less.assigned.clone();
    let moved = beat(given_back).await;
    assert!(moved.epoch > one.epoch);
    assert_eq!(shards(&beat(beating("two", two.epoch)).await).len(), 2);
    let fenced = beat(beating("one", 99)).await;
    assert_eq!(fenced.error, RawError::FencedMemberEpoch.number());
    let describe = ConsumerDescribe {
        groups: List::build(["modern".into()]).unwrap(),
    };
    let described = raw.group(describe, Duration::ZERO).await.unwrap();
    let group = described.groups.iter().next().unwrap();
    assert_eq!((group.error, group.members.len()), (0, 2));
    assert_eq!(
        (group.state.as_str(), group.assignor.as_str()),
        ("Stable", "uniform")
    );
}

#[tokio::test]
async fn a_member_that_would_take_much_room_is_refused_and_is_no_member() {
    let (_home, _node, client) = started().await;
    let raw = client.raw();
    let beat = async |beat: ConsumerHeartbeat| raw.group(beat, Duration::ZERO).await.unwrap();
    let long = "x".repeat(256);
    let mut wide = beating("wide", 0);
    let names = (0..1_001).map(|number| StreamName {
        namespace: "default".into(),
        stream: format!("s{number}").as_str().into(),
    });
    wide.streams = Some(List::build(names).unwrap());
    let mut named = beating("named", 0);
    named.instance = Some(long.as_str().into());
    let mut placed = beating("placed", 0);
    placed.rack = Some(long.as_str().into());
    for ask in [wide, named, placed, beating(&long, 0)] {
        assert_eq!(beat(ask).await.error, RawError::InvalidRequest.number());
    }
    let mut one = beating("one", 0);
    one.client = long.as_str().into();
    assert_eq!(beat(one).await.error, 0);
    let describe = ConsumerDescribe {
        groups: List::build(["modern".into()]).unwrap(),
    };
    let described = raw.group(describe, Duration::ZERO).await.unwrap();
    let group = described.groups.iter().next().unwrap();
    let clients: Vec<_> = group
        .members
        .iter()
        .map(|it| it.client.as_str().len())
        .collect();
    assert_eq!(clients, [255]);
}

#[tokio::test]
async fn nobody_deletes_positions_in_a_stream_that_is_not_his() {
    let (home, node, client) = started().await;
    home.ok(&["stream", "create", "other"]).await.unwrap();
    let raw = client.raw();
    assert_eq!(commit(&raw, "", -1, 7).await, None);
    let spec = json!({"permissions": ["stream.manage:stream:dev/default/other"]});
    let token = node.token(&home, spec).await.unwrap();
    let stranger = node.client_with(&token).await.unwrap();
    let delete = KafkaDelete {
        groups: List::build(["g".into()]).unwrap(),
    };
    for (who, error) in [
        (&stranger, RawError::GroupAuthorizationFailed.number()),
        (&client, 0),
    ] {
        assert_eq!(positions(&raw, true).await[1].1, 7);
        let deleted = who.raw().group(delete.clone(), Duration::ZERO).await;
        let errors: Vec<_> = deleted.unwrap().errors.iter().collect();
        assert_eq!(errors, [error]);
    }
    assert_eq!(positions(&raw, true).await[1].1, -1);
}

#[tokio::test]
async fn members_of_the_consumer_protocol_keep_what_they_have_through_a_kill() {
    let (home, node, client) = started().await;
    let raw = client.raw();
    let beat = async |raw: &Raw, beat| raw.group(beat, Duration::ZERO).await.unwrap();
    let one = beat(&raw, beating("one", 0)).await;
    let two = beat(&raw, beating("two", 0)).await;
    let less = beat(&raw, beating("one", one.epoch)).await;
    let mut given_back = beating("one", less.epoch);
    given_back.held = less.assigned.clone();
    let one = beat(&raw, given_back).await;
    let two = beat(&raw, beating("two", two.epoch)).await;
    let held = two.assigned.unwrap();
    assert_eq!(held.iter().next().unwrap().shards.len(), 2);
    client.close().await;
    node.kill().await.unwrap();

    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let raw = client.raw();
    // The first that is heard is a new one: it gets nothing of those that are not heard yet.
    let three = beat(&raw, beating("three", 0)).await;
    assert_eq!((three.error, three.assigned.unwrap().len()), (0, 0));
    assert!(three.epoch > two.epoch);
    for (member, epoch) in [("one", one.epoch), ("two", two.epoch)] {
        assert_eq!(
            beat(&raw, beating(member, epoch)).await.error,
            0,
            "{member}"
        );
    }
}
