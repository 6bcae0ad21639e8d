//! The development node's directory: kept, or gone with the process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::contexts::write_private;
use crate::exit::Failure;

use super::BOOTSTRAP_SECRET_FILE;

/// Bytes of randomness in the bootstrap secret.
const SECRET_BYTES: usize = 24;

/// The directory of one node. An ephemeral one is removed when this is dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    ephemeral: bool,
}

impl Home {
    /// Opens or creates a directory that is kept.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn kept(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path)?;
        create_private(&path)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        Ok(Self {
            path,
            ephemeral: false,
        })
    }

    /// Creates a directory that goes with the process. After a kill -9 it stays in the system's
    /// temporary directory, which is swept by the system.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn ephemeral() -> Result<Self, Failure> {
        let number = getrandom::u64().map_err(|error| Failure::failed(error.to_string()))?;
        let path = std::env::temp_dir().join(format!("felix-dev-{number:016x}"));
        create_private(&path)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        Ok(Self {
            path,
            ephemeral: true,
        })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, unless it goes with the process.
    #[must_use]
    pub fn kept_path(&self) -> Option<&Path> {
        (!self.ephemeral).then_some(self.path.as_path())
    }

    /// The secret of the bootstrap listener, made at the first start and kept.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn bootstrap_secret(&self) -> Result<String, Failure> {
        let file = self.path.join(BOOTSTRAP_SECRET_FILE);
        match fs::read_to_string(&file) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::failed(format!("{}: {error}", file.display()))),
        }
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| Failure::failed(error.to_string()))?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        write_private(&file, secret.as_bytes())
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
        Ok(secret)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.ephemeral {
            // The node has stopped; what cannot be removed now never will be.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Keys and tokens lie below, so nobody else may look in.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ephemeral_directory_is_gone_afterwards_and_a_kept_one_is_not() {
        let home = Home::ephemeral().expect("a directory");
        let path = home.path().to_owned();
        assert!(path.is_dir() && home.kept_path().is_none());
        drop(home);
        assert!(!path.exists());

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("dev");
        drop(Home::kept(&path).expect("a directory"));
        assert!(path.is_dir());
    }

    #[test]
    fn the_secret_is_made_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::kept(directory.path()).expect("a directory");
        let secret = home.bootstrap_secret().expect("a secret");
        assert_eq!(secret.len(), SECRET_BYTES * 2);
        assert_eq!(home.bootstrap_secret().expect("the secret"), secret);
    }
}
