//! One client connection: its streams, what they share, and the limits before anybody is known.

pub(crate) mod answers;
mod auth;
mod caches;
pub(crate) mod calls;
mod frames;
pub(crate) mod groups;
mod inspect;
pub(crate) mod principals;
pub(crate) mod publish;
mod reads;
mod request;
pub(crate) mod stream;
mod subscribe;

pub(crate) use self::request::producer_id;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use felix_auth::Principal;
use quinn::{Connection, VarInt};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::broker::Shared;
use crate::limits::{
    AUTHENTICATION_TIMEOUT, CLIENT_STREAMS_FIRST, CLIENT_STREAMS_MAX, CLIENT_UNI_STREAMS_FIRST,
    SUBSCRIPTIONS_PER_CONNECTION_MAX, TOKENS_REMEMBERED_MAX, UNAUTHENTICATED_STREAMS_MAX,
};

/// Close code of a connection on which nobody authenticated in time.
const CLOSE_AUTHENTICATION_TIMEOUT: VarInt = VarInt::from_u32(1);

/// What the streams of one connection share.
pub(crate) struct Conn {
    pub(crate) id: u64,
    pub(crate) remote: SocketAddr,
    pub(crate) quic: Connection,
    pub(crate) shared: Arc<Shared>,
    pub(crate) tasks: TaskTracker,
    authenticated: AtomicBool,
    /// Streams that may be read before they authenticated.
    unknown: Arc<Semaphore>,
    subscriptions: AtomicUsize,
    /// Tokens that verified, so that forty streams cost one signature check.
    tokens: Mutex<HashMap<[u8; 32], Arc<Principal>>>,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn")
            .field("id", &self.id)
            .field("remote", &self.remote)
            .finish()
    }
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(quic: Connection, id: u64, shared: Arc<Shared>) {
    let conn = Arc::new(Conn {
        id,
        remote: quic.remote_address(),
        quic,
        shared,
        tasks: TaskTracker::new(),
        authenticated: AtomicBool::new(false),
        unknown: Arc::new(Semaphore::new(UNAUTHENTICATED_STREAMS_MAX)),
        subscriptions: AtomicUsize::new(0),
        tokens: Mutex::new(HashMap::new()),
    });
    accept_streams(&conn).await;
    // Every stream's task sees the lost connection and ends by itself.
    conn.tasks.close();
    conn.tasks.wait().await;
}

async fn accept_streams(conn: &Arc<Conn>) {
    let deadline = tokio::time::sleep(AUTHENTICATION_TIMEOUT);
    tokio::pin!(deadline);
    let mut bidirectional = Allowance(CLIENT_STREAMS_FIRST);
    let mut unidirectional = Allowance(CLIENT_UNI_STREAMS_FIRST);
    loop {
        tokio::select! {
            accepted = conn.quic.accept_bi() => {
                let Ok((send, recv)) = accepted else { return };
                if let Some(more) = bidirectional.grow(conn.tasks.len()) {
                    conn.quic.set_max_concurrent_bi_streams(more);
                }
                conn.tasks.spawn(stream::serve(Arc::clone(conn), Some(send), recv));
            }
            accepted = conn.quic.accept_uni() => {
                let Ok(recv) = accepted else { return };
                if let Some(more) = unidirectional.grow(conn.tasks.len()) {
                    conn.quic.set_max_concurrent_uni_streams(more);
                }
                conn.tasks.spawn(stream::serve(Arc::clone(conn), None, recv));
            }
            () = &mut deadline, if !conn.is_authenticated() => {
                // Somebody may have come in while this was waiting for the next stream.
                if conn.is_authenticated() {
                    continue;
                }
                conn.shared.metrics.auth_timeouts.increment(1);
                conn.quic.close(CLOSE_AUTHENTICATION_TIMEOUT, b"authentication timeout");
                return;
            }
        }
    }
}

/// How many streams of one kind the client may have open. The transport keeps room for each, used or not, so it begins
/// low and doubles.
#[derive(Debug)]
struct Allowance(u32);

impl Allowance {
    /// The next allowance, once a quarter of this one is in use, so that a burst of requests finds room: a published
    /// client that runs out opens another connection. `open` may count more than the streams of this kind.
    fn grow(&mut self, open: usize) -> Option<VarInt> {
        if self.0 >= CLIENT_STREAMS_MAX || open < self.0 as usize / 4 {
            return None;
        }
        self.0 = (self.0 * 2).min(CLIENT_STREAMS_MAX);
        Some(VarInt::from_u32(self.0))
    }
}

impl Conn {
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Remembers that a stream of this connection presented a good token.
    pub(crate) fn remember(&self, token: [u8; 32], principal: &Arc<Principal>) {
        self.authenticated.store(true, Ordering::Relaxed);
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= TOKENS_REMEMBERED_MAX {
            tokens.clear();
        }
        tokens.insert(token, Arc::clone(principal));
    }

    /// The principal of a token that verified on this connection before.
    pub(crate) fn remembered(&self, token: &[u8; 32]) -> Option<Arc<Principal>> {
        self.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }

    /// Forgets a token, so that it is verified anew.
    pub(crate) fn forget(&self, token: &[u8; 32]) {
        self.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(token);
    }

    /// Takes one of the connection's subscriptions, or `None` when it has as many as it may.
    pub(crate) fn open_subscription(self: &Arc<Self>) -> Option<OpenSubscription> {
        self.subscriptions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < SUBSCRIPTIONS_PER_CONNECTION_MAX).then_some(open + 1)
            })
            .ok()?;
        self.shared.metrics.subscriptions.increment(1.0);
        Some(OpenSubscription(Arc::clone(self)))
    }
}

/// Counts while a subscription is open.
#[derive(Debug)]
pub(crate) struct OpenSubscription(Arc<Conn>);

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.0.subscriptions.fetch_sub(1, Ordering::Relaxed);
        self.0.shared.metrics.subscriptions.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_doubles_while_a_quarter_of_it_is_used_and_ends_at_the_limit() {
        let mut allowance = Allowance(CLIENT_STREAMS_FIRST);
        assert_eq!(allowance.grow(2), None);
        assert_eq!(allowance.grow(3), Some(VarInt::from_u32(24)));
        assert_eq!(allowance.grow(3), None);
        let grown: Vec<_> = (0..9).filter_map(|_| allowance.grow(1_024)).collect();
        assert_eq!(grown.last(), Some(&VarInt::from_u32(CLIENT_STREAMS_MAX)));
        assert_eq!(grown.len(), 6);
    }
}
