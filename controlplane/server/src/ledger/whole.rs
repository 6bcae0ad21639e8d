//! Logs that lost what they had promised to keep.
//!
//! A log whose disk lost its end opens without it, and that is said once: the end is cut off, and the next opening finds
//! nothing wrong. Whoever supervises a process starts it again by himself, so it is written beside the log before anything is
//! cut, and stays there until an operator has decided.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::{Disk, DiskError, Log, LogOptions, OpenRefused, Recovered, durable};

/// Why a log is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWhole {
    /// The disk lost what was durable.
    #[error(
        "the disk lost {bytes} bytes of the ledger that were durable, and with them what was acknowledged. Restore a backup \
         into an empty directory, or remove {} to go on without them",
        note.display()
    )]
    Lost {
        /// How many bytes.
        bytes: u64,
        /// The file that says so.
        note: PathBuf,
    },
    /// The log is damaged, or cannot be read.
    #[error(transparent)]
    Open(#[from] OpenRefused),
    /// The disk failed beside the log.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Opens a log that has everything it promised to keep, now and at every opening before.
///
/// # Errors
/// [`NotWhole`]; what is missing is noted in the file `note` then.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: LogOptions,
    note: &Path,
) -> Result<(Log, Recovered), NotWhole> {
    let lost = |bytes| NotWhole::Lost {
        bytes,
        note: note.to_owned(),
    };
    if let Some(noted) = durable::read(&**disk, note)? {
        let text = String::from_utf8_lossy(&noted);
        return Err(lost(text.trim().parse().unwrap_or_default()));
    }
    let missing = Log::lost_durable_bytes(&**disk, dir, options)?;
    if missing > 0 {
        durable::replace(&**disk, note, format!("{missing}\n").as_bytes())?;
    }
    // Whoever removes the note goes on with what is left, so that is made a log again.
    let opened = Log::open(Arc::clone(disk), dir, options)?;
    match missing {
        0 => Ok(opened),
        bytes => Err(lost(bytes)),
    }
}
