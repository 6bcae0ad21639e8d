//! What a seed stands for: the settings of one run.

use std::fmt;

use felix_engine::Limits;
use felix_journal::{LogOptions, RetentionPolicy};

use crate::random::Random;
use crate::twin::Twin;

/// When written bytes are made durable: the property of a stream that says what an acknowledgement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Before they are acknowledged.
    OnCommit,
    /// Every so many milliseconds.
    Periodic,
    /// When a segment is finished, and when the log rests.
    None,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OnCommit, Self::Periodic, Self::None];

    /// As it is written in commands and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnCommit => "on_commit",
            Self::Periodic => "periodic",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings of one run. They follow from the seed and the mode, so that these two replay it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where every choice of the run comes from.
    pub seed: u64,
    /// The sync mode of the stream.
    pub mode: Mode,
    /// How the broker is broken, if it is.
    pub twin: Option<Twin>,
    /// How often the broker is started, before the last time.
    pub lives: u64,
    /// Steps of a life, at most.
    pub steps_max: u64,
    /// The interval of [`Mode::Periodic`].
    pub interval_ms: u64,
    /// Small segments, and a bound on what is checked at open.
    pub log: LogOptions,
    /// Small bounds, so that they are reached.
    pub limits: Limits,
    /// What may be forgotten.
    pub retention: RetentionPolicy,
    /// How many sealed segments are kept open.
    pub open_files: usize,
    /// How many publishers there are.
    pub publishers: u64,
    /// How many subscribers there are.
    pub subscribers: u64,
    /// How often in a hundred lives the disk fails calls.
    pub faulty_percent: u64,
    /// Print every line of the transcript.
    pub is_printed: bool,
}

impl Plan {
    /// What the seed stands for.
    pub fn of(seed: u64, mode: Mode) -> Self {
        let mut random = Random::new(seed ^ 0x5EED);
        let retains = random.percent(60);
        Self {
            seed,
            mode,
            twin: None,
            lives: random.between(3, 8),
            steps_max: random.pick([60, 200, 600]),
            interval_ms: random.pick([5, 40, 250]),
            log: LogOptions {
                segment_bytes: random.pick([1_024, 4_096, 16_384, 65_536]),
                verify_bytes: random.pick([0, 4_096, u64::MAX]),
            },
            limits: Limits {
                window_bytes: random.pick([1, 4_096, 65_536]),
                in_flight_bytes_max: random.pick([8_192, 1 << 20]),
                ..Limits::default()
            },
            retention: RetentionPolicy {
                max_bytes: retains.then(|| random.pick([4_096, 20_000])),
                max_age_ms: (retains && random.percent(40)).then(|| random.pick([50, 400])),
            },
            open_files: random.pick([1, 2, 64]),
            publishers: random.between(1, 5),
            subscribers: random.between(1, 4),
            faulty_percent: random.pick([0, 30, 60]),
            is_printed: false,
        }
    }

    /// The same, broken.
    #[must_use]
    pub fn broken(mut self, twin: Twin) -> Self {
        self.twin = Some(twin);
        self
    }

    /// The same, printing what happens.
    #[must_use]
    pub fn printed(mut self) -> Self {
        self.is_printed = true;
        self
    }

    pub(crate) fn is(&self, twin: Twin) -> bool {
        self.twin == Some(twin)
    }
}
