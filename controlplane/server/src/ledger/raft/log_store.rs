//! The raft log, the vote and the purge point, on a disk.
//!
//! One entry is one batch of the journal, so that the log can be cut between any two. Entry `base + n` lies at offset n
//! of the directory that `log.json` names. A purge past the end begins a new directory: what comes next does not follow
//! what was there.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use felix_journal::{Log, LogOptions, LogReader, RetentionPolicy, durable};
use felix_model::{
    BatchBuilder, BatchOptions, BatchRefused, Generation, Offset, Records, TimeMs, patch,
};
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{ErrorSubject, ErrorVerb, OptionalSend, RaftLogReader};
use serde::{Deserialize, Serialize};

use super::codec::{self, Malformed};
use super::log_failed::LogFailed;
use super::place::{Place, PlaceRefused};
use super::room::when_there_is_room;
use super::types::{Entry, LogId, StorageError, StorageId, Types, Vote};
use crate::ledger::{NotWhole, whole};

const VOTE: &str = "vote.json";
const LOG: &str = "log.json";
const LOST: &str = "lost";

/// Bytes of entries read at once for a member that is behind. One call between members carries at most this much, or
/// one entry.
const READ_BYTES: usize = 1024 * 1024;

/// `vote.json`.
#[derive(Debug, Serialize, Deserialize)]
struct VoteFile {
    storage: StorageId,
    vote: Option<Vote>,
}

/// `log.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LogFile {
    storage: StorageId,
    /// Number of the directory.
    directory: u64,
    /// Index of the entry at offset 0.
    base: u64,
    /// Everything up to here was applied and let go.
    purged: Option<LogId>,
}

/// The raft log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    place: Place,
    options: LogOptions,
    log: Log,
    reader: LogReader,
    file: LogFile,
    last: Option<LogId>,
    vote: Option<Vote>,
}

impl LogStore {
    /// Creates an empty log; what an interrupted creation left behind goes.
    pub(crate) fn create(
        place: &Place,
        options: LogOptions,
        storage: StorageId,
    ) -> Result<(), LogFailed> {
        durable::create_dirs(&*place.disk, &place.root)?;
        let file = LogFile {
            storage,
            directory: 0,
            base: 0,
            purged: None,
        };
        remove_directories(place, None)?;
        place.remove(LOST)?;
        let (log, _) = Log::open(Arc::clone(&place.disk), &directory(place, 0), options)?;
        log.close()?;
        place.write(
            VOTE,
            &VoteFile {
                storage,
                vote: None,
            },
        )?;
        Ok(place.write(LOG, &file)?)
    }

