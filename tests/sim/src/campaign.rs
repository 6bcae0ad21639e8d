//! Many runs, and the sum of them.

use std::fmt;
use std::io::Write;

use crate::check::Violation;
use crate::plan::{Mode, Plan};
use crate::tally::Tally;
use crate::transcript::Transcript;
use crate::world::{run, run_twice};

/// How much is run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Crashes to reach, in all modes together.
    pub crashes: u64,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// The modes that take turns.
    pub modes: Vec<Mode>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The first seed.
    pub seed: u64,
    /// How many seeds were used.
    pub seeds: u64,
    /// By mode.
    pub tallies: Vec<(Mode, Tally)>,
    /// The hash over the transcripts of all runs.
    pub hash: u64,
    /// The run that broke a promise, if any did.
    pub broken: Option<Broken>,
}

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its seed.
    pub seed: u64,
    /// Its mode.
    pub mode: Mode,
    /// What was found.
    pub violations: Vec<Violation>,
}

/// Every so many runs one is run twice, to see that its seed is all there is to it.
const TWICE_EVERY: u64 = 16;

/// A line of progress is written after so many seeds.
const PROGRESS_EVERY: u64 = 500;

impl Campaign {
    /// Runs until there were enough crashes, or a promise was broken.
    pub fn run(&self, progress: &mut impl Write) -> Summary {
        let mut tallies: Vec<(Mode, Tally)> = self
            .modes
            .iter()
            .map(|mode| (*mode, Tally::default()))
            .collect();
        let mut hashes = Transcript::new(false);
        let mut seeds = 0;
        let mut broken = None;
        while broken.is_none() && !tallies.is_empty() && crashes(&tallies) < self.crashes {
            let seed = self.seed.wrapping_add(seeds);
            for (mode, tally) in &mut tallies {
                let plan = Plan::of(seed, *mode);
                let outcome = if seeds % TWICE_EVERY == 0 {
                    run_twice(plan)
                } else {
                    run(plan)
                };
                tally.add(&outcome.tally);
                hashes.bytes(&outcome.hash.to_be_bytes());
                if !outcome.violations.is_empty() {
                    broken = Some(Broken {
                        seed,
                        mode: *mode,
                        violations: outcome.violations,
                    });
                    break;
                }
            }
            seeds += 1;
            if seeds % PROGRESS_EVERY == 0 {
                // Whoever does not look misses nothing.
                let _ = writeln!(progress, "{seeds} seeds, {} crashes", crashes(&tallies));
            }
        }
        Summary {
            seed: self.seed,
            seeds,
            tallies,
            hash: hashes.hash(),
            broken,
        }
    }
}

fn crashes(tallies: &[(Mode, Tally)]) -> u64 {
    tallies.iter().map(|(_, tally)| tally.crashes()).sum()
}

impl Summary {
    /// All modes together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.tallies.iter().for_each(|(_, tally)| total.add(tally));
        total
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} with sync {} broke a promise:",
            self.seed, self.mode
        )?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        writeln!(
            f,
            "replay it with: cargo run --release -p felix-sim -- replay --seed {} --mode {}",
            self.seed, self.mode
        )?;
        write!(f, "seed {}", self.seed)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        writeln!(
            f,
            "seeds              {} from {}, each in {} modes",
            self.seeds,
            self.seed,
            self.tallies.len()
        )?;
        writeln!(
            f,
            "runs               {}, {} virtual s, {} events",
            total.runs,
            total.virtual_ms / 1_000,
            total.events
        )?;
        writeln!(f, "crashes            {}", total.crashes())?;
        for (what, counts) in [
            ("between disk calls", &total.endings),
            ("inside a disk call", &total.inside),
            ("inside recovery", &total.in_recovery),
        ] {
            writeln!(f, "  {what:<18} {counts:?}")?;
        }
        writeln!(
            f,
            "recoveries         {}, none refused unless said below",
            total.recoveries
        )?;
        writeln!(
            f,
            "torn tails cut     {}, {} bytes",
            total.torn.0, total.torn.1
        )?;
        writeln!(
            f,
            "unclean            {} after an orderly close",
            total.unclean
        )?;
        writeln!(f, "records sent       {}", total.sent)?;
        writeln!(f, "records acked      {}", total.acked)?;
        for (mode, tally) in &self.tallies {
            writeln!(
                f,
                "  {mode:<10} acked {}, lost {} acked and {} only read (allowed: power cuts), {} crashes",
                tally.acked,
                tally.lost_acked,
                tally.lost_read,
                tally.crashes()
            )?;
        }
        writeln!(
            f,
            "batches answered   {} as sent before, {} refused",
            total.duplicates, total.refused
        )?;
        writeln!(
            f,
            "batches delivered  {}, pages of history {}",
            total.delivered, total.pages
        )?;
        writeln!(
            f,
            "retention passes   {} that moved the start",
            total.trimmed
        )?;
        writeln!(
            f,
            "faults             {} fillings of the disk, {} files unreadable",
            total.fillings, total.read_faults
        )?;
        for ((call, fault), count) in &total.faults {
            writeln!(f, "  {:<18} {fault:?} {count}", format!("{call:?}"))?;
        }
        writeln!(f, "transcript hash    {:016x}", self.hash)?;
        match &self.broken {
            Some(broken) => write!(f, "{broken}"),
            None => write!(f, "no promise was broken"),
        }
    }
}
