//! Disks that are full, damaged, or somebody else's.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use felix_client::Retry;
use felix_e2e::raw::{Target, Wire};
use felix_e2e::{Home, NodeFailed, eventually};
use felix_wire::error::Code;
use felix_wire::message::{Message, Start, Subscribe};
use serde_json::Value;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
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

#[tokio::test]
async fn a_full_disk_refuses_writes_by_one_name_serves_reads_and_recovers_by_itself() {
    let home = home();
    let broker = home.data().join("broker");
    let Some(_disk) = SmallDisk::mount(&broker) else {
        return;
    };
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "safe", "--sync", "on_commit"])
        .await
        .unwrap();
    let client = node.client().await.unwrap();
    let mut kept = Vec::new();
    for stream in ["orders", "safe"] {
        client.publish(stream, "first").await.unwrap();
    }
    let ballast = broker.join("ballast");
    std::fs::write(&ballast, vec![0; 12 * 1024 * 1024]).unwrap();
    // Until it is refused.
    let refused = loop {
        let mut payload = vec![b'x'; 256 * 1024];
        let number = u64::try_from(kept.len()).unwrap();
        payload[..8].copy_from_slice(&number.to_be_bytes());
        match client.publish("orders", payload.clone()).await {
            Ok(published) => {
                assert_eq!(published.offset, Some(number + 1));
                kept.push(payload);
            }
            Err(failed) => break failed,
        }
        assert!(kept.len() < 1_000, "a disk of 24 MB takes everything");
    };
    assert_eq!(refused.code(), "overloaded", "{refused}");
    assert!(refused.to_string().contains("storage_full"), "{refused}");
    assert!(matches!(refused.retry(), Retry::RetryAfter(wait) if !wait.is_zero()));
    let refused = client.publish("safe", vec![b'x'; 900 * 1024]).await;
    assert_eq!(refused.unwrap_err().code(), "overloaded");
    // Reads go on, of what was there and of nothing else.
    let mut subscription = client.subscribe("orders").from_offset(1).await.unwrap();
    for payload in &kept {
        let event = subscription.next().await.unwrap().unwrap();
        assert_eq!(&event.payload[..], payload);
    }
    assert_eq!(home.payloads("safe").await.unwrap(), ["first"]);
    std::fs::remove_file(&ballast).unwrap();
    for stream in ["orders", "safe"] {
        let taken = eventually(|| async { client.publish(stream, "after").await.ok() });
        assert!(taken.await.is_some(), "{stream}");
    }
    let event = subscription.next().await.unwrap().unwrap();
    assert_eq!(&event.payload[..], b"after");
    let last = u64::try_from(kept.len()).unwrap() + 1;
    assert_eq!(event.offset, Some(last));
    assert!(node.stop().await.unwrap().success());
    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("safe").await.unwrap(), ["first", "after"]);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_damaged_shard_is_refused_by_name_and_listed_with_what_is_wrong() {
    let home = home();
    let node = home.start().await.unwrap();
    for stream in ["sound", "damaged"] {
        home.ok(&["stream", "create", stream]).await.unwrap();
        let client = node.client().await.unwrap();
        for number in 0..20 {
            let payload = format!("{number} {}", "x".repeat(100));
            client.publish(stream, payload).await.unwrap();
        }
    }
    node.stop().await.unwrap();
    let segment = home.segments("damaged@").unwrap().pop().unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    file.write_all_at(b"????", middle).unwrap();
    drop(file);
    let before = std::fs::read(&segment).unwrap();

    let node = home.start().await.unwrap();
    let listed = eventually(|| async {
        let shards = node.shards().await.unwrap();
        let damaged = shards
            .into_iter()
            .find(|shard| shard["state"] == "corrupt")?;
        Some(damaged)
    });
    let damaged: Value = listed.await.expect("a corrupt shard is listed");
    assert_eq!(damaged["stream"], "dev/default/damaged");
    assert!(
        damaged["detail"]
            .as_str()
            .is_some_and(|why| !why.is_empty())
    );
    assert_eq!(
        node.metric("felix_broker_shards_corrupt").await.unwrap(),
        1.0
    );

    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut stream = wire.authenticated().await.unwrap();
    let target = |stream| Target {
        stream,
        request_id: 1,
        ..Target::default()
    };
    let ack = stream.publish(&target("damaged"), &[b"x"]).await.unwrap();
    let refused = ack.outcome.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ShardUnavailable));
    assert_eq!(refused.reason(), Some("corrupt"));
    let ask = Subscribe {
        tenant_id: "dev".to_owned(),
        namespace: "default".to_owned(),
        stream: "damaged".to_owned(),
        subscription_id: None,
        start: Some(Start::Earliest),
        shard: None,
        queue_capacity: None,
        records: false,
    };
    let (answer, _) = wire.subscribe(ask).await.unwrap();
    let Message::Error(refused) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(refused.reason(), Some("corrupt"));
    let ack = stream.publish(&target("sound"), &[b"x"]).await.unwrap();
    assert_eq!(ack.outcome, Ok(Some(20)));
    assert_eq!(home.payloads("sound").await.unwrap().len(), 21);
    // It can be removed, and its name used again.
    assert_eq!(
        std::fs::read(&segment).unwrap(),
        before,
        "evidence was changed"
    );
    home.ok(&["stream", "rm", "damaged", "--yes"])
        .await
        .unwrap();
    home.ok(&["stream", "create", "damaged"]).await.unwrap();
    let client = node.client().await.unwrap();
    let anew = eventually(|| async { client.publish("damaged", "anew").await.ok() }).await;
    assert_eq!(anew.unwrap().offset, Some(0));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_of_another_cluster_or_a_newer_format_is_refused_in_words_and_left_alone() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["pub", "orders", "mine"]).await.unwrap();
    node.stop().await.unwrap();
    let file = home.data().join("broker/identity.json");
    let good = std::fs::read_to_string(&file).unwrap();
    let identity: Value = serde_json::from_str(&good).unwrap();
    for (field, value, words) in [
        ("cluster", Value::from("elsewhere"), "cluster elsewhere"),
        ("node", Value::from("somebody"), "node somebody"),
        ("format", Value::from(99), "format 99"),
    ] {
        let mut other = identity.clone();
        other[field] = value;
        std::fs::write(&file, other.to_string()).unwrap();
        match home.start().await {
            Err(NodeFailed::NotReady { log }) => assert!(log.contains(words), "{log}"),
            started => panic!("{field}: {started:?}"),
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), other.to_string());
    }
    std::fs::remove_file(&file).unwrap();
    match home.start().await {
        Err(NodeFailed::NotReady { log }) => assert!(log.contains("identity.json"), "{log}"),
        started => panic!("without an identity: {started:?}"),
    }
    std::fs::write(&file, good).unwrap();
    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("orders").await.unwrap(), ["mine"]);
    node.stop().await.unwrap();
}
