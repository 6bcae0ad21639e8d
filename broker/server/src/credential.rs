//! This node's credential for the control plane, renewed before it runs out.
//!
//! A refresh token is good for one use, so the next one is on disk before anything else happens with it. A renewal that is
//! refused is told loudly and leaves everything else as it is: what the broker knows of the catalogue goes on being served.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_controlplane_client::{CallFailed, Held, Renewal, Retry};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::limits::{CREDENTIAL_LOOK_INTERVAL, CREDENTIAL_RETRY};
use crate::metrics::Metrics;
use crate::shards::cell::now;

/// A credential that is kept fresh.
pub(crate) struct Credential {
    held: Held,
    file: PathBuf,
    renewal: Renewal,
    /// The next refresh token while it could not be written down.
    unsaved: Mutex<Option<String>>,
}

/// What became of one renewal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRenewed {
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
    fn is_final(&self) -> bool {
        matches!(self, Self::Call(call @ CallFailed::Refused { .. }) if call.retry() == Retry::Useless)
    }
}

impl Credential {
    /// `file` holds the refresh token; `held` the token it renews.
    pub(crate) fn new(held: Held, file: PathBuf, renewal: Renewal) -> Self {
        Self {
            held,
            file,
            renewal,
            unsaved: Mutex::default(),
        }
    }

    /// Renews the token at once if two thirds of its life have passed, so that a broker that was down for long comes up.
    /// A failure is no reason not to start while the token is good.
    pub(crate) async fn freshen(&self, metrics: &Metrics) {
        if due_in(&self.held.token()).is_zero() {
            self.renew_and_tell(metrics).await;
        }
    }

    /// Renews the token for as long as the broker runs.
    pub(crate) async fn keep(self, metrics: Arc<Metrics>, stop: CancellationToken) {
        let work = async {
            loop {
                sleep(due_in(&self.held.token())).await;
                while !self.renew_and_tell(&metrics).await {
                    sleep(CREDENTIAL_RETRY).await;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Whether the token is a fresh one now. A refresh token that was refused is not tried again: this waits for another.
    async fn renew_and_tell(&self, metrics: &Metrics) -> bool {
        let spent = match self.renew().await {
            Ok(()) => {
                metrics.credential_renewals.increment(1);
                tracing::info!("the node's credential was renewed");
                return true;
            }
            Err((error, spent)) => {
                metrics.credential_failures.increment(1);
                if !error.is_final() {
                    tracing::warn!(%error, "the node's credential was not renewed; trying again");
                    return false;
                }
                tracing::error!(
                    %error,
                    file = %self.file.display(),
                    "the control plane refuses to renew the node's credential; put a new refresh token into the file. \
                     Streams are served on with what is known of the catalogue"
                );
                spent
            }
        };
        while read(&self.file).await.ok().as_deref() == Some(&*spent) {
            sleep(CREDENTIAL_LOOK_INTERVAL).await;
        }
        false
    }

    async fn renew(&self) -> Result<(), (NotRenewed, String)> {
        let unsaved = self.unsaved().clone();
        let refresh = match unsaved {
            Some(next) => next,
            None => {
                let read = read(&self.file).await;
                read.map_err(|error| (error, String::new()))?
            }
        };
        let renewed = self.renewal.renew(&refresh).await;
        let renewed = renewed.map_err(|error| {
            *self.unsaved() = None;
            (error.into(), refresh)
        })?;
        if let Some(next) = renewed.refresh_token {
            *self.unsaved() = Some(next.clone());
            match self.write(next).await {
                Ok(()) => *self.unsaved() = None,
                Err(error) => tracing::error!(
                    %error,
                    "the node's next refresh token is kept in memory only: after a restart the node needs a new one"
                ),
            }
        }
        self.held.replace(&renewed.felix_token);
        Ok(())
    }

    fn unsaved(&self) -> MutexGuard<'_, Option<String>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, next: String) -> Result<(), NotRenewed> {
        let file = self.file.clone();
        let writing = tokio::task::spawn_blocking(move || write_private(&file, next.as_bytes()));
        let written = writing.await.map_err(std::io::Error::other).flatten();
        written.map_err(|source| NotRenewed::File {
            file: self.file.clone(),
            source,
        })
    }
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

/// How long until two thirds of a token's life have passed. A token that does not say when it runs out is renewed when
/// there is time.
fn due_in(token: &str) -> Duration {
    let Some((issued_at, expires_at)) = life(token) else {
        return CREDENTIAL_LOOK_INTERVAL;
    };
    let due = issued_at.saturating_add(expires_at.saturating_sub(issued_at) / 3 * 2);
    Duration::from_millis(due.saturating_mul(1_000).saturating_sub(now().0))
}

/// `iat` and `exp` of a token, unverified, in seconds.
fn life(token: &str) -> Option<(u64, u64)> {
    let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&body).ok()?;
    let seconds = |claim| claims.get(claim)?.as_u64();
    Some((seconds("iat")?, seconds("exp")?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn token(issued_at: u64, expires_at: u64) -> String {
        let claims = format!("{{\"iat\":{issued_at},\"exp\":{expires_at}}}");
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_token_is_due_when_two_thirds_of_its_life_have_passed() {
        let now = now().0 / 1_000;
        assert!(due_in(&token(now - 700, now + 200)).is_zero());
        let due = due_in(&token(now, now + 900));
        assert!(due > Duration::from_secs(590) && due <= Duration::from_secs(600));
        assert_eq!(due_in("opaque"), CREDENTIAL_LOOK_INTERVAL);
    }

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
