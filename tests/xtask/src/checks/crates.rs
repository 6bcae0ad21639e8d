//! Rules about crates: who may name whom, what may be depended on, how a manifest looks.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::Workspace;
use crate::tree::{Complaint, Tree, table_after};

const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const DEPENDENCIES: &str = "docs/DEPENDENCIES.md";

/// Every arrow between our crates stands in the table of ARCHITECTURE.md, and every crate has a row there: what it may
/// name, and what its tests may name besides.
pub(crate) fn arrows(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let rows = table_after(tree.text(ARCHITECTURE), "arrows");
    let rows: BTreeMap<&str, &[String]> = rows
        .iter()
        .filter_map(|row| row.split_first())
        .map(|(name, rest)| (name.as_str(), rest))
        .collect();
    let ours = workspace.names();
    let mut found = Vec::new();
    for name in rows.keys().filter(|name| !ours.contains(*name)) {
        let what = format!("the arrows table has a row for {name}, which is no crate");
        found.push(Complaint::new(ARCHITECTURE, 0, what));
    }
    for member in &workspace.members {
        let Some(row) = rows.get(member.name.as_str()) else {
            let what = format!("the arrows table has no row for {}", member.name);
            found.push(Complaint::new(ARCHITECTURE, 0, what));
            continue;
        };
        let may = names_in(row.iter().take(1));
        let tests_may = names_in(row.iter());
        let arrows = member.dependencies.iter().map(|name| (name, &may));
        let arrows = arrows.chain(
            member
                .test_dependencies
                .iter()
                .map(|name| (name, &tests_may)),
        );
        for (named, may) in arrows.filter(|(name, _)| ours.contains(name.as_str())) {
            if !may.contains("everything") && !may.contains(named.as_str()) {
                let what = format!(
                    "{} may not name {named}; a new arrow is a decision for the table in {ARCHITECTURE}",
                    member.name
                );
                found.push(Complaint::new(&member.manifest, 0, what));
            }
        }
    }
    found
}

fn names_in<'a>(cells: impl Iterator<Item = &'a String>) -> BTreeSet<&'a str> {
    cells
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect()
}

/// No cargo features in the workspace: every build is the same build.
pub(crate) fn no_features(workspace: &Workspace) -> Vec<Complaint> {
    let with = workspace
        .members
        .iter()
        .filter(|member| !member.features.is_empty());
    with.map(|member| {
        let features = member
            .features
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        Complaint::new(
            &member.manifest,
            0,
            format!("declares cargo features ({features}); there are none here"),
        )
    })
    .collect()
}

/// Every manifest takes its lints and its versions from the root.
pub(crate) fn manifests(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let mut found = Vec::new();
    for member in &workspace.members {
        let text = tree.text(&member.manifest);
        if !text.contains("[lints]\nworkspace = true") {
            found.push(Complaint::new(
                &member.manifest,
                0,
                "does not take the workspace's lints",
            ));
        }
        let mut in_dependencies = false;
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
            } else if in_dependencies
                && line.contains('=')
                && !line.starts_with('#')
                && !line.contains("workspace = true")
            {
                found.push(Complaint::new(
                    &member.manifest,
                    index + 1,
                    "versions are said in the root manifest only: use `name.workspace = true`",
                ));
            }
        }
    }
    found
}

/// Every direct dependency has a line in DEPENDENCIES.md with its use and the way to leave it, and no line is stale.
pub(crate) fn dependencies(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let rows = table_after(tree.text(DEPENDENCIES), "dependencies");
    let ours = workspace.names();
    let used: BTreeSet<&str> = workspace
        .members
        .iter()
        .flat_map(|member| {
            member
                .dependencies
                .iter()
                .chain(&member.test_dependencies)
                .map(String::as_str)
        })
        .filter(|name| !ours.contains(name))
        .collect();
    let listed: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.first())
        .map(String::as_str)
        .collect();
    let mut found = Vec::new();
    for name in used.difference(&listed) {
        found.push(Complaint::new(
            DEPENDENCIES,
            0,
            format!("no line for {name}: what for, and what it takes to leave"),
        ));
    }
    for name in listed.difference(&used) {
        found.push(Complaint::new(
            DEPENDENCIES,
            0,
            format!("{name} has a line, but no crate names it"),
        ));
    }
    for row in rows
        .iter()
        .filter(|row| row.len() < 3 || row.iter().any(String::is_empty))
    {
        let name = row.first().map_or("", String::as_str);
        found.push(Complaint::new(
            DEPENDENCIES,
            0,
            format!("the line of {name} has an empty cell"),
        ));
    }
    found
}

/// A version that is said in the root manifest is used by some crate.
pub(crate) fn unused_versions(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let root = tree.text("Cargo.toml");
    let versions = root.split("[workspace.dependencies]").nth(1).unwrap_or("");
    let versions = versions.split("\n[").next().unwrap_or("").lines();
    let used: BTreeSet<&str> = workspace
        .members
        .iter()
        .flat_map(|member| {
            member
                .dependencies
                .iter()
                .chain(&member.test_dependencies)
                .map(String::as_str)
        })
        .chain(workspace.names())
        .collect();
    versions
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim())
        .filter(|name| !name.starts_with('#') && !used.contains(name))
        .map(|name| {
            Complaint::new(
                "Cargo.toml",
                0,
                format!("{name} has a version, but no crate names it"),
            )
        })
        .collect()
}

/// Direct dependencies of the whole workspace before it is worth asking which could go.
const DEPENDENCIES_MENTIONED: usize = 40;

