//! Connections that the gateway opens as itself and shares among everybody: a few of them, each opened when it is first
//! needed, and whoever comes gets the one with the fewest people on it. A connection carries only so many streams, so
//! there are more of them when there are more people.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use felix_client::{BadConfig, Client, ConnectFailed, TokenSource};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::limits::PEOPLE_PER_CONNECTION;

type Open = dyn Fn() -> BoxFuture<'static, Result<Client, ConnectFailed>> + Send + Sync;

/// The shared connections.
pub(crate) struct Slots {
    open: Box<Open>,
    slots: RwLock<Vec<Arc<Slot>>>,
}

#[derive(Default)]
struct Slot {
    /// Held while one caller opens it for all.
    client: Mutex<Option<Client>>,
    people: Arc<AtomicUsize>,
}

/// One person's client, and his place on a shared connection if it is one.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) client: Client,
    pub(crate) place: Option<Place>,
}

impl Attached {
    /// A client with connections of its own.
    pub(crate) const fn alone(client: Client) -> Self {
        Self {
            client,
            place: None,
        }
    }

    /// The same for names in another namespace.
    ///
    /// # Errors
    /// When no namespace can have this name.
    pub(crate) fn in_namespace(self, namespace: &str) -> Result<Self, BadConfig> {
        let client = self.client.in_namespace(namespace)?;
        Ok(Self { client, ..self })
    }
}

/// Counts somebody on a slot while it is held.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slots {
    /// So many connections at first, each opened by `open` when it is first needed. A client reconnects by itself, follows shards
    /// that move, and reads its certificate again for every connection.
    pub(crate) fn new<F>(connections: usize, open: F) -> Self
    where
        F: Fn() -> BoxFuture<'static, Result<Client, ConnectFailed>> + Send + Sync + 'static,
    {
        Self {
            open: Box::new(open),
            slots: RwLock::new((0..connections.max(1)).map(|_| Arc::default()).collect()),
        }
    }

    /// A client for whoever these tokens speak for.
    ///
    /// # Errors
    /// When no broker can be reached, or it does not accept the gateway or the token.
    pub(crate) async fn attach(&self, tokens: TokenSource) -> Result<Attached, ConnectFailed> {
        let (slot, place) = self.take();
        let carrier = {
            let mut held = slot.client.lock().await;
            match &*held {
                Some(client) => client.clone(),
                None => held.insert((self.open)().await?).clone(),
            }
        };
        Ok(Attached {
            client: carrier.with_token(tokens).await?,
            place: Some(place),
        })
    }

    /// The slot with the fewest people, with one more on it. When all are full there is one more slot: how many people
    /// there are at once is bounded by who counts sockets.
    fn take(&self) -> (Arc<Slot>, Place) {
        let found = emptiest(&self.slots.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(slot) = found {
            return slot.taken();
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have made room meanwhile.
        if let Some(slot) = emptiest(&slots) {
            return slot.taken();
        }
        let slot = Arc::<Slot>::default();
        slots.push(Arc::clone(&slot));
        slot.taken()
    }
}

/// The slot with the fewest people, if one more may come to it.
fn emptiest(slots: &[Arc<Slot>]) -> Option<Arc<Slot>> {
    let people = |slot: &&Arc<Slot>| slot.people.load(Ordering::Relaxed);
    let slot = slots.iter().min_by_key(people)?;
    (people(&slot) < PEOPLE_PER_CONNECTION).then(|| Arc::clone(slot))
}

impl Slot {
    fn taken(self: Arc<Self>) -> (Arc<Self>, Place) {
        self.people.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.people));
        (self, place)
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Slots").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_gets_the_connection_with_the_fewest_people() {
        let closed = || -> BoxFuture<'static, _> { Box::pin(async { Err(ConnectFailed::Closed) }) };
        let slots = Slots::new(3, closed);
        let counts = || {
            let slots = slots.slots.read().unwrap();
            let people = slots.iter().map(|slot| &slot.people);
            people
                .map(|one| one.load(Ordering::Relaxed))
                .collect::<Vec<_>>()
        };
        let places: Vec<_> = (0..7).map(|_| slots.take()).collect();
        assert_eq!(counts(), [3, 2, 2]);
        let mut places: Vec<_> = places.into_iter().map(|(_, place)| place).collect();
        // The fourth came to the first slot, as the first and the last did.
        places.truncate(1);
        assert_eq!(counts(), [1, 0, 0]);
        let second = slots.take();
        assert_eq!(counts(), [1, 1, 0]);
        drop((second, places));
        assert_eq!(counts(), [0, 0, 0]);
        let many: Vec<_> = (0..=3 * PEOPLE_PER_CONNECTION)
            .map(|_| slots.take())
            .collect();
        let full = PEOPLE_PER_CONNECTION;
        assert_eq!(counts(), [full, full, full, 1], "one connection more");
        drop(many);
    }

    #[tokio::test]
    async fn nobody_is_counted_on_a_connection_that_could_not_be_opened() {
        let slots = Slots::new(1, || Box::pin(async { Err(ConnectFailed::Closed) }));
        let refused = slots.attach(TokenSource::fixed("t")).await;
        assert!(matches!(refused, Err(ConnectFailed::Closed)));
        assert_eq!(slots.take().0.people.load(Ordering::Relaxed), 1);
    }
}
