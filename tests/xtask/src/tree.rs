//! The repository's text files, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Text files by their path from the root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    /// Files that are no text: pictures that documents show.
    others: BTreeSet<String>,
}

/// One broken rule: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    /// File, or the name of what is at fault.
    pub(crate) place: String,
    /// Line from 1; 0 when the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong, and the way out where there is one.
    pub(crate) what: String,
}

impl Complaint {
    pub(crate) fn new(place: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.place, self.what)
        } else {
            write!(f, "{}:{}: {}", self.place, self.line, self.what)
        }
    }
}

/// Directories that hold nothing we wrote.
const SKIPPED: [&str; 5] = [".git", "target", "node_modules", "__pycache__", "corpus"];

impl Tree {
    /// Reads every UTF-8 file below `root` but those in build and tool directories.
    ///
    /// # Errors
    /// Whatever the system says about a directory or file that cannot be read.
    pub(crate) fn read(root: &Path) -> std::io::Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        Ok(tree)
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> std::io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.read_directory(&entry.path(), &format!("{prefix}{name}/"))?;
            } else if kind.is_file() {
                let path = format!("{prefix}{name}");
                match String::from_utf8(std::fs::read(entry.path())?) {
                    Ok(text) => drop(self.files.insert(path, text)),
                    Err(_) => drop(self.others.insert(path)),
                }
            }
        }
        Ok(())
    }

    /// A tree for a test: pairs of path and text.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self {
            files: files.collect(),
            others: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of one file; empty when there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.get(path).map_or("", String::as_str)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.others.contains(path)
    }

    /// Every file whose name ends with `suffix`, in order of path.
    pub(crate) fn ending(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(suffix))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("")
    }
}

/// The root of the checkout that this program was built in.
pub(crate) fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The rows of the first table after `<!-- marker -->`, header and rule left out, each cell trimmed of blanks and
/// backquotes.
pub(crate) fn table_after(text: &str, marker: &str) -> Vec<Vec<String>> {
    let Some((_, after)) = text.split_once(&format!("<!-- {marker} -->")) else {
        return Vec::new();
    };
    after
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_after_its_marker() {
        let text = "| no | no |\n|---|---|\n| 1 | 2 |\n\n<!-- rows -->\n\n| a | b |\n|---|---|\n| `x` | y z |\nend";
        assert_eq!(table_after(text, "rows"), [["x", "y z"]]);
        assert!(table_after(text, "absent").is_empty());
    }
}
