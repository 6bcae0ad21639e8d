//! Words and files that have no place in a published repository.

use crate::tree::{Complaint, Tree};

/// Names of private tools and of directories that exist on one machine only, as FNV-1a hashes of the lower-cased
/// word, so that this list does not itself hold them. A directory is written with its leading slash.
const REFUSED: &[u64] = &[
    0x04dc_2554_6038_2976,
    0x125b_6919_1db9_4ab8,
    0x1f92_008d_c875_3ba3,
    0x211c_4ac8_e66e_4225,
    0x2391_9480_3edf_98f7,
    0x2524_b426_1996_11b3,
    0x2ffb_778d_fae5_4384,
    0x4227_e823_ba12_485f,
    0x4e56_fda5_d5b8_3f0a,
    0x68bf_86cb_520e_e079,
    0x7a3c_735f_7f6d_b37f,
    0x7f7a_7547_86a6_64b8,
    0x8a1b_8f4a_0a91_3503,
    0xa113_d274_5d70_6ce3,
];

/// No file names a private tool or a place on somebody's machine.
pub(crate) fn private(tree: &Tree) -> Vec<Complaint> {
    refused_words(tree, REFUSED)
}

/// No file is one that a tool left behind for somebody to look at.
pub(crate) fn leftovers(tree: &Tree) -> Vec<Complaint> {
    const ENDINGS: [&str; 6] = [".pending-snap", ".snap.new", ".orig", ".rej", ".swp", "~"];
    tree.all()
        .filter(|(path, _)| ENDINGS.iter().any(|ending| path.ends_with(ending)))
        .map(|(path, _)| {
            Complaint::new(path, 0, "a tool left this behind: settle it and remove it")
        })
        .collect()
}

fn refused_words(tree: &Tree, refused: &[u64]) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in tree
        .all()
        .filter(|(path, _)| *path != "Cargo.lock" && *path != "LICENSE")
    {
        for (index, line) in text.lines().enumerate() {
            if let Some(word) =
                words(line).find(|word| refused.contains(&hash(&word.to_lowercase())))
            {
                let what = format!(
                    "{word:?} belongs to somebody's machine or tools, not into the repository"
                );
                found.push(Complaint::new(path, index + 1, what));
            }
        }
    }
    found
}

/// Runs of letters and digits; one that opens an absolute path keeps its slash.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    let mut before = ' ';
    std::iter::from_fn(move || {
        loop {
            let begin = rest.find(|letter: char| letter.is_alphanumeric())?;
            let skipped = rest.get(..begin)?;
            let slash = skipped.ends_with('/')
                && !skipped
                    .trim_end_matches('/')
                    .chars()
                    .next_back()
                    .unwrap_or(before)
                    .is_alphanumeric();
            let after = rest.get(begin..)?;
            let length = after
                .find(|letter: char| !letter.is_alphanumeric())
                .unwrap_or(after.len());
            let word = rest.get(begin - usize::from(slash)..begin + length)?;
            before = 'a';
            rest = after.get(length..)?;
            if !word.is_empty() {
                return Some(word);
            }
        }
    })
}

fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_absolute_paths_keep_their_slash() {
        let found: Vec<&str> = words("see /depot/x and a/depot, b.depot;Depot").collect();
        assert_eq!(
            found,
            [
                "see", "/depot", "x", "and", "a", "depot", "b", "depot", "Depot"
            ]
        );
    }

    #[test]
    fn what_a_tool_left_behind_is_refused() {
        let tree = Tree::of(&[
            ("a/x.snap", ""),
            ("a/.x.rs.pending-snap", ""),
            ("b.rs.orig", ""),
        ]);
        assert_eq!(leftovers(&tree).len(), 2);
    }

    #[test]
    fn a_refused_word_is_named_with_its_line() {
        let tree = Tree::of(&[
            ("a.md", "fine\nmade with Hammertool 3\n"),
            ("b.rs", "// see /depot/main\n// a/depot\n"),
        ]);
        let found = refused_words(&tree, &[hash("hammertool"), hash("/depot")]);
        let places: Vec<_> = found
            .iter()
            .map(|one| (one.place.as_str(), one.line))
            .collect();
        assert_eq!(places, [("a.md", 2), ("b.rs", 1)]);
    }
}
