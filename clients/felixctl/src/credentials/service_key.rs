//! The key of a service account: what a workload without an identity provider signs in with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::secret::Secret;

/// Longest key that is read.
const KEY_BYTES_MAX: usize = 1024;
/// How every key begins.
const START: &str = "fsk_";

/// Why a file holds no key.
#[derive(Debug, thiserror::Error)]
pub enum BadServiceKey {
    /// The file cannot be read.
    #[error("the service account's key {file} cannot be read: {source}", file = file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others could have read it.
    #[error("the service account's key {file} may be read by others (mode {mode:03o})", file = file.display())]
    NotPrivate {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It does not look like `fsk_TENANT.KEY.SECRET`.
    #[error("{file} holds no key of a service account", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
    },
}

impl From<BadServiceKey> for Failure {
    fn from(bad: BadServiceKey) -> Self {
        let failure = Self::usage(bad.to_string());
        match bad {
            BadServiceKey::NotPrivate { file, .. } => {
                failure.with_hint(format!("chmod 600 {}", file.display()))
            }
            BadServiceKey::Unreadable { .. } => failure,
            BadServiceKey::Malformed { .. } => {
                failure.with_hint("`felixctl service-account key add NAME --out FILE` writes one")
            }
        }
    }
}

/// A key as it was issued, `fsk_TENANT.KEY.SECRET`.
#[derive(Clone, Debug)]
pub struct ServiceKey {
    /// All of it, as it is shown to the control plane.
    pub text: Secret,
    /// The tenant it is for.
    pub tenant: String,
    /// Which key it is; no secret.
    pub key_id: String,
}

impl ServiceKey {
    /// Reads the file with a key, which must be its owner's alone.
    ///
    /// # Errors
    /// When it cannot be read, others may read it, or it holds no key.
    pub fn read(file: &Path) -> Result<Self, BadServiceKey> {
        let unreadable = |source| BadServiceKey::Unreadable {
            file: file.to_owned(),
            source,
        };
        let metadata = fs::metadata(file).map_err(unreadable)?;
        check_private(file, &metadata)?;
        let text = fs::read_to_string(file).map_err(unreadable)?;
        Self::parse(text.trim()).ok_or_else(|| BadServiceKey::Malformed {
            file: file.to_owned(),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        if text.len() > KEY_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        // A tenant's name may have dots in it, so the parts are counted from the end.
        let (rest, secret) = text.strip_prefix(START)?.rsplit_once('.')?;
        let (tenant, key_id) = rest.rsplit_once('.')?;
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let complete = !tenant.is_empty() && !key_id.is_empty() && !secret.is_empty();
        (complete && key_id.chars().all(good)).then(|| Self {
            text: text.into(),
            tenant: tenant.to_owned(),
            key_id: key_id.to_owned(),
        })
    }
}

/// A mounted secret belongs to root or to the group of the workload, so a group may read it; the
/// world may not.
#[cfg(unix)]
fn check_private(file: &Path, metadata: &fs::Metadata) -> Result<(), BadServiceKey> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(BadServiceKey::NotPrivate {
            file: file.to_owned(),
            mode,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_taken_apart_from_its_end() {
        let key = ServiceKey::parse("fsk_acme.eu.k1.c2VjcmV0").expect("a key");
        assert_eq!(
            (key.tenant.as_str(), key.key_id.as_str()),
            ("acme.eu", "k1")
        );
        assert!(!format!("{key:?}").contains("c2VjcmV0"));
        for bad in [
            "",
            "fsk_",
            "fsk_a.b",
            "fsk_.k.s",
            "fsk_a..s",
            "fsk_a.k.",
            "x_a.k.s",
            "fsk_a.../../x.s",
            "fsk_a.k.s s",
        ] {
            assert!(ServiceKey::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_key_that_everybody_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("key");
        fs::write(&file, "fsk_dev.k1.c2VjcmV0\n").expect("written");
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode));
        mode(0o644).expect("changed");
        assert!(matches!(
            ServiceKey::read(&file),
            Err(BadServiceKey::NotPrivate { mode: 0o644, .. })
        ));
        mode(0o640).expect("changed");
        assert!(ServiceKey::read(&file).is_ok());
    }
}
