//! Everything an operator can decide about a gateway: defaults, then the file, then the environment. What a scope
//! holds and how much a browser may do is in the scope file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use felix_process::{LoadRefused, flag, list};
use serde::{Deserialize, Serialize};

/// The configuration of one gateway process. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where browsers connect (plain HTTP and WebSocket; put a proxy with TLS in front). Port 0 picks a free one.
    pub listen: SocketAddr,
    /// TOML file that says what a scope is: streams, caches, counters, limits. Required.
    pub scope_file: Option<PathBuf>,
    /// The tenant that every browser belongs to. Required.
    pub tenant: String,
    /// The namespace of the scope's streams and caches.
    pub namespace: String,
    /// The provider at which people sign in, as its tokens name it.
    pub oidc_issuer: String,
    /// The client that pages and the gateway are at the provider. Required.
    pub oidc_client_id: String,
    /// What is asked of the provider, with spaces between.
    pub oidc_scopes: String,
    /// File that holds the client's secret, for providers that want one when the gateway itself signs people in.
    pub oidc_client_secret_file: Option<PathBuf>,
    /// The origin under which browsers reach this gateway, `https://app.example`. Needed for signing in at the gateway
    /// itself, and when a proxy changes the host name.
    pub public_url: Option<String>,
    /// Origins of other pages that may connect, each exactly as browsers send it. The gateway's own is always allowed.
    #[serde(deserialize_with = "list")]
    pub origins: Vec<String>,
    /// Directory with files to serve; none are without it.
    pub web_dir: Option<PathBuf>,
    /// `true`: the console may change things, with the rights of whoever uses it. Otherwise it only shows.
    #[serde(deserialize_with = "flag")]
    pub console_writes: bool,
    /// Brokers to begin with, `host:port`; more are learned from them.
    #[serde(deserialize_with = "list")]
    pub brokers: Vec<String>,
    /// Name in the brokers' certificates.
    pub broker_name: String,
    /// PEM file with the roots for the certificates of brokers, of an https control plane and, beside the machine's own, of
    /// the provider. Absent: the machine's own, and of control planes only plain http is spoken to.
    pub broker_ca: Option<PathBuf>,
    /// Base URL of the control plane that exchanges tokens.
    pub controlplane_url: String,
    /// File with the gateway's own token of the provider. With certificate and key: connections to brokers are shared,
    /// and each browser's session acts as its user through a delegated token.
    pub credential_file: Option<PathBuf>,
    /// PEM certificate that the gateway shows to brokers.
    pub client_cert: Option<PathBuf>,
    /// PEM private key of `client_cert`.
    pub client_key: Option<PathBuf>,
    /// How many connections to brokers are shared at first. There are more when more than 200 people are on each.
    pub shared_connections: usize,
    /// A browser is pinged after this many seconds without a ping; 0: never, and silence is never the end.
    pub ping_interval_s: u64,
    /// A browser from which nothing is heard for this many seconds is gone; 0: never. More than `ping_interval_s`.
    pub ping_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8787)),
            scope_file: None,
            tenant: String::new(),
            namespace: "default".into(),
            oidc_issuer: "http://127.0.0.1:9400".into(),
            oidc_client_id: String::new(),
            oidc_scopes: "openid profile".into(),
            oidc_client_secret_file: None,
            public_url: None,
            origins: Vec::new(),
            web_dir: None,
            console_writes: false,
            brokers: vec!["127.0.0.1:5000".into()],
            broker_name: "localhost".into(),
            broker_ca: None,
            controlplane_url: "http://127.0.0.1:8443".into(),
            credential_file: None,
            client_cert: None,
            client_key: None,
            shared_connections: 4,
            ping_interval_s: 5,
            ping_timeout_s: 14,
        }
    }
}

/// Environment variables and the keys they set. The names are the ones the field knows.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("GATEWAY_LISTEN", "listen"),
    ("GATEWAY_SCOPE_FILE", "scope_file"),
    ("GATEWAY_TENANT", "tenant"),
    ("GATEWAY_NAMESPACE", "namespace"),
    ("GATEWAY_OIDC_ISSUER", "oidc_issuer"),
    ("GATEWAY_OIDC_CLIENT_ID", "oidc_client_id"),
    ("GATEWAY_OIDC_SCOPES", "oidc_scopes"),
    ("GATEWAY_OIDC_CLIENT_SECRET_FILE", "oidc_client_secret_file"),
    ("GATEWAY_PUBLIC_URL", "public_url"),
    ("GATEWAY_ORIGINS", "origins"),
    ("GATEWAY_WEB_DIR", "web_dir"),
    ("GATEWAY_CONSOLE_WRITES", "console_writes"),
    ("GATEWAY_FELIX_BROKERS", "brokers"),
    ("GATEWAY_FELIX_SERVER_NAME", "broker_name"),
    ("GATEWAY_FELIX_CA_FILE", "broker_ca"),
    ("GATEWAY_FELIX_CONTROL_PLANE", "controlplane_url"),
    ("GATEWAY_FELIX_CREDENTIAL_FILE", "credential_file"),
    ("GATEWAY_FELIX_CLIENT_CERT", "client_cert"),
    ("GATEWAY_FELIX_CLIENT_KEY", "client_key"),
    ("GATEWAY_FELIX_SHARED_CONNECTIONS", "shared_connections"),
    ("GATEWAY_PING_INTERVAL_S", "ping_interval_s"),
    ("GATEWAY_PING_TIMEOUT_S", "ping_timeout_s"),
];

