//! A ledger on the disk of this machine.
//!
//! ```text
//!   <data_dir>/ledger/00000000000000000000.log    a log of felix-journal; revision r is the record at offset r - 1
//!   <data_dir>/ledger.snapshot                    the revision in decimal, a line end, the state; replaced as a whole
//!   <data_dir>/ledger.lost                        there when the disk lost what was acknowledged
//! ```

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use felix_journal::{
    AppendFailed, DataDir, Disk, DiskError, Log, LogOptions, LogReader, OpenRefused, durable,
};
use felix_meta::Revision;
use felix_model::batch::BuildRefused;
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, Records, patch};
use tokio::sync::watch;

use super::{AppendRefused, ConfirmFailed, Ledger, NotWhole, ReadFailed, Standing, whole};

/// The directory of the log.
const LEDGER: &str = "ledger";

/// The file that says that the log lost something; see `whole`.
pub(super) const LOST: &str = "ledger.lost";

/// Why the ledger could not be opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenFailed {
    /// The log is damaged, or cannot be read.
    #[error("the ledger cannot be opened: {0}")]
    Log(#[from] OpenRefused),
    /// The disk failed beside the log.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log lost what was acknowledged.
    #[error(transparent)]
    NotWhole(#[from] NotWhole),
}

/// A log of felix-journal that is synced before an append returns. One process at a time has it.
#[derive(Debug)]
pub struct DiskLedger {
    disk: Arc<dyn Disk>,
    writing: Mutex<Writing>,
    reader: LogReader,
    /// The newest revision that was answered.
    moved: watch::Sender<Revision>,
    snapshot_file: PathBuf,
    /// Last, so that the directory is free for others only when the log is closed.
    _dir: DataDir,
}

#[derive(Debug)]
struct Writing {
    log: Log,
    generation: Generation,
    /// What broke it. The log's end may then be ahead of what was answered.
    failed: Option<String>,
}

impl Writing {
    fn fail(&mut self, why: &impl ToString) -> AppendRefused {
        let why = why.to_string();
        self.failed = Some(why.clone());
        AppendRefused::Failed(why)
    }
}

impl DiskLedger {
    /// Opens the ledger of a data directory, creating it when missing.
    ///
    /// # Errors
    /// [`OpenFailed`].
    pub fn open(disk: Arc<dyn Disk>, data_dir: DataDir) -> Result<Self, OpenFailed> {
        let dir = data_dir.root().join(LEDGER);
        // Every record is checked at every start: the ledger is small, and all else hangs on it.
        let options = LogOptions {
            verify_bytes: u64::MAX,
            ..LogOptions::default()
        };
        let note = data_dir.root().join(LOST);
        let (log, recovered) =
            whole::open(&disk, &dir, options, &note).map_err(|why| match why {
                NotWhole::Open(why) => OpenFailed::Log(why),
                why @ (NotWhole::Lost { .. } | NotWhole::Disk(_)) => OpenFailed::NotWhole(why),
            })?;
        if recovered.truncated_bytes > 0 {
            tracing::warn!(
                bytes = recovered.truncated_bytes,
                "cut a torn tail off the ledger"
            );
        }
        let generation = match recovered.clean {
            true => recovered.last_generation,
            // Offsets past the end may have been used for records that were never answered.
            false => recovered
                .last_generation
                .next()
                .unwrap_or(recovered.last_generation),
        };
        Ok(Self {
            reader: log.reader(),
            moved: watch::Sender::new(Revision(log.end().0)),
            writing: Mutex::new(Writing {
                log,
                generation,
                failed: None,
            }),
            snapshot_file: data_dir.root().join("ledger.snapshot"),
            disk,
            _dir: data_dir,
        })
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for DiskLedger {
    fn revision(&self) -> Revision {
        *self.moved.borrow()
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.moved.subscribe()
    }

    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let writing = &mut *self.writing();
        if let Some(why) = &writing.failed {
            return Err(AppendRefused::Failed(why.clone()));
        }
        let found = self.revision();
        if expected != found {
            return Err(AppendRefused::Raced { expected, found });
        }
        if records.is_empty() {
            return Ok(());
        }
        let batch = batch_of(records, Offset(found.0), writing.generation)
            .map_err(|error| AppendRefused::Unfit(error.to_string()))?;
        match writing.log.append(&[batch]) {
            Ok(()) => {}
            Err(AppendFailed::Full) => return Err(AppendRefused::Full),
            Err(error) => return Err(writing.fail(&error)),
        }
        if let Err(error) = writing.log.sync() {
            return Err(writing.fail(&error));
        }
        self.moved.send_replace(Revision(writing.log.end().0));
        Ok(())
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        let from = Offset(after.0);
        let page = self
            .reader
            .read(from, bytes_max, Offset(self.revision().0))
            .map_err(|error| ReadFailed(error.to_string()))?;
        let mut found = Vec::new();
        for batch in &page.batches {
            let records = Records::new(batch).map_err(|error| ReadFailed(error.to_string()))?;
            for record in records {
                let record = record.map_err(|error| ReadFailed(error.to_string()))?;
                if record.offset >= from {
                    found.push(record.value.unwrap_or_default());
                }
            }
        }
        Ok(found)
    }

    /// Nobody else writes, and what was answered was shown before.
    fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        Ok(self.revision())
    }

    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        let kept = self.snapshot().ok().flatten();
        // One from beyond the end belongs to records that are not there.
        if kept.is_some_and(|(kept, _)| kept > at && kept <= self.revision()) {
            return Ok(());
        }
        let mut bytes = format!("{at}\n").into_bytes();
        bytes.extend_from_slice(state);
        durable::replace(&*self.disk, &self.snapshot_file, &bytes)
            .map_err(|error| ReadFailed(error.to_string()))
    }

    fn standing(&self) -> Standing {
        // A long flush is no trouble, and nobody waits for it here.
        let failed = match self.writing.try_lock() {
            Ok(writing) => writing.failed.clone(),
            Err(_) => None,
        };
        Standing::alone("disk", failed)
    }

    fn close(self: Box<Self>) {
        let Self {
            writing, reader, ..
        } = *self;
        drop(reader);
        let log = writing
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .log;
        if let Err(error) = log.close() {
            tracing::warn!(%error, "the ledger was not closed in order");
        }
    }

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        let found = durable::read(&*self.disk, &self.snapshot_file)
            .map_err(|error| ReadFailed(error.to_string()))?;
        let Some(bytes) = found else { return Ok(None) };
        let malformed = || ReadFailed(format!("{} is no snapshot", self.snapshot_file.display()));
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(malformed)?;
        let (head, state) = bytes.split_at_checked(end).ok_or_else(malformed)?;
        let revision = str::from_utf8(head)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(malformed)?;
        Ok(Some((
            Revision(revision),
            state.get(1..).unwrap_or_default().to_vec(),
        )))
    }
}

/// One batch for all records of an append, so that they are there together or not at all.
fn batch_of(
    records: &[Bytes],
    base: Offset,
    generation: Generation,
) -> Result<Bytes, BuildRefused> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for record in records {
        builder.push(0, None, Some(record), &[])?;
    }
    let mut batch = builder.finish()?;
    patch(&mut batch, base, generation);
    Ok(batch.freeze())
}

#[cfg(test)]
pub(super) mod tests;
