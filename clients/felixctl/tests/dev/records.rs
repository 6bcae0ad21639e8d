//! Publishing, following, reading, and the streams it happens on.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::node::{Node, felixctl, text};

#[test]
fn a_newcomer_publishes_and_reads_back_key_headers_and_value() {
    let node = Node::ephemeral();
    let said = node.ok(&[
        "pub",
        "orders",
        "hello",
        "--key",
        "cust-7",
        "-H",
        "source=web",
    ]);
    assert_eq!(said, "published 1 record to orders at offset 0\n");
    assert_eq!(node.ok(&["read", "orders"]), "hello\n");
    let format = "%p %o %k %h %v\\n";
    let shown = node.ok(&[
        "sub", "orders", "--from", "earliest", "--count", "1", "-f", format,
    ]);
    assert_eq!(shown, "0 0 cust-7 source=web hello\n");
}

#[test]
fn what_read_prints_as_json_is_published_again_by_pub() {
    let node = Node::ephemeral();
    node.ok(&["pub", "orders", "one", "--key", "k", "-H", "a=b"]);
    node.ok(&["stream", "create", "copy"]);
    let records = node.run(&["read", "orders", "--json"]).stdout;
    let mut publish = felixctl(node.home.path())
        .args(["pub", "copy", "--ndjson"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("felixctl runs");
    let mut input = publish.stdin.take().expect("standard input");
    std::io::Write::write_all(&mut input, &records).expect("written");
    drop(input);
    assert!(publish.wait().expect("felixctl ends").success());
    let format = ["-f", "%k %h %v\\n"];
    let copied = node.ok(&[&["read", "copy"], &format[..]].concat());
    assert_eq!(
        copied,
        node.ok(&[&["read", "orders"], &format[..]].concat())
    );
}

/// Case B71: a misspelt name does not hang; it exits with 3 and names the right one.
#[test]
fn a_misspelt_stream_exits_with_3_and_names_the_right_one() {
    let node = Node::ephemeral();
    for args in [
        &["sub", "ordrs"][..],
        &["read", "ordrs"],
        &["pub", "ordrs", "x"],
    ] {
        let (exit, stderr) = node.fails(args);
        assert_eq!(exit, 3, "{args:?}: {stderr}");
        assert!(
            stderr.contains("did you mean orders?"),
            "{args:?}: {stderr}"
        );
    }
    let (exit, stderr) = node.fails(&["stream", "info", "ordrs", "--json"]);
    let error: Value = serde_json::from_str(&stderr).expect("json");
    assert_eq!((exit, &error["did_you_mean"][0]), (3, &json!("orders")));
}

/// The other half of case B71: who wants to wait says so.
#[test]
fn with_wait_a_subscription_begins_when_the_stream_appears() {
    let node = Node::ephemeral();
    let mut waiting = felixctl(node.home.path())
        .args([
            "sub", "later", "--wait", "--from", "earliest", "--count", "1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("felixctl runs");
    let mut stderr = BufReader::new(waiting.stderr.take().expect("standard error"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a line");
    assert!(said.contains("waiting for stream later"), "{said}");
    node.ok(&["stream", "create", "later"]);
    node.ok(&["pub", "later", "here"]);
    let output = waiting.wait_with_output().expect("felixctl ends");
    assert_eq!(text(&output.stdout), "here\n");
}

/// Case B72: JSON on every read command, with a versioned schema and reviewed fields.
#[test]
fn streams_are_created_changed_and_removed() {
    let node = Node::ephemeral();
    let created = node.json(&[
        "stream",
        "create",
        "clicks",
        "--shards",
        "4",
        "--retention-age",
        "7d",
    ]);
    assert_eq!(
        (&created["shards"], &created["retention_age_seconds"]),
        (&json!(4), &json!(604_800))
    );
    node.ok(&[
        "stream",
        "create",
        "clicks",
        "--shards",
        "4",
        "--retention-age",
        "7d",
    ]);
    let (exit, _) = node.fails(&["stream", "create", "clicks", "--shards", "5"]);
    assert_eq!(exit, 7, "another stream of this name exists");
    let changed = node.json(&["stream", "set", "clicks", "--retention-size", "1GiB"]);
    assert_eq!(changed["retention_bytes"], json!(1_u64 << 30));
    assert_eq!(
        changed["retention_age_seconds"],
        json!(604_800),
        "the other bound stays"
    );
    let (exit, stderr) = node.fails(&["stream", "rm", "clicks"]);
    assert_eq!(exit, 2, "without a terminal nobody can be asked: {stderr}");
    node.ok(&["stream", "rm", "clicks", "--yes"]);
    let (exit, _) = node.fails(&["stream", "info", "clicks"]);
    assert_eq!(exit, 3);
}

#[test]
fn records_of_all_shards_are_read_and_each_key_keeps_its_order() {
    let node = Node::ephemeral();
    node.ok(&["stream", "create", "clicks", "--shards", "3"]);
    for number in 0..12 {
        let key = format!("k{}", number % 4);
        node.ok(&["pub", "clicks", &number.to_string(), "--key", &key]);
    }
    let read = node.ok(&["read", "clicks", "-f", "%k %v\\n"]);
    for key in 0..4 {
        let of_key: Vec<&str> = read
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("k{key} ")))
            .collect();
        let published: Vec<String> = (0..3).map(|turn| (turn * 4 + key).to_string()).collect();
        assert_eq!(of_key, published);
    }
}

#[test]
fn a_subscription_that_is_interrupted_exits_with_130() {
    let node = Node::ephemeral();
    node.ok(&["pub", "orders", "hello"]);
    let mut following = felixctl(node.home.path())
        .args(["sub", "orders", "--from", "earliest"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("felixctl runs");
    let mut stdout = BufReader::new(following.stdout.take().expect("standard output"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a record");
    kill_process(Pid::from_child(&following), Signal::INT).expect("interrupted");
    assert_eq!(following.wait().expect("felixctl ends").code(), Some(130));
}

#[test]
fn an_offset_that_does_not_exist_exits_with_3_and_names_the_next() {
    let node = Node::ephemeral();
    node.ok(&["pub", "orders", "hello"]);
    let (exit, stderr) = node.fails(&["sub", "orders", "--from", "99"]);
    assert_eq!(exit, 3);
    assert!(stderr.contains("the next is 1"), "{stderr}");
}
