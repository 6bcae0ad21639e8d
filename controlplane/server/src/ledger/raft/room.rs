//! Waiting for room on the disk.
//!
//! Appends are refused while a reserve is left, so this is for the day when others fill the disk all at once. openraft takes
//! any failure of the storage for the end of the member; but a full disk is not a broken one, and what was not written can
//! be written later. Meanwhile the member stands still, and the others go on without it.

use std::time::Duration;

use felix_journal::{AppendFailed, DiskError, OpenRefused, TruncateRefused};

use super::log_failed::LogFailed;
use super::machine::InstallFailed;
use super::place::PlaceRefused;
use super::records::RecordsFailed;
use super::snapshot::StageFailed;

/// How often to look whether there is room again.
const AGAIN: Duration = Duration::from_millis(250);

/// Whether room is what was missing, and nothing else is wrong.
pub(crate) trait Full {
    fn is_full(&self) -> bool;
}

impl Full for PlaceRefused {
    fn is_full(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_full())
    }
}

impl Full for LogFailed {
    fn is_full(&self) -> bool {
        match self {
            Self::Append(failed) => *failed == AppendFailed::Full,
            Self::Place(refused) => refused.is_full(),
            Self::Open(OpenRefused::Io(error))
            | Self::Truncate(TruncateRefused::Io(error))
            | Self::Disk(error) => DiskError::is_full(error),
            Self::Open(_)
            | Self::Truncate(_)
            | Self::Read(_)
            | Self::Sync(_)
            | Self::Unfit { .. }
            | Self::Entry { .. }
            | Self::Gap { .. }
            | Self::Lost { .. } => false,
        }
    }
}

impl Full for RecordsFailed {
    fn is_full(&self) -> bool {
        match self {
            Self::Append(failed) => *failed == AppendFailed::Full,
            Self::Place(refused) => refused.is_full(),
            Self::Open(_)
            | Self::Read(_)
            | Self::Sync(_)
            | Self::Unfit(_)
            | Self::Foreign { .. }
            | Self::Missing { .. } => false,
        }
    }
}

impl Full for InstallFailed {
    fn is_full(&self) -> bool {
        match self {
            Self::Records(failed) | Self::Staged(StageFailed::Records(failed)) => failed.is_full(),
            Self::Place(refused) | Self::Staged(StageFailed::Place(refused)) => refused.is_full(),
            Self::Staged(_) | Self::Description(_) => false,
        }
    }
}

/// Does something again and again while only room is missing for it.
pub(crate) async fn when_there_is_room<T, E: Full + std::fmt::Display>(
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut is_said = false;
    loop {
        match work() {
            Err(full) if full.is_full() => {
                if !is_said {
                    tracing::error!(error = %full, "the disk is full; this member stands still until there is room");
                    is_said = true;
                }
                tokio::time::sleep(AGAIN).await;
            }
            done => return done,
        }
    }
}
