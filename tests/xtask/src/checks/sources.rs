//! Rules about Rust files.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::Workspace;
use crate::rust::{Source, line_of};
use crate::tree::{Complaint, Tree};

/// A file longer than this is mentioned; one that is far longer is refused.
const LINES_MENTIONED: usize = 500;
const LINES_MAX: usize = 900;

/// Every crate's root begins with what lives here, what never does, and where to begin.
pub(crate) fn heads(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let mut found = Vec::new();
    for member in &workspace.members {
        let has_library = member.roots.iter().any(|(_, kind)| kind == "lib");
        let wanted = if has_library { "lib" } else { "bin" };
        for (path, _) in member.roots.iter().filter(|(_, kind)| kind == wanted) {
            let head: Vec<&str> = tree
                .text(path)
                .lines()
                .take_while(|line| line.starts_with("//!"))
                .collect();
            let paragraphs = head
                .split(|line| line.trim() == "//!")
                .filter(|paragraph| !paragraph.is_empty())
                .count();
            if paragraphs < 3 {
                found.push(Complaint::new(
                    path,
                    1,
                    "the head needs three paragraphs: what lives here, what never does, where to begin",
                ));
            }
        }
    }
    found
}

/// Every Rust file can be reached from the root of some target.
pub(crate) fn dead_files(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(String, bool)> = workspace
        .members
        .iter()
        .flat_map(|member| member.roots.iter().map(|(path, _)| (path.clone(), true)))
        .chain(roots_outside(tree))
        .collect();
    while let Some((path, is_root)) = open.pop() {
        if !tree.has(&path) || !reached.insert(path.clone()) {
            continue;
        }
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let stem = path
            .rsplit('/')
            .next()
            .unwrap_or("")
            .trim_end_matches(".rs");
        let below = if is_root || stem == "mod" {
            directory.to_owned()
        } else {
            format!("{directory}/{stem}")
        };
        for (name, at) in Source::scan(tree.text(&path)).modules() {
            match at {
                Some(at) => open.push((format!("{directory}/{at}"), true)),
                None => {
                    open.push((format!("{below}/{name}.rs"), false));
                    open.push((format!("{below}/{name}/mod.rs"), false));
                }
            }
        }
    }
    tree.ending(".rs")
        .filter(|(path, _)| !reached.contains(*path) && !path.contains("/testdata/"))
        .map(|(path, _)| {
            Complaint::new(
                path,
                0,
                "no target reaches this file: declare it or remove it",
            )
        })
        .collect()
}

/// Roots of crates that stand outside the workspace, as fuzz targets do: every `path = "…"` of their manifests.
fn roots_outside(tree: &Tree) -> Vec<(String, bool)> {
    let mut roots = Vec::new();
    for (manifest, text) in tree.ending("/Cargo.toml") {
        let directory = manifest.trim_end_matches("/Cargo.toml");
        for line in text.lines() {
            if let Some(path) = line
                .strip_prefix("path = \"")
                .and_then(|rest| rest.strip_suffix('"'))
                && path.ends_with(".rs")
            {
                roots.push((format!("{directory}/{path}"), true));
            }
        }
        let usual = ["build.rs", "src/lib.rs", "src/main.rs"];
        roots.extend(usual.map(|path| (format!("{directory}/{path}"), true)));
    }
    roots
}

/// A test without an assertion proves nothing. It may leave asserting to a function of the same file, to a helper of
/// the same crate's tests, to the entry of a fuzz target, which panics at what must not be, or to the compiler.
pub(crate) fn tests_assert(tree: &Tree) -> Vec<Complaint> {
    let mut helpers: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in tree
        .ending(".rs")
        .filter(|(path, _)| path.contains("/tests/"))
    {
        let own = asserting_functions(&Source::scan(text), &BTreeSet::new());
        // Nearly everything has a `new`; that one of them may panic says nothing about a test.
        let own = own.into_iter().filter(|call| call != "new(");
        helpers.entry(crate_of(path)).or_default().extend(own);
    }
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let source = Source::scan(text);
        let none = BTreeSet::new();
        let asserting = asserting_functions(&source, helpers.get(crate_of(path)).unwrap_or(&none));
        for (name, line, body) in source.tests() {
            if !asserts(body, &asserting) {
                found.push(Complaint::new(
                    path,
                    line,
                    format!("test {name} asserts nothing"),
                ));
            }
        }
    }
    found
}

/// The directory of the crate that a file belongs to.
fn crate_of(path: &str) -> &str {
    let end = path
        .rfind("/tests/")
        .or_else(|| path.rfind("/src/"))
        .unwrap_or(0);
    path.get(..end).unwrap_or("")
}

/// Functions that assert, by themselves or through each other, with the bracket that a call of them has; to begin
/// with those that are known to.
fn asserting_functions(source: &Source, known: &BTreeSet<String>) -> BTreeSet<String> {
    let functions = source.functions();
    let mut asserting = known.clone();
    loop {
        let before = asserting.len();
        for (name, body) in &functions {
            if asserts(body, &asserting) {
                asserting.insert(format!("{name}("));
            }
        }
        if asserting.len() == before {
            return asserting;
        }
    }
}

fn asserts(body: &str, asserting: &BTreeSet<String>) -> bool {
    const WORDS: [&str; 9] = [
        "assert",
        "panic!",
        "expect",
        "unwrap",
        "check",
        "snapshot",
        "prop_",
        "entry::",
        "Send + Sync",
    ];
    WORDS.iter().any(|word| body.contains(word))
        || asserting.iter().any(|call| body.contains(call.as_str()))
}

