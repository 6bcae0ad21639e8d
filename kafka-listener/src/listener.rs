//! The life of a listener: start, serve, drain, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use felix_controlplane_client::{
    CallFailed, Credential, Follower, FollowerState, Given, Held, NoCredential,
};
use felix_model::TimeMs;
use felix_process::Slots;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::anonymous::{Anonymous, Nameless};
use crate::api::fetch::FetchSessions;
use crate::config::{Config, ConfigRefused};
use crate::conn::{self, Rooms};
use crate::limits::{AUTHENTICATION_TIMEOUT, CERTIFICATE_INTERVAL, CONNECTIONS_MAX, DRAIN_TIMEOUT};
use crate::metrics::Metrics;
use crate::names::Names;
use crate::ops;
use crate::tls::{Tls, TlsRefused};
use crate::upstream::{RootsRefused, Upstream};
use crate::who::{Logins, Who};

/// How often histograms are folded.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How long is waited after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// First byte of a TLS greeting.
const TLS_HANDSHAKE: u8 = 0x16;

/// What all connections of a listener share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) names: Names,
    pub(crate) upstream: Upstream,
    pub(crate) logins: Logins,
    pub(crate) fetch_sessions: FetchSessions,
    /// Bytes of requests that may still be read.
    pub(crate) rooms: Rooms,
    /// Host and port that clients are told.
    pub(crate) advertised: (String, u16),
    /// The number that clients know this listener by.
    pub(crate) node_id: i32,
    /// Cancelled when the listener drains.
    pub(crate) draining: CancellationToken,
    /// Who a connection from this machine is before it logs in.
    pub(crate) anonymous: Option<Nameless>,
    secure: bool,
    serving: AtomicBool,
}

/// What a listener is started with beside its configuration, by a process that embeds it.
#[derive(Debug, Default)]
pub struct Embedding {
    /// The listener's token for the control plane, in place of the file the configuration names. Unless there is a
    /// refresh token beside it, whoever gave it holds another one in time.
    pub token: Option<Held>,
    /// The broker in whose process this is: calls reach it without a connection.
    pub near: Option<Arc<dyn felix_client::Near>>,
    /// Who needs no login.
    pub anonymous: Option<Anonymous>,
}

