//! The index of a cache's shard, written down beside its log and read at the next start.

use std::io::{self, IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_engine::keyed::snapshot::{self, Loaded, SnapshotRefused, Writer};
use felix_engine::keyed::{Key, Remembered, Sum};
use felix_journal::{Disk, DiskError, DiskFile, LogHandle, durable};
use felix_model::Offset;

use super::cell::Cell;

/// Rows taken at once under the shard's mutex: a fraction of a millisecond.
const ROWS_PER_CHUNK: usize = 2048;

/// Written at once.
const WRITE_BYTES: usize = 1024 * 1024;

/// Read at once.
const READ_BYTES: usize = 1024 * 1024;

/// Why an index was not written down. The one before it still holds.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the log could not be flushed: {0}")]
    Flush(#[from] felix_journal::SyncFailed),
}

/// Writes the index of a shard into `path` while the shard goes on. Blocking.
pub(super) fn write(
    cell: &Cell,
    log: &LogHandle,
    disk: &dyn Disk,
    path: &Path,
) -> Result<(), NotWritten> {
    // One at a time, and what is covered never goes back: compaction relies on the index that it wrote.
    let _writing = cell.index_turn();
    let covered = cell.marks().committed;
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(durable::TEMPORARY);
    let temporary = PathBuf::from(temporary);
    durable::unlink(disk, &temporary)?;
    let mut out = Out {
        file: create(disk, &temporary)?,
        path: &temporary,
        position: 0,
        buffer: snapshot::head(covered),
    };
    let mut writer = Writer::default();
    entries(cell, &mut writer, &mut out)?;
    counters(cell, &mut writer, &mut out)?;
    remembered(cell, &mut writer, &mut out)?;
    out.put(&writer.end())?;
    out.write()?;
    let sync = out.file.sync_data();
    sync.map_err(|error| DiskError::new("sync", &temporary, &error))?;
    // Whatever stands in it must be in the log, also after a power cut.
    log.flush()?;
    durable::rename(disk, &temporary, path)?;
    Ok(())
}

fn entries(cell: &Cell, writer: &mut Writer, out: &mut Out<'_>) -> Result<(), DiskError> {
    let mut after: Option<Key> = None;
    loop {
        let rows = cell.walk(b"", after.as_ref(), ROWS_PER_CHUNK);
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(Key::clone(last));
        out.put(&writer.entries(rows.iter().map(|(key, entry)| (key, *entry))))?;
    }
}

fn counters(cell: &Cell, writer: &mut Writer, out: &mut Out<'_>) -> Result<(), DiskError> {
    let mut after: Option<Key> = None;
    loop {
        let rows: Vec<(Key, Sum)> = cell.counters(after.as_ref(), ROWS_PER_CHUNK);
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(Key::clone(last));
        out.put(&writer.sums(rows.iter().map(|(key, sum)| (key, *sum))))?;
    }
}

fn remembered(cell: &Cell, writer: &mut Writer, out: &mut Out<'_>) -> Result<(), DiskError> {
    let mut from = Offset::ZERO;
    loop {
        let rows: Vec<(Key, Remembered<i64>)> = cell.remembered(from, ROWS_PER_CHUNK);
        let Some((_, last)) = rows.last() else {
            return Ok(());
        };
        from = last.offset.plus(1);
        out.put(&writer.once(rows.iter().map(|(key, known)| (key, known))))?;
    }
}

fn create(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, DiskError> {
    disk.create(path)
        .map_err(|error| DiskError::new("create", path, &error))
}

struct Out<'a> {
    file: Arc<dyn DiskFile>,
    path: &'a Path,
    position: u64,
    buffer: Vec<u8>,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), DiskError> {
        self.file
            .write_at(&[IoSlice::new(&self.buffer)], self.position)
            .map_err(|error| DiskError::new("write", self.path, &error))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// The index that was written down, if there is one that is good for a log that ends at `end`. One that is ahead of
/// its log is removed: once the log has grown past it, nothing would tell that they do not belong together.
///
/// # Errors
/// Such an index could not be removed.
pub(super) fn read(disk: &dyn Disk, path: &Path, end: Offset) -> Result<Option<Loaded>, DiskError> {
    let file = match disk.open_read_only(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Whether it is ahead of the log is not known.
        Err(error) => return Err(DiskError::new("open", path, &error)),
    };
    let source = Source { file, position: 0 };
    let mut source = io::BufReader::with_capacity(READ_BYTES, source);
    match snapshot::read(&mut source) {
        Ok(loaded) => {
            let newest = loaded.newest().map_or(Offset::ZERO, |at| at.plus(1));
            // A log that ends before its index lost what the index has.
            let fits = loaded.covered <= end && newest <= end;
            if !fits {
                tracing::warn!(path = %path.display(), end = end.0, "the index of a cache is ahead of its log, which is read instead");
                durable::unlink(disk, path)?;
            }
            Ok(fits.then_some(loaded))
        }
        Err(
            why @ (SnapshotRefused::Io(_)
            | SnapshotRefused::Foreign
            | SnapshotRefused::Damaged { .. }),
        ) => {
            tracing::warn!(path = %path.display(), %why, "the index of a cache is not used; its log is read");
            Ok(None)
        }
    }
}

struct Source {
    file: Arc<dyn DiskFile>,
    position: u64,
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use felix_engine::keyed::Entry;
    use felix_journal::SimDisk;

    use super::*;

    fn index(covered: u64, offset: u64) -> Vec<u8> {
        let mut bytes = snapshot::head(Offset(covered));
        let mut writer = Writer::default();
        let key = Key::from(&b"k"[..]);
        let entry = Entry {
            offset: Offset(offset),
            expires: None,
            length: 1,
        };
        bytes.extend(writer.entries([(&key, entry)]));
        bytes.extend(writer.end());
        bytes
    }

    #[test]
    fn an_index_that_is_ahead_of_its_log_is_never_believed_again() {
        let path = Path::new("/index");
        for (covered, offset) in [(9, 8), (7, 8)] {
            let disk = SimDisk::new(1);
            let put = |bytes: &[u8]| {
                let file = disk.create(path).unwrap();
                file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
            };
            put(&index(covered, offset));
            assert!(read(&disk, path, Offset(8)).unwrap().is_none());
            // The log has grown past it meanwhile.
            assert!(read(&disk, path, Offset(20)).unwrap().is_none());
            put(&index(covered, offset));
            assert!(read(&disk, path, Offset(9)).unwrap().is_some());
        }
    }
}
