//! Room for requests: what all connections may hold together, and of it what those of one tenant may.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use felix_model::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::FRAME_BYTES_MAX;

/// The room of a listener, in bytes.
#[derive(Debug)]
pub(crate) struct Rooms {
    all: Arc<Semaphore>,
    /// What one tenant has at most: half of all, so that others go on whatever it does, and one largest request.
    share: usize,
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// Where a connection's requests take room.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// That of its tenant; before it logged in its requests are short, and it has little time.
    own: Option<Arc<Semaphore>>,
    all: Arc<Semaphore>,
}

/// Room for one request, given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Rooms {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(bytes)),
            share: (bytes / 2).max(FRAME_BYTES_MAX),
            tenants: Mutex::default(),
        }
    }

    /// Bytes that are not taken.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// The room of a connection without a login.
    pub(crate) fn of_nobody(&self) -> Room {
        Room {
            own: None,
            all: Arc::clone(&self.all),
        }
    }

    /// The room of a tenant's connections.
    pub(crate) fn of(&self, tenant: &TenantId) -> Room {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tenants.get(tenant).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            // Connections and what they took keep it.
            tenants.retain(|_, room| room.strong_count() > 0);
            let room = Arc::new(Semaphore::new(self.share));
            tenants.insert(tenant.clone(), Arc::downgrade(&room));
            room
        });
        Room {
            own: Some(own),
            all: Arc::clone(&self.all),
        }
    }
}

impl Room {
    /// Takes room at once, if there is.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Taken> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(bytes).ok();
        let own = self.own.as_ref().map(take);
        if matches!(own, Some(None)) {
            return None;
        }
        Some(Taken {
            _own: own.flatten(),
            _all: take(&self.all)?,
        })
    }

    /// Takes room once there is. Who waits for his tenant's does not stand in the way of other tenants.
    pub(crate) async fn take(self, bytes: usize) -> Option<Taken> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // Neither is ever closed, so this always comes to room.
        let own = match self.own {
            Some(own) => Some(own.acquire_many_owned(bytes).await.ok()?),
            None => None,
        };
        Some(Taken {
            _own: own,
            _all: self.all.acquire_many_owned(bytes).await.ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: usize = FRAME_BYTES_MAX;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn one_tenant_has_half_of_all_room_at_most() {
        let rooms = Rooms::new(2 * HALF);
        let (one, again) = (rooms.of(&tenant("one")), rooms.of(&tenant("one")));
        let other = rooms.of(&tenant("other"));
        let held = one.try_take(HALF).unwrap();
        assert!(again.try_take(1).is_none());
        let waiting = tokio::spawn(again.take(1));
        // Who waits among his own keeps nobody else waiting.
        let whole = other.try_take(HALF).unwrap();
        assert_eq!(rooms.free(), 0);
        drop(whole);
        drop(held);
        assert!(waiting.await.unwrap().is_some());
    }

    #[test]
    fn what_is_refused_by_the_whole_is_not_taken_from_the_tenant() {
        let rooms = Rooms::new(HALF);
        let (one, other) = (rooms.of(&tenant("one")), rooms.of(&tenant("other")));
        let held = one.try_take(HALF).unwrap();
        assert!(other.try_take(1).is_none());
        drop(held);
        assert!(other.try_take(HALF).is_some());
    }

    #[test]
    fn a_tenant_without_connections_is_forgotten() {
        let rooms = Rooms::new(HALF);
        drop(rooms.of(&tenant("one")));
        let _other = rooms.of(&tenant("other"));
        assert_eq!(rooms.tenants.lock().unwrap().len(), 1);
    }
}
