//! The brokers a client knows, the connections it has to them, and how it comes by another when one is lost.
//!
//! The broker that answered first is the entry broker; everything goes there unless a redirect says otherwise.
//! Brokers given by the user stay candidates for good; those learned from a broker are replaced by what is learned
//! next. A broker that failed is tried last.

mod over;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_wire::error::Code;
use felix_wire::message::Message;
use felix_wire::negotiate::Features;
use quinn::Connection;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::over::{Connected, Way};
use crate::address::Address;
use crate::backoff::{self, Backoff};
use crate::builder::Config;
use crate::candidates::{Candidate, Candidates};
use crate::error::{Attempt, ConnectFailed};
use crate::flight::{Finally, Flight};
use crate::link::{Link, PUBLISHES, PipeLimits};
use crate::publish::{Pipe, TokenUsed};
use crate::session::{NotAsked, Opened, Wants, ask, is_about_token, open};
use crate::transport::{Transport, judgement};

/// Pause before the next address is dialled beside one that has not answered.
const STAGGER: Duration = Duration::from_millis(250);

/// Connections by what they are for, and their making.
#[derive(Debug)]
pub(crate) struct Brokers {
    pub(crate) config: Config,
    way: Way,
    state: Mutex<State>,
}

type Made = Result<Arc<Link>, ConnectFailed>;
type Making<'a> = Pin<Box<dyn Future<Output = Made> + Send + 'a>>;

#[derive(Debug, Default)]
struct State {
    candidates: Candidates,
    /// Every live connection, by broker and slot.
    links: BTreeMap<(Address, usize), Arc<Link>>,
    /// The entry broker's, by slot.
    entry: BTreeMap<usize, Arc<Link>>,
    seeking: BTreeMap<usize, Flight<Made>>,
    dialling: BTreeMap<(Address, usize), Flight<Made>>,
    closed: bool,
}

/// Whether a failure ends the search.
enum DialFailed {
    /// The token was refused, or there is none: no other broker will judge differently.
    Final(ConnectFailed),
    Attempt(Attempt),
}

impl Brokers {
    pub(crate) fn new(config: Config, transport: Transport) -> Arc<Self> {
        let candidates = Candidates::given(&config.brokers);
        let state = Mutex::new(State {
            candidates,
            ..State::default()
        });
        Arc::new(Self {
            config,
            way: Way::Dial(Box::new(transport)),
            state,
        })
    }

    /// A connection to the entry broker, waiting as long as the reconnect policy says.
    pub(crate) async fn entry(self: &Arc<Self>, slot: usize) -> Made {
        let flight = {
            let mut state = self.lock();
            if state.closed {
                return Err(ConnectFailed::Closed);
            }
            if let Some(link) = state.entry.get(&slot).filter(|link| link.is_alive()) {
                return Ok(Arc::clone(link));
            }
            let seek = || Flight::launch(Arc::clone(self).seek(slot));
            state.seeking.entry(slot).or_insert_with(seek).clone()
        };
        flight
            .landed()
            .await
            .unwrap_or(Err(ConnectFailed::NoBroker {
                attempts: Vec::new(),
            }))
    }

    /// The first connection: every candidate is tried once.
    pub(crate) async fn first(self: &Arc<Self>) -> Made {
        let link = self.pass(0).await?;
        self.entered(0, &link);
        Ok(link)
    }

    /// A connection to one broker, for a redirect. Tried once.
    pub(crate) async fn to(self: &Arc<Self>, address: Address, slot: usize) -> Made {
        let candidate = Candidate {
            address,
            learned: true,
        };
        self.to_candidate(candidate, slot).await
    }

