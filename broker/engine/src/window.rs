//! The newest committed batches, in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use felix_model::Offset;

use crate::batch::{Batch, BatchKind, Run};

/// Contiguous committed batches up to the committed mark.
#[derive(Debug)]
pub(crate) struct Window {
    batches: VecDeque<Arc<Batch>>,
    bytes: u64,
    end: Offset,
}

impl Window {
    /// Nothing yet; the first batch begins at `end`.
    pub(crate) fn new(end: Offset) -> Self {
        Self {
            batches: VecDeque::new(),
            bytes: 0,
            end,
        }
    }

    /// Where the oldest batch begins; the end, when there is none.
    pub(crate) fn start(&self) -> Offset {
        self.batches.front().map_or(self.end, |batch| batch.base)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Batch>> {
        self.batches.iter()
    }

    pub(crate) fn newest_base(&self) -> Option<Offset> {
        self.batches.back().map(|batch| batch.base)
    }

    pub(crate) fn push(&mut self, batch: Arc<Batch>) {
        debug_assert_eq!(batch.base, self.end, "the window has no holes");
        self.bytes += batch.bytes_len;
        self.end = batch.end;
        self.batches.push_back(batch);
    }

    /// Takes out the oldest batch if the window is over `bytes_max`. The newest one stays.
    pub(crate) fn pop_over(&mut self, bytes_max: u64) -> Option<Arc<Batch>> {
        if self.bytes <= bytes_max || self.batches.len() <= 1 {
            return None;
        }
        self.pop()
    }

    /// Forgets what ends at or below `start`.
    pub(crate) fn trim(&mut self, start: Offset) {
        while self.batches.front().is_some_and(|batch| batch.end <= start) {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Arc<Batch>> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.bytes_len;
        Some(batch)
    }

    /// Whole batches from the one holding `from` on, control batches with the others, at most `max_bytes` of log or one.
    pub(crate) fn from(&self, from: Offset, max_bytes: u64) -> Vec<Arc<Batch>> {
        let first = self.batches.partition_point(|batch| batch.end <= from);
        let mut bytes = 0;
        let mut found = Vec::new();
        for batch in self.batches.range(first..) {
            bytes += batch.size();
            if !found.is_empty() && bytes > max_bytes {
                break;
            }
            found.push(Arc::clone(batch));
        }
        found
    }

    /// What a reader at `position`, which is not below the start, gets next.
    pub(crate) fn next_run(&self, want: &Want) -> NextRun {
        let first = self
            .batches
            .partition_point(|batch| batch.end <= want.position);
        next_run(self.batches.range(first..), want)
    }
}

/// What a reader asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) position: Offset,
    pub(crate) max_bytes: u32,
    /// Nothing that begins at or beyond it.
    pub(crate) until: Offset,
}

/// What it gets.
#[derive(Clone, Debug)]
pub(crate) struct NextRun {
    /// Where the run begins: the position, or behind the control batches that stood there and what
    /// was compacted away.
    pub(crate) from: Offset,
    /// `None`: nothing but control batches, or nothing at all.
    pub(crate) run: Option<Run>,
    pub(crate) bytes: u64,
    /// The position afterwards.
    pub(crate) next: Offset,
    /// It ends where it does because of `max_bytes`.
    is_cut_short: bool,
}

impl NextRun {
    /// It was made for `made_for`; would the same be made for `want`?
    pub(crate) fn answers(&self, made_for: &Want, want: &Want) -> bool {
        let same_batches = made_for.position == want.position && made_for.until == want.until;
        let fits = !self.is_cut_short
            && (self.bytes <= u64::from(want.max_bytes)
                || self.run.as_ref().is_none_or(|run| run.len() == 1));
        same_batches && (made_for.max_bytes == want.max_bytes || fits)
    }
}

/// Takes the control batches at the position out of the way, and then the data batches up
/// to the next control batch or the bounds of `want`, one at least.
pub(crate) fn next_run<'a>(batches: impl Iterator<Item = &'a Arc<Batch>>, want: &Want) -> NextRun {
    let mut from = want.position;
    let mut next = want.position;
    let mut bytes = 0;
    let mut is_cut_short = false;
    let mut run: Vec<Arc<Batch>> = Vec::new();
    for batch in batches.take_while(|batch| batch.base < want.until) {
        match batch.kind {
            BatchKind::Control if run.is_empty() => {
                from = batch.end;
                next = batch.end;
            }
            BatchKind::Control => break,
            BatchKind::Data => {
                if run.is_empty() {
                    // What lies before it was compacted away.
                    from = from.max(batch.base);
                }
                if !run.is_empty() && bytes + batch.bytes_len > u64::from(want.max_bytes) {
                    is_cut_short = true;
                    break;
                }
                bytes += batch.bytes_len;
                next = batch.end;
                run.push(Arc::clone(batch));
            }
        }
    }
    NextRun {
        from,
        run: (!run.is_empty()).then(|| run.into()),
        bytes,
        next,
        is_cut_short,
    }
}

/// Is it what was asked for: whole batches without holes, the first holding the position?
///
/// A hole would be lost data passed off as a skip, so the reader is ended instead.
pub(crate) fn is_page_at(batches: &[Arc<Batch>], position: Offset, committed: Offset) -> bool {
    let Some(first) = batches.first() else {
        return false;
    };
    first.base <= position
        && first.end > position
        && batches
            .windows(2)
            .all(|pair| matches!(pair, [one, two] if one.end == two.base))
        && batches.last().is_some_and(|last| last.end <= committed)
}

/// Is it what can be left of what was asked for, and does it lead on?
pub(crate) fn is_sparse_page(
    batches: &[Arc<Batch>],
    next: Offset,
    position: Offset,
    committed: Offset,
) -> bool {
    let in_order = batches
        .windows(2)
        .all(|pair| matches!(pair, [one, two] if one.end <= two.base));
    in_order
        && batches.first().is_none_or(|first| first.end > position)
        && batches.last().is_none_or(|last| last.end <= next)
        && (position.plus(1)..=committed).contains(&next)
}
