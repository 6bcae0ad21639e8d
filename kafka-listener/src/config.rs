//! Everything an operator can decide about a Kafka listener: defaults, then the file, then the environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use felix_process::{LoadRefused, flag, list};
use serde::{Deserialize, Serialize};

/// The configuration of one listener process. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where Kafka clients connect (TCP). Port 0 picks a free one.
    pub listen: SocketAddr,
    /// The `host:port` that clients are told in metadata; the listen address when absent. Set it when clients reach
    /// the listener under another name or through a NAT.
    pub advertise: Option<String>,
    /// Where `/live`, `/ready` and `/metrics` answer over plain HTTP without authentication: keep it private.
    pub metrics_listen: SocketAddr,
    /// Brokers to begin with, `host:port`; more are learned from them. In the environment with commas between.
    #[serde(deserialize_with = "list")]
    pub brokers: Vec<String>,
    /// PEM file with the roots for the certificates of brokers and of an https control plane. Absent: the machine's own for
    /// brokers, and of control planes only plain http on loopback is trusted.
    pub broker_ca: Option<PathBuf>,
    /// Name in the brokers' certificates, when it is not the one they are reached by.
    pub broker_name: Option<String>,
    /// PEM certificate chain that the listener presents to brokers, and to an https control plane that asks for one. Read
    /// again for every connection to a broker.
    pub client_cert: Option<PathBuf>,
    /// PEM private key of `client_cert`.
    pub client_key: Option<PathBuf>,
    /// Base URL of the control plane whose catalogue this listener follows.
    pub controlplane_url: String,
    /// File that holds this listener's token for the control plane.
    pub node_token_file: Option<PathBuf>,
    /// File that holds a refresh token of the token above. The listener renews the token at two thirds of its life and
    /// writes the next refresh token there each time, readable by its owner only. Without it somebody else renews.
    pub node_refresh_token_file: Option<PathBuf>,
    /// PEM certificate chain shown to clients. Without it the listener speaks plain TCP, on loopback only.
    pub tls_cert: Option<PathBuf>,
    /// PEM private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// `true`: plain TCP is served beyond loopback, where anybody on the way reads passwords and tokens. For
    /// networks that are encrypted below.
    #[serde(deserialize_with = "flag")]
    pub plaintext: bool,
    /// `true`: a topic that a client asks for and that does not exist is made, if the client allows it and may.
    #[serde(deserialize_with = "flag")]
    pub auto_create_topics: bool,
    /// Client connections of one remote address. Raise it when many clients sit behind one NAT.
    pub connections_per_ip: usize,
    /// Bytes of requests that are read and not answered yet, over all connections; one tenant has half of it at most. Reading
    /// waits when it is spent.
    pub inflight_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9092)),
            advertise: None,
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 8082)),
            brokers: vec!["127.0.0.1:5000".into()],
            broker_ca: None,
            broker_name: None,
            client_cert: None,
            client_key: None,
            controlplane_url: "http://127.0.0.1:8443".into(),
            node_token_file: None,
            node_refresh_token_file: None,
            tls_cert: None,
            tls_key: None,
            plaintext: false,
            auto_create_topics: false,
            connections_per_ip: 512,
            inflight_bytes: 256 * 1024 * 1024,
        }
    }
}

/// Environment variables and the keys they set.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("FELIX_KAFKA_BIND", "listen"),
    ("FELIX_KAFKA_ADVERTISE_ADDR", "advertise"),
    ("FELIX_KAFKA_METRICS_BIND", "metrics_listen"),
    ("FELIX_KAFKA_BROKERS", "brokers"),
    ("FELIX_KAFKA_BROKER_CA", "broker_ca"),
    ("FELIX_KAFKA_BROKER_NAME", "broker_name"),
    ("FELIX_KAFKA_CLIENT_CERT", "client_cert"),
    ("FELIX_KAFKA_CLIENT_KEY", "client_key"),
    ("FELIX_KAFKA_CONTROLPLANE_URL", "controlplane_url"),
    ("FELIX_KAFKA_NODE_TOKEN_FILE", "node_token_file"),
    (
        "FELIX_KAFKA_NODE_REFRESH_TOKEN_FILE",
        "node_refresh_token_file",
    ),
    ("FELIX_KAFKA_TLS_CERT", "tls_cert"),
    ("FELIX_KAFKA_TLS_KEY", "tls_key"),
    ("FELIX_KAFKA_PLAINTEXT", "plaintext"),
    ("FELIX_KAFKA_AUTO_CREATE_TOPICS", "auto_create_topics"),
    ("FELIX_KAFKA_MAX_CONNECTIONS_PER_IP", "connections_per_ip"),
    ("FELIX_KAFKA_INFLIGHT_BYTES", "inflight_bytes"),
];

