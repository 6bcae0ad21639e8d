//! One live connection to a broker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_wire::message::Auth;
use quinn::{Connection, VarInt};
use tokio::task::AbortHandle;

use crate::address::Address;
use crate::asks::Line;
use crate::flight::Flight;
use crate::publish::{Pipe, TokenUsed};
use crate::router::Router;
use crate::session::{Granted, NotAsked, Opened, Wants, open};

/// Close code of a client that goes away in good order.
const CLOSE_DONE: VarInt = VarInt::from_u32(0);

/// A connection on which a token was accepted. Closed when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) broker: Address,
    pub(crate) granted: Granted,
    pub(crate) router: Arc<Router>,
    /// The stream for calls, once there was one to send.
    pub(crate) line: tokio::sync::Mutex<Option<Line>>,
    carrier: Option<Carrier>,
    pipe: Arc<PipeSlot>,
    limits: PipeLimits,
}

/// A connection that is somebody else's, with what was started on it for us.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) link: Arc<Link>,
    pub(crate) keeper: Option<AbortHandle>,
}

/// Which connection to which broker, and whose.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) connection: Connection,
    pub(crate) broker: Address,
    /// `None` for a connection of our own.
    pub(crate) carrier: Option<Carrier>,
}

/// What every publish stream of a connection is bounded by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipeLimits {
    pub(crate) inflight_bytes: u32,
    pub(crate) timeout: Duration,
}

impl PipeLimits {
    fn start(self, opened: Opened, key: TokenUsed) -> Pipe {
        Pipe::start(opened, key, self.inflight_bytes, self.timeout)
    }
}

#[derive(Debug)]
struct PipeSlot(Mutex<PipeState>);

#[derive(Debug)]
enum PipeState {
    /// Perhaps lost by now.
    Open(Pipe),
    Opening(Flight<Result<Pipe, NotAsked>>),
    Failed,
}

impl Link {
    /// The stream on which the token was accepted becomes the first publish stream.
    pub(crate) fn new(place: Place, opened: Opened, key: TokenUsed, limits: PipeLimits) -> Self {
        let Place {
            connection,
            broker,
            carrier,
        } = place;
        let granted = opened.granted;
        // Whoever owns the connection hears what the broker opens on it.
        let router = match &carrier {
            None => Router::start(connection.clone()),
            Some(carrier) => Arc::clone(&carrier.link.router),
        };
        let pipe = PipeState::Open(limits.start(opened, key));
        let pipe = Arc::new(PipeSlot(Mutex::new(pipe)));
        Self {
            connection,
            broker,
            granted,
            router,
            line: tokio::sync::Mutex::new(None),
            carrier,
            pipe,
            limits,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// The publish stream; a new one, opened with this token, when the last has ended.
    pub(crate) async fn pipe(&self, tenant: &str, key: TokenUsed) -> Result<Pipe, NotAsked> {
        let flight = {
            let mut state = self.pipe.lock();
            match &*state {
                PipeState::Open(pipe) if !pipe.is_lost() => return Ok(pipe.clone()),
                PipeState::Opening(flight) => flight.clone(),
                PipeState::Open(_) | PipeState::Failed => {
                    let flight = self.open_another(PUBLISHES.auth(tenant, &key.token), key);
                    *state = PipeState::Opening(flight.clone());
                    flight
                }
            }
        };
        flight.landed().await.unwrap_or_else(|| {
            Err(NotAsked::Lost {
                sent: false,
                why: "the stream was not opened".to_owned(),
            })
        })
    }

    fn open_another(&self, auth: Auth, key: TokenUsed) -> Flight<Result<Pipe, NotAsked>> {
        let connection = self.connection.clone();
        let (slot, limits) = (Arc::clone(&self.pipe), self.limits);
        Flight::launch(async move {
            let pipe = match tokio::time::timeout(limits.timeout, open(&connection, auth)).await {
                Ok(opened) => opened.map(|opened| limits.start(opened, key)),
                Err(_) => Err(NotAsked::Lost {
                    sent: false,
                    why: "timed out".to_owned(),
                }),
            };
            *slot.lock() = pipe
                .as_ref()
                .map_or(PipeState::Failed, |pipe| PipeState::Open(pipe.clone()));
            pipe
        })
    }

    /// The publish stream as it is, if it is open.
    pub(crate) fn open_pipe(&self) -> Option<Pipe> {
        match &*self.pipe.lock() {
            PipeState::Open(pipe) if !pipe.is_lost() => Some(pipe.clone()),
            PipeState::Open(_) | PipeState::Opening(_) | PipeState::Failed => None,
        }
    }

    /// Closes the connection, or what is ours on somebody else's.
    pub(crate) fn close(&self) {
        let Some(carrier) = &self.carrier else {
            return self.connection.close(CLOSE_DONE, b"");
        };
        if let Some(keeper) = &carrier.keeper {
            keeper.abort();
        }
        if let Some(pipe) = self.open_pipe() {
            pipe.end();
        }
        if let Ok(line) = self.line.try_lock()
            && let Some(line) = &*line
        {
            line.end();
        }
    }
}

/// What a publish stream asks for.
pub(crate) const PUBLISHES: Wants = Wants {
    records: true,
    publishers: false,
    timestamps: false,
    // Not used there: what the broker grants here tells what to open another stream for.
    requests: true,
    raw: true,
    reauth: true,
};

impl PipeSlot {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
