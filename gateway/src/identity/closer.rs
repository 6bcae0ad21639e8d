//! Ends at the control plane what sessions leave behind, so that nobody's list of sessions fills with closed tabs.
//!
//! A session is ended when its last token has run out, and not before: until then a page that is loaded again while the
//! control plane is away goes on with that token. Whoever signs out is not waited for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use felix_model::TimeMs;
use tokio::sync::Notify;

use super::desk::Desk;
use super::now;
use super::secret::Secret;

/// Sessions that wait for their end. Of more, those that have the longest to wait are left to run out by themselves, so
/// that closed tabs never take the place of somebody who signed out.
const WAITING_MAX: usize = 16_384;

#[derive(Clone, Debug)]
pub(super) struct Closer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Something changed that the task should know of.
    changed: Arc<Notify>,
}

/// Sessions by when they are to be ended.
#[derive(Debug, Default)]
struct Waiting {
    chains: BTreeMap<(TimeMs, u64), Secret>,
    number: u64,
}

impl Closer {
    /// Starts the task that ends sessions; it ends with the last handle.
    pub(super) fn start(desk: Arc<Desk>) -> Self {
        let changed = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            changed: Arc::clone(&changed),
        });
        tokio::spawn(run(desk, Arc::downgrade(&shared), changed));
        Self(shared)
    }

    /// Ends the session of this refresh token at this time, or soon after.
    pub(super) fn end_at(&self, at: TimeMs, chain: Secret) {
        self.0.waiting().put(at, chain);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl Waiting {
    fn put(&mut self, at: TimeMs, chain: Secret) {
        self.number += 1;
        self.chains.insert((at, self.number), chain);
        if self.chains.len() > WAITING_MAX {
            self.chains.pop_last();
            tracing::debug!("a session at the control plane is left to run out");
        }
    }

    /// The first that is due, or else how long until there is one.
    fn due(&mut self, at: TimeMs) -> Result<Secret, Duration> {
        let Some(first) = self.chains.first_entry() else {
            return Err(Duration::MAX);
        };
        let (due_at, _) = first.key();
        match due_at.0.saturating_sub(at.0) {
            0 => Ok(first.remove()),
            left => Err(Duration::from_millis(left)),
        }
    }
}

async fn run(desk: Arc<Desk>, shared: Weak<Shared>, changed: Arc<Notify>) {
    loop {
        let due = match shared.upgrade() {
            Some(shared) => shared.waiting().due(now()),
            None => return,
        };
        match due {
            Ok(chain) => desk.end(&chain).await,
            Err(wait) => tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_signs_out_has_a_place_before_any_number_of_closed_tabs() {
        let mut waiting = Waiting::default();
        for tab in 0..WAITING_MAX as u64 + 10 {
            waiting.put(TimeMs(1_000 + tab), Secret::new("tab"));
        }
        waiting.put(TimeMs(0), Secret::new("signed out"));
        waiting.put(TimeMs(u64::MAX), Secret::new("the last tab"));
        assert_eq!(waiting.chains.len(), WAITING_MAX);
        assert_eq!(waiting.due(TimeMs(1)).unwrap().reveal(), "signed out");
        let left = waiting.due(TimeMs(1)).unwrap_err();
        assert_eq!(left, Duration::from_millis(999));
        let last = waiting.chains.last_key_value().unwrap();
        assert_eq!(last.1.reveal(), "tab");
    }
}
