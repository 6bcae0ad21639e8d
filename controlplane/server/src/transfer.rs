//! Metadata that moves: into a file, out of one, and from one kind of ledger to another.
//!
//! All of it is one thing: every record from the first, private keys included, read at one place and appended to an empty
//! ledger at another. What was written is read back and compared, so that a success means that they are the same, byte
//! for byte.

use std::path::Path;

use bytes::Bytes;
use felix_meta::Revision;
use felix_model::ClusterId;
use sha2::{Digest, Sha256};

use crate::authority::{Authority, StartFailed};
use crate::config::{Config, StorageBackend};
use crate::ledger::{AppendRefused, ConfirmFailed, DiskLedger, Ledger, ReadFailed};
use crate::limits::REPLAY_BYTES;
use crate::place;
use crate::server::RunFailed;

mod file;

use file::{Reading, Writing};

/// Why metadata was not moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferFailed {
    /// A ledger cannot be opened.
    #[error(transparent)]
    Open(#[from] Box<RunFailed>),
    /// A ledger cannot be read.
    #[error("the ledger cannot be read: {0}")]
    Read(#[from] ReadFailed),
    /// A ledger's end is not known.
    #[error(transparent)]
    Confirm(#[from] ConfirmFailed),
    /// A ledger does not take the records.
    #[error(transparent)]
    Append(#[from] AppendRefused),
    /// What is to be moved is not understood by this build.
    #[error(transparent)]
    Record(#[from] StartFailed),
    /// A file cannot be read or written.
    #[error("{file}: {detail}")]
    File {
        /// The file.
        file: String,
        /// What happened.
        detail: String,
    },
    /// It belongs to another cluster.
    #[error("it is of cluster `{found}`, and the configuration says `{expected}`")]
    OtherCluster {
        /// Whose it is.
        found: String,
        /// Whose ledger it was to go to.
        expected: ClusterId,
    },
    /// The ledger that was to take the records holds others.
    #[error(
        "the ledger already holds {found} records, and not the first of these; only an empty one takes them"
    )]
    NotEmpty {
        /// How many.
        found: Revision,
    },
    /// There are no records to move.
    #[error("the ledger of kind `{0}` is empty; nothing was moved")]
    Nothing(StorageBackend),
    /// From and to are the same.
    #[error("`{0}` is where the records are already")]
    Same(StorageBackend),
    /// Somebody wrote meanwhile.
    #[error(
        "the ledger went from revision {before} to {after} meanwhile; stop the control planes that write it, and \
         begin again with an empty ledger"
    )]
    Moved {
        /// Where it was at first.
        before: Revision,
        /// Where it is now.
        after: Revision,
    },
    /// What was written is not what is read back.
    #[error("the records that were written read back differently; do not use that ledger")]
    Differs,
}

impl From<RunFailed> for TransferFailed {
    fn from(failed: RunFailed) -> Self {
        Self::Open(Box::new(failed))
    }
}

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Up to which revision, which is also how many records.
    pub revision: Revision,
    /// Bytes of records.
    pub bytes: u64,
}

/// Writes the configured ledger into a new file that only this user can read. Blocking.
///
/// # Errors
/// [`TransferFailed`]; there is no file of that name then, unless there was one before.
pub fn backup(config: &Config, file: &Path) -> Result<Transferred, TransferFailed> {
    let ledger = place::open(config, config.backend())?;
    let revision = ledger.confirm()?;
    let mut writing = Writing::create(file, &config.cluster_id, revision)?;
    let done = for_all(&*ledger, revision, |record| writing.record(record))?;
    writing.finish()?;
    ledger.close();
    Ok(done)
}

/// Fills the configured ledger, which must be empty, from a file that [`backup`] wrote. Blocking.
///
/// # Errors
/// [`TransferFailed`]. The file is read to its end before anything is written; when writing fails half-way, doing the
/// same again goes on.
pub fn restore(config: &Config, file: &Path) -> Result<Transferred, TransferFailed> {
    let head = Reading::check(file)?;
    if head.cluster_id != config.cluster_id.as_ref() {
        return Err(TransferFailed::OtherCluster {
            found: head.cluster_id,
            expected: config.cluster_id.clone(),
        });
    }
    let ledger = place::open(config, config.backend())?;
    let mut reading = Reading::open(file)?;
    let done = fill(&*ledger, head.revision, &mut || reading.page())?;
    ledger.close();
    Ok(done)
}

/// Fills one kind of ledger, which must be empty, from another, both as the configuration says. Blocking.
///
/// # Errors
/// [`TransferFailed`]. The ledger that is read never changes.
pub fn migrate(
    config: &Config,
    from: StorageBackend,
    to: StorageBackend,
) -> Result<Transferred, TransferFailed> {
    if from == to {
        return Err(TransferFailed::Same(from));
    }
    let source = place::open(config, from)?;
    let before = source.confirm()?;
    if before == Revision(0) {
        return Err(TransferFailed::Nothing(from));
    }
    let target = place::open(config, to)?;
    let mut checked = record_checker();
    for_all(&*source, before, |record| Ok(checked(record)?))?;
    let mut at = Revision(0);
    let done = fill(&*target, before, &mut || {
        let page = source.read_after(at, REPLAY_BYTES)?;
        at = Revision(at.0 + page.len() as u64);
        Ok(page)
    })?;
    let after = source.confirm()?;
    if after != before {
        return Err(TransferFailed::Moved { before, after });
    }
    source.close();
    target.close();
    Ok(done)
}

