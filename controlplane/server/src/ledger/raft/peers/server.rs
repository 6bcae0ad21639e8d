//! The peer listener.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::{IncomingStream, Listener};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::super::core::Core;
use super::super::stats::Counts;
use super::tls::names;
use super::{
    HANDSHAKE_TIME, MEMBER, MESSAGE_BYTES_MAX, MESSAGE_TIME, MESSAGES_MAX, PATH, PeerSecurity,
    TlsRefused,
};

/// Why a listener does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeFailed {
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for raft members: {detail}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What happened.
        detail: String,
    },
}

/// A listener that was bound, for a member that need not be there yet: until it is, everything is told to come again.
pub struct PeerListener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    state: Shared,
}

#[derive(Clone)]
struct Shared {
    core: Arc<OnceLock<Weak<Core>>>,
    security: PeerSecurity,
    room: Arc<Semaphore>,
}

impl std::fmt::Debug for PeerListener {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PeerListener")
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

impl PeerListener {
    /// Binds the address.
    ///
    /// # Errors
    /// [`ServeFailed`].
    pub async fn bind(
        address: SocketAddr,
        member: u64,
        security: PeerSecurity,
    ) -> Result<Self, ServeFailed> {
        let tls = match &security.tls {
            Some(files) => Some(TlsAcceptor::from(files.server(member)?)),
            None => None,
        };
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|error| ServeFailed::Listen {
                address,
                detail: error.to_string(),
            })?;
        let state = Shared {
            core: Arc::default(),
            security,
            room: Arc::new(Semaphore::new(MESSAGES_MAX)),
        };
        Ok(Self { tcp, tls, state })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves a member until it stops. Must be called on the member's runtime.
    pub fn serve(self, core: &Arc<Core>) {
        let Self { tcp, tls, state } = self;
        let _ = state.core.set(Arc::downgrade(core));
        let stopping = core.stopping.clone();
        let router = Router::new()
            .route(PATH, post(take))
            .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
            .with_state(state);
        tokio::spawn(async move {
            let stopped = async move { stopping.cancelled().await };
            let served = match tls {
                None => {
                    let service = router.into_make_service_with_connect_info::<Caller>();
                    axum::serve(tcp, service)
                        .with_graceful_shutdown(stopped)
                        .await
                }
                Some(tls) => {
                    let service = router.into_make_service_with_connect_info::<Caller>();
                    axum::serve(Encrypted::new(tcp, tls), service)
                        .with_graceful_shutdown(stopped)
                        .await
                }
            };
            if let Err(error) = served {
                tracing::error!(%error, "the peer listener ended");
            }
        });
    }
}

/// What is known of who calls: the certificate he showed, if any.
#[derive(Clone, Debug, Default)]
struct Caller {
    certificate: Option<CertificateDer<'static>>,
}

impl Connected<IncomingStream<'_, TcpListener>> for Caller {
    fn connect_info(_stream: IncomingStream<'_, TcpListener>) -> Self {
        Self::default()
    }
}

impl Connected<IncomingStream<'_, Encrypted>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Encrypted>) -> Self {
        let (_, session) = stream.io().get_ref();
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        Self {
            certificate: shown.map(|certificate| certificate.clone().into_owned()),
        }
    }
}

async fn take(
    State(shared): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let Some(core) = shared.core.get().and_then(Weak::upgrade) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let member = match known(&shared.security, &caller, &headers) {
        Ok(member) => member,
        Err(status) => {
            Counts::add(&core.counts.rejected);
            return status.into_response();
        }
    };
    let Ok(_room) = shared.room.try_acquire() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let answered = timeout(MESSAGE_TIME, async {
        let message = read(request.into_body()).await?;
        Ok::<Bytes, StatusCode>(core.answer(member, message).await)
    });
    match answered.await {
        Ok(Ok(answer)) => answer.into_response(),
        Ok(Err(status)) => status.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

async fn read(body: Body) -> Result<Bytes, StatusCode> {
    axum::body::to_bytes(body, MESSAGE_BYTES_MAX)
        .await
        .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)
}

/// Which member calls, as far as that is known for sure; or that it is nobody who may.
fn known(
    security: &PeerSecurity,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<u64>, StatusCode> {
    if let Some(token) = &security.token {
        let presented = headers.get(header::AUTHORIZATION);
        if !token.is(presented.map_or(&b""[..], |value| value.as_bytes())) {
            return Err(StatusCode::UNAUTHORIZED);
        }
    }
    if security.tls.is_none() {
        // Without a token either, whoever configured it so has said that the network is closed.
        return Ok(None);
    }
    let says = headers.get(MEMBER).and_then(|value| value.to_str().ok());
    let says: Option<u64> = says.and_then(|value| value.parse().ok());
    match (says, &caller.certificate) {
        (Some(member), Some(certificate)) if names(certificate, member).is_ok() => Ok(Some(member)),
        _ => Err(StatusCode::FORBIDDEN),
    }
}

/// Connections after their handshake. Handshakes go on beside each other, so that a slow one holds nobody up.
struct Encrypted {
    done: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: Option<SocketAddr>,
}

/// Handshakes that may be under way or waiting to be served.
const HANDSHAKES_MAX: usize = 64;

impl Encrypted {
    fn new(tcp: TcpListener, tls: TlsAcceptor) -> Self {
        let address = tcp.local_addr().ok();
        let (give, done) = mpsc::channel(HANDSHAKES_MAX);
        tokio::spawn(async move {
            let room = Arc::new(Semaphore::new(HANDSHAKES_MAX));
            loop {
                let taken = tokio::select! {
                    biased;
                    () = give.closed() => return,
                    taken = take_connection(&tcp, &room) => taken,
                };
                let Some((stream, from, permit)) = taken else {
                    continue;
                };
                let (tls, give) = (tls.clone(), give.clone());
                tokio::spawn(async move {
                    match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                        Ok(Ok(stream)) => drop(give.send((stream, from)).await),
                        Ok(Err(error)) => tracing::debug!(%from, %error, "a handshake failed"),
                        Err(_) => tracing::debug!(%from, "a handshake took too long"),
                    }
                    drop(permit);
                });
            }
        });
        Self { done, address }
    }
}

async fn take_connection(
    tcp: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match tcp.accept().await {
        Ok((stream, from)) => Some((stream, from, permit)),
        Err(error) => {
            // Out of descriptors, most likely: others must end first.
            tracing::warn!(%error, "a connection was not taken");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        }
    }
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.done.recv().await {
            Some(taken) => taken,
            // The task that gives is there as long as this is.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.address
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected))
    }
}
