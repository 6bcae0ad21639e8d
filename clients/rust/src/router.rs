//! Brings the event streams a broker opens to the subscriptions they belong to.
//!
//! A stream says in its first frame whose it is. Each is listened to on its own, so that one whose hello is late
//! holds up no other. From then on the subscription reads the stream itself: events pass through nobody's hands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_wire::message::Message;
use quinn::Connection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::frames::Frames;
use crate::limits::{HELLO_TIMEOUT, UNCLAIMED_STREAMS_MAX};

/// The event streams of one connection.
#[derive(Debug, Default)]
pub(crate) struct Router {
    routes: Mutex<Routes<Frames>>,
}

/// A stream that is there, or will be.
#[derive(Debug)]
pub(crate) enum Claim<T> {
    Here(T),
    /// Fails when the connection is lost.
    Later(oneshot::Receiver<T>),
}

/// Who waits for which stream, and which stream for whom. Pure.
#[derive(Debug)]
struct Routes<T> {
    waiting: BTreeMap<u64, oneshot::Sender<T>>,
    arrived: BTreeMap<u64, (Instant, T)>,
    closed: bool,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            arrived: BTreeMap::new(),
            closed: false,
        }
    }
}

impl Router {
    /// Starts listening. Ends with the connection.
    pub(crate) fn start(connection: Connection) -> Arc<Self> {
        let router = Arc::new(Self::default());
        tokio::spawn(Arc::clone(&router).accept(connection));
        router
    }

    /// The stream of a subscription; its hello may come before or after the broker's answer.
    pub(crate) fn claim(&self, subscription_id: u64) -> Claim<Frames> {
        self.routes().claim(subscription_id)
    }

    async fn accept(self: Arc<Self>, connection: Connection) {
        while let Ok(stream) = connection.accept_uni().await {
            let router = Arc::clone(&self);
            tokio::spawn(async move { router.hear(Frames::new(stream, false)).await });
        }
        self.routes().close();
    }

    async fn hear(&self, mut frames: Frames) {
        match timeout(HELLO_TIMEOUT, frames.message()).await {
            Ok(Ok(Some(Message::EventStreamHello(hello)))) => {
                frames.allow_extensions();
                self.routes()
                    .arrive(hello.subscription_id, frames, Instant::now());
            }
            // Dropping the stream tells the broker that nobody reads it.
            Ok(Ok(_)) => tracing::debug!("a stream of the broker did not begin with a hello"),
            Ok(Err(error)) => tracing::debug!(%error, "a stream of the broker ended early"),
            Err(_) => tracing::debug!("a stream of the broker sent no hello"),
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes<Frames>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream nobody has claimed for this long belongs to a subscribe that was given up.
const UNCLAIMED_TTL: Duration = Duration::from_secs(60);

impl<T> Routes<T> {
    fn claim(&mut self, id: u64) -> Claim<T> {
        if let Some((_, stream)) = self.arrived.remove(&id) {
            return Claim::Here(stream);
        }
        let (sender, receiver) = oneshot::channel();
        if !self.closed {
            self.waiting.insert(id, sender);
        }
        Claim::Later(receiver)
    }

    fn arrive(&mut self, id: u64, stream: T, now: Instant) {
        if let Some(waiting) = self.waiting.remove(&id) {
            // A subscription that was given up meanwhile leaves its stream to be dropped here.
            let _ = waiting.send(stream);
            return;
        }
        self.arrived
            .retain(|_, (since, _)| now.duration_since(*since) < UNCLAIMED_TTL);
        if self.arrived.len() < UNCLAIMED_STREAMS_MAX {
            self.arrived.insert(id, (now, stream));
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
        self.arrived.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_may_come_before_and_after_the_answer() {
        let mut routes = Routes::default();
        let now = Instant::now();
        routes.arrive(1, "early", now);
        assert!(matches!(routes.claim(1), Claim::Here("early")));
        let Claim::Later(mut later) = routes.claim(2) else {
            panic!("nothing arrived")
        };
        routes.arrive(2, "late", now);
        assert_eq!(later.try_recv(), Ok("late"));
    }

    #[test]
    fn everybody_who_waits_hears_of_the_end() {
        let mut routes = Routes::<&str>::default();
        let Claim::Later(mut before) = routes.claim(1) else {
            panic!("nothing arrived")
        };
        routes.close();
        let Claim::Later(mut after) = routes.claim(2) else {
            panic!("nothing arrived")
        };
        assert_eq!(before.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(after.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn streams_nobody_claims_are_dropped_and_their_number_is_bounded() {
        let mut routes = Routes::default();
        let start = Instant::now();
        routes.arrive(1, "old", start);
        routes.arrive(2, "new", start + UNCLAIMED_TTL);
        assert!(matches!(routes.claim(1), Claim::Later(_)));
        assert!(matches!(routes.claim(2), Claim::Here("new")));
        for id in 10..10 + 2 * UNCLAIMED_STREAMS_MAX as u64 {
            routes.arrive(id, "x", start);
        }
        assert_eq!(routes.arrived.len(), UNCLAIMED_STREAMS_MAX);
    }

    #[test]
    fn a_claim_that_was_given_up_leaves_nothing_behind() {
        let mut routes = Routes::default();
        drop(routes.claim(1));
        routes.arrive(1, "stream", Instant::now());
        assert!(routes.waiting.is_empty() && routes.arrived.is_empty());
    }
}
