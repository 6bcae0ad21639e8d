//! Brokers whose logs are read as caches, counters, groups, commits and groups of the
//! Kafka protocol, under the same crashes and faults as streams.
//!
//! A reading is an engine with its logs and its clients; `machine.rs` is the disk, the clock and the chance below it;
//! `life.rs` lets it live, crash and come back. What clients were told is held against the rules of [`crate::history`].

mod cache;
mod campaign;
mod commits;
mod groups;
mod life;
mod machine;
mod teams;
mod twin;

pub use campaign::{Campaign, Summary};
pub use twin::Twin;

use std::fmt;

use crate::plan::Mode;
use crate::world::Outcome;

/// Which reading of a log is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keys and counters.
    Cache,
    /// Consumer groups.
    Groups,
    /// Events with state.
    Commits,
    /// Groups of the Kafka protocol.
    Teams,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cache, Self::Groups, Self::Commits, Self::Teams];

    /// As it is written in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Groups => "groups",
            Self::Commits => "commits",
            Self::Teams => "teams",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where every choice comes from.
    pub seed: u64,
    /// What is simulated.
    pub kind: Kind,
    /// The sync mode of its logs.
    pub mode: Mode,
    /// How the broker is broken, if it is.
    pub twin: Option<Twin>,
    /// Print every line of the transcript.
    pub is_printed: bool,
}

impl Plan {
    /// What a seed stands for.
    #[must_use]
    pub fn of(seed: u64, kind: Kind, mode: Mode) -> Self {
        Self {
            seed,
            kind,
            mode,
            twin: None,
            is_printed: false,
        }
    }

    pub(crate) fn is(&self, twin: Twin) -> bool {
        self.twin == Some(twin)
    }
}

/// Runs what the plan says.
#[must_use]
pub fn run(plan: Plan) -> Outcome {
    match plan.kind {
        Kind::Cache => life::run::<cache::Cache>(plan),
        Kind::Groups => life::run::<groups::Workers>(plan),
        Kind::Commits => life::run::<commits::Ledger>(plan),
        Kind::Teams => life::run::<teams::Teams>(plan),
    }
}
