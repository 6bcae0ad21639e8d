//! The state of entities: a stream's log, read as what its commits left.
//!
//! A commit is one record, the event and the changes of one entity's state in it, so no reader ever has
//! one without the other. [`StateView`] stands beside the [`Shard`] of a stream that has commits: it
//! judges them before they are appended and folds them once they are committed.
//!
//! ```text
//!                  preconditions are judged here
//!                                    v
//!     index ─── committed ─── overlay: commits in flight ─── end
//!       ^
//!       reads answer from here
//! ```
//!
//! What was judged by commits in flight is answered once these are committed, and taken back with them
//! when a write fails. A stream without commits has no view and pays nothing.

mod decide;
mod fold;
mod packed;

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use felix_model::forms::{Change, Commit};
use felix_model::{Offset, TimeMs};

use crate::input::Ticket;
use crate::keyed::{Entry, Index, Key, Once, OnceBounds, Values};
use crate::refused::AppendRefused;
use crate::shard::Shard;

pub use fold::{StateFold, StateSnapshot};

/// Longest entity key. It is part of every key of the index.
pub const ENTITY_BYTES_MAX: usize = 4 * 1024;

/// Longest key of an entity's state.
pub const STATE_KEY_BYTES_MAX: usize = 1024;

/// Most changes of one commit.
pub const CHANGES_MAX: usize = 1_000;

/// Most preconditions of one commit.
pub const PRECONDITIONS_MAX: usize = 1_000;

/// Most rows of one page of a list.
pub const LIST_MAX: usize = 1_000;

/// What the shell decides about a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// Largest commit: entity, event and changes together, in bytes.
    pub commit_bytes_max: u64,
    /// How much of the values may be in memory, in bytes.
    pub value_bytes: u64,
    /// How much is remembered of commits with an idempotency key.
    pub once: OnceBounds,
}

/// What a key of the entity must hold for a commit to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// Of the state.
    pub key: Bytes,
    /// Offset of the commit that wrote it; `None`: it must hold nothing.
    pub version: Option<Offset>,
}

/// A commit as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOp {
    /// What to append.
    pub commit: Commit,
    /// All must hold.
    pub preconditions: Vec<Precondition>,
    /// The offset the record must get, appends in flight included.
    pub expected: Option<Offset>,
}

/// The commit is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Of its record; the version of what it wrote.
    pub offset: Offset,
    /// It was sent before, under the same idempotency key; nothing was appended now.
    pub repeated: bool,
}

/// Why a commit was refused. Nothing changed, but after [`AppendRefused::OutcomeUnknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefused {
    /// The caller's.
    #[error("an entity key of {bytes} bytes: it may have at most {limit}")]
    EntityLength {
        /// Of the entity key.
        bytes: usize,
        /// [`ENTITY_BYTES_MAX`].
        limit: usize,
    },
    /// The caller's.
    #[error("a state key of {bytes} bytes: it may have at most {limit}")]
    KeyLength {
        /// Of the state key.
        bytes: usize,
        /// [`STATE_KEY_BYTES_MAX`].
        limit: usize,
    },
    /// The caller's.
    #[error("a commit of {count} changes or preconditions: it may have at most {limit} of each")]
    TooMany {
        /// How many.
        count: usize,
        /// [`CHANGES_MAX`], [`PRECONDITIONS_MAX`].
        limit: usize,
    },
    /// The caller's: entity, event and changes together are larger than the stream takes.
    #[error("a commit of {bytes} bytes is over the stream's limit of {limit}")]
    TooLarge {
        /// Of the commit.
        bytes: u64,
        /// [`StateOptions::commit_bytes_max`].
        limit: u64,
    },
    /// The caller's.
    #[error("an idempotency key of {bytes} bytes: it must have 1 to {limit}")]
    IdLength {
        /// Of the idempotency key.
        bytes: usize,
        /// [`felix_model::forms::IDEMPOTENCY_KEY_BYTES_MAX`].
        limit: usize,
    },
    /// The caller's: another commit was sent under this idempotency key.
    #[error("the idempotency key was used for another commit, at offset {offset}")]
    IdReused {
        /// Where that is.
        offset: Offset,
    },
    /// Try again later: too many idempotency keys are too young to be forgotten.
    #[error("{keys} idempotency keys are remembered, which is the limit")]
    IdsFull {
        /// How many.
        keys: usize,
    },
    /// The caller's: a precondition does not hold.
    #[error("precondition {index} does not hold: the key is at {}", shown(*current))]
    VersionMismatch {
        /// Which precondition, from 0; the first that does not hold.
        index: usize,
        /// What the key is at; `None`: it holds nothing.
        current: Option<Offset>,
    },
    /// The log did not take it.
    #[error(transparent)]
    Append(#[from] AppendRefused),
}

