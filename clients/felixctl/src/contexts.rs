//! The file of named connection settings. It holds tokens, so only its owner may read it, and a
//! crash in the middle of a write must leave the old file or the new one, never half of either.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::Connection;
use crate::exit::{Exit, Failure};
use crate::suggest::close_matches;

/// All contexts, and which one is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Name of the selected context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Connection>,
}

/// Why the contexts could not be read, changed or kept.
#[derive(Debug, thiserror::Error)]
pub enum ContextsRefused {
    /// The file is no TOML, or has a key that means nothing.
    #[error("{file} is not understood: {why}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line and what is wrong with it.
        why: String,
    },
    /// No context has this name.
    #[error("there is no context {name}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names close to it.
        matches: Vec<String>,
    },
    /// A context of this name exists and was not to be replaced.
    #[error("there is a context {name} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// A name that would be awkward in a file and in a shell.
    #[error("{name:?} is no good name for a context; use letters, digits, - _ and .")]
    BadName {
        /// The name.
        name: String,
    },
    /// The file or its directory could not be read or written.
    #[error("{file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<ContextsRefused> for Failure {
    fn from(refused: ContextsRefused) -> Self {
        let message = refused.to_string();
        match refused {
            ContextsRefused::Malformed { .. } | ContextsRefused::BadName { .. } => {
                Self::usage(message)
            }
            ContextsRefused::Unknown { matches, .. } => Self::new(Exit::NotFound, message)
                .with_matches(matches)
                .with_hint("`felixctl context ls` lists them"),
            ContextsRefused::Exists { .. } => {
                Self::new(Exit::Conflict, message).with_hint("--replace replaces it")
            }
            ContextsRefused::Io { .. } => Self::failed(message),
        }
    }
}

impl Contexts {
    /// Reads the file; a file that does not exist holds no contexts.
    ///
    /// # Errors
    /// When the file cannot be read or understood.
    pub fn load(file: &Path) -> Result<Self, ContextsRefused> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(ContextsRefused::Io {
                    file: file.to_owned(),
                    source,
                });
            }
        };
        toml::from_str(&text).map_err(|error| ContextsRefused::Malformed {
            file: file.to_owned(),
            why: error.to_string().trim_end().to_owned(),
        })
    }

    /// Writes the file in one step, readable by its owner only.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), ContextsRefused> {
        let text = toml::to_string_pretty(self).map_err(|error| ContextsRefused::Malformed {
            file: file.to_owned(),
            why: error.to_string(),
        })?;
        write_private(file, text.as_bytes()).map_err(|source| ContextsRefused::Io {
            file: file.to_owned(),
            source,
        })
    }

    /// The context with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str) -> Result<&Connection, ContextsRefused> {
        self.contexts
            .get(name)
            .ok_or_else(|| ContextsRefused::Unknown {
                name: name.to_owned(),
                matches: close_matches(name, self.contexts.keys().map(String::as_str)),
            })
    }

    /// Adds a context. The first one is selected by itself.
    ///
    /// # Errors
    /// When the name is taken and `replace` is not asked for, or is no good name.
    pub fn add(
        &mut self,
        name: &str,
        connection: Connection,
        taken: Taken,
    ) -> Result<(), ContextsRefused> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(good) {
            return Err(ContextsRefused::BadName {
                name: name.to_owned(),
            });
        }
        if taken == Taken::Refuse && self.contexts.contains_key(name) {
            return Err(ContextsRefused::Exists {
                name: name.to_owned(),
            });
        }
        self.contexts.insert(name.to_owned(), connection);
        if self.current.is_none() {
            self.current = Some(name.to_owned());
        }
        Ok(())
    }

    /// Selects a context.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn select(&mut self, name: &str) -> Result<(), ContextsRefused> {
        self.get(name)?;
        self.current = Some(name.to_owned());
        Ok(())
    }

    /// Forgets a context; if it was selected, none is.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn remove(&mut self, name: &str) -> Result<(), ContextsRefused> {
        self.get(name)?;
        self.contexts.remove(name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        Ok(())
    }
}

/// What to do when a name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Say so and change nothing.
    Refuse,
    /// Put the new one in its place.
    Replace,
}

/// Writes a file that only its owner may read, as a whole or not at all: a new file beside it
/// under a name nobody can guess, flushed, renamed over the old one, the directory flushed.
///
/// # Errors
/// When any of these steps fails; the old file is still there then.
pub fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{:016x}", random()?));
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
    if let Err(error) = written {
        // The error that matters is the first one; what is left behind is an unused file.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn random() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(tenant: &str) -> Connection {
        Connection {
            brokers: Some(vec!["127.0.0.1:5000".into()]),
            tenant: Some(tenant.into()),
            token: Some("secret".into()),
            ..Connection::default()
        }
    }

    #[test]
    fn contexts_survive_a_round_trip_through_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("deep/config.toml");
        let mut contexts = Contexts::load(&file).expect("an absent file is empty");
        assert_eq!(contexts, Contexts::default());
        contexts
            .add("dev", connection("dev"), Taken::Refuse)
            .expect("added");
        contexts
            .add("prod", connection("acme"), Taken::Refuse)
            .expect("added");
        contexts.save(&file).expect("saved");
        let read = Contexts::load(&file).expect("read");
        assert_eq!(read, contexts);
        assert_eq!(read.current.as_deref(), Some("dev"));
        let left: Vec<_> = fs::read_dir(file.parent().expect("parent"))
            .expect("list")
            .collect();
        assert_eq!(left.len(), 1, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_the_file_even_if_the_old_one_was_open_to_all() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.toml");
        fs::write(&file, "").expect("an old file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("open to all");
        Contexts::default().save(&file).expect("saved");
        let mode = fs::metadata(&file).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_misspelt_key_is_refused_with_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.toml");
        fs::write(
            &file,
            "[contexts.dev]\ntenant = \"dev\"\nbroker = [\"x:1\"]\n",
        )
        .expect("file");
        let refused = Contexts::load(&file).expect_err("refused").to_string();
        assert!(
            refused.contains("line 3") && refused.contains("broker"),
            "{refused}"
        );
    }

    #[test]
    fn a_taken_name_is_refused_unless_it_is_replaced() {
        let mut contexts = Contexts::default();
        contexts
            .add("dev", connection("a"), Taken::Refuse)
            .expect("added");
        assert!(matches!(
            contexts.add("dev", connection("b"), Taken::Refuse),
            Err(ContextsRefused::Exists { .. })
        ));
        contexts
            .add("dev", connection("b"), Taken::Replace)
            .expect("replaced");
        assert_eq!(
            contexts.get("dev").expect("dev").tenant.as_deref(),
            Some("b")
        );
        assert!(matches!(
            contexts.add("a b", connection("b"), Taken::Refuse),
            Err(ContextsRefused::BadName { .. })
        ));
    }

    #[test]
    fn an_unknown_context_names_its_close_matches() {
        let mut contexts = Contexts::default();
        contexts
            .add("production", connection("a"), Taken::Refuse)
            .expect("added");
        let failure = Failure::from(contexts.select("producton").expect_err("unknown"));
        assert_eq!(failure.exit, Exit::NotFound);
        assert_eq!(failure.did_you_mean, ["production"]);
    }

    #[test]
    fn forgetting_the_selected_context_selects_none() {
        let mut contexts = Contexts::default();
        contexts
            .add("dev", connection("a"), Taken::Refuse)
            .expect("added");
        contexts.remove("dev").expect("removed");
        assert_eq!(contexts, Contexts::default());
    }
}
