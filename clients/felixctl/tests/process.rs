//! The program as a shell sees it: exit statuses, standard output and standard error, without a
//! server to speak to.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A home directory of its own, so that the contexts of whoever runs the tests stay untouched.
struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_felixctl"))
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("felixctl runs")
    }

    /// Runs and checks the exit status; gives back standard output.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs and gives back the exit status and standard error.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        (
            output.status.code().expect("an exit status"),
            text(&output.stderr),
        )
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("json")
}

#[test]
fn a_misspelt_command_exits_with_2_and_a_suggestion() {
    let (exit, stderr) = Home::new().fails(&["straem", "ls"]);
    assert_eq!(exit, 2);
    assert!(stderr.contains("stream"), "{stderr}");
}

#[test]
fn help_and_version_exit_with_0_on_standard_output() {
    let home = Home::new();
    assert!(home.ok(&["--help"]).contains("Exit status:"));
    assert!(home.ok(&["--version"]).starts_with("felixctl "));
    assert_eq!(
        json(&home.ok(&["version", "--json"]))["schema"],
        "felixctl.version/1"
    );
}

#[test]
fn a_command_that_knows_no_server_says_which_flag_is_missing() {
    let (exit, stderr) = Home::new().fails(&["stream", "ls"]);
    assert_eq!(exit, 2);
    assert!(stderr.contains("--controlplane"), "{stderr}");
}

#[test]
fn with_json_an_error_is_one_object_with_its_exit_status() {
    let home = Home::new();
    let (exit, stderr) = home.fails(&["stream", "ls", "--json"]);
    assert_eq!(json(&stderr)["exit"], exit);
    let (exit, stderr) = home.fails(&["stream", "lss", "--json"]);
    assert_eq!((exit, json(&stderr)["exit"].clone()), (2, 2.into()));
}

#[test]
fn a_control_plane_that_does_not_answer_exits_with_5() {
    let home = Home::new();
    let args = [
        "tenant",
        "ls",
        "--controlplane-url",
        "http://127.0.0.1:1",
        "--controlplane-token",
        "x",
    ];
    let (exit, stderr) = home.fails(&args);
    assert_eq!(exit, 5, "{stderr}");
    assert!(stderr.contains("127.0.0.1:1"), "{stderr}");
}

#[test]
fn contexts_are_added_listed_selected_shown_and_forgotten() {
    let home = Home::new();
    home.ok(&[
        "context",
        "add",
        "dev",
        "--brokers",
        "127.0.0.1:5000",
        "--tenant",
        "dev",
    ]);
    home.ok(&[
        "context",
        "add",
        "prod",
        "--brokers",
        "b1:5000,b2:5000",
        "--token",
        "secret",
    ]);
    let listed = json(&home.ok(&["context", "ls", "--json"]));
    assert_eq!(listed["schema"], "felixctl.context.ls/1");
    assert_eq!(listed["items"][0]["name"], "dev");
    assert_eq!(listed["items"][0]["selected"], true);
    assert_eq!(listed["items"][1]["brokers"][1], "b2:5000");
    home.ok(&["context", "use", "prod"]);
    let shown = home.ok(&["context", "show", "--json"]);
    assert!(!shown.contains("secret"), "tokens are not shown");
    let (exit, stderr) = home.fails(&["context", "use", "prodd"]);
    assert_eq!(exit, 3);
    assert!(stderr.contains("did you mean prod?"), "{stderr}");
    let (exit, _) = home.fails(&["context", "add", "dev", "--tenant", "x"]);
    assert_eq!(exit, 7);
    let (exit, stderr) = home.fails(&["context", "rm", "prod"]);
    assert_eq!(exit, 2, "without a terminal nobody can be asked: {stderr}");
    home.ok(&["context", "rm", "prod", "--yes"]);
    assert_eq!(home.ok(&["context", "ls", "-o", "name"]), "dev\n");
}

