//! The life of a broker: start, serve, drain, stop.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use felix_auth::{Action, Principal, Resource};
use felix_controlplane_client::{CallFailed, FollowerState, Held};
use felix_journal::{DataDir, DataDirRefused, Journal, JournalOptions, RealDisk};
use felix_model::{CacheId, ClusterId, NodeId, StreamId, TimeMs};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Extension;
use felix_wire::flags::Flags;
use felix_wire::negotiate::{Features, Served};
use quinn::{Endpoint, VarInt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caches::{CacheHandle, CacheSpec, Caches};
use crate::config::{Config, ConfigRefused};
use crate::conn::near::Near;
use crate::conn::principals::Principals;
use crate::conn::standing::Standings;
use crate::fair::FairQueue;
use crate::follow::{follow, follow_changes};
use crate::limits::{DRAIN_TIMEOUT, EXPIRY_LOOK_INTERVAL, PUBLISH_WINDOW};
pub(crate) use crate::listing::{Listing, Subscriptions};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::names::{Names, spec};
use crate::paths::Paths;
use crate::quotas::Quotas;
use crate::shards::cell::now;
use crate::shards::{Shards, Store, StreamHandle, StreamSpec};
use crate::teams::Teams;
use crate::tls::{ClientRoots, Identity, ServerConfigs, TlsRefused};
use crate::{admin, listen};

/// How often retention is applied.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);

/// How often the streams that are compacted are looked at.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(2);
/// How often expired entries of caches are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often caches are looked at for the slower chores.
const CACHES_INTERVAL: Duration = Duration::from_secs(2);

/// How often a certificate on disk is looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);

/// How often held appends time out and histograms are folded.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// What every connection of a broker shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) names: Names,
    pub(crate) shards: Arc<Shards>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) queue: Arc<FairQueue>,
    pub(crate) served: Served,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) members: Members,
    pub(crate) teams: Teams,
    pub(crate) paths: Arc<Paths>,
    pub(crate) principals: Principals,
    pub(crate) standings: Arc<Standings>,
    pub(crate) quotas: Quotas,
    port: u16,
    draining: AtomicBool,
}

/// Why a broker did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartRefused {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigRefused),
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirRefused),
    /// The disk.
    #[error("the journal cannot start: {0}")]
    Journal(#[from] felix_journal::DiskError),
    /// The control plane.
    #[error("the catalogue cannot be had from the control plane: {0}")]
    ControlPlane(#[from] CallFailed),
    /// The control plane's address.
    #[error("controlplane_url: {0}")]
    Endpoint(String),
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What a broker is started with beside its configuration, by a process that embeds it.
#[derive(Debug, Default)]
pub struct Embedding {
    /// The certificate to show, in place of the one the configuration names.
    pub identity: Option<Identity>,
    /// The token for the control plane, in place of the file the configuration names. Unless there is a refresh token
    /// beside it, whoever gave it holds another one in time.
    pub token: Option<Held>,
    /// The cluster a new data directory is marked with; an existing one must carry it.
    pub cluster: Option<String>,
}

/// A running broker. Dropping it without [`Running::shutdown`] is a crash as far as clients can tell.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    address: SocketAddr,
    metrics_address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    connections: TaskTracker,
    _data_dir: Option<DataDir>,
}

/// How a broker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Logs whose last records could not be flushed.
    pub unflushed_logs: usize,
    /// Everything accepted was answered before the deadline.
    pub drained: bool,
}

