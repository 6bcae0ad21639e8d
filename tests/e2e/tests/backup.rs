//! A backup of a node that is being written to, and what a node that starts from it has.

use felix_e2e::Home;

#[tokio::test]
async fn a_backup_under_load_restores_to_a_prefix_with_all_that_was_acknowledged_before() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    for number in 0..200 {
        client.publish("orders", format!("{number}")).await.unwrap();
    }
    let publisher = client.publisher("orders").unwrap();
    let load = tokio::spawn(async move {
        let mut number = 200;
        while publisher.publish(format!("{number}")).await.is_ok() {
            number += 1;
        }
        number
    });
    let copy = home.path().join("copy");
    home.ok(&["backup", copy.to_str().unwrap()]).await.unwrap();
    node.kill().await.unwrap();
    load.abort();

    let other = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let data = other.data();
    other
        .ok(&[
            "restore",
            copy.to_str().unwrap(),
            "--data-dir",
            data.to_str().unwrap(),
        ])
        .await
        .unwrap();
    let node = other.start().await.unwrap();
    let found = other.payloads("orders").await.unwrap();
    assert!(found.len() >= 200, "{} records", found.len());
    let numbers: Vec<String> = (0..found.len()).map(|number| number.to_string()).collect();
    assert_eq!(found, numbers);
    other.ok(&["pub", "orders", "on it goes"]).await.unwrap();
    assert_eq!(
        other.payloads("orders").await.unwrap().len(),
        found.len() + 1
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_restore_into_a_directory_with_something_in_it_is_refused() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    home.ok(&["pub", "orders", "x"]).await.unwrap();
    let copy = home.path().join("copy");
    home.ok(&["backup", copy.to_str().unwrap()]).await.unwrap();
    node.stop().await.unwrap();
    let data = home.data();
    let refused = home
        .felixctl(&[
            "restore",
            copy.to_str().unwrap(),
            "--data-dir",
            data.to_str().unwrap(),
        ])
        .await
        .unwrap();
    assert!(!refused.status.success());
    let node = home.start().await.unwrap();
    assert_eq!(home.payloads("orders").await.unwrap(), ["x"]);
    node.stop().await.unwrap();
}
