//! The commits of a shard, and the state they left.

use std::sync::Arc;

use bytes::Bytes;
use felix_engine::state::{
    CommitOp, CommitRefused, Committed, StateFold, StateFound, StateOptions, StateSnapshot,
    StateView,
};
use felix_engine::{AppendRefused, Appended, Ticket};
use felix_journal::{LogHandle, ReadRefused};
use felix_model::Offset;
use felix_model::forms::Commit;

use super::{Cell, Inner, Settle};
use crate::fair::Grant;

/// Hears what became of a commit, on whatever thread finished it. It must not block.
pub(crate) type Done = Box<dyn FnOnce(Result<Committed, CommitRefused>) + Send>;

/// A commit whose outcome is still open.
pub(super) struct CommitWaiting {
    done: Done,
    /// Held until the outcome is known, as the commit's bytes are.
    _grant: Grant,
}

impl CommitWaiting {
    pub(super) fn settle(self, outcome: Result<Committed, CommitRefused>) {
        (self.done)(outcome);
    }
}

/// What an append came to, as the answer to a commit.
pub(super) fn outcome(
    outcome: Result<Appended, AppendRefused>,
) -> Result<Committed, CommitRefused> {
    match outcome {
        Ok(Appended::Committed { base, .. }) => Ok(Committed {
            offset: base,
            repeated: false,
        }),
        Ok(Appended::Duplicate { base, .. }) => Ok(Committed {
            offset: base,
            repeated: true,
        }),
        // Commits are never answered before they are in the log.
        Ok(Appended::Accepted) => Err(AppendRefused::OutcomeUnknown.into()),
        Err(refused) => Err(refused.into()),
    }
}

/// The state of a shard as it was read when the shard was opened.
pub(crate) struct KeptState {
    pub(crate) view: StateView,
    pub(crate) saved: Saved,
}

/// How much of a log the state on disk has: the rest is read when the shard is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saved {
    /// Everything below. Exclusive.
    pub(crate) covered: Offset,
    /// Bytes of log from there on, of commits and of what is not part of the state alike.
    pub(crate) bytes_since: u64,
}

impl Saved {
    pub(super) fn log_grew(&mut self, bytes: usize) {
        self.bytes_since = self.bytes_since.saturating_add(bytes as u64);
    }
}

/// One row of a listed state.
pub(crate) type Row = (Bytes, StateFound);

impl Cell {
    /// Judges and appends a commit. The marker that says that this shard has commits must be on disk.
    pub(crate) fn commit(
        self: &Arc<Self>,
        op: CommitOp,
        options: StateOptions,
        grant: Grant,
        done: Done,
    ) {
        let waiting = CommitWaiting {
            done,
            _grant: grant,
        };
        self.with(|inner| {
            let ticket = Ticket(inner.waiting.insert(Settle::Commit(waiting)) as u64);
            inner.commit(self, (ticket, op), options);
        });
    }

    /// One key of an entity's state, and the newest commit that the answer reflects.
    pub(crate) fn state_get(
        &self,
        entity: &[u8],
        key: &[u8],
    ) -> (Option<StateFound>, Option<Offset>) {
        match &mut self.lock().view {
            Some(view) => (view.get(entity, key), view.as_of()),
            None => (None, None),
        }
    }

    /// A page of an entity's state, whether there is more, and the newest commit that it reflects.
    pub(crate) fn state_list(
        &self,
        entity: &[u8],
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> (Vec<Row>, bool, Option<Offset>) {
        match &mut self.lock().view {
            Some(view) => {
                let (rows, more) = view.list(entity, prefix, after, limit);
                (rows, more, view.as_of())
            }
            None => (Vec::new(), false, None),
        }
    }

    /// Takes the values of a commit that was read from the log.
    pub(crate) fn state_learn(&self, offset: Offset, commit: &Commit) {
        if let Some(view) = &mut self.lock().view {
            view.learn(offset, commit);
        }
    }

    /// Whether the log of this shard has commits, or is about to. One that was refused leaves none.
    pub(crate) fn has_commits(&self) -> bool {
        let inner = self.lock();
        inner.view.as_ref().is_some_and(|view| view.has_commits())
    }

    /// Whether the record of a commit is still needed for the state; see [`StateView::keeps`].
    pub(crate) fn state_keeps(&self, offset: Offset, commit: &Commit) -> bool {
        let inner = self.lock();
        inner
            .view
            .as_ref()
            .is_some_and(|view| view.keeps(offset, commit))
    }

    /// Bytes of log that the state on disk does not have; `None` when it has everything that is committed, or there is
    /// no state.
    pub(crate) fn state_unsaved(&self) -> Option<u64> {
        let inner = self.lock();
        let view = inner.view.as_ref()?;
        let is_behind = view.has_commits() && inner.saved.covered < inner.core.committed();
        is_behind.then_some(inner.saved.bytes_since)
    }

    /// Begins a snapshot of the state: its front, what gives the rest, and what is then to be said to
    /// [`Cell::state_saved`].
    pub(crate) fn state_snapshot(&self) -> Option<(Vec<u8>, StateSnapshot, Saved)> {
        let inner = self.lock();
        let covered = inner.core.committed();
        let (front, snapshot) = inner.view.as_ref()?.begin_snapshot(covered);
        let bytes_since = inner.saved.bytes_since;
        let saved = Saved {
            covered,
            bytes_since,
        };
        Some((front, snapshot, saved))
    }

    /// The snapshot that was begun with this is on disk.
    pub(crate) fn state_saved(&self, begun: Saved) {
        let saved = &mut self.lock().saved;
        saved.covered = begun.covered;
        saved.bytes_since = saved.bytes_since.saturating_sub(begun.bytes_since);
    }

    /// The next piece of a snapshot. Commits go on between two pieces.
    pub(crate) fn state_piece(&self, snapshot: &mut StateSnapshot) -> Option<Vec<u8>> {
        snapshot.next(self.lock().view.as_ref()?)
    }
}

impl Inner {
    fn commit(&mut self, cell: &Arc<Cell>, asked: (Ticket, CommitOp), options: StateOptions) {
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        let view = self.view.get_or_insert_with(|| {
            // There never was a commit, or opening the shard would have found the marker. Whoever opens it from here
            // on reads all of the log.
            self.saved = Saved {
                covered: Offset::ZERO,
                bytes_since: self.log.as_ref().map_or(0, |log| log.reader().bytes()),
            };
            Box::new(StateView::new(options, StateFold::new(options.once)))
        });
        view.commit(now, &mut self.core, asked, &mut effects, &mut self.answers);
        self.perform_all(cell, effects);
    }

    pub(super) fn answer_commits(&mut self) {
        for answer in self.answers.drain(..) {
            let found = super::key(answer.ticket.0).and_then(|key| self.waiting.try_remove(key));
            if let Some(Settle::Commit(waiting)) = found {
                waiting.settle(answer.outcome);
            }
        }
    }
}

/// The commit whose record stands at `offset`; `None` when there is none. Blocking.
///
/// # Errors
/// When the log cannot be read there.
pub(crate) fn read_commit(log: &LogHandle, offset: Offset) -> Result<Option<Commit>, ReadRefused> {
    let record = log.reader().record(offset)?;
    Ok(record.and_then(|record| Commit::read(&record).ok().flatten()))
}
