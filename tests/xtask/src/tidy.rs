//! The list of house rules.

use crate::checks::{crates, documents, sources, words};
use crate::docs;
use crate::metadata::Workspace;
use crate::tree::{Complaint, Tree};

/// Everything that must be put right before a change is whole, in order of place.
pub(crate) fn complaints(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let mut found = [
        crates::arrows(tree, workspace),
        crates::no_features(workspace),
        crates::manifests(tree, workspace),
        crates::dependencies(tree, workspace),
        crates::unused_versions(tree, workspace),
        sources::heads(tree, workspace),
        sources::dead_files(tree, workspace),
        sources::tests_assert(tree),
        sources::no_ignored_tests(tree),
        sources::numbered_todos(tree),
        sources::too_long(tree),
        documents::one_title(tree),
        documents::links(tree),
        documents::short_map(tree),
        documents::decisions(tree),
        documents::knobs(tree),
        documents::metrics(tree, workspace),
        documents::error_codes(tree),
        docs::complaints(tree),
        words::private(tree),
        words::leftovers(tree),
    ]
    .concat();
    found.sort();
    found
}

/// What is worth a look and fails nothing.
pub(crate) fn warnings(tree: &Tree, workspace: &Workspace) -> Vec<Complaint> {
    let mut found = sources::long(tree);
    found.extend(crates::many_dependencies(tree, workspace));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::repository_root;

    #[test]
    fn the_repository_is_tidy() {
        let root = repository_root();
        let tree = Tree::read(&root).unwrap();
        let workspace = Workspace::read(&root).unwrap();
        let found = complaints(&tree, &workspace);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "\n{}", lines.join("\n"));
    }
}