fn shown(version: Option<Offset>) -> String {
    version.map_or_else(
        || "no version".into(),
        |version| format!("version {version}"),
    )
}

/// A value of a state as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFound {
    /// Offset of the commit that wrote it.
    pub version: Offset,
    /// Its length in bytes.
    pub length: u32,
    /// The value; `None`: it is not in memory, read the record at `version` and say
    /// [`StateView::learn`].
    pub value: Option<Bytes>,
}

/// The answer to a commit that was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateAnswer {
    /// To which.
    pub ticket: Ticket,
    /// What came of it.
    pub outcome: Result<Committed, CommitRefused>,
}

/// What the commits of one shard left.
///
/// Invariant: `index` is the fold over exactly the commits below the committed mark; `overlay` is what
/// those in flight add to it.
#[derive(Debug)]
pub struct StateView {
    options: StateOptions,
    index: Index,
    /// The values of some commits, packed, by the offsets of these.
    values: Values,
    once: Once<i64>,
    /// Of the newest committed commit.
    as_of: Option<Offset>,
    /// Commits that were appended and are not committed, in order.
    flights: VecDeque<Flight>,
    /// The newest change in flight of each key; `None` after a delete.
    overlay: HashMap<Key, (Offset, Option<Offset>)>,
    /// Answers that wait for what they saw to be committed.
    waiting: Vec<(Offset, StateAnswer)>,
}

#[derive(Debug)]
struct Flight {
    offset: Offset,
    commit: Commit,
}