#[test]
fn a_flag_beats_the_environment_and_the_environment_beats_the_context() {
    let home = Home::new();
    home.ok(&[
        "context",
        "add",
        "dev",
        "--tenant",
        "from-context",
        "-n",
        "from-context",
    ]);
    let output = Command::new(env!("CARGO_BIN_EXE_felixctl"))
        .args(["context", "show", "--json", "--server-name", "from-flag"])
        .env_clear()
        .env("HOME", home.path())
        .env("FELIX_AUTH_TENANT", "from-environment")
        .env("FELIX_SERVER_NAME", "from-environment")
        .output()
        .expect("felixctl runs");
    let shown = json(&text(&output.stdout));
    let setting = |name: &str| {
        let items = shown["items"].as_array().expect("items");
        items
            .iter()
            .find(|item| item["setting"] == name)
            .expect("the setting")
            .clone()
    };
    assert_eq!(setting("server_name")["value"], "from-flag");
    assert_eq!(setting("server_name")["origin"], "flag");
    assert_eq!(setting("tenant")["value"], "from-environment");
    assert_eq!(setting("tenant")["origin"], "environment");
    assert_eq!(setting("namespace")["value"], "from-context");
    assert_eq!(setting("namespace")["origin"], "context");
}

#[test]
fn context_add_saves_flags_and_not_the_environment() {
    let home = Home::new();
    let output = Command::new(env!("CARGO_BIN_EXE_felixctl"))
        .args([
            "context",
            "add",
            "dev",
            "--tenant",
            "dev",
            "--ca-file",
            "ca.pem",
        ])
        .env_clear()
        .env("HOME", home.path())
        .env("FELIX_AUTH_TOKEN", "from-environment")
        .current_dir(home.path())
        .output()
        .expect("felixctl runs");
    assert!(output.status.success());
    let file = std::fs::read_to_string(home.path().join(".config/felixctl/config.toml"));
    let file = file.expect("the contexts");
    assert!(!file.contains("from-environment"), "{file}");
    assert!(
        file.contains(home.path().to_str().expect("a path")),
        "the path is absolute: {file}"
    );
}

#[test]
fn every_shell_gets_a_completion_script() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(
            home.ok(&["completions", shell]).contains("felixctl"),
            "{shell}"
        );
    }
}

#[test]
fn auth_explain_exits_with_4_when_the_answer_is_no() {
    // {"alg":"EdDSA"} . {"tid":"dev","perms":["stream.publish:stream:dev/default/*"]} . signature
    let token = "eyJhbGciOiJFZERTQSJ9.\
                 eyJ0aWQiOiJkZXYiLCJwZXJtcyI6WyJzdHJlYW0ucHVibGlzaDpzdHJlYW06ZGV2L2RlZmF1bHQvKiJdfQ.\
                 c2ln";
    let home = Home::new();
    let explain = |action| {
        home.run(&[
            "auth",
            "explain",
            action,
            "stream:dev/default/orders",
            "--token",
            token,
        ])
    };
    assert_eq!(explain("stream.publish").status.code(), Some(0));
    assert_eq!(explain("stream.subscribe").status.code(), Some(4));
    let (exit, stderr) = home.fails(&["auth", "explain", "stream.publsh", "stream:dev/a/b"]);
    assert_eq!(exit, 2);
    assert!(stderr.contains("did you mean stream.publish?"), "{stderr}");
}

#[test]
fn output_that_nobody_reads_any_more_is_no_error() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_felixctl"));
    command
        .args(["completions", "bash"])
        .env_clear()
        .env("HOME", home.path());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).output().expect("felixctl runs");
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
}

#[test]
fn a_restore_of_what_is_no_backup_exits_with_3() {
    let home = Home::new();
    let from = home.path().join("nothing");
    let to = home.path().join("data");
    let (exit, stderr) = home.fails(&[
        "restore",
        from.to_str().expect("a path"),
        "--data-dir",
        to.to_str().expect("a path"),
    ]);
    assert_eq!(exit, 3, "{stderr}");
    assert!(!to.exists(), "nothing was made");
}