/// The variable that names the file itself.
const CONFIG: &str = "GATEWAY_CONFIG";

/// Why the configuration was refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigRefused {
    /// A key or the file.
    #[error(transparent)]
    Load(#[from] LoadRefused),
    /// A setting is missing.
    #[error("{key} must be set ({variable})")]
    Missing {
        /// The key.
        key: &'static str,
        /// The variable that sets it.
        variable: &'static str,
    },
    /// Two settings do not go together, or one cannot be.
    #[error("{0}")]
    Conflict(&'static str),
}

impl Config {
    /// Reads defaults, then the file, then the environment. Later wins.
    ///
    /// # Errors
    /// [`ConfigRefused`] names the key and where it stands.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigRefused> {
        Ok(felix_process::load(file, ENVIRONMENT)?)
    }

    /// Refuses what is missing and what does not go together. `has_scope`: whether the scope comes from elsewhere than
    /// a file.
    ///
    /// # Errors
    /// [`ConfigRefused`] says what.
    pub fn check(&self, has_scope: bool) -> Result<(), ConfigRefused> {
        let missing = |absent: bool, key, variable| match absent {
            true => Err(ConfigRefused::Missing { key, variable }),
            false => Ok(()),
        };
        missing(
            self.scope_file.is_none() && !has_scope,
            "scope_file",
            "GATEWAY_SCOPE_FILE",
        )?;
        missing(self.tenant.is_empty(), "tenant", "GATEWAY_TENANT")?;
        missing(
            self.oidc_client_id.is_empty(),
            "oidc_client_id",
            "GATEWAY_OIDC_CLIENT_ID",
        )?;
        let conflict = |wrong: bool, what| match wrong {
            true => Err(ConfigRefused::Conflict(what)),
            false => Ok(()),
        };
        let own = [&self.credential_file, &self.client_cert, &self.client_key];
        let given = own.iter().filter(|path| path.is_some()).count();
        conflict(
            given != 0 && given != own.len(),
            "credential_file, client_cert and client_key go together: set all or none",
        )?;
        conflict(self.brokers.is_empty(), "brokers must name at least one")?;
        conflict(
            self.shared_connections == 0,
            "shared_connections must be at least 1",
        )?;
        conflict(
            self.ping_interval_s != 0
                && self.ping_timeout_s != 0
                && self.ping_timeout_s <= self.ping_interval_s,
            "ping_timeout_s must be more than ping_interval_s",
        )
    }

    /// The result as TOML, as `--print-config` shows it. It holds paths of secrets, never secrets.
    pub fn to_toml(&self) -> String {
        felix_process::to_toml(self)
    }

    /// `GATEWAY_*` variables that no part of the gateway reads.
    pub fn unknown_variables(set: impl Iterator<Item = String>) -> Vec<String> {
        let known = |name: &String| ENVIRONMENT.iter().any(|(known, _)| known == name);
        set.filter(|name| name.starts_with("GATEWAY_") && name != CONFIG && !known(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> Config {
        Config {
            scope_file: Some("scope.toml".into()),
            tenant: "acme".into(),
            oidc_client_id: "page".into(),
            ..Config::default()
        }
    }

    #[test]
    fn what_must_be_set_is_named_with_its_variable() {
        assert!(minimal().check(false).is_ok());
        let error = Config::default().check(false).unwrap_err().to_string();
        assert_eq!(error, "scope_file must be set (GATEWAY_SCOPE_FILE)");
        let without_scope = Config {
            scope_file: None,
            ..minimal()
        };
        assert!(without_scope.check(true).is_ok());
    }

    #[test]
    fn shared_connections_need_all_three_files() {
        let some = Config {
            client_cert: Some("a.pem".into()),
            ..minimal()
        };
        let error = some.check(false).unwrap_err().to_string();
        assert!(error.contains("set all or none"), "{error}");
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let config: Config = toml::from_str(&minimal().to_toml()).unwrap();
        assert_eq!(config, minimal());
        assert!(toml::from_str::<Config>("listn = '127.0.0.1:1'").is_err());
    }

    #[test]
    fn a_variable_that_nobody_reads_is_found() {
        let set = ["GATEWAY_LISTEN", "GATEWAY_LISTE", CONFIG, "PATH"].map(String::from);
        let unknown = Config::unknown_variables(set.into_iter());
        assert_eq!(unknown, ["GATEWAY_LISTE"]);
    }
}
