//! The end of a node that is told to stop, as its clients see it.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use felix_e2e::raw::{Target, Wire, offer};
use felix_e2e::{Home, eventually};
use felix_wire::error::Code;
use felix_wire::message::Message;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_before_and_during_a_stop_is_there_afterwards() {
    let home = home();
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "safe", "--sync", "on_commit"])
        .await
        .unwrap();
    let client = node.client().await.unwrap();
    let mut publishers = tokio::task::JoinSet::new();
    let (first, mut seen) = tokio::sync::mpsc::channel(64);
    for task in 0..4 {
        for stream in ["orders", "safe"] {
            let publisher = client.publisher(stream).unwrap();
            let first = first.clone();
            publishers.spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0u32.. {
                    let payload = format!("{task}/{number}");
                    match publisher.publish(payload.clone()).await {
                        Ok(published) => {
                            acknowledged.push((stream, published.offset.unwrap(), payload));
                        }
                        Err(_) => break,
                    }
                    if number == 20 {
                        first.send(()).await.unwrap();
                    }
                }
                acknowledged
            });
        }
    }
    for _ in 0..8 {
        seen.recv().await.unwrap();
    }
    let log = node.log();
    let status = node.stop().await.unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    client.close().await;
    let acknowledged: Vec<_> = publishers.join_all().await.into_iter().flatten().collect();
    assert!(acknowledged.len() >= 160, "{}", acknowledged.len());

    let node = home.start().await.unwrap();
    let (orders, safe) = (
        home.payloads("orders").await.unwrap(),
        home.payloads("safe").await.unwrap(),
    );
    for (stream, offset, payload) in acknowledged {
        let log = if stream == "orders" { &orders } else { &safe };
        assert_eq!(log.get(usize::try_from(offset).unwrap()), Some(&payload));
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_says_so_to_whoever_asks_and_closes_with_code_zero() {
    let home = home();
    let node = home.start().await.unwrap();
    assert_eq!(node.admin("ready").await.unwrap().status().as_u16(), 200);
    assert_eq!(node.admin("live").await.unwrap().status().as_u16(), 200);
    let wire = Wire::connect(node.ready()).await.unwrap();
    let mut stream = wire.authenticated().await.unwrap();
    let target = Target {
        stream: "orders",
        request_id: 1,
        ..Target::default()
    };
    assert!(
        stream
            .publish(&target, &[b"x"])
            .await
            .unwrap()
            .outcome
            .is_ok()
    );
    // Frames that are on their way when the node is told to stop.
    for request_id in 2..100 {
        let target = Target {
            request_id,
            ..target
        };
        stream.send(&target, &[b"y"]).await.unwrap();
    }
    let ready = node.ready().clone();
    let stopping = tokio::spawn(node.stop());
    // Until the connection is gone, nobody new is let in, and `/ready` says why if it is caught answering.
    let token = ready.token.clone();
    let outcome = eventually(|| async {
        let Ok(mut stream) = wire.open().await else {
            return Some(None);
        };
        match stream.ask(offer().auth("dev", token.as_str())).await {
            Ok(Message::AuthOk(_)) => None,
            Ok(Message::Error(failure)) => Some(Some(failure)),
            Ok(other) => panic!("{other:?}"),
            Err(_) => Some(None),
        }
    })
    .await
    .expect("the node stops");
    if let Some(failure) = outcome {
        assert_eq!(failure.code(), Some(Code::Draining));
    }
    let mut answered = 1;
    while let Ok(ack) = stream.incoming.ack().await {
        if ack.outcome.is_ok() {
            answered += 1;
        }
    }
    match wire.connection.closed().await {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code, quinn::VarInt::from_u32(0));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stopping.await.unwrap().unwrap().code(), Some(0));
    let node = home.start().await.unwrap();
    let kept = home.payloads("orders").await.unwrap().len();
    assert!(kept >= answered, "{answered} acknowledged and {kept} kept");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_subscription_gets_everything_up_to_a_stop_and_goes_on_after_it() {
    let home = home().on_fixed_ports().unwrap();
    let node = home.start().await.unwrap();
    let reader = node.client().await.unwrap();
    let mut subscription = reader.subscribe("orders").from_earliest().await.unwrap();
    let client = node.client().await.unwrap();
    for number in 0..50 {
        client.publish("orders", format!("{number}")).await.unwrap();
    }
    client.close().await;
    assert!(node.stop().await.unwrap().success());
    let node = home.start().await.unwrap();
    home.ok(&["pub", "orders", "50"]).await.unwrap();
    for number in 0..=50 {
        let event = subscription.next().await.unwrap().unwrap();
        assert_eq!(event.offset, Some(number));
        assert_eq!(&event.payload[..], number.to_string().as_bytes());
    }
    assert_eq!(subscription.lost(), 0);
    node.stop().await.unwrap();
}

/// A small file system on a loop device, which can be stopped as a disk that hangs is; gone when this is dropped.
struct StoppableDisk(PathBuf);

impl StoppableDisk {
    /// `None`, and a word about it, where mounting is not allowed.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let image = at.with_extension("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        let made = run("mkfs.ext4", &[Path::new("-q"), &image]);
        if made && run("mount", &[Path::new("-oloop"), &image, at]) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("SKIPPED: a disk cannot be mounted here without root; nothing was tested");
        None
    }

    fn freeze(&self) {
        assert!(run("fsfreeze", &[Path::new("-f"), &self.0]));
    }

    fn thaw(&self) -> bool {
        run("fsfreeze", &[Path::new("-u"), &self.0])
    }
}