/// Writes a data directory with every record that is known when this begins, while the ledger is written.
///
/// # Errors
/// [`TransferFailed`]; what was written is of no use then.
pub(crate) async fn copy_live(
    authority: &Authority,
    cluster: &ClusterId,
    to: &Path,
) -> Result<Transferred, TransferFailed> {
    let revision = authority.confirmed().await?.revision();
    let (dir, cluster) = (to.to_owned(), cluster.clone());
    let target = blocking(move || -> Result<DiskLedger, TransferFailed> {
        let target = place::open_dir(&dir, &cluster)?;
        match target.revision() {
            Revision(0) => Ok(target),
            found => Err(TransferFailed::NotEmpty { found }),
        }
    })
    .await?;
    let target = std::sync::Arc::new(target);
    let (mut at, mut bytes) = (Revision(0), 0);
    while at < revision {
        let mut page = authority.records_after(at, REPLAY_BYTES).await?;
        trim(&mut page, at, revision);
        if page.is_empty() {
            return Err(missing(at));
        }
        bytes += size(&page);
        let (ledger, expected) = (std::sync::Arc::clone(&target), at);
        at = Revision(at.0 + page.len() as u64);
        blocking(move || Ok(ledger.append(expected, &page)?)).await?;
    }
    blocking(move || {
        if let Some(target) = std::sync::Arc::into_inner(target) {
            Box::new(target).close();
        }
        Ok(())
    })
    .await?;
    Ok(Transferred { revision, bytes })
}

async fn blocking<T: Send + 'static>(
    what: impl FnOnce() -> Result<T, TransferFailed> + Send + 'static,
) -> Result<T, TransferFailed> {
    tokio::task::spawn_blocking(what)
        .await
        .map_err(|error| ReadFailed(error.to_string()))?
}

/// Hands out every record up to a revision.
fn for_all(
    ledger: &dyn Ledger,
    revision: Revision,
    mut each: impl FnMut(&Bytes) -> Result<(), TransferFailed>,
) -> Result<Transferred, TransferFailed> {
    let (mut at, mut bytes) = (Revision(0), 0);
    while at < revision {
        let mut page = ledger.read_after(at, REPLAY_BYTES)?;
        trim(&mut page, at, revision);
        if page.is_empty() {
            return Err(missing(at));
        }
        page.iter().try_for_each(&mut each)?;
        bytes += size(&page);
        at = Revision(at.0 + page.len() as u64);
    }
    Ok(Transferred { revision, bytes })
}

/// Appends records up to a revision, and reads them back. What is there already must be the first of them: then an
/// earlier attempt is gone on with.
fn fill(
    ledger: &dyn Ledger,
    revision: Revision,
    next: &mut dyn FnMut() -> Result<Vec<Bytes>, TransferFailed>,
) -> Result<Transferred, TransferFailed> {
    let found = ledger.confirm()?;
    let mut digest = Sha256::new();
    let (mut at, mut bytes) = (Revision(0), 0);
    while at < revision {
        let mut page = next()?;
        trim(&mut page, at, revision);
        if page.is_empty() {
            return Err(missing(at));
        }
        page.iter().for_each(|record| note(&mut digest, record));
        bytes += size(&page);
        let there = usize::try_from(found.0.saturating_sub(at.0)).unwrap_or(usize::MAX);
        let (old, new) = page.split_at(there.min(page.len()));
        if !holds(ledger, at, old)? {
            return Err(TransferFailed::NotEmpty { found });
        }
        let behind = Revision(at.0 + old.len() as u64);
        if !new.is_empty() {
            ledger.append(behind, new)?;
        }
        at = Revision(at.0 + page.len() as u64);
    }
    if found > revision {
        return Err(TransferFailed::NotEmpty { found });
    }
    let mut back = Sha256::new();
    for_all(ledger, ledger.confirm()?, |record| {
        note(&mut back, record);
        Ok(())
    })?;
    match back.finalize() == digest.finalize() {
        true => Ok(Transferred { revision, bytes }),
        false => Err(TransferFailed::Differs),
    }
}

/// Whether a ledger holds exactly these records after a revision.
fn holds(ledger: &dyn Ledger, mut after: Revision, records: &[Bytes]) -> Result<bool, ReadFailed> {
    let mut records = records.iter();
    while records.len() > 0 {
        let page = ledger.read_after(after, REPLAY_BYTES)?;
        if page.is_empty()
            || !page
                .iter()
                .zip(records.by_ref())
                .all(|(one, other)| one == other)
        {
            return Ok(false);
        }
        after = Revision(after.0 + page.len() as u64);
    }
    Ok(true)
}

/// Makes sure that record after record is one that this build understands and that follows the one before.
fn record_checker() -> impl FnMut(&Bytes) -> Result<(), StartFailed> {
    let mut catalogue = felix_meta::Catalogue::default();
    move |record| crate::authority::check_next(&mut catalogue, record)
}

/// Cuts off what came after a revision.
fn trim(page: &mut Vec<Bytes>, after: Revision, revision: Revision) {
    page.truncate(usize::try_from(revision.0.saturating_sub(after.0)).unwrap_or(usize::MAX));
}

fn note(digest: &mut Sha256, record: &[u8]) {
    digest.update((record.len() as u64).to_be_bytes());
    digest.update(record);
}

fn size(page: &[Bytes]) -> u64 {
    page.iter().map(|record| record.len() as u64).sum()
}

fn missing(after: Revision) -> TransferFailed {
    ReadFailed(format!("record {} is missing", after.next())).into()
}

#[cfg(test)]
mod tests;
