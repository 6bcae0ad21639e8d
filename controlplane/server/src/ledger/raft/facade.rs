//! The blocking ledger over a member.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_journal::{DataDir, Disk, durable};
use felix_meta::Revision;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use super::adopt::{self, AdoptFailed};
use super::core::{Core, MemberFailed, MemberOptions};
use super::peers::{HttpTransport, PeerListener, PeerSecurity, ServeFailed, TlsRefused};
use super::transport::Transport;
use crate::ledger::{AppendRefused, ConfirmFailed, Ledger, Measure, ReadFailed, Standing};

/// Threads of a member's runtime: its log, its records and its calls each may wait for something else.
const THREADS: usize = 4;

/// How long opening waits for a voter that is alone to have applied what it holds.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);

/// How long calls under way may take to end.
const END_MAX: Duration = Duration::from_secs(5);

/// Why a raft ledger was not opened.
#[derive(Debug, thiserror::Error)]
pub enum RaftRefused {
    /// The member did not start.
    #[error(transparent)]
    Member(#[from] MemberFailed),
    /// The others cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeFailed),
    /// The others cannot be called.
    #[error(transparent)]
    Tls(#[from] TlsRefused),
    /// The ledger that was there before was not taken over.
    #[error(transparent)]
    Adopt(#[from] AdoptFailed),
}

/// How a member meets the others.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Where the peer listener listens.
    pub bind: SocketAddr,
    /// How members know each other.
    pub security: PeerSecurity,
}

/// A ledger kept by this member and the others.
#[derive(Debug)]
pub struct RaftLedger {
    core: Arc<Core>,
    /// None once it was ended.
    runtime: Option<Runtime>,
    disk: Arc<dyn Disk>,
    snapshot_file: PathBuf,
    /// Last, so that the directory is free for others only when the member has stopped.
    _dir: Option<DataDir>,
}

impl RaftLedger {
    /// Opens the raft ledger of a data directory, creating it when missing, and taking over what a disk ledger left there.
    /// Without `peers` it meets nobody. Blocking.
    ///
    /// # Errors
    /// [`RaftRefused`]; nothing runs on then.
    pub fn open(
        disk: Arc<dyn Disk>,
        data_dir: DataDir,
        options: MemberOptions,
        peers: Option<PeerOptions>,
    ) -> Result<Self, RaftRefused> {
        let root = data_dir.root().to_path_buf();
        let adopts = adopt::is_there(&*disk, &root);
        if adopts && !options.peers.is_empty() {
            return Err(AdoptFailed::Several.into());
        }
        let runtime = runtime()?;
        let member = options.member;
        let met = peers.map(|peers| {
            let listener = PeerListener::bind(peers.bind, member, peers.security.clone());
            let listener = wait(runtime.handle(), listener)?;
            let transport = HttpTransport::new(member, peers.security)?;
            Ok::<_, RaftRefused>((listener, Arc::new(transport) as Arc<dyn Transport>))
        });
        let (listener, transport) = match met.transpose() {
            Ok(met) => met.unzip(),
            Err(refused) => {
                runtime.shutdown_background();
                return Err(refused);
            }
        };
        let ledger = Self::start(runtime, disk, &root, Some(data_dir), options, transport)?;
        if let Some(listener) = listener {
            let core = Arc::clone(&ledger.core);
            ledger.wait(async move { listener.serve(&core) });
        }
        if adopts {
            adopt::adopt(&ledger.disk, &root, &ledger)?;
        }
        Ok(ledger)
    }

    fn start(
        runtime: Runtime,
        disk: Arc<dyn Disk>,
        root: &Path,
        data_dir: Option<DataDir>,
        options: MemberOptions,
        transport: Option<Arc<dyn Transport>>,
    ) -> Result<Self, MemberFailed> {
        let started = Core::start(Arc::clone(&disk), root, options, transport);
        let core = match wait(runtime.handle(), started) {
            Ok(core) => core,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let ledger = Self {
            core,
            runtime: Some(runtime),
            disk,
            snapshot_file: root.join("ledger.snapshot"),
            _dir: data_dir,
        };
        ledger.catch_up_alone();
        Ok(ledger)
    }

    /// Over any disk and any way to the others, for tests.
    #[cfg(test)]
    pub(crate) fn open_in(
        disk: Arc<dyn Disk>,
        root: &Path,
        data_dir: Option<DataDir>,
        options: MemberOptions,
        transport: Option<Arc<dyn Transport>>,
    ) -> Result<Self, MemberFailed> {
        Self::start(runtime()?, disk, root, data_dir, options, transport)
    }

    /// A voter that is alone knows everything there is; it applies it before anybody reads.
    fn catch_up_alone(&self) {
        if !self.core.options.peers.is_empty() {
            return;
        }
        let confirmed =
            self.wait(async { tokio::time::timeout(CATCH_UP_MAX, self.core.confirm()).await });
        match confirmed {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the ledger is not ready yet"),
            Err(_) => tracing::warn!("the ledger is not ready yet"),
        }
    }

    /// The member, for whoever speaks to others or changes them.
    #[must_use]
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn wait<F: Future + Send>(&self, future: F) -> F::Output
    where
        F::Output: Send,
    {
        match &self.runtime {
            Some(runtime) => wait(runtime.handle(), future),
            None => unreachable!("a ledger that was ended is gone"),
        }
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let core = Arc::clone(&self.core);
        wait(runtime.handle(), async move {
            if tokio::time::timeout(END_MAX, core.stop()).await.is_err() {
                tracing::warn!("the raft member did not stop in time");
            }
        });
        runtime.shutdown_background();
    }
}

fn runtime() -> Result<Runtime, MemberFailed> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("felix-raft")
        .enable_all()
        .build()
        .map_err(|error| MemberFailed::Options(format!("no runtime: {error}")))
}

/// Waits on this thread for what runs on that runtime.
fn wait<F: Future + Send>(handle: &Handle, future: F) -> F::Output
where
    F::Output: Send,
{
    // Whoever calls from inside a runtime, which tests do, needs a thread that is not its own.
    if Handle::try_current().is_ok() {
        return std::thread::scope(|scope| {
            let waiting = scope.spawn(|| handle.block_on(future));
            match waiting.join() {
                Ok(output) => output,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
    }
    handle.block_on(future)
}

impl Drop for RaftLedger {
    fn drop(&mut self) {
        self.end();
    }
}

impl Ledger for RaftLedger {
    fn revision(&self) -> Revision {
        Revision(self.core.reach().revision)
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.core.records.watch()
    }

    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        if records.is_empty() {
            let found = self.revision();
            return match expected == found {
                true => Ok(()),
                false => Err(AppendRefused::Raced { expected, found }),
            };
        }
        self.wait(self.core.append(expected, records))
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        self.core
            .read_after(after.0, bytes_max)
            .map_err(|error| ReadFailed(error.to_string()))
    }

    fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        self.wait(self.core.confirm())
    }

    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        let kept = self.snapshot().ok().flatten();
        // One that cannot be read, or is from beyond the end, is of no use to anybody.
        if kept.is_some_and(|(kept, _)| kept > at && kept <= self.revision()) {
            return Ok(());
        }
        let mut bytes = format!("{at}\n").into_bytes();
        bytes.extend_from_slice(state);
        durable::replace(&*self.disk, &self.snapshot_file, &bytes)
            .map_err(|error| ReadFailed(error.to_string()))
    }

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        let found = durable::read(&*self.disk, &self.snapshot_file)
            .map_err(|error| ReadFailed(error.to_string()))?;
        let Some(bytes) = found else { return Ok(None) };
        let parsed = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .and_then(|end| bytes.split_at_checked(end))
            .and_then(|(head, state)| {
                let revision = str::from_utf8(head).ok()?.parse().ok()?;
                Some((Revision(revision), state.get(1..)?.to_vec()))
            });
        match parsed {
            Some(snapshot) => Ok(Some(snapshot)),
            None => Err(ReadFailed(format!(
                "{} is no snapshot",
                self.snapshot_file.display()
            ))),
        }
    }

    fn standing(&self) -> Standing {
        let why_not = self.core.why_not();
        Standing {
            kind: "raft",
            member: self.core.member().to_string(),
            leader: self.core.leader().map(|leader| leader.to_string()),
            leads: self.core.leads(),
            ready: why_not.is_none(),
            why_not,
        }
    }

    fn measures(&self) -> Vec<Measure> {
        self.core.measures()
    }

    fn close(mut self: Box<Self>) {
        self.end();
    }
}
