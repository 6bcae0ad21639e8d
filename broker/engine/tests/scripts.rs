//! Runs the scripts in `testdata/`: commands, and below `----` what the shard did.
//!
//! `UPDATE_SCRIPTS=1 cargo test -p felix-engine --test scripts` rewrites the transcripts; the diff
//! is then what is reviewed.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod script;

use std::fs;
use std::path::{Path, PathBuf};

use script::Interpreter;

#[test]
fn every_script_gives_its_transcript() {
    let mut changed = Vec::new();
    for path in scripts() {
        let old = fs::read_to_string(&path).expect("script is readable");
        let new = rerun(&old);
        if new != old {
            if std::env::var_os("UPDATE_SCRIPTS").is_some() {
                fs::write(&path, &new).expect("script is writable");
            }
            changed.push(difference(&path, &old, &new));
        }
    }
    let update = std::env::var_os("UPDATE_SCRIPTS").is_some();
    assert!(
        changed.is_empty() || update,
        "transcripts differ:\n{}",
        changed.join("\n")
    );
}

#[test]
fn the_promised_scripts_are_there() {
    let names: Vec<String> = scripts()
        .iter()
        .map(|path| {
            path.file_stem()
                .expect("a file")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    for promised in [
        "append_and_commit",
        "close",
        "conditional_publish",
        "control_batches",
        "early_acks",
        "history_to_live",
        "idempotent_producer",
        "memory_overflow_block",
        "memory_overflow_drop_new",
        "memory_overflow_drop_old",
        "retention_overtakes",
        "slow_reader",
        "write_failure_full",
        "write_failure_io",
    ] {
        assert!(
            names.iter().any(|name| name == promised),
            "testdata/{promised}.txt is missing"
        );
    }
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .expect("testdata is there")
        .map(|entry| entry.expect("testdata is readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .collect();
    paths.sort();
    paths
}

/// The script with fresh transcripts. Blank lines separate commands from each other; everything
/// between `----` and the next blank line is the transcript.
fn rerun(script: &str) -> String {
    let mut interpreter = Interpreter::default();
    let mut out = Vec::new();
    for block in script.trim_end().split("\n\n") {
        let commands: Vec<&str> = block.lines().take_while(|line| *line != "----").collect();
        let mut transcript: Vec<String> = Vec::new();
        let mut said_anything = false;
        for command in commands.iter().filter(|line| !line.starts_with('#')) {
            said_anything = true;
            transcript.extend(interpreter.run(command));
        }
        let mut block = commands.join("\n");
        if said_anything {
            if transcript.is_empty() {
                transcript.push("ok".to_owned());
            }
            block = format!("{block}\n----\n{}", transcript.join("\n"));
        }
        out.push(block);
    }
    out.join("\n\n") + "\n"
}

fn difference(path: &Path, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let first = old
        .iter()
        .zip(&new)
        .take_while(|(old, new)| old == new)
        .count();
    let around =
        |lines: &[&str]| lines[first.saturating_sub(4)..lines.len().min(first + 6)].join("\n  ");
    format!(
        "{} line {}:\nwritten\n  {}\nhappened\n  {}\n",
        path.display(),
        first + 1,
        around(&old),
        around(&new)
    )
}
