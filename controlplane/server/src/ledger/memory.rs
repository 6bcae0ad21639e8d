//! A ledger that forgets everything when the process ends: for tests and for a node that keeps nothing.

use bytes::Bytes;
use felix_meta::Revision;

use super::{AppendRefused, Ledger, ReadFailed};

/// Records in a vector.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    records: Vec<Bytes>,
    snapshot: Option<(Revision, Vec<u8>)>,
}

impl MemoryLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Ledger for MemoryLedger {
    fn revision(&self) -> Revision {
        Revision(self.records.len() as u64)
    }

    fn append(&mut self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let found = self.revision();
        if expected != found {
            return Err(AppendRefused::Raced { expected, found });
        }
        self.records.extend_from_slice(records);
        Ok(())
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        let from = usize::try_from(after.0).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let rest = self.records.get(from..).unwrap_or_default();
        let page = rest.iter().take_while(|record| {
            let fits = bytes == 0 || bytes + record.len() <= bytes_max;
            bytes += record.len();
            fits
        });
        Ok(page.cloned().collect())
    }

    fn keep_snapshot(&mut self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        self.snapshot = Some((at, state.to_vec()));
        Ok(())
    }

    fn close(self: Box<Self>) {}

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        Ok(self.snapshot.clone())
    }
}
