//! The one writer of the catalogue.
//!
//! A thread owns the ledger. It takes the commands that wait, decides them one after the other, writes what they come
//! to with one flush, and only then shows the new state and answers: nobody sees a change that a power cut could undo.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use felix_auth::SigningKey;
use felix_meta::{
    Catalogue, Change, Command, Decision, ENTRY_VERSION, Entry, EntryRefused, Event, Refused,
    Revision, changes,
};
use felix_model::{TenantId, TimeMs};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::history::History;
use crate::ledger::{AppendRefused, Ledger, ReadFailed};
use crate::limits::{
    COMMANDS_PER_FLUSH, COMMANDS_WAITING_MAX, FLUSH_BYTES, REPLAY_BYTES, SNAPSHOT_ENTRIES,
};
use crate::vault::{Secret, Vault};

/// Why a command had no effect that its caller may rely on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteFailed {
    /// The catalogue refused it. Nothing changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Too many commands wait. It was not tried.
    #[error("too many writes at once; try again")]
    Busy,
    /// The disk is full. Nothing changed.
    #[error("the control plane's disk is full")]
    Full,
    /// The ledger failed while it was written, or before. It may be there after a restart.
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
    /// The writer's thread could not be started.
    #[error("no thread for the ledger: {0}")]
    Thread(String),
}

/// Reads the catalogue and changes it. Clones are the same authority; when the last is gone, the writer ends.
#[derive(Clone, Debug)]
pub struct Authority {
    commands: mpsc::Sender<Job>,
    seen: watch::Receiver<Arc<Catalogue>>,
    vault: Arc<RwLock<Vault>>,
    history: Arc<Mutex<History>>,
    healthy: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Job {
    command: Command,
    secrets: Vec<Secret>,
    answer: oneshot::Sender<Result<Option<Event>, WriteFailed>>,
}

/// A record of the ledger.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    entry: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<Secret>,
}

/// A snapshot in the ledger.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u16,
    catalogue: Catalogue,
    secrets: Vec<Secret>,
}

impl Authority {
    /// Reads the state from the ledger and starts the writer.
    ///
    /// # Errors
    /// [`StartFailed`] when the ledger holds something that cannot be read.
    pub fn start(mut ledger: Box<dyn Ledger>) -> Result<Self, StartFailed> {
        let (catalogue, vault, history) = replay(&mut *ledger)?;
        let (commands, waiting) = mpsc::channel(COMMANDS_WAITING_MAX);
        let (show, seen) = watch::channel(Arc::new(catalogue.clone()));
        let (health, healthy) = watch::channel(true);
        let vault = Arc::new(RwLock::new(vault));
        let history = Arc::new(Mutex::new(history));
        let writer = Writer {
            ledger,
            staged: catalogue,
            show,
            health,
            vault: Arc::clone(&vault),
            history: Arc::clone(&history),
        };
        std::thread::Builder::new()
            .name("felix-ledger".into())
            .spawn(move || writer.run(waiting))
            .map_err(|error| StartFailed::Thread(error.to_string()))?;
        Ok(Self {
            commands,
            seen,
            vault,
            history,
            healthy,
        })
    }

    /// The catalogue as it is now. Everything in it is durable.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.seen.borrow())
    }

    /// Tells of every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.seen.clone()
    }

    /// Whether the ledger takes writes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        *self.healthy.borrow()
    }

    /// Carries a command out. When it returns, what changed is durable and visible; `None` when nothing had to change.
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
        let mut healthy = self.healthy.clone();
        drop(self);
        while healthy.changed().await.is_ok() {}
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

