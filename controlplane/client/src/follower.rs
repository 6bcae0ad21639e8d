//! A copy of the catalogue that keeps up.

use std::sync::Arc;
use std::time::Duration;

use felix_meta::http::{CatalogueChanges, CatalogueSnapshot};
use felix_meta::{Catalogue, ENTRY_VERSION, EntryRefused, Revision};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::api::{Api, read_changes};
use crate::call::CallFailed;
use crate::credential::{Credential, CredentialEvent};
use crate::held::Held;
use crate::limits::RETRY_PAUSE;

/// How the follower stands with the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerState {
    /// The last call was answered.
    Following,
    /// The last call failed; the copy is what it was, and it is tried again.
    Retrying {
        /// What happened.
        why: String,
    },
    /// The control plane writes a form this build cannot read. The copy stays as it is until this build is replaced.
    TooOld {
        /// What was found.
        why: String,
    },
}

/// Keeps a copy of the catalogue as new as the control plane's. Clones share it; the last one dropped ends it.
///
/// A failing control plane never empties the copy. It moves back only when the control plane itself was restored to an
/// older state.
#[derive(Clone, Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    catalogue: watch::Sender<Arc<Catalogue>>,
    state: watch::Sender<FollowerState>,
    /// Held while someone fetches on behalf of all who ask meanwhile; holds how many fetches were done.
    fetches: Mutex<u64>,
    /// Fetches begun. Whoever asks waits for one that begins after he asked.
    begun: watch::Sender<u64>,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Follower {
    /// Takes a first copy and keeps it up to date from then on.
    ///
    /// # Errors
    /// [`CallFailed`] when the first copy cannot be had; nothing runs on then.
    pub async fn start(api: Api) -> Result<Self, CallFailed> {
        let first = match snapshot(&api, api.catalogue().await) {
            // A control plane that cannot say what is newest, because its ledger is away, still says what it knows. That
            // is enough to begin with: nothing older is taken later.
            Err(CallFailed::Refused { status: 503, .. }) => {
                snapshot(&api, api.catalogue_as_known().await)?
            }
            first => first?,
        };
        let shared = Arc::new(Shared {
            api,
            catalogue: watch::Sender::new(Arc::new(first)),
            state: watch::Sender::new(FollowerState::Following),
            fetches: Mutex::new(0),
            begun: watch::Sender::new(0),
        });
        let task = tokio::spawn(Arc::clone(&shared).follow());
        Ok(Self {
            shared,
            _task: Arc::new(Task(task)),
        })
    }

    /// As [`Follower::start`], after a look at the credential: a token that is due is renewed first, and one that is
    /// refused, because its key was retired while the process was down, is renewed and tried again.
    ///
    /// # Errors
    /// [`CallFailed`] when the first copy cannot be had; nothing runs on then.
    pub async fn start_with(
        api: Api,
        credential: Option<&Credential>,
        tell: impl Fn(CredentialEvent),
    ) -> Result<Self, CallFailed> {
        let Some(credential) = credential else {
            return Self::start(api).await;
        };
        credential.freshen(&tell).await;
        match Self::start(api.clone()).await {
            Err(CallFailed::Refused { status: 401, .. }) if credential.renew_now(&tell).await => {
                Self::start(api).await
            }
            started => started,
        }
    }

    /// The copy as it is now. Let go of it soon: while it is held, a change must copy what it touches.
    #[must_use]
    pub fn current(&self) -> Arc<Catalogue> {
        Arc::clone(&self.shared.catalogue.borrow())
    }

    /// Tells of every change of the copy.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.shared.catalogue.subscribe()
    }

    /// Tells how the follower stands with the control plane.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<FollowerState> {
        self.shared.state.subscribe()
    }

    /// Fetches what the control plane knows at some moment after this call began, and answers with it. However many
    /// ask at once, at most two fetches run: the one under way, which may be too old for those who ask now, and one
    /// for all of them together.
    ///
    /// # Errors
    /// [`CallFailed`] when the control plane cannot be asked; the copy stays as it was.
    pub async fn refresh(&self) -> Result<Arc<Catalogue>, CallFailed> {
        let asked_at = *self.shared.begun.borrow();
        let mut fetched = self.shared.fetches.lock().await;
        if *fetched > asked_at {
            return Ok(self.current());
        }
        let this_fetch = *self.shared.begun.borrow() + 1;
        self.shared.begun.send_replace(this_fetch);
        self.shared.catch_up().await?;
        *fetched = this_fetch;
        Ok(self.current())
    }

    /// Waits until the copy has reached a revision.
    pub async fn wait_for(&self, revision: Revision) -> Arc<Catalogue> {
        let mut watch = self.watch();
        match watch
            .wait_for(|catalogue| catalogue.revision() >= revision)
            .await
        {
            Ok(catalogue) => Arc::clone(&catalogue),
            // The sender lives in `self`, so the channel cannot close while this waits.
            Err(_) => self.current(),
        }
    }
}

