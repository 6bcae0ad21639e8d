//! A ledger that forgets everything when the process ends: for tests and for a node that keeps nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use felix_meta::Revision;
use tokio::sync::watch;

use super::{AppendRefused, ConfirmFailed, Ledger, ReadFailed, Standing};

/// Records in a vector. Clones write and read the same ones, as instances over one store do.
#[derive(Clone, Debug)]
pub struct MemoryLedger {
    kept: Arc<Mutex<Kept>>,
    moved: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct Kept {
    records: Vec<Bytes>,
    snapshot: Option<(Revision, Vec<u8>)>,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self {
            kept: Arc::default(),
            moved: watch::Sender::new(Revision(0)),
        }
    }
}

impl MemoryLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for MemoryLedger {
    fn revision(&self) -> Revision {
        *self.moved.borrow()
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.moved.subscribe()
    }

    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let mut kept = self.kept();
        let found = Revision(kept.records.len() as u64);
        if expected != found {
            return Err(AppendRefused::Raced { expected, found });
        }
        kept.records.extend_from_slice(records);
        if !records.is_empty() {
            self.moved.send_replace(Revision(kept.records.len() as u64));
        }
        Ok(())
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        let from = usize::try_from(after.0).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let kept = self.kept();
        let rest = kept.records.get(from..).unwrap_or_default();
        let page = rest.iter().take_while(|record| {
            let fits = bytes == 0 || bytes + record.len() <= bytes_max;
            bytes += record.len();
            fits
        });
        Ok(page.cloned().collect())
    }

    fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        Ok(self.revision())
    }

    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        let snapshot = &mut self.kept().snapshot;
        if snapshot.as_ref().is_none_or(|(kept, _)| *kept <= at) {
            *snapshot = Some((at, state.to_vec()));
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        Ok(self.kept().snapshot.clone())
    }

    fn standing(&self) -> Standing {
        Standing::alone("memory", None)
    }

    fn close(self: Box<Self>) {}
}
