//! Control planes as processes over one PostgreSQL server, and metadata that moves between kinds of ledgers.
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
#[expect(dead_code, reason = "fail-over to a standby is tested below the API")]
#[path = "../src/ledger/postgres/test_server.rs"]
mod test_server;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::{Process, bootstrap, command, create, http, made, names};
use test_server::TestServer;

/// Stands in the URL; the server trusts everybody, so only whether it is shown matters.
const PASSWORD: &str = "hush-hush";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_both_serve_writes_and_nothing_answered_is_lost_by_kills_of_one_or_the_server()
 {
    let Some(mut server) = TestServer::start() else {
        return;
    };
    let url = with_password(&server.database("felix"));
    let settings = [("FELIX_CONTROLPLANE_POSTGRES_URL", &*url)];
    let (one, mut other) = (Process::start(&settings), Process::start(&settings));
    let http = http();
    let token = bootstrap(&http, &one).await;
    let mut answered = BTreeSet::new();
    for round in 0..4 {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = [&one.api, &other.api]
            .into_iter()
            .enumerate()
            .map(|(writer, api)| {
                let (http, api, token) = (http.clone(), api.clone(), token.clone());
                let (stop, prefix) = (Arc::clone(&stop), format!("r{round}w{writer}n"));
                tokio::spawn(async move { write(&http, &api, &token, &prefix, &stop).await })
            })
            .collect();
        // In the middle of the writes of both.
        let both_wrote = |names: &[String]| {
            let of = |writer| {
                names
                    .iter()
                    .filter(move |name| name.starts_with(&writer))
                    .count()
            };
            (0..2).all(|writer| of(format!("r{round}w{writer}n")) >= 5)
        };
        while !both_wrote(&names(&http, &one.api, &token).await) {
            tokio::task::yield_now().await;
        }
        match round {
            0 | 2 => {
                other.kill();
                stop.store(true, Ordering::Relaxed);
            }
            1 => {
                server.kill();
                ready(&http, &one, false).await;
                stop.store(true, Ordering::Relaxed);
                server.resume();
                ready(&http, &one, true).await;
                ready(&http, &other, true).await;
            }
            _ => stop.store(true, Ordering::Relaxed),
        }
        for (writer, writing) in writers.into_iter().enumerate() {
            let done = writing.await.unwrap();
            assert!(
                !done.is_empty(),
                "writer {writer} of round {round} wrote nothing"
            );
            answered.extend(done);
        }
        if matches!(round, 0 | 2) {
            other = Process::start(&settings);
        }
        for process in [&one, &other] {
            let held: BTreeSet<String> = names(&http, &process.api, &token)
                .await
                .into_iter()
                .collect();
            let lost: Vec<_> = answered.difference(&held).collect();
            assert!(
                lost.is_empty(),
                "round {round}: answered and lost: {lost:?}"
            );
        }
    }
    let places = server.sql(
        "felix",
        "SELECT count(*) = max(revision) AND min(revision) = 1 FROM felix_ledger_record",
    );
    assert_eq!(places, "t", "no revision is missing");
    for process in [&one, &other] {
        let log = process.log.lock().unwrap();
        assert!(!log.contains(PASSWORD), "the password is in the log");
    }
}

