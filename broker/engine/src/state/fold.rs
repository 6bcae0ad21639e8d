//! From a log, or a snapshot and the rest of the log, to the state; and back to a snapshot.

use felix_model::batch::BatchRefused;
use felix_model::forms::{Change, Commit};
use felix_model::{Offset, Record};

use super::{StateView, decide, index_key, record_time};
use crate::keyed::snapshot::{self, Loaded};
use crate::keyed::{Entry, Index, Key, Once, OnceBounds, Remembered, Sum};

/// Rows of one chunk of a snapshot: few enough that taking them holds nobody up.
const CHUNK_ROWS: usize = 2_000;

/// What the commits of a log come to.
#[derive(Debug)]
pub struct StateFold {
    pub(super) index: Index,
    pub(super) once: Once<i64>,
    pub(super) as_of: Option<Offset>,
    covered: Offset,
}

impl StateFold {
    /// Of no commit.
    #[must_use]
    pub fn new(bounds: OnceBounds) -> Self {
        Self {
            index: Index::new(),
            once: Once::new(bounds),
            as_of: None,
            covered: Offset::ZERO,
        }
    }

    /// Of what a snapshot holds. `None` when it knows of records at or beyond `end`, where the log
    /// ends: the log lost them, and other records may take their offsets.
    #[must_use]
    pub fn from_snapshot(loaded: Loaded, end: Offset, bounds: OnceBounds) -> Option<Self> {
        let once_newest = loaded.once.last().map(|(_, known)| known.offset);
        if loaded.covered > end || loaded.newest().max(once_newest) >= Some(end) {
            return None;
        }
        let mut once = Once::new(bounds);
        for (id, known) in loaded.once {
            once.remember(&id, known);
        }
        Some(Self {
            index: Index::from_sorted(loaded.entries),
            once,
            as_of: loaded.sums.first().map(|(_, newest)| newest.offset),
            covered: loaded.covered,
        })
    }

    /// Whether it knows of any commit.
    #[must_use]
    pub fn has_commits(&self) -> bool {
        self.as_of.is_some()
    }

    /// The first offset whose record is still to be observed.
    #[must_use]
    pub fn covered(&self) -> Offset {
        self.covered
    }

    /// Takes the next record of the log. One that the fold knows already, and one that is no commit,
    /// changes nothing.
    ///
    /// # Errors
    /// When the record is a commit that cannot be read.
    pub fn observe(&mut self, record: &Record) -> Result<(), BatchRefused> {
        let offset = record.offset;
        self.covered = self.covered.max(offset.plus(1));
        let Some(commit) = Commit::read(record)? else {
            return Ok(());
        };
        for change in &commit.changes {
            self::change(
                &mut self.index,
                index_key(&commit.entity, change.key()),
                offset,
                change,
            );
        }
        if let Some(id) = &commit.idempotency {
            let at = record_time(record.timestamp_ms);
            self.once.remember(id, remembered(&commit, offset, at));
            self.once.forget(at);
        }
        self.as_of = self.as_of.max(Some(offset));
        Ok(())
    }
}

/// What is remembered of a commit that has an idempotency key.
pub(super) fn remembered(
    commit: &Commit,
    offset: Offset,
    at: felix_model::TimeMs,
) -> Remembered<i64> {
    Remembered {
        digest: decide::digest(commit),
        offset,
        at,
        result: 0,
    }
}

/// One change of the commit at `offset`, unless a later one is known.
pub(super) fn change(index: &mut Index, key: Key, offset: Offset, change: &Change) {
    if index.get(&key).is_some_and(|entry| entry.offset > offset) {
        return;
    }
    match change {
        Change::Put { value, .. } => {
            let entry = Entry {
                offset,
                expires: None,
                length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            };
            index.put(key, entry);
        }
        Change::Delete { .. } => {
            index.remove(&key);
        }
    }
}

/// Writes a view down piece by piece, between which it may go on.
///
/// A piece taken late may know more than the front says; whoever loads the snapshot reads the log from
/// there on and comes to the same.
#[derive(Debug)]
pub struct StateSnapshot {
    writer: snapshot::Writer,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Entries { after: Option<Key> },
    AsOf,
    Once { from: Offset },
    End,
    Over,
}

impl StateView {
    /// Begins a snapshot of everything below `committed`, which is the shard's mark now. The answer is
    /// its front; [`StateSnapshot::next`] gives the rest.
    #[must_use]
    pub fn begin_snapshot(&self, committed: Offset) -> (Vec<u8>, StateSnapshot) {
        let snapshot = StateSnapshot {
            writer: snapshot::Writer::default(),
            step: Step::Entries { after: None },
        };
        (snapshot::head(committed), snapshot)
    }
}

impl StateSnapshot {
    /// The next piece; `None` after the last.
    pub fn next(&mut self, view: &StateView) -> Option<Vec<u8>> {
        match &self.step {
            Step::Entries { after } => {
                let rows: Vec<_> = view
                    .index
                    .walk(&[], after.as_deref())
                    .take(CHUNK_ROWS)
                    .collect();
                let last = rows.last().map(|(key, _)| Key::clone(key));
                let piece = self.writer.entries(rows);
                self.step = match last {
                    Some(last) => Step::Entries { after: Some(last) },
                    None => Step::AsOf,
                };
                Some(piece)
            }
            Step::AsOf => {
                // A state has no counters; the one row there is says which commit was the newest.
                let key = Key::from(b"as_of".as_slice());
                let newest = view.as_of.map(|offset| Sum {
                    sum: 0,
                    offset,
                    checkpoint: None,
                });
                self.step = Step::Once { from: Offset::ZERO };
                Some(self.writer.sums(newest.map(|newest| (&key, newest))))
            }
            Step::Once { from } => {
                // What is in flight may never be in the log.
                let end = view.flights.front().map_or(Offset::MAX, |next| next.offset);
                let rows: Vec<_> = view
                    .once
                    .walk(*from)
                    .take_while(|(_, known)| known.offset < end)
                    .take(CHUNK_ROWS)
                    .collect();
                let last = rows.last().map(|(_, known)| known.offset);
                let piece = self.writer.once(rows);
                self.step = match last {
                    Some(last) => Step::Once { from: last.plus(1) },
                    None => Step::End,
                };
                Some(piece)
            }
            Step::End => {
                self.step = Step::Over;
                Some(std::mem::take(&mut self.writer).end())
            }
            Step::Over => None,
        }
    }
}
