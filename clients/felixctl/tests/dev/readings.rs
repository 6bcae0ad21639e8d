//! Caches, counters, groups, commits and schedules from the command line.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::node::{Node, felixctl, text};

/// What a refused command says in JSON.
fn refused(node: &Node, args: &[&str]) -> (i32, Value) {
    let (exit, stderr) = node.fails(&[args, &["--json"]].concat());
    (exit, serde_json::from_str(&stderr).expect("json"))
}

/// Case B49: the current version is in the JSON of the refusal, and the exit status is a conflict.
#[test]
fn a_key_is_set_read_changed_under_a_condition_and_removed() {
    let node = Node::ephemeral();
    let said = node.ok(&["cache", "put", "config", "k", "one", "--if-absent"]);
    assert!(said.starts_with("k is set at version "), "{said}");
    assert_eq!(node.ok(&["cache", "get", "config", "k"]), "one");
    let entry = node.json(&["cache", "get", "config", "k"]);
    assert_eq!(
        (&entry["value"], &entry["expires_at"]),
        (&json!("one"), &Value::Null)
    );
    let version = entry["version"].as_u64().expect("a version");
    let (exit, error) = refused(&node, &["cache", "put", "config", "k", "x", "--if-absent"]);
    assert_eq!((exit, &error["code"]), (7, &json!("version_mismatch")));
    assert_eq!(error["current_version"], json!(version));
    let right = version.to_string();
    node.ok(&["cache", "put", "config", "k", "two", "--if-version", &right]);
    let (exit, error) = refused(
        &node,
        &["cache", "rm", "config", "k", "--if-version", &right],
    );
    assert_eq!(exit, 7);
    assert!(error["current_version"].as_u64() > Some(version));
    assert_eq!(node.ok(&["cache", "rm", "config", "k"]), "k is removed\n");
    assert_eq!(node.ok(&["cache", "rm", "config", "k"]), "k held nothing\n");
    let (exit, error) = refused(&node, &["cache", "get", "config", "k"]);
    assert_eq!((exit, &error["code"]), (3, &json!("no_entry")));
}

