//! What was answered survives a kill at any moment.
//!
//! This is a program of its own, because a process that is being started holds for a moment what its parent has open, the
//! locks of other tests' data directories included.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// How often the process is killed.
const KILLS: u64 = 12;

const BOOTSTRAP: &str = "the bootstrap token";

#[tokio::test]
async fn nothing_that_was_answered_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let (mut process, addresses) = spawn(dir.path());
    // The library wants to know who does its TLS even where there is none.
    rustls::crypto::ring::default_provider()
        .install_default()
        .unwrap();
    let http = reqwest::Client::new();
    let token = bootstrap(&http, &addresses).await;
    let mut api = addresses.api;
    let mut answered: Vec<String> = Vec::new();
    for round in 0..KILLS {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (http, api, token) = (http.clone(), api.clone(), token.clone());
                tokio::spawn(async move {
                    write_until_refused(&http, &api, &token, round, writer).await
                })
            })
            .collect();
        // The kill comes after a number of answers that differs from round to round, in the middle of the next ones.
        wait_for_streams(&http, &api, &token, answered.len() as u64 + 3 * round + 1).await;
        process.kill().unwrap();
        process.wait().unwrap();
        for writer in writers {
            answered.extend(writer.await.unwrap());
        }
        let started = spawn(dir.path());
        process = started.0;
        api = started.1.api;
        let held = names(&http, &api, &token).await;
        for name in &answered {
            assert!(
                held.contains(name),
                "{name} was answered before kill {round} and is lost"
            );
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(
        answered.len() as u64 > KILLS,
        "the kills came too early to show anything"
    );
}

/// Creates streams one after the other until the process is gone; the names of those that were answered.
async fn write_until_refused(
    http: &reqwest::Client,
    api: &str,
    token: &str,
    round: u64,
    writer: u64,
) -> Vec<String> {
    let mut answered = Vec::new();
    for n in 0.. {
        let name = format!("r{round}w{writer}n{n}");
        let url = format!("http://{api}/v1/tenants/acme/namespaces/ns/streams");
        let sent = http
            .post(url)
            .bearer_auth(token)
            .json(&stream(&name))
            .send()
            .await;
        match sent {
            Ok(response) if response.status() == 201 => answered.push(name),
            Ok(response) => panic!("{name}: {}", response.status()),
            Err(_) => break,
        }
    }
    answered
}

async fn wait_for_streams(http: &reqwest::Client, api: &str, token: &str, count: u64) {
    loop {
        if names(http, api, token).await.len() as u64 >= count {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn names(http: &reqwest::Client, api: &str, token: &str) -> Vec<String> {
    let url = format!("http://{api}/v1/tenants/acme/namespaces/ns/streams?limit=10000");
    let page: Value = http
        .get(url)
        .bearer_auth(token)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items
        .iter()
        .map(|item| item["stream"].as_str().unwrap().to_owned())
        .collect()
}

/// A tenant, a namespace and a token that outlives all restarts.
async fn bootstrap(http: &reqwest::Client, addresses: &Spawned) -> String {
    let base = format!(
        "http://{}/internal/bootstrap/tenants/acme",
        addresses.bootstrap
    );
    let post = |url: String, body: Value| {
        http.post(url)
            .header("X-Felix-Bootstrap-Token", BOOTSTRAP)
            .json(&body)
            .send()
    };
    let admins = json!({"initial_admin_principals": ["p:admin"]});
    let done = post(format!("{base}/initialize"), admins).await.unwrap();
    assert_eq!(done.status(), 200);
    let ask = json!({"principal": "p:admin", "audience": "felix-controlplane"});
    let minted: Value = post(format!("{base}/dev-token"), ask)
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let token = minted["felix_token"].as_str().unwrap().to_owned();
    let url = format!("http://{}/v1/tenants/acme/namespaces", addresses.api);
    let body = json!({"namespace": "ns"});
    let made = http
        .post(url)
        .bearer_auth(&token)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(made.status(), 201);
    token
}

struct Spawned {
    api: String,
    bootstrap: String,
}

/// Starts the real process on free ports and reads from its log where it listens.
fn spawn(dir: &Path) -> (Child, Spawned) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_felix-controlplane"))
        .env("FELIX_CONTROLPLANE_DATA_DIR", dir.join("data"))
        .env("FELIX_CONTROLPLANE_BIND", "127.0.0.1:0")
        .env("FELIX_CONTROLPLANE_METRICS_BIND", "127.0.0.1:0")
        .env("FELIX_BOOTSTRAP_ENABLED", "true")
        .env("FELIX_BOOTSTRAP_BIND_ADDR", "127.0.0.1:0")
        .env("FELIX_BOOTSTRAP_TOKEN", BOOTSTRAP)
        .env("FELIX_BOOTSTRAP_DEV_TOKENS", "true")
        .env("FELIX_CONTROLPLANE_LOG_FORMAT", "json")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = Vec::new();
    let fields = loop {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("it ended: {seen:?}"))
            .unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value["fields"]["message"] == "serving" => break value["fields"].clone(),
            _ => seen.push(line),
        }
    };
    // Somebody must read on, or the process stops at a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let text = |field: &str| fields[field].as_str().unwrap().to_owned();
    (
        child,
        Spawned {
            api: text("api"),
            bootstrap: text("bootstrap"),
        },
    )
}

/// The body of a plain durable stream.
fn stream(name: &str) -> Value {
    json!({
        "stream": name,
        "kind": "Stream",
        "shards": 1,
        "retention": {},
        "consistency": "Leader",
        "delivery": "AtLeastOnce",
        "durable": true,
    })
}
