//! How brokers are reached in somebody's name.

use std::path::PathBuf;

use felix_client::{Builder, Client, ConnectFailed, TokenSource};

use crate::config::Config;
use crate::identity::{Attached, Identity, Slots};

/// Where brokers are, what is trusted of them, and over whose connections.
#[derive(Debug)]
pub(crate) struct Reach {
    brokers: Vec<String>,
    server_name: String,
    roots: Option<Vec<u8>>,
    tenant: String,
    /// Connections of the gateway that all share; `None` where every session has its own.
    slots: Option<Slots>,
}

/// The file of trusted roots cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("broker_ca: {}: {source}", path.display())]
pub struct RootsRefused {
    path: PathBuf,
    source: std::io::Error,
}

impl Reach {
    /// Reads the roots that the configuration names.
    ///
    /// # Errors
    /// [`RootsRefused`] names the file.
    pub(crate) fn read(config: &Config, identity: &Identity) -> Result<Self, RootsRefused> {
        let roots = config.broker_ca.as_ref().map(|path| {
            std::fs::read(path).map_err(|source| RootsRefused {
                path: path.clone(),
                source,
            })
        });
        let mut reach = Self {
            brokers: config.brokers.clone(),
            server_name: config.broker_name.clone(),
            roots: roots.transpose()?,
            tenant: config.tenant.clone(),
            slots: None,
        };
        if let (Some(tokens), Some(chain), Some(key)) = (
            identity.connection_tokens(),
            &config.client_cert,
            &config.client_key,
        ) {
            let builder = reach.builder().client_identity_files(chain, key);
            let builder = builder.token_source(tokens);
            reach.slots = Some(Slots::new(config.shared_connections, move || {
                Box::pin(builder.clone().connect())
            }));
        }
        Ok(reach)
    }

    /// Connects in the name of whoever these tokens speak for.
    ///
    /// # Errors
    /// When no broker answers or takes the token.
    pub(crate) async fn connect(
        &self,
        namespace: &str,
        tokens: TokenSource,
    ) -> Result<Attached, ConnectFailed> {
        if let Some(slots) = &self.slots {
            let attached = slots.attach(tokens).await?;
            return Ok(attached.in_namespace(namespace)?);
        }
        let builder = self.builder().namespace(namespace).token_source(tokens);
        builder.connect().await.map(Attached::alone)
    }

    fn builder(&self) -> Builder {
        let builder = Client::builder()
            .brokers(self.brokers.iter().cloned())
            .server_name(self.server_name.as_str())
            .tenant(self.tenant.as_str());
        match &self.roots {
            Some(roots) => builder.ca_pem(roots.clone()),
            None => builder,
        }
    }
}
