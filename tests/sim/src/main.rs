//! Runs the simulator: many seeds, or one again.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use felix_sim::campaign::Campaign;
use felix_sim::readings::{self, Kind};
use felix_sim::{Mode, Plan, ledger, run_twice};

/// Simulates a broker from seeds and checks every promise it makes about its log.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs seeds until the broker has crashed often enough. Fails at the first broken promise.
    Campaign {
        /// How many kills and power cuts, in all modes together.
        #[arg(long, default_value_t = 10_000)]
        crashes: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The sync modes that take turns.
        #[arg(long, value_enum, default_value_t = Modes::All)]
        mode: Modes,
    },
    /// Runs seeds with caches, counters, groups, commits and groups of the Kafka protocol, and holds what clients were told against their rules. Fails at
    /// the first that is broken.
    Readings {
        /// How many seeds, each in every kind and sync mode.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What is simulated.
        #[arg(long, value_enum, default_value_t = Kinds::All)]
        kind: Kinds,
        /// Run the first seed only, in this mode, and print what happens.
        #[arg(long, value_enum)]
        print: Option<Modes>,
    },
    /// Runs seeds with three members of a raft ledger, and holds what their clients were told against the one history.
    /// Fails at the first promise that is broken.
    Ledger {
        /// How many seeds.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Run the first seed only, and print what happens.
        #[arg(long)]
        print: bool,
    },
    /// Runs one seed again and prints what happens.
    Replay {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// The sync mode.
        #[arg(long, value_enum)]
        mode: Modes,
        /// Print only what was found.
        #[arg(long)]
        quiet: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Modes {
    OnCommit,
    Periodic,
    None,
    All,
}

impl Modes {
    fn modes(self) -> Vec<Mode> {
        match self {
            Self::OnCommit => vec![Mode::OnCommit],
            Self::Periodic => vec![Mode::Periodic],
            Self::None => vec![Mode::None],
            Self::All => Mode::ALL.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kinds {
    Cache,
    Groups,
    Commits,
    Teams,
    All,
}

impl Kinds {
    fn kinds(self) -> Vec<Kind> {
        match self {
            Self::Cache => vec![Kind::Cache],
            Self::Groups => vec![Kind::Groups],
            Self::Commits => vec![Kind::Commits],
            Self::Teams => vec![Kind::Teams],
            Self::All => Kind::ALL.to_vec(),
        }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Campaign {
            crashes,
            seed,
            mode,
        } => campaign(crashes, seed, mode),
        Command::Readings {
            seeds,
            seed,
            kind,
            print: None,
        } => readings(seeds, seed, kind.kinds()),
        Command::Readings {
            seed,
            kind,
            print: Some(modes),
            ..
        } => show(seed, &kind.kinds(), &modes.modes()),
        Command::Ledger {
            seeds,
            seed,
            print: false,
        } => ledgers(seeds, seed),
        Command::Ledger { seed, .. } => show_ledger(seed),
        Command::Replay { seed, mode, quiet } => replay(seed, mode, quiet),
    }
}

fn campaign(crashes: u64, seed: u64, mode: Modes) -> ExitCode {
    println!("seed {seed}");
    let summary = Campaign {
        crashes,
        seed,
        modes: mode.modes(),
    }
    .run(&mut std::io::stderr());
    println!("{summary}");
    exit(summary.broken.is_none())
}

fn readings(seeds: u64, seed: u64, kinds: Vec<Kind>) -> ExitCode {
    println!("seed {seed}");
    let campaign = readings::Campaign { seeds, seed, kinds };
    let summary = campaign.run(&mut std::io::stderr());
    println!("{summary}");
    exit(summary.broken.is_none())
}

fn ledgers(seeds: u64, seed: u64) -> ExitCode {
    println!("seed {seed}");
    let twin = ledger::Twin::Sound;
    let summary = ledger::Campaign { seeds, seed, twin }.run(&mut std::io::stderr());
    println!("{summary}");
    exit(summary.broken.is_none())
}

fn show_ledger(seed: u64) -> ExitCode {
    let mut plan = ledger::Plan::of(seed);
    plan.is_printed = true;
    let outcome = ledger::run(plan);
    println!("{:?}", outcome.tally);
    println!("transcript hash {:016x}", outcome.hash);
    for violation in &outcome.violations {
        println!("{violation}");
    }
    exit(outcome.violations.is_empty())
}

fn show(seed: u64, kinds: &[Kind], modes: &[Mode]) -> ExitCode {
    let mut found = false;
    for kind in kinds {
        for mode in modes {
            let mut plan = readings::Plan::of(seed, *kind, *mode);
            plan.is_printed = true;
            for violation in readings::run(plan).violations {
                println!("{violation}");
                found = true;
            }
        }
    }
    exit(!found)
}

fn exit(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(seed: u64, mode: Modes, quiet: bool) -> ExitCode {
    let mut found = false;
    for mode in mode.modes() {
        let plan = Plan::of(seed, mode);
        let outcome = run_twice(if quiet { plan } else { plan.printed() });
        println!(
            "seed {seed}, sync {mode}, transcript hash {:016x}",
            outcome.hash
        );
        for violation in &outcome.violations {
            println!("{violation}");
            found = true;
        }
    }
    exit(!found)
}
