//! The state of entities on disk: read from its snapshot and the log when a shard is opened, written down from time
//! to time.

use std::io::{self, IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use felix_engine::keyed::{OnceBounds, snapshot};
use felix_engine::state::{StateFold, StateOptions, StateView};
use felix_journal::{Disk, DiskError, DiskFile, LogReader, ReadRefused, SyncFailed, durable};
use felix_model::{BatchHeader, Offset, Records};

use super::cell::{Cell, KeptState, Saved};
use super::open::log_directory;
use super::{Shards, Store, StreamHandle, StreamSpec};

/// Bytes of log read at a time.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// How much of the values of one shard's state may be in memory.
const VALUE_BYTES: u64 = 32 * 1024 * 1024;

/// A state is written down once the log grew by this many bytes since. That much log is read in well under a second.
const SNAPSHOT_BYTES: u64 = 64 * 1024 * 1024;

/// What the state of a stream's shards is kept with.
pub(crate) fn options(spec: &StreamSpec) -> StateOptions {
    StateOptions {
        commit_bytes_max: u64::from(spec.max_record_bytes),
        value_bytes: VALUE_BYTES,
        once: OnceBounds::default(),
    }
}

/// The state that the log between `ends` comes to; `None` when it has no commit.
///
/// # Errors
/// When the log cannot be read. A snapshot that cannot be is done without.
pub(super) fn load(
    store: &Store,
    directory: &Path,
    log: &LogReader,
    ((start, end), options): ((Offset, Offset), StateOptions),
) -> Result<Option<KeptState>, ReadRefused> {
    let path = path(directory);
    let mut fold = from_snapshot(store.disk.as_ref(), &path, end);
    let mut saved = Saved {
        covered: fold.covered(),
        bytes_since: 0,
    };
    let mut from = saved.covered.max(start);
    while from < end {
        let page = log.read(from, PAGE_BYTES, end)?;
        for batch in &page.batches {
            saved.bytes_since += batch.len() as u64;
            let header = BatchHeader::parse(batch);
            // Ordinary records are no part of the state.
            if header.is_ok_and(|header| header.is_internal() && !header.is_control()) {
                observe(&mut fold, batch);
            }
        }
        if page.next <= from {
            break;
        }
        from = page.next;
    }
    Ok(fold.has_commits().then(|| KeptState {
        view: StateView::new(options, fold),
        saved,
    }))
}

fn observe(fold: &mut StateFold, batch: &bytes::Bytes) {
    let records = Records::new(batch).into_iter().flatten();
    for record in records {
        let observed = record.and_then(|record| fold.observe(&record));
        if let Err(error) = observed {
            tracing::error!(%error, "a commit cannot be read; its changes are left out of the state");
            return;
        }
    }
}

fn from_snapshot(disk: &dyn Disk, path: &Path, end: Offset) -> StateFold {
    let bounds = OnceBounds::default();
    let Ok(file) = disk.open_read_only(path) else {
        return StateFold::new(bounds);
    };
    let mut source = io::BufReader::with_capacity(1 << 20, FileReader { file, position: 0 });
    let loaded = snapshot::read(&mut source);
    let fold = loaded
        .ok()
        .and_then(|loaded| StateFold::from_snapshot(loaded, end, bounds));
    fold.unwrap_or_else(|| {
        tracing::warn!(path = %path.display(), "the snapshot of a state is not used; the log is read");
        // Once the log grows past what this one knows, nobody could tell any more that it is of another past.
        if let Err(error) = durable::unlink(disk, path) {
            tracing::warn!(%error, "a snapshot that is not used cannot be removed");
        }
        StateFold::new(bounds)
    })
}

struct FileReader {
    file: Arc<dyn DiskFile>,
    position: u64,
}

impl Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

/// Beside the log.
fn path(log_directory: &Path) -> PathBuf {
    log_directory.with_file_name("state")
}

impl Shards {
    /// Writes down the states to which much was added. Blocking.
    pub(crate) fn save_states(&self) {
        for handle in self.handles() {
            for (shard, cell) in handle.open_cells() {
                if is_worth_saving(cell.state_unsaved()) {
                    self.save_state(&handle, shard, &cell);
                }
            }
        }
    }

    /// Writes down the state of a shard that was closed in order, so that it opens fast.
    pub(super) async fn save_closed(
        self: &Arc<Self>,
        handle: &Arc<StreamHandle>,
        shard: u32,
        cell: Arc<Cell>,
    ) {
        if cell.state_unsaved().is_none() {
            return;
        }
        let (shards, handle) = (Arc::clone(self), Arc::clone(handle));
        let saving = tokio::task::spawn_blocking(move || shards.save_state(&handle, shard, &cell));
        // A save that panicked was reported, and the log has it all.
        let _ = saving.await;
    }

    /// Writes down the state of one shard, if it has one that is not written down. Blocking.
    fn save_state(&self, handle: &StreamHandle, shard: u32, cell: &Cell) {
        let (Some(store), Some(slot)) = (&self.store, handle.slots.get(shard as usize)) else {
            return;
        };
        // One after the other: there is one temporary file.
        let saving = slot.saving.lock();
        let _saving = saving.unwrap_or_else(PoisonError::into_inner);
        if cell.state_unsaved().is_none() {
            return;
        }
        let spec = handle.spec();
        let path = path(&log_directory(store, &spec, shard));
        if let Err(error) = write(store.disk.as_ref(), &path, cell) {
            // The log has it all; opening the shard takes longer.
            tracing::warn!(stream = %spec.id, shard, %error, "a state could not be written down");
        }
    }
}

/// Whether so much log would be read at the next opening that a snapshot pays.
fn is_worth_saving(unsaved: Option<u64>) -> bool {
    unsaved.is_some_and(|bytes| bytes >= SNAPSHOT_BYTES)
}

/// Why a state was not written down. The one before it still holds.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the log could not be flushed: {0}")]
    Flush(#[from] SyncFailed),
}

fn write(disk: &dyn Disk, path: &Path, cell: &Cell) -> Result<(), NotWritten> {
    let (Some((front, mut snapshot, begun)), Some(log)) = (cell.state_snapshot(), cell.log())
    else {
        return Ok(());
    };
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(durable::TEMPORARY);
    let temporary = PathBuf::from(temporary);
    durable::unlink(disk, &temporary)?;
    let file = durable::create(disk, &temporary)?;
    let failed = |error: io::Error| DiskError::new("write", &temporary, &error);
    let mut position = 0;
    let mut piece = Some(front);
    while let Some(bytes) = piece {
        file.write_at(&[IoSlice::new(&bytes)], position)
            .map_err(failed)?;
        position += bytes.len() as u64;
        piece = cell.state_piece(&mut snapshot);
    }
    file.sync_data().map_err(failed)?;
    // Whatever stands in it must be in the log, also after a power cut.
    log.flush()?;
    durable::rename(disk, &temporary, path)?;
    cell.state_saved(begun);
    Ok(())
}
