//! The record log: what was agreed on, one record per revision, on this member's disk.
//!
//! A batch is what one proposal added. Its first record carries, as an internal header, which proposal it was and at
//! which place of the raft log it was committed:
//!
//! ```text
//!   "raft"     term u64 | leader u64 | index u64 | proposal u64 u64
//! ```
//!
//! So the records say by themselves how far they go, and need not be synced when they are written: what a power cut takes
//! off the end is applied again from the raft log, which keeps everything behind the last point that was written down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use felix_journal::{
    AppendFailed, Log, LogOptions, LogReader, OpenRefused, ReadRefused, SyncFailed,
};
use felix_model::batch::BuildRefused;
use felix_model::{BatchBuilder, BatchHeader, BatchOptions, Generation, Offset, Record, patch};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use felix_meta::Revision;

use super::codec;
use super::place::{Place, PlaceRefused};
use super::types::{Answer, LogId, Proposal, ProposalId, StoredMembership};

pub(crate) const APPLIED: &str = "applied.json";
const HEADER: &[u8] = b"raft";
const RECORDS: &str = "records";

/// Why the record log failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordsFailed {
    /// It could not be opened.
    #[error("the records cannot be opened: {0}")]
    Open(#[from] OpenRefused),
    /// It could not be read.
    #[error("the records cannot be read: {0}")]
    Read(#[from] ReadRefused),
    /// It could not be written.
    #[error("the records cannot be written: {0}")]
    Append(#[from] AppendFailed),
    /// It could not be made durable.
    #[error("the records cannot be synced: {0}")]
    Sync(#[from] SyncFailed),
    /// A file beside it failed.
    #[error(transparent)]
    Place(#[from] PlaceRefused),
    /// An append is too large.
    #[error("the records do not fit: {0}")]
    Unfit(#[from] BuildRefused),
    /// A batch is not what this ledger writes.
    #[error("record {revision}: {why}")]
    Foreign {
        /// Its revision.
        revision: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Records are missing that were durable.
    #[error("{found} records are there, and {expected} were written down as durable")]
    Missing {
        /// How many must be there.
        expected: u64,
        /// How many are.
        found: u64,
    },
}

/// `applied.json`: what need not be applied again. Written after the records it speaks of are durable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Applied {
    pub(crate) log_id: Option<LogId>,
    pub(crate) membership: StoredMembership,
    /// Records there are at least.
    pub(crate) revision: u64,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The last entry of the raft log that was applied.
    pub(crate) applied: Option<LogId>,
    /// Records there are.
    pub revision: u64,
}

impl Reach {
    /// Index of the first entry that was not applied.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.applied.map_or(0, |applied| applied.index + 1)
    }
}

/// The records, for whoever reads, and for the one who applies.
#[derive(Debug)]
pub struct RecordLog {
    held: Mutex<Held>,
    reader: LogReader,
    /// What was told to everybody. It may be behind what is held, for a moment.
    told: Mutex<Reach>,
    moved: Notify,
    revision: watch::Sender<Revision>,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) place: Place,
    log: Log,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
    /// Bytes added since it was written down how far the records go: about what a start may have to apply again.
    pub(crate) unwritten: u64,
}

impl RecordLog {
    /// Opens the records of a disk, creating them when missing.
    ///
    /// # Errors
    /// [`RecordsFailed`].
    pub(crate) fn open(place: Place, options: LogOptions) -> Result<Self, RecordsFailed> {
        let kept: Applied = place.read(APPLIED)?.unwrap_or_default();
        let (log, recovered) = Log::open(Arc::clone(&place.disk), &place.file(RECORDS), options)?;
        let found = recovered.end.0;
        if found < kept.revision {
            return Err(RecordsFailed::Missing {
                expected: kept.revision,
                found,
            });
        }
        let reader = log.reader();
        let last = match found {
            0 => None,
            end => Some(stamp_at(&reader, end - 1)?.log_id),
        };
        let held = Held {
            place,
            log,
            applied: kept.log_id.max(last),
            membership: kept.membership,
            unwritten: 0,
        };
        Ok(Self {
            told: Mutex::new(held.reach()),
            held: Mutex::new(held),
            reader,
            moved: Notify::new(),
            revision: watch::channel(Revision(found)).0,
        })
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of every move of the revision.
    pub(crate) fn watch(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// How far it goes, as everybody may know.
    pub(crate) fn reach(&self) -> Reach {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `enough` is so.
    pub(crate) async fn until(&self, enough: impl Fn(Reach) -> bool) -> Reach {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let reach = self.reach();
            if enough(reach) {
                return reach;
            }
            moved.await;
        }
    }

    /// Tells everybody who waits.
    pub(crate) fn tell(&self) {
        let reach = self.held().reach();
        // Together: who sees it told finds it with those who watch, and who is woken finds it told.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = reach;
        self.revision.send_if_modified(|known| {
            let moved = known.0 != reach.revision;
            *known = Revision(reach.revision);
            moved
        });
        drop(told);
        self.moved.notify_waiters();
    }

    /// Records after a revision; at least one unless there are none, and about `bytes_max` at most.
    pub(crate) fn read_after(
        &self,
        after: u64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, RecordsFailed> {
        let mut found = Vec::new();
        for batch in self.batches_after(after, u64::MAX, bytes_max)? {
            for record in felix_model::Records::new(&batch).map_err(|why| foreign(after, why))? {
                let record = record.map_err(|why| foreign(after, why))?;
                if record.offset.0 >= after {
                    found.push(record.value.unwrap_or_default());
                }
            }
        }
        Ok(found)
    }

    /// Whole batches after a revision that end at another one at most.
    pub(crate) fn batches_after(
        &self,
        after: u64,
        upto: u64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, RecordsFailed> {
        let upto = upto.min(self.reach().revision);
        if after >= upto {
            return Ok(Vec::new());
        }
        let page = self
            .reader
            .read(Offset(after), bytes_max.max(1), Offset(upto))?;
        match page.batches.is_empty() {
            false => Ok(page.batches),
            // A log whose disk has failed shows only what is durable. It is better said than taken for the end.
            true => Err(RecordsFailed::Missing {
                expected: upto,
                found: after,
            }),
        }
    }
}

impl Held {
    pub(crate) fn reach(&self) -> Reach {
        Reach {
            applied: self.applied,
            revision: self.log.end().0,
        }
    }

    /// Decides a committed proposal. The same on every member: it looks at nothing but the records and the proposal.
    pub(crate) fn apply(
        &mut self,
        at: LogId,
        proposal: &Proposal,
    ) -> Result<Answer, RecordsFailed> {
        let found = self.log.end().0;
        if proposal.expected != found {
            return self.answer_again(proposal, found);
        }
        if proposal.records.is_empty() {
            return Ok(Answer::Appended { revision: found });
        }
        let batch = batch_of(at, proposal, found)?;
        let bytes = batch.len() as u64;
        self.log.append(&[batch])?;
        self.unwritten += bytes;
        let revision = self.log.end().0;
        Ok(Answer::Appended { revision })
    }

    /// A proposal whose place is taken: by itself, committed before, or by another.
    fn answer_again(&self, proposal: &Proposal, found: u64) -> Result<Answer, RecordsFailed> {
        if proposal.expected >= found {
            return Ok(Answer::Raced { found });
        }
        let stamp = stamp_at(&self.log.reader(), proposal.expected)?;
        if stamp.base == proposal.expected && stamp.proposal == proposal.id {
            let revision = stamp.base + proposal.records.len() as u64;
            return Ok(Answer::Appended { revision });
        }
        Ok(Answer::Raced { found })
    }

    /// Adds batches that another member agreed to before, as they are.
    pub(crate) fn take(&mut self, batches: &[Bytes]) -> Result<(), RecordsFailed> {
        Ok(self.log.append(batches)?)
    }

    /// Makes the records durable and writes down how far they go, so that the raft log may let go of what is before.
    pub(crate) fn write_down(&mut self) -> Result<Applied, RecordsFailed> {
        self.log.sync()?;
        let applied = Applied {
            log_id: self.applied,
            membership: self.membership.clone(),
            revision: self.log.end().0,
        };
        self.place.write(APPLIED, &applied)?;
        self.unwritten = 0;
        Ok(applied)
    }
}

/// What the header of a batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) base: u64,
    pub(crate) log_id: LogId,
    pub(crate) proposal: ProposalId,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are handed over as they come"
)]
fn foreign(revision: u64, why: impl ToString) -> RecordsFailed {
    let why = why.to_string();
    RecordsFailed::Foreign { revision, why }
}

/// The stamp of the batch that holds an offset.
fn stamp_at(reader: &LogReader, offset: u64) -> Result<Stamp, RecordsFailed> {
    let page = reader.read(Offset(offset), 1, Offset(u64::MAX))?;
    let batch = page
        .batches
        .first()
        .ok_or_else(|| foreign(offset, "is missing"))?;
    stamp_of(batch)
}

/// The stamp of a batch.
pub(crate) fn stamp_of(batch: &Bytes) -> Result<Stamp, RecordsFailed> {
    let header = BatchHeader::parse(batch).map_err(|why| foreign(0, why))?;
    let base = header.base().0;
    let first = felix_model::Records::new(batch)
        .map_err(|why| foreign(base, why))?
        .next();
    let record: Option<Record> = first.transpose().map_err(|why| foreign(base, why))?;
    let value = record
        .and_then(|record| record.internal.last(HEADER))
        .flatten();
    let mut value = value.ok_or_else(|| foreign(base, "does not say where it was committed"))?;
    let log_id = codec::get_log_id(&mut value);
    let proposal = value
        .try_get_u64()
        .and_then(|high| Ok(ProposalId(high, value.try_get_u64()?)));
    match (log_id, proposal) {
        (Some(log_id), Ok(proposal)) => Ok(Stamp {
            base,
            log_id,
            proposal,
        }),
        _ => Err(foreign(base, "says only in part where it was committed")),
    }
}

/// One batch for all records of a proposal, so that they are there together or not at all.
fn batch_of(at: LogId, proposal: &Proposal, base: u64) -> Result<Bytes, BuildRefused> {
    let mut stamp = BytesMut::with_capacity(5 * 8);
    codec::put_log_id(&mut stamp, &at);
    stamp.put_u64(proposal.id.0);
    stamp.put_u64(proposal.id.1);
    let mut builder = BatchBuilder::new(BatchOptions {
        internal: true,
        ..BatchOptions::default()
    });
    let mut headers: &[(&[u8], Option<&[u8]>)] = &[(HEADER, Some(&stamp))];
    for record in &proposal.records {
        builder.push(0, None, Some(record), headers)?;
        headers = &[];
    }
    let mut batch = builder.finish()?;
    patch(&mut batch, Offset(base), Generation(0));
    Ok(batch.freeze())
}

/// Whether an append can be kept at all, so that nobody commits what no member can apply.
pub(crate) fn check_fit(proposal: &Proposal) -> Result<(), BuildRefused> {
    let at = LogId::default();
    batch_of(at, proposal, proposal.expected).map(|_| ())
}
