//! A process's own credential for the control plane, renewed before it runs out and when it is refused.
//!
//! A refresh token is good for one use, so the next one is on disk before anything else happens with it. A renewal that is
//! refused is told loudly and leaves everything else as it is: what the process knows of the catalogue goes on being used.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::sleep;

use crate::call::{BadEndpoint, CallFailed};
use crate::held::Held;
use crate::limits::CREDENTIAL_LOOK_INTERVAL;
use crate::renew::Renewal;
use crate::token::TokenSource;
use crate::trust::Trust;

/// A credential that is kept fresh.
#[derive(Debug)]
pub struct Credential {
    held: Held,
    files: CredentialFiles,
    renewal: Renewal,
    /// The next refresh token while it could not be written down.
    unsaved: Mutex<Option<String>>,
    /// The token that was in its file when it was looked at last.
    given: Mutex<Option<String>>,
}

/// Where a credential is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The refresh token. Each renewal replaces it.
    pub refresh: PathBuf,
    /// The token, if it is in a file: it is read only, and another one in it is taken where the refresh token is refused.
    pub token: Option<PathBuf>,
}

/// What became of one renewal, for whoever counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialEvent {
    /// Another token is held.
    Renewed,
    /// The renewal failed, or was refused.
    Failed,
}

/// What a process is given to speak to the control plane with.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The token itself. Whoever gave it may hold another later.
    pub token: Option<Held>,
    /// The file that holds the token, where it is not given itself.
    pub token_file: Option<PathBuf>,
    /// The file that holds a refresh token of it.
    pub refresh_token_file: Option<PathBuf>,
}

/// Why a process cannot speak to the control plane. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum NoCredential {
    /// The file with the token.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is something to renew a token with, and no token.
    #[error("a refresh token needs the token beside it, which says of whom it is")]
    NoToken,
    /// The token does not say of which tenant it is.
    #[error("the token is none: {0}")]
    Token(#[from] felix_auth::TokenRefused),
    /// The control plane's address, or the roots.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
}

impl Given {
    /// The source of tokens for calls, with what keeps it fresh where there is a refresh token. Without one whoever
    /// gave the token, or writes its file, renews it.
    ///
    /// # Errors
    /// [`NoCredential`].
    pub fn source(
        self,
        url: &str,
        trust: &Trust,
    ) -> Result<(TokenSource, Option<Credential>), NoCredential> {
        let Some(refresh) = self.refresh_token_file else {
            let source = match (self.token, self.token_file) {
                (Some(held), _) => TokenSource::Held(held),
                (None, Some(file)) => TokenSource::file(file),
                (None, None) => TokenSource::None,
            };
            return Ok((source, None));
        };
        let held = match (self.token, &self.token_file) {
            (Some(held), _) => held,
            (None, Some(file)) => {
                let read = std::fs::read_to_string(file).map_err(|source| NoCredential::File {
                    file: file.clone(),
                    source,
                })?;
                Held::new(read.trim())
            }
            (None, None) => return Err(NoCredential::NoToken),
        };
        let tenant = felix_auth::claimed_tenant(&held.token())?;
        let renewal = Renewal::new(url, tenant, trust)?;
        let files = CredentialFiles {
            refresh,
            token: self.token_file,
        };
        let credential = Credential::new(held.clone(), files, renewal);
        Ok((TokenSource::Held(held), Some(credential)))
    }
}

/// Why a renewal failed.
#[derive(Debug, thiserror::Error)]
enum NotRenewed {
    /// The file with the refresh token.
    #[error("{file}: {source}")]
    File {
        file: PathBuf,
        source: std::io::Error,
    },
    /// The control plane.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

impl NotRenewed {
    /// Whether this refresh token will never work.
    const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Call(CallFailed::Refused {
                status: 400 | 401 | 403 | 404,
                ..
            })
        )
    }
}