/// Starts a broker from its configuration.
///
/// # Errors
/// [`StartRefused`] says what to change.
pub async fn start(config: Config, embedding: Embedding) -> Result<Running, StartRefused> {
    config.check()?;
    let identity = identity(&config, embedding.identity)?;
    let clients = config.tls_client_ca.as_deref();
    let clients = clients.map(|file| ClientRoots::read(file, config.tls_require_cert));
    let configs = Arc::new(ServerConfigs::new(&identity, clients.transpose()?)?);
    let metrics = Arc::new(Metrics::new());
    let (follower, credential) = follow(&config, embedding.token, &metrics).await?;
    let names = Names::new(follower);
    let bad_name = |_| ConfigRefused::Conflict("node_id and the cluster's name must be names");
    let node: NodeId = config.node_id.parse().map_err(bad_name)?;
    let cluster: ClusterId = embedding
        .cluster
        .as_deref()
        .unwrap_or("felix")
        .parse()
        .map_err(bad_name)?;
    let (data_dir, store) = match &config.data_dir {
        Some(directory) => {
            let (data_dir, store) = open_store(directory, &cluster, &node)?;
            (Some(data_dir), Some(store))
        }
        None => (None, None),
    };
    let endpoint =
        listen::open(config.listen, &configs).map_err(|source| StartRefused::Listen {
            address: config.listen,
            source,
        })?;
    let address = endpoint
        .local_addr()
        .map_err(|source| StartRefused::Listen {
            address: config.listen,
            source,
        })?;
    let admin = tokio::net::TcpListener::bind(config.metrics_listen)
        .await
        .map_err(|source| StartRefused::Listen {
            address: config.metrics_listen,
            source,
        })?;
    let metrics_address = admin.local_addr().map_err(|source| StartRefused::Listen {
        address: config.metrics_listen,
        source,
    })?;
    let shards = Shards::new(store, Arc::clone(&metrics));
    let shared = Arc::new(Shared {
        members: Members::new(&shards),
        caches: Caches::new(Arc::clone(&shards), Arc::clone(&metrics)),
        shards,
        queue: FairQueue::new(config.inflight_bytes),
        served: served(),
        subscriptions: Subscriptions::default(),
        teams: Teams::default(),
        paths: Arc::default(),
        principals: Principals::default(),
        standings: Arc::default(),
        quotas: Quotas::new(config.publish_quota.clone()),
        port: address.port(),
        draining: AtomicBool::new(false),
        config,
        metrics,
        names,
    });
    let running = Running {
        endpoint,
        address,
        metrics_address,
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        connections: TaskTracker::new(),
        shared,
        _data_dir: data_dir,
    };
    running.spawn(Arc::clone(&configs), admin);
    running.watch_certificate(configs, identity);
    if let Some(credential) = credential {
        let (metrics, stop) = (Arc::clone(&running.shared.metrics), running.stop.clone());
        running.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = credential.keep(|event| metrics.credential(event)) => {}
            }
        });
    }
    tracing::info!(%address, %metrics_address, "the broker is ready");
    Ok(running)
}

fn identity(config: &Config, given: Option<Identity>) -> Result<Identity, TlsRefused> {
    match (given, &config.tls_cert, &config.tls_key) {
        (Some(identity), _, _) => Ok(identity),
        (None, Some(cert), Some(key)) => Identity::read(cert, key),
        (None, _, _) => {
            tracing::warn!(
                "no certificate is configured; clients must trust one made for this run"
            );
            Identity::self_signed()
        }
    }
}

