//! What an operator can decide about a control plane.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use felix_auth::oidc::{AddressRules, Algorithms};
use felix_model::ClusterId;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize, Serializer};

use crate::ledger::Address;
use crate::limits::{SESSION_SECONDS, SIGN_IN_SECONDS, TOKEN_SECONDS};

/// Everything an operator can decide about a control plane. Later wins: defaults, the file, the environment, flags.
///
/// In the environment a key is `FELIX_CONTROLPLANE_` and its name in capitals; the names the field knows are accepted
/// too (`FELIX_BOOTSTRAP_*`, `FELIX_REGION_ID`, `FELIX_EXCHANGE_TOKEN_TTL_SECONDS`, `FELIX_SHUTDOWN_PREDRAIN_MS`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the ledger and the private keys live. Only this process's user may read it.
    pub data_dir: PathBuf,
    /// Where the catalogue is kept: `raft`, `postgres`, `disk`, or `memory`, which forgets. Unset, it is `postgres` when there
    /// is a `postgres_url`, and `raft` otherwise.
    pub storage_backend: Option<StorageBackend>,
    /// The database of a ledger in PostgreSQL, as `postgres://user:password@host:5432/database`; several hosts are
    /// divided by commas.
    pub postgres_url: Secret,
    /// A file that holds it instead.
    pub postgres_url_file: Option<PathBuf>,
    /// This member's number in a raft ledger, from 1. One that is alone need not change it.
    pub raft_node_id: u64,
    /// The members of a raft ledger and where their peer listeners are reached, this one among them, as
    /// `1=host:8444,2=host:8444`. Empty for one that is alone.
    pub raft_peers: String,
    /// Where members of a raft ledger listen for each other. Only with `raft_peers`.
    pub raft_bind_addr: SocketAddr,
    /// What members of a raft ledger present to each other, at least 32 characters, the same for all.
    pub raft_peer_token: Secret,
    /// A file that holds it instead.
    pub raft_peer_token_file: Option<PathBuf>,
    /// This member's certificate (PEM), which bears the DNS name `felix-raft-` and its number. With the next two, members
    /// show certificates to each other; with a token as well, both are needed.
    pub raft_tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    pub raft_tls_key: Option<PathBuf>,
    /// The roots that sign members' certificates (PEM).
    pub raft_tls_ca: Option<PathBuf>,
    /// `new` forms a cluster out of the members in `raft_peers`, once, when all of them are empty and say the same;
    /// `existing` waits to be taken in.
    pub raft_initial_cluster_state: RaftState,
    /// The cluster this control plane belongs to. A data directory of another one is refused.
    pub cluster_id: ClusterId,
    /// Where the API listens.
    pub bind: SocketAddr,
    /// Where `/ready`, `/live` and `/metrics` listen, without authentication. Keep it private.
    pub metrics_bind: SocketAddr,
    /// Lets the API listen on an address that other machines reach although it is not encrypted. Turn it on only behind
    /// something that encrypts: tokens cross this wire.
    pub allow_plain_http: bool,
    /// The certificate chain of the API (PEM, leaf first); it serves HTTPS then. Read again when it changes.
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub tls_key: Option<PathBuf>,
    /// The region that is reported to clients.
    pub region_id: String,
    /// Serves the bootstrap listener, which makes tenants.
    pub bootstrap_enabled: bool,
    /// Where the bootstrap listener listens.
    pub bootstrap_bind_addr: SocketAddr,
    /// What callers of the bootstrap listener must present.
    pub bootstrap_token: Secret,
    /// A file that holds it instead.
    pub bootstrap_token_file: Option<PathBuf>,
    /// What they may present as well while it is being changed.
    pub bootstrap_token_previous: Secret,
    /// Lets the bootstrap listener hand out tokens without an identity provider. For development.
    pub bootstrap_dev_tokens: bool,
    /// The certificate chain of the bootstrap listener (PEM, leaf first). With its key and client authority, or none.
    pub bootstrap_tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub bootstrap_tls_key: Option<PathBuf>,
    /// Whose certificates callers of the bootstrap listener must present, besides the token (PEM).
    pub bootstrap_tls_client_ca: Option<PathBuf>,
    /// Life of a token in seconds.
    pub exchange_token_ttl_seconds: u64,
    /// Life of a session in seconds: how long its refresh tokens go on.
    pub refresh_token_ttl_seconds: u64,
    /// How long a sign-in through an identity provider goes on by refreshing, in seconds; then the person signs in again,
    /// and his groups are what the provider says then. Lower it when leaving a group must count sooner.
    pub sign_in_max_age_seconds: u64,
    /// Signature algorithms accepted from identity providers, with commas between. Widen it when a provider signs with
    /// something else.
    pub oidc_allowed_algorithms: String,
    /// Lets identity providers have `http` URLs. Whoever is on the way can then be anybody: for tests.
    pub oidc_allow_insecure_http: bool,
    /// Lets identity providers have addresses inside the own network. Turn it on when yours is in there.
    pub oidc_allow_private_idp: bool,
    /// PEM file with authorities of identity providers, beside the machine's own. Set it when your provider's certificate
    /// comes from an authority of your own.
    pub oidc_ca: Option<PathBuf>,
    /// Lets who may act for others do so with tokens that name no actor, as gateways up to 0.3.0 need.
    pub delegate_unbound_tokens: bool,
    /// How long to go on serving, marked not ready, before connections are closed at a shutdown, in ms. Raise it when
    /// balancers notice late.
    pub shutdown_predrain_ms: u64,
    /// How logs are written: `text`, `json`, or `auto`, which is text on a terminal.
    pub log_format: LogFormat,
}

