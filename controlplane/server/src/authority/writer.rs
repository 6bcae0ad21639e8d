//! The thread that writes, and applies what others wrote.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use crate::clock::now;
use bytes::Bytes;
use felix_meta::{
    By, Catalogue, Change, Command, Decision, Entry, Event, Refused, Revision, changes,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

use super::record::{self, Written};
use super::{StartFailed, WriteFailed};
use crate::history::History;
use crate::ledger::{AppendRefused, Ledger};
use crate::limits::{COMMANDS_PER_FLUSH, FLUSH_BYTES, FOLLOW_RETRY, RACES_MAX, REPLAY_BYTES};
use crate::vault::{Secret, Vault};

/// A command that waits.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Command,
    /// Who wants it; `None` for the control plane itself.
    pub(super) by: Option<By>,
    pub(super) secrets: Vec<Secret>,
    pub(super) answer: oneshot::Sender<Result<Option<Event>, WriteFailed>>,
}

pub(super) struct Writer {
    ledger: Arc<Box<dyn Ledger>>,
    /// Waits for several things at once, and for nothing else.
    waits: Runtime,
    /// The state with everything decided, durable or not. Between flushes it is what is shown.
    staged: Catalogue,
    show: watch::Sender<Arc<Catalogue>>,
    trouble: watch::Sender<Option<String>>,
    vault: Arc<RwLock<Vault>>,
    history: Arc<Mutex<History>>,
}

/// A job that was decided.
struct Decided {
    job: Job,
    outcome: Result<Option<Staged>, Refused>,
}

/// A change that waits to become durable, or is.
struct Staged {
    entry: Arc<Entry>,
    /// What it means for the published feeds.
    rows: Vec<Change>,
    record: Bytes,
}

/// What the writer does next.
enum Next {
    Write(Box<Job>),
    Follow,
    End,
}

/// Why a flush did not succeed.
enum Unwritten {
    /// Others wrote; the commands are to be decided again.
    Raced,
    /// The commands are refused.
    Failed(WriteFailed),
}

