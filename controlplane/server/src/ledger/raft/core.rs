//! One member: openraft over our log, our records and our messages, and what the rest of the process may ask of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use felix_journal::{Disk, LogOptions};
use felix_model::ClusterId;
use openraft::error::Fatal;
use openraft::{Raft, RaftMetrics, ServerState, SnapshotPolicy};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::log_failed::LogFailed;
use super::log_store::LogStore;
use super::machine::{InstallFailed, Machine};
use super::network::{Caller, Network};
use super::place::{Draw, Identity, Place, PlaceRefused};
use super::records::{Reach, RecordLog, RecordsFailed};
use super::snapshot::Incoming;
use super::stats::Counts;
use super::transport::{Alone, Peer, Transport};
use super::types::{Member, StorageId, Types};

pub(crate) type Metrics = RaftMetrics<u64, Member>;

/// Who a member is, and whom it knows.
#[derive(Clone)]
pub struct MemberOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// This member's number.
    pub member: u64,
    /// Peer addresses of the members, this one's among them; empty for a voter that is alone.
    pub peers: BTreeMap<u64, String>,
    /// Forms a new cluster with those peers once all of them are there, each on an empty disk.
    pub forms: bool,
    /// How it keeps time.
    pub timing: Timing,
    /// How its logs are laid out.
    pub layout: Layout,
    /// Where everything random comes from.
    pub draw: Draw,
}

impl std::fmt::Debug for MemberOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MemberOptions")
            .field("cluster", &self.cluster)
            .field("member", &self.member)
            .field("peers", &self.peers)
            .field("forms", &self.forms)
            .finish_non_exhaustive()
    }
}

/// How members keep time. All of it is measured by a clock that only runs forward, and none of it is needed for safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often a leader is heard. A call of the protocol waits this long for its answer.
    pub heartbeat: Duration,
    /// Shortest time without a leader before a member asks for votes.
    pub election_min: Duration,
    /// Longest such time (exclusive); each start draws one in between.
    pub election_max: Duration,
    /// How long an append or a confirmation may take.
    pub answer: Duration,
    /// How long one chunk of a snapshot, and installing one, may take.
    pub snapshot: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(200),
            election_min: Duration::from_millis(800),
            election_max: Duration::from_millis(1600),
            answer: Duration::from_secs(5),
            snapshot: Duration::from_secs(10),
        }
    }
}

/// How a member's logs are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size in bytes at which a file of the raft log or of the records is finished.
    pub segment_bytes: u64,
    /// Entries after which the records are written down, so that the raft log may let go.
    pub snapshot_entries: u64,
    /// Applied entries that the raft log keeps nevertheless, for members that are a little behind.
    pub keep_entries: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            segment_bytes: 16 * 1024 * 1024,
            snapshot_entries: 2000,
            keep_entries: 1000,
        }
    }
}

impl Layout {
    fn options(self) -> LogOptions {
        LogOptions {
            segment_bytes: self.segment_bytes,
            // Everything is checked at every start: the ledger is small, and all else hangs on it.
            verify_bytes: u64::MAX,
        }
    }
}

