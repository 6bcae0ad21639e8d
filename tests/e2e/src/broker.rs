//! A broker as a process of its own, beside a node whose control plane it follows.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Serves as a broker that is configured by its environment, and prints where: the client address and the
/// administrator's, in one line. Ends with the process.
///
/// # Errors
/// What is wrong with the configuration.
pub async fn serve() -> Result<(), String> {
    let config = felix_broker::Config::load(None).map_err(|error| error.to_string())?;
    let running = felix_broker::start(config, felix_broker::Embedding::default());
    let running = running.await.map_err(|error| error.to_string())?;
    println!("{} {}", running.address(), running.metrics_address());
    std::future::pending().await
}

/// A broker that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Broker {
    _child: Child,
    /// Where clients connect.
    pub address: String,
    admin: String,
}

impl Broker {
    /// Starts one on free ports with further variables of the environment, and waits until it serves.
    ///
    /// # Errors
    /// When it does not start; what it printed is on standard error.
    pub async fn start(program: &Path, variables: &[(&str, PathBuf)]) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .arg("broker")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("FELIX_QUIC_BIND", "127.0.0.1:0")
            .env("FELIX_BROKER_METRICS_BIND", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let ended = || std::io::Error::other("the broker ended before it served");
        let output = child.stdout.take().ok_or_else(ended)?;
        let line = BufReader::new(output).lines().next_line().await?;
        let line = line.ok_or_else(ended)?;
        let (address, admin) = line.split_once(' ').ok_or_else(ended)?;
        Ok(Self {
            address: address.to_owned(),
            admin: admin.to_owned(),
            _child: child,
        })
    }

    /// The sum of a metric's series now; 0 while it has none.
    ///
    /// # Errors
    /// When the admin listener does not answer.
    pub async fn metric(&self, name: &str) -> reqwest::Result<f64> {
        let url = format!("http://{}/metrics", self.admin);
        let text = crate::outside::http().get(url).send().await?.text().await?;
        Ok(crate::outside::sum(&text, name))
    }
}
