//! Many runs of readings, and the sum of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use super::{Kind, Plan, run};
use crate::check::{Check, Violation};
use crate::plan::Mode;
use crate::tally::Tally;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Seeds, each in every kind and mode.
    pub seeds: u64,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// What is simulated.
    pub kinds: Vec<Kind>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The first seed.
    pub seed: u64,
    /// How many were used.
    pub seeds: u64,
    /// By kind and mode.
    pub tallies: BTreeMap<(Kind, Mode), Tally>,
    /// The run that broke a rule, if any did, and how.
    pub broken: Option<(Plan, Vec<Violation>)>,
}

/// Every so many runs one is run twice, to see that its seed is all there is to it.
const TWICE_EVERY: u64 = 16;

/// A line of progress is written after so many seeds.
const PROGRESS_EVERY: u64 = 500;

impl Campaign {
    /// Runs every seed, up to the first that breaks a rule.
    #[must_use]
    pub fn run(&self, progress: &mut impl Write) -> Summary {
        let mut summary = Summary {
            seed: self.seed,
            seeds: 0,
            tallies: BTreeMap::new(),
            broken: None,
        };
        for seed in self.seed..self.seed.saturating_add(self.seeds) {
            for kind in &self.kinds {
                for mode in Mode::ALL {
                    let plan = Plan::of(seed, *kind, mode);
                    let mut outcome = run(plan);
                    if seed % TWICE_EVERY == 0 && run(plan).hash != outcome.hash {
                        outcome.violations.push(Violation {
                            check: Check::Determinism,
                            at: felix_model::TimeMs(0),
                            what: "one seed, two transcripts".to_owned(),
                        });
                    }
                    let tally = summary.tallies.entry((*kind, mode)).or_default();
                    tally.add(&outcome.tally);
                    if !outcome.violations.is_empty() {
                        summary.broken = Some((plan, outcome.violations));
                        return summary;
                    }
                }
            }
            summary.seeds += 1;
            if summary.seeds % PROGRESS_EVERY == 0 {
                // Whoever does not look misses nothing.
                let _ = writeln!(progress, "{} seeds, no rule was broken", summary.seeds);
            }
        }
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds              {} from {}", self.seeds, self.seed)?;
        for ((kind, mode), tally) in &self.tallies {
            writeln!(
                f,
                "  {:<8} {:<10} {} runs, {} crashes, {} recoveries, {} torn tails, {} asked, {} answered, {} refused, {} delivered, {} compacted away",
                kind.name(),
                mode.name(),
                tally.runs,
                tally.crashes(),
                tally.recoveries,
                tally.torn.0,
                tally.sent,
                tally.acked,
                tally.refused,
                tally.delivered,
                tally.trimmed
            )?;
        }
        let crashes: u64 = self.tallies.values().map(Tally::crashes).sum();
        writeln!(f, "crashes            {crashes}")?;
        let Some((plan, violations)) = &self.broken else {
            return write!(f, "no rule was broken");
        };
        writeln!(
            f,
            "seed {} of {} with sync {} broke a rule:",
            plan.seed, plan.kind, plan.mode
        )?;
        for violation in violations {
            writeln!(f, "  {violation}")?;
        }
        write!(
            f,
            "replay it with: cargo run --release -p felix-sim -- readings --seed {} --kind {} --print {}",
            plan.seed, plan.kind, plan.mode
        )
    }
}
