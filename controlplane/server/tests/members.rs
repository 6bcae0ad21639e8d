//! Three control planes as processes over one raft ledger: the leader is killed under writes, a member loses its disk, a
//! member is let go and taken in again, and nothing that was answered is lost.
//!
//! A program of its own for the same reason as `kill`.

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

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::cluster::{Cluster, ready};
use support::{Process, command, create, http, made, names, settled, tenant_with_operator};

/// Members that know each other by a token.
async fn formed(http: &reqwest::Client) -> Cluster {
    let cluster = Cluster::prepared(|_, _| vec![("FELIX_RAFT_PEER_TOKEN", PEER_TOKEN.to_owned())]);
    cluster.formed(http).await
}

const PEER_TOKEN: &str = "a token of the members that is long enough";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_lose_nothing_that_was_answered_when_leaders_are_killed_and_a_disk_is_lost() {
    let http = http();
    let mut cluster = formed(&http).await;
    let token = tenant_with_operator(&http, cluster.process(1)).await;
    let mut answered = BTreeSet::new();
    for round in 0..3 {
        let leader = leader(&http, cluster.process(1), &token).await;
        let others: Vec<usize> = (1..=3).filter(|member| *member != leader).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = others
            .iter()
            .map(|member| {
                let (http, api) = (http.clone(), cluster.process(*member).api.clone());
                let (token, stop) = (token.clone(), Arc::clone(&stop));
                let prefix = format!("r{round}m{member}n");
                tokio::spawn(async move { write(&http, &api, &token, &prefix, &stop).await })
            })
            .collect();
        let enough = answered.len() + 10;
        while names(&http, &cluster.process(others[0]).api, &token)
            .await
            .len()
            < enough
        {
            tokio::task::yield_now().await;
        }
        cluster.kill(leader);
        // The others go on by themselves.
        let survivor = cluster.process(others[0]);
        ready(&http, survivor).await;
        let more = names(&http, &survivor.api, &token).await.len() + 5;
        while names(&http, &survivor.api, &token).await.len() < more {
            tokio::task::yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        for writing in writers {
            answered.extend(writing.await.unwrap());
        }
        if round == 1 {
            std::fs::remove_dir_all(cluster.dir(leader)).unwrap();
        }
        cluster.start(leader);
        cluster.all_ready(&http).await;
        voters(&http, cluster.process(others[0]), &token, &[1, 2, 3]).await;
        for member in 1..=3 {
            let held = names(&http, &cluster.process(member).api, &token).await;
            let held: BTreeSet<String> = held.into_iter().collect();
            let lost: Vec<_> = answered.difference(&held).collect();
            assert!(
                lost.is_empty(),
                "round {round}, member {member}: answered and lost: {lost:?}"
            );
        }
    }
    for member in 1..=3 {
        let log = cluster.process(member).log.lock().unwrap();
        assert!(
            !log.contains(PEER_TOKEN),
            "the members' token is in the log"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_let_go_and_taken_in_again_with_an_empty_directory() {
    let http = http();
    let mut cluster = formed(&http).await;
    let token = tenant_with_operator(&http, cluster.process(1)).await;
    made(&http, &cluster.process(2).api, &token, "before").await;
    let url = |path: &str| {
        format!(
            "http://{}/v1/controlplane/members{path}",
            cluster.process(1).api
        )
    };
    let gone = settled(|| http.delete(url("/3")).bearer_auth(&token)).await;
    // The first answer may have been lost with the leader who let it go.
    assert!(gone.is(204) || gone.again && gone.is(404), "{gone:?}");
    voters(&http, cluster.process(1), &token, &[1, 2]).await;
    let absent = settled(|| http.delete(url("/3")).bearer_auth(&token)).await;
    assert!(absent.is(404), "{absent:?}");
    let add = json!({"member": 3, "address": cluster.binds[2]});
    let url = url("");
    let ask = || http.post(&url).bearer_auth(&token).json(&add);
    let asked = settled(ask).await;
    assert!(asked.is(409), "it is not empty: {asked:?}");
    cluster.kill(3);
    std::fs::remove_dir_all(cluster.dir(3)).unwrap();
    cluster.start(3);
    let asked = settled(ask).await;
    assert!(asked.is(202), "{asked:?}");
    voters(&http, cluster.process(1), &token, &[1, 2, 3]).await;
    ready(&http, cluster.process(3)).await;
    assert_eq!(
        names(&http, &cluster.process(3).api, &token).await,
        ["before"]
    );
    let stranger = http.get(&url).send().await.unwrap();
    assert_eq!(stranger.status(), 401);
}

#[tokio::test]
async fn the_peer_listener_serves_nothing_but_messages_of_members_that_know_the_token() {
    let http = http();
    let cluster = formed(&http).await;
    let post = |path: &str| http.post(format!("http://{}{path}", cluster.binds[0]));
    let strangers = [
        (post("/raft/v1/message"), 401),
        (
            post("/raft/v1/message").bearer_auth("another token that is long enough too"),
            401,
        ),
        (post("/v1/tenants").bearer_auth(PEER_TOKEN), 404),
        (
            http.get(format!("http://{}/metrics", cluster.binds[0])),
            404,
        ),
    ];
    for (request, expected) in strangers {
        let answer = request.body("x").send().await.unwrap();
        assert_eq!(answer.status(), expected, "{}", answer.url());
    }
    // Known, and nonsense: answered in words, and nobody is hurt.
    let nonsense = post("/raft/v1/message")
        .bearer_auth(PEER_TOKEN)
        .body("\u{0}x")
        .send()
        .await
        .unwrap();
    assert_eq!(nonsense.status(), 200);
    assert!(nonsense.text().await.unwrap().contains("malformed"));
    cluster.all_ready(&http).await;
}

#[tokio::test]
async fn the_ledger_of_one_process_is_taken_over_by_a_raft_ledger_with_all_it_held() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().to_str().unwrap();
    let http = http();
    let disk = [
        ("FELIX_CONTROLPLANE_DATA_DIR", dir),
        ("FELIX_CONTROLPLANE_STORAGE_BACKEND", "disk"),
    ];
    let mut before = Process::start(&disk);
    let token = tenant_with_operator(&http, &before).await;
    for n in 0..20 {
        made(&http, &before.api, &token, &format!("s{n}")).await;
    }
    let held = names(&http, &before.api, &token).await;
    before.kill();
    drop(before);
    for _ in 0..2 {
        let mut after = Process::start(&[("FELIX_CONTROLPLANE_DATA_DIR", dir)]);
        assert_eq!(names(&http, &after.api, &token).await, held);
        after.kill();
    }
    assert!(!home.path().join("ledger").exists());
    assert!(home.path().join("ledger.adopted").exists());
    assert!(Path::new(dir).join("raft").exists());
}

#[test]
fn a_member_of_another_cluster_or_number_is_refused_at_the_start_in_words() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().to_str().unwrap();
    drop(Process::start(&[("FELIX_CONTROLPLANE_DATA_DIR", dir)]));
    let refused = command(&[
        ("FELIX_CONTROLPLANE_DATA_DIR", dir),
        ("FELIX_RAFT_NODE_ID", "2"),
    ])
    .output()
    .unwrap();
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        words.contains("belongs to member 1 of cluster felix"),
        "{words}"
    );
}

/// Creates streams until told to stop, or until 30 in a row were not answered; the names that were.
async fn write(
    http: &reqwest::Client,
    api: &str,
    token: &str,
    prefix: &str,
    stop: &AtomicBool,
) -> Vec<String> {
    let mut answered = Vec::new();
    for n in 0..10_000 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{prefix}{n}");
        if create(http, api, token, &name).await == Some(201) {
            answered.push(name);
        }
    }
    answered
}

async fn members(http: &reqwest::Client, process: &Process, token: &str) -> Vec<Value> {
    let url = format!("http://{}/v1/controlplane/members", process.api);
    let answer = http.get(url).bearer_auth(token).send().await.unwrap();
    let listed: Value = answer.json().await.unwrap();
    let items = listed["items"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"));
    items.clone()
}

/// Waits until a leader is known.
async fn leader(http: &reqwest::Client, process: &Process, token: &str) -> usize {
    loop {
        let listed = members(http, process, token).await;
        if let Some(row) = listed.iter().find(|row| row["leads"] == true) {
            return usize::try_from(row["member"].as_u64().unwrap()).unwrap();
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until these members, and no others, are there, all of them voters.
async fn voters(http: &reqwest::Client, process: &Process, token: &str, expected: &[u64]) {
    loop {
        let listed = members(http, process, token).await;
        let all = listed.iter().all(|row| row["role"] == "voter");
        let ids: Vec<u64> = listed
            .iter()
            .map(|row| row["member"].as_u64().unwrap())
            .collect();
        if all && ids == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
}
