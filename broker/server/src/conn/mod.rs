//! One client connection: its streams, what they share, and the limits before anybody is known.

pub(crate) mod answers;
mod auth;
mod caches;
pub(crate) mod calls;
mod certificate;
pub(crate) mod egress;
mod frames;
pub(crate) mod groups;
mod inspect;
pub(crate) mod near;
pub(crate) mod principals;
pub(crate) mod publish;
mod reads;
mod renewal;
mod request;
pub(crate) mod standing;
pub(crate) mod stream;
mod subscribe;
mod wire;

pub(crate) use self::request::producer_id;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use felix_auth::{CertificateNames, Principal};
use felix_model::TimeMs;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Expiring;
use quinn::{Connection, SendStream, VarInt};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::answers::Answers;
use self::standing::Standing;
use crate::broker::Shared;
use crate::limits::{
    AUTHENTICATION_TIMEOUT, CLIENT_STREAMS_FIRST, CLIENT_STREAMS_MAX, CLIENT_UNI_STREAMS_FIRST,
    SUBSCRIPTIONS_PER_CONNECTION_MAX, TOKENS_REMEMBERED_MAX, UNAUTHENTICATED_STREAMS_MAX,
};
use crate::quotas::{Exceeded, OpenReader, Present, TenantUse, User};

/// Close code of a connection on which nobody authenticated in time.
const CLOSE_AUTHENTICATION_TIMEOUT: VarInt = VarInt::from_u32(1);

/// What the streams of one connection share.
pub(crate) struct Conn {
    pub(crate) id: u64,
    pub(crate) remote: SocketAddr,
    /// Its connection; one in this process has none.
    quic: Option<Connection>,
    pub(crate) shared: Arc<Shared>,
    /// The names in the certificate that the client presented, where tokens are bound to it.
    pub(crate) certificate: Option<CertificateNames>,
    pub(crate) tasks: TaskTracker,
    authenticated: AtomicBool,
    /// Streams that may be read before they authenticated.
    unknown: Arc<Semaphore>,
    subscriptions: AtomicUsize,
    identities: Mutex<Identities>,
}

/// Who speaks on a connection.
#[derive(Debug, Default)]
struct Identities {
    /// What tokens that verified stand for, so that forty streams cost one signature check.
    tokens: HashMap<[u8; 32], Arc<Standing>>,
    /// Everything that was opened, for renewals.
    standings: Vec<Weak<Standing>>,
    /// Streams that are told of tokens that run out.
    told: Vec<(Weak<Answers>, Arc<Principal>)>,
    /// What the connection counts for.
    present: Vec<Present>,
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
    let certificate = shared
        .config
        .tls_client_cert_bind_subject
        .then(|| certificate::presented(&quic))
        .flatten();
    let remote = quic.remote_address();
    let conn = Conn::new(id, remote, Some(quic.clone()), certificate, shared);
    accept_streams(&conn, &quic).await;
    // Every stream's task sees the lost connection and ends by itself.
    conn.tasks.close();
    conn.tasks.wait().await;
}

