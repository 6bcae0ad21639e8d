//! A log that is damaged while the node is down.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::FileExt;

use felix_e2e::Home;

#[tokio::test]
async fn a_damaged_shard_is_listed_as_corrupt_and_the_others_are_served() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    for stream in ["sound", "damaged"] {
        home.ok(&["stream", "create", stream]).await.unwrap();
        for number in 0..20 {
            home.ok(&["pub", stream, &format!("{number} {}", "x".repeat(100))])
                .await
                .unwrap();
        }
    }
    node.stop().await.unwrap();
    let segment = home.segments("damaged@").unwrap().pop().unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    // Inside the records of a batch with others after it.
    file.write_all_at(b"????", 300).unwrap();
    drop(file);

    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("sound").await.unwrap().len(), 20);
    let refused = home
        .felixctl(&["read", "damaged", "--from", "earliest"])
        .await
        .unwrap();
    assert!(
        !refused.status.success(),
        "{}",
        String::from_utf8_lossy(&refused.stdout)
    );
    let refused = home.felixctl(&["pub", "damaged", "x"]).await.unwrap();
    assert!(!refused.status.success(), "a damaged shard took a record");
    let listed = home.ok(&["shard", "ls", "--json"]).await.unwrap();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let states: Vec<(String, String)> = shards(&listed);
    assert!(
        states.contains(&("damaged".into(), "corrupt".into())),
        "{states:?}"
    );
    assert!(
        !states.contains(&("sound".into(), "corrupt".into())),
        "{states:?}"
    );
    node.stop().await.unwrap();
}

/// The last part of each shard's stream name, and its state.
fn shards(listed: &serde_json::Value) -> Vec<(String, String)> {
    let rows = listed
        .as_object()
        .unwrap()
        .values()
        .find_map(serde_json::Value::as_array)
        .unwrap();
    let text =
        |row: &serde_json::Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    rows.iter()
        .map(|row| {
            (
                text(row, "stream").rsplit('/').next().unwrap().to_owned(),
                text(row, "state"),
            )
        })
        .collect()
}
