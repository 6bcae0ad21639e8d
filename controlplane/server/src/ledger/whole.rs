//! Logs that lost what they had promised to keep.
//!
//! A log whose disk lost its end opens without it, and that is said once: the end is cut off, and the next opening finds
//! nothing wrong. Whoever supervises a process starts it again by himself, so it is written beside the log, and stays there
//! until an operator has decided.

use std::path::{Path, PathBuf};

use felix_journal::{Disk, DiskError, Recovered, durable};

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
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Whether a log that was just opened has everything it promised to keep, now and at every opening before.
///
/// # Errors
/// [`NotWhole`]; what is missing is noted in the file then.
pub(crate) fn check(disk: &dyn Disk, note: &Path, recovered: &Recovered) -> Result<(), NotWhole> {
    let lost = |bytes| NotWhole::Lost {
        bytes,
        note: note.to_owned(),
    };
    if let Some(noted) = durable::read(disk, note)? {
        let text = String::from_utf8_lossy(&noted);
        return Err(lost(text.trim().parse().unwrap_or_default()));
    }
    match recovered.lost_durable_bytes {
        0 => Ok(()),
        bytes => {
            durable::replace(disk, note, format!("{bytes}\n").as_bytes())?;
            Err(lost(bytes))
        }
    }
}
