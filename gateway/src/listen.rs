//! The TCP listener: accepts browsers, within a limit on how many, and hands their requests to the router.

mod seat;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use felix_process::Slots;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::seat::Counted;
pub(crate) use self::seat::Seat;
use crate::address::counted;
use crate::app::App;
use crate::limits::{
    ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_PER_SESSION, FIRST_MESSAGE_TIMEOUT, HEAD_BYTES_MAX,
};

/// Takes connections until the gateway drains. Each is a task of `connections`.
pub(crate) async fn accept(
    listener: TcpListener,
    app: App,
    router: Router,
    connections: TaskTracker,
) {
    let slots = Arc::new(Slots::<IpAddr>::default());
    let per_address = per_address(&app);
    // Said once for each time that the system has no room, and not for each attempt.
    let mut is_full = false;
    loop {
        let (stream, peer) = tokio::select! {
            () = app.draining.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    is_full = false;
                    accepted
                }
                Err(error) => {
                    // The system has no room; it has when others close.
                    if !std::mem::replace(&mut is_full, true) {
                        tracing::warn!(%error, "connections cannot be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let Some(slot) = slots.take(counted(peer.ip()), CONNECTIONS_MAX, per_address) else {
            app.metrics.connections_refused.increment(1);
            continue;
        };
        app.metrics.connections.increment(1);
        // A small event must not wait for the acknowledgement of the one before it.
        let _ = stream.set_nodelay(true);
        let seat = Arc::new(Seat::new(slot));
        let (router, draining) = (router.clone(), app.draining.clone());
        connections.spawn(serve(stream, peer, seat, router, draining));
    }
}

/// Connections that one address may have. Behind a proxy all come from one address, and where an address may have any
/// number of sessions it may have any number of connections.
fn per_address(app: &App) -> usize {
    let limits = &app.scope.limits;
    match (limits.trusted_proxies, limits.sessions_per_ip) {
        (0, sessions @ 1..) => sessions.saturating_mul(CONNECTIONS_PER_SESSION),
        _ => CONNECTIONS_MAX,
    }
}

/// One connection's requests. A WebSocket leaves it with the upgrade and is a session from then on, in the same seat.
async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    seat: Arc<Seat>,
    router: Router,
    draining: CancellationToken,
) {
    let stream = Counted::new(stream, Arc::clone(&seat));
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(Arc::clone(&seat));
        inner.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(FIRST_MESSAGE_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}