/// Reads what the ledger holds, from its snapshot on.
fn replay(ledger: &mut dyn Ledger) -> Result<(Catalogue, Vault, History), StartFailed> {
    let (mut catalogue, mut vault) = read_snapshot(ledger);
    let mut history = History::after(&catalogue);
    let began_at = catalogue.revision();
    loop {
        let page = ledger.read_after(catalogue.revision(), REPLAY_BYTES)?;
        if page.is_empty() {
            break;
        }
        for record in page {
            let expected = catalogue.revision().next();
            let (entry, secrets) = read_record(&record).map_err(|why| StartFailed::Entry {
                revision: expected,
                why,
            })?;
            if entry.revision != expected {
                return Err(StartFailed::Order {
                    expected,
                    found: entry.revision,
                });
            }
            vault.apply(&entry.event, &secrets);
            let rows = changes(&catalogue, &entry.event);
            catalogue.apply_entry(&entry);
            history.remember(Arc::new(entry), rows, record.len());
        }
    }
    let replayed = catalogue.revision().0 - began_at.0;
    tracing::info!(
        revision = catalogue.revision().0,
        replayed,
        "read the ledger"
    );
    if replayed >= SNAPSHOT_ENTRIES {
        keep_snapshot(ledger, &catalogue, &vault);
    }
    Ok((catalogue, vault, history))
}

/// The snapshot, or nothing. The ledger holds every record from the first, so a snapshot that cannot be used costs only
/// time.
fn read_snapshot(ledger: &dyn Ledger) -> (Catalogue, Vault) {
    let found = match ledger.snapshot() {
        Ok(Some(found)) => found,
        Ok(None) => return Default::default(),
        Err(error) => {
            tracing::warn!(%error, "the ledger's snapshot cannot be read; reading all records");
            return Default::default();
        }
    };
    let state = serde_json::from_slice::<State>(&found.1);
    let usable = |state: &State| {
        state.version == ENTRY_VERSION
            && state.catalogue.revision() == found.0
            && found.0 <= ledger.revision()
    };
    match state.ok().filter(usable) {
        Some(state) => {
            let mut vault = Vault::default();
            vault.keep(&state.secrets);
            (state.catalogue, vault)
        }
        None => {
            tracing::warn!(
                at = found.0.0,
                "the ledger's snapshot does not fit; reading all records"
            );
            Default::default()
        }
    }
}

fn keep_snapshot(ledger: &mut dyn Ledger, catalogue: &Catalogue, vault: &Vault) {
    let state = State {
        version: ENTRY_VERSION,
        catalogue: catalogue.clone(),
        secrets: vault.secrets(),
    };
    let kept = serde_json::to_vec(&state)
        .map_err(|error| ReadFailed(error.to_string()))
        .and_then(|bytes| ledger.keep_snapshot(catalogue.revision(), &bytes));
    if let Err(error) = kept {
        tracing::warn!(%error, "no snapshot of the ledger; the next start takes longer");
    }
}

fn read_record(record: &[u8]) -> Result<(Entry, Vec<Secret>), EntryRefused> {
    let written: Written = serde_json::from_slice(record)
        .map_err(|error| EntryRefused::Malformed(error.to_string()))?;
    Ok((Entry::from_json(&written.entry)?, written.secrets))
}

struct Writer {
    ledger: Box<dyn Ledger>,
    /// The state with everything decided, durable or not.
    staged: Catalogue,
    show: watch::Sender<Arc<Catalogue>>,
    health: watch::Sender<bool>,
    vault: Arc<RwLock<Vault>>,
    history: Arc<Mutex<History>>,
}

/// A job that was decided.
struct Decided {
    job: Job,
    outcome: Result<Option<Staged>, Refused>,
}

/// A change that waits to become durable.
struct Staged {
    entry: Arc<Entry>,
    /// What it means for the published feeds.
    rows: Vec<Change>,
    record: Bytes,
}

impl Writer {
    fn run(mut self, mut waiting: mpsc::Receiver<Job>) {
        while let Some(first) = waiting.blocking_recv() {
            let before = self.staged.revision();
            let (decided, records) = self.decide(first, &mut waiting);
            let written = self.write(before, &records);
            self.answer(decided, &written);
        }
        // The ledger ends before the channels that tell of the writer's end.
        self.ledger.close();
    }

