//! The node itself: how it is found, stopped, started again and measured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::node::{Node, felixctl, text};

#[test]
fn a_token_without_the_permission_exits_with_4() {
    let node = Node::ephemeral();
    let data = std::fs::read_dir(node.home.path()).expect("the home");
    let data: PathBuf = data
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.join("bootstrap.secret").is_file())
        .expect("the data directory of the node");
    let permission = "stream.subscribe:stream:dev/default/orders";
    let data = data.to_str().expect("a path");
    let token = node.ok(&[
        "token",
        "mint",
        "--permission",
        permission,
        "--data-dir",
        data,
    ]);
    let token = token.trim();
    let (exit, stderr) = node.fails(&["pub", "orders", "x", "--token", token]);
    assert_eq!(exit, 4, "{stderr}");
    node.ok(&["read", "orders", "--token", token]);
    let (exit, _) = node.fails(&["read", "orders", "--token", "no.token.atall"]);
    assert_eq!(exit, 4);
}

#[test]
fn the_ready_file_connects_a_program_that_knows_nothing_else() {
    let node = Node::ephemeral();
    let ready = node.ready();
    let field = |name: &str| ready[name].as_str().expect(name).to_owned();
    let elsewhere = tempfile::tempdir().expect("another home");
    let output = felixctl(elsewhere.path())
        .args(["pub", "orders", "hello", "--brokers"])
        .arg(ready["brokers"][0].as_str().expect("a broker"))
        .args([
            "--ca-file",
            &field("ca_file"),
            "--server-name",
            &field("server_name"),
        ])
        .args(["--tenant", &field("tenant"), "-n", &field("namespace")])
        .args(["--token", &field("token")])
        .output()
        .expect("felixctl runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_node_stops_cleanly_and_has_its_records_when_it_starts_again() {
    let node = Node::start(tempfile::tempdir().expect("a home"), &[]);
    node.ok(&["pub", "orders", "kept"]);
    let (exit, stderr) = node.fails(&["dev", "--port-base", "0", "--no-context"]);
    assert_eq!(exit, 7, "a directory has one node: {stderr}");
    let (home, status) = node.stop();
    assert_eq!(status, Some(0));
    let again = Node::start(home, &[]);
    assert_eq!(again.ok(&["read", "orders"]), "kept\n");
}

#[test]
fn a_measurement_counts_what_arrived_and_leaves_no_stream_behind() {
    let node = Node::ephemeral();
    let short = ["--duration", "200ms", "--warmup", "50ms"];
    let latency = node.json(&[&["bench", "latency", "--fanout", "2"], &short[..]].concat());
    assert!(latency["records"].as_u64().expect("records") > 0);
    assert_eq!(
        latency["each_count"],
        Value::Null,
        "only the reviewed fields are printed"
    );
    let fanout = node.json(&[&["bench", "fanout", "--fanout", "3"], &short[..]].concat());
    assert_eq!(fanout["lost"], 0);
    assert!(fanout["deliveries"].as_u64().expect("deliveries") > 0);
    let ingest = node.json(&[&["bench", "ingest", "--publishers", "2"], &short[..]].concat());
    assert!(ingest["machine"]["cpus"].as_u64().expect("cpus") > 0);
    assert_eq!(node.ok(&["stream", "ls", "-o", "name"]), "orders\n");
}

#[test]
fn an_emergency_rotation_reaches_the_ready_file_and_the_context_while_the_node_runs() {
    let node = Node::ephemeral();
    let before = node.ready();
    let rotated = node.ok(&["keys", "rotate", "--emergency", "--yes"]);
    assert!(!rotated.is_empty());
    let after = eventually("new tokens in the ready file", || {
        let ready = node.ready();
        let fresh = ["token", "controlplane_token"]
            .iter()
            .all(|name| ready[name] != before[name]);
        fresh.then_some(ready)
    });
    for name in ["brokers", "controlplane_url", "tenant", "gateway_url"] {
        assert_eq!(after[name], before[name], "{name} is as it was");
    }
    // The context was written before the ready file.
    node.ok(&["stream", "ls"]);
    node.ok(&["pub", "orders", "after the rotation"]);
    let old = before["token"].as_str().expect("a token");
    let (exit, stderr) = node.fails(&["read", "orders", "--token", old]);
    assert_eq!(exit, 4, "{stderr}");
}

/// Looks again and again, for as long as a busy machine may need.
fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
