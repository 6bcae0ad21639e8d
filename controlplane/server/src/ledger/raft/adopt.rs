//! Taking over the ledger that one process kept on its disk before: every record is read, appended to the raft ledger,
//! read back and compared; then the old directory gets another name. Whatever interrupts that, the next start goes on.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::{Disk, DiskError, LogOptions, LogReader, OpenRefused, ReadRefused, durable};
use felix_meta::Revision;
use felix_model::{BatchRefused, Offset, Records};

use crate::ledger::disk::LOST;
use crate::ledger::{AppendRefused, Ledger, NotWhole, ReadFailed, whole};

/// The directory of a disk ledger, and its name once it was taken over.
const OLD: &str = "ledger";
const ADOPTED: &str = "ledger.adopted";

/// Bytes of records taken over at a time.
const PAGE_BYTES: usize = 1024 * 1024;

/// Why a ledger was not taken over. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdoptFailed {
    /// The old one cannot be opened.
    #[error("the ledger to take over cannot be opened: {0}")]
    Open(#[from] OpenRefused),
    /// The old one cannot be read.
    #[error("the ledger to take over cannot be read: {0}")]
    Old(#[from] ReadRefused),
    /// It lost what was acknowledged.
    #[error("the ledger to take over: {0}")]
    NotWhole(#[from] NotWhole),
    /// A record of it cannot be read.
    #[error("record {revision} of the ledger to take over: {why}")]
    Record {
        /// Which.
        revision: u64,
        /// What is wrong with it.
        why: BatchRefused,
    },
    /// The raft ledger cannot be read.
    #[error("the raft ledger cannot be read: {0}")]
    New(#[from] ReadFailed),
    /// The raft ledger does not take the records.
    #[error("the raft ledger does not take the records: {0}")]
    Append(#[from] AppendRefused),
    /// The raft ledger holds something else.
    #[error(
        "both a ledger of one process and a raft ledger are in this data directory, and they differ at record {revision}; \
         keep the one that counts and move the other away"
    )]
    Differs {
        /// Where.
        revision: u64,
    },
    /// Several members cannot take it over together.
    #[error(
        "this data directory holds a ledger of one process: start it once without raft_peers, so that it is taken over, and \
         add the other members then"
    )]
    Several,
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Whether there is a ledger to take over.
pub(crate) fn is_there(disk: &dyn Disk, root: &Path) -> bool {
    disk.list(&root.join(OLD))
        .is_ok_and(|entries| !entries.is_empty())
}

/// Takes over the disk ledger of a data directory. Blocking.
pub(crate) fn adopt(
    disk: &Arc<dyn Disk>,
    root: &Path,
    ledger: &dyn Ledger,
) -> Result<(), AdoptFailed> {
    let options = LogOptions {
        verify_bytes: u64::MAX,
        ..LogOptions::default()
    };
    let (log, _) =
        whole::open(disk, &root.join(OLD), options, &root.join(LOST)).map_err(|why| match why {
            NotWhole::Open(why) => AdoptFailed::Open(why),
            why @ (NotWhole::Lost { .. } | NotWhole::Disk(_)) => AdoptFailed::NotWhole(why),
        })?;
    let (reader, end) = (log.reader(), log.end().0);
    tracing::info!(records = end, "taking over the ledger of one process");
    let mut at = 0;
    while at < end {
        let page = page(&reader, at, end)?;
        let held = ledger.revision().0.saturating_sub(at);
        let held = usize::try_from(held).unwrap_or(usize::MAX).min(page.len());
        let (there, missing) = page.split_at(held);
        compare(ledger, at, there)?;
        let from = at + held as u64;
        if !missing.is_empty() {
            ledger.append(Revision(from), missing)?;
            compare(ledger, from, missing)?;
        }
        at += page.len() as u64;
    }
    drop(reader);
    drop(log);
    // Only the name changes: the records are kept twice until an operator removes them.
    Ok(durable::rename(
        &**disk,
        &root.join(OLD),
        &root.join(ADOPTED),
    )?)
}

/// Records from an offset on; at least one.
fn page(reader: &LogReader, from: u64, end: u64) -> Result<Vec<Bytes>, AdoptFailed> {
    let page = reader.read(Offset(from), PAGE_BYTES, Offset(end))?;
    let mut found = Vec::new();
    for batch in &page.batches {
        let bad = |why| AdoptFailed::Record {
            revision: from + 1,
            why,
        };
        for record in Records::new(batch).map_err(bad)? {
            let record = record.map_err(bad)?;
            if record.offset.0 >= from {
                found.push(record.value.unwrap_or_default());
            }
        }
    }
    Ok(found)
}

/// Whether the raft ledger has just these records behind a revision.
fn compare(ledger: &dyn Ledger, after: u64, records: &[Bytes]) -> Result<(), AdoptFailed> {
    let mut compared = 0;
    while compared < records.len() {
        let at = after + compared as u64;
        let found = ledger.read_after(Revision(at), PAGE_BYTES)?;
        let expected = records.get(compared..).unwrap_or_default();
        if found.is_empty() {
            return Err(AdoptFailed::Differs { revision: at + 1 });
        }
        for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
            if found != expected {
                let revision = at + n as u64 + 1;
                return Err(AdoptFailed::Differs { revision });
            }
        }
        compared += found.len();
    }
    Ok(())
}
