//! The WebSocket of a browser: the upgrade, the first message, and then a session until one side leaves.

mod beat;
mod join;
mod leave;
mod live;
mod serve;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use felix_process::{Slot, Slots};
use futures_util::{Sink, SinkExt as _};

use crate::address::Seen;
use crate::app::App;
use crate::limits::{
    BEACON_BYTES_MAX, GOODBYE_TIMEOUT, SESSIONS_WAIT, SOCKET_READ_BYTES, SOCKET_WRITE_BYTES,
};
use crate::listen::Seat;
use crate::metrics::Limited;

/// Sockets that have not joined, by address. A session is counted by what its first message says; until then this holds an
/// address to as many as it may have sessions, also where all connections are a proxy's.
type Unjoined = Arc<Slots<IpAddr>>;

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/ws", get(upgrade))
        .route("/members/leave", post(leave::leave))
        .layer(DefaultBodyLimit::max(BEACON_BYTES_MAX))
        .layer(Extension(Unjoined::default()))
}

/// Why a socket is closed. The code and the reason are what the browser sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goodbye {
    GoingAway,
    /// The first message did not come, or was refused.
    Policy(&'static str),
    TooLarge,
    /// Signed out, or no longer allowed.
    SignedOut(String),
    DeadPeer,
    /// The browser left, or what it sent is no WebSocket.
    Gone,
}

impl Goodbye {
    fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::GoingAway => (1001, "the gateway stops"),
            Self::Policy(reason) => (1008, *reason),
            Self::TooLarge => (1009, "a message is larger than any payload may be"),
            Self::SignedOut(reason) => (4001, reason.as_str()),
            Self::DeadPeer => (4002, "nothing was heard for too long"),
            Self::Gone => return None,
        };
        Some(CloseFrame {
            code,
            reason: reason.into(),
        })
    }
}

async fn upgrade(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(seat): Extension<Arc<Seat>>,
    Extension(unjoined): Extension<Unjoined>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let seen = Seen::read(&headers, peer.ip(), app.door.trusted_proxies);
    let page = match app.door.origins.check(&headers, &seen) {
        Ok(page) => page,
        Err(refused) => return (StatusCode::FORBIDDEN, format!("{refused}\n")).into_response(),
    };
    let ip_max = app.scope.limits.sessions_per_ip;
    let waiting = join::place(ip_max, |most| unjoined.take(seen.ip, usize::MAX, most));
    let Some(waiting) = waiting else {
        app.metrics.limited(Limited::IpSessions);
        let later = [(header::RETRY_AFTER, SESSIONS_WAIT.as_secs().to_string())];
        let why = "too many sockets of this address have not joined yet\n";
        return (StatusCode::TOO_MANY_REQUESTS, later, why).into_response();
    };
    let caller = join::Caller {
        ip: seen.ip,
        page,
        session: crate::sign_in::session_of(&headers),
    };
    let most = app.scope.message_bytes_max();
    let tracker = app.sessions.clone();
    upgrade
        .max_message_size(most)
        .max_frame_size(most)
        .read_buffer_size(SOCKET_READ_BYTES)
        .write_buffer_size(SOCKET_WRITE_BYTES)
        .on_upgrade(move |socket| tracker.track_future(talk(app, (seat, waiting), caller, socket)))
}

/// Where a socket is counted: for as long as it stands, and until it has joined.
type Held = (Arc<Seat>, Option<Slot<IpAddr>>);

/// A browser's whole visit.
async fn talk(app: App, (seat, waiting): Held, caller: join::Caller, mut socket: WebSocket) {
    // Each stage in a place of its own: an idle browser takes no memory for what letting it in needed.
    let goodbye = match Box::pin(join::join(&app, caller, waiting, &mut socket)).await {
        Ok(joined) => Box::pin(serve::serve(&app, joined, &seat, &mut socket)).await,
        Err(goodbye) => goodbye,
    };
    if goodbye == Goodbye::DeadPeer {
        app.metrics.peers_dead.increment(1);
    }
    if let Some(frame) = goodbye.frame() {
        let closing = async {
            socket.send(Message::Close(Some(frame))).await.ok()?;
            // Until the browser has said goodbye as well, so that it sees the code.
            while let Some(Ok(_)) = socket.recv().await {}
            Some(())
        };
        let _ = tokio::time::timeout(GOODBYE_TIMEOUT, closing).await;
    }
    drop(socket);
    drop(seat);
}

/// Answers a first message. Whoever does not take the answer is not waited for.
async fn say<S>(socket: &mut S, most: Duration, text: String) -> Result<(), Goodbye>
where
    S: Sink<Message> + Unpin,
{
    let saying = socket.send(Message::Text(text.into()));
    match tokio::time::timeout(most, saying).await {
        Ok(said) => said.map_err(|_| Goodbye::Gone),
        Err(_) => Err(Goodbye::DeadPeer),
    }
}

/// What reading from a socket failed with.
fn failed(error: axum::Error) -> Goodbye {
    use tokio_tungstenite::tungstenite;
    match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(_)) => Goodbye::TooLarge,
        _ => Goodbye::Gone,
    }
}

#[cfg(test)]
mod tests;