fn open_store(
    directory: &Path,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<(DataDir, Store), StartRefused> {
    let disk: Arc<dyn felix_journal::Disk> = Arc::new(RealDisk);
    let data_dir = DataDir::open(disk.as_ref(), directory, cluster, node)?;
    let journal = Journal::start(Arc::clone(&disk), directory, JournalOptions::default())?;
    Ok((
        data_dir,
        Store {
            journal,
            disk,
            root: directory.to_owned(),
        },
    ))
}

/// What this build serves, and so advertises.
fn served() -> Served {
    Served {
        flags: Flags::ALL.without(Flags::EVENT_PUBLISHER),
        features: Features::TOPOLOGY
            | Features::REDIRECT
            | Features::STREAM_SHARDS
            | Features::CACHE_DELETE
            | Features::CACHE_WATCH
            | Features::CACHE_WATCH_RETAINED
            | Features::CACHE_CONDITIONAL
            | Features::COUNTERS
            | Features::CACHE_SHARDS
            | Features::IDEMPOTENT_PRODUCER
            | Features::ERROR_CODES
            | Features::SHARD_MOVED
            | Features::UNSUPPORTED
            | Features::SEQUENCE_REUSED
            | Features::PUBLISH_PIPELINE
            | Features::STREAM_PUBLISH_WINDOW
            | Features::SHARD_OWNERS
            | Features::ACK_ON_COMMIT
            | Features::SUBSCRIPTION_LAGGED
            | Features::RECORD_TIMESTAMPS
            | Features::PUBLISH_CONDITIONAL
            | Features::ATOMIC_COMMIT
            | Features::STREAM_READ
            | Features::SUBSCRIBE_QUEUE
            | Features::INSPECT
            | Features::STREAM_DELETED
            | Features::PUBLISH_WIDTH
            | Features::EXPLICIT_SHARD
            | Features::CONSUMER_GROUP
            | Features::GROUP_DEAD_LETTERS
            | Features::GROUP_CONSUMER
            | Features::GROUP_SKIPPED
            | Features::GROUP_ADMIN
            | Features::GROUP_CLAIM_CONTROL,
        publish_window: PUBLISH_WINDOW,
        listener_ports: Vec::new(),
        extensions: Extension::ALL.into_iter().collect(),
    }
}

impl Shared {
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether new clients are welcome, or why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.draining() {
            return Err("draining".into());
        }
        match &*self.names.follower().state().borrow() {
            // The catalogue held here decides while the control plane is away.
            FollowerState::Following | FollowerState::Retrying { .. } => Ok(()),
            FollowerState::TooOld { why } => Err(format!("catalogue: {why}")),
        }
    }

    /// Time since the start, for what does not ask what o'clock it is.
    pub(crate) fn elapsed(&self) -> TimeMs {
        TimeMs(u64::try_from(self.shards.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Where clients are told to find this broker.
    pub(crate) fn advertised(&self, reached_at: Option<IpAddr>) -> String {
        match &self.config.advertise {
            Some(address) => address.clone(),
            None => {
                let ip = if self.config.listen.ip().is_unspecified() {
                    reached_at
                        .unwrap_or_else(|| self.config.listen.ip())
                        .to_canonical()
                } else {
                    self.config.listen.ip()
                };
                let ip = if ip.is_unspecified() {
                    IpAddr::from([127, 0, 0, 1])
                } else {
                    ip
                };
                SocketAddr::new(ip, self.port).to_string()
            }
        }
    }

    /// A stream in service, or `None` when the catalogue does not have it.
    pub(crate) async fn find(&self, id: &StreamId) -> Option<Arc<StreamHandle>> {
        Some(self.shards.stream(self.names.stream(id).await?))
    }

    /// A stream in service.
    ///
    /// # Errors
    /// `not_found` with the names close to it that the principal may see.
    pub(crate) async fn stream(
        &self,
        id: &StreamId,
        principal: &Principal,
    ) -> Result<Arc<StreamHandle>, Failure> {
        match self.find(id).await {
            Some(handle) => Ok(handle),
            None => Err(self.missing(id, principal)),
        }
    }

    fn missing(&self, id: &StreamId, principal: &Principal) -> Failure {
        let (tenant, namespace) = (id.tenant.as_str(), id.namespace.as_str());
        let visible = |stream: &str| {
            let resource = Resource::Stream {
                tenant,
                namespace,
                stream,
            };
            principal.allows(Action::StreamPublish, &resource)
                || principal.allows(Action::StreamSubscribe, &resource)
        };
        let catalogue = self.names.catalogue();
        let close = catalogue.close_streams(tenant, namespace, id.stream.as_str(), visible);
        let mut message = match catalogue.find_stream(tenant, namespace, id.stream.as_str()) {
            Err(missing) => missing.to_string(),
            Ok(_) => format!("no stream `{}`", id.stream),
        };
        if !close.is_empty() {
            let names: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
            message = format!("{message}; did you mean {}?", names.join(" or "));
        }
        Failure::new(Code::NotFound, message)
    }

    /// A cache in service.
    ///
    /// # Errors
    /// `not_found` with the names close to it that the principal may see.
    pub(crate) async fn cache(
        &self,
        id: &CacheId,
        principal: &Principal,
    ) -> Result<Arc<CacheHandle>, Failure> {
        let names = (id.tenant.as_str(), id.namespace.as_str(), id.cache.as_str());
        match self.names.cache(names.0, names.1, names.2).await {
            Some(record) => Ok(self.caches.cache(CacheSpec::of(&record))),
            None => Err(self.missing_cache(names, principal)),
        }
    }

    fn missing_cache(
        &self,
        (tenant, namespace, cache): (&str, &str, &str),
        principal: &Principal,
    ) -> Failure {
        let visible = |cache: &str| {
            let resource = Resource::Cache {
                tenant,
                namespace,
                cache,
            };
            principal.allows(Action::CacheRead, &resource)
                || principal.allows(Action::CacheWrite, &resource)
        };
        let catalogue = self.names.catalogue();
        let close = catalogue.close_caches(tenant, namespace, cache, visible);
        let mut message = match catalogue.find_cache(tenant, namespace, cache) {
            Err(missing) => missing.to_string(),
            Ok(_) => format!("no cache `{cache}`"),
        };
        if !close.is_empty() {
            let names: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
            message = format!("{message}; did you mean {}?", names.join(" or "));
        }
        Failure::new(Code::NotFound, message)
    }

    /// Sets the gauges that are read and not counted.
    pub(crate) fn refresh_gauges(&self) {
        self.caches.refresh_gauges();
        let metrics = &self.metrics;
        let paths = self.paths.measure();
        metrics.path_mtu.set(as_gauge(paths.mtu_bytes));
        metrics.path_black_holes.absolute(paths.black_holes);
        metrics.inflight_bytes.set(as_gauge(self.queue.in_use()));
        metrics.queued.set(as_gauge(self.queue.queued() as u64));
        metrics.shards_corrupt.set(as_gauge(
            (self.shards.corrupt_count() + self.caches.corrupt_count()) as u64,
        ));
        metrics
            .catalogue_revision
            .set(as_gauge(self.names.catalogue().revision().0));
        metrics
            .ready
            .set(if self.readiness().is_ok() { 1.0 } else { 0.0 });
        let totals = crate::groups::totals(self);
        metrics.groups.set(as_gauge(totals.groups));
        metrics.group_lag.set(as_gauge(totals.lag));
        metrics.group_in_flight.set(as_gauge(totals.in_flight));
        metrics.group_owed.set(as_gauge(totals.owed));
        metrics
            .group_dead_letters
            .set(as_gauge(totals.dead_letters));
        metrics.group_trimmed.set(as_gauge(totals.trimmed));
        metrics.scheduled.set(as_gauge(totals.schedules));
        if let Some(store) = &self.shards.store {
            metrics
                .free_bytes
                .set(as_gauge(store.journal.space().available));
        }
    }

    /// Opens every shard that has a directory.
    pub(crate) async fn verify_shards(&self) {
        let catalogue = self.names.catalogue();
        let known = |id: &StreamId| -> Option<StreamSpec> {
            if *id == StreamId::kafka_groups() {
                return Some(crate::teams::spec());
            }
            let record = catalogue.stream(
                id.tenant.as_str(),
                id.namespace.as_str(),
                id.stream.as_str(),
            );
            record.map(|record| spec(record, &catalogue))
        };
        self.shards.verify_all(known).await;
        let known = |id: &CacheId| -> Option<CacheSpec> {
            let record =
                catalogue.cache(id.tenant.as_str(), id.namespace.as_str(), id.cache.as_str());
            record.map(|record| CacheSpec::of(record))
        };
        self.caches.verify_all(known).await;
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float; what is lost is below display"
)]
pub(crate) fn as_gauge(value: u64) -> f64 {
    value as f64
}

impl Running {
    /// The way in for who lives in this process.
    #[must_use]
    pub fn near(&self) -> Near {
        Near::new(Arc::clone(&self.shared))
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/ready` and `/metrics` answer.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics_address
    }

    /// Stops taking clients, answers what was accepted, makes it durable and closes.
    pub async fn shutdown(self) -> Stopped {
        self.shared.draining.store(true, Ordering::Relaxed);
        tracing::info!("draining");
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, self.shared.queue.idle())
            .await
            .is_ok();
        let shared = &self.shared;
        let closing = tokio::time::timeout(DRAIN_TIMEOUT, async {
            shared.shards.close_all().await + shared.caches.close_all().await
        });
        let unflushed_logs = closing.await.unwrap_or(usize::MAX);
        self.endpoint.close(VarInt::from_u32(0), b"shutting down");
        self.connections.close();
        // Connections see the close at once; a stuck one must not keep the process.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.connections.wait()).await;
        self.endpoint.wait_idle().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        Stopped {
            unflushed_logs,
            drained,
        }
    }

    fn spawn(&self, configs: Arc<ServerConfigs>, admin: tokio::net::TcpListener) {
        let accepting = listen::accept(
            self.endpoint.clone(),
            configs,
            Arc::clone(&self.shared),
            self.connections.clone(),
        );
        self.tasks.spawn(accepting);
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        self.tasks.spawn(async move {
            if let Err(error) = admin::serve(admin, shared, stop).await {
                tracing::error!(%error, "the metrics listener ended");
            }
        });
        self.every(UPKEEP_INTERVAL, |shared| {
            shared.shards.time_out();
            shared.members.tick(shared.elapsed());
            shared.metrics.upkeep();
        });
        self.every(EXPIRY_LOOK_INTERVAL, |shared| shared.standings.tick(now()));
        self.every(RETENTION_INTERVAL, |shared| {
            shared.shards.retain();
            shared.shards.save_states();
        });
        self.every(COMPACTION_INTERVAL, |shared| shared.shards.compact());
        self.every(RETENTION_INTERVAL, |shared| {
            shared.teams.sweep(&shared.names.catalogue())
        });
        self.every(EXPIRY_INTERVAL, |shared| shared.caches.expire());
        self.every(CACHES_INTERVAL, |shared| {
            shared.caches.tend();
            shared.quotas.measured(&shared.caches.held());
        });
        self.every(CACHES_INTERVAL, |shared| shared.caches.compact_all());
        self.every(RETENTION_INTERVAL, |shared| shared.shards.compact_lanes());
        self.every(RETENTION_INTERVAL, |shared| {
            shared.shards.open_owed_groups()
        });
        let (timers, stop) = (Arc::clone(&self.shared.shards.timers), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = timers.run() => {}
            }
        });
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow_changes(&shared) => {}
            }
        });
    }

    /// Shows a certificate that was renewed on disk, without a restart.
    fn watch_certificate(&self, configs: Arc<ServerConfigs>, mut shown: Identity) {
        let config = &self.shared.config;
        let (Some(cert), Some(key)) = (config.tls_cert.clone(), config.tls_key.clone()) else {
            return;
        };
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(CERTIFICATE_INTERVAL);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let paths = (cert.clone(), key.clone());
                let reading =
                    tokio::task::spawn_blocking(move || Identity::read(&paths.0, &paths.1));
                let Ok(read) = reading.await else { return };
                match read {
                    Ok(identity) if identity == shown => {}
                    Ok(identity) => match configs.replace(&identity) {
                        Ok(()) => {
                            tracing::info!("the certificate was renewed");
                            shown = identity;
                        }
                        Err(error) => tracing::warn!(%error, "the new certificate is not shown"),
                    },
                    // Half-written files are read again at the next look.
                    Err(error) => tracing::warn!(%error, "the certificate cannot be read anew"),
                }
            }
        });
    }

    /// Runs a blocking chore over and over until the broker stops.
    fn every(&self, interval: Duration, chore: fn(&Shared)) {
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let shared = Arc::clone(&shared);
                // A chore that panicked was reported; the next one is due all the same.
                let _ = tokio::task::spawn_blocking(move || chore(&shared)).await;
            }
        });
    }
}