impl Writer {
    pub(super) fn new(
        ledger: Arc<Box<dyn Ledger>>,
        staged: Catalogue,
        show: watch::Sender<Arc<Catalogue>>,
        trouble: watch::Sender<Option<String>>,
        vault: Arc<RwLock<Vault>>,
        history: Arc<Mutex<History>>,
    ) -> Result<Self, StartFailed> {
        let waits = Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| StartFailed::Thread(error.to_string()))?;
        Ok(Self {
            ledger,
            waits,
            staged,
            show,
            trouble,
            vault,
            history,
        })
    }

    /// Writes and follows until nobody can send commands any more; then `reading` has ended too, and the ledger is
    /// closed.
    pub(super) fn run(mut self, mut waiting: mpsc::Receiver<Job>, reading: JoinHandle<()>) {
        let mut moved = self.ledger.watch();
        // What came between the start's reading and this.
        moved.mark_changed();
        loop {
            match self.next(&mut waiting, &mut moved) {
                Next::Write(first) => self.flush(*first, &mut waiting),
                Next::Follow => {
                    let wanted = *moved.borrow_and_update();
                    // A ledger that tells before one can read is asked again.
                    if self.catch_up().is_ok() && self.staged.revision() < wanted {
                        moved.mark_changed();
                    }
                }
                Next::End => break,
            }
        }
        let Self {
            ledger, trouble, ..
        } = self;
        if reading.join().is_err() {
            tracing::error!("the thread that reads the ledger broke");
        }
        match Arc::try_unwrap(ledger) {
            Ok(ledger) => ledger.close(),
            Err(_) => tracing::warn!("the ledger is still in use and was not closed in order"),
        }
        // The ledger ends before the channel that tells of the writer's end.
        drop(trouble);
    }

    fn next(
        &self,
        waiting: &mut mpsc::Receiver<Job>,
        moved: &mut watch::Receiver<Revision>,
    ) -> Next {
        let behind = self.trouble.borrow().is_some();
        self.waits.block_on(async {
            tokio::select! {
                biased;
                Ok(()) = moved.changed() => Next::Follow,
                job = waiting.recv() => job.map_or(Next::End, |job| Next::Write(Box::new(job))),
                () = tokio::time::sleep(FOLLOW_RETRY), if behind => Next::Follow,
            }
        })
    }

    /// Carries out a job and those that wait behind it, with one append; again and again while others are quicker.
    fn flush(&mut self, first: Job, waiting: &mut mpsc::Receiver<Job>) {
        let mut jobs = VecDeque::from([first]);
        let mut failed = WriteFailed::Busy;
        for _ in 0..RACES_MAX {
            let before = self.staged.revision();
            let (decided, records) = self.decide(jobs, waiting);
            let unwritten = match self.write(before, &records) {
                Ok(()) => return self.answer(decided),
                Err(unwritten) => unwritten,
            };
            self.staged = Catalogue::clone(&self.show.borrow());
            jobs = decided.into_iter().map(|decided| decided.job).collect();
            if let Unwritten::Failed(error) = unwritten {
                failed = error;
                break;
            }
            if self.catch_up().is_err() {
                failed = WriteFailed::Unreachable;
                break;
            }
        }
        // Also who was refused, or told that nothing needs doing, was so on a state that was not the newest.
        for job in jobs {
            let _ = job.answer.send(Err(failed.clone()));
        }
    }

    /// Decides these jobs and those that are there beside them, and makes the records of those that change something.
    fn decide(
        &mut self,
        mut jobs: VecDeque<Job>,
        waiting: &mut mpsc::Receiver<Job>,
    ) -> (Vec<Decided>, Vec<Bytes>) {
        let (mut decided, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = jobs.pop_front();
        while let Some(mut job) = next {
            job.command.date(now());
            let outcome = self.decide_one(&job);
            if let Ok(Some(staged)) = &outcome {
                bytes += staged.record.len();
                records.push(staged.record.clone());
            }
            decided.push(Decided { job, outcome });
            let room = decided.len() < COMMANDS_PER_FLUSH && bytes < FLUSH_BYTES;
            next = match jobs.pop_front() {
                None if room => waiting.try_recv().ok(),
                next => next,
            };
        }
        (decided, records)
    }

    fn decide_one(&mut self, job: &Job) -> Result<Option<Staged>, Refused> {
        let event = match self.staged.decide(&job.command)? {
            Decision::Change(event) => event,
            Decision::Unchanged => return Ok(None),
        };
        let rows = changes(&self.staged, &event);
        let entry = self.staged.entry(now(), event, job.by.clone());
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

    fn write(&self, before: Revision, records: &[Bytes]) -> Result<(), Unwritten> {
        if records.is_empty() {
            return self.nothing_newer(before);
        }
        if records.iter().any(Bytes::is_empty) {
            tracing::error!("an event has no JSON form; it was not written");
            return Err(Unwritten::Failed(WriteFailed::Unconfirmed));
        }
        let refused = match self.ledger.append(before, records) {
            Ok(()) => {
                self.tell(None);
                return Ok(());
            }
            Err(refused) => refused,
        };
        if let AppendRefused::Raced { expected, found } = &refused {
            tracing::debug!(%expected, %found, "others wrote first");
            return Err(Unwritten::Raced);
        }
        tracing::error!(error = %refused, "the ledger was not written");
        Err(Unwritten::Failed(match refused {
            AppendRefused::Full => WriteFailed::Full,
            AppendRefused::Unfit(_) | AppendRefused::Raced { .. } => WriteFailed::Busy,
            AppendRefused::Unreachable(_) => WriteFailed::Unreachable,
            AppendRefused::Unconfirmed(_) | AppendRefused::Failed(_) => WriteFailed::Unconfirmed,
        }))
    }

    /// Whether a refusal, or that nothing needs doing, was said of the newest state there is.
    fn nothing_newer(&self, decided_at: Revision) -> Result<(), Unwritten> {
        match self.ledger.confirm() {
            Ok(newest) if newest > decided_at => Err(Unwritten::Raced),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "a command was not answered");
                Err(Unwritten::Failed(WriteFailed::Unreachable))
            }
        }
    }

    fn answer(&self, decided: Vec<Decided>) {
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

    /// Applies what others wrote.
    fn catch_up(&mut self) -> Result<(), StartFailed> {
        let caught_up = self.apply_all();
        self.tell(caught_up.as_ref().err().map(ToString::to_string));
        caught_up
    }

    fn apply_all(&mut self) -> Result<(), StartFailed> {
        while self.staged.revision() < self.ledger.revision() {
            let page = self
                .ledger
                .read_after(self.staged.revision(), REPLAY_BYTES)?;
            if page.is_empty() {
                let missing = self.staged.revision().next();
                return Err(StartFailed::Missing { revision: missing });
            }
            let mut changed = Vec::new();
            let mut read = Ok(());
            for record in page {
                let (entry, secrets) = match record::read_next(&self.staged, &record) {
                    Ok(next) => next,
                    Err(error) => {
                        read = Err(error);
                        break;
                    }
                };
                let rows = changes(&self.staged, &entry.event);
                self.staged.apply_entry(&entry);
                let entry = Arc::new(entry);
                let staged = Staged {
                    entry,
                    rows,
                    record,
                };
                changed.push((staged, secrets));
            }
            // Also what came before a record that cannot be read is so.
            self.publish(changed);
            read?;
        }
        Ok(())
    }

    fn tell(&self, trouble: Option<String>) {
        self.trouble.send_if_modified(|told| {
            if *told == trouble {
                return false;
            }
            if let Some(trouble) = &trouble {
                tracing::error!(%trouble, "the ledger is not followed");
            }
            *told = trouble;
            true
        });
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
