//! The shard: its state, and the one way in.

mod append;
mod commit;
mod overflow;
mod readers;

use std::collections::VecDeque;
use std::sync::Arc;

use felix_model::{Generation, Offset, TimeMs};

use crate::batch::Batch;
use crate::effect::Effect;
use crate::input::{CloseReason, Input};
use crate::options::{CommitWhen, ShardOptions, Storage};
use crate::producers::ProducerTable;
use crate::stats::Stats;
use crate::window::Window;

use append::Held;
use commit::Answers;
use overflow::Kept;
use readers::Readers;

pub use readers::ReaderView;

/// One shard of one stream.
///
/// Invariant: `start ≤ committed ≤ end`, and every reader's position is at most `committed`.
#[derive(Debug)]
pub struct Shard {
    options: ShardOptions,
    status: Status,
    /// The first offset the log still holds.
    start: Offset,
    /// The next offset to be given away. Exclusive end of everything admitted.
    end: Offset,
    /// Exclusive end of what readers may see and acknowledgements may promise.
    committed: Offset,
    /// Where the last committed batch that is for readers ends. Control batches may follow.
    visible_end: Offset,
    /// Admitted and not committed: exactly `committed..end`, in order.
    in_flight: VecDeque<Arc<Batch>>,
    in_flight_bytes: u64,
    answers: Answers,
    producers: ProducerTable,
    /// Committed batches up to `committed`.
    window: Window,
    /// Batches that left the window and are still owed to a slow reader (`overflow: drop_new`).
    kept: Kept,
    /// Appends that wait for slow readers (`overflow: block`).
    held: Held,
    readers: Readers,
    stats: Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    /// The journal failed. Nothing is admitted or acknowledged any more; reading goes on.
    Poisoned,
    /// Readers are gone; appends in flight are still answered.
    Closing(CloseReason),
    Closed(CloseReason),
}

impl Shard {
    /// Opens a shard over what recovery found, with what it found out about producers.
    pub fn new(options: ShardOptions, producers: ProducerTable) -> Self {
        let ShardOptions { start, end, .. } = options;
        debug_assert!(start <= end, "a log does not end before it starts");
        Self {
            options,
            status: Status::Open,
            start,
            end,
            committed: end,
            visible_end: end,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            answers: Answers::default(),
            producers,
            window: Window::new(end),
            kept: Kept::default(),
            held: Held::default(),
            readers: Readers::default(),
            stats: Stats::default(),
        }
    }

    /// Advances by one input and pushes what must be done. `now` must not go back.
    pub fn handle(&mut self, now: TimeMs, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Append(append) => self.append(now, append, effects),
            Input::Written { end } => self.written(end, effects),
            Input::Flushed { end } => self.flushed(end, effects),
            Input::WriteFailed { from, why } => self.write_failed(from, why, effects),
            Input::Subscribe { reader, start } => self.subscribe(reader, start, effects),
            Input::Pull { reader, max_bytes } => self.pull(reader, max_bytes, effects),
            Input::PageRead { reader, from, page } => {
                self.page_read(reader, from, &page, effects);
            }
            Input::Unsubscribe { reader } => self.unsubscribe(reader, effects),
            Input::Trimmed { start } => self.trimmed(start),
            Input::Timeout => self.timeout(now, effects),
            Input::Close { reason } => self.close(reason, effects),
        }
        self.check();
    }

    /// When [`Input::Timeout`] is due, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<TimeMs> {
        self.held.deadline()
    }

    /// How many appends the shell should hand in before it takes care of completions again. At 0
    /// it should leave requests where they are: in QUIC's flow control.
    pub fn room(&self) -> usize {
        if self.in_flight_bytes >= self.options.limits.in_flight_bytes_max {
            return 0;
        }
        commit::ANSWERS_MAX.saturating_sub(self.answers.len())
    }

    /// What the shard was opened with.
    pub fn options(&self) -> &ShardOptions {
        &self.options
    }

    /// The first offset the log still holds. In memory: the oldest a new reader can get.
    pub fn start(&self) -> Offset {
        match self.options.storage {
            Storage::Durable { .. } => self.start,
            Storage::Memory { .. } => self.window.start(),
        }
    }

    /// The next offset to be given away, exclusive end of everything admitted.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Exclusive end of what is committed: what readers see.
    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// The journal failed and the shard must be opened anew.
    pub fn is_poisoned(&self) -> bool {
        self.status == Status::Poisoned
    }

    /// What the shard remembers about idempotent producers.
    pub fn producers(&self) -> &ProducerTable {
        &self.producers
    }

    /// What stands in the generation field of batches appended from here on.
    pub fn generation(&self) -> Generation {
        self.options.generation
    }

    /// Committed batches from the one holding `from` on, of those in memory, until `max_bytes`, one at least if there
    /// is one. `None` when they are not in memory any more, or `from` is above the committed mark.
    pub fn recent(&self, from: Offset, max_bytes: u64) -> Option<Vec<Arc<Batch>>> {
        (self.window.start()..=self.committed)
            .contains(&from)
            .then(|| self.window.from(from, max_bytes))
    }

    /// What it counted.
    pub fn stats(&self) -> Stats {
        Stats {
            lost_records: self.stats.lost_records + self.lost_so_far(),
            readers: self.readers.len() as u64,
            parked_readers: self.readers.parked_len() as u64,
            in_flight_bytes: self.in_flight_bytes,
            in_flight_batches: self.in_flight.len() as u64,
            held_batches: self.held.len() as u64,
            window_bytes: self.window.bytes() + self.kept.bytes(),
            producers: self.producers.len() as u64,
            ..self.stats
        }
    }

    fn trimmed(&mut self, start: Offset) {
        if !self.is_durable() {
            return;
        }
        self.start = self.start.max(start.min(self.committed));
        self.window.trim(self.start);
    }

    fn timeout(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        self.refuse_overdue(now);
        // Behind a large batch that was refused there may be smaller ones for which there is room.
        self.decide_held(effects);
    }

    fn close(&mut self, reason: CloseReason, effects: &mut Vec<Effect>) {
        match self.status {
            Status::Open | Status::Poisoned => {}
            Status::Closing(_) => return,
            Status::Closed(_) => return effects.push(Effect::Closed),
        }
        self.status = Status::Closing(reason);
        self.refuse_held(reason);
        self.answers.release(self.committed, effects);
        self.end_readers(reason, effects);
        self.close_if_drained(effects);
    }

    fn close_if_drained(&mut self, effects: &mut Vec<Effect>) {
        if let Status::Closing(reason) = self.status
            && self.in_flight.is_empty()
            && self.answers.is_empty()
        {
            self.status = Status::Closed(reason);
            effects.push(Effect::Closed);
        }
    }

    fn commits_when_flushed(&self) -> bool {
        matches!(
            self.options.storage,
            Storage::Durable {
                commit: CommitWhen::Flushed
            }
        )
    }

    fn is_durable(&self) -> bool {
        matches!(self.options.storage, Storage::Durable { .. })
    }

    fn check(&self) {
        debug_assert!(self.start <= self.committed && self.committed <= self.end);
        debug_assert_eq!(
            self.in_flight.front().map_or(self.end, |batch| batch.base),
            self.committed,
            "in flight is what is admitted and not committed"
        );
    }
}
