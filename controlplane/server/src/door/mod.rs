//! Connections: who may open how many, how long they may take, and their encryption.
//!
//! axum answers requests; what comes before a request is whole is decided here. A connection that does not send its
//! first request in time is closed, heads and bodies are bounded in time and size, and no address may hold more than
//! its share of connections.

mod gate;
mod tls;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use gate::Gate;
pub use tls::TlsRefused;
pub(crate) use tls::{Certificates, certificates, watch_certificates};

use crate::app::App;
use crate::limits::{
    ACCEPT_RETRY, FIRST_REQUEST_TIME, HANDSHAKE_TIME, HEAD_BYTES_MAX, HEADERS_MAX, IDLE_TIME,
};

/// A socket that is listened on, and what is asked of those who come.
pub(crate) struct Door {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    /// Where they come.
    pub(crate) listener: TcpListener,
    /// Encryption, if any.
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Set when it is to close.
    pub(crate) stop: CancellationToken,
}

/// Serves until it is to stop; then requests under way are answered, and it returns.
pub(crate) async fn serve(door: Door, router: Router, app: App) {
    let gate = Arc::new(Gate::default());
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = door.listener.accept() => accepted,
            () = door.stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or gone before it was taken: the next one may fare better.
                tracing::warn!(%error, listener = door.name, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let admitted = match gate.admit(peer.ip()) {
            Ok(admitted) => admitted,
            Err(why) => {
                app.stats.connection_refused(door.name, why);
                continue;
            }
        };
        let acceptor = door.certificates.as_ref().map(|all| all.acceptor());
        let connection = Connection {
            name: door.name,
            peer,
            router: router.clone(),
            app: app.clone(),
            stop: door.stop.clone(),
        };
        connections.spawn(async move {
            if let Err(why) = connection.serve(stream, acceptor).await {
                connection
                    .app
                    .stats
                    .connection_refused(connection.name, why);
            }
            drop(admitted);
        });
    }
    drop(door);
    connections.close();
    connections.wait().await;
}

/// One connection.
struct Connection {
    name: &'static str,
    peer: SocketAddr,
    router: Router,
    app: App,
    stop: CancellationToken,
}

impl Connection {
    /// Serves it; says why when it was closed for taking too long.
    async fn serve(
        &self,
        stream: TcpStream,
        acceptor: Option<TlsAcceptor>,
    ) -> Result<(), &'static str> {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = acceptor else {
            return self.answer(stream).await;
        };
        match tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.answer(stream).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, peer = %self.peer, "no TLS handshake");
                Err("handshake")
            }
            Err(_) => Err("slow_handshake"),
        }
    }

    async fn answer<S>(&self, stream: S) -> Result<(), &'static str>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        answer(stream, self.router.clone(), self.peer, &self.stop).await
    }
}

/// Answers the requests of one connection until it ends, or until it is to stop and is not in the middle of one; says why
/// when it was closed for taking too long. The router is told who it is as [`ConnectInfo`].
pub(crate) async fn answer<S, T>(
    stream: S,
    router: Router,
    who: T,
    stop: &CancellationToken,
) -> Result<(), &'static str>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let service = WithPeer {
        who,
        asked: Arc::clone(&asked),
        inner: TowerToHyperService::new(router),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIME)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut first = pin!(first_request(&asked, FIRST_REQUEST_TIME));
    let mut stopping = pin!(stop.cancelled());
    let (mut waiting, mut stopped) = (true, false);
    loop {
        tokio::select! {
            ended = &mut connection => {
                return ended.map_err(|error| reason(&error));
            }
            came = &mut first, if waiting => {
                if !came {
                    return Err("slow_request");
                }
                waiting = false;
            }
            () = &mut stopping, if !stopped => {
                connection.as_mut().graceful_shutdown();
                stopped = true;
            }
        }
    }
}

/// Waits for the time of the first request to be over, and says whether one came.
async fn first_request(asked: &AtomicBool, time: Duration) -> bool {
    tokio::time::sleep(time).await;
    asked.load(Ordering::Relaxed)
}

/// Why hyper closed a connection, in a word from a fixed set.
fn reason(error: &hyper::Error) -> &'static str {
    if error.is_timeout() {
        "idle"
    } else if error.is_parse() {
        "malformed"
    } else {
        "broken"
    }
}

/// Tells the router who the peer is.
struct WithPeer<T> {
    who: T,
    asked: Arc<AtomicBool>,
    inner: TowerToHyperService<Router>,
}

impl<T: Clone + Send + Sync + 'static> Service<hyper::Request<Incoming>> for WithPeer<T> {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<hyper::Request<Incoming>>>::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        request
            .extensions_mut()
            .insert(ConnectInfo(self.who.clone()));
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests;
