//! Backups of a running node, and what restoring them gives.

use std::path::{Path, PathBuf};

use crate::node::Node;

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
    assert!(!data.exists(), "nothing has the name of a data directory");
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