/// Kinds of ledgers that keep the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StorageBackend {
    /// On the disks of one, three or five processes, which agree.
    Raft,
    /// On the disk of this machine, by one process.
    Disk,
    /// In a PostgreSQL database, by any number of processes.
    Postgres,
    /// Nowhere: everything is forgotten when the process ends.
    Memory,
}

impl fmt::Display for StorageBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Raft => "raft",
            Self::Disk => "disk",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
        })
    }
}

/// What a member of a raft ledger does when its directory is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaftState {
    /// Forms a cluster with the others.
    New,
    /// Waits to be taken in.
    #[default]
    Existing,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Secret {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_empty() {
            "Secret(none)"
        } else {
            "Secret(..)"
        })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(if self.is_empty() { "" } else { "(redacted)" })
    }
}

#[expect(clippy::expect_used, reason = "a literal that the tests read too")]
fn default_cluster() -> ClusterId {
    ClusterId::new("felix").expect("a valid name")
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("/var/lib/felix-controlplane"),
            storage_backend: None,
            postgres_url: Secret::default(),
            postgres_url_file: None,
            raft_node_id: 1,
            raft_peers: String::new(),
            raft_bind_addr: loopback(8444),
            raft_peer_token: Secret::default(),
            raft_peer_token_file: None,
            raft_tls_cert: None,
            raft_tls_key: None,
            raft_tls_ca: None,
            raft_initial_cluster_state: RaftState::Existing,
            cluster_id: default_cluster(),
            bind: loopback(8443),
            metrics_bind: loopback(8080),
            allow_plain_http: false,
            tls_cert: None,
            tls_key: None,
            region_id: "local".into(),
            bootstrap_enabled: false,
            bootstrap_bind_addr: loopback(9095),
            bootstrap_token: Secret::default(),
            bootstrap_token_file: None,
            bootstrap_token_previous: Secret::default(),
            bootstrap_dev_tokens: false,
            bootstrap_tls_cert: None,
            bootstrap_tls_key: None,
            bootstrap_tls_client_ca: None,
            exchange_token_ttl_seconds: TOKEN_SECONDS,
            refresh_token_ttl_seconds: SESSION_SECONDS,
            sign_in_max_age_seconds: SIGN_IN_SECONDS,
            oidc_allowed_algorithms: "ES256,RS256".into(),
            oidc_allow_insecure_http: false,
            oidc_allow_private_idp: false,
            oidc_ca: None,
            delegate_unbound_tokens: false,
            shutdown_predrain_ms: 5000,
            log_format: LogFormat::Auto,
        }
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port)
}

/// Why a configuration is not used. The process does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigRefused {
    /// The file cannot be read.
    #[error("{}: {detail}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What happened.
        detail: String,
    },
    /// A line of the file is not understood.
    #[error("{}: {detail}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line and what is wrong with it.
        detail: String,
    },
    /// A value from the environment or the flags is not understood.
    #[error("{0}")]
    Value(String),
    /// Values do not go together.
    #[error("{0}")]
    Contradiction(String),
}