    /// As [`Self::to`]. The box ends a recursion: a connection of somebody else's is come by in the same way.
    fn to_candidate(self: &Arc<Self>, candidate: Candidate, slot: usize) -> Making<'_> {
        Box::pin(async move {
            let key = (candidate.address.clone(), slot);
            let flight = {
                let mut state = self.lock();
                if state.closed {
                    return Err(ConnectFailed::Closed);
                }
                if let Some(link) = state.links.get(&key).filter(|link| link.is_alive()) {
                    return Ok(Arc::clone(link));
                }
                let dial = || Flight::launch(Arc::clone(self).dial_once(candidate, slot));
                state.dialling.entry(key).or_insert_with(dial).clone()
            };
            let none = || ConnectFailed::NoBroker {
                attempts: Vec::new(),
            };
            flight.landed().await.unwrap_or_else(|| Err(none()))
        })
    }

    async fn dial_once(self: Arc<Self>, candidate: Candidate, slot: usize) -> Made {
        let key = (candidate.address.clone(), slot);
        let _landed = Finally(|| drop(self.lock().dialling.remove(&key)));
        self.dial(&candidate, slot)
            .await
            .map_err(|failed| match failed {
                DialFailed::Final(failed) => failed,
                DialFailed::Attempt(attempt) => ConnectFailed::nowhere(vec![attempt]),
            })
    }

    /// The publish stream to the entry broker.
    pub(crate) async fn pipe(self: &Arc<Self>, slot: usize) -> Result<Pipe, ConnectFailed> {
        let started = Instant::now();
        let mut backoff = Backoff::new(self.config.reconnect);
        loop {
            let link = self.entry(slot).await?;
            if let Some(pipe) = link.open_pipe() {
                return Ok(pipe);
            }
            let attempt = match self.pipe_on(&link).await {
                Ok(pipe) => return Ok(pipe),
                Err(DialFailed::Final(failed)) => return Err(failed),
                Err(DialFailed::Attempt(attempt)) => attempt,
            };
            let wait = backoff.next(started.elapsed(), Duration::ZERO, backoff::random());
            let Some(wait) = wait else {
                return Err(ConnectFailed::nowhere(vec![attempt]));
            };
            sleep(wait).await;
        }
    }

    async fn pipe_on(&self, link: &Link) -> Result<Pipe, DialFailed> {
        let mut refused = None;
        loop {
            let token = self.token(refused.as_deref()).await?;
            let key = TokenUsed {
                source: self.config.token.clone(),
                token: Arc::clone(&token),
            };
            match link.pipe(self.config.tenant.as_str(), key).await {
                Ok(pipe) => return Ok(pipe),
                Err(NotAsked::Unwelcome(failure))
                    if refused.is_none() && is_about_token(&failure) =>
                {
                    if !self.config.token.invalidate(&token) {
                        return Err(DialFailed::Final(ConnectFailed::Refused(failure.into())));
                    }
                    refused = Some(token);
                }
                Err(error) => return Err(failed_at(&link.broker, error)),
            }
        }
    }

    /// A token, which must be another than the one refused before.
    async fn token(&self, refused: Option<&str>) -> Result<Arc<str>, DialFailed> {
        let token = self.config.token.token().await;
        let token = token.map_err(|failed| DialFailed::Final(failed.into()))?;
        if refused == Some(&*token) {
            let failure = felix_wire::Failure::new(Code::Unauthenticated, "the token was refused");
            return Err(DialFailed::Final(ConnectFailed::Refused(failure.into())));
        }
        Ok(token)
    }

    async fn seek(self: Arc<Self>, slot: usize) -> Made {
        let _landed = Finally(|| drop(self.lock().seeking.remove(&slot)));
        let started = Instant::now();
        let mut backoff = Backoff::new(self.config.reconnect);
        loop {
            if self.lock().closed {
                return Err(ConnectFailed::Closed);
            }
            let failed = match self.pass(slot).await {
                Ok(link) => {
                    self.entered(slot, &link);
                    return Ok(link);
                }
                Err(failed) if failed.may_pass() => failed,
                Err(failed) => return Err(failed),
            };
            let wait = backoff.next(started.elapsed(), Duration::ZERO, backoff::random());
            let Some(wait) = wait else { return Err(failed) };
            tracing::info!(%failed, wait_ms = wait.as_millis(), "no broker answered; trying again");
            sleep(wait).await;
        }
    }

    /// Tries every candidate once, each a little after the one before or as soon as that one failed.
    async fn pass(self: &Arc<Self>, slot: usize) -> Made {
        let candidates = self.lock().candidates.in_order();
        let mut left = candidates.into_iter();
        let mut dials = JoinSet::new();
        let mut attempts = Vec::new();
        loop {
            let next = left.next();
            let more = next.is_some();
            if let Some(candidate) = next {
                let this = Arc::clone(self);
                dials.spawn(async move {
                    let made = this.dial(&candidate, slot).await;
                    (candidate.address, made)
                });
            }
            let pause = sleep(STAGGER);
            let dialled = tokio::select! {
                biased;
                Some(dialled) = dials.join_next() => dialled,
                () = pause, if more => continue,
                else => return Err(ConnectFailed::nowhere(attempts)),
            };
            match dialled {
                Ok((address, Ok(link))) => {
                    self.lock().candidates.prefer(&address);
                    return Ok(link);
                }
                Ok((_, Err(DialFailed::Final(failed)))) => return Err(failed),
                Ok((address, Err(DialFailed::Attempt(attempt)))) => {
                    self.lock().candidates.put_last(&address);
                    attempts.push(attempt);
                }
                Err(error) => tracing::error!(%error, "a dial panicked"),
            }
        }
    }

    async fn dial(
        self: &Arc<Self>,
        candidate: &Candidate,
        slot: usize,
    ) -> Result<Arc<Link>, DialFailed> {
        let dialled = timeout(self.config.connect_timeout, self.connect(candidate, slot)).await;
        let connected = dialled.unwrap_or_else(|_| {
            let limit = self.config.connect_timeout.as_secs_f64();
            Err(attempt(
                &candidate.address,
                format!("timed out after {limit} s"),
            ))
        })?;
        let link = Arc::new(self.link(candidate.address.clone(), connected));
        let mut state = self.lock();
        if state.closed {
            return Err(DialFailed::Final(ConnectFailed::Closed));
        }
        state.links.retain(|_, link| link.is_alive());
        state
            .links
            .insert((candidate.address.clone(), slot), Arc::clone(&link));
        Ok(link)
    }

    fn limits(&self) -> PipeLimits {
        PipeLimits {
            inflight_bytes: self.config.inflight_bytes,
            timeout: self.config.request_timeout,
        }
    }

    async fn connect(&self, candidate: &Candidate, slot: usize) -> Result<Connected, DialFailed> {
        let transport = match &self.way {
            Way::Dial(transport) => transport,
            Way::Over(carrier) => return self.attach(carrier, candidate, slot).await,
        };
        let address = &candidate.address;
        let resolved = address.resolve().await;
        let resolved = resolved.map_err(|error| attempt(address, error.to_string()))?;
        let name = address.server_name(self.config.server_name.as_deref(), candidate.learned);
        let mut last = attempt(address, "the name has no address".to_owned());
        for remote in resolved {
            match transport.dial(remote, name).await {
                Ok(connection) => {
                    let authenticated = self.authenticate(address, &connection).await;
                    let (opened, token) =
                        authenticated.map_err(|failed| failed.explained(&connection))?;
                    return Ok(Connected {
                        connection,
                        carrier: None,
                        opened,
                        token,
                    });
                }
                Err(error) => {
                    let certificate = error.certificate();
                    last = DialFailed::Attempt(Attempt {
                        broker: address.to_string(),
                        why: error.to_string(),
                        certificate,
                    });
                }
            }
        }
        Err(last)
    }

    async fn authenticate(
        &self,
        address: &Address,
        connection: &Connection,
    ) -> Result<(Opened, Arc<str>), DialFailed> {
        let mut refused: Option<Arc<str>> = None;
        loop {
            let token = self.token(refused.as_deref()).await?;
            let auth = PUBLISHES.auth(self.config.tenant.as_str(), &token);
            match open(connection, auth).await {
                Ok(opened) => return Ok((opened, token)),
                Err(NotAsked::Unwelcome(failure)) if is_about_token(&failure) => {
                    if refused.is_some() || !self.config.token.invalidate(&token) {
                        return Err(DialFailed::Final(ConnectFailed::Refused(failure.into())));
                    }
                    refused = Some(token);
                }
                Err(error) => return Err(failed_at(address, error)),
            }
        }
    }

    fn entered(self: &Arc<Self>, slot: usize, link: &Arc<Link>) {
        tracing::debug!(broker = %link.broker, slot, "connected");
        self.lock().entry.insert(slot, Arc::clone(link));
        if slot == 0 && link.granted.features.contains(Features::TOPOLOGY) {
            let (this, link) = (Arc::clone(self), Arc::clone(link));
            tokio::spawn(async move { this.learn(&link).await });
        }
    }

    /// Asks the broker for the others. Not knowing them is no failure.
    async fn learn(&self, link: &Link) {
        let Ok(token) = self.config.token.token().await else {
            return;
        };
        let auth = Wants::default().auth(self.config.tenant.as_str(), &token);
        let asked = ask(&link.connection, auth, Message::Topology);
        if let Ok(Ok((_, Message::TopologyView(view)))) =
            timeout(self.config.request_timeout, asked).await
        {
            let learned = view
                .brokers
                .iter()
                .filter_map(|broker| broker.addr.parse().ok());
            self.lock().candidates.learn(learned.collect());
        }
    }

    /// Every open publish stream.
    pub(crate) fn pipes(&self) -> Vec<Pipe> {
        self.lock()
            .links
            .values()
            .filter_map(|link| link.open_pipe())
            .collect()
    }

    /// Refuses what comes, and closes every connection.
    pub(crate) fn close(&self) {
        let links = {
            let mut state = self.lock();
            state.closed = true;
            state.entry.clear();
            std::mem::take(&mut state.links)
        };
        for link in links.values() {
            link.close();
        }
    }

    pub(crate) async fn said_goodbye(&self) {
        // Connections that are not one's own stay.
        if let Way::Dial(transport) = &self.way {
            transport.drained().await;
        }
    }

    /// The entry broker at this moment, if its connection lives.
    pub(crate) fn current(&self) -> Option<Address> {
        let state = self.lock();
        state
            .entry
            .get(&0)
            .filter(|link| link.is_alive())
            .map(|link| link.broker.clone())
    }

    /// Which connection to the entry broker it is at this moment; another number after every reconnection.
    pub(crate) fn current_connection(&self) -> Option<usize> {
        let state = self.lock();
        let link = state.entry.get(&0).filter(|link| link.is_alive())?;
        Some(link.connection.stable_id())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DialFailed {
    /// With what the broker said when it closed the connection. It judges a client's certificate after the client takes
    /// its handshake for done, so that this is first heard by whoever reads from a stream.
    fn explained(self, connection: &Connection) -> Self {
        match self {
            Self::Attempt(attempt) => Self::Attempt(Attempt {
                certificate: connection
                    .close_reason()
                    .and_then(|closed| judgement(&closed)),
                ..attempt
            }),
            failed @ Self::Final(_) => failed,
        }
    }
}

fn attempt(address: &Address, why: String) -> DialFailed {
    DialFailed::Attempt(Attempt {
        broker: address.to_string(),
        why,
        certificate: None,
    })
}

fn failed_at(address: &Address, error: NotAsked) -> DialFailed {
    match error {
        NotAsked::Unwelcome(failure) if is_about_token(&failure) => {
            DialFailed::Final(ConnectFailed::Refused(failure.into()))
        }
        NotAsked::Unwelcome(failure) => attempt(address, failure.to_string()),
        NotAsked::Lost { why, .. } => attempt(address, why),
        NotAsked::Protocol { what } => attempt(address, what),
    }
}
