//! What a node keeps when it is stopped, killed and started again.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use felix_e2e::kills::CampaignFailed;
use felix_e2e::{Home, Node, NodeFailed, kills};

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn publish_numbers(home: &Home, stream: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        home.ok(&["pub", stream, &number.to_string()])
            .await
            .unwrap();
    }
}

async fn stop(node: Node) {
    let log = node.log();
    let status = node.stop().await.unwrap();
    assert!(status.success(), "{status}\n{log}");
}

#[tokio::test]
async fn a_stop_ends_well_and_keeps_everything() {
    let home = home();
    let node = home.start().await.unwrap();
    publish_numbers(&home, "orders", 0..5).await;
    stop(node).await;
    let node = home.start().await.unwrap();
    assert_eq!(
        home.payloads("orders").await.unwrap(),
        ["0", "1", "2", "3", "4"]
    );
    publish_numbers(&home, "orders", 5..6).await;
    assert_eq!(home.payloads("orders").await.unwrap().len(), 6);
    stop(node).await;
}

#[tokio::test]
async fn streams_are_not_forgotten_by_kills_and_offsets_go_on() {
    let home = home();
    let mut expected = Vec::new();
    for round in 0..4 {
        let node = home.start().await.unwrap();
        let stream = format!("made-{round}");
        home.ok(&["stream", "create", &stream]).await.unwrap();
        publish_numbers(&home, "orders", round..round + 1).await;
        expected.push(round.to_string());
        assert_eq!(home.payloads("orders").await.unwrap(), expected);
        node.kill().await.unwrap();
    }
    let node = home.start().await.unwrap();
    let listed = home.ok(&["stream", "ls", "--json"]).await.unwrap();
    for round in 0..4 {
        assert!(listed.contains(&format!("\"made-{round}\"")), "{listed}");
    }
    let offsets = home
        .ok(&["read", "orders", "--from", "earliest", "-f", "%o\n"])
        .await
        .unwrap();
    assert_eq!(offsets, "0\n1\n2\n3\n");
    stop(node).await;
}

/// Every file below a directory, with its bytes.
fn files(below: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_log_that_no_catalogue_knows_is_told_of_and_kept_as_it_is() {
    let home = home();
    let node = home.start().await.unwrap();
    publish_numbers(&home, "orders", 0..3).await;
    let shards = node.shards().await.unwrap();
    let mut directories = shards.iter().map(|it| it["directory"].as_str().unwrap());
    let log = Path::new(directories.find(|it| it.contains("/orders@")).unwrap());
    stop(node).await;
    let stream = log.ancestors().find(|it| {
        let name = it.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("orders@")
    });
    let stream = stream.unwrap();
    let name = stream.file_name().unwrap().to_str().unwrap();
    let stray = stream.with_file_name(name.replacen("orders", "stray", 1));
    for (file, bytes) in files(stream) {
        let copy = stray.join(file.strip_prefix(stream).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }
    let before = files(&stray);
    assert!(!before.is_empty());

    let node = home.start().await.unwrap();
    let orphans = "felix_broker_shards_orphaned";
    assert_eq!(node.metric(orphans).await.unwrap(), 1.0);
    let shards = node.shards().await.unwrap();
    let states: Vec<_> = shards
        .iter()
        .filter(|it| it["directory"].as_str().unwrap().contains("/stray@"))
        .map(|it| it["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["orphan"]);
    // A stream of that name is another one.
    home.ok(&["stream", "create", "stray"]).await.unwrap();
    publish_numbers(&home, "stray", 7..8).await;
    assert_eq!(home.payloads("stray").await.unwrap(), ["7"]);
    assert_eq!(home.payloads("orders").await.unwrap(), ["0", "1", "2"]);
    stop(node).await;
    assert_eq!(files(&stray), before);
}

#[tokio::test]
async fn a_data_directory_that_is_in_use_is_refused_in_words() {
    let home = home();
    let node = home.start().await.unwrap();
    publish_numbers(&home, "orders", 0..1).await;
    match home.start().await {
        Err(NodeFailed::NotReady { log }) => assert!(log.contains("use"), "{log}"),
        other => panic!("a second node on one directory: {other:?}"),
    }
    assert_eq!(home.payloads("orders").await.unwrap(), ["0"]);
    stop(node).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_few_kills_under_load() {
    let home = home();
    let summary = kills::run(&home, 3, kills::Random::new(1), |_, _| {})
        .await
        .unwrap();
    assert_eq!(summary.kills, 3);
    assert!(
        summary.compared > 0 && summary.read >= summary.compared,
        "{summary:?}"
    );
}

/// The campaign is believed because it notices this: acknowledged records that vanish while the node is down.
#[tokio::test]
async fn a_campaign_notices_a_log_that_was_cut_behind_its_back() {
    let home = home();
    let cut = |round: u32, _: &kills::Summary| {
        if round > 0 {
            cut_tail(&home.segments("kills-none@").unwrap().pop().unwrap(), 4_000);
        }
    };
    let outcome = kills::run(&home, 4, kills::Random::new(2), cut).await;
    match outcome {
        Err(CampaignFailed::Lost { .. } | CampaignFailed::Refused { .. }) => {}
        other => panic!("records were cut off and nobody noticed: {other:?}"),
    }
}

fn cut_tail(file: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(bytes)).unwrap();
}
