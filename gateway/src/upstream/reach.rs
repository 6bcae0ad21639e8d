//! How brokers are reached in somebody's name: over connections of his own, or over a few that all sessions share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use felix_client::{Builder, Client, ConnectFailed, TokenSource};
use tokio::sync::OnceCell;

use crate::config::Config;

/// Where brokers are, what is trusted of them, and the connections that are shared.
#[derive(Debug)]
pub(crate) struct Reach {
    brokers: Vec<String>,
    server_name: String,
    roots: Option<Vec<u8>>,
    tenant: String,
    /// `None`: each session has connections of its own.
    shared: Option<Shared>,
}

/// The gateway's own connections. Each is made when a session first needs it, and keeps itself alive.
#[derive(Debug)]
struct Shared {
    chain: PathBuf,
    key: PathBuf,
    /// Good for opening connections and for nothing else.
    tokens: TokenSource,
    slots: Vec<OnceCell<Client>>,
    turn: AtomicUsize,
}

/// The file of trusted roots cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("broker_ca: {}: {source}", path.display())]
pub struct RootsRefused {
    path: PathBuf,
    source: std::io::Error,
}

impl Reach {
    /// Reads the roots that the configuration names. `tokens` open the shared connections, if there are to be any.
    ///
    /// # Errors
    /// [`RootsRefused`] names the file.
    pub(crate) fn read(config: &Config, tokens: Option<TokenSource>) -> Result<Self, RootsRefused> {
        let roots = config.broker_ca.as_ref().map(|path| {
            std::fs::read(path).map_err(|source| RootsRefused {
                path: path.clone(),
                source,
            })
        });
        let files = config.client_cert.clone().zip(config.client_key.clone());
        let shared = files.zip(tokens).map(|((chain, key), tokens)| Shared {
            chain,
            key,
            tokens,
            slots: (0..config.shared_connections)
                .map(|_| OnceCell::new())
                .collect(),
            turn: AtomicUsize::new(0),
        });
        Ok(Self {
            brokers: config.brokers.clone(),
            server_name: config.broker_name.clone(),
            roots: roots.transpose()?,
            tenant: config.tenant.clone(),
            shared,
        })
    }

    /// Connects in the name of whoever these tokens speak for.
    ///
    /// # Errors
    /// When no broker answers or takes the token.
    pub(crate) async fn connect(
        &self,
        namespace: &str,
        tokens: TokenSource,
    ) -> Result<Client, ConnectFailed> {
        let Some(shared) = &self.shared else {
            let builder = self.builder(tokens).namespace(namespace);
            return builder.connect().await;
        };
        // In turn, which is as good as counting: sessions are many and alike.
        let turn = shared.turn.fetch_add(1, Ordering::Relaxed);
        let place = turn.checked_rem(shared.slots.len()).unwrap_or(0);
        let slot = shared.slots.get(place).ok_or(ConnectFailed::Closed)?;
        let open = || {
            let builder = self.builder(shared.tokens.clone());
            builder
                .client_identity_files(shared.chain.clone(), shared.key.clone())
                .connect()
        };
        let connection = slot.get_or_try_init(open).await?;
        let client = connection.with_token(tokens).await?;
        Ok(client.in_namespace(namespace)?)
    }

    fn builder(&self, tokens: TokenSource) -> Builder {
        let builder = Client::builder()
            .brokers(self.brokers.iter().cloned())
            .server_name(self.server_name.clone())
            .tenant(self.tenant.as_str())
            .token_source(tokens);
        match &self.roots {
            Some(roots) => builder.ca_pem(roots.clone()),
            None => builder,
        }
    }
}
