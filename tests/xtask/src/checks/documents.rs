//! Rules about documents: their shape, and that they name what the code has.

use std::collections::BTreeSet;

use crate::metadata::Workspace;
use crate::rust::Source;
use crate::tree::{Complaint, Tree};

const OPERATING: &str = "docs/OPERATING.md";
const PROTOCOL: &str = "docs/PROTOCOL.md";
/// The map stays short enough to be read in one sitting.
const ARCHITECTURE_LINES_MAX: usize = 250;

/// Every document has one title.
pub(crate) fn one_title(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".md") {
        let titles = prose(text)
            .filter(|(_, line)| line.starts_with("# "))
            .count();
        if titles != 1 {
            found.push(Complaint::new(
                path,
                1,
                format!("has {titles} titles (`# `); a document has one"),
            ));
        }
    }
    found
}

/// Links to files of the repository lead somewhere.
pub(crate) fn links(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".md") {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for (line_number, line) in prose(text) {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let target = target.split('#').next().unwrap_or("");
                if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let resolved = resolve(directory, target);
                let is_directory = tree
                    .all()
                    .any(|(path, _)| path.starts_with(&format!("{resolved}/")));
                if !tree.has(&resolved) && !is_directory {
                    found.push(Complaint::new(
                        path,
                        line_number,
                        format!("links to {target}, which is not there"),
                    ));
                }
            }
        }
    }
    found
}

fn resolve(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = directory
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// The lines of a document outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// The map is short.
pub(crate) fn short_map(tree: &Tree) -> Vec<Complaint> {
    let lines = tree.text("docs/ARCHITECTURE.md").lines().count();
    let what = || format!("{lines} lines; the map stays under {ARCHITECTURE_LINES_MAX}");
    (lines > ARCHITECTURE_LINES_MAX)
        .then(|| Complaint::new("docs/ARCHITECTURE.md", 0, what()))
        .into_iter()
        .collect()
}

/// Decisions are numbered without gaps and answer the questions that a decision is read for.
pub(crate) fn decisions(tree: &Tree) -> Vec<Complaint> {
    const PARTS: [&str; 5] = [
        "## Question",
        "## Options",
        "## Choice",
        "## Price",
        "## How we would notice we were wrong",
    ];
    let mut found = Vec::new();
    let pages = tree
        .ending(".md")
        .filter(|(path, _)| path.starts_with("docs/adr/"));
    for (index, (path, text)) in pages.enumerate() {
        if !path.starts_with(&format!("docs/adr/{:04}-", index + 1)) {
            found.push(Complaint::new(
                path,
                0,
                format!("the number {:04} comes here", index + 1),
            ));
        }
        for part in PARTS
            .iter()
            .filter(|part| !text.lines().any(|line| line == **part))
        {
            found.push(Complaint::new(path, 0, format!("has no part `{part}`")));
        }
    }
    found
}

/// Every environment variable and every configuration key stands in OPERATING.md.
pub(crate) fn knobs(tree: &Tree) -> Vec<Complaint> {
    let operating = tree.text(OPERATING);
    let mut found = Vec::new();
    for (path, text) in products(tree) {
        let source = Source::scan(text);
        for name in source
            .product_strings()
            .filter(|text| is_variable(text))
            .collect::<BTreeSet<_>>()
        {
            if !operating.contains(name) {
                found.push(Complaint::new(
                    path,
                    0,
                    format!("{name} is not in {OPERATING}"),
                ));
            }
        }
        if path.ends_with("/config.rs") {
            for key in config_keys(&source.code) {
                let shown = |open, close| operating.contains(&format!("{open}{key}{close}"));
                let places = [('`', '`'), ('.', '`'), ('`', '.'), ('.', '.')];
                if !places.into_iter().any(|(open, close)| shown(open, close)) {
                    found.push(Complaint::new(
                        path,
                        0,
                        format!("the key `{key}` is not in {OPERATING}"),
                    ));
                }
            }
        }
    }
    found
}

fn is_variable(text: &str) -> bool {
    text.strip_prefix("FELIX_").is_some_and(|rest| {
        rest.len() > 1
            && !rest.ends_with('_')
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    })
}

/// Public fields of the structs in a `config.rs`.
fn config_keys(code: &str) -> BTreeSet<String> {
    code.lines()
        .filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'))
        .map(|(name, _)| name.to_owned())
        .filter(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        })
        .collect()
}

/// Every metric stands in OPERATING.md. They are named in the `metrics.rs` or `stats.rs` of each process.
pub(crate) fn metrics(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let crates: BTreeSet<String> = workspace
        .names()
        .iter()
        .map(|name| name.replace('-', "_"))
        .collect();
    let mut found = Vec::new();
    for (path, text) in products(tree)
        .filter(|(path, _)| path.ends_with("/metrics.rs") || path.ends_with("/stats.rs"))
    {
        for name in metric_names(text).difference(&crates) {
            if !tree.text(OPERATING).contains(&format!("`{name}`")) {
                found.push(Complaint::new(
                    path,
                    0,
                    format!("the metric {name} is not in {OPERATING}"),
                ));
            }
        }
    }
    found
}

/// String literals that have the shape of our metric names.
pub(crate) fn metric_names(text: &str) -> BTreeSet<String> {
    let is_name = |text: &&str| {
        text.strip_prefix("felix_").is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        })
    };
    Source::scan(text)
        .product_strings()
        .filter(is_name)
        .map(str::to_owned)
        .collect()
}

