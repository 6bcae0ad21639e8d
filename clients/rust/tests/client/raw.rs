//! Appends of batches as they are: where they go when a broker names another.

use bytes::Bytes;
use felix_client::raw::{Appending, RawAppend, RawAppended, RawStream};
use felix_client::{CallFailed, Client};
use felix_wire::Owner;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Refused;
use felix_wire::extension::requests::{Ask, Reply};

use super::fake::{Authority, FakeStream, serving_calls};

fn batch(what: &'static [u8]) -> RawAppend {
    RawAppend {
        shard: 0,
        generation: None,
        early: false,
        batch: Bytes::from_static(what),
    }
}

fn appended(offset: u64) -> Reply {
    Reply::RawAppend(RawAppended {
        base_offset: Some(offset),
        append_time_ms: -1,
        start: 0,
        throttle_ms: 0,
        repeated: false,
    })
}

fn led_by(addr: &str) -> Refused {
    let mut refused = Refused::from(Failure::new(Code::NotLeader, "another leads it"));
    refused.owner = Some(Box::new(Owner {
        node_id: "two".to_owned(),
        addr: Some(addr.to_owned()),
        generation: 2,
    }));
    refused
}

fn stream(client: &Client) -> RawStream {
    client.raw().stream("default", "orders").unwrap()
}

async fn taken(line: &mut FakeStream) -> (u64, Bytes) {
    match line.call().await {
        (id, Ask::RawAppend(append)) => (id, append.batch),
        (_, other) => panic!("not an append: {other:?}"),
    }
}

#[tokio::test]
async fn an_append_that_another_broker_takes_goes_there_when_it_is_alone() {
    let authority = Authority::new();
    let (one, two) = (authority.broker(), authority.broker());
    let (client, conn, _pipe) = one.calling(one.builder()).await;
    let answer = async {
        let mut line = conn.line().await;
        let (id, _) = taken(&mut line).await;
        line.refuse(id, led_by(&two.address())).await;
        let there = two.accept().await;
        let _pipe = there.welcome_with(&serving_calls()).await;
        let mut line = there.line().await;
        let (id, came) = taken(&mut line).await;
        assert_eq!(came, b"a".as_slice());
        line.reply(id, appended(7)).await;
        line
    };
    let stream = stream(&client);
    let (done, _line) = tokio::join!(stream.append(batch(b"a")), answer);
    assert_eq!(done.unwrap().base_offset, Some(7));
}

#[tokio::test]
async fn appends_that_could_overtake_each_other_are_not_sent_elsewhere() {
    let authority = Authority::new();
    let (one, two) = (authority.broker(), authority.broker());
    let (client, conn, _pipe) = one.calling(one.builder()).await;
    let stream = stream(&client);
    let answer = async {
        let mut line = conn.line().await;
        for _ in 0..2 {
            let (id, _) = taken(&mut line).await;
            line.refuse(id, led_by(&two.address())).await;
        }
        line
    };
    let send = async {
        let first = stream.send_append(batch(b"a")).await.unwrap();
        let second = stream.send_append(batch(b"b")).await.unwrap();
        (first, second)
    };
    let ((first, second), _line) = tokio::join!(send, answer);
    let refused = async |appending: Appending| match appending.answer().await {
        Err(CallFailed::Refused(refused)) => refused.code,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(refused(second).await, "not_leader");
    assert_eq!(refused(first).await, "not_leader");
}
