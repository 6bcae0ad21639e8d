//! Closed loops: workers that begin their next call when the last one was answered.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::task::JoinSet;

use super::{Percentiles, Times};
use crate::cli::Common;
use crate::exit::Failure;
use crate::progress;

/// What the workers of a measurement share.
#[derive(Debug)]
pub(super) struct Loops {
    measuring: AtomicBool,
    stop: AtomicBool,
    done: AtomicU64,
    times: Mutex<Times>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// What the workers did, in the unit they counted in.
    pub(super) done: u64,
    pub(super) seconds: f64,
    /// How long one call took.
    pub(super) times: Percentiles,
}

impl Measured {
    pub(super) fn per_second(&self) -> f64 {
        (self.done as f64 / self.seconds).round()
    }
}

impl Loops {
    /// Whether the worker shall go on.
    pub(super) fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts a call that began then and did this much.
    pub(super) fn did(&self, began: Instant, much: u64) {
        if self.measuring.load(Ordering::Relaxed) {
            self.done.fetch_add(much, Ordering::Relaxed);
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.record(began.elapsed());
        }
    }
}

/// Runs the workers through warm-up and measurement. A worker that ends on its own account ends the measurement when
/// it is the last, and at once when it failed.
///
/// # Errors
/// That of the first worker that fails.
pub(super) async fn run<W, F>(
    common: &Common,
    workers: impl Iterator<Item = W>,
) -> Result<Measured, Failure>
where
    W: FnOnce(Arc<Loops>) -> F,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let loops = Arc::new(Loops {
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        times: Mutex::new(Times::new()),
    });
    let mut running = JoinSet::new();
    for worker in workers {
        running.spawn(worker(Arc::clone(&loops)));
    }
    let bar = progress::clock("measuring", common.warmup + common.duration);
    wait(common.warmup, &mut running).await?;
    loops.measuring.store(true, Ordering::Relaxed);
    let began = Instant::now();
    wait(common.duration, &mut running).await?;
    let seconds = began.elapsed().as_secs_f64();
    loops.measuring.store(false, Ordering::Relaxed);
    loops.stop.store(true, Ordering::Relaxed);
    bar.finish_and_clear();
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    let times = loops.times.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Measured {
        done: loops.done.load(Ordering::Relaxed),
        seconds,
        times: times.percentiles(),
    })
}

/// Lets the workers work for a while, or until none is left.
async fn wait(
    time: std::time::Duration,
    running: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let over = tokio::time::sleep(time);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return Ok(()),
            ended = running.join_next() => match ended {
                Some(ended) => ended.map_err(|error| Failure::failed(error.to_string()))??,
                None => return Ok(()),
            },
        }
    }
}

/// Numbers that jump about below a bound, the same ones for the same start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jumping(u64);

impl Jumping {
    pub(super) fn new(start: usize) -> Self {
        Self((start as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next one, below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // xorshift64, by George Marsaglia.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumping_numbers_stay_below_their_bound_and_differ() {
        let mut numbers = Jumping::new(3);
        let drawn: std::collections::BTreeSet<u64> =
            (0..100).map(|_| numbers.below(1_000)).collect();
        assert!(drawn.len() > 50, "{drawn:?}");
        assert!(drawn.iter().all(|number| *number < 1_000));
    }
}
