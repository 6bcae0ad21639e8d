//! The life of a gateway: start, serve, drain, stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Shared};
use crate::config::{Config, ConfigRefused};
use crate::door::{Door, DoorRefused};
use crate::limits::{DRAIN_TIMEOUT, SWEEP_INTERVAL, UPKEEP_INTERVAL};
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::rooms::Rooms;
use crate::scope::buckets::People;
use crate::scope::{Scope, ScopeRefused};
use crate::upstream::reach::{Reach, RootsRefused};
use crate::{http, listen};

/// What a gateway is started with beside its configuration, by a process that embeds it.
#[derive(Debug, Default)]
pub struct Embedding {
    /// The text of the scope file, in place of the file the configuration names.
    pub scope: Option<String>,
    /// Files to serve when the configuration names no directory.
    pub pages: Option<Pages>,
}

/// Why a gateway did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartRefused {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigRefused),
    /// What the configuration says of who lets people in.
    #[error(transparent)]
    Door(#[from] DoorRefused),
    /// The scope file cannot be read.
    #[error("scope_file: {}: {source}", path.display())]
    ScopeFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The scope file says something that cannot be.
    #[error("the scope file is refused: {0}")]
    Scope(#[from] ScopeRefused),
    /// Trusted roots.
    #[error(transparent)]
    Roots(#[from] RootsRefused),
    /// The listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A running gateway. Dropping it without [`Running::shutdown`] is a crash as far as browsers can tell.
#[derive(Debug)]
pub struct Running {
    app: App,
    address: SocketAddr,
    stop: CancellationToken,
    connections: TaskTracker,
    tasks: TaskTracker,
}

/// Starts a gateway from its configuration.
///
/// # Errors
/// [`StartRefused`] says what to change.
pub async fn start(config: Config, embedding: Embedding) -> Result<Running, StartRefused> {
    config.check(embedding.scope.is_some())?;
    let scope = Arc::new(read_scope(&config, embedding.scope)?);
    let door = Door::open(&config, scope.limits.trusted_proxies)?;
    let reach = Reach::read(&config, &door.identity)?;
    let (listener, address) = bind(config.listen).await?;
    let console = door.console(&config)?;
    let app = App::new(Shared {
        metrics: Metrics::new(),
        people: People::new(&scope.limits),
        rooms: Rooms::default(),
        at_ip: Arc::default(),
        of_person: Arc::default(),
        feeds: Arc::default(),
        watches: Arc::default(),
        beacons: Arc::default(),
        started: Instant::now(),
        reach,
        scope,
        door,
        console,
        draining: CancellationToken::new(),
        sessions: TaskTracker::new(),
        config,
    });
    let running = Running {
        address,
        stop: CancellationToken::new(),
        connections: TaskTracker::new(),
        tasks: TaskTracker::new(),
        app: app.clone(),
    };
    let router = http::router(app.clone(), embedding.pages);
    let accepting = listen::accept(listener, app.clone(), router, running.connections.clone());
    running.tasks.spawn(accepting);
    running.tasks.spawn(upkeep(app, running.stop.clone()));
    tracing::info!(%address, "the gateway is ready");
    Ok(running)
}

impl Running {
    /// Where browsers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more browsers, tells those it has to go elsewhere, lets their writes finish, closes. `true` when all
    /// were gone in time.
    pub async fn shutdown(self) -> bool {
        self.app.draining.cancel();
        self.connections.close();
        self.app.sessions.close();
        let drained = async {
            self.connections.wait().await;
            self.app.sessions.wait().await;
        };
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_ok();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        drained
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartRefused> {
    let refused = |source| StartRefused::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

fn read_scope(config: &Config, embedded: Option<String>) -> Result<Scope, StartRefused> {
    let text = match (embedded, &config.scope_file) {
        (Some(text), _) => text,
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|source| StartRefused::ScopeFile {
                path: path.clone(),
                source,
            })?
        }
        // The check of the configuration has seen that there is one.
        (None, None) => String::new(),
    };
    Ok(Scope::parse(&text)?)
}

async fn upkeep(app: App, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                app.metrics.upkeep();
                app.metrics.feeds.set((app.feeds.len() + app.watches.len()) as f64);
            }
            _ = sweeps.tick() => app.people.sweep(app.uptime()),
        }
    }
}
