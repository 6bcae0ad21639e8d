//! One run: a broker with one shard, its disk, its clients, and a clock, in one thread and from one seed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use felix_engine::{Effect, Shard, Ticket};
use felix_journal::{Disk, LogReader, SimDisk};
use felix_model::{Generation, Offset, TimeMs};

use crate::check::{Check, Violation};
use crate::faults::Injector;
use crate::oracle::{Oracle, Uid};
use crate::plan::{Mode, Plan};
use crate::pool::Pool;
use crate::publisher::Publisher;
use crate::random::Random;
use crate::subscriber::Subscriber;
use crate::tally::Tally;
use crate::transcript::Transcript;
use crate::twin::{LyingDisk, Twin};

mod lives;
mod perform;
mod steps;

pub(crate) use steps::{batches, read_all};

/// What the seed of a run does not know: how many runs there were before (see [`Twin::OutsideChoice`]).
static OUTSIDE: AtomicU64 = AtomicU64::new(0);

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was found, in order.
    pub violations: Vec<Violation>,
    /// What happened, counted.
    pub tally: Tally,
    /// All of it, as one number.
    pub hash: u64,
}

/// Everything there is.
pub(crate) struct World {
    plan: Plan,
    random: Random,
    now: TimeMs,
    disk: SimDisk,
    /// The disk as the broker has it: the same, or one that lies.
    driver: Arc<dyn Disk>,
    injector: Injector,
    oracle: Oracle,
    transcript: Transcript,
    tally: Tally,
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    next_producer: u64,
    next_ticket: u64,
    tickets: BTreeMap<Ticket, Asked>,
    broker: Option<Broker>,
    /// When the first write or sync of this life failed.
    failed_at: Option<TimeMs>,
    /// Power cuts that were allowed to take acknowledged records.
    cuts: u64,
    /// Reads of files fail now, or failed in this life.
    reads_fail: bool,
}

/// An append that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    publisher: usize,
    uid: Uid,
}

/// The shard and its log, from one recovery to the next.
#[derive(Debug)]
struct Broker {
    shard: Shard,
    pool: Pool,
    log: LogReader,
    generation: Generation,
    /// Pages to be read.
    reads: Vec<PageWanted>,
    /// Producers were marked on disk, as far as this process knows.
    is_marked: bool,
    /// The shard must be opened again.
    has_failed: bool,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct PageWanted {
    reader: felix_engine::ReaderId,
    from: Offset,
    max_bytes: u32,
    until: Offset,
}

/// Runs what the plan says.
pub fn run(plan: Plan) -> Outcome {
    World::new(plan).live_through()
}

/// Runs what the plan says twice; what is found says whether both runs were one.
pub fn run_twice(plan: Plan) -> Outcome {
    let first = run(plan.clone());
    let mut second = run(plan);
    if first.hash != second.hash {
        let what = format!(
            "one seed, two transcripts: {:016x} and {:016x}",
            first.hash, second.hash
        );
        second.violations.push(Violation {
            check: Check::Determinism,
            at: TimeMs(0),
            what,
        });
    }
    second
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        if plan.is(Twin::OutsideChoice) {
            for _ in 0..OUTSIDE.fetch_add(1, Ordering::Relaxed) {
                random.next();
            }
        }
        let disk = SimDisk::new(random.next());
        let driver: Arc<dyn Disk> = if plan.is(Twin::LyingDisk) {
            Arc::new(LyingDisk(disk.clone()))
        } else {
            Arc::new(disk.clone())
        };
        let injector = Injector::new(&disk);
        let publishers = (0..plan.publishers)
            .map(|number| Publisher::new(&mut random, number))
            .collect();
        let subscribers = (0..plan.subscribers)
            .map(|number| Subscriber::new(&mut random, number))
            .collect();
        let mut transcript = Transcript::new(plan.is_printed);
        transcript.say(format_args!("{plan:?}"));
        Self {
            random,
            now: TimeMs(1),
            disk,
            driver,
            injector,
            oracle: Oracle::new(plan.mode, plan.interval_ms),
            transcript,
            tally: Tally::default(),
            publishers,
            subscribers,
            next_producer: plan.publishers,
            next_ticket: 0,
            tickets: BTreeMap::new(),
            broker: None,
            failed_at: None,
            cuts: 0,
            reads_fail: false,
            plan,
        }
    }

    fn live_through(mut self) -> Outcome {
        for _ in 0..self.plan.lives {
            self.live();
            if self.is_over() {
                break;
            }
        }
        if !self.is_over() {
            self.settle();
        }
        self.injector.leave();
        self.tally.faults = self.injector.done();
        self.tally.runs = 1;
        self.tally.virtual_ms = self.now.0;
        self.tally.events = self.transcript.lines();
        Outcome {
            violations: self.oracle.findings.take(),
            tally: self.tally,
            hash: self.transcript.hash(),
        }
    }

    /// Something was found. A broken broker goes on for a while, so that every checker has its chance.
    fn is_over(&self) -> bool {
        let findings = &self.oracle.findings;
        if self.plan.twin.is_some() {
            findings.is_full()
        } else {
            !findings.is_empty()
        }
    }

    fn log_dir() -> PathBuf {
        PathBuf::from("/data/streams/t/n/s@1/0/data")
    }

    fn producers_marker() -> PathBuf {
        PathBuf::from("/data/streams/t/n/s@1/0/producers")
    }

    fn set_now(&mut self, now: TimeMs) {
        self.now = self.now.max(now);
        self.oracle.findings.now = self.now;
    }

    fn tell(&mut self, input: felix_engine::Input) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let mut effects: Vec<Effect> = Vec::new();
        broker.shard.handle(self.now, input, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn is_on_commit(&self) -> bool {
        self.plan.mode == Mode::OnCommit
    }
}