    /// Opens the log of a disk.
    ///
    /// # Errors
    /// [`LogFailed`]; `Partial` when something of it is missing.
    pub(crate) fn open(
        place: Place,
        options: LogOptions,
        storage: StorageId,
        member: u64,
    ) -> Result<Self, LogFailed> {
        let partial = |file| PlaceRefused::Partial {
            dir: place.root.clone(),
            file,
        };
        let vote: VoteFile = place.read(VOTE)?.ok_or_else(|| partial(VOTE))?;
        let file: LogFile = place.read(LOG)?.ok_or_else(|| partial(LOG))?;
        if vote.storage != storage {
            return Err(partial(VOTE).into());
        }
        if file.storage != storage {
            return Err(partial(LOG).into());
        }
        remove_directories(&place, Some(file.directory))?;
        let dir = directory(&place, file.directory);
        if place.disk.list(&dir).is_err() {
            return Err(partial(LOG).into());
        }
        let opened = whole::open(&place.disk, &dir, options, &place.file(LOST));
        let (log, recovered) = opened.map_err(|why| match why {
            NotWhole::Lost { bytes, .. } => LogFailed::Lost { bytes },
            NotWhole::Open(refused) => LogFailed::Open(refused),
            NotWhole::Disk(error) => LogFailed::Disk(error),
        })?;
        if recovered.truncated_bytes > 0 {
            let bytes = recovered.truncated_bytes;
            tracing::warn!(bytes, "cut a torn tail off the raft log");
        }
        let mut held = Held {
            reader: log.reader(),
            log,
            last: file.purged,
            vote: vote.vote.map(|vote| without_leadership(vote, member)),
            place,
            options,
            file,
        };
        let end = held.next();
        if end > held.first() {
            held.last = held.entry(end - 1)?.map(|entry| entry.log_id);
        }
        Ok(Self {
            held: Arc::new(Mutex::new(held)),
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was ever promised or written here.
    pub(crate) fn is_blank(&self) -> bool {
        let held = self.held();
        held.vote.is_none() && held.last.is_none()
    }

    /// Makes the log agree with what was applied: an applied entry was committed, so a log that holds another one in its
    /// place holds nothing that counts.
    pub(crate) fn agree_with(&self, applied: Option<LogId>) -> Result<(), LogFailed> {
        let Some(applied) = applied else {
            return Ok(());
        };
        let mut held = self.held();
        if held
            .file
            .purged
            .is_some_and(|purged| purged.index >= applied.index)
        {
            return Ok(());
        }
        match held.entry(applied.index)? {
            Some(entry) if entry.log_id == applied => Ok(()),
            _ => {
                tracing::warn!(
                    index = applied.index,
                    "the raft log begins anew behind what was applied"
                );
                held.begin_at(applied)
            }
        }
    }
}

impl Held {
    /// Index of the first entry that is readable.
    fn first(&self) -> u64 {
        self.file.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Index of the next entry.
    fn next(&self) -> u64 {
        self.file.base + self.log.end().0
    }

    fn entry(&self, index: u64) -> Result<Option<Entry>, LogFailed> {
        Ok(self.read(index, index + 1, 1)?.pop())
    }

    /// Entries from an index on, before another (exclusive): about so many bytes, and at least one if there is one.
    fn read(&self, from: u64, until: u64, bytes_max: usize) -> Result<Vec<Entry>, LogFailed> {
        let mut from = from.max(self.first());
        let until = until.min(self.next());
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while from < until && (bytes < bytes_max || entries.is_empty()) {
            let page = self.reader.read(
                Offset(from - self.file.base),
                bytes_max.saturating_sub(bytes).max(1),
                Offset(until - self.file.base),
            )?;
            if page.batches.is_empty() {
                return Err(LogFailed::entry(from, "is missing"));
            }
            for batch in &page.batches {
                bytes += batch.len();
                entries.push(entry_of(batch, from)?);
                from += 1;
            }
        }
        Ok(entries)
    }

    /// Appends entries and makes them durable. Those that are there already, of an attempt that found the disk full, are
    /// passed over.
    fn append(&mut self, from: u64, entries: &[Entry]) -> Result<(), LogFailed> {
        let mut batches = Vec::with_capacity(entries.len());
        let next = self.next();
        let done = usize::try_from(next.saturating_sub(from)).unwrap_or(usize::MAX);
        let last = entries.last().map(|entry| entry.log_id);
        for (expected, entry) in (next..).zip(entries.iter().skip(done)) {
            let found = entry.log_id.index;
            if found != expected {
                return Err(LogFailed::Gap { expected, found });
            }
            batches.push(batch_of(entry, Offset(found - self.file.base))?);
        }
        self.log.append(&batches)?;
        self.log.sync()?;
        self.last = last.or(self.last);
        Ok(())
    }

    /// Cuts the log so that it ends before an index.
    fn truncate(&mut self, index: u64) -> Result<(), LogFailed> {
        if index < self.first() {
            return Err(LogFailed::Gap {
                expected: self.first(),
                found: index,
            });
        }
        self.log
            .truncate_to(Offset(index.saturating_sub(self.file.base)))?;
        let end = self.next();
        self.last = if end > self.first() {
            self.entry(end - 1)?.map(|entry| entry.log_id)
        } else {
            self.file.purged
        };
        Ok(())
    }

    fn purge(&mut self, upto: LogId) -> Result<(), LogFailed> {
        if self
            .file
            .purged
            .is_some_and(|purged| purged.index >= upto.index)
        {
            return Ok(());
        }
        if upto.index >= self.next() {
            return self.begin_at(upto);
        }
        // The mark first: entries below it may go from now on, and are not asked for any more.
        let file = LogFile {
            purged: Some(upto),
            ..self.file.clone()
        };
        self.place.write(LOG, &file)?;
        self.file = file;
        let everything = RetentionPolicy {
            max_bytes: Some(0),
            max_age_ms: None,
        };
        let end = Offset(upto.index + 1 - self.file.base);
        if let Err(error) = self.log.retain(everything, TimeMs(0), end) {
            // They are not readable any more, and the next purge removes them.
            tracing::warn!(%error, "purged entries were not removed");
        }
        Ok(())
    }

    /// Begins a new log behind an entry.
    fn begin_at(&mut self, purged: LogId) -> Result<(), LogFailed> {
        let file = LogFile {
            directory: self.file.directory + 1,
            base: purged.index + 1,
            purged: Some(purged),
            ..self.file.clone()
        };
        let dir = directory(&self.place, file.directory);
        durable::remove_log(&*self.place.disk, &dir)?;
        let (log, _) = Log::open(Arc::clone(&self.place.disk), &dir, self.options)?;
        self.place.write(LOG, &file)?;
        self.reader = log.reader();
        self.log = log;
        self.last = Some(purged);
        let old = std::mem::replace(&mut self.file, file).directory;
        if let Err(error) = durable::remove_log(&*self.place.disk, &directory(&self.place, old)) {
            tracing::warn!(%error, "an old raft log was not removed");
        }
        Ok(())
    }

    fn save_vote(&mut self, vote: Vote) -> Result<(), LogFailed> {
        let file = VoteFile {
            storage: self.file.storage,
            vote: Some(vote),
        };
        self.place.write(VOTE, &file)?;
        self.vote = Some(vote);
        Ok(())
    }
}

/// The vote with which a member starts. One that led when it stopped does not lead when it starts: openraft would let it,
/// and it would confirm reads from what it had applied, although it has acknowledged more before it stopped. As a candidate
/// that has voted for itself it needs a new term, and learns from the first entry of that what was committed.
fn without_leadership(vote: Vote, member: u64) -> Vote {
    match vote.is_committed() && vote.leader_id().node_id == member {
        true => Vote::new(vote.leader_id().term, member),
        false => vote,
    }
}

fn directory(place: &Place, number: u64) -> PathBuf {
    place.file(&format!("log-{number}"))
}

/// Removes log directories but the one that counts.
fn remove_directories(place: &Place, but: Option<u64>) -> Result<(), LogFailed> {
    let entries = match place.disk.list(&place.root) {
        Ok(entries) => entries,
        Err(error) => return Err(felix_journal::DiskError::new("list", &place.root, &error).into()),
    };
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        let name = entry.name.strip_suffix(".dropped").unwrap_or(&entry.name);
        let number = name
            .strip_prefix("log-")
            .and_then(|number| number.parse().ok());
        let stale = number.is_some_and(|number: u64| Some(number) != but);
        if stale || (number.is_some() && name.len() != entry.name.len()) {
            durable::remove_log(&*place.disk, &place.file(name))?;
        }
    }
    Ok(())
}

fn batch_of(entry: &Entry, at: Offset) -> Result<Bytes, LogFailed> {
    let index = entry.log_id.index;
    let value = codec::encode_entry(entry).map_err(|why| LogFailed::entry(index, why))?;
    let unfit = |why| LogFailed::Unfit { index, why };
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(0, None, Some(&value), &[]).map_err(unfit)?;
    let mut batch = builder.finish().map_err(unfit)?;
    patch(&mut batch, at, Generation(0));
    Ok(batch.freeze())
}

fn entry_of(batch: &Bytes, index: u64) -> Result<Entry, LogFailed> {
    let bad = |why: BatchRefused| LogFailed::entry(index, why);
    let record = Records::new(batch).map_err(bad)?.next();
    let value = record
        .transpose()
        .map_err(bad)?
        .and_then(|record| record.value);
    let decoded = codec::decode_entry(value.unwrap_or_default());
    let entry = decoded.map_err(|why: Malformed| LogFailed::entry(index, why))?;
    if entry.log_id.index != index {
        let found = entry.log_id.index;
        return Err(LogFailed::entry(index, format!("says it is {found}")));
    }
    Ok(entry)
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let until = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(until) => *until,
            Bound::Unbounded => u64::MAX,
        };
        self.held()
            .read(from, until, usize::MAX)
            .map_err(|failed| failed.into_storage(ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        self.held()
            .read(start, end, READ_BYTES)
            .map_err(|failed| failed.into_storage(ErrorSubject::Logs, ErrorVerb::Read))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let held = self.held();
        Ok(LogState {
            last_purged_log_id: held.file.purged,
            last_log_id: held.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        when_there_is_room(|| self.held().save_vote(*vote))
            .await
            .map_err(|failed| failed.into_storage(ErrorSubject::Vote, ErrorVerb::Write))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.held().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        // A gap is found against the log as it is before the first attempt, not after one that was half done.
        let from = self.held().next();
        let appended = when_there_is_room(|| self.held().append(from, &entries)).await;
        match appended {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(failed) => Err(failed.into_storage(ErrorSubject::Logs, ErrorVerb::Write)),
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        when_there_is_room(|| self.held().truncate(log_id.index))
            .await
            .map_err(|failed| failed.into_storage(ErrorSubject::Logs, ErrorVerb::Delete))
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        when_there_is_room(|| self.held().purge(log_id))
            .await
            .map_err(|failed| failed.into_storage(ErrorSubject::Logs, ErrorVerb::Delete))
    }
}
