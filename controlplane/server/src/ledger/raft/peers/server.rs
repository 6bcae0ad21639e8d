//! The peer listener.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::core::Core;
use super::super::stats::Counts;
use super::tls::{Renewed, TlsFiles, names};
use super::{
    HANDSHAKE_TIME, MEMBER, MESSAGE_BYTES_MAX, MESSAGE_TIME, MESSAGES_MAX, PATH, PeerSecurity,
    TlsRefused, UNREAD,
};
use crate::door::{self, Gate};
use crate::limits::{ACCEPT_RETRY, CERTIFICATES_PAUSE};

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
    tls: Option<Tls>,
    state: Shared,
}

/// The certificate of the member that listens.
#[derive(Clone)]
struct Tls {
    member: u64,
    acceptor: Arc<Renewed<TlsAcceptor>>,
}

impl Tls {
    fn read(member: u64, files: &TlsFiles) -> Result<Self, TlsRefused> {
        let acceptor = Renewed::new(files.clone(), CERTIFICATES_PAUSE, acceptor(member))?;
        let acceptor = Arc::new(acceptor);
        Ok(Self { member, acceptor })
    }

    /// What the next connection is accepted with.
    fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.get(acceptor(self.member))
    }
}

fn acceptor(member: u64) -> impl FnOnce(&TlsFiles) -> Result<TlsAcceptor, TlsRefused> {
    move |files| files.server(member).map(TlsAcceptor::from)
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
        let tls = security.tls.as_ref();
        let tls = tls.map(|files| Tls::read(member, files)).transpose()?;
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
        let router = router(state);
        tokio::spawn(accept(tcp, tls, router, stopping));
    }
}

fn router(state: Shared) -> Router {
    Router::new()
        .route(PATH, post(take))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
        .with_state(state)
}

/// Takes connections until it is to stop, and waits for their end. Who connects has proved nothing yet, so that it is
/// bounded how many there are, and how long each may take to say something.
async fn accept(tcp: TcpListener, tls: Option<Tls>, router: Router, stop: CancellationToken) {
    let gate = Arc::new(Gate::default());
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = tcp.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: others must end first.
                tracing::warn!(%error, "a connection of a raft member was not taken");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let admitted = match gate.admit(from.ip()) {
            Ok(admitted) => admitted,
            Err(why) => {
                tracing::debug!(%from, why, "a connection to the peer listener was refused");
                continue;
            }
        };
        let acceptor = tls.as_ref().map(Tls::acceptor);
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(why) = serve(stream, acceptor, router, &stop).await {
                tracing::debug!(%from, why, "a connection to the peer listener was closed");
            }
            drop(admitted);
        });
    }
    drop(tcp);
    connections.close();
    connections.wait().await;
}

/// One connection; says why when it was closed.
async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: &CancellationToken,
) -> Result<(), &'static str> {
    // Messages are small and waited for.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return door::answer(stream, router, Caller::default(), stop).await;
    };
    match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let shown = session.peer_certificates().and_then(|chain| chain.first());
            let caller = Caller {
                certificate: shown.map(|certificate| certificate.clone().into_owned()),
            };
            door::answer(stream, router, caller, stop).await
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake with a raft member failed");
            Err("handshake")
        }
        Err(_) => Err("slow_handshake"),
    }
}

/// What is known of who calls: the certificate he showed, if any.
#[derive(Clone, Debug, Default)]
struct Caller {
    certificate: Option<CertificateDer<'static>>,
}

async fn take(
    State(shared): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let Some(core) = shared.core.get().and_then(Weak::upgrade) else {
        return unread(StatusCode::SERVICE_UNAVAILABLE);
    };
    let member = match known(&shared.security, &caller, &headers) {
        Ok(member) => member,
        Err(status) => {
            Counts::add(&core.counts.rejected);
            return unread(status);
        }
    };
    let Ok(_room) = shared.room.try_acquire() else {
        return unread(StatusCode::SERVICE_UNAVAILABLE);
    };
    let answered = timeout(MESSAGE_TIME, async {
        match read(request.into_body()).await {
            Ok(message) => core.answer(member, message).await.into_response(),
            Err(status) => unread(status),
        }
    });
    match answered.await {
        Ok(answer) => answer,
        // It may go on: nobody knows what becomes of it.
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// A refusal after which the message was not looked at.
fn unread(status: StatusCode) -> Response {
    (status, [(UNREAD, "1")]).into_response()
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_connects_and_says_nothing_or_not_enough_is_cut_off() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let state = Shared {
            core: Arc::default(),
            security: PeerSecurity::default(),
            room: Arc::new(Semaphore::new(1)),
        };
        let stop = CancellationToken::new();
        let accepting = tokio::spawn(accept(tcp, None, router(state), stop.clone()));
        for said in ["", "POST /raft/v1/message HTTP/1.1\r\nhost: a\r\nx-felix-m"] {
            let mut caller = TcpStream::connect(address).await.unwrap();
            caller.write_all(said.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // Whether it ends with or without an error, it ends.
            let _ = caller.read_to_end(&mut answer).await;
            assert!(answer.is_empty(), "{said:?}");
        }
        stop.cancel();
        accepting.await.unwrap();
    }
}