impl StateView {
    /// The state that a log was found to hold.
    #[must_use]
    pub fn new(options: StateOptions, fold: StateFold) -> Self {
        Self {
            options,
            index: fold.index,
            values: Values::new(options.value_bytes),
            once: fold.once,
            as_of: fold.as_of,
            flights: VecDeque::new(),
            overlay: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// What one key of an entity's state holds.
    pub fn get(&mut self, entity: &[u8], key: &[u8]) -> Option<StateFound> {
        let Self { index, values, .. } = self;
        let entry = index.get(&index_key(entity, key))?;
        Some(found(values, entry, key))
    }

    /// The keys of an entity's state that begin with `prefix`, those above `after` only, in order; and
    /// whether there are more. At most [`LIST_MAX`].
    pub fn list(
        &mut self,
        entity: &[u8],
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> (Vec<(Bytes, StateFound)>, bool) {
        let Self { index, values, .. } = self;
        let front = index_key(entity, prefix);
        let after = after.map(|after| index_key(entity, after));
        let skipped = front.len() - prefix.len();
        let mut entries = index.walk(&front, after.as_deref());
        let rows = entries
            .by_ref()
            .take(limit.min(LIST_MAX))
            .map(|(composed, entry)| {
                let key = composed.get(skipped..).unwrap_or_default();
                (Bytes::copy_from_slice(key), found(values, entry, key))
            })
            .collect();
        (rows, entries.next().is_some())
    }

    /// Offset of the newest commit that reads reflect; `None` before the first.
    #[must_use]
    pub fn as_of(&self) -> Option<Offset> {
        self.as_of
    }

    /// Takes the values of a commit that was read from the log.
    pub fn learn(&mut self, offset: Offset, commit: &Commit) {
        if !self.values.holds(offset) {
            self.hold(offset, commit);
        }
    }

    /// Whether the record of a commit is still needed: for a value, for a deletion that an older record
    /// could undo, or to answer for its idempotency key.
    #[must_use]
    pub fn keeps(&self, offset: Offset, commit: &Commit) -> bool {
        let is_remembered = |id: &Bytes| self.once.needs(id, offset);
        commit.idempotency.as_ref().is_some_and(is_remembered)
            || self.as_of.is_some_and(|as_of| as_of == offset)
            || commit.changes.iter().any(|change| {
                let newest = self.index.get(&index_key(&commit.entity, change.key()));
                match change {
                    Change::Put { .. } => newest.is_some_and(|entry| entry.offset == offset),
                    // Any later put makes up for it; a later deletion is as good, but not known.
                    Change::Delete { .. } => newest.is_none_or(|entry| entry.offset <= offset),
                }
            })
    }

    /// Whether the log has a commit, or is about to: one that was refused leaves none.
    #[must_use]
    pub fn has_commits(&self) -> bool {
        self.as_of.is_some() || !self.flights.is_empty()
    }

    /// Keys that hold something, over all entities.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// No key holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn hold(&mut self, offset: Offset, commit: &Commit) {
        if let Some(packed) = packed::pack(&commit.changes) {
            self.values
                .insert(offset, Key::from(commit.entity.as_ref()), packed);
        }
    }

    /// Takes note of where the shard has come to: folds what was committed, takes back what failed, and
    /// pushes the answers that can leave. Call it after everything the shard handled.
    pub fn follow(&mut self, shard: &Shard, answers: &mut Vec<StateAnswer>) {
        let (committed, end) = (shard.committed(), shard.end());
        if self.flights.back().is_some_and(|last| last.offset >= end) {
            self.take_back(end);
        }
        while let Some(flight) = self.flights.pop_front_if(|next| next.offset < committed) {
            self.apply(flight);
        }
        let failed = if shard.is_poisoned() {
            AppendRefused::OutcomeUnknown
        } else {
            AppendRefused::StorageFull
        };
        for (seen, mut answer) in self
            .waiting
            .extract_if(.., |(seen, _)| *seen < committed || *seen >= end)
        {
            if seen >= end {
                answer.outcome = Err(failed.into());
            }
            answers.push(answer);
        }
    }

    fn apply(&mut self, flight: Flight) {
        let Flight { offset, commit } = flight;
        for change in &commit.changes {
            let key = index_key(&commit.entity, change.key());
            if self.overlay.get(&key).is_some_and(|held| held.0 == offset) {
                self.overlay.remove(&key);
            }
            fold::change(&mut self.index, key, offset, change);
        }
        self.hold(offset, &commit);
        self.as_of = Some(offset);
    }

    fn take_back(&mut self, end: Offset) {
        while self
            .flights
            .pop_back_if(|last| last.offset >= end)
            .is_some()
        {}
        self.once.roll_back(end);
        self.overlay.clear();
        for flight in &self.flights {
            stage(&mut self.overlay, flight.offset, &flight.commit);
        }
    }
}

fn stage(overlay: &mut HashMap<Key, (Offset, Option<Offset>)>, offset: Offset, commit: &Commit) {
    for change in &commit.changes {
        let version = match change {
            Change::Put { .. } => Some(offset),
            Change::Delete { .. } => None,
        };
        overlay.insert(index_key(&commit.entity, change.key()), (offset, version));
    }
}

fn found(values: &mut Values, entry: Entry, key: &[u8]) -> StateFound {
    let packed = values.get(entry.offset);
    StateFound {
        version: entry.offset,
        length: entry.length,
        value: packed.and_then(|packed| packed::find(&packed, key)),
    }
}

/// State keys belong to their entity: the same key of two entities is two keys. The length in front
/// keeps every entity's keys together and apart from all others'.
fn index_key(entity: &[u8], key: &[u8]) -> Key {
    let length = u32::try_from(entity.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), entity, key].concat().into()
}

/// The time of a record as it stands in its batch.
fn record_time(at: i64) -> TimeMs {
    TimeMs(u64::try_from(at).unwrap_or(0))
}
