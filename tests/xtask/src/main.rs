//! `cargo xtask tidy` keeps the house rules; `cargo xtask docs` writes the tables that are made from the code.
//!
//! What lives here: each rule of docs/STYLE.md that a program can keep, as a function from the repository's text to
//! complaints, with a small bad example that it must catch.
//!
//! What never does: rules that need judgement, and anything the product needs at run time.
//!
//! Begin with [`tidy::complaints`], the list of rules; [`tree::Tree`] is what they read.

mod checks;
mod docs;
mod metadata;
mod rust;
mod tidy;
mod tree;

use std::process::ExitCode;

use tree::Tree;

const USAGE: &str = "usage: cargo xtask tidy | docs [--check]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => tidy(),
        ["docs"] => docs(false),
        ["docs", "--check"] => docs(true),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> Result<(), String> {
    let root = tree::repository_root();
    let tree = Tree::read(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let workspace = metadata::Workspace::read(&root)?;
    for warning in tidy::warnings(&tree, &workspace) {
        println!("warning: {warning}");
    }
    let complaints = tidy::complaints(&tree, &workspace);
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!(
        "tidy: {} files, {} complaints",
        tree.len(),
        complaints.len()
    );
    if complaints.is_empty() {
        Ok(())
    } else {
        Err("the repository is not tidy".to_owned())
    }
}

fn docs(only_check: bool) -> Result<(), String> {
    let root = tree::repository_root();
    let tree = Tree::read(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let stale = docs::stale(&tree)?;
    for (path, text) in &stale {
        if only_check {
            println!("{path}: a table is not what the code says; run `cargo xtask docs`");
        } else {
            std::fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
            println!("{path}: written");
        }
    }
    if only_check && !stale.is_empty() {
        Err("documents are stale".to_owned())
    } else {
        Ok(())
    }
}
