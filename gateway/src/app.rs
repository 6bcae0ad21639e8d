//! What every request and every session of a gateway shares.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use felix_process::Slots;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::console::Console;
use crate::door::Door;
use crate::metrics::Metrics;
use crate::rooms::Rooms;
use crate::scope::Scope;
use crate::scope::buckets::People;
use crate::upstream::feed::Feeds;
use crate::upstream::reach::Reach;
use crate::upstream::watched::Watches;

/// A gateway's shared state. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

/// What there is of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) scope: Arc<Scope>,
    /// What people have left of their limits.
    pub(crate) people: People,
    /// Scopes whose streams and caches are there.
    pub(crate) rooms: Rooms,
    /// Sessions by address and by person.
    pub(crate) at_ip: Arc<Slots<IpAddr>>,
    pub(crate) of_person: Arc<Slots<Arc<str>>>,
    /// How brokers are reached.
    pub(crate) reach: Reach,
    /// Subscriptions that browsers share.
    pub(crate) feeds: Arc<Feeds>,
    /// And watches.
    pub(crate) watches: Arc<Watches>,
    /// Beacons that are carried out, by where they come from.
    pub(crate) beacons: Arc<Slots<IpAddr>>,
    /// When this gateway started: what its own times count from.
    pub(crate) started: Instant,
    /// Who lets people in.
    pub(crate) door: Door,
    /// Who looks at the console.
    pub(crate) console: Console,
    /// Cancelled when the gateway drains: sessions say goodbye.
    pub(crate) draining: CancellationToken,
    /// Every session, so that a drain can wait for them.
    pub(crate) sessions: TaskTracker,
}

impl App {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// How long this gateway runs.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
