//! What `cargo metadata` says about the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// The members of the workspace and what each names.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) members: Vec<Member>,
}

/// One crate of ours.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Path of its manifest from the root.
    pub(crate) manifest: String,
    /// Names of cargo features it declares.
    pub(crate) features: BTreeSet<String>,
    /// Every dependency it names, build scripts included, but those of its tests.
    pub(crate) dependencies: BTreeSet<String>,
    /// What only its tests name.
    pub(crate) test_dependencies: BTreeSet<String>,
    /// Root source files of its targets, from the root, with the kind of target.
    pub(crate) roots: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

impl Package {
    fn named(&self, by_tests: bool) -> BTreeSet<String> {
        let wanted = |one: &&Dependency| (one.kind.as_deref() == Some("dev")) == by_tests;
        self.dependencies
            .iter()
            .filter(wanted)
            .map(|one| one.name.clone())
            .collect()
    }
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: String,
}

impl Workspace {
    /// Asks cargo, without network.
    ///
    /// # Errors
    /// What cargo printed, or what is odd about its answer.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
            .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Self::parse(&output.stdout)
    }

    fn parse(json: &[u8]) -> Result<Self, String> {
        let metadata: Metadata =
            serde_json::from_slice(json).map_err(|error| format!("cargo metadata: {error}"))?;
        let root = format!("{}/", metadata.workspace_root);
        let below = |path: &str| path.strip_prefix(&root).unwrap_or(path).to_owned();
        let members = metadata.packages.iter().map(|package| Member {
            name: package.name.clone(),
            manifest: below(&package.manifest_path),
            features: package.features.keys().cloned().collect(),
            dependencies: package.named(false),
            test_dependencies: package.named(true),
            roots: package
                .targets
                .iter()
                .map(|target| (below(&target.src_path), target.kind.join(",")))
                .collect(),
        });
        Ok(Self {
            members: members.collect(),
        })
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.members
            .iter()
            .map(|member| member.name.as_str())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_cargo_is_read() {
        let json = br#"{"workspace_root":"/x","packages":[{"name":"felix-model","manifest_path":"/x/m/Cargo.toml",
            "features":{"fast":[]},"dependencies":[{"name":"bytes","kind":null},{"name":"insta","kind":"dev"}],
            "targets":[{"kind":["lib"],"src_path":"/x/m/src/lib.rs"}]}]}"#;
        let workspace = Workspace::parse(json).unwrap();
        let member = &workspace.members[0];
        assert_eq!(member.manifest, "m/Cargo.toml");
        assert!(member.features.contains("fast") && member.dependencies.contains("bytes"));
        assert!(
            member.test_dependencies.contains("insta") && !member.dependencies.contains("insta")
        );
        assert_eq!(
            member.roots,
            [("m/src/lib.rs".to_owned(), "lib".to_owned())]
        );
    }
}