impl Shared {
    async fn follow(self: Arc<Self>) {
        let mut pause = RETRY_PAUSE.0;
        loop {
            let token = self.api.held().map(Held::token);
            match self.follow_once().await {
                Ok(()) => {
                    self.tell(FollowerState::Following);
                    pause = RETRY_PAUSE.0;
                    continue;
                }
                Err(FollowFailed::Entry(error @ EntryRefused::TooNew { .. })) => {
                    self.tell(FollowerState::TooOld {
                        why: error.to_string(),
                    });
                    pause = RETRY_PAUSE.1;
                }
                Err(error) => self.tell(FollowerState::Retrying {
                    why: error.to_string(),
                }),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = next_pause(pause),
                // Whatever was refused, another token may not be.
                () = self.renewed(token.as_deref()) => pause = RETRY_PAUSE.0,
            }
        }
    }

    /// Waits until calls are made with another token than this one, if ever.
    async fn renewed(&self, token: Option<&str>) {
        match self.api.held().zip(token) {
            Some((held, token)) => held.other_than(token).await,
            None => std::future::pending().await,
        }
    }

    async fn follow_once(&self) -> Result<(), FollowFailed> {
        let since = self.revision();
        let changes = read_changes(&self.api.await_changes(since).await?)?;
        self.take(changes).await
    }

    /// Fetches until nothing newer is known, without waiting for anything to happen.
    async fn catch_up(&self) -> Result<(), CallFailed> {
        loop {
            let since = self.revision();
            let body = self.api.changes_since(since).await?;
            let changes = read_changes(&body).map_err(|error| self.malformed(&error))?;
            let newest = changes.revision;
            self.take(changes).await.map_err(|error| match error {
                FollowFailed::Call(error) => error,
                FollowFailed::Entry(error) => self.malformed(&error),
            })?;
            if self.revision() >= newest {
                return Ok(());
            }
        }
    }

    async fn take(&self, changes: CatalogueChanges) -> Result<(), FollowFailed> {
        if changes.resync {
            let fresh = snapshot(&self.api, self.api.catalogue().await)?;
            self.catalogue.send_if_modified(|held| {
                // Even an older one is taken: the control plane was restored, and it is the authority.
                let differs = fresh.revision() != held.revision() || fresh != **held;
                if differs {
                    *held = Arc::new(fresh);
                }
                differs
            });
            return Ok(());
        }
        self.catalogue.send_if_modified(|held| {
            // Two fetches may bring the same entries; each is applied once.
            let next = held.revision().next();
            let fits = |revision: Revision| revision >= next;
            let mut fresh = changes
                .entries
                .iter()
                .filter(|entry| fits(entry.revision))
                .peekable();
            if fresh.peek().is_none_or(|entry| entry.revision != next) {
                return false;
            }
            let catalogue = Arc::make_mut(held);
            fresh.for_each(|entry| catalogue.apply(&entry.event));
            true
        });
        Ok(())
    }

    fn revision(&self) -> Revision {
        self.catalogue.borrow().revision()
    }

    fn tell(&self, now: FollowerState) {
        self.state.send_if_modified(|state| {
            if *state == now {
                return false;
            }
            match &now {
                FollowerState::Following => tracing::info!("following the control plane"),
                FollowerState::Retrying { why } => {
                    tracing::warn!(%why, "the control plane does not answer; the catalogue stays");
                }
                FollowerState::TooOld { why } => {
                    tracing::error!(%why, "this build cannot read the catalogue any more");
                }
            }
            *state = now;
            true
        });
    }

    fn malformed(&self, error: &EntryRefused) -> CallFailed {
        CallFailed::Malformed {
            url: self.api.url().to_owned(),
            detail: error.to_string(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FollowFailed {
    #[error(transparent)]
    Call(#[from] CallFailed),
    #[error(transparent)]
    Entry(#[from] EntryRefused),
}

fn snapshot(
    api: &Api,
    answer: Result<CatalogueSnapshot, CallFailed>,
) -> Result<Catalogue, CallFailed> {
    let snapshot = answer?;
    if snapshot.version > ENTRY_VERSION {
        let (found, newest) = (snapshot.version, ENTRY_VERSION);
        let detail = EntryRefused::TooNew { found, newest }.to_string();
        return Err(CallFailed::Malformed {
            url: api.url().to_owned(),
            detail,
        });
    }
    Ok(snapshot.catalogue)
}

/// Twice as long, up to the longest. The control plane is one process; a herd is not feared, only a hot loop.
fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(RETRY_PAUSE.1)
}
