//! One task that wakes whatever groups have something due, however many shards there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use felix_model::TimeMs;
use tokio::sync::Notify;

use super::cell::GroupCell;
use crate::shards::cell::now;

/// The clock may be set while the task sleeps; it looks again after this long.
const NAP: Duration = Duration::from_secs(1);

/// When which groups have something due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: Mutex<BTreeMap<(TimeMs, u64), Weak<GroupCell>>>,
    earlier: Notify,
}

impl Timers {
    /// Replaces what was set for a cell before.
    pub(crate) fn set(
        &self,
        key: u64,
        before: Option<TimeMs>,
        at: Option<TimeMs>,
        cell: &Arc<GroupCell>,
    ) {
        let mut due = self.lock();
        if let Some(before) = before {
            due.remove(&(before, key));
        }
        let Some(at) = at else { return };
        let first = due.first_key_value().map(|((first, _), _)| *first);
        due.insert((at, key), Arc::downgrade(cell));
        drop(due);
        if first.is_none_or(|first| at < first) {
            self.earlier.notify_one();
        }
    }

    /// Wakes what is due, for ever.
    pub(crate) async fn run(&self) {
        loop {
            while let Some(cell) = self.take_due() {
                if let Some(cell) = cell.upgrade() {
                    cell.timeout();
                }
            }
            let nap = self.next().map_or(NAP, |next| {
                Duration::from_millis(next.since(now())).min(NAP)
            });
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn take_due(&self) -> Option<Weak<GroupCell>> {
        let mut due = self.lock();
        let ((at, _), _) = due.first_key_value()?;
        if *at > now() {
            return None;
        }
        due.pop_first().map(|(_, cell)| cell)
    }

    fn next(&self) -> Option<TimeMs> {
        self.lock().first_key_value().map(|((at, _), _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TimeMs, u64), Weak<GroupCell>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
