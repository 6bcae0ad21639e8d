//! How a broker lives, crashes, and comes back, whatever it serves.

use felix_journal::Disk;
use felix_journal::disk::{CallKind, Fault};
use felix_model::TimeMs;

use super::Plan;
use super::machine::{Machine, NotOpened, Opened, root};
use crate::check::Check;
use crate::faults::Arm;
use crate::oracle::Ending;
use crate::plan::Mode;
use crate::pool::{Pool, Report};
use crate::world::Outcome;

/// An engine with its logs and its clients.
pub(super) trait Reading {
    /// Its logs, by the names of their directories.
    const LANES: &'static [&'static str];

    fn new(machine: &mut Machine) -> Self;

    /// Serves what the logs hold, given in the order of [`Self::LANES`].
    fn open(&mut self, machine: &mut Machine, lanes: Vec<Opened>) -> Result<(), String>;

    /// One thing happens that is not the journal's: a client asks, or something is due. When `ending`, clients only
    /// finish what they began.
    fn act(&mut self, machine: &mut Machine, ending: bool);

    /// The journal said something about a log.
    fn hear(&mut self, machine: &mut Machine, lane: usize, report: Report);

    /// The journal's side of the logs; none while nothing is served.
    fn pools(&mut self) -> &mut [Pool];

    /// A write failed, and the logs must be opened anew.
    fn has_failed(&self) -> bool;

    /// The shard is told to stop in order. What it still writes goes through the journal.
    fn stop(&mut self, machine: &mut Machine);

    /// Nothing is served any more: what was asked and not answered never will be.
    fn gone(&mut self, machine: &mut Machine) -> Vec<Pool>;

    /// Everybody has finished.
    fn is_settled(&self) -> bool;

    /// Holds what happened against the rules. After the last life everything has been finished.
    fn judge(&mut self, machine: &mut Machine);
}

/// How often a start is tried while the disk fails it, before it is healed and has to work.
const TRIES_UNWELL: u32 = 3;

/// How often a start is tried in all.
const TRIES_MAX: u32 = 5;

/// Turns until everything must have settled once nothing fails any more.
const SETTLE_TURNS_MAX: u32 = 60_000;

/// Room that is never used up.
const ROOMY: u64 = 1 << 40;

struct Life<R> {
    machine: Machine,
    reading: R,
    is_serving: bool,
}

/// Lives through what the plan says.
pub(super) fn run<R: Reading>(plan: Plan) -> Outcome {
    let mut machine = Machine::new(plan);
    let reading = R::new(&mut machine);
    let mut life = Life {
        machine,
        reading,
        is_serving: false,
    };
    let lives = life.machine.random.between(2, 6);
    for _ in 0..lives {
        life.live();
        if life.is_over() {
            break;
        }
    }
    if !life.is_over() {
        life.settle();
    }
    let Life {
        mut machine,
        mut reading,
        ..
    } = life;
    if machine.findings.is_empty() {
        reading.judge(&mut machine);
    }
    machine.injector.leave();
    machine.tally.faults = machine.injector.done();
    machine.tally.runs = 1;
    machine.tally.virtual_ms = machine.now.0;
    machine.tally.events = machine.transcript.lines();
    Outcome {
        violations: machine.findings.take(),
        tally: machine.tally,
        hash: machine.transcript.hash(),
    }
}

impl<R: Reading> Life<R> {
    fn is_over(&self) -> bool {
        !self.machine.findings.is_empty()
    }

    fn live(&mut self) {
        if !self.is_serving && !self.start() {
            return;
        }
        let ending = self.ending();
        let steps = self.machine.random.pick([40, 150, 400]);
        let steps = self.machine.random.between(1, steps);
        let stop_at = self.machine.random.below(steps);
        let inside = ending != Ending::Orderly && self.machine.random.percent(60);
        for step in 0..steps {
            if inside && step == stop_at {
                self.machine.injector.arm_stop(&mut self.machine.random, 12);
            }
            self.step(false);
            if self.machine.injector.has_stopped() {
                return self.crash_and_start(ending, true);
            }
            if self.is_over() {
                return;
            }
            if self.reading.has_failed() && self.machine.random.percent(30) && !self.reopen() {
                return;
            }
        }
        if ending == Ending::Orderly {
            self.close_and_start();
        } else {
            self.crash_and_start(ending, false);
        }
    }

