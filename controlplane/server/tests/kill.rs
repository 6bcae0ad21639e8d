//! What was answered survives a kill at any moment.
//!
//! This is a program of its own, because a process that is being started holds for a moment what its parent has open, the
//! locks of other tests' data directories included.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[expect(
    dead_code,
    reason = "programs of tests share it, and none uses all of it"
)]
mod support;

use std::process::Command;

use support::{Process, bootstrap, create, http, names, settled};

/// How often the process is killed.
const KILLS: u64 = 12;

#[tokio::test]
async fn nothing_that_was_answered_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let settings = [("FELIX_CONTROLPLANE_DATA_DIR", data.to_str().unwrap())];
    let mut process = Process::start(&settings);
    let http = http();
    let token = bootstrap(&http, &process).await;
    let mut answered: Vec<String> = Vec::new();
    for round in 0..KILLS {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (http, api, token) = (http.clone(), process.api.clone(), token.clone());
                tokio::spawn(async move {
                    write_until_refused(&http, &api, &token, round, writer).await
                })
            })
            .collect();
        // The kill comes after a number of answers that differs from round to round, in the middle of the next ones.
        let count = answered.len() as u64 + 3 * round + 1;
        while (names(&http, &process.api, &token).await.len() as u64) < count {
            tokio::task::yield_now().await;
        }
        process.kill();
        for writer in writers {
            answered.extend(writer.await.unwrap());
        }
        process = Process::start(&settings);
        let held = names(&http, &process.api, &token).await;
        for name in &answered {
            assert!(
                held.contains(name),
                "{name} was answered before kill {round} and is lost"
            );
        }
    }
    assert!(
        answered.len() as u64 > KILLS,
        "the kills came too early to show anything"
    );
}

#[tokio::test]
async fn a_refusal_is_in_the_audit_by_itself_and_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("FELIX_CONTROLPLANE_DATA_DIR", dir.path().to_str().unwrap())];
    let mut process = Process::start(&settings);
    let http = http();
    let token = bootstrap(&http, &process).await;
    let get = |api: &str, path: &str, token: &str| {
        let url = format!("http://{api}/v1/tenants/acme/{path}");
        http.get(url).bearer_auth(token)
    };
    let refused = get(&process.api, "namespaces", "nonsense").send().await;
    assert_eq!(refused.unwrap().status(), 401);
    let shown = loop {
        let page = settled(|| get(&process.api, "audit?what=refused", &token)).await;
        match page.body["items"].as_array().unwrap().first() {
            Some(line) => break line.clone(),
            None => tokio::task::yield_now().await,
        }
    };
    process.kill();
    process = Process::start(&settings);
    let page = settled(|| get(&process.api, "audit?what=refused", &token)).await;
    assert_eq!(page.body["items"][0], shown);
}

#[tokio::test]
async fn a_first_signal_drains_with_probes_answered_and_a_second_one_ends_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(&[
        ("FELIX_CONTROLPLANE_DATA_DIR", dir.path().to_str().unwrap()),
        ("FELIX_SHUTDOWN_PREDRAIN_MS", "600000"),
    ]);
    let http = http();
    let token = bootstrap(&http, &process).await;
    terminate(&process);
    let ready = format!("http://{}/ready", process.metrics);
    while http.get(&ready).send().await.unwrap().status() != 503 {
        tokio::task::yield_now().await;
    }
    // It goes on serving who has not noticed yet.
    let made = create(&http, &process.api, &token, "late").await;
    assert_eq!(made, Some(201));
    terminate(&process);
    assert!(process.child.wait().unwrap().success());
    let log = process.log.lock().unwrap();
    assert!(!log.contains("cut off"), "{log}");
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
        match create(http, api, token, &name).await {
            Some(201) => answered.push(name),
            Some(status) => panic!("{name}: {status}"),
            None => break,
        }
    }
    answered
}

/// Asks it to end, as a supervisor does.
fn terminate(process: &Process) {
    let id = process.child.id().to_string();
    let status = Command::new("kill").args(["-TERM", &id]).status();
    assert!(status.unwrap().success());
}
