//! What people take of the console while they ask: requests, live views and room for what they send. It is counted by
//! person and not by token, of which anybody can have many.

use std::sync::Arc;

use felix_process::{Slot, Slots};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{BODIES_BYTES, CHANGES};
use super::refusal::Refusal;

/// What there is of it.
#[derive(Debug)]
pub(super) struct Places {
    /// Requests that run.
    pub(super) calls: Arc<Slots<Arc<str>>>,
    /// Live views.
    pub(super) lives: Arc<Slots<Arc<str>>>,
    changes: Arc<Slots<Arc<str>>>,
    bytes: Arc<Semaphore>,
}

/// Room for what one request sends; given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    _change: Slot<Arc<str>>,
    _bytes: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            calls: Arc::default(),
            lives: Arc::default(),
            changes: Arc::default(),
            bytes: Arc::new(Semaphore::new(BODIES_BYTES)),
        }
    }
}

impl Places {
    /// Room for a body of somebody.
    ///
    /// # Errors
    /// When his own share is taken, or everything.
    pub(super) fn room(&self, principal: Arc<str>, bytes: usize) -> Result<Room, Refusal> {
        let change = self.changes.take(principal, usize::MAX, CHANGES);
        let change = change.ok_or_else(|| Refusal::too_many("changes", CHANGES))?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(bytes);
        let bytes = bytes.map_err(|_| Refusal::full("too much is being sent at the moment"))?;
        Ok(Room {
            _change: change,
            _bytes: bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::BODY_BYTES;
    use super::*;

    #[test]
    fn what_is_sent_is_bounded_for_one_person_and_for_all() {
        let places = Places::default();
        let mut held = Vec::new();
        for person in 0.. {
            let name: Arc<str> = person.to_string().into();
            for _ in 0..CHANGES {
                match places.room(Arc::clone(&name), BODY_BYTES) {
                    Ok(room) => held.push(room),
                    Err(refused) => {
                        assert_eq!(refused.code(), "full");
                        assert!(person > 1, "one person cannot take everything");
                        assert!(held.len() * BODY_BYTES <= BODIES_BYTES);
                        held.clear();
                        assert!(places.room(name, BODY_BYTES).is_ok());
                        return;
                    }
                }
            }
            let refused = places.room(name, 0).unwrap_err();
            assert_eq!(refused.code(), "too_many_requests");
        }
    }
}
