//! What must hold, and what was found not to.

use std::fmt;

use felix_model::TimeMs;

/// One promise, as it is checked in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// What was acknowledged, or read, is there after a crash, as far as the sync mode promises.
    Durable,
    /// Offsets are dense, and one offset of one generation never has two contents.
    Offsets,
    /// A batch of an idempotent producer is in the log once, and is known to be.
    Idempotent,
    /// A reader gets every record once and in order, from history to live.
    Cursor,
    /// What is read is what was published.
    Bytes,
    /// Recovery after a crash needs nobody.
    Start,
    /// One seed has one transcript.
    Determinism,
    /// A conditional append is where its condition says.
    Conditional,
    /// What was refused for good is not in the log.
    Refused,
    /// Everything asked is answered once, and everything settles when the faults are over.
    Liveness,
    /// What clients of a key or a counter were told could have happened one call at a time.
    Linear,
    /// The rules of consumer groups.
    Group,
    /// A commit is there as a whole or not at all, for every reader, and once.
    Atomic,
    /// The rules of groups of the Kafka protocol.
    Team,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// When, by the clock of the run.
    pub at: TimeMs,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} broken at {} ms: {}",
            self.check, self.at, self.what
        )
    }
}

/// What was found in one run.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Violation>,
    pub(crate) now: TimeMs,
}

/// After so many violations a run is over: what follows is only their echo.
const VIOLATIONS_MAX: usize = 32;

impl Findings {
    /// Takes note of a violation.
    pub(crate) fn report(&mut self, check: Check, what: String) {
        if self.found.len() < VIOLATIONS_MAX {
            self.found.push(Violation {
                check,
                at: self.now,
                what,
            });
        }
    }

    /// Takes note of a violation unless `holds`.
    pub(crate) fn expect(&mut self, holds: bool, check: Check, what: impl FnOnce() -> String) {
        if !holds {
            self.report(check, what());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= VIOLATIONS_MAX
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.found)
    }
}