impl Drop for StoppableDisk {
    fn drop(&mut self) {
        // A process that waits for a frozen disk cannot even be killed.
        self.thaw();
        run("umount", &[Path::new("-l"), &self.0]);
    }
}

fn run(program: &str, arguments: &[&Path]) -> bool {
    let status = Command::new(program).args(arguments).status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_node_that_drains_is_not_ready_until_what_it_accepted_is_answered() {
    let home = home();
    let Some(disk) = StoppableDisk::mount(&home.data().join("broker")) else {
        return;
    };
    let node = home.start().await.unwrap();
    home.ok(&["stream", "create", "safe", "--sync", "on_commit"])
        .await
        .unwrap();
    let client = node.client().await.unwrap();
    client.publish("safe", "before").await.unwrap();
    disk.freeze();
    let accepted = tokio::spawn({
        let client = client.clone();
        async move { client.publish("safe", "accepted").await }
    });
    let seen = &node;
    let held = eventually(|| async {
        let bytes = seen.metric("felix_broker_publish_inflight_bytes").await;
        (bytes.unwrap() > 0.0).then_some(())
    });
    held.await
        .expect("the publish is accepted and not answered");
    assert_eq!(node.admin("ready").await.unwrap().status().as_u16(), 200);
    node.terminate().unwrap();
    let refused = eventually(|| async {
        let answer = seen.admin("ready").await.unwrap();
        (answer.status().as_u16() != 200).then_some(answer)
    });
    let refused = refused.await.expect("it says that it is not ready");
    assert_eq!(refused.status().as_u16(), 503);
    assert_eq!(refused.text().await.unwrap(), "draining\n");
    assert_eq!(node.metric("felix_ready_state").await.unwrap(), 0.0);
    assert_eq!(node.admin("live").await.unwrap().status().as_u16(), 200);
    // Nobody new is let in, and the one that was waits on.
    assert!(node.client().await.is_err());
    assert!(!accepted.is_finished());
    assert!(disk.thaw());
    assert_eq!(accepted.await.unwrap().unwrap().offset, Some(1));
    assert_eq!(node.stopped().await.unwrap().code(), Some(0));
    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("safe").await.unwrap(), ["before", "accepted"]);
    node.stop().await.unwrap();
}