/// Variables with our prefix that are meant for others, namely for who connects to a control plane.
const FOREIGN: &[&str] = &[
    "url",
    "ca",
    "token",
    "token_file",
    "sync_interval_ms",
    "config",
];

/// Variables without our prefix that the field knows, and that mean our keys.
const KNOWN: &[&str] = &[
    "bootstrap_enabled",
    "bootstrap_bind_addr",
    "bootstrap_token",
    "bootstrap_token_file",
    "bootstrap_token_previous",
    "bootstrap_dev_tokens",
    "bootstrap_tls_cert",
    "bootstrap_tls_key",
    "bootstrap_tls_client_ca",
    "region_id",
    "exchange_token_ttl_seconds",
    "refresh_token_ttl_seconds",
    "shutdown_predrain_ms",
    "raft_node_id",
    "raft_peers",
    "raft_bind_addr",
    "raft_peer_token",
    "raft_peer_token_file",
    "raft_tls_cert",
    "raft_tls_key",
    "raft_tls_ca",
    "raft_initial_cluster_state",
];

impl Config {
    /// Reads defaults, then the file if one is given, then the environment, then `flags` (an object of the same keys).
    ///
    /// # Errors
    /// [`ConfigRefused`], naming the line of the file or the variable.
    pub fn load(file: Option<&Path>, flags: &impl Serialize) -> Result<Self, ConfigRefused> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(file) = file {
            let text =
                std::fs::read_to_string(file).map_err(|error| ConfigRefused::Unreadable {
                    file: file.to_owned(),
                    detail: error.to_string(),
                })?;
            // Read once by itself, because this reader knows lines.
            toml::from_str::<Self>(&text).map_err(|error| ConfigRefused::Line {
                file: file.to_owned(),
                detail: detail(&text, &error),
            })?;
            figment = figment.merge(Toml::string(&text));
        }
        let known = Env::prefixed("FELIX_").only(KNOWN);
        let ours = Env::prefixed("FELIX_CONTROLPLANE_").ignore(FOREIGN);
        let mut config: Self = figment
            .merge(known)
            .merge(ours)
            .merge(Serialized::globals(flags))
            .extract()
            .map_err(|error| ConfigRefused::Value(error.to_string()))?;
        config.read_files()?;
        config.check()?;
        Ok(config)
    }

    /// The configuration as it is in effect, in the form of a file, without secrets.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }

    /// The kind of ledger that keeps the catalogue.
    #[must_use]
    pub fn backend(&self) -> StorageBackend {
        let inferred = match self.postgres_url.is_empty() {
            true => StorageBackend::Raft,
            false => StorageBackend::Postgres,
        };
        self.storage_backend.unwrap_or(inferred)
    }

    fn read_files(&mut self) -> Result<(), ConfigRefused> {
        let secrets = [
            (&self.bootstrap_token_file, &mut self.bootstrap_token),
            (&self.postgres_url_file, &mut self.postgres_url),
            (&self.raft_peer_token_file, &mut self.raft_peer_token),
        ];
        for (file, secret) in secrets {
            let Some(file) = file else { continue };
            let text =
                std::fs::read_to_string(file).map_err(|error| ConfigRefused::Unreadable {
                    file: file.clone(),
                    detail: error.to_string(),
                })?;
            *secret = Secret(text.trim().to_owned());
        }
        Ok(())
    }

    /// The algorithms accepted from identity providers.
    ///
    /// # Errors
    /// [`ConfigRefused::Contradiction`] when the list names one that is never accepted, or none.
    pub fn oidc_algorithms(&self) -> Result<Algorithms, ConfigRefused> {
        self.oidc_allowed_algorithms.parse().map_err(|error| {
            ConfigRefused::Contradiction(format!("oidc_allowed_algorithms: {error}"))
        })
    }

    /// The authorities of identity providers, beside the machine's own.
    ///
    /// # Errors
    /// [`ConfigRefused::Contradiction`] when the file cannot be read or holds no certificate.
    pub fn oidc_roots(&self) -> Result<Vec<CertificateDer<'static>>, ConfigRefused> {
        let Some(file) = &self.oidc_ca else {
            return Ok(Vec::new());
        };
        let refused = |detail: String| {
            ConfigRefused::Contradiction(format!("oidc_ca {}: {detail}", file.display()))
        };
        let roots: Vec<_> = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect)
            .map_err(|error| refused(error.to_string()))?;
        if roots.is_empty() {
            return Err(refused("it holds no certificate".into()));
        }
        Ok(roots)
    }

    /// Which addresses identity providers may have. An API that only this machine reaches may use a provider of this
    /// machine.
    #[must_use]
    pub const fn oidc_addresses(&self) -> AddressRules {
        AddressRules {
            private: self.oidc_allow_private_idp,
            loopback: self.bind.ip().is_loopback() || self.oidc_allow_private_idp,
            insecure_http: self.oidc_allow_insecure_http,
        }
    }

    /// Checks that the values go together.
    ///
    /// # Errors
    /// [`ConfigRefused::Contradiction`].
    pub fn check(&self) -> Result<(), ConfigRefused> {
        let contradiction = |text: &str| Err(ConfigRefused::Contradiction(text.to_owned()));
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return contradiction("tls_cert and tls_key go together");
        }
        let encrypted = self.tls_cert.is_some();
        if !self.bind.ip().is_loopback() && !encrypted && !self.allow_plain_http {
            return Err(ConfigRefused::Contradiction(format!(
                "bind = {} is reachable from other machines and the API is not encrypted; give it \
                 tls_cert and tls_key, or set allow_plain_http = true if something in front of it \
                 encrypts",
                self.bind
            )));
        }
        self.check_ledger()?;
        self.check_bootstrap()?;
        if !(1..=86_400).contains(&self.exchange_token_ttl_seconds) {
            return contradiction("exchange_token_ttl_seconds must be from 1 to 86400");
        }
        Ok(())
    }

    fn check_ledger(&self) -> Result<(), ConfigRefused> {
        let contradiction = |text: &str| Err(ConfigRefused::Contradiction(text.to_owned()));
        if self.backend() == StorageBackend::Postgres && self.postgres_url.is_empty() {
            return contradiction(
                "storage_backend = \"postgres\" needs postgres_url_file (or postgres_url)",
            );
        }
        if !self.postgres_url.is_empty()
            && let Err(refused) = Address::parse(&self.postgres_url)
        {
            return contradiction(&refused.to_string());
        }
        crate::raft_config::check(self)?;
        Ok(())
    }

    fn check_bootstrap(&self) -> Result<(), ConfigRefused> {
        let contradiction = |text: &str| Err(ConfigRefused::Contradiction(text.to_owned()));
        if self.bootstrap_enabled && self.bootstrap_token.is_empty() {
            return contradiction(
                "bootstrap_enabled needs bootstrap_token_file (or bootstrap_token); \
                 bootstrap_token_previous alone is not enough",
            );
        }
        if self.bootstrap_dev_tokens && !self.bootstrap_enabled {
            return contradiction("bootstrap_dev_tokens needs bootstrap_enabled");
        }
        if self.bootstrap_dev_tokens && !self.bootstrap_bind_addr.ip().is_loopback() {
            return contradiction(
                "bootstrap_dev_tokens hands out tokens to whoever asks, so bootstrap_bind_addr \
                 must be a loopback address",
            );
        }
        let files = [
            &self.bootstrap_tls_cert,
            &self.bootstrap_tls_key,
            &self.bootstrap_tls_client_ca,
        ];
        let given = files.iter().filter(|file| file.is_some()).count();
        if given != 0 && given != files.len() {
            return contradiction(
                "bootstrap_tls_cert, bootstrap_tls_key and bootstrap_tls_client_ca go together",
            );
        }
        if !(60..=366 * 86_400).contains(&self.refresh_token_ttl_seconds) {
            return contradiction("refresh_token_ttl_seconds must be from 60 to 31622400");
        }
        if !(60..=366 * 86_400).contains(&self.sign_in_max_age_seconds) {
            return contradiction("sign_in_max_age_seconds must be from 60 to 31622400");
        }
        self.oidc_algorithms()?;
        self.oidc_roots()?;
        Ok(())
    }
}

/// Where a file is not understood, and why. The line itself is not repeated: it may hold a secret.
fn detail(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.unwrap_or_default().matches('\n').count() + 1;
    format!("line {line}: {}", error.message())
}

#[cfg(test)]
mod tests;
