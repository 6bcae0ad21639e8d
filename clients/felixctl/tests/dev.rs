//! The program against a real node: `felixctl dev` in one process, commands in others.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A development node and the home directory of the person who started it.
struct Node {
    home: tempfile::TempDir,
    process: Child,
}

impl Node {
    /// Starts a node whose data goes with it.
    fn ephemeral() -> Self {
        Self::start(tempfile::tempdir().expect("a home"), &["--ephemeral"])
    }

    /// Starts a node and returns when it said that it is ready.
    fn start(home: tempfile::TempDir, flags: &[&str]) -> Self {
        let mut process = felixctl(home.path())
            .args(["dev", "--port-base", "0", "--ready-file"])
            .arg(home.path().join("ready.json"))
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("felixctl runs");
        let mut lines = BufReader::new(process.stdout.take().expect("standard output")).lines();
        let ready = lines.any(|line| line.is_ok_and(|line| line.contains("Ctrl-C stops it")));
        assert!(ready, "the node ended before it was ready");
        // The node writes on; somebody has to read.
        std::thread::spawn(move || lines.for_each(drop));
        Self { home, process }
    }

    fn run(&self, args: &[&str]) -> Output {
        felixctl(self.home.path())
            .args(args)
            .output()
            .expect("felixctl runs")
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).expect("json")
    }

    fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        (
            output.status.code().expect("an exit status"),
            text(&output.stderr),
        )
    }

    fn ready(&self) -> Value {
        let file = std::fs::read_to_string(self.home.path().join("ready.json"));
        serde_json::from_str(&file.expect("the ready file")).expect("json")
    }

    /// Presses Ctrl-C and waits; gives back the home directory and the exit status.
    fn stop(mut self) -> (tempfile::TempDir, Option<i32>) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::INT).expect("the node is told to stop");
        let status = self.process.wait().expect("the node ends");
        let home = std::mem::replace(&mut self.home, tempfile::tempdir().expect("a directory"));
        (home, status.code())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn felixctl(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_felixctl"));
    command
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Replaces what differs from run to run, at any depth.
fn redacted(mut value: Value) -> Value {
    const VARYING: [&str; 9] = [
        "timestamp",
        "timestamp_ms",
        "issued_at",
        "expires_at",
        "key_id",
        "directory",
        "brokers",
        "controlplane_url",
        "version",
    ];
    match &mut value {
        Value::Object(object) => {
            let setting = object.get("setting").is_some();
            for (name, value) in object.iter_mut() {
                let varies = VARYING.contains(&name.as_str()) || (setting && name == "value");
                *value = match varies && !value.is_null() {
                    true => json!(format!("[{name}]")),
                    false => redacted(value.take()),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = redacted(item.take());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

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
fn every_read_command_has_its_reviewed_json() {
    let node = Node::ephemeral();
    node.ok(&[
        "pub",
        "orders",
        "hello",
        "--key",
        "cust-7",
        "-H",
        "source=web",
    ]);
    let mut golden = serde_json::Map::new();
    for command in [
        "stream ls",
        "stream info orders",
        "tenant ls",
        "tenant info dev",
        "namespace ls",
        "namespace info default",
        "cache ls",
        "cache info config",
        "shard ls",
        "context ls",
        "context show",
        "token decode",
        "auth explain stream.publish stream:dev/default/orders",
        "read orders",
        "sub orders --from earliest --count 1",
        "version",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let answer = node.json(&args);
        let schema = answer["schema"].as_str().expect("a schema");
        assert!(
            schema.starts_with("felixctl.") && schema.ends_with("/1"),
            "{command}: {schema}"
        );
        golden.insert(command.to_owned(), redacted(answer));
    }
    let text = serde_json::to_string_pretty(&Value::Object(golden)).expect("json");
    insta::assert_snapshot!(text);
}

#[test]
fn a_table_shows_the_fields_of_the_json() {
    let node = Node::ephemeral();
    let table = node.ok(&["stream", "ls"]);
    let head: Vec<String> = table
        .lines()
        .next()
        .expect("a head")
        .split("  ")
        .map(|name| name.trim().to_lowercase().replace(' ', "_"))
        .filter(|name| !name.is_empty())
        .collect();
    let json = node.json(&["stream", "ls"]);
    let fields = json["items"][0].as_object().expect("an item");
    assert_eq!(head.len(), fields.len());
    assert!(
        head.iter().all(|name| fields.contains_key(name)),
        "{head:?}"
    );
}

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
fn an_offset_that_does_not_exist_exits_with_3_and_names_the_next() {
    let node = Node::ephemeral();
    node.ok(&["pub", "orders", "hello"]);
    let (exit, stderr) = node.fails(&["sub", "orders", "--from", "99"]);
    assert_eq!(exit, 3);
    assert!(stderr.contains("the next is 1"), "{stderr}");
}

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
fn a_backup_of_a_running_node_is_restored_and_serves() {
    let node = Node::start(tempfile::tempdir().expect("a home"), &[]);
    node.ok(&["pub", "orders", "before", "--key", "k", "-H", "a=b"]);
    node.ok(&["stream", "create", "clicks", "--shards", "2"]);
    node.ok(&["pub", "clicks", "one"]);
    let path = |name: &str| {
        node.home
            .path()
            .join(name)
            .to_str()
            .expect("a path")
            .to_owned()
    };
    let (copy, data) = (path("copy"), path("data"));
    let said = node.json(&["backup", &copy]);
    assert_eq!(said["records"], 2);
    node.ok(&["pub", "orders", "after"]);
    let (exit, _) = node.fails(&["backup", &copy]);
    assert_eq!(exit, 7, "a backup goes into a new directory");
    assert_eq!(
        node.json(&["restore", &copy, "--data-dir", &data, "--dry-run"])["restored"],
        false
    );
    assert!(!Path::new(&data).exists(), "a check restores nothing");
    assert_eq!(
        node.json(&["restore", &copy, "--data-dir", &data])["records"],
        2
    );
    let (exit, _) = node.fails(&["restore", &copy, "--data-dir", &data]);
    assert_eq!(exit, 7, "a restore never overwrites");
    let (home, _) = node.stop();
    let restored = Node::start(home, &["--data-dir", &data]);
    let format = ["-f", "%o %k %h %v\\n"];
    let read = restored.ok(&[&["read", "orders"], &format[..]].concat());
    assert_eq!(read, "0 k a=b before\n", "the copy is as old as the backup");
    assert_eq!(restored.ok(&["read", "clicks"]), "one\n");
    let said = restored.ok(&["pub", "orders", "next"]);
    assert_eq!(said, "published 1 record to orders at offset 1\n");
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let node = Node::start(tempfile::tempdir().expect("a home"), &[]);
    node.ok(&["pub", "orders", "a value that will be damaged"]);
    let copy = node.home.path().join("copy");
    node.ok(&["backup", copy.to_str().expect("a path")]);
    let log = find(&copy, ".log").expect("a segment in the copy");
    let mut bytes = std::fs::read(&log).expect("the segment");
    *bytes.last_mut().expect("a byte") ^= 1;
    std::fs::write(&log, bytes).expect("damaged");
    let data = node.home.path().join("data");
    let args = ["restore", copy.to_str().expect("a path"), "--data-dir"];
    let (exit, stderr) = node.fails(&[&args[..], &[data.to_str().expect("a path")]].concat());
    assert_eq!(exit, 1, "{stderr}");
}

/// The first file of a stream below a directory whose name ends so.
fn find(directory: &Path, end: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().find_map(|path| {
        if path.is_dir() {
            return find(&path, end);
        }
        path.to_str()
            .is_some_and(|name| name.ends_with(end))
            .then_some(path)
    })
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
