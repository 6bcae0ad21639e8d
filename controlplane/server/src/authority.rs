//! The catalogue, and the one way to change it here.
//!
//! A thread writes: it takes the commands that wait, decides them one after the other, appends what they come to with
//! one flush, and only then shows the new state and answers: nobody sees a change that a power cut could undo. Other
//! processes may write the same ledger. What they wrote is applied when the ledger moves, and when an append loses a
//! race, what the winner wrote is applied and the commands are decided again. A second thread asks the ledger for what
//! may take long, so that reading waits for no flush.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use bytes::Bytes;
use felix_auth::SigningKey;
use felix_meta::{Catalogue, Command, Entry, EntryRefused, Event, Refused, Revision};
use felix_model::TenantId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::history::History;
use crate::ledger::{ConfirmFailed, Ledger, Measure, ReadFailed, Standing};
use crate::limits::{COMMANDS_WAITING_MAX, CONFIRM_TIME, READS_WAITING_MAX};
use crate::request;
use crate::vault::{Secret, Vault};

mod reader;
mod record;
mod writer;

use reader::Ask;
pub(crate) use record::check_next;
use writer::{Job, Writer};

/// Why a command had no effect that its caller may rely on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteFailed {
    /// The catalogue refused it. Nothing changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Too many commands wait, or others write so much that this one lost every race. Nothing changed.
    #[error("too many writes at once; try again")]
    Busy,
    /// The disk is full. Nothing changed.
    #[error("the control plane's disk is full")]
    Full,
    /// Those who keep the ledger cannot be reached, or cannot agree. Nothing changed.
    #[error("the control plane's ledger cannot be reached; nothing was changed")]
    Unreachable,
    /// The ledger failed while it was written, or before. It may be there later, or after a restart.
    #[error("the change could not be confirmed and may still be made")]
    Unconfirmed,
    /// The process is ending. It was not tried.
    #[error("the control plane is shutting down")]
    Stopping,
}

/// Why the state could not be read from the ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartFailed {
    /// The ledger cannot be read.
    #[error("the ledger cannot be read: {0}")]
    Ledger(#[from] ReadFailed),
    /// A record is no entry that this build understands.
    #[error("ledger record {revision}: {why}")]
    Entry {
        /// Which record.
        revision: Revision,
        /// What is wrong with it.
        why: EntryRefused,
    },
    /// A record does not follow the one before.
    #[error("ledger record {expected} says it is {found}")]
    Order {
        /// Its place.
        expected: Revision,
        /// What it says.
        found: Revision,
    },
    /// A record that is said to be there is not.
    #[error("ledger record {revision} is missing")]
    Missing {
        /// Its place.
        revision: Revision,
    },
    /// A thread could not be started.
    #[error("no thread for the ledger: {0}")]
    Thread(String),
}

/// Reads the catalogue and changes it. Clones are the same authority; when the last is gone, its threads end.
#[derive(Clone, Debug)]
pub struct Authority {
    commands: mpsc::Sender<Job>,
    asks: mpsc::Sender<Ask>,
    seen: watch::Receiver<Arc<Catalogue>>,
    vault: Arc<RwLock<Vault>>,
    history: Arc<Mutex<History>>,
    /// What keeps this process from writing or following, beside what the ledger says itself.
    trouble: watch::Receiver<Option<String>>,
    /// Weak, because the ledger is closed by the writer when every clone is gone.
    ledger: Weak<Box<dyn Ledger>>,
}

impl Authority {
    /// Reads the state from the ledger and starts the threads. Blocking.
    ///
    /// # Errors
    /// [`StartFailed`] when the ledger holds something that cannot be read.
    pub fn start(ledger: Box<dyn Ledger>) -> Result<Self, StartFailed> {
        let (catalogue, vault, history) = record::replay(&*ledger)?;
        let ledger = Arc::new(ledger);
        let (commands, waiting) = mpsc::channel(COMMANDS_WAITING_MAX);
        let (asks, asked) = mpsc::channel(READS_WAITING_MAX);
        let (show, seen) = watch::channel(Arc::new(catalogue.clone()));
        let (tell, trouble) = watch::channel(None);
        let vault = Arc::new(RwLock::new(vault));
        let history = Arc::new(Mutex::new(history));
        let writer = Writer::new(
            Arc::clone(&ledger),
            catalogue,
            show,
            tell,
            Arc::clone(&vault),
            Arc::clone(&history),
        )?;
        let weak = Arc::downgrade(&ledger);
        let reading = thread("felix-ledger-read", move || reader::run(&**ledger, asked))?;
        thread("felix-ledger", move || writer.run(waiting, reading))?;
        Ok(Self {
            commands,
            asks,
            seen,
            vault,
            history,
            trouble,
            ledger: weak,
        })
    }