/// No test is switched off.
pub(crate) fn no_ignored_tests(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let code = Source::scan(text).code;
        for (at, _) in code.match_indices("#[ignore") {
            found.push(Complaint::new(
                path,
                line_of(&code, at),
                "a test is ignored: repair it or remove it",
            ));
        }
    }
    found
}

/// What is left to do has an issue number.
pub(crate) fn numbered_todos(tree: &Tree) -> Vec<Complaint> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    let mut found = Vec::new();
    for (path, text) in tree
        .all()
        .filter(|(path, _)| !path.ends_with(".md") && !path.ends_with(".lock"))
    {
        for (index, line) in text.lines().enumerate() {
            let numbered = line
                .split('#')
                .skip(1)
                .any(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
            if words.iter().any(|word| line.contains(word)) && !numbered {
                found.push(Complaint::new(
                    path,
                    index + 1,
                    "what is left to do needs an issue number (#12)",
                ));
            }
        }
    }
    found
}

/// Files that are far too long.
pub(crate) fn too_long(tree: &Tree) -> Vec<Complaint> {
    longer_than(tree, LINES_MAX)
}

/// Files that are asking to be two.
pub(crate) fn long(tree: &Tree) -> Vec<Complaint> {
    longer_than(tree, LINES_MENTIONED)
}

fn longer_than(tree: &Tree, lines: usize) -> Vec<Complaint> {
    tree.ending(".rs")
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, count)| *count > lines)
        .map(|(path, count)| {
            Complaint::new(
                path,
                0,
                format!("{count} lines; over {lines} a file is asking to be two"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Member;

    fn library(path: &str) -> Workspace {
        let roots = vec![(path.to_owned(), "lib".to_owned())];
        Workspace {
            members: vec![Member {
                name: "a".into(),
                roots,
                ..Member::default()
            }],
        }
    }

    #[test]
    fn a_head_of_fewer_than_three_paragraphs_is_refused() {
        let good = Tree::of(&[(
            "a/src/lib.rs",
            "//! One.\n//!\n//! Two,\n//! still.\n//!\n//! Three.\nmod b;\n",
        )]);
        let bad = Tree::of(&[("a/src/lib.rs", "//! One.\n//!\n//! Two.\n")]);
        assert_eq!(heads(&good, &library("a/src/lib.rs")), []);
        assert_eq!(heads(&bad, &library("a/src/lib.rs")).len(), 1);
    }

    #[test]
    fn a_file_that_no_target_reaches_is_refused() {
        let tree = Tree::of(&[
            (
                "a/src/lib.rs",
                "mod b;\n#[path = \"odd.rs\"]\nmod c;\n// mod dead;\n",
            ),
            ("a/src/b.rs", "pub(crate) mod deep;\n"),
            ("a/src/b/deep.rs", ""),
            ("a/src/odd.rs", ""),
            ("a/src/dead.rs", ""),
            (
                "a/fuzz/Cargo.toml",
                "[[bin]]\npath = \"targets/frame.rs\"\n",
            ),
            ("a/fuzz/targets/frame.rs", ""),
        ]);
        let found = dead_files(&tree, &library("a/src/lib.rs"));
        assert_eq!(
            found
                .iter()
                .map(|one| one.place.as_str())
                .collect::<Vec<_>>(),
            ["a/src/dead.rs"]
        );
    }

    #[test]
    fn a_test_that_asserts_nothing_is_refused() {
        let text =
            "#[test]\nfn good() { assert!(true) }\n#[test]\nfn bad() { let _ = 1; /* assert */ }\n";
        let elsewhere = "#[test]\nfn helped() { common::told(3).await }\n#[test]\nfn alone() { Thing::new() }\n";
        let common = "pub fn told(n: u8) { assert!(n > 1) }\nfn new() { panic!() }\n";
        let tree = [
            ("b/tests/one.rs", elsewhere),
            ("b/tests/common/mod.rs", common),
        ];
        let found = tests_assert(&Tree::of(&tree));
        assert_eq!(
            found,
            [Complaint::new(
                "b/tests/one.rs",
                4,
                "test alone asserts nothing"
            )]
        );
        let found = tests_assert(&Tree::of(&[("a.rs", text)]));
        assert_eq!(
            found,
            [Complaint::new("a.rs", 4, "test bad asserts nothing")]
        );
    }

    #[test]
    fn an_ignored_test_is_refused() {
        let text = format!(
            "#[test]\n#[{}]\nfn bad() {{ assert!(true) }}\n",
            "ignore = \"later\""
        );
        assert_eq!(no_ignored_tests(&Tree::of(&[("a.rs", &text)])).len(), 1);
    }

    #[test]
    fn what_is_left_to_do_needs_a_number() {
        let word = concat!("TO", "DO");
        let tree = Tree::of(&[("a.rs", &format!("// {word}: later\n// {word}(#7): later\n"))]);
        assert_eq!(
            numbered_todos(&tree),
            [Complaint::new(
                "a.rs",
                1,
                "what is left to do needs an issue number (#12)"
            )]
        );
    }

    #[test]
    fn long_files_are_mentioned_and_very_long_ones_refused() {
        let (long_file, longest) = ("\n".repeat(LINES_MENTIONED + 1), "\n".repeat(LINES_MAX + 1));
        let tree = Tree::of(&[("a.rs", &long_file), ("b.rs", &longest), ("c.rs", "\n")]);
        assert_eq!(long(&tree).len(), 2);
        assert_eq!(
            too_long(&tree)
                .iter()
                .map(|one| one.place.as_str())
                .collect::<Vec<_>>(),
            ["b.rs"]
        );
    }
}
