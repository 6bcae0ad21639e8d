//! The pace of a compaction: so many bytes a second, and a look around now and then.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Bytes between two looks.
const LOOK_BYTES: u64 = 256 * 1024;

/// The longest sleep at once, so that whoever waits for the compaction to end waits no longer.
const NAP: Duration = Duration::from_millis(50);

/// Spends bytes no faster than allowed.
pub(crate) struct Pace<'a> {
    bytes_per_second: Option<u64>,
    began: Instant,
    spent: u64,
    since_look: u64,
    pause: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(
        bytes_per_second: Option<u64>,
        pause: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Self {
        Self {
            bytes_per_second,
            began: Instant::now(),
            spent: 0,
            since_look: 0,
            pause,
        }
    }

    /// Takes note of bytes that were read; waits when that was too fast. Break when it is to end.
    pub(crate) fn spend(&mut self, bytes: u64) -> ControlFlow<()> {
        self.spent += bytes;
        self.since_look += bytes;
        if self.since_look < LOOK_BYTES {
            return ControlFlow::Continue(());
        }
        (self.pause)(std::mem::take(&mut self.since_look))?;
        loop {
            let wait = self.ahead();
            if wait.is_zero() {
                return ControlFlow::Continue(());
            }
            std::thread::sleep(wait.min(NAP));
            (self.pause)(0)?;
        }
    }

    /// How much earlier than allowed this is.
    fn ahead(&self) -> Duration {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let due = Duration::from_secs_f64(self.spent as f64 / rate as f64);
        due.saturating_sub(self.began.elapsed())
    }
}
