//! Three members of a raft ledger, each a process with a directory.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::Process;

/// Settings of one member, by their variables.
type Settings = Vec<(&'static str, String)>;

/// Three members.
pub(crate) struct Cluster {
    pub(crate) home: tempfile::TempDir,
    peers: String,
    /// The addresses at which they meet each other.
    pub(crate) binds: Vec<String>,
    /// What each is started with beside what all have.
    pub(crate) settings: Vec<Settings>,
    running: Vec<Option<Process>>,
}

impl Cluster {
    /// Chooses addresses and directories. `settings` says how a member and the others know each other.
    pub(crate) fn prepared(settings: impl Fn(usize, &Path) -> Settings) -> Self {
        // Ports that were free just now: members must know each other's before they start.
        let held: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let binds: Vec<String> = held
            .iter()
            .map(|listener| listener.local_addr().unwrap().to_string())
            .collect();
        drop(held);
        let peers: Vec<String> = (1..)
            .zip(&binds)
            .map(|(n, bind)| format!("{n}={bind}"))
            .collect();
        let home = tempfile::tempdir().unwrap();
        Self {
            settings: (1..=3)
                .map(|member| settings(member, home.path()))
                .collect(),
            home,
            peers: peers.join(","),
            binds,
            running: vec![None, None, None],
        }
    }

    /// Forms a new cluster and waits until it takes writes.
    pub(crate) async fn formed(mut self, http: &reqwest::Client) -> Self {
        for member in 1..=3 {
            self.start(member);
        }
        self.all_ready(http).await;
        self
    }

    pub(crate) fn dir(&self, member: usize) -> PathBuf {
        self.home.path().join(format!("member-{member}"))
    }

    pub(crate) fn start(&mut self, member: usize) {
        let (dir, id) = (self.dir(member), member.to_string());
        let mut settings = vec![
            ("FELIX_CONTROLPLANE_DATA_DIR", dir.to_str().unwrap()),
            ("FELIX_RAFT_NODE_ID", &id),
            ("FELIX_RAFT_PEERS", &self.peers),
            ("FELIX_RAFT_BIND_ADDR", &self.binds[member - 1]),
            // Also long after it was formed: whoever leaves it so must not be hurt.
            ("FELIX_RAFT_INITIAL_CLUSTER_STATE", "new"),
        ];
        let own = self.settings[member - 1].iter();
        settings.extend(own.map(|(name, value)| (*name, value.as_str())));
        self.running[member - 1] = Some(Process::start(&settings));
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.running[member - 1].take().unwrap().kill();
    }

    pub(crate) fn process(&self, member: usize) -> &Process {
        self.running[member - 1].as_ref().unwrap()
    }

    pub(crate) async fn all_ready(&self, http: &reqwest::Client) {
        for process in self.running.iter().flatten() {
            ready(http, process).await;
        }
    }
}

/// Waits until a process says that it is ready.
pub(crate) async fn ready(http: &reqwest::Client, process: &Process) {
    loop {
        let asked = http
            .get(format!("http://{}/ready", process.metrics))
            .send()
            .await;
        if asked.is_ok_and(|answer| answer.status() == 200) {
            return;
        }
        tokio::task::yield_now().await;
    }
}
