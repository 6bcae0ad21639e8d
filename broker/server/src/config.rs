//! Everything an operator can decide about a broker: defaults, then the file, then the environment, then flags.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use felix_process::{LoadRefused, flag};
use serde::{Deserialize, Serialize};

/// The configuration of one broker process. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where clients connect (QUIC over UDP). Port 0 picks a free one.
    pub listen: SocketAddr,
    /// The `host:port` that clients are told in topology answers; the listen address when absent. Set it when
    /// clients reach the broker under another name or through a NAT.
    pub advertise: Option<String>,
    /// Where `/live`, `/ready`, `/metrics` and `/backup` answer over plain HTTP without authentication: keep
    /// it private.
    pub metrics_listen: SocketAddr,
    /// Where segments live. Absent: only in-memory streams can be served.
    pub data_dir: Option<PathBuf>,
    /// This broker's name in the cluster; lowercase letters, digits, `-`, `.`, `_`.
    pub node_id: String,
    /// Base URL of the control plane whose catalogue this broker follows.
    pub controlplane_url: String,
    /// PEM file with the roots for an https control plane; absent: none are trusted but plain http on loopback.
    pub controlplane_ca: Option<PathBuf>,
    /// File that holds this broker's token for the control plane.
    pub node_token_file: Option<PathBuf>,
    /// File that holds a refresh token of the token above. The broker renews the token at two thirds of its life and
    /// writes the next refresh token there each time, readable by its owner only. Without it somebody else renews.
    pub node_refresh_token_file: Option<PathBuf>,
    /// PEM certificate chain shown to clients. Without it a self-signed one for `localhost` is made at start.
    pub tls_cert: Option<PathBuf>,
    /// PEM private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// PEM file with the roots that sign client certificates. With it clients may present one; absent: none is asked
    /// for.
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate in the handshake. Needs `tls_client_ca`.
    #[serde(deserialize_with = "flag")]
    pub tls_require_cert: bool,
    /// A token counts only on connections whose certificate, if one was presented, names its principal or the actor who
    /// acts for it (URI `felix:principal:<id>`, or a DNS name or address that is the id), so that a stolen token is worth
    /// nothing. Needs `tls_client_ca`.
    #[serde(deserialize_with = "flag")]
    pub tls_client_cert_bind_subject: bool,
    /// `false`: a publish to a durable stream is acknowledged when it is queued, before the write. Faster, and a
    /// crash loses what was acknowledged but not written.
    #[serde(deserialize_with = "flag")]
    pub ack_on_commit: bool,
    /// Publish rates of tenants on this broker.
    pub publish_quota: PublishQuota,
    /// Bytes that may be accepted and not yet answered, over all tenants. Publishers wait when it is spent.
    pub inflight_bytes: u64,
    /// Client connections in total; more are refused in the handshake.
    pub connections: usize,
    /// Client connections of one remote address. Raise it when many clients sit behind one NAT.
    pub connections_per_ip: usize,
}

/// Publish rates; 0 means no limit.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct PublishQuota {
    /// Payload bytes a second of every tenant that has no line of its own.
    pub bytes_per_second: u64,
    /// Messages a second of every tenant that has no line of its own.
    pub messages_per_second: u64,
    /// Tenants with rates of their own.
    pub tenants: BTreeMap<String, TenantRate>,
}

/// The publish rate of one tenant; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct TenantRate {
    /// Payload bytes a second.
    pub bytes_per_second: u64,
    /// Messages a second.
    pub messages_per_second: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 5000)),
            advertise: None,
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data_dir: None,
            node_id: "node-1".into(),
            controlplane_url: "http://127.0.0.1:8443".into(),
            controlplane_ca: None,
            node_token_file: None,
            node_refresh_token_file: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_require_cert: false,
            tls_client_cert_bind_subject: false,
            ack_on_commit: true,
            publish_quota: PublishQuota::default(),
            inflight_bytes: 64 * 1024 * 1024,
            connections: crate::limits::CONNECTIONS_MAX,
            connections_per_ip: crate::limits::CONNECTIONS_PER_IP_MAX,
        }
    }
}