/// How far the budget of dependencies is spent.
pub(crate) fn many_dependencies(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let ours = workspace.names();
    let rows = table_after(tree.text(DEPENDENCIES), "dependencies");
    let count = rows
        .iter()
        .filter(|row| {
            row.first()
                .is_some_and(|name| !ours.contains(name.as_str()))
        })
        .count();
    (count >= DEPENDENCIES_MENTIONED)
        .then(|| {
            Complaint::new(
                DEPENDENCIES,
                0,
                format!(
                    "{count} direct dependencies; fewer than {DEPENDENCIES_MENTIONED} is the aim"
                ),
            )
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Member;

    fn workspace(members: &[(&str, &[&str])]) -> Workspace {
        let members = members.iter().map(|(name, named)| Member {
            name: (*name).to_owned(),
            manifest: format!("{name}/Cargo.toml"),
            dependencies: named.iter().map(|name| (*name).to_owned()).collect(),
            ..Member::default()
        });
        Workspace {
            members: members.collect(),
        }
    }

    fn whats(found: &[Complaint]) -> String {
        found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    const ARROWS: &str = "<!-- arrows -->\n| crate | may name | its tests also |\n|---|---|---|\n| `model` | — | |\n\
                          | `wire` | `model` | `tests` |\n| `tests` | everything | |\n";

    #[test]
    fn an_arrow_outside_the_table_is_refused() {
        let tree = Tree::of(&[(ARCHITECTURE, ARROWS)]);
        let good = workspace(&[
            ("model", &["bytes"]),
            ("wire", &["model"]),
            ("tests", &["wire", "model"]),
        ]);
        assert_eq!(arrows(&tree, &good), []);
        let mut tested = workspace(&[("model", &[]), ("wire", &[]), ("tests", &[])]);
        tested.members[1]
            .test_dependencies
            .insert("tests".to_owned());
        assert_eq!(arrows(&tree, &tested), []);
        tested.members[0]
            .test_dependencies
            .insert("wire".to_owned());
        assert!(whats(&arrows(&tree, &tested)).contains("model may not name wire"));
        let bad = workspace(&[("model", &["wire"]), ("wire", &[]), ("tests", &[])]);
        assert!(whats(&arrows(&tree, &bad)).contains("model may not name wire"));
    }

    #[test]
    fn rows_and_crates_go_together() {
        let tree = Tree::of(&[(ARCHITECTURE, ARROWS)]);
        let found = whats(&arrows(
            &tree,
            &workspace(&[("model", &[]), ("wire", &[]), ("journal", &[])]),
        ));
        assert!(found.contains("no row for journal"), "{found}");
        assert!(found.contains("tests, which is no crate"), "{found}");
    }

    #[test]
    fn a_cargo_feature_is_refused() {
        let mut bad = workspace(&[("model", &[])]);
        bad.members[0].features.insert("fast".to_owned());
        assert!(whats(&no_features(&bad)).contains("fast"));
        assert_eq!(no_features(&workspace(&[("model", &[])])), []);
    }

    #[test]
    fn a_manifest_with_its_own_versions_or_lints_is_refused() {
        let good = "[lints]\nworkspace = true\n\n[dependencies]\nbytes.workspace = true\n";
        let bad = "[dependencies]\nbytes = \"1\"\n[[bin]]\nname = \"x\"\n";
        let members = workspace(&[("a", &[]), ("b", &[])]);
        let tree = Tree::of(&[("a/Cargo.toml", good), ("b/Cargo.toml", bad)]);
        let found = whats(&manifests(&tree, &members));
        assert_eq!(found.lines().count(), 2, "{found}");
        assert!(found.contains("b/Cargo.toml:2:"), "{found}");
    }

    #[test]
    fn a_version_that_nobody_uses_is_refused() {
        let root = "[workspace.dependencies]\nbytes = \"1\"\nanyhow = { version = \"1\" }\n\n[profile.dev]\nopt = \"1\"\n";
        let tree = Tree::of(&[("Cargo.toml", root)]);
        let found = whats(&unused_versions(
            &tree,
            &workspace(&[("model", &["bytes"])]),
        ));
        assert_eq!(
            found,
            "Cargo.toml: anyhow has a version, but no crate names it"
        );
    }

    #[test]
    fn a_spent_budget_of_dependencies_is_mentioned() {
        let rows: String = (0..DEPENDENCIES_MENTIONED)
            .map(|name| format!("| c{name} | a | b |\n"))
            .collect();
        let text = format!(
            "<!-- dependencies -->\n| crate | what for | to leave |\n|---|---|---|\n{rows}"
        );
        let tree = Tree::of(&[(DEPENDENCIES, &text)]);
        assert_eq!(many_dependencies(&tree, &Workspace::default()).len(), 1);
        assert_eq!(
            many_dependencies(&Tree::default(), &Workspace::default()),
            []
        );
    }

    #[test]
    fn dependencies_and_their_lines_go_together() {
        let text = "<!-- dependencies -->\n| crate | what for | to leave |\n|---|---|---|\n| `bytes` | slices | a week |\n\
                    | `serde` | | |\n";
        let tree = Tree::of(&[(DEPENDENCIES, text)]);
        let found = whats(&dependencies(
            &tree,
            &workspace(&[("model", &["bytes", "tokio"])]),
        ));
        assert!(found.contains("no line for tokio"), "{found}");
        assert!(
            found.contains("serde has a line, but no crate names it"),
            "{found}"
        );
        assert!(found.contains("line of serde has an empty cell"), "{found}");
        assert!(!found.contains("bytes"), "{found}");
    }
}
