//! The file with the credentials of one context, and its lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::{Credentials, VERSION};
use crate::contexts::write_private;
use crate::exit::Failure;

/// Largest file that is read. Two tokens of 16 KiB and two refresh tokens are far below it.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Why credentials could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsRefused {
    /// Others could have read or changed it, so it is not trusted.
    #[error("{file} may be read or written by others (mode {mode:03o})", file = file.display())]
    NotPrivate {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no such file, or one of a newer version.
    #[error("{file} is not understood: {why}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong; never its content.
        why: String,
    },
    /// It could not be read, written or locked.
    #[error("{file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<CredentialsRefused> for Failure {
    fn from(refused: CredentialsRefused) -> Self {
        let message = refused.to_string();
        match refused {
            CredentialsRefused::NotPrivate { file, .. } => Self::usage(message)
                .with_hint(format!("chmod 600 {}, then sign in again", file.display())),
            CredentialsRefused::Malformed { .. } => Self::usage(message)
                .with_hint("`felixctl logout` removes it, `felixctl login` makes it anew"),
            CredentialsRefused::Io { .. } => Self::failed(message),
        }
    }
}

/// Where the credentials of one context are.
#[derive(Clone, Debug)]
pub struct Store {
    file: PathBuf,
}

/// The lock of a store; it is released when this is dropped, and by the system when the process
/// ends.
#[derive(Debug)]
pub struct Locked {
    _file: File,
}

impl Store {
    /// The store of a context, beside the file with the contexts.
    #[must_use]
    pub fn beside(config_file: &Path, name: &str) -> Self {
        let directory = config_file.parent().unwrap_or_else(|| Path::new("."));
        Self {
            file: directory.join("credentials").join(format!("{name}.json")),
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What is kept, if anything is.
    ///
    /// # Errors
    /// When others may read it, or it cannot be read or understood.
    pub fn load(&self) -> Result<Option<Credentials>, CredentialsRefused> {
        let metadata = match fs::metadata(&self.file) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io(source)),
        };
        self.check_private(&metadata)?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(self.malformed(format!("it has {} bytes", metadata.len())));
        }
        let bytes = fs::read(&self.file).map_err(|source| self.io(source))?;
        // The parser's own words may quote a token, so only the place is passed on.
        let kept: Credentials = serde_json::from_slice(&bytes).map_err(|error| {
            self.malformed(format!("line {} column {}", error.line(), error.column()))
        })?;
        if kept.version != VERSION {
            return Err(self.malformed(format!("it has version {}", kept.version)));
        }
        Ok(Some(kept))
    }

    #[cfg(unix)]
    fn check_private(&self, metadata: &fs::Metadata) -> Result<(), CredentialsRefused> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(CredentialsRefused::NotPrivate {
                file: self.file.clone(),
                mode,
            });
        }
        Ok(())
    }

    /// Writes the file in one step, readable by its owner only.
    ///
    /// # Errors
    /// When the directory or the file cannot be written; the old file is still there then.
    pub fn save(&self, kept: &Credentials) -> Result<(), CredentialsRefused> {
        let mut text = serde_json::to_string_pretty(kept)
            .map_err(|error| self.malformed(error.to_string()))?;
        text.push('\n');
        self.make_directory()
            .and_then(|()| write_private(&self.file, text.as_bytes()))
            .map_err(|source| self.io(source))
    }

    /// Removes the file; says whether there was one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> Result<bool, CredentialsRefused> {
        match fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.io(source)),
        }
    }

    /// Waits until nobody else renews these credentials. Whoever holds the lock is bounded by the
    /// time limit of his request, so the wait is, too.
    ///
    /// # Errors
    /// When the lock's file cannot be made.
    pub async fn lock(&self) -> Result<Locked, CredentialsRefused> {
        let store = self.clone();
        let locking = tokio::task::spawn_blocking(move || store.lock_blocking());
        match locking.await {
            Ok(locked) => locked,
            Err(error) => Err(self.io(io::Error::other(error))),
        }
    }

    fn lock_blocking(&self) -> Result<Locked, CredentialsRefused> {
        let lock = || {
            self.make_directory()?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let file = options.open(self.file.with_extension("lock"))?;
            file.lock()?;
            Ok(Locked { _file: file })
        };
        lock().map_err(|source| self.io(source))
    }

    fn make_directory(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(self.file.parent().unwrap_or_else(|| Path::new(".")))
    }

    fn io(&self, source: io::Error) -> CredentialsRefused {
        CredentialsRefused::Io {
            file: self.file.clone(),
            source,
        }
    }

    fn malformed(&self, why: String) -> CredentialsRefused {
        CredentialsRefused::Malformed {
            file: self.file.clone(),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn store(directory: &tempfile::TempDir) -> Store {
        Store::beside(&directory.path().join("config.toml"), "prod")
    }

    #[test]
    fn what_was_kept_is_read_again_and_only_its_owner_may() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory);
        assert_eq!(store.load().expect("nothing yet"), None);
        let kept = Credentials::new("http://127.0.0.1:8443", "dev");
        store.save(&kept).expect("saved");
        assert_eq!(store.load().expect("read"), Some(kept));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(store.file()), 0o600);
        assert_eq!(mode(store.file().parent().expect("a parent")), 0o700);
        assert!(store.remove().expect("removed"));
        assert!(!store.remove().expect("gone"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory);
        let kept = Credentials::new("http://127.0.0.1:8443", "dev");
        store.save(&kept).expect("saved");
        fs::set_permissions(store.file(), fs::Permissions::from_mode(0o640)).expect("changed");
        assert!(matches!(
            store.load(),
            Err(CredentialsRefused::NotPrivate { mode: 0o640, .. })
        ));
    }

    #[test]
    fn a_damaged_file_is_refused_without_showing_what_is_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory);
        let kept = Credentials::new("http://127.0.0.1:8443", "dev");
        store.save(&kept).expect("saved");
        for text in ["{\"version\": \"sesame\"}", "sesame", "{\"version\": 1"] {
            write_private(store.file(), text.as_bytes()).expect("written");
            let refused = store.load().expect_err(text).to_string();
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }

    #[tokio::test]
    async fn the_lock_is_free_again_once_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory);
        drop(store.lock().await.expect("locked"));
        let held = store.lock().await.expect("locked again");
        let other = File::open(store.file().with_extension("lock")).expect("the lock's file");
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}