/// Environment variables and the keys they set. The names are the ones the field knows.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("FELIX_QUIC_BIND", "listen"),
    ("FELIX_CLIENT_ADVERTISE_ADDR", "advertise"),
    ("FELIX_BROKER_METRICS_BIND", "metrics_listen"),
    ("FELIX_DURABLE_STORAGE_DIR", "data_dir"),
    ("FELIX_NODE_ID", "node_id"),
    ("FELIX_CONTROLPLANE_URL", "controlplane_url"),
    ("FELIX_CONTROLPLANE_CA", "controlplane_ca"),
    ("FELIX_NODE_TOKEN_FILE", "node_token_file"),
    ("FELIX_NODE_REFRESH_TOKEN_FILE", "node_refresh_token_file"),
    ("FELIX_TLS_CERT", "tls_cert"),
    ("FELIX_TLS_KEY", "tls_key"),
    ("FELIX_TLS_CLIENT_CA", "tls_client_ca"),
    ("FELIX_TLS_REQUIRE_CERT", "tls_require_cert"),
    (
        "FELIX_TLS_CLIENT_CERT_BIND_SUBJECT",
        "tls_client_cert_bind_subject",
    ),
    ("FELIX_ACK_ON_COMMIT", "ack_on_commit"),
    (
        "FELIX_TENANT_PUBLISH_BYTES_PER_SEC",
        "publish_quota.bytes_per_second",
    ),
    (
        "FELIX_TENANT_PUBLISH_MSGS_PER_SEC",
        "publish_quota.messages_per_second",
    ),
    ("FELIX_BROKER_PUBLISH_INFLIGHT_BYTES", "inflight_bytes"),
    ("FELIX_MAX_CLIENT_CONNECTIONS", "connections"),
    ("FELIX_MAX_CONNECTIONS_PER_IP", "connections_per_ip"),
];

/// Variables whose value has its own grammar, read apart from the table.
const QUOTAS_VARIABLE: &str = "FELIX_TENANT_PUBLISH_QUOTAS";

/// Holds this node's token itself. It is no key, so that the configuration that is printed holds no secret.
const TOKEN_VARIABLE: &str = "FELIX_NODE_TOKEN";

