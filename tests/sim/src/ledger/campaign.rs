//! Many runs, and the sum of them.

use std::fmt;
use std::io::Write;

use super::{Outcome, Plan, Tally, Twin, Violation, run, run_twice};

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// How many seeds.
    pub seeds: u64,
    /// The first; the others follow it.
    pub seed: u64,
    /// What is broken on purpose.
    pub twin: Twin,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Seeds that were run.
    pub runs: u64,
    /// The sum of all.
    pub tally: Tally,
    /// The seed that broke a promise, and how.
    pub broken: Option<(u64, Vec<Violation>)>,
}

/// Every so many runs one is run twice, to see that its seed is all there is to it.
const TWICE_EVERY: u64 = 16;

/// A line of progress is written after so many seeds.
const PROGRESS_EVERY: u64 = 50;

impl Campaign {
    /// Runs until all seeds were run, or a promise was broken.
    pub fn run(&self, progress: &mut impl Write) -> Summary {
        let mut summary = Summary {
            runs: 0,
            tally: Tally::default(),
            broken: None,
        };
        for number in 0..self.seeds {
            let seed = self.seed.wrapping_add(number);
            let plan = Plan::of(seed).broken(self.twin);
            let outcome = match number % TWICE_EVERY {
                0 => run_twice(plan),
                _ => run(plan),
            };
            summary.add(&outcome);
            if !outcome.violations.is_empty() {
                summary.broken = Some((seed, outcome.violations));
                break;
            }
            if summary.runs.is_multiple_of(PROGRESS_EVERY) {
                // Whoever does not look misses nothing.
                let _ = writeln!(
                    progress,
                    "{} seeds, {} appends done",
                    summary.runs, summary.tally.done
                );
            }
        }
        summary
    }
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        let (sum, one) = (&mut self.tally, &outcome.tally);
        sum.virtual_ms += one.virtual_ms;
        sum.records += one.records;
        sum.done += one.done;
        sum.raced += one.raced;
        sum.not += one.not;
        sum.unsure += one.unsure;
        sum.confirmed += one.confirmed;
        sum.kills += one.kills;
        sum.power_cuts += one.power_cuts;
        sum.wipes += one.wipes;
        sum.replaced += one.replaced;
        sum.cuts += one.cuts;
        sum.jumps += one.jumps;
        sum.disk_faults += one.disk_faults;
        sum.calls += one.calls;
        sum.lost += one.lost;
        sum.doubled += one.doubled;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(
            f,
            "runs          {}, {} virtual s",
            self.runs,
            tally.virtual_ms / 1000
        )?;
        writeln!(
            f,
            "appends       {} done, {} raced, {} not done, {} unsure; {} records agreed on",
            tally.done, tally.raced, tally.not, tally.unsure, tally.records
        )?;
        writeln!(f, "confirmed     {}", tally.confirmed)?;
        writeln!(
            f,
            "ends          {} kills, {} power cuts, {} wiped disks, {} members replaced",
            tally.kills, tally.power_cuts, tally.wipes, tally.replaced
        )?;
        writeln!(
            f,
            "network       {} calls, {} messages lost, {} doubled, {} cuts",
            tally.calls, tally.lost, tally.doubled, tally.cuts
        )?;
        writeln!(
            f,
            "other         {} disk faults, {} clock jumps",
            tally.disk_faults, tally.jumps
        )?;
        let Some((seed, violations)) = &self.broken else {
            return write!(f, "no promise was broken");
        };
        writeln!(f, "seed {seed} broke a promise:")?;
        for violation in violations {
            writeln!(f, "  {violation}")?;
        }
        write!(
            f,
            "replay it with: felix-sim ledger --seed {seed} --seeds 1 --print"
        )
    }
}