/// Why a listener did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartRefused {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigRefused),
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// Trusted roots.
    #[error(transparent)]
    Roots(#[from] RootsRefused),
    /// The control plane.
    #[error("the catalogue cannot be had from the control plane: {0}")]
    ControlPlane(#[from] CallFailed),
    /// The control plane's address.
    #[error("controlplane_url: {0}")]
    Endpoint(String),
    /// The address that clients are told.
    #[error("advertise: {0:?} is not host:port")]
    Advertise(String),
    /// The listener's own credential.
    #[error("the listener's credential for the control plane: {0}")]
    Credential(#[from] NoCredential),
    /// The anonymous principal's token.
    #[error("the token of connections without a login is refused: {0}")]
    Anonymous(String),
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A running listener. Dropping it without [`Running::shutdown`] is a crash as far as clients can tell.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    address: SocketAddr,
    metrics_address: SocketAddr,
    stop: CancellationToken,
    connections: TaskTracker,
    tasks: TaskTracker,
}

/// Starts a listener from its configuration.
///
/// # Errors
/// [`StartRefused`] says what to change.
pub async fn start(config: Config, embedding: Embedding) -> Result<Running, StartRefused> {
    config.check()?;
    let tls = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => Some(Arc::new(Tls::read(cert, key)?)),
        _ => None,
    };
    let upstream = Upstream::read(&config, embedding.near)?;
    let metrics = Metrics::new();
    let (follower, credential) = follow(&config, &upstream, embedding.token, &metrics).await?;
    let names = Names::new(follower);
    let (clients, address) = bind(config.listen).await?;
    let (operators, metrics_address) = bind(config.metrics_listen).await?;
    let logins = Logins::default();
    let anonymous = embedding
        .anonymous
        .map(|given| Nameless::new(given, &names, &upstream))
        .transpose()?;
    let advertised = advertised(config.advertise.as_deref(), address)?;
    let shared = Arc::new(Shared {
        node_id: number_of(&advertised),
        advertised,
        metrics,
        fetch_sessions: FetchSessions::default(),
        rooms: Rooms::new(config.inflight_bytes),
        draining: CancellationToken::new(),
        secure: tls.is_some(),
        serving: AtomicBool::new(true),
        names,
        upstream,
        logins,
        anonymous,
        config,
    });
    let running = Running {
        shared,
        address,
        metrics_address,
        stop: CancellationToken::new(),
        connections: TaskTracker::new(),
        tasks: TaskTracker::new(),
    };
    running.spawn(clients, operators, tls);
    running.keep(credential);
    tracing::info!(%address, %metrics_address, "the Kafka listener is ready");
    Ok(running)
}

impl Running {
    /// Where Kafka clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the operator's listener answers.
    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics_address
    }

    /// Takes no more requests, answers those it has, closes. `true` when all were answered in time.
    pub async fn shutdown(self) -> bool {
        self.shared.serving.store(false, Ordering::Relaxed);
        self.shared.draining.cancel();
        self.connections.close();
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, self.connections.wait())
            .await
            .is_ok();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        drained
    }

    fn spawn(&self, clients: TcpListener, operators: TcpListener, tls: Option<Arc<Tls>>) {
        let stop = &self.stop;
        let accepting = accept(
            clients,
            tls.clone(),
            Arc::clone(&self.shared),
            self.connections.clone(),
        );
        self.tasks.spawn(until(stop.clone(), accepting));
        let (shared, stopped) = (Arc::clone(&self.shared), stop.clone());
        self.tasks.spawn(async move {
            if let Err(error) = ops::serve(operators, shared, stopped).await {
                tracing::error!(%error, "the operator's listener ended");
            }
        });
        self.tasks
            .spawn(until(stop.clone(), upkeep(Arc::clone(&self.shared))));
        if let Some(tls) = tls {
            self.tasks
                .spawn(until(stop.clone(), watch_certificate(tls)));
        }
    }
}

impl Running {
    /// Keeps the listener's own credential fresh, if that is the listener's to do.
    fn keep(&self, credential: Option<Credential>) {
        let Some(credential) = credential else {
            return;
        };
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        self.tasks.spawn(async move {
            let keeping = credential.keep(|event| shared.metrics.credential(event));
            until(stop, keeping).await;
        });
    }
}

impl Shared {
    /// Why no new client should come, if so.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if !self.serving.load(Ordering::Relaxed) {
            return Err("the listener is shutting down".into());
        }
        match self.names.state() {
            FollowerState::TooOld { why } => Err(why),
            // The copy that is held serves on.
            FollowerState::Following | FollowerState::Retrying { .. } => Ok(()),
        }
    }

    pub(crate) fn refresh_gauges(&self) {
        let free = self.rooms.free();
        let used = self.config.inflight_bytes.saturating_sub(free);
        self.metrics.inflight_bytes.set(used as f64);
        self.metrics
            .fetch_sessions
            .set(self.fetch_sessions.len() as f64);
        let ready = if self.readiness().is_ok() { 1.0 } else { 0.0 };
        self.metrics.ready.set(ready);
    }

    /// Whether a connection may go on without TLS and a login of its own.
    pub(crate) fn anonymous_for(&self, peer: SocketAddr) -> Option<Arc<Who>> {
        let near = peer.ip().to_canonical().is_loopback();
        let nameless = self.anonymous.as_ref().filter(|_| near && !self.secure)?;
        Some(nameless.who(&self.names, &self.upstream))
    }
}

/// Unix milliseconds.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(since.as_millis().try_into().unwrap_or(u64::MAX))
}