/// Why the configuration was refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigRefused {
    /// A key or the file.
    #[error(transparent)]
    Load(#[from] LoadRefused),
    /// A quota line is not `tenant:bytes:messages`.
    #[error("FELIX_TENANT_PUBLISH_QUOTAS: {0:?} is not tenant:bytes:messages")]
    Quota(String),
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
        let mut config: Self = felix_process::load(file, ENVIRONMENT)?;
        #[expect(clippy::disallowed_methods, reason = "this is config.rs")]
        if let Ok(quotas) = std::env::var(QUOTAS_VARIABLE) {
            config.publish_quota.tenants.extend(parse_quotas(&quotas)?);
        }
        config.check()?;
        Ok(config)
    }

    /// This node's token, when the environment holds the token itself.
    #[must_use]
    pub fn node_token() -> Option<String> {
        #[expect(clippy::disallowed_methods, reason = "this is config.rs")]
        let token = std::env::var(TOKEN_VARIABLE).ok();
        token.filter(|token| !token.is_empty())
    }

    /// Refuses settings that do not go together.
    ///
    /// # Errors
    /// [`ConfigRefused::Conflict`] says which.
    pub fn check(&self) -> Result<(), ConfigRefused> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(ConfigRefused::Conflict(
                "tls_cert and tls_key go together: set both or none",
            ));
        }
        if self.tls_client_ca.is_none()
            && (self.tls_require_cert || self.tls_client_cert_bind_subject)
        {
            return Err(ConfigRefused::Conflict(
                "tls_require_cert and tls_client_cert_bind_subject need tls_client_ca",
            ));
        }
        if self.inflight_bytes == 0 || self.connections == 0 || self.connections_per_ip == 0 {
            return Err(ConfigRefused::Conflict(
                "inflight_bytes, connections and connections_per_ip must be at least 1",
            ));
        }
        if self.node_id.parse::<felix_model::NodeId>().is_err() {
            return Err(ConfigRefused::Conflict(
                "node_id must be lowercase letters, digits, '-', '.' or '_', at most 253",
            ));
        }
        Ok(())
    }

    /// The result as TOML, as `--print-config` shows it. It holds paths of secrets, never secrets.
    pub fn to_toml(&self) -> String {
        felix_process::to_toml(self)
    }

    /// `FELIX_*` variables that no part of the broker reads, each with the closest known name.
    pub fn unknown_variables(
        set: impl Iterator<Item = String>,
    ) -> Vec<(String, Option<&'static str>)> {
        let known: Vec<&'static str> = ENVIRONMENT
            .iter()
            .map(|(name, _)| *name)
            .chain([QUOTAS_VARIABLE, TOKEN_VARIABLE])
            .collect();
        set.filter(|name| name.starts_with("FELIX_") && !known.contains(&name.as_str()))
            .map(|name| {
                let close = known
                    .iter()
                    .map(|candidate| (common_prefix(candidate, &name), *candidate))
                    .max()
                    .filter(|(length, _)| *length > "FELIX_".len() + 3)
                    .map(|(_, candidate)| candidate);
                (name, close)
            })
            .collect()
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

fn parse_quotas(text: &str) -> Result<BTreeMap<String, TenantRate>, ConfigRefused> {
    text.split(',')
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let refused = || ConfigRefused::Quota(line.trim().to_owned());
            let mut parts = line.trim().split(':');
            let tenant = parts
                .next()
                .filter(|tenant| !tenant.is_empty())
                .ok_or_else(refused)?;
            let mut rate = || {
                parts
                    .next()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(refused)
            };
            let rates = TenantRate {
                bytes_per_second: rate()?,
                messages_per_second: rate()?,
            };
            if parts.next().is_some() {
                return Err(refused());
            }
            Ok((tenant.to_owned(), rates))
        })
        .collect()
}

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
        let error = from_toml("ack_on_comit = false").unwrap_err();
        assert!(error.contains("ack_on_comit"), "{error}");
        assert!(from_toml("publish_quota = { bytes = 3 }").is_err());
    }

    #[test]
    fn a_file_overrides_defaults_key_by_key() {
        let config =
            from_toml("node_id = 'b-7'\npublish_quota = { messages_per_second = 9 }").unwrap();
        assert_eq!(config.node_id, "b-7");
        assert_eq!(config.publish_quota.messages_per_second, 9);
        assert!(config.ack_on_commit);
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let config = Config {
            data_dir: Some("/var/lib/felix".into()),
            ..Config::default()
        };
        assert_eq!(from_toml(&config.to_toml()).unwrap(), config);
    }

    #[test]
    fn quota_lines_are_checked() {
        let quotas = parse_quotas("acme:1000:5, beta:0:7").unwrap();
        assert_eq!(
            quotas["acme"],
            TenantRate {
                bytes_per_second: 1000,
                messages_per_second: 5
            }
        );
        for bad in ["acme", "acme:1", "acme:x:1", ":1:1", "acme:1:1:1"] {
            assert!(parse_quotas(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_switch_takes_words_and_digits() {
        assert!(!from_toml("ack_on_commit = 0").unwrap().ack_on_commit);
        assert!(from_toml("ack_on_commit = 1").unwrap().ack_on_commit);
        assert!(from_toml("ack_on_commit = 2").is_err());
    }

    #[test]
    fn certificate_and_key_go_together() {
        let config = Config {
            tls_cert: Some("a.pem".into()),
            ..Config::default()
        };
        assert!(matches!(config.check(), Err(ConfigRefused::Conflict(_))));
    }

    #[test]
    fn an_unknown_variable_comes_with_the_closest_name() {
        let set = ["FELIX_ACK_ON_COMIT", "PATH", "FELIX_QUIC_BIND"]
            .map(String::from)
            .into_iter();
        assert_eq!(
            Config::unknown_variables(set),
            [("FELIX_ACK_ON_COMIT".to_owned(), Some("FELIX_ACK_ON_COMMIT"))]
        );
    }
}
