//! A node of Felix as a process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::process::{Child, Command};

/// A node that is not ready after this long will not be.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A node that has not stopped after this long hangs.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

/// How often the ready file is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where a node keeps its data and its contexts, for as long as this value lives. Several nodes may use it, one
/// after the other.
#[derive(Debug)]
pub struct Home {
    program: PathBuf,
    directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
    port_base: u16,
}

/// How to reach a node: what its ready file says.
#[derive(Clone, Debug, Deserialize)]
pub struct Ready {
    /// Addresses for clients.
    pub brokers: Vec<String>,
    /// Who signed the broker's certificate.
    pub ca_file: PathBuf,
    /// The name in it.
    pub server_name: String,
    /// The tenant the token is of.
    pub tenant: String,
    /// The namespace that exists.
    pub namespace: String,
    /// A token for brokers.
    pub token: String,
    /// The control plane.
    pub controlplane_url: String,
    /// A token for it.
    pub controlplane_token: String,
    /// The broker's metrics and administration listener.
    pub broker_admin_url: String,
    /// The listener that mints tokens.
    pub bootstrap_url: String,
    /// Where Kafka clients connect.
    pub kafka_bootstrap: String,
}

/// Why a node did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailed {
    /// The process could not be started or asked.
    #[error("{program}: {source}")]
    Process {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It stopped, or was not ready in time.
    #[error("the node did not become ready:\n{log}")]
    NotReady {
        /// What it printed.
        log: String,
    },
    /// It did not stop on SIGTERM.
    #[error("the node did not stop in time:\n{log}")]
    NotStopped {
        /// What it printed.
        log: String,
    },
    /// A command line that had to succeed did not.
    #[error("felixctl {arguments:?} ended with {status}:\n{errors}")]
    Command {
        /// The arguments.
        arguments: Vec<String>,
        /// How it ended.
        status: ExitStatus,
        /// What it printed on standard error.
        errors: String,
    },
    /// A client could not connect.
    #[error("no client: {0}")]
    Client(#[from] felix_client::ConnectFailed),
}

impl Home {
    /// A new empty home. `program` is an executable that understands `felixctl …`: the binary of this crate.
    ///
    /// # Errors
    /// When there is no room for a temporary directory.
    pub fn new(program: impl Into<PathBuf>) -> std::io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("felix-e2e-").tempdir()?;
        Ok(Self {
            program: program.into(),
            directory,
            variables: Vec::new(),
            port_base: 0,
        })
    }

    /// Sets an environment variable of every process started from here.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes every node listen on the same ports, which were free just now; otherwise each takes free ones.
    ///
    /// # Errors
    /// When there are no free ports.
    pub fn on_fixed_ports(mut self) -> std::io::Result<Self> {
        self.port_base = free_ports()?;
        Ok(self)
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("node")
    }

    /// Segments of the streams whose directory contains `part`, smallest first. Look while no node runs.
    ///
    /// # Errors
    /// When the data directory cannot be read.
    pub fn segments(&self, part: &str) -> std::io::Result<Vec<PathBuf>> {
        let mut open = vec![self.data()];
        let mut found = Vec::new();
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory)? {
                let path = entry?.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|kind| kind == "log")
                    && path.to_string_lossy().contains(part)
                {
                    found.push((std::fs::metadata(&path)?.len(), path));
                }
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// The directory that holds everything, for files of a test's own.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory after the end, for somebody to look at.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Starts a node on free ports and waits until it is ready.
    ///
    /// # Errors
    /// [`NodeFailed`] with what the node printed.
    pub async fn start(&self) -> Result<Node, NodeFailed> {
        self.start_with(&[]).await
    }

    /// Starts a node with further arguments of `felixctl dev`.
    ///
    /// # Errors
    /// [`NodeFailed`] with what the node printed.
    pub async fn start_with(&self, arguments: &[&str]) -> Result<Node, NodeFailed> {
        let ready_file = self.directory.path().join("ready.json");
        let log = self.directory.path().join("log");
        let _ = std::fs::remove_file(&ready_file);
        let failed = |source| NodeFailed::Process {
            program: self.program.clone(),
            source,
        };
        let output = std::fs::File::create(&log).map_err(failed)?;
        let began = Instant::now();
        let mut child = self
            .command()
            .arg("dev")
            .arg("--data-dir")
            .arg(self.data())
            .arg("--ready-file")
            .arg(&ready_file)
            .args(["--port-base", &self.port_base.to_string()])
            .args(arguments)
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        let printed = || std::fs::read_to_string(&log).unwrap_or_default();
        while began.elapsed() < READY_WITHIN {
            if let Some(ready) = std::fs::read(&ready_file)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
            {
                return Ok(Node {
                    child,
                    ready,
                    log,
                    started_in: began.elapsed(),
                });
            }
            if child.try_wait().map_err(failed)?.is_some() {
                return Err(NodeFailed::NotReady { log: printed() });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(NodeFailed::NotReady { log: printed() })
    }

    /// Runs one command line to its end, as the person who uses this home.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub async fn felixctl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Output, NodeFailed> {
        let failed = |source| NodeFailed::Process {
            program: self.program.clone(),
            source,
        };
        self.command()
            .args(arguments)
            .output()
            .await
            .map_err(failed)
    }

    /// Starts a command line that does not end by itself. What it prints can be read; dropping it kills it.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn spawn(&self, arguments: &[&str]) -> Result<Child, NodeFailed> {
        let mut command = self.command();
        let spawned = command.args(arguments).stdout(Stdio::piped()).spawn();
        spawned.map_err(|source| NodeFailed::Process {
            program: self.program.clone(),
            source,
        })
    }

    /// Runs one command line that must succeed and gives what it printed.
    ///
    /// # Errors
    /// [`NodeFailed::Command`] with what it said when it did not.
    pub async fn ok(&self, arguments: &[&str]) -> Result<String, NodeFailed> {
        let output = self.felixctl(arguments).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(NodeFailed::Command {
            arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
            status: output.status,
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The payloads of a stream with one shard, as text.
    ///
    /// # Errors
    /// As [`Home::ok`].
    pub async fn payloads(&self, stream: &str) -> Result<Vec<String>, NodeFailed> {
        let text = self
            .ok(&["read", stream, "--from", "earliest", "-f", "%v\\n"])
            .await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let home = self.directory.path();
        command
            .arg("felixctl")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("XDG_DATA_HOME", home.join("data"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// Ports in a row that a node with `--port-base` takes.
const PORTS_OF_A_NODE: u16 = 9;

/// Ports below those that the system gives out by itself, so that nobody takes one while its node is away.
const FIXED_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The first of the ports of a node, all free for TCP and UDP. Processes with neighbouring numbers begin to look in
/// places that do not overlap.
fn free_ports() -> std::io::Result<u16> {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    let places = u32::from((FIXED_PORTS.end - FIXED_PORTS.start) / PORTS_OF_A_NODE);
    let is_free = |port| {
        let address = (Ipv4Addr::LOCALHOST, port);
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    (0..places)
        .filter_map(|tries| u16::try_from((std::process::id() + tries) % places).ok())
        .map(|place| FIXED_PORTS.start + place * PORTS_OF_A_NODE)
        .find(|base| (*base..base + PORTS_OF_A_NODE).all(is_free))
        .ok_or_else(|| std::io::Error::other("no free ports in a row for a node"))
}

/// A running node. Dropping it kills it.
#[derive(Debug)]
pub struct Node {
    child: Child,
    ready: Ready,
    log: PathBuf,
    started_in: Duration,
}

impl Node {
    /// How to reach it.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// How long it took from the start of the process to ready.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A client with the node's own token.
    ///
    /// # Errors
    /// When it cannot connect.
    pub async fn client(&self) -> Result<felix_client::Client, NodeFailed> {
        self.client_with(self.ready.token.as_str()).await
    }

    /// A client with another token.
    ///
    /// # Errors
    /// When it cannot connect.
    pub async fn client_with(&self, token: &str) -> Result<felix_client::Client, NodeFailed> {
        Ok(self.builder().token(token).connect().await?)
    }

    /// A client to be, with the node's own token.
    pub fn builder(&self) -> felix_client::Builder {
        felix_client::Client::builder()
            .brokers(self.ready.brokers.clone())
            .tenant(&self.ready.tenant)
            .namespace(&self.ready.namespace)
            .token(self.ready.token.as_str())
            .ca_file(&self.ready.ca_file)
            .server_name(&self.ready.server_name)
    }

    /// Kills it as the kernel does when memory runs out: nothing is said, nothing is finished.
    ///
    /// # Errors
    /// When the process is not ours to kill.
    pub async fn kill(mut self) -> Result<(), NodeFailed> {
        self.child
            .kill()
            .await
            .map_err(|source| NodeFailed::Process {
                program: "kill -9".into(),
                source,
            })
    }

    /// Resident memory of the process, in bytes.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn resident_bytes(&self) -> std::io::Result<u64> {
        let id = self.child.id().unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        kibibytes
            .map(|kibibytes: u64| kibibytes * 1024)
            .ok_or_else(|| std::io::Error::other("/proc says no VmRSS"))
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// [`NodeFailed::NotStopped`] when it does not end in time.
    pub async fn stop(self) -> Result<ExitStatus, NodeFailed> {
        self.terminate()?;
        self.stopped().await
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When the process is not ours to signal.
    pub fn terminate(&self) -> Result<(), NodeFailed> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let Some(pid) = id.and_then(Pid::from_raw) else {
            return Ok(());
        };
        kill_process(pid, Signal::TERM).map_err(|error| NodeFailed::Process {
            program: "kill".into(),
            source: error.into(),
        })
    }

    /// Waits for the end of a node that was told to stop.
    ///
    /// # Errors
    /// [`NodeFailed::NotStopped`] when it does not end in time.
    pub async fn stopped(mut self) -> Result<ExitStatus, NodeFailed> {
        match tokio::time::timeout(STOPPED_WITHIN, self.child.wait()).await {
            Ok(status) => status.map_err(|source| NodeFailed::Process {
                program: "wait".into(),
                source,
            }),
            Err(_) => Err(NodeFailed::NotStopped { log: self.log() }),
        }
    }
}