    /// The catalogue as it is known here. Everything in it is durable; what others wrote a moment ago may be missing.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.seen.borrow())
    }

    /// The catalogue with everything that was acknowledged to anybody, at any process, before this call.
    ///
    /// # Errors
    /// [`ConfirmFailed`] when that cannot be known now.
    pub async fn confirmed(&self) -> Result<Arc<Catalogue>, ConfirmFailed> {
        let (answer, answered) = oneshot::channel();
        let busy = |_| ConfirmFailed("too many ask at once".into());
        self.asks.try_send(Ask::Confirm(answer)).map_err(busy)?;
        let late = |_| ConfirmFailed(format!("no answer within {} s", CONFIRM_TIME.as_secs()));
        let stopping = || ConfirmFailed("the control plane is shutting down".into());
        let confirmed = async {
            let revision = answered.await.unwrap_or_else(|_| Err(stopping()))?;
            let mut seen = self.seen.clone();
            let caught_up = seen
                .wait_for(|catalogue| catalogue.revision() >= revision)
                .await
                .map_err(|_| stopping())?;
            Ok(Arc::clone(&caught_up))
        };
        tokio::time::timeout(CONFIRM_TIME, confirmed)
            .await
            .map_err(late)?
    }

    /// Tells of every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.seen.clone()
    }

    /// How the ledger stands, and this process with it.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let Some(ledger) = self.ledger.upgrade() else {
            return Standing::alone("none", Some("the control plane is shutting down".into()));
        };
        let mut standing = ledger.standing();
        let broken = (self.commands.is_closed() || self.asks.is_closed())
            .then(|| "a thread of the ledger broke; restart this process".to_owned());
        let trouble = broken.or_else(|| self.trouble.borrow().clone());
        if let Some(trouble) = trouble {
            standing.ready = false;
            standing.why_not.get_or_insert(trouble);
        }
        standing
    }

    /// Whether the ledger takes writes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.standing().ready
    }

    /// What else the ledger counts.
    pub(crate) fn measures(&self) -> Vec<Measure> {
        self.ledger
            .upgrade()
            .map(|ledger| ledger.measures())
            .unwrap_or_default()
    }

    /// Entries after a revision as the ledger holds them, oldest first, from the very first on: at least one unless
    /// there are none, and of about `bytes_max` at most. Private keys are not among them.
    ///
    /// # Errors
    /// [`ReadFailed`] when the ledger, or an entry, cannot be read.
    pub async fn entries_after(
        &self,
        after: Revision,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, ReadFailed> {
        let records = self.records_after(after, bytes_max).await?;
        let read = |record: &Bytes| {
            record::read(record)
                .map(|(entry, _)| entry)
                .map_err(|error| ReadFailed(error.to_string()))
        };
        records.iter().map(read).collect()
    }

    /// The records themselves, private keys included.
    pub(crate) async fn records_after(
        &self,
        after: Revision,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, ReadFailed> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask::Read {
            after,
            bytes_max,
            answer,
        };
        let stopping = || ReadFailed("the control plane is shutting down".into());
        self.asks.send(ask).await.map_err(|_| stopping())?;
        answered.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Carries a command out. When it returns, what changed is durable and visible; `None` when nothing had to change.
    ///
    /// While a request is answered, the change is written down as its caller's; see `request`.
    ///
    /// # Errors
    /// [`WriteFailed`].
    pub async fn submit(&self, command: Command) -> Result<Option<Event>, WriteFailed> {
        self.submit_with(command, Vec::new()).await
    }

    /// As [`Authority::submit`], for a command that brings a private key with it.
    ///
    /// # Errors
    /// [`WriteFailed`].
    pub async fn submit_with_key(
        &self,
        command: Command,
        tenant: &TenantId,
        key: &SigningKey,
    ) -> Result<Option<Event>, WriteFailed> {
        self.submit_with(command, vec![Secret::new(tenant, key)])
            .await
    }

    async fn submit_with(
        &self,
        command: Command,
        secrets: Vec<Secret>,
    ) -> Result<Option<Event>, WriteFailed> {
        let (answer, answered) = oneshot::channel();
        self.commands
            .try_send(Job {
                command,
                by: request::by(),
                secrets,
                answer,
            })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => WriteFailed::Busy,
                mpsc::error::TrySendError::Closed(_) => WriteFailed::Stopping,
            })?;
        answered.await.unwrap_or(Err(WriteFailed::Unconfirmed))
    }

    /// Lets go of the authority and waits until its writer has ended, which it does when every clone is gone.
    pub(crate) async fn ended(self) {
        let mut trouble = self.trouble.clone();
        drop(self);
        while trouble.changed().await.is_ok() {}
    }

    /// The key that signs new tokens of a tenant; `None` for a tenant that is unknown or not initialised.
    pub(crate) fn signing_key(&self, tenant: &TenantId) -> Option<Arc<SigningKey>> {
        let vault = self.vault.read().unwrap_or_else(PoisonError::into_inner);
        vault.current(&self.seen.borrow(), tenant)
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, StartFailed> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(|error| StartFailed::Thread(error.to_string()))
}

#[cfg(test)]
mod tests;
