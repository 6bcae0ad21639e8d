//! What an operator does to accounts and sessions by the command line, against a live node.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

use felix_client::{ReadFailed, Start};
use felix_e2e::{Home, Node};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

/// A role that may read every stream.
async fn reader(home: &Home) {
    let rule = ["role:reader", "stream:dev/*/*", "stream.subscribe"];
    let command = [&["rbac", "policy", "add"][..], &rule].concat();
    home.ok(&command).await.unwrap();
}

async fn shown(home: &Home, command: &[&str]) -> Value {
    let text = home.ok(&[command, &["--json"]].concat()).await.unwrap();
    // Some say more in front of the document.
    let document = text.find('{').map_or("", |at| &text[at..]);
    serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A field of the only item, wherever it stands in the document.
fn field(document: &Value, name: &str) -> String {
    let places = [&document[name], &document["items"][0][name]];
    let found = places.into_iter().find_map(Value::as_str);
    found
        .unwrap_or_else(|| panic!("{name}: {document}"))
        .to_owned()
}

/// Tokens for a key of an account; nothing where it is refused.
async fn exchange(node: &Node, key: &str) -> Option<Value> {
    let path = "/v1/tenants/dev/token/exchange";
    let answer = node
        .controlplane(key, Method::POST, path, Some(&json!({})))
        .await;
    match answer {
        Ok(tokens) => Some(tokens),
        Err(error) => {
            assert_eq!(
                error.status().map(|status| status.as_u16()),
                Some(403),
                "{error}"
            );
            None
        }
    }
}

#[tokio::test]
async fn keys_of_an_account_come_and_go_and_it_is_disabled_enabled_and_removed() {
    let home = home();
    let node = home.start().await.unwrap();
    reader(&home).await;
    let create = [
        "service-account",
        "create",
        "worker",
        "--role",
        "role:reader",
    ];
    let first = field(&shown(&home, &create).await, "key");
    let added = shown(&home, &["service-account", "key", "add", "worker"]).await;
    let (second, second_id) = (field(&added, "key"), field(&added, "key_id"));
    assert!(exchange(&node, &first).await.is_some());
    assert!(exchange(&node, &second).await.is_some());

    home.ok(&[
        "service-account",
        "key",
        "rm",
        "worker",
        &second_id,
        "--yes",
    ])
    .await
    .unwrap();
    assert!(exchange(&node, &second).await.is_none());
    assert!(exchange(&node, &first).await.is_some());

    home.ok(&["service-account", "disable", "worker", "--yes"])
        .await
        .unwrap();
    assert!(exchange(&node, &first).await.is_none());
    home.ok(&["service-account", "enable", "worker"])
        .await
        .unwrap();
    assert!(exchange(&node, &first).await.is_some());

    home.ok(&["service-account", "rm", "worker", "--yes"])
        .await
        .unwrap();
    assert!(exchange(&node, &first).await.is_none());
    let absent = home.felixctl(&["service-account", "show", "worker"]).await;
    assert!(!absent.unwrap().status.success());
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_ended_takes_its_subscription_with_it_and_the_audit_tells_while_it_happens()
 {
    let home = home();
    let node = home.start().await.unwrap();
    reader(&home).await;
    let create = [
        "service-account",
        "create",
        "worker",
        "--role",
        "role:reader",
    ];
    let key = field(&shown(&home, &create).await, "key");
    let mut tail = home.spawn(&["audit", "tail", "--json"]).unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let tokens = exchange(&node, &key).await.unwrap();
    let token = tokens["felix_token"].as_str().unwrap();
    let client = node.client_with(token).await.unwrap();
    let mut subscription = client
        .subscribe("orders")
        .from(Start::Latest)
        .await
        .unwrap();

    // The tail begins at some moment after it was started: sessions are ended until it has told of one.
    let listed = shown(&home, &["session", "ls", "--principal", "sa:worker"]).await;
    let session = field(&listed, "session_id");
    home.ok(&["session", "end", &session, "--yes"])
        .await
        .unwrap();
    let ended = subscription.next().await.unwrap_err();
    let ReadFailed::Ended(why) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (why.code.as_str(), why.reason.as_deref()),
        ("revoked", Some("session"))
    );
    let told = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the tail goes on");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["what"]
                .as_str()
                .is_some_and(|what| what.contains("session"))
            {
                break line;
            }
        }
    };
    let more = async {
        loop {
            let tokens = exchange(&node, &key).await.unwrap();
            let body = json!({"refresh_token": tokens["refresh_token"]});
            let path = "/v1/tenants/dev/token/revoke";
            node.controlplane("", Method::POST, path, Some(&body))
                .await
                .unwrap();
        }
    };
    tokio::select! {
        line = told => assert!(line["seq"].is_u64(), "{line}"),
        never = more => never,
    }
    let refused = json!({"refresh_token": tokens["refresh_token"]});
    let path = "/v1/tenants/dev/token/refresh";
    let refused = node
        .controlplane("", Method::POST, path, Some(&refused))
        .await;
    assert_eq!(refused.unwrap_err().status().unwrap().as_u16(), 403);
    let absent = home
        .felixctl(&["session", "end", &session, "--yes"])
        .await
        .unwrap();
    assert!(!absent.status.success());
    node.stop().await.unwrap();
}