/// Every error code stands in PROTOCOL.md.
pub(crate) fn error_codes(tree: &Tree) -> Vec<Complaint> {
    let path = "broker/wire/src/error.rs";
    code_names(tree.text(path))
        .into_iter()
        .filter(|name| !tree.text(PROTOCOL).contains(&format!("`{name}`")))
        .map(|name| {
            Complaint::new(
                path,
                0,
                format!("the error code {name} is not in {PROTOCOL}"),
            )
        })
        .collect()
}

/// The names that a `Code` maps its variants to: every arm or row that pairs a variant with a snake-case string.
fn code_names(text: &str) -> BTreeSet<String> {
    let source = Source::scan(text);
    let tests = source.test_ranges();
    source
        .strings
        .iter()
        .filter(|(at, _)| !tests.iter().any(|range| range.contains(at)))
        .filter(|(_, name)| {
            !name.is_empty()
                && !name.ends_with('_')
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        })
        .filter(|(at, _)| {
            let line = source
                .code
                .get(..*at)
                .and_then(|before| before.rsplit('\n').next())
                .unwrap_or("");
            line.contains("Self::") || line.contains("Code::")
        })
        .map(|(_, name)| name.clone())
        .collect()
}

/// Sources of what we ship: everything but tests.
fn products(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.ending(".rs").filter(|(path, _)| {
        !path.starts_with("tests/") && !path.contains("/tests/") && !path.ends_with("/tests.rs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(found: &[Complaint]) -> String {
        found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_document_has_one_title() {
        let tree = Tree::of(&[
            ("good.md", "# One\n```sh\n# a comment\n```\n## Part\n"),
            ("none.md", "## Part\n"),
            ("two.md", "# One\n# Two\n"),
        ]);
        let places: Vec<_> = one_title(&tree).into_iter().map(|one| one.place).collect();
        assert_eq!(places, ["none.md", "two.md"]);
    }

    #[test]
    fn a_link_to_nowhere_is_refused() {
        let tree = Tree::of(&[
            (
                "docs/a.md",
                "[b](../b.md#part) [adr](adr/) [web](https://x.y) [gone](gone.md)\n",
            ),
            ("docs/adr/0001-x.md", ""),
            ("b.md", ""),
        ]);
        assert_eq!(
            links(&tree),
            [Complaint::new(
                "docs/a.md",
                1,
                "links to gone.md, which is not there"
            )]
        );
    }

    #[test]
    fn a_long_map_is_refused() {
        let long = "x\n".repeat(ARCHITECTURE_LINES_MAX + 1);
        assert_eq!(
            short_map(&Tree::of(&[("docs/ARCHITECTURE.md", &long)])).len(),
            1
        );
        assert_eq!(short_map(&Tree::of(&[("docs/ARCHITECTURE.md", "x\n")])), []);
    }

    #[test]
    fn decisions_are_numbered_and_whole() {
        let whole =
            "## Question\n## Options\n## Choice\n## Price\n## How we would notice we were wrong\n";
        let tree = Tree::of(&[
            ("docs/adr/0001-a.md", whole),
            ("docs/adr/0003-b.md", "## Question\n"),
        ]);
        let found = whats(&decisions(&tree));
        assert!(found.contains("the number 0002 comes here"), "{found}");
        assert!(found.contains("has no part `## Price`"), "{found}");
        assert!(!found.contains("0001-a"), "{found}");
    }

    #[test]
    fn an_undocumented_knob_is_refused() {
        let code = "pub struct Config {\n    /// Where.\n    pub listen: u16,\n    pub rate_max: u32,\n}\n\
                    const A: &str = \"FELIX_LISTEN\"; const B: &str = \"FELIX_RATE\";\n";
        let tree = Tree::of(&[
            ("b/src/config.rs", code),
            (OPERATING, "`listen` is `FELIX_LISTEN`"),
        ]);
        let found = whats(&knobs(&tree));
        assert!(
            found.contains("FELIX_RATE") && found.contains("`rate_max`"),
            "{found}"
        );
        assert!(
            !found.contains("FELIX_LISTEN") && !found.contains("`listen`"),
            "{found}"
        );
    }

    #[test]
    fn an_undocumented_metric_is_refused() {
        let code = "fn f() { counter!(\"felix_known_total\"); gauge!(\"felix_unknown\"); log(\"felix_broker\"); }";
        let tree = Tree::of(&[
            ("b/src/metrics.rs", code),
            (OPERATING, "`felix_known_total`"),
        ]);
        let broker = crate::metadata::Member {
            name: "felix-broker".into(),
            ..Default::default()
        };
        let found = whats(&metrics(
            &tree,
            &Workspace {
                members: vec![broker],
            },
        ));
        assert_eq!(
            found,
            format!("b/src/metrics.rs: the metric felix_unknown is not in {OPERATING}")
        );
    }

    #[test]
    fn an_undocumented_error_code_is_refused() {
        let code = "match self {\n    Self::NotFound => \"not_found\",\n    Self::Odd => \"odd\",\n}\nlet x = \"other\";\n";
        let tree = Tree::of(&[
            ("broker/wire/src/error.rs", code),
            (PROTOCOL, "`not_found`"),
        ]);
        assert_eq!(
            whats(&error_codes(&tree)),
            format!("broker/wire/src/error.rs: the error code odd is not in {PROTOCOL}")
        );
    }
}