/// Why a member did not start.
#[derive(Debug, thiserror::Error)]
pub enum MemberFailed {
    /// Its directory is not used.
    #[error(transparent)]
    Place(#[from] PlaceRefused),
    /// Its raft log is not used.
    #[error(transparent)]
    Log(#[from] LogFailed),
    /// Its records are not used.
    #[error(transparent)]
    Records(#[from] RecordsFailed),
    /// A snapshot could not be finished.
    #[error(transparent)]
    Snapshot(#[from] InstallFailed),
    /// The protocol did not start.
    #[error("the raft member cannot start: {0}")]
    Raft(String),
    /// The options do not fit together.
    #[error("the raft member cannot start: {0}")]
    Options(String),
}

impl From<Fatal<u64>> for MemberFailed {
    fn from(fatal: Fatal<u64>) -> Self {
        Self::Raft(fatal.to_string())
    }
}

/// A member that runs.
pub struct Core {
    pub(crate) identity: Identity,
    pub(crate) options: MemberOptions,
    pub(crate) raft: Raft<Types>,
    pub(crate) log: LogStore,
    pub(crate) records: Arc<RecordLog>,
    pub(crate) caller: Caller,
    pub(crate) place: Place,
    /// The snapshot that is coming in. Held while one is installed.
    pub(crate) incoming: Arc<tokio::sync::Mutex<Option<Incoming>>>,
    pub(crate) counts: Counts,
    /// When openraft last answered. One that waits for its disk answers nothing, and what it said before is no news.
    pulse: Mutex<Instant>,
    pub(crate) stopping: CancellationToken,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Core")
            .field("identity", &self.identity)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Opens the member's directory inside `data_dir`, creating it when it is empty, and begins to take part. Runs on the
    /// tokio runtime it is called on; what it does on the disk blocks the worker that does it.
    ///
    /// # Errors
    /// [`MemberFailed`]; nothing runs on then.
    pub async fn start(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        options: MemberOptions,
        transport: Option<Arc<dyn Transport>>,
    ) -> Result<Arc<Self>, MemberFailed> {
        let place = Place::new(disk, data_dir);
        let layout = options.layout.options();
        let identity = match place.identity(&options.cluster, options.member)? {
            Some(identity) => identity,
            None => create(&place, layout, &options)?,
        };
        let log = LogStore::open(place.clone(), layout, identity.storage, options.member)?;
        let records = Arc::new(RecordLog::open(place.clone(), layout)?);
        let machine = Machine::open(Arc::clone(&records))?;
        log.agree_with(records.reach().applied)?;
        let transport = transport.unwrap_or_else(|| Arc::new(Alone));
        let caller = Caller::new(options.cluster.clone(), options.member, transport);
        let network = Network {
            caller: caller.clone(),
            records: Arc::clone(machine.records()),
            backoff: options.timing.heartbeat,
            patience: options.timing.election_min,
        };
        let config = Arc::new(config(&options)?);
        let raft = Raft::new(options.member, config, network, log.clone(), machine).await?;
        let core = Arc::new(Self {
            identity,
            options,
            raft,
            log,
            records,
            caller,
            place,
            incoming: Arc::default(),
            counts: Counts::default(),
            pulse: Mutex::new(Instant::now()),
            stopping: CancellationToken::new(),
        });
        core.begin().await?;
        tokio::spawn(Arc::clone(&core).keep());
        tokio::spawn(Arc::clone(&core).feel_pulse());
        Ok(core)
    }

    /// A voter that is alone need not wait for anybody.
    async fn begin(&self) -> Result<(), MemberFailed> {
        if self.options.peers.is_empty() && self.log.is_blank() {
            return self
                .initialize(BTreeMap::from([(self.options.member, self.own_record())]))
                .await
                .map_err(MemberFailed::Options);
        }
        let own = self.options.member;
        let is_alone = self
            .raft
            .with_raft_state(move |state| state.membership_state.effective().voter_ids().eq([own]))
            .await?;
        if is_alone {
            self.raft.trigger().elect().await?;
        }
        Ok(())
    }

    /// Notes that openraft answers, as long as it does.
    async fn feel_pulse(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = sleep(self.options.timing.heartbeat) => {}
            }
            let answered = self.raft.with_raft_state(|_| ());
            if matches!(
                timeout(self.options.timing.election_max, answered).await,
                Ok(Ok(()))
            ) {
                *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
        }
    }

    /// Whether openraft answered lately.
    fn is_awake(&self) -> bool {
        let pulse = *self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        pulse.elapsed() <= self.options.timing.election_max
    }

    /// This member as it belongs into the membership.
    pub(crate) fn own_record(&self) -> Member {
        let address = self.options.peers.get(&self.options.member);
        Member {
            address: address.cloned().unwrap_or_default(),
            storage: self.identity.storage,
            expects: BTreeMap::new(),
        }
    }

    /// The voters, as far as known here.
    pub(crate) fn voters(&self) -> Vec<u64> {
        self.metrics().membership_config.voter_ids().collect()
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics().borrow().clone()
    }

    /// This member's number.
    #[must_use]
    pub fn member(&self) -> u64 {
        self.options.member
    }

    /// The disk it is on.
    #[must_use]
    pub fn storage(&self) -> StorageId {
        self.identity.storage
    }

    /// How far its records go.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.records.reach()
    }

    /// Records after a revision; at least one unless there are none, and about `bytes_max` at most. Blocking.
    ///
    /// # Errors
    /// [`RecordsFailed`] when what was kept cannot be read.
    pub fn read_after(
        &self,
        after: u64,
        bytes_max: usize,
    ) -> Result<Vec<bytes::Bytes>, RecordsFailed> {
        self.records.read_after(after, bytes_max)
    }

    /// Who leads, as far as known here.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let metrics = self.metrics();
        metrics.running_state.as_ref().ok()?;
        metrics.current_leader
    }

    /// Where a member is reached: as the membership has it, or as it was configured.
    pub(crate) fn peer(&self, member: u64) -> Option<Peer> {
        let metrics = self.metrics();
        let known = metrics.membership_config.membership().get_node(&member);
        let known = known.map(|member| member.address.clone());
        let address = known
            .filter(|address| !address.is_empty())
            .or_else(|| self.options.peers.get(&member).cloned())?;
        Some(Peer { member, address })
    }

    /// Whether this member leads, and a majority said so lately: one that is cut off says no.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leads_by(&self.metrics())
    }

