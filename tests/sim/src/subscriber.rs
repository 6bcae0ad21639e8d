//! Those who read: from the start, from now, from where they stopped; eager and slow.

use felix_engine::{Batch, ReaderEnd, ReaderId, Run, Start, SubscribeRefused};
use felix_model::Offset;

use crate::check::{Check, Findings};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) id: ReaderId,
    state: State,
    /// The next offset it is to get; none until its first subscription.
    next: Option<Offset>,
    first: Start,
    /// How often in a hundred turns it asks for more.
    eagerness: u64,
    max_bytes: u32,
    /// It was given what was read from the log, and nothing since.
    pub(crate) is_in_history: bool,
    /// Power cuts that may have taken what it has read.
    cuts_seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    Idle,
    Pulled,
}

/// What it does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Subscribe(Start),
    Pull(u32),
    Unsubscribe,
}

impl Subscriber {
    pub(crate) fn new(random: &mut Random, id: u64) -> Self {
        Self {
            id: ReaderId(id),
            state: State::Off,
            next: None,
            first: random.pick([Start::Earliest, Start::Earliest, Start::Latest]),
            eagerness: random.pick([5, 30, 100]),
            max_bytes: random.pick([1, 2_000, 1 << 20]),
            is_in_history: false,
            cuts_seen: 0,
        }
    }

    pub(crate) fn wish(&mut self, random: &mut Random, is_draining: bool) -> Option<Wish> {
        match self.state {
            State::Off => Some(Wish::Subscribe(self.next.map_or(self.first, Start::Offset))),
            State::Idle if is_draining => {
                self.state = State::Pulled;
                Some(Wish::Pull(self.max_bytes))
            }
            State::Idle | State::Pulled if !is_draining && random.percent(2) => {
                self.state = State::Off;
                Some(Wish::Unsubscribe)
            }
            State::Idle if random.percent(self.eagerness) => {
                self.state = State::Pulled;
                Some(Wish::Pull(self.max_bytes))
            }
            State::Idle | State::Pulled => None,
        }
    }

    /// Its subscription begins. `marks` are the start and the committed mark of the shard.
    pub(crate) fn subscribed(
        &mut self,
        start: Offset,
        marks: (Offset, Offset),
        findings: &mut Findings,
    ) {
        let asked = match (self.next, self.first) {
            (Some(next), _) => next,
            (None, Start::Earliest) => marks.0,
            (None, Start::Latest) => marks.1,
            (None, Start::Offset(offset)) => offset,
        };
        findings.expect(start == asked, Check::Cursor, || {
            format!(
                "reader {} was to begin at {asked} and begins at {start}",
                self.id
            )
        });
        self.next = Some(start);
        self.state = State::Idle;
        self.is_in_history = false;
    }

    /// Its subscription does not begin. `cuts` counts the power cuts that were allowed to take something.
    pub(crate) fn refused(&mut self, why: SubscribeRefused, cuts: u64, findings: &mut Findings) {
        self.state = State::Off;
        let next = self.next;
        let is_right = match why {
            SubscribeRefused::TooOld { oldest } => {
                self.next = Some(oldest);
                next.is_some_and(|next| next < oldest)
            }
            SubscribeRefused::InFuture { next: end } => {
                self.next = Some(end);
                let may = std::mem::replace(&mut self.cuts_seen, cuts) < cuts;
                may && next.is_some_and(|next| next > end)
            }
            SubscribeRefused::Closed { .. } => true,
            SubscribeRefused::TooManyReaders { .. } | SubscribeRefused::Duplicate => false,
        };
        findings.expect(is_right, Check::Cursor, || {
            format!(
                "reader {} stands at {next:?} and was refused: {why}",
                self.id
            )
        });
    }

    /// It is given batches from `from` on.
    pub(crate) fn delivered(
        &mut self,
        from: Offset,
        batches: &[std::sync::Arc<Batch>],
        committed: Offset,
        findings: &mut Findings,
    ) {
        let is_asked = std::mem::replace(&mut self.state, State::Idle) == State::Pulled;
        findings.expect(is_asked, Check::Cursor, || {
            format!("reader {} did not ask", self.id)
        });
        let next = self.next.unwrap_or(from);
        findings.expect(from == next, Check::Cursor, || {
            format!("reader {} stands at {next} and is given {from}", self.id)
        });
        let mut at = from;
        for (index, batch) in batches.iter().enumerate() {
            let follows = if index == 0 {
                batch.base <= at && batch.end > at
            } else {
                batch.base == at
            };
            findings.expect(follows, Check::Cursor, || {
                format!(
                    "reader {} stands at {at} and is given {}..{}",
                    self.id, batch.base, batch.end
                )
            });
            at = batch.end;
        }
        findings.expect(at <= committed, Check::Cursor, || {
            format!(
                "reader {} is given {at}, and only {committed} is committed",
                self.id
            )
        });
        self.next = Some(at);
    }

    /// Its subscription is over. `has_trouble` says that reads may fail.
    pub(crate) fn ended(&mut self, why: ReaderEnd, has_trouble: bool, findings: &mut Findings) {
        self.state = State::Off;
        let (position, is_right) = match why {
            ReaderEnd::TooOld { position, oldest } => (position, oldest > position),
            ReaderEnd::Unreadable { position } => (position, has_trouble),
            ReaderEnd::Closed { resume, .. } => (resume, true),
        };
        let next = self.next;
        findings.expect(is_right && next == Some(position), Check::Cursor, || {
            format!(
                "reader {} stands at {next:?} and was ended: {why:?}",
                self.id
            )
        });
        if let ReaderEnd::TooOld { oldest, .. } = why {
            self.next = Some(oldest);
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.state = State::Off;
        self.is_in_history = false;
    }

    /// Whether it has everything up to `end`.
    pub(crate) fn has_reached(&self, end: Offset) -> bool {
        self.state != State::Off && self.next == Some(end)
    }
}

/// A run without its first batch; none when that was the only one.
pub(crate) fn without_first(run: &Run) -> Option<(Offset, Run)> {
    let (first, rest) = run.split_first()?;
    (!rest.is_empty()).then(|| (first.end, Run::from(rest.to_vec())))
}
