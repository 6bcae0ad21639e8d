//! A node in a process of its own, and the commands of the person who started it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A development node and the home directory of the person who started it.
pub(crate) struct Node {
    pub(crate) home: tempfile::TempDir,
    process: Child,
}

impl Node {
    /// Starts a node whose data goes with it.
    pub(crate) fn ephemeral() -> Self {
        Self::start(tempfile::tempdir().expect("a home"), &["--ephemeral"])
    }

    /// Starts a node and returns when it said that it is ready.
    pub(crate) fn start(home: tempfile::TempDir, flags: &[&str]) -> Self {
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

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        felixctl(self.home.path())
            .args(args)
            .output()
            .expect("felixctl runs")
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).expect("json")
    }

    pub(crate) fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        (
            output.status.code().expect("an exit status"),
            text(&output.stderr),
        )
    }

    pub(crate) fn ready(&self) -> Value {
        let file = std::fs::read_to_string(self.home.path().join("ready.json"));
        serde_json::from_str(&file.expect("the ready file")).expect("json")
    }

    /// Presses Ctrl-C and waits; gives back the home directory and the exit status.
    pub(crate) fn stop(mut self) -> (tempfile::TempDir, Option<i32>) {
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

pub(crate) fn felixctl(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_felixctl"));
    command
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
