//! What a broker runs on: chance, a clock, a disk that fails, and the logs on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_engine::{Batch, CommitWhen};
use felix_journal::{Disk, Log, LogOptions, LogReader, OpenFiles, OpenRefused, SimDisk};
use felix_model::{Generation, Offset, Record, Records, TimeMs};

use super::Plan;
use crate::check::Findings;
use crate::faults::Injector;
use crate::plan::Mode;
use crate::pool::Pool;
use crate::random::Random;
use crate::tally::Tally;
use crate::transcript::Transcript;
use crate::world::read_all;

/// Everything below the broker.
pub(super) struct Machine {
    pub(super) plan: Plan,
    pub(super) random: Random,
    pub(super) now: TimeMs,
    pub(super) disk: SimDisk,
    pub(super) injector: Injector,
    pub(super) findings: Findings,
    pub(super) transcript: Transcript,
    pub(super) tally: Tally,
    /// Reads of files fail now.
    pub(super) reads_fail: bool,
    interval_ms: u64,
    log: LogOptions,
    open_files: usize,
    /// Instants of the histories of clients.
    instants: u64,
}

/// A log that was opened, and what is in it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) pool: Pool,
    pub(super) log: LogReader,
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) generation: Generation,
    pub(super) batches: Vec<Arc<Batch>>,
}

/// Why a log was not opened.
pub(super) enum NotOpened {
    /// The machine stopped in the middle.
    Stopped,
    /// The disk failed.
    Failed(String),
    /// An operator is asked for.
    Refused(String),
}

impl Machine {
    pub(super) fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed ^ 0xF011_0000 ^ plan.kind as u64);
        let disk = SimDisk::new(random.next());
        let mut transcript = Transcript::new(plan.is_printed);
        transcript.say(format_args!("{plan:?}"));
        Self {
            now: TimeMs(1_000),
            injector: Injector::new(&disk),
            disk,
            findings: Findings::default(),
            transcript,
            tally: Tally::default(),
            reads_fail: false,
            interval_ms: random.pick([5, 40, 250]),
            log: LogOptions {
                segment_bytes: random.pick([1_024, 4_096, 16_384]),
                verify_bytes: random.pick([0, 4_096, u64::MAX]),
            },
            open_files: random.pick([1, 2, 64]),
            instants: 0,
            plan,
            random,
        }
    }

    /// An instant after all others.
    pub(super) fn instant(&mut self) -> u64 {
        self.instants += 1;
        self.instants
    }

    pub(super) fn is_on_commit(&self) -> bool {
        self.plan.mode == Mode::OnCommit
    }

    pub(super) fn commit_when(&self) -> CommitWhen {
        if self.is_on_commit() {
            CommitWhen::Flushed
        } else {
            CommitWhen::Written
        }
    }

    /// Now and then, and only if the broker is broken like this.
    pub(super) fn strikes(&mut self, twin: super::Twin, percent: u64) -> bool {
        self.plan.is(twin) && self.random.percent(percent)
    }

    /// Opens a log, and reads what is in it.
    pub(super) fn open(&mut self, lane: &str) -> Result<Opened, NotOpened> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let files = OpenFiles::new(disk, self.open_files);
        let opened = Log::open_in(&files, &directory(lane), self.log);
        if self.injector.has_stopped() {
            return Err(NotOpened::Stopped);
        }
        let (log, recovered) = match opened {
            Ok(opened) => opened,
            Err(OpenRefused::Io(error)) => return Err(NotOpened::Failed(error.to_string())),
            Err(refused @ (OpenRefused::Damaged(_) | OpenRefused::InUse { .. })) => {
                return Err(NotOpened::Refused(refused.to_string()));
            }
        };
        self.transcript.say(format_args!("{lane}: {recovered:?}"));
        self.tally.recoveries += 1;
        self.tally.end_max = self.tally.end_max.max(recovered.end.0);
        if recovered.truncated_bytes > 0 {
            self.tally.torn.0 += 1;
            self.tally.torn.1 += recovered.truncated_bytes;
        }
        let reader = log.reader();
        let batches = read_all(&reader, recovered.start, recovered.end, 1 << 16);
        let batches = match batches {
            Ok(batches) => batches,
            Err(why) if self.reads_fail => return Err(NotOpened::Failed(why)),
            Err(why) => return Err(NotOpened::Refused(why)),
        };
        let generation = recovered.last_generation;
        Ok(Opened {
            pool: Pool::new(log, self.plan.mode, self.interval_ms),
            log: reader,
            start: recovered.start,
            end: recovered.end,
            generation: if recovered.clean {
                generation
            } else {
                generation.next().unwrap_or(generation)
            },
            batches,
        })
    }

    /// Every file of a log.
    pub(super) fn files(&self, lane: &str) -> Vec<PathBuf> {
        let directory = directory(lane);
        let entries = self.disk.list(&directory).unwrap_or_default();
        let logs = entries.iter().filter(|entry| entry.name.ends_with(".log"));
        logs.map(|entry| directory.join(&entry.name)).collect()
    }
}

/// The directory of the shard.
pub(super) fn root() -> &'static Path {
    Path::new(ROOT)
}

const ROOT: &str = "/data/streams/t/n/s@1/0";

fn directory(lane: &str) -> PathBuf {
    Path::new(ROOT).join(lane)
}

/// The records of batches, in order.
pub(super) fn records(batches: &[Arc<Batch>]) -> impl Iterator<Item = Record> + '_ {
    batches
        .iter()
        .filter_map(|batch| batch.log())
        .filter_map(|log| Records::new(log).ok())
        .flatten()
        .filter_map(Result::ok)
}