#[tokio::test]
async fn what_one_instance_answered_is_read_at_another_when_the_newest_state_is_asked_for() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let settings = [("FELIX_CONTROLPLANE_POSTGRES_URL", &*url)];
    let (one, other) = (Process::start(&settings), Process::start(&settings));
    let http = http();
    let token = bootstrap(&http, &one).await;
    for n in 0..30 {
        let name = format!("s{n}");
        let (writer, reader) = if n % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let made = create(&http, &writer.api, &token, &name).await;
        assert_eq!(made, Some(201));
        let held = names(&http, &reader.api, &token).await;
        assert!(held.contains(&name), "{name} was made and is not there");
        // Nor is it made twice: whoever asks again, anywhere, is told that it is there.
        let again = create(&http, &reader.api, &token, &name).await;
        assert_eq!(again, Some(200));
    }
    let nonsense = format!("http://{}/v1/regions?consistency=maybe", one.api);
    assert_eq!(http.get(nonsense).send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn metadata_goes_to_a_database_and_back_byte_for_byte() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let url = with_password(&server.database("felix"));
    let (old, new, disk) = (at("old"), at("new"), at("disk"));
    let database = ("FELIX_CONTROLPLANE_POSTGRES_URL", &*url);
    let old = ("FELIX_CONTROLPLANE_DATA_DIR", &*old);
    let new = ("FELIX_CONTROLPLANE_DATA_DIR", &*new);
    let http = http();
    let mut process = Process::start(&[old]);
    let token = bootstrap(&http, &process).await;
    for n in 0..20 {
        made(&http, &process.api, &token, &format!("s{n}")).await;
    }
    let in_use = run(&[old], &["backup", &at("refused")]);
    assert!(in_use.is_err(), "{in_use:?}");
    process.kill();

    run(&[old], &["backup", &at("one")]).unwrap();
    // What is not there cannot be moved, and nothing is made of it.
    let nothing = run(
        &[old, database],
        &["migrate", "--from", "disk", "--to", "postgres"],
    );
    assert!(nothing.unwrap_err().contains("holds a raft ledger"));
    run(
        &[old, database],
        &["migrate", "--from", "raft", "--to", "postgres"],
    )
    .unwrap();
    let mut process = Process::start(&[database]);
    assert_eq!(names(&http, &process.api, &token).await.len(), 20);
    // A database can be copied while it is used.
    run(&[database], &["backup", &at("two")]).unwrap();
    process.kill();
    assert_eq!(records(&at("one")), records(&at("two")));

    run(
        &[new, database],
        &["migrate", "--from", "postgres", "--to", "raft"],
    )
    .unwrap();
    run(&[new], &["backup", &at("three")]).unwrap();
    assert_eq!(records(&at("one")), records(&at("three")));
    let mut process = Process::start(&[new]);
    assert_eq!(names(&http, &process.api, &token).await.len(), 20);
    made(&http, &process.api, &token, "another").await;
    process.kill();

    // What is not empty takes nothing.
    let refused = run(&[new], &["restore", &at("one")]).unwrap_err();
    assert!(refused.contains("only an empty one"), "{refused}");
    // The first kind of ledger, too, takes a backup, and is taken over at the next start.
    let disk = ("FELIX_CONTROLPLANE_DATA_DIR", &*disk);
    let kind = ("FELIX_CONTROLPLANE_STORAGE_BACKEND", "disk");
    run(&[disk, kind], &["restore", &at("two")]).unwrap();
    let mut process = Process::start(&[disk]);
    assert_eq!(names(&http, &process.api, &token).await.len(), 20);
    process.kill();
    run(&[disk], &["backup", &at("four")]).unwrap();
    assert_eq!(records(&at("one")), records(&at("four")));
    server.database("restored");
    let url = with_password(&server.url("restored"));
    let database = ("FELIX_CONTROLPLANE_POSTGRES_URL", &*url);
    run(&[database], &["restore", &at("three")]).unwrap();
    let shown = run(&[database], &["--print-config"]).unwrap();
    assert!(
        !shown.contains(PASSWORD) && shown.contains("redacted"),
        "{shown}"
    );
}

/// Creates streams one after the other until it is told to stop or the process is gone; the names of those that were
/// answered.
async fn write(
    http: &reqwest::Client,
    api: &str,
    token: &str,
    prefix: &str,
    stop: &AtomicBool,
) -> Vec<String> {
    let mut answered = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{prefix}{n}");
        match create(http, api, token, &name).await {
            Some(201) => answered.push(name),
            // The server is away: it may be there or not.
            Some(503) => {}
            Some(status) => panic!("{name}: {status}"),
            None => break,
        }
    }
    answered
}

async fn ready(http: &reqwest::Client, process: &Process, wanted: bool) {
    let url = format!("http://{}/ready", process.metrics);
    while http.get(&url).send().await.unwrap().status().is_success() != wanted {
        tokio::task::yield_now().await;
    }
}

/// Runs one command to its end: what it says, or how it refuses. The password is in neither.
fn run(settings: &[(&str, &str)], task: &[&str]) -> Result<String, String> {
    let output = command(settings).args(task).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (said, refused) = (text(output.stdout), text(output.stderr));
    assert!(!said.contains(PASSWORD) && !refused.contains(PASSWORD));
    match output.status.success() {
        true => Ok(said),
        false => Err(refused),
    }
}

/// The records of a backup, without its head, which says when it was made, and the checksum.
fn records(file: &str) -> Vec<u8> {
    let bytes = std::fs::read(Path::new(file)).unwrap();
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let rest = lines.nth(2).unwrap();
    rest[..rest.len() - 32].to_vec()
}

fn with_password(url: &str) -> String {
    url.replace("felix@", &format!("felix:{PASSWORD}@"))
}