async fn accept_streams(conn: &Arc<Conn>, quic: &Connection) {
    let deadline = tokio::time::sleep(AUTHENTICATION_TIMEOUT);
    tokio::pin!(deadline);
    let mut bidirectional = Allowance(CLIENT_STREAMS_FIRST);
    let mut unidirectional = Allowance(CLIENT_UNI_STREAMS_FIRST);
    loop {
        tokio::select! {
            accepted = quic.accept_bi() => {
                let Ok((send, recv)) = accepted else { return };
                if let Some(more) = bidirectional.grow(conn.tasks.len()) {
                    quic.set_max_concurrent_bi_streams(more);
                }
                conn.tasks.spawn(stream::serve(Arc::clone(conn), Some(send), recv));
            }
            accepted = quic.accept_uni() => {
                let Ok(recv) = accepted else { return };
                if let Some(more) = unidirectional.grow(conn.tasks.len()) {
                    quic.set_max_concurrent_uni_streams(more);
                }
                conn.tasks.spawn(stream::serve(Arc::clone(conn), None, recv));
            }
            () = &mut deadline, if !conn.is_authenticated() => {
                // Somebody may have come in while this was waiting for the next stream.
                if conn.is_authenticated() {
                    continue;
                }
                conn.shared.metrics.auth_timeouts.increment(1);
                quic.close(CLOSE_AUTHENTICATION_TIMEOUT, b"authentication timeout");
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
    fn new(
        id: u64,
        remote: SocketAddr,
        quic: Option<Connection>,
        certificate: Option<CertificateNames>,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            remote,
            quic,
            shared,
            certificate,
            tasks: TaskTracker::new(),
            authenticated: AtomicBool::new(false),
            unknown: Arc::new(Semaphore::new(UNAUTHENTICATED_STREAMS_MAX)),
            subscriptions: AtomicUsize::new(0),
            identities: Mutex::default(),
        })
    }

    /// The address on this side, where it is known.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.quic.as_ref().and_then(Connection::local_ip)
    }

    /// Opens a stream to the client; `None` when the connection is lost, or is none that has streams.
    pub(crate) async fn open_uni(&self) -> Option<SendStream> {
        match &self.quic {
            Some(quic) => quic.open_uni().await.ok(),
            None => None,
        }
    }

    /// Resolves when the connection is gone.
    pub(crate) async fn closed(&self) {
        match &self.quic {
            Some(quic) => drop(quic.closed().await),
            None => std::future::pending().await,
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Counts the connection for whoever speaks on it, and gives what his tenant uses.
    ///
    /// # Errors
    /// [`Exceeded`]: he has as many connections as he may.
    pub(crate) fn admit(&self, principal: &Principal) -> Result<Arc<TenantUse>, Exceeded> {
        let mut identities = self.identities();
        let present = &mut identities.present;
        let known = present
            .iter()
            .position(|present| *present.tenant() == principal.tenant);
        let mut entered = match known {
            Some(known) => present.swap_remove(known),
            None => self.shared.used(&principal.tenant).enter()?,
        };
        let spoken = entered.speaks_for(&principal.subject);
        let used = Arc::clone(entered.used());
        // A tenant for which nobody speaks here counts for nothing.
        if spoken.is_ok() || known.is_some() {
            present.push(entered);
        }
        spoken.map(|()| used)
    }

    /// Remembers what a good token of a stream of this connection stands for.
    pub(crate) fn remember(&self, token: [u8; 32], standing: &Arc<Standing>) {
        self.authenticated.store(true, Ordering::Relaxed);
        let mut identities = self.identities();
        if identities.tokens.len() >= TOKENS_REMEMBERED_MAX {
            identities.tokens.clear();
        }
        identities.tokens.insert(token, Arc::clone(standing));
        let standings = &mut identities.standings;
        standings.retain(|known| known.strong_count() > 0);
        standings.push(Arc::downgrade(standing));
    }

    /// What a token that verified on this connection before stands for.
    pub(crate) fn remembered(&self, token: &[u8; 32]) -> Option<Arc<Standing>> {
        self.identities().tokens.get(token).cloned()
    }

    /// Forgets a token, so that it is verified anew.
    pub(crate) fn forget(&self, token: &[u8; 32]) {
        let forgotten = self.identities().tokens.remove(token);
        drop(forgotten);
    }

    /// A token took the place of whatever token stood for this before, which is verified anew when it comes again.
    fn replace(&self, token: [u8; 32], standing: &Arc<Standing>) {
        let mut identities = self.identities();
        let tokens = &mut identities.tokens;
        tokens.retain(|_, known| !Arc::ptr_eq(known, standing));
        tokens.entry(token).or_insert_with(|| Arc::clone(standing));
    }

    /// What a number stands for here.
    fn standing(&self, id: u64) -> Option<Arc<Standing>> {
        let identities = self.identities();
        let mut standings = identities.standings.iter().filter_map(Weak::upgrade);
        standings.find(|standing| standing.id == id)
    }

    /// Has a stream told of every token of its principal that runs out, those that do so already included.
    pub(crate) fn keep_told(&self, answers: &Arc<Answers>, principal: &Arc<Principal>) {
        let standings: Vec<_> = {
            let mut identities = self.identities();
            identities.told.retain(|(told, _)| told.strong_count() > 0);
            let told = (Arc::downgrade(answers), Arc::clone(principal));
            identities.told.push(told);
            let standings = identities.standings.iter().filter_map(Weak::upgrade);
            standings.collect()
        };
        for standing in standings {
            if standing.is_expiring() {
                self.tell_expiring(&standing, crate::shards::cell::now());
            }
        }
    }

    /// Tells the client that the token behind something that is open runs out.
    pub(crate) fn tell_expiring(&self, standing: &Arc<Standing>, now: TimeMs) {
        let holder = standing.holder().principal;
        let frame = Expiring {
            left_ms: standing.left_ms(now),
        }
        .encode(standing.id);
        let identities = self.identities();
        let mut remembered = identities.tokens.values();
        let remembered = remembered.any(|known| Arc::ptr_eq(known, standing));
        // The caller holds it, and perhaps what is only remembered here: nothing that is open.
        if Arc::strong_count(standing) <= 1 + usize::from(remembered) {
            return;
        }
        for (answers, principal) in &identities.told {
            if renewal::is_same(principal, &holder)
                && let Some(answers) = answers.upgrade()
            {
                answers.push(frame.clone());
            }
        }
    }

    fn identities(&self) -> MutexGuard<'_, Identities> {
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one of the connection's subscriptions, and one of those that quotas allow.
    ///
    /// # Errors
    /// The connection has as many as it may, or `quota_exceeded`.
    pub(crate) fn open_subscription(
        self: &Arc<Self>,
        used: &Arc<TenantUse>,
        by: User<'_>,
    ) -> Result<OpenSubscription, Failure> {
        let reader = used.open_reader(by);
        let reader = reader.map_err(|exceeded| self.shared.exceeded(exceeded))?;
        self.subscriptions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < SUBSCRIPTIONS_PER_CONNECTION_MAX).then_some(open + 1)
            })
            .map_err(|_| {
                Failure::new(
                    Code::LimitExceeded,
                    "this connection has as many subscriptions as it may",
                )
                .with_reason("subscriptions")
            })?;
        self.shared.metrics.subscriptions.increment(1.0);
        Ok(OpenSubscription {
            conn: Arc::clone(self),
            _reader: reader,
        })
    }
}

/// Counts while a subscription is open.
#[derive(Debug)]
pub(crate) struct OpenSubscription {
    conn: Arc<Conn>,
    _reader: OpenReader,
}

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.conn.subscriptions.fetch_sub(1, Ordering::Relaxed);
        self.conn.shared.metrics.subscriptions.decrement(1.0);
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
