//! What a client is told before it connects.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use felix_model::{Namespace, TenantId};

use crate::address::Address;
use crate::backoff::ReconnectPolicy;
use crate::client::Client;
use crate::error::ConnectFailed;
use crate::identity::ClientIdentity;
use crate::limits::{INFLIGHT_BYTES, SUBSCRIPTION_WINDOW_BYTES};
use crate::near::Near;
use crate::tls;
use crate::token::TokenSource;
use crate::transport::Transport;

/// Why a configuration cannot work. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadConfig {
    /// There is nothing to connect to.
    #[error("no broker address was given")]
    NoBroker,
    /// An address is not `host:port`.
    #[error("{address:?} is not an address of the form host:port")]
    Address {
        /// As it was given.
        address: String,
    },
    /// A tenant or namespace that cannot exist.
    #[error("{what} {name:?} is not a name: {why}")]
    Name {
        /// `tenant` or `namespace`.
        what: &'static str,
        /// As it was given.
        name: String,
        /// For people.
        why: String,
    },
    /// Neither a token nor a provider was given.
    #[error("pass a token, or a provider to fetch one")]
    NoToken,
    /// The certificates to trust could not be read.
    #[error("no certificates from {source_name}: {why}")]
    Certificates {
        /// Where they should have come from.
        source_name: String,
        /// For people.
        why: String,
    },
    /// The certificate to present, or its key, could not be read.
    #[error("no client certificate from {source_name}: {why}")]
    Identity {
        /// Where it should have come from.
        source_name: String,
        /// For people.
        why: String,
    },
    /// The TLS library refused the configuration.
    #[error("TLS: {why}")]
    Tls {
        /// For people.
        why: String,
    },
}

/// Collects what a client needs; made by [`Client::builder`](crate::Client::builder).
#[derive(Clone)]
pub struct Builder {
    brokers: Vec<String>,
    tenant: String,
    namespace: String,
    token: Option<TokenSource>,
    trust: Trust,
    identity: Presented,
    server_name: Option<String>,
    connect_timeout: Duration,
    request_timeout: Duration,
    reconnect: ReconnectPolicy,
    connections: usize,
    inflight_bytes: u32,
    subscription_window: u32,
    near: Option<Arc<dyn Near>>,
}

#[derive(Clone)]
enum Trust {
    System,
    Pem(Vec<u8>),
    File(PathBuf),
}

/// Who the client is in the handshake.
#[derive(Clone)]
enum Presented {
    Nobody,
    Pem { chain: Vec<u8>, key: Vec<u8> },
    Files { chain: PathBuf, key: PathBuf },
}

/// What every part of a client reads.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) brokers: Vec<Address>,
    pub(crate) tenant: TenantId,
    pub(crate) namespace: Namespace,
    pub(crate) token: TokenSource,
    pub(crate) server_name: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) reconnect: ReconnectPolicy,
    pub(crate) connections: usize,
    pub(crate) inflight_bytes: u32,
    /// The entry broker of calls, where it is in this process.
    pub(crate) near: Option<Arc<dyn Near>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            tenant: String::new(),
            namespace: "default".to_owned(),
            token: None,
            trust: Trust::System,
            identity: Presented::Nobody,
            server_name: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            reconnect: ReconnectPolicy::default(),
            connections: 1,
            inflight_bytes: INFLIGHT_BYTES,
            subscription_window: SUBSCRIPTION_WINDOW_BYTES,
            near: None,
        }
    }
}

impl Builder {
    /// Adds a broker to begin with, `host:port`. More are learned from it; those given stay candidates for good.
    #[must_use]
    pub fn broker(mut self, address: impl Into<String>) -> Self {
        self.brokers.push(address.into());
        self
    }

    /// Adds several brokers.
    #[must_use]
    pub fn brokers<I: IntoIterator<Item: Into<String>>>(mut self, addresses: I) -> Self {
        self.brokers.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// The tenant that the token belongs to.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// The namespace in which names are meant. `default` when not called.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// One token for good.
    #[must_use]
    pub fn token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.token = Some(TokenSource::fixed(token));
        self
    }