    /// Decides the jobs that are there, and makes the records of those that change something.
    fn decide(
        &mut self,
        first: Job,
        waiting: &mut mpsc::Receiver<Job>,
    ) -> (Vec<Decided>, Vec<Bytes>) {
        let (mut decided, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(job) = next {
            let outcome = self.decide_one(&job);
            if let Ok(Some(staged)) = &outcome {
                bytes += staged.record.len();
                records.push(staged.record.clone());
            }
            decided.push(Decided { job, outcome });
            let room = decided.len() < COMMANDS_PER_FLUSH && bytes < FLUSH_BYTES;
            next = if room { waiting.try_recv().ok() } else { None };
        }
        (decided, records)
    }

    fn decide_one(&mut self, job: &Job) -> Result<Option<Staged>, Refused> {
        let event = match self.staged.decide(&job.command)? {
            Decision::Change(event) => event,
            Decision::Unchanged => return Ok(None),
        };
        let rows = changes(&self.staged, &event);
        let entry = self.staged.entry(now(), event, None);
        self.staged.apply_entry(&entry);
        // Events are plain records with string keys, which always have a JSON form. Should one have none, its record
        // is empty, and the flush fails before anything is written.
        let written = serde_json::to_value(&entry).and_then(|entry| {
            serde_json::to_vec(&Written {
                entry,
                secrets: job.secrets.clone(),
            })
        });
        let record = written.map_or_else(|_| Bytes::new(), Bytes::from);
        Ok(Some(Staged {
            entry: Arc::new(entry),
            rows,
            record,
        }))
    }

    fn write(&mut self, before: Revision, records: &[Bytes]) -> Result<(), WriteFailed> {
        if records.is_empty() {
            return Ok(());
        }
        if records.iter().any(Bytes::is_empty) {
            tracing::error!("an event has no JSON form; it was not written");
            return Err(WriteFailed::Unconfirmed);
        }
        let refused = match self.ledger.append(before, records) {
            Ok(()) => {
                self.health
                    .send_if_modified(|healthy| !std::mem::replace(healthy, true));
                return Ok(());
            }
            Err(refused) => refused,
        };
        tracing::error!(error = %refused, "the ledger was not written");
        match refused {
            AppendRefused::Full => Err(WriteFailed::Full),
            AppendRefused::Unfit(_) => Err(WriteFailed::Busy),
            AppendRefused::Raced { .. } | AppendRefused::Failed(_) => {
                self.health.send_replace(false);
                Err(WriteFailed::Unconfirmed)
            }
        }
    }

    fn answer(&mut self, decided: Vec<Decided>, written: &Result<(), WriteFailed>) {
        if let Err(error) = written {
            self.staged = Catalogue::clone(&self.show.borrow());
            // Also who was refused, or told that nothing needs doing, was so on a state that is taken back.
            for Decided { job, .. } in decided {
                let _ = job.answer.send(Err(error.clone()));
            }
            return;
        }
        let (mut answers, mut changed) = (Vec::new(), Vec::new());
        for Decided { job, outcome } in decided {
            let answer = match outcome {
                Ok(Some(staged)) => {
                    let event = staged.entry.event.clone();
                    changed.push((staged, job.secrets));
                    Ok(Some(event))
                }
                Ok(None) => Ok(None),
                Err(refused) => Err(refused.into()),
            };
            answers.push((job.answer, answer));
        }
        self.publish(changed);
        for (sender, answer) in answers {
            // Who has gone away meanwhile does not want to know.
            let _ = sender.send(answer);
        }
    }

    /// Shows what is durable now: keys first, then the past, then the state, so that whoever sees a state finds the
    /// rest.
    fn publish(&self, changed: Vec<(Staged, Vec<Secret>)>) {
        if changed.is_empty() {
            return;
        }
        let mut vault = self.vault.write().unwrap_or_else(PoisonError::into_inner);
        for (staged, secrets) in &changed {
            vault.apply(&staged.entry.event, secrets);
        }
        drop(vault);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        for (staged, _) in changed {
            history.remember(staged.entry, staged.rows, staged.record.len());
        }
        drop(history);
        self.show.send_replace(Arc::new(self.staged.clone()));
    }
}

/// The control plane's clock.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