async fn follow(
    config: &Config,
    upstream: &Upstream,
    token: Option<Held>,
    metrics: &Metrics,
) -> Result<(Follower, Option<Credential>), StartRefused> {
    let given = Given {
        token,
        token_file: config.node_token_file.clone(),
        refresh_token_file: config.node_refresh_token_file.clone(),
    };
    let (source, credential) = upstream.credential(given)?;
    let api = upstream
        .try_control(source)
        .map_err(|error| StartRefused::Endpoint(error.to_string()))?;
    let tell = |event| metrics.credential(event);
    let follower = Follower::start_with(api, credential.as_ref(), tell).await?;
    Ok((follower, credential))
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartRefused> {
    let refused = |source| StartRefused::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

fn advertised(told: Option<&str>, bound: SocketAddr) -> Result<(String, u16), StartRefused> {
    let Some(told) = told else {
        return Ok((bound.ip().to_string(), bound.port()));
    };
    let bad = || StartRefused::Advertise(told.to_owned());
    let (host, port) = told.rsplit_once(':').ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| bad())?;
    if host.is_empty() {
        return Err(bad());
    }
    Ok((host.to_owned(), port))
}

/// A number that the listener of an address has whenever it starts, and others most likely have not: clients keep apart by
/// it what they are connected to.
fn number_of((host, port): &(String, u16)) -> i32 {
    let mut hash = Sha256::new();
    hash.update(host);
    hash.update(port.to_be_bytes());
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
    // Java clients count down from the largest number for their connections to coordinators.
    i32::from_be_bytes([a & 0x3f, b, c, d]).max(1)
}

async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared>,
    connections: TaskTracker,
) {
    let slots = Arc::new(Slots::default());
    loop {
        let (stream, peer) = tokio::select! {
            () = shared.draining.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The system has no room; it has when others close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let config = &shared.config;
        let ip = peer.ip().to_canonical();
        let Some(slot) = slots.take(ip, CONNECTIONS_MAX, config.connections_per_ip) else {
            shared.metrics.connections_refused.increment(1);
            continue;
        };
        // A small answer must not wait for the acknowledgement of the one before it.
        let _ = stream.set_nodelay(true);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            shared.metrics.connections_total.increment(1);
            shared.metrics.connections.increment(1.0);
            serve(stream, peer, tls, Arc::clone(&shared)).await;
            shared.metrics.connections.decrement(1.0);
            drop(slot);
        });
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, tls: Option<Arc<Tls>>, shared: Arc<Shared>) {
    let Some(tls) = tls else {
        if greets_with_tls(&stream).await {
            shared.metrics.handshake_failures.increment(1);
            tracing::warn!(%peer, "a client speaks TLS to a listener without tls_cert");
            return;
        }
        conn::serve(stream, peer, shared).await;
        return;
    };
    let shaken = tls.acceptor().accept(stream);
    match tokio::time::timeout(AUTHENTICATION_TIMEOUT, shaken).await {
        Ok(Ok(stream)) => conn::serve(stream, peer, shared).await,
        Ok(Err(error)) => {
            shared.metrics.handshake_failures.increment(1);
            tracing::debug!(%peer, %error, "a TLS handshake failed");
        }
        Err(_) => shared.metrics.handshake_failures.increment(1),
    }
}

/// Whether the first byte is that of a TLS greeting; no request of the size it would mean is ever taken.
async fn greets_with_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    let peeked = tokio::time::timeout(AUTHENTICATION_TIMEOUT, stream.peek(&mut first)).await;
    matches!(peeked, Ok(Ok(1))) && first == [TLS_HANDSHAKE]
}

async fn upkeep(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        ticks.tick().await;
        shared.metrics.upkeep();
    }
}

async fn watch_certificate(tls: Arc<Tls>) {
    let mut ticks = tokio::time::interval(CERTIFICATE_INTERVAL);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        match tls.reload() {
            Ok(true) => tracing::info!("another certificate is shown from now on"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the certificate on disk cannot be used; the earlier one stays")
            }
        }
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_the_advertised_address_or_the_bound_one() {
        let bound = SocketAddr::from(([127, 0, 0, 1], 9092));
        let told = |text| advertised(text, bound).unwrap();
        assert_eq!(told(None), ("127.0.0.1".to_owned(), 9092));
        assert_eq!(
            told(Some("kafka.example:443")),
            ("kafka.example".to_owned(), 443)
        );
        assert_eq!(told(Some("[::1]:9")), ("::1".to_owned(), 9));
        for bad in ["kafka.example", ":9", "kafka:x"] {
            assert!(advertised(Some(bad), bound).is_err(), "{bad}");
        }
    }
}
