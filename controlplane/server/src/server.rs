//! The life of a control plane: open, listen, serve, drain.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use felix_journal::DataDirRefused;
use felix_meta::http::{DevTokenSpec, InitializeAnswer, InitializeSpec, TokenAnswer};
use felix_model::TenantId;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::App;
use crate::authority::{Authority, StartFailed};
use crate::config::{Config, ConfigRefused, StorageBackend};
use crate::door::{self, Certificates, Door, TlsRefused};
use crate::housekeeping;
use crate::http;
use crate::ledger::raft::{Core, RaftRefused};
use crate::ledger::{AddressRefused, MemoryLedger, OpenFailed, PostgresRefused};
use crate::limits::DRAIN_TIME;
use crate::place;

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunFailed {
    /// The configuration does not fit together.
    #[error(transparent)]
    Config(#[from] ConfigRefused),
    /// The data directory cannot be used.
    #[error("data directory {dir}: {detail}")]
    DataDir {
        /// The directory.
        dir: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The data directory is somebody else's, or in use.
    #[error(transparent)]
    Refused(#[from] DataDirRefused),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenFailed),
    /// The URL of the database is of no use.
    #[error(transparent)]
    Address(#[from] AddressRefused),
    /// The ledger in a database cannot be opened.
    #[error(transparent)]
    Postgres(#[from] PostgresRefused),
    /// The raft ledger cannot be opened.
    #[error(transparent)]
    Raft(Box<RaftRefused>),
    /// The ledger cannot be read.
    #[error(transparent)]
    State(#[from] StartFailed),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {what}: {detail}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What for.
        what: &'static str,
        /// What happened.
        detail: String,
    },
}

impl From<RaftRefused> for RunFailed {
    fn from(refused: RaftRefused) -> Self {
        Self::Raft(Box::new(refused))
    }
}

/// Where a control plane listens, with the ports that were really taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The API.
    pub api: SocketAddr,
    /// Probes and metrics.
    pub metrics: SocketAddr,
    /// The bootstrap listener, if it is enabled.
    pub bootstrap: Option<SocketAddr>,
}

/// A refusal of a call from inside the process, as an HTTP caller would be told it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallRefused {
    /// The code of the error body.
    pub code: &'static str,
    /// The message of the error body.
    pub message: String,
}

impl From<http::Refusal> for CallRefused {
    fn from(refusal: http::Refusal) -> Self {
        Self {
            code: refusal.code,
            message: refusal.message,
        }
    }
}

/// Mints development tokens, as the bootstrap listener would with `bootstrap_dev_tokens`. A control plane waits for the
/// last of these before its ledger is closed.
#[derive(Clone, Debug)]
pub struct DevTokens(App);

impl DevTokens {
    /// Mints one.
    ///
    /// # Errors
    /// [`CallRefused`].
    pub fn mint(&self, tenant: &TenantId, spec: &DevTokenSpec) -> Result<TokenAnswer, CallRefused> {
        Ok(http::dev_token(&self.0, tenant, spec)?)
    }
}

/// A control plane that serves. Dropping it stops it at once; [`ControlPlane::shutdown`] stops it in order.
#[derive(Debug)]
pub struct ControlPlane {
    app: App,
    addresses: Addresses,
    listeners: JoinSet<()>,
    /// Answers probes until the others have ended.
    probes: JoinHandle<()>,
    probes_end: DropGuard,
}

impl ControlPlane {
    /// Opens the ledger and serves on the configured addresses. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`RunFailed`]; nothing runs on then.
    pub async fn start(config: Config) -> Result<Self, RunFailed> {
        config.check()?;
        let kind = config.backend();
        if kind == StorageBackend::Memory {
            tracing::warn!(
                "the ledger is in memory: everything is forgotten when this process ends"
            );
        }
        let opening = config.clone();
        // Opening reads and checks the whole ledger, which is too much to do on a runtime thread.
        let (authority, member) = tokio::task::spawn_blocking(move || {
            let (ledger, member) = place::open_with_member(&opening, kind)?;
            Ok::<_, RunFailed>((Authority::start(ledger)?, member))
        })
        .await
        .map_err(|error| StartFailed::Thread(error.to_string()))??;
        Self::serve(config, authority, member).await
    }

    /// As [`ControlPlane::start`], but keeps nothing: everything is forgotten when it ends, and `data_dir` is not used.
    ///
    /// # Errors
    /// [`RunFailed`]; nothing runs on then.
    pub async fn start_ephemeral(config: Config) -> Result<Self, RunFailed> {
        config.check()?;
        let authority = Authority::start(Box::new(MemoryLedger::new()))?;
        Self::serve(config, authority, None).await
    }

    async fn serve(
        config: Config,
        authority: Authority,
        member: Option<Arc<Core>>,
    ) -> Result<Self, RunFailed> {
        let app = App::new(authority, config).with_member(member.as_ref());
        let (tls, bootstrap_tls) = door::certificates(&app.config)?;
        let api = listen(app.config.bind, "the API").await?;
        let metrics = listen(app.config.metrics_bind, "metrics").await?;
        let bootstrap = match app.config.bootstrap_enabled {
            true => Some(listen(app.config.bootstrap_bind_addr, "bootstrap").await?),
            false => None,
        };
        let addresses = Addresses {
            api: api.1,
            metrics: metrics.1,
            bootstrap: bootstrap.as_ref().map(|(_, address)| *address),
        };
        if !api.1.ip().is_loopback() && tls.is_none() {
            tracing::warn!(address = %api.1, "the API is not encrypted and other machines reach it");
        }
        let mut listeners = JoinSet::new();
        let open = |name, listener, certificates: &Option<Arc<Certificates>>, router, stop| {
            let door = Door {
                name,
                listener,
                certificates: certificates.clone(),
                stop,
            };
            door::serve(door, router, app.clone())
        };
        let stop = || app.stopping.clone();
        let router = http::api_router(app.clone());
        listeners.spawn(open("api", api.0, &tls, router, stop()));
        if let Some((listener, _)) = bootstrap {
            let router = http::bootstrap_router(app.clone());
            listeners.spawn(open("bootstrap", listener, &bootstrap_tls, router, stop()));
        }
        let certificates: Vec<_> = [tls, bootstrap_tls].into_iter().flatten().collect();
        if !certificates.is_empty() {
            listeners.spawn(door::watch_certificates(certificates, stop()));
        }
        let status = http::status_router(app.clone());
        let probes_end = CancellationToken::new();
        let probes = open("metrics", metrics.0, &None, status, probes_end.clone());
        let probes = tokio::spawn(probes);
        listeners.spawn(housekeeping::write_audit(app.clone()));
        listeners.spawn(housekeeping::expire_sessions(app.clone()));
        tracing::info!(
            api = %addresses.api,
            metrics = %addresses.metrics,
            bootstrap = addresses.bootstrap.map(tracing::field::display),
            "serving"
        );
        Ok(Self {
            app,
            addresses,
            listeners,
            probes,
            probes_end: probes_end.drop_guard(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The catalogue and its writer, for who runs in the same process.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.app.authority
    }

    /// Gives a tenant its first key and administrators, as the bootstrap listener would.
    ///
    /// # Errors
    /// [`CallRefused`]; code `already_initialized` when it was done before.
    pub async fn initialize(
        &self,
        tenant: &TenantId,
        spec: InitializeSpec,
    ) -> Result<InitializeAnswer, CallRefused> {
        Ok(http::initialize(&self.app, tenant, spec).await?)
    }

    /// Mints a token, as the bootstrap listener would with `bootstrap_dev_tokens`.
    ///
    /// # Errors
    /// [`CallRefused`].
    pub fn dev_token(
        &self,
        tenant: &TenantId,
        spec: &DevTokenSpec,
    ) -> Result<TokenAnswer, CallRefused> {
        self.dev_tokens().mint(tenant, spec)
    }

    /// Mints tokens later on, for a process that embeds this control plane.
    #[must_use]
    pub fn dev_tokens(&self) -> DevTokens {
        DevTokens(self.app.clone())
    }

    /// Writes down at once what is noted for the audit and would otherwise be written some seconds later.
    pub async fn write_audit(&self) {
        self.app.notebook.write(&self.app.authority).await;
    }

    /// Marks it as not ready while it goes on serving, so that callers go elsewhere.
    pub fn drain(&self) {
        self.app.drain();
    }

    /// Stops in order: held requests are answered, requests under way end, at most 25 s are given to them.
    pub async fn shutdown(self) {
        self.app.drain();
        self.app.stopping.cancel();
        let Self {
            app,
            mut listeners,
            probes,
            probes_end,
            ..
        } = self;
        let ended = async {
            while listeners.join_next().await.is_some() {}
            drop(probes_end);
            let _ = probes.await;
            // What was refused while requests ended was noted after the last regular writing.
            app.notebook.write(&app.authority).await;
            app.into_authority().ended().await;
        };
        if tokio::time::timeout(DRAIN_TIME, ended).await.is_err() {
            tracing::warn!("requests were cut off at shutdown");
        }
    }

    /// Serves until `signal` completes, then drains and stops. A second `signal` skips the wait for callers to notice.
    pub async fn run_until<F: Future<Output = ()>>(self, mut signal: impl FnMut() -> F) {
        signal().await;
        self.drain();
        let predrain = Duration::from_millis(self.app.config.shutdown_predrain_ms);
        tracing::info!(ms = self.app.config.shutdown_predrain_ms, "draining");
        tokio::select! {
            () = tokio::time::sleep(predrain) => {}
            () = signal() => {}
        }
        self.shutdown().await;
        tracing::info!("stopped");
    }
}

async fn listen(
    address: SocketAddr,
    what: &'static str,
) -> Result<(TcpListener, SocketAddr), RunFailed> {
    let failed = |error: std::io::Error| RunFailed::Listen {
        address,
        what,
        detail: error.to_string(),
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let taken = listener.local_addr().map_err(failed)?;
    Ok((listener, taken))
}
