//! What every handler may use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use felix_auth::fetch::HttpFetch;
use felix_auth::oidc::{Fetch, Verifier};
use tokio_util::sync::CancellationToken;

use crate::audit::{Index, Notebook};
use crate::authority::Authority;
use crate::config::Config;
use crate::ledger::raft::Core;
use crate::stats::Stats;
use crate::throttle::Throttle;

/// Shared by all listeners of one control plane.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) authority: Authority,
    pub(crate) config: Arc<Config>,
    pub(crate) stats: Arc<Stats>,
    /// What is to be remembered and changes nothing.
    pub(crate) notebook: Arc<Notebook>,
    /// Where each line of an audit is.
    pub(crate) index: Arc<Index>,
    /// The member of a raft ledger that this process is. Weak, because the ledger must be able to end.
    pub(crate) member: Option<Weak<Core>>,
    /// Set when the end begins; held requests are answered at once then.
    pub(crate) stopping: CancellationToken,
    /// Decides whom identity providers vouch for.
    pub(crate) verifier: Verifier,
    /// Gets what providers publish.
    pub(crate) fetch: Arc<HttpFetch>,
    /// Slows down who fails to prove who he is.
    pub(crate) throttle: Throttle,
    draining: Arc<AtomicBool>,
}

impl App {
    pub(crate) fn new(authority: Authority, config: Config) -> Self {
        // A configuration that got here was checked.
        let roots = config.oidc_roots().unwrap_or_default();
        let fetch = Arc::new(HttpFetch::trusting(config.oidc_addresses(), roots));
        let algorithms = config.oidc_algorithms().unwrap_or_default();
        Self {
            verifier: Verifier::new(Arc::clone(&fetch) as Arc<dyn Fetch>, algorithms),
            fetch,
            throttle: Throttle::default(),
            authority,
            config: Arc::new(config),
            stats: Arc::default(),
            notebook: Arc::default(),
            index: Arc::default(),
            member: None,
            stopping: CancellationToken::new(),
            draining: Arc::default(),
        }
    }

    pub(crate) fn with_member(self, member: Option<&Arc<Core>>) -> Self {
        let member = member.map(Arc::downgrade);
        Self { member, ..self }
    }

    /// Lets go of everything else.
    pub(crate) fn into_authority(self) -> Authority {
        self.authority
    }

    /// Whether to send callers here.
    pub(crate) fn is_ready(&self) -> bool {
        self.authority.is_healthy() && !self.is_draining()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Marks this control plane as going away, while it still serves.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
