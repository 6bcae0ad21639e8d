//! One task that wakes whatever groups have something due, however many shards there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use felix_model::TimeMs;
use tokio::sync::Notify;

use super::cell::GroupCell;
use crate::shards::cell::now;

/// The clock on the wall may be set while the task sleeps; it looks again after this long.
const NAP: Duration = Duration::from_secs(1);

/// The time of day when this process first asked, and what has passed since by a clock that nobody sets: a step of
/// the clock on the wall, in either direction, moves no claim and no wait.
pub(crate) fn steady() -> TimeMs {
    static START: OnceLock<(Instant, TimeMs)> = OnceLock::new();
    let (start, wall) = START.get_or_init(|| (Instant::now(), now()));
    let elapsed = u64::try_from(start.elapsed().as_millis());
    wall.plus(elapsed.unwrap_or(u64::MAX))
}

/// When something is due in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// By [`steady`].
    pub(crate) steady: Option<TimeMs>,
    /// By the time of day.
    pub(crate) wall: Option<TimeMs>,
}

/// When which groups have something due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: Mutex<Clocks>,
    earlier: Notify,
}

type Queue = BTreeMap<(TimeMs, u64), Weak<GroupCell>>;

#[derive(Debug, Default)]
struct Clocks {
    steady: Queue,
    wall: Queue,
}

impl Timers {
    /// Replaces what was set for a cell before.
    pub(crate) fn set(&self, key: u64, before: Due, at: Due, cell: &Arc<GroupCell>) {
        let mut due = self.lock();
        let steady = replace(&mut due.steady, key, before.steady, at.steady, cell);
        let wall = replace(&mut due.wall, key, before.wall, at.wall, cell);
        drop(due);
        if steady || wall {
            self.earlier.notify_one();
        }
    }

    /// Wakes what is due, for ever.
    pub(crate) async fn run(&self) {
        loop {
            while let Some(cell) = self.take_due(steady(), now()) {
                if let Some(cell) = cell.upgrade() {
                    cell.timeout();
                }
            }
            let nap = self.left(steady(), now()).min(NAP);
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn take_due(&self, steady: TimeMs, wall: TimeMs) -> Option<Weak<GroupCell>> {
        let mut due = self.lock();
        pop(&mut due.steady, steady).or_else(|| pop(&mut due.wall, wall))
    }

    /// How long until something is due, if nobody sets the clock.
    fn left(&self, steady: TimeMs, wall: TimeMs) -> Duration {
        let due = self.lock();
        let times = [(&due.steady, steady), (&due.wall, wall)];
        let left = times.iter().filter_map(|(queue, now)| {
            let ((at, _), _) = queue.first_key_value()?;
            Some(Duration::from_millis(at.since(*now)))
        });
        left.min().unwrap_or(NAP)
    }

    fn lock(&self) -> MutexGuard<'_, Clocks> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something is due earlier than everything before.
fn replace(
    queue: &mut Queue,
    key: u64,
    before: Option<TimeMs>,
    at: Option<TimeMs>,
    cell: &Arc<GroupCell>,
) -> bool {
    if let Some(before) = before {
        queue.remove(&(before, key));
    }
    let Some(at) = at else { return false };
    let first = queue.first_key_value().map(|((first, _), _)| *first);
    queue.insert((at, key), Arc::downgrade(cell));
    first.is_none_or(|first| at < first)
}

fn pop(queue: &mut Queue, now: TimeMs) -> Option<Weak<GroupCell>> {
    let ((at, _), _) = queue.first_key_value()?;
    if *at > now {
        return None;
    }
    queue.pop_first().map(|(_, cell)| cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_holds_up_schedules_and_nothing_else() {
        let timers = Timers::default();
        let put = |steady: u64, wall: u64| {
            let mut due = timers.lock();
            due.steady.insert((TimeMs(steady), 1), Weak::new());
            due.wall.insert((TimeMs(wall), 1), Weak::new());
        };
        put(10_000, 10_000);
        // An hour back, and ten seconds later.
        assert!(timers.take_due(TimeMs(10_000), TimeMs(0)).is_some());
        assert!(timers.take_due(TimeMs(10_000), TimeMs(0)).is_none());
        let left = timers.left(TimeMs(10_000), TimeMs(0));
        assert_eq!(left, Duration::from_secs(10));
        // The clock is set forward again: what it says is due is due.
        assert!(timers.take_due(TimeMs(10_000), TimeMs(10_000)).is_some());
    }
}
