//! Making a log durable, in two halves: what is captured while the log is held, and the waiting for the disk,
//! which needs no lock and may run on another thread while appends go on.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use felix_model::Offset;

use super::mark::Mark;
use super::{Log, Shared, SyncFailed, durable, names, segment};
use crate::disk::{DiskError, DiskFile, Doing};

/// One sync, ready to run.
#[derive(Debug)]
pub struct SyncJob {
    shared: Arc<Shared>,
    /// Oldest first, so that a durable segment never follows one that is not.
    files: Vec<(PathBuf, Arc<dyn DiskFile>)>,
    /// How many directory changes this covers; none when there are none to sync.
    entries: Option<u64>,
    mark: Mark,
    mark_file: Option<Arc<dyn DiskFile>>,
}

impl SyncJob {
    /// Waits for the disk.
    ///
    /// # Errors
    /// The disk's, of this sync or an earlier one; the log takes no more writes from then on.
    pub fn run(&self) -> Result<(), DiskError> {
        self.shared.sync(|| {
            for (path, file) in &self.files {
                file.sync_data().doing("sync", path)?;
            }
            if self.entries.is_some() {
                durable::sync_later(self.shared.files.disk().as_ref(), &self.shared.dir)?;
            }
            // A sync that began later may have been done sooner; its mark says more.
            if self.mark.next >= self.shared.durable() {
                self.write_mark();
            }
            Ok(())
        })
    }

    /// The mark is a hint to recovery: without it, the one before holds.
    fn write_mark(&self) {
        let Some(file) = &self.mark_file else { return };
        if let Err(error) = file.write_at(&[IoSlice::new(&self.mark.encode())], 0) {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "durable mark not written");
        }
    }
}

impl Log {
    /// Makes everything appended durable and seals finished segments; answers the durable end (exclusive).
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn sync(&mut self) -> Result<Offset, SyncFailed> {
        self.sync_records()?;
        self.seal_all()?;
        Ok(self.durable_end())
    }

    /// Makes everything appended durable and leaves the seals to somebody else.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn sync_records(&mut self) -> Result<Offset, SyncFailed> {
        if let Some(job) = self.begin_sync()? {
            let result = job.run();
            self.finish_sync(&job, result)?;
        }
        Ok(self.durable_end())
    }

    /// What has to be synced now; none when everything is durable.
    ///
    /// # Errors
    /// After an earlier failure; see [`SyncFailed::Poisoned`].
    pub fn begin_sync(&mut self) -> Result<Option<SyncJob>, SyncFailed> {
        if self.shared.is_poisoned() {
            return Err(SyncFailed::Poisoned);
        }
        let end = self.shared.end();
        let entries = (self.entries_changed != self.entries_synced).then_some(self.entries_changed);
        if self.shared.durable() == end && entries.is_none() {
            return Ok(None);
        }
        let mut files = Vec::with_capacity(self.unsynced.len() + 1);
        for segment in self.unsynced.iter().chain([&self.active]) {
            if let Some(file) = &segment.live().file {
                files.push((segment.path(&self.shared), Arc::clone(file)));
            }
        }
        let reach = self.active.reach();
        Ok(Some(SyncJob {
            shared: Arc::clone(&self.shared),
            files,
            entries,
            mark: self.mark_at(self.active.base, reach),
            mark_file: self.mark_file.clone(),
        }))
    }

    /// Takes note of a sync that ran. A failed one poisons the log: the kernel may have dropped the bytes, and
    /// another sync would then succeed without them.
    ///
    /// # Errors
    /// See [`SyncFailed`].
    pub fn finish_sync(
        &mut self,
        job: &SyncJob,
        result: Result<(), DiskError>,
    ) -> Result<Offset, SyncFailed> {
        if let Err(error) = result {
            return Err(self.sync_failed(error));
        }
        if self.shared.is_poisoned() {
            return Err(SyncFailed::Poisoned);
        }
        self.shared
            .set_durable(self.shared.durable().max(job.mark.next));
        self.entries_synced = self.entries_synced.max(job.entries.unwrap_or(0));
        // A segment that was active when the job began and has been rolled since is covered when nothing was
        // appended to it in between, which is what comparing offsets says.
        let durable = self.shared.durable();
        let (synced, unsynced) = std::mem::take(&mut self.unsynced)
            .into_iter()
            .partition(|segment| segment.next() <= durable);
        self.unsynced = unsynced;
        let synced: Vec<Arc<segment::Segment>> = synced;
        for segment in synced {
            self.release(&segment);
        }
        Ok(self.durable_end())
    }

    /// Stops the log for good after a failed sync.
    pub(crate) fn sync_failed(&self, error: DiskError) -> SyncFailed {
        tracing::error!(%error, durable = self.shared.durable(), "sync failed; the log takes no more writes");
        self.shared.poison();
        SyncFailed::Io(error)
    }

    /// The mark that says everything up to a place is durable.
    pub(crate) fn mark_at(&self, segment: u64, reach: segment::Reach) -> Mark {
        Mark {
            boot: self.shared.files.disk().boot(),
            segment,
            bytes: reach.bytes,
            next: reach.next,
            max_timestamp: reach.max_timestamp,
            last_generation: self.last_generation,
        }
    }

    /// Writes the mark and waits for it to be on disk: before anything it covers is cut off.
    pub(crate) fn lower_mark(&mut self, mark: &Mark) -> Result<(), DiskError> {
        let path = self.shared.dir.join(names::MARK);
        let file = self.shared.files.disk().open(&path).doing("open", &path)?;
        file.write_at(&[IoSlice::new(&mark.encode())], 0)
            .doing("write", &path)?;
        file.sync_data().doing("sync", &path)?;
        self.mark_file = Some(file);
        Ok(())
    }

    /// Writes the mark as the hint that it is: without it, the one before holds.
    pub(crate) fn raise_mark(&self, mark: &Mark) {
        if let Some(file) = &self.mark_file
            && let Err(error) = file.write_at(&[IoSlice::new(&mark.encode())], 0)
        {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "durable mark not written");
        }
    }
}