impl Credential {
    /// `held` is the token that is renewed.
    #[must_use]
    pub fn new(held: Held, files: CredentialFiles, renewal: Renewal) -> Self {
        Self {
            held,
            files,
            renewal,
            unsaved: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Renews the token at once if two thirds of its life have passed, so that a process that was down for long comes up.
    /// A failure is no reason not to start while the token is good.
    pub async fn freshen(&self, tell: impl Fn(CredentialEvent)) {
        if self.held.is_due() {
            self.renew_now(tell).await;
        }
    }

    /// Renews the token once, whatever its age: for a process whose first call was refused. Whether another is held.
    pub async fn renew_now(&self, tell: impl Fn(CredentialEvent)) -> bool {
        self.renew_and_tell(&tell).await.is_ok()
    }

    /// Renews the token for as long as the process runs. It ends when it is dropped.
    pub async fn keep(self, tell: impl Fn(CredentialEvent)) {
        // What is in the file now is what was begun with.
        let given = self.read_token().await;
        *lock(&self.given) = given;
        let (this, tell) = (&self, &tell);
        let renew = || async move {
            match this.renew_and_tell(tell).await {
                Ok(()) => true,
                Err(None) => false,
                Err(Some(spent)) => this.another(&spent).await,
            }
        };
        self.held.keep_fresh(renew).await;
    }

    /// Tries one renewal. A refresh token that was refused for good is given back: it is not tried again.
    async fn renew_and_tell(&self, tell: &impl Fn(CredentialEvent)) -> Result<(), Option<String>> {
        let Err((error, spent)) = self.renew().await else {
            tell(CredentialEvent::Renewed);
            tracing::info!("the credential for the control plane was renewed");
            return Ok(());
        };
        tell(CredentialEvent::Failed);
        if !error.is_final() {
            tracing::warn!(%error, "the credential for the control plane was not renewed; trying again");
            return Err(None);
        }
        tracing::error!(
            %error,
            file = %self.files.refresh.display(),
            "the control plane refuses to renew the credential; put a new refresh token into the file. What is known of \
             the catalogue is used on"
        );
        Err(Some(spent))
    }

    /// Waits until somebody put another refresh token, or another token, into its file. Whether a token was taken.
    async fn another(&self, spent: &str) -> bool {
        loop {
            let token = self.read_token().await;
            let fresh = token.filter(|token| lock(&self.given).as_ref() != Some(token));
            if let Some(token) = fresh {
                self.held.replace(&token);
                *lock(&self.given) = Some(token);
                tracing::info!("another token for the control plane was found in its file");
                return true;
            }
            let refresh = read(&self.files.refresh).await.ok();
            if refresh.is_some_and(|refresh| refresh != spent) {
                return false;
            }
            sleep(CREDENTIAL_LOOK_INTERVAL).await;
        }
    }

    async fn renew(&self) -> Result<(), (NotRenewed, String)> {
        let unsaved = lock(&self.unsaved).clone();
        let refresh = match unsaved {
            Some(next) => next,
            None => {
                let read = read(&self.files.refresh).await;
                read.map_err(|error| (error, String::new()))?
            }
        };
        let renewed = self.renewal.renew(&refresh).await;
        let renewed = renewed.map_err(|error| {
            let error = NotRenewed::from(error);
            // Unless it is worth nothing, it is the only one there is: the file holds one that was spent.
            if error.is_final() {
                *lock(&self.unsaved) = None;
            }
            (error, refresh)
        })?;
        if let Some(next) = renewed.refresh_token {
            *lock(&self.unsaved) = Some(next.clone());
            match self.write(next).await {
                Ok(()) => *lock(&self.unsaved) = None,
                Err(error) => tracing::error!(
                    %error,
                    "the next refresh token is kept in memory only: after a restart a new one is needed"
                ),
            }
        }
        self.held.replace(&renewed.felix_token);
        Ok(())
    }

    async fn read_token(&self) -> Option<String> {
        read(self.files.token.as_deref()?).await.ok()
    }

    async fn write(&self, next: String) -> Result<(), NotRenewed> {
        let file = self.files.refresh.clone();
        let writing = tokio::task::spawn_blocking(move || write_private(&file, next.as_bytes()));
        let written = writing.await.map_err(std::io::Error::other).flatten();
        written.map_err(|source| NotRenewed::File {
            file: self.files.refresh.clone(),
            source,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(file: &Path) -> Result<String, NotRenewed> {
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
    let text = reading.await.map_err(std::io::Error::other).flatten();
    let text = text.map_err(|source| NotRenewed::File {
        file: file.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}

/// Puts a secret in the place of a file in one step, for nobody else to read, and on disk when this returns.
fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let beside = file.with_extension("next");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut writing = options.open(&beside)?;
    writing.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    writing.write_all(bytes)?;
    writing.sync_all()?;
    std::fs::rename(&beside, file)?;
    let directory = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_next_refresh_token_takes_the_place_of_the_spent_one_for_nobody_else_to_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("refresh");
        std::fs::write(&file, "spent").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&file, b"next").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "next");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
