//! A run: three members, their clients, and what goes wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_journal::SimDisk;
use tokio::time::{Instant, sleep};

use super::check::{Check, History, Violation};
use super::member::Slot;
use super::net::Net;
use super::{Twin, client, nemesis};
use crate::random::Random;
use crate::transcript::Transcript;

/// The members.
pub(crate) const MEMBERS: [u64; 3] = [1, 2, 3];

/// Clients of each member.
const CLIENTS: u64 = 2;

/// How long everybody has to agree once all is well.
const PEACE_MAX: Duration = Duration::from_secs(60);

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// How long things go wrong, in virtual ms.
    pub ms: u64,
    /// What is broken on purpose.
    pub twin: Twin,
    /// Whether what happens is printed.
    pub is_printed: bool,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            ms: Random::new(seed).between(8_000, 25_000),
            twin: Twin::Sound,
            is_printed: false,
        }
    }

    /// The same, over a ledger that is broken on purpose.
    #[must_use]
    pub fn broken(self, twin: Twin) -> Self {
        Self { twin, ..self }
    }
}

/// Counts of a run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Tally {
    pub virtual_ms: u64,
    pub records: u64,
    pub done: u64,
    pub raced: u64,
    pub not: u64,
    pub unsure: u64,
    pub confirmed: u64,
    pub kills: u64,
    pub power_cuts: u64,
    pub wipes: u64,
    pub replaced: u64,
    pub cuts: u64,
    pub jumps: u64,
    pub disk_faults: u64,
    pub terms: u64,
    pub calls: u64,
    pub lost: u64,
    pub doubled: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Hash over everything that happened.
    pub hash: u64,
    /// Counts.
    pub tally: Tally,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) net: Net,
    pub(crate) slots: Mutex<BTreeMap<u64, Slot>>,
    history: Mutex<History>,
    transcript: Mutex<Transcript>,
    tally: Mutex<Tally>,
    began: Instant,
    is_quiet: AtomicBool,
}

impl World {
    fn new(plan: Plan) -> Self {
        let slot = |member: u64| Slot {
            disk: SimDisk::new(plan.seed ^ (member << 40)),
            life: 0,
            running: None,
            shown: 0,
        };
        Self {
            plan,
            net: Net::new(plan.seed ^ 0x0e7, plan.twin),
            slots: Mutex::new(
                MEMBERS
                    .iter()
                    .map(|member| (*member, slot(*member)))
                    .collect(),
            ),
            history: Mutex::default(),
            transcript: Mutex::new(Transcript::new(plan.is_printed)),
            tally: Mutex::default(),
            began: Instant::now(),
            is_quiet: AtomicBool::new(false),
        }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn violate(&self, check: Check, detail: String) {
        self.say(format_args!("VIOLATION {check:?}: {detail}"));
        self.history().violate(check, detail);
    }

    pub(crate) fn say(&self, line: fmt::Arguments<'_>) {
        let ms = self.began.elapsed().as_millis();
        let mut transcript = self
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        transcript.say(format_args!("{ms:>7} {line}"));
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Tally)) {
        add(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// When all is well again, everybody agrees before long: three voters, each with everything.
    async fn make_peace(&self) {
        let until = Instant::now() + PEACE_MAX;
        let mut why = String::new();
        while Instant::now() < until {
            self.look().await;
            nemesis::welcome(self).await;
            match self.agree().await {
                Ok(()) => return self.say(format_args!("everybody agrees")),
                Err(missing) => why = missing,
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.violate(
            Check::Liveness,
            format!("no agreement after {PEACE_MAX:?} of peace: {why}"),
        );
    }

    async fn agree(&self) -> Result<(), String> {
        for member in MEMBERS {
            let running = self
                .running(member)
                .ok_or_else(|| format!("member {member} is not there"))?;
            if !client::confirm(self, member, &running).await {
                return Err(format!(
                    "member {member} cannot confirm: {:?}",
                    running.core.why_not()
                ));
            }
        }
        let leader = self.leading().ok_or("nobody leads")?;
        let listed = leader.core.members();
        if listed.len() != MEMBERS.len() || listed.iter().any(|row| row.role != "voter") {
            return Err(format!("the members are {listed:?}"));
        }
        for member in MEMBERS {
            let running = self
                .running(member)
                .ok_or_else(|| format!("member {member} is not there"))?;
            self.show(member, &running);
            let (has, all) = (running.core.reach().revision, self.history().len());
            if has != all {
                return Err(format!("member {member} has {has} of {all} records"));
            }
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let mut history = self.history();
        history.conclude();
        let mut transcript = self
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for record in history.records() {
            transcript.bytes(record);
        }
        let mut tally = *self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = self.net.counts();
        tally.virtual_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tally.records = history.len();
        tally.calls = counts.calls;
        tally.lost = counts.lost;
        tally.doubled = counts.doubled;
        transcript.say(format_args!(
            "{tally:?} {} appends",
            history.appends().len()
        ));
        Outcome {
            violations: history.violations.clone(),
            hash: transcript.hash(),
            tally,
        }
    }
}

/// Runs a plan.
///
/// # Panics
/// When this machine gives no runtime.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "without a runtime there is nothing to run"
)]
pub fn run(plan: Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(plan));
        for member in MEMBERS {
            world.start(member).await;
        }
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            for member in MEMBERS {
                clients.push(tokio::spawn(client::live(
                    Arc::clone(&world),
                    member,
                    number,
                )));
            }
        }
        nemesis::harm(Arc::clone(&world)).await;
        // Some more work in peace, and then none.
        sleep(Duration::from_secs(3)).await;
        world.is_quiet.store(true, Ordering::Relaxed);
        for client in clients {
            if client.await.is_err() {
                world.violate(Check::Running, "a client panicked".into());
            }
        }
        world.make_peace().await;
        world.outcome()
    })
}

/// Runs a plan twice, and takes it amiss when the two runs differ.
#[must_use]
pub fn run_twice(plan: Plan) -> Outcome {
    let mut first = run(plan);
    let second = run(Plan {
        is_printed: false,
        ..plan
    });
    if first.hash != second.hash {
        first.violations.push(Violation {
            check: Check::Determinism,
            detail: format!(
                "two runs of one seed: {:016x} and {:016x}",
                first.hash, second.hash
            ),
        });
    }
    first
}