#[test]
fn a_value_comes_from_standard_input_byte_for_byte_and_lives_for_a_while() {
    let node = Node::ephemeral();
    let mut put = felixctl(node.home.path())
        .args(["cache", "put", "config", "raw", "--ttl", "1h"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("felixctl runs");
    let mut input = put.stdin.take().expect("standard input");
    input.write_all(b"\xff\x00\n").expect("written");
    drop(input);
    assert!(put.wait().expect("felixctl ends").success());
    let got = node.run(&["cache", "get", "config", "raw"]);
    assert_eq!(got.stdout, b"\xff\x00\n");
    let entry = node.json(&["cache", "get", "config", "raw"]);
    assert_eq!(entry["value_encoding"], json!("base64"));
    assert!(entry["expires_at"].is_string());
}

#[test]
fn keys_are_listed_and_watched_from_what_they_hold() {
    let node = Node::ephemeral();
    for key in ["a-1", "a-2", "b"] {
        node.ok(&["cache", "put", "config", key, "v"]);
    }
    assert_eq!(
        node.ok(&["cache", "ls-keys", "config", "a-", "-o", "name"]),
        "a-1\na-2\n"
    );
    let watched = node.ok(&[
        "cache",
        "watch",
        "config",
        "--prefix",
        "a-",
        "--retained",
        "--count",
        "2",
    ]);
    let mut lines: Vec<&str> = watched.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a-1  v", "a-2  v"]);
}

#[test]
fn a_misspelt_cache_exits_with_3_and_names_the_right_one() {
    let node = Node::ephemeral();
    let (exit, error) = refused(&node, &["cache", "get", "confg", "k"]);
    assert_eq!((exit, &error["did_you_mean"][0]), (3, &json!("config")));
}

#[test]
fn a_counter_counts() {
    let node = Node::ephemeral();
    assert_eq!(node.ok(&["counter", "add", "config", "hits"]), "1\n");
    assert_eq!(node.ok(&["counter", "add", "config", "hits", "-3"]), "-2\n");
    let once = ["counter", "add", "config", "hits", "10", "--once", "job-1"];
    assert_eq!(node.json(&once)["repeated"], json!(false));
    let repeated = node.json(&once);
    assert_eq!(
        (&repeated["value"], &repeated["repeated"]),
        (&json!(8), &json!(true))
    );
    assert_eq!(node.ok(&["counter", "get", "config", "hits"]), "8\n");
}

#[test]
fn a_group_is_polled_settled_and_looked_after() {
    let node = Node::ephemeral();
    for value in ["one", "two", "three"] {
        node.ok(&["pub", "orders", value]);
    }
    let group = ["orders", "billing"];
    let polled = node.ok(&[&["group", "poll"], &group[..], &["--max", "2"]].concat());
    assert_eq!(polled, "one\ntwo\n");
    let acked = node.ok(&[&["group", "ack"], &group[..], &["0:1"]].concat());
    assert_eq!(acked, "1 finished\n");
    let held = [
        &["group", "extend"],
        &group[..],
        &["1:1", "--visibility", "5m"],
    ]
    .concat();
    assert_eq!(node.ok(&held), "1 extended\n");
    node.ok(&[&["group", "nack"], &group[..], &["1"]].concat());
    let again = node.json(&[&["group", "poll"], &group[..]].concat());
    assert_eq!(
        (&again["offset"], &again["attempts"]),
        (&json!(1), &json!(2))
    );
    for settle in ["nack", "extend"] {
        let (exit, error) = refused(&node, &[&["group", settle], &group[..], &["1:1"]].concat());
        assert_eq!((exit, &error["code"]), (7, &json!("stale_claim")));
    }
    let described = node.json(&[&["group", "describe"], &group[..]].concat());
    let standing = &described["items"][0];
    assert_eq!(
        (&standing["committed"], &standing["lag"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        node.ok(&["group", "ls", "orders", "-o", "name"]),
        "billing\n"
    );
    let sought = node.json(&[&["group", "seek"], &group[..], &["--to", "earliest"]].concat());
    assert_eq!(sought["items"][0]["offset"], json!(0));
    let (exit, _) = node.fails(&[&["group", "delete"], &group[..]].concat());
    assert_eq!(exit, 2);
    node.ok(&[&["group", "delete"], &group[..], &["--yes"]].concat());
}

#[test]
fn a_worker_runs_a_command_for_each_record_and_gives_back_what_failed() {
    let node = Node::ephemeral();
    for value in ["good", "bad"] {
        node.ok(&["pub", "orders", value, "--key", "k"]);
    }
    let command = "read value; echo $FELIX_OFFSET $FELIX_ATTEMPTS $FELIX_KEY $value; \
                   test $value = good || test $FELIX_ATTEMPTS = 2";
    let worked = node.ok(&[
        "group", "consume", "orders", "g", "--exec", command, "--delay", "1ms", "--count", "3",
    ]);
    assert_eq!(worked, "0 1 k good\n1 1 k bad\n1 2 k bad\n");
    let described = node.json(&["group", "describe", "orders", "g"]);
    assert_eq!(described["items"][0]["committed"], json!(2));
}

#[test]
fn what_cannot_be_processed_is_listed_redriven_and_discarded() {
    let node = Node::ephemeral();
    node.ok(&["pub", "orders", "poison"]);
    for _ in 0..5 {
        node.ok(&["group", "poll", "orders", "g", "--wait", "5s"]);
        node.ok(&["group", "nack", "orders", "g", "0"]);
    }
    let letters = ["group", "dead-letters"];
    let listed = node.json(&[&letters[..], &["ls", "orders", "g"]].concat());
    let letter = &listed["items"][0];
    assert_eq!(
        (&letter["offset"], &letter["attempts"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(letter["value"], json!("poison"));
    let moved = node.json(&[&letters[..], &["redrive", "orders", "g"]].concat());
    assert_eq!(moved["items"][0]["count"], json!(1));
    let (exit, _) = refused(
        &node,
        &[
            &letters[..],
            &[
                "discard", "orders", "g", "--shard", "0", "--offset", "0", "-y",
            ],
        ]
        .concat(),
    );
    assert_eq!(exit, 3);
}

#[test]
fn a_commit_lands_with_its_state_and_names_what_stood_in_its_way() {
    let node = Node::ephemeral();
    let commit = ["commit", "orders", "order-7"];
    let paid = [
        &commit[..],
        &["paid", "--put", "status=paid", "--once", "r1"],
    ]
    .concat();
    let first = node.json(&paid);
    assert_eq!(first["repeated"], json!(false));
    assert_eq!(node.json(&paid)["repeated"], json!(true));
    assert_eq!(
        node.ok(&["state", "get", "orders", "order-7", "status"]),
        "paid"
    );
    let (exit, error) = refused(&node, &[&commit[..], &["x", "--if", "status="]].concat());
    assert_eq!((exit, &error["current_version"]), (7, &first["offset"]));
    let listed = node.json(&["state", "ls", "orders", "order-7"]);
    assert_eq!(listed["items"][0]["key"], json!("status"));
    let (exit, _) = node.fails(&["state", "get", "orders", "order-7", "nothing"]);
    assert_eq!(exit, 3);
    assert_eq!(node.ok(&["read", "orders"]), "paid\n");
}

#[test]
fn a_record_waits_for_its_time_or_is_taken_back() {
    let node = Node::ephemeral();
    let made = node.json(&["pub", "orders", "later", "--in", "1h"]);
    let id = made["items"][0]["id"].as_str().expect("a name").to_owned();
    let listed = node.json(&["schedule", "ls", "orders"]);
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["value"]),
        (&json!(id), &json!("later"))
    );
    node.ok(&["schedule", "cancel", "orders", &id]);
    let (exit, _) = node.fails(&["schedule", "cancel", "orders", &id]);
    assert_eq!(exit, 3);
    node.ok(&["pub", "orders", "soon", "--in", "1ms"]);
    let seen = node.run(&["sub", "orders", "--from", "earliest", "--count", "1"]);
    assert_eq!(text(&seen.stdout), "soon\n");
}