    pub(crate) fn leads_by(&self, metrics: &Metrics) -> bool {
        metrics.running_state.is_ok()
            && metrics.state == ServerState::Leader
            && self.is_awake()
            && (metrics
                .membership_config
                .voter_ids()
                .eq([self.options.member])
                || metrics.millis_since_quorum_ack.is_some_and(|ms| {
                    Duration::from_millis(ms) <= self.options.timing.election_max
                }))
    }

    /// Why it takes part in nothing any more; none while it does.
    #[must_use]
    pub fn has_stopped(&self) -> Option<String> {
        let running = self.metrics().running_state;
        running.err().map(|fatal| fatal.to_string())
    }

    /// Why this member would not take an append now, in words; none when it would.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        let metrics = self.metrics();
        if let Err(fatal) = &metrics.running_state {
            return Some(format!("this member has stopped: {fatal}"));
        }
        if !self.is_awake() {
            return Some("this member stands still; its disk may be full or very slow".into());
        }
        let Some(leader) = metrics.current_leader else {
            return Some("no leader is known".into());
        };
        if leader == self.options.member && !self.leads_by(&metrics) {
            return Some("this member led, and a majority of the others cannot be reached".into());
        }
        let behind = metrics.last_log_index.map_or(0, |last| last + 1);
        let behind = behind.saturating_sub(self.reach().next_index());
        if behind > LAG_MAX {
            return Some(format!("{behind} entries are not applied yet"));
        }
        None
    }

    /// Ends in order. The member takes part in nothing any more when this returns.
    pub async fn stop(&self) {
        self.stopping.cancel();
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the raft member did not end in order");
        }
        if let Err(error) = self.records.held().write_down() {
            tracing::warn!(%error, "the records were not written down at the end");
        }
    }
}

/// Entries that may wait to be applied in a member that counts as ready.
const LAG_MAX: u64 = 1000;

/// Makes an empty directory this member's, on a disk of a new name.
fn create(
    place: &Place,
    layout: LogOptions,
    options: &MemberOptions,
) -> Result<Identity, MemberFailed> {
    let storage = StorageId((options.draw)());
    LogStore::create(place, layout, storage)?;
    let identity = place.claim(&options.cluster, options.member, storage)?;
    tracing::info!(member = options.member, %storage, "a new raft ledger");
    Ok(identity)
}

fn config(options: &MemberOptions) -> Result<openraft::Config, MemberFailed> {
    let timing = options.timing;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (min, max) = (millis(timing.election_min), millis(timing.election_max));
    // openraft draws a number between two bounds once, at the start. It is drawn here instead, so that a member is as
    // deterministic as what it draws from.
    let election = min + (options.draw)() % max.saturating_sub(min).max(1);
    let config = openraft::Config {
        cluster_name: options.cluster.to_string(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: election,
        election_timeout_max: election + 1,
        install_snapshot_timeout: millis(timing.snapshot),
        max_payload_entries: 256,
        replication_lag_threshold: options.layout.snapshot_entries.saturating_mul(2),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.layout.snapshot_entries),
        max_in_snapshot_log_to_keep: options.layout.keep_entries,
        purge_batch_size: 64.min(options.layout.keep_entries.max(1)),
        ..openraft::Config::default()
    };
    config
        .validate()
        .map_err(|error| MemberFailed::Options(error.to_string()))
}
