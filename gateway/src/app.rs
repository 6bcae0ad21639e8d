//! What every request and every session of a gateway shares.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::console::Console;
use crate::door::Door;
use crate::metrics::Metrics;

/// A gateway's shared state. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

/// What there is of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
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
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