    /// A power cut may take what was not synced, so only logs that sync before they answer meet one.
    fn ending(&mut self) -> Ending {
        match self.machine.random.below(20) {
            0..=1 => Ending::Orderly,
            2..=9 => Ending::Kill,
            _ if self.machine.is_on_commit() => Ending::PowerCut,
            _ => Ending::Kill,
        }
    }

    fn step(&mut self, ending: bool) {
        match self.machine.random.below(100) {
            0..=34 => self.reading.act(&mut self.machine, ending),
            35..=54 => self.write(),
            55..=79 => self.hear(),
            80..=91 => self.pass_time(),
            92..=95 => self.run_job(),
            96 => self.rest(),
            _ if !ending => self.break_something(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let now = self.machine.now;
        let lane = self.machine.random.index(R::LANES.len());
        if let Some(pool) = self.reading.pools().get_mut(lane) {
            let wrote = pool.write(&mut self.machine.random, now, false);
            if wrote.batches > 0 {
                let (batches, end) = (wrote.batches, wrote.end);
                self.machine.transcript.say(format_args!(
                    "lane {lane}: wrote {batches} batches up to {end}"
                ));
            }
        }
    }

    fn hear(&mut self) {
        let lane = self.machine.random.index(R::LANES.len());
        let report = self
            .reading
            .pools()
            .get_mut(lane)
            .and_then(Pool::next_report);
        if let Some(report) = report {
            self.machine
                .transcript
                .say(format_args!("lane {lane}: {report:?}"));
            self.reading.hear(&mut self.machine, lane, report);
        }
    }

    fn pass_time(&mut self) {
        let step = self.machine.random.pick([1, 1, 2, 3, 10, 60]);
        let target = self.machine.now.plus(step);
        for pool in self.reading.pools() {
            while let Some(due) = pool.next_due()
                && due <= target
                && !self.machine.injector.has_stopped()
            {
                pool.run_due(&mut self.machine.random, due);
            }
        }
        // Where the machine stopped, the clock of the run does.
        if !self.machine.injector.has_stopped() {
            self.set_now(target);
        }
    }

    fn set_now(&mut self, now: TimeMs) {
        self.machine.now = now;
        self.machine.findings.now = now;
    }

    fn run_job(&mut self) {
        for pool in self.reading.pools() {
            pool.run_any(&mut self.machine.random);
        }
    }

    fn rest(&mut self) {
        for pool in self.reading.pools() {
            pool.rest();
        }
    }

    fn break_something(&mut self) {
        if !self.machine.random.percent(30) {
            return;
        }
        let machine = &mut self.machine;
        let skip = machine.random.below(6);
        let arm = |kind, fault| Arm {
            kind: Some(kind),
            skip,
            fault,
        };
        match machine.random.below(8) {
            0 => machine.injector.arm(arm(CallKind::Write, Fault::Io)),
            1 => machine.injector.arm(arm(CallKind::Write, Fault::Full)),
            // What is lost when a sync fails is only bounded where nothing was answered before it.
            2 if machine.plan.mode == Mode::OnCommit => {
                machine.injector.arm(arm(CallKind::Sync, Fault::Io));
            }
            3 => {
                let kind =
                    machine
                        .random
                        .pick([CallKind::Create, CallKind::Rename, CallKind::Reserve]);
                machine.injector.arm(arm(kind, Fault::Io));
            }
            4 => {
                let Ok(space) = machine.disk.space(root()) else {
                    return;
                };
                let left = machine.random.below(3_000);
                machine.tally.fillings += 1;
                machine.disk.full(space.total - space.available + left);
            }
            5 => {
                let lane = R::LANES.get(machine.random.index(R::LANES.len()));
                let files = machine.files(lane.copied().unwrap_or_default());
                if let Some(file) = files.get(machine.random.index(files.len())) {
                    machine.tally.read_faults += 1;
                    machine.reads_fail = true;
                    machine.disk.fail_reads(file);
                }
            }
            _ => self.heal(),
        }
    }

    fn heal(&mut self) {
        self.machine.injector.heal();
        self.machine.disk.full(ROOMY);
        self.machine.reads_fail = false;
    }

    fn crash_and_start(&mut self, ending: Ending, inside: bool) {
        let ending = ending.max(Ending::Kill);
        let counts = if inside {
            &mut self.machine.tally.inside
        } else {
            &mut self.machine.tally.endings
        };
        *counts.entry(ending).or_default() += 1;
        self.crash(ending);
        self.start();
    }

    fn crash(&mut self, ending: Ending) {
        let now = self.machine.now;
        self.machine
            .transcript
            .say(format_args!("{ending:?} at {now}"));
        let seed = self.machine.random.next();
        if ending == Ending::PowerCut {
            self.machine.disk.power_cut(seed);
        } else {
            self.machine.disk.kill();
        }
        self.machine.injector.restart();
        if self.machine.random.percent(50) {
            self.heal();
        }
        self.reading.gone(&mut self.machine);
        self.is_serving = false;
    }

    /// Starts until it serves, through further crashes; whether it does.
    fn start(&mut self) -> bool {
        let mut tries = 0;
        loop {
            if tries == 0 && self.machine.random.percent(20) {
                self.machine.injector.arm_stop(&mut self.machine.random, 25);
            }
            match self.try_start() {
                Ok(()) => {
                    self.machine.injector.restart();
                    self.is_serving = true;
                    return true;
                }
                Err(NotOpened::Stopped) => {
                    let ending = if self.machine.is_on_commit() {
                        self.machine.random.pick([Ending::Kill, Ending::PowerCut])
                    } else {
                        Ending::Kill
                    };
                    *self.machine.tally.in_recovery.entry(ending).or_default() += 1;
                    self.crash(ending);
                }
                Err(NotOpened::Failed(why)) if tries < TRIES_MAX => {
                    self.machine
                        .transcript
                        .say(format_args!("not opened: {why}"));
                    tries += 1;
                    if tries >= TRIES_UNWELL {
                        self.heal();
                    }
                }
                Err(NotOpened::Failed(why) | NotOpened::Refused(why)) => {
                    self.machine
                        .findings
                        .report(Check::Start, format!("not opened: {why}"));
                    return false;
                }
            }
        }
    }

    fn try_start(&mut self) -> Result<(), NotOpened> {
        let mut lanes = Vec::new();
        for lane in R::LANES {
            lanes.push(self.machine.open(lane)?);
        }
        self.reading
            .open(&mut self.machine, lanes)
            .map_err(NotOpened::Refused)
    }

    /// A write failed: what is served is closed and opened again by recovery. Whether it is served again.
    fn reopen(&mut self) -> bool {
        self.machine.transcript.say(format_args!("reopening"));
        let now = self.machine.now;
        for pool in self.reading.gone(&mut self.machine) {
            pool.close(&mut self.machine.random, now);
        }
        self.is_serving = false;
        if self.machine.injector.has_stopped() {
            self.crash_and_start(Ending::Kill, true);
            return false;
        }
        *self
            .machine
            .tally
            .endings
            .entry(Ending::Reopen)
            .or_default() += 1;
        self.start()
    }

    fn close_and_start(&mut self) {
        self.machine.transcript.say(format_args!("closing"));
        self.reading.stop(&mut self.machine);
        for _ in 0..SETTLE_TURNS_MAX {
            let works = self.reading.pools().iter().any(|pool| pool.has_work());
            if !works || self.machine.injector.has_stopped() || self.reading.has_failed() {
                break;
            }
            self.write();
            self.hear();
            self.run_job();
            self.pass_time();
        }
        if self.machine.injector.has_stopped() {
            return self.crash_and_start(Ending::Kill, true);
        }
        let now = self.machine.now;
        for pool in self.reading.gone(&mut self.machine) {
            pool.close(&mut self.machine.random, now);
        }
        self.is_serving = false;
        if self.machine.injector.has_stopped() {
            return self.crash_and_start(Ending::Kill, true);
        }
        *self
            .machine
            .tally
            .endings
            .entry(Ending::Orderly)
            .or_default() += 1;
        // The process ends.
        self.machine.disk.kill();
        self.start();
    }

    /// Nothing fails any more, and everybody finishes.
    fn settle(&mut self) {
        self.heal();
        self.machine.injector.restart();
        for _ in 0..SETTLE_TURNS_MAX {
            let works = self.reading.pools().iter().any(|pool| pool.has_work());
            if self.is_over() || (!works && self.reading.is_settled()) {
                return;
            }
            if self.reading.has_failed() && !self.reopen() {
                return;
            }
            self.step(true);
        }
        self.machine.findings.report(
            Check::Liveness,
            "nothing fails and yet somebody waits".to_owned(),
        );
    }
}