/// Why the configuration was refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigRefused {
    /// A key or the file.
    #[error(transparent)]
    Load(#[from] LoadRefused),
    /// Two settings do not go together.
    #[error("{0}")]
    Conflict(&'static str),
}

impl Config {
    /// Reads defaults, then the file, then the environment. Later wins.
    ///
    /// # Errors
    /// [`ConfigRefused`] names the key and where it stands.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigRefused> {
        let config: Self = felix_process::load(file, ENVIRONMENT)?;
        config.check()?;
        Ok(config)
    }

    /// Refuses settings that do not go together.
    ///
    /// # Errors
    /// [`ConfigRefused::Conflict`] says which.
    pub fn check(&self) -> Result<(), ConfigRefused> {
        let conflict = |wrong: bool, what| {
            if wrong {
                Err(ConfigRefused::Conflict(what))
            } else {
                Ok(())
            }
        };
        conflict(
            self.tls_cert.is_some() != self.tls_key.is_some(),
            "tls_cert and tls_key go together: set both or none",
        )?;
        conflict(
            self.client_cert.is_some() != self.client_key.is_some(),
            "client_cert and client_key go together: set both or none",
        )?;
        conflict(
            self.tls_cert.is_none() && !self.plaintext && !self.listen.ip().is_loopback(),
            "without tls_cert only loopback is served: set tls_cert and tls_key, or plaintext = true",
        )?;
        conflict(self.brokers.is_empty(), "brokers must name at least one")?;
        conflict(
            self.connections_per_ip == 0,
            "connections_per_ip must be at least 1",
        )?;
        conflict(
            self.inflight_bytes < crate::limits::FRAME_BYTES_MAX,
            "inflight_bytes must hold at least one request of the largest size, 104857600",
        )
    }

    /// The result as TOML, as `--print-config` shows it. It holds paths of secrets, never secrets.
    pub fn to_toml(&self) -> String {
        felix_process::to_toml(self)
    }

    /// `FELIX_KAFKA_*` variables that no part of the listener reads.
    pub fn unknown_variables(set: impl Iterator<Item = String>) -> Vec<String> {
        let known = |name: &String| ENVIRONMENT.iter().any(|(known, _)| known == name);
        set.filter(|name| name.starts_with("FELIX_KAFKA_") && name != CONFIG && !known(name))
            .collect()
    }
}

/// The variable that names the file itself.
const CONFIG: &str = "FELIX_KAFKA_CONFIG";

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Serialized, Toml};

    use super::*;

    fn from_toml(text: &str) -> Result<Config, String> {
        Figment::from(Serialized::defaults(Config::default()))
            .merge(Toml::string(text))
            .extract()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_key_is_refused_by_name() {
        let error = from_toml("auto_create_topic = true").unwrap_err();
        assert!(error.contains("auto_create_topic"), "{error}");
    }

    #[test]
    fn plain_tcp_beyond_loopback_must_be_asked_for() {
        let open = from_toml("listen = '0.0.0.0:9092'").unwrap();
        assert!(matches!(open.check(), Err(ConfigRefused::Conflict(_))));
        let meant = from_toml("listen = '0.0.0.0:9092'\nplaintext = true").unwrap();
        assert!(meant.check().is_ok());
        assert!(Config::default().check().is_ok());
    }

    #[test]
    fn brokers_are_a_list_in_the_file_and_have_commas_between_in_the_environment() {
        for text in [
            "brokers = ['a:5000', 'b:5000']",
            "brokers = 'a:5000, b:5000'",
        ] {
            let config = from_toml(text).unwrap();
            assert_eq!(config.brokers, ["a:5000", "b:5000"], "{text}");
        }
        assert_eq!(from_toml("brokers = 'a:5000'").unwrap().brokers, ["a:5000"]);
        assert!(from_toml("brokers = ''").unwrap().check().is_err());
    }

    #[test]
    fn there_are_no_more_keys_than_a_person_keeps_in_mind() {
        // Fifteen, and the certificate with its key (docs/adr/0029).
        assert!(ENVIRONMENT.len() <= 17, "{}", ENVIRONMENT.len());
    }

    #[test]
    fn a_certificate_for_brokers_comes_with_its_key() {
        let half = from_toml("client_cert = 'a.pem'").unwrap();
        let refused = half.check().unwrap_err().to_string();
        assert!(refused.contains("client_key"), "{refused}");
        let whole = from_toml("client_cert = 'a.pem'\nclient_key = 'a.key'").unwrap();
        assert!(whole.check().is_ok());
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let config = Config {
            advertise: Some("kafka.example:9092".into()),
            ..Config::default()
        };
        assert_eq!(from_toml(&config.to_toml()).unwrap(), config);
    }

    #[test]
    fn a_variable_that_nobody_reads_is_found() {
        let set = ["FELIX_KAFKA_BIND", "FELIX_KAFKA_BIN", CONFIG].map(String::from);
        assert_eq!(
            Config::unknown_variables(set.into_iter()),
            ["FELIX_KAFKA_BIN"]
        );
    }
}