    /// Asks `provider` for a token on first use, again after two thirds of its life, and when a broker refused it.
    /// A provider's failure is final for the request that needed it. See [`TokenSource`].
    #[must_use]
    pub fn token_provider<F, Fut, E>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.token = Some(TokenSource::provider(provider));
        self
    }

    /// A source that several clients share.
    #[must_use]
    pub fn token_source(mut self, source: TokenSource) -> Self {
        self.token = Some(source);
        self
    }

    /// Trusts the certificates of this PEM bundle and no others.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.trust = Trust::Pem(pem.into());
        self
    }

    /// Trusts the certificates of this PEM file and no others. It is read when connecting. Without a bundle or
    /// file, the machine's own store is trusted.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trust = Trust::File(path.into());
        self
    }

    /// Presents a certificate in every handshake: its chain, leaf first, and its private key, both PEM. A broker that
    /// binds tokens to certificates accepts only tokens whose principal or actor the certificate names.
    #[must_use]
    pub fn client_identity_pem(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.identity = Presented::Pem { chain, key };
        self
    }

    /// Presents the certificate of these PEM files, as [`Builder::client_identity_pem`] does. They are read when
    /// connecting and again for every connection made later, so that a certificate renewed on disk needs no restart;
    /// files that cannot be read then leave the certificate as it was.
    #[must_use]
    pub fn client_identity_files(
        mut self,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.identity = Presented::Files { chain, key };
        self
    }

    /// The name brokers' certificates must carry. Without it a broker given by name must carry that name, and
    /// one given by number `localhost`.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// How long one broker may take to be dialled and to accept the token. 10 s when not called.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a request, and the acknowledgement of a publish, may take. 30 s when not called.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How a lost connection is sought again.
    #[must_use]
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// How many connections to keep to a broker; publishers and subscriptions take turns among them. One when
    /// not called; more help only where one core cannot encrypt enough.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Bytes of payload that may be published and not answered yet, per connection; more has to wait. 4 MiB when
    /// not called.
    #[must_use]
    pub fn inflight_bytes(mut self, bytes: u32) -> Self {
        self.inflight_bytes = bytes.max(1);
        self
    }

    /// Bytes a subscription may have received and not read; then the broker waits. 4 MiB when not called.
    #[must_use]
    pub fn subscription_window(mut self, bytes: u32) -> Self {
        self.subscription_window = bytes.max(64 * 1024);
        self
    }

    /// Sends calls to a broker in this process without a connection; those that belong elsewhere follow its redirects.
    /// Publishes and subscriptions use connections all the same, which are made when first needed.
    #[must_use]
    pub fn near(mut self, broker: Arc<dyn Near>) -> Self {
        self.near = Some(broker);
        self
    }

    /// Connects to the first broker that answers and accepts the token. Each is tried once, the next one 250 ms
    /// after the one before; the reconnect policy is for later losses.
    ///
    /// # Errors
    /// [`ConnectFailed`] names every broker that was tried.
    pub async fn connect(self) -> Result<Client, ConnectFailed> {
        let (config, transport) = self.build()?;
        Client::connect(config, transport).await
    }

    fn build(self) -> Result<(Config, Transport), BadConfig> {
        let roots = match &self.trust {
            Trust::System => tls::system_roots()?,
            Trust::Pem(pem) => tls::roots_from_pem(pem, "the PEM bundle")?,
            Trust::File(path) => {
                let source_name = path.display().to_string();
                let pem = std::fs::read(path).map_err(|error| BadConfig::Certificates {
                    source_name: source_name.clone(),
                    why: error.to_string(),
                })?;
                tls::roots_from_pem(&pem, &source_name)?
            }
        };
        let identity = match &self.identity {
            Presented::Nobody => None,
            Presented::Pem { chain, key } => Some(ClientIdentity::from_pem(chain, key)?),
            Presented::Files { chain, key } => {
                Some(ClientIdentity::from_files(chain.clone(), key.clone())?)
            }
        };
        let crypto = tls::quic_config(roots, identity)?;
        let transport = Transport::new(crypto, self.subscription_window);
        Ok((self.config()?, transport))
    }

    fn config(self) -> Result<Config, BadConfig> {
        if self.brokers.is_empty() {
            return Err(BadConfig::NoBroker);
        }
        let parse = |address: String| address.parse().map_err(|_| BadConfig::Address { address });
        let bad_name = |what, name: &str, why: felix_model::BadName| BadConfig::Name {
            what,
            name: name.to_owned(),
            why: why.to_string(),
        };
        Ok(Config {
            brokers: self
                .brokers
                .into_iter()
                .map(parse)
                .collect::<Result<_, _>>()?,
            tenant: TenantId::new(&self.tenant)
                .map_err(|why| bad_name("tenant", &self.tenant, why))?,
            namespace: Namespace::new(&self.namespace)
                .map_err(|why| bad_name("namespace", &self.namespace, why))?,
            token: self.token.ok_or(BadConfig::NoToken)?,
            server_name: self.server_name,
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            reconnect: self.reconnect,
            connections: self.connections,
            inflight_bytes: self.inflight_bytes,
            near: self.near,
        })
    }
}

/// The token and the certificates stay out of logs.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("brokers", &self.brokers)
            .field("tenant", &self.tenant)
            .field("namespace", &self.namespace)
            .field("token", &self.token)
            .field("server_name", &self.server_name)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("reconnect", &self.reconnect)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> Builder {
        Builder::default()
            .broker("127.0.0.1:5000")
            .tenant("dev")
            .token("secret")
    }

    #[test]
    fn a_complete_configuration_is_taken() {
        let config = builder().config().unwrap();
        assert_eq!(config.namespace.as_str(), "default");
        assert_eq!(config.connections, 1);
    }

    #[test]
    fn what_is_missing_or_misspelt_is_named() {
        let refused = |builder: Builder| builder.config().unwrap_err();
        assert_eq!(refused(Builder::default()), BadConfig::NoBroker);
        assert!(
            matches!(refused(builder().broker("x")), BadConfig::Address { address } if address == "x")
        );
        assert!(matches!(
            refused(builder().tenant("a/b")),
            BadConfig::Name { what: "tenant", .. }
        ));
        assert!(matches!(
            refused(builder().namespace("")),
            BadConfig::Name {
                what: "namespace",
                ..
            }
        ));
        let without_token = Builder::default().broker("127.0.0.1:5000").tenant("dev");
        assert_eq!(refused(without_token), BadConfig::NoToken);
    }

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", builder()).contains("secret"));
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let shown = format!("{:?}", builder().client_identity_pem("chain", "private"));
        assert!(
            !shown.contains("private") && !shown.contains("112, 114"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_missing_ca_file_is_named() {
        let failed = builder()
            .ca_file("/nowhere/ca.pem")
            .connect()
            .await
            .unwrap_err();
        assert!(failed.to_string().contains("/nowhere/ca.pem"), "{failed}");
    }
}
