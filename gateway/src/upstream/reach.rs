//! How brokers are reached in somebody's name.

use std::path::PathBuf;

use felix_client::{Client, ConnectFailed, TokenSource};

use crate::config::Config;

/// Where brokers are and what is trusted of them.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    brokers: Vec<String>,
    server_name: String,
    roots: Option<Vec<u8>>,
    tenant: String,
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
    pub(crate) fn read(config: &Config) -> Result<Self, RootsRefused> {
        let roots = config.broker_ca.as_ref().map(|path| {
            std::fs::read(path).map_err(|source| RootsRefused {
                path: path.clone(),
                source,
            })
        });
        Ok(Self {
            brokers: config.brokers.clone(),
            server_name: config.broker_name.clone(),
            roots: roots.transpose()?,
            tenant: config.tenant.clone(),
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
        let mut builder = Client::builder()
            .brokers(self.brokers.iter().cloned())
            .server_name(self.server_name.clone())
            .tenant(self.tenant.as_str())
            .namespace(namespace)
            .token_source(tokens);
        if let Some(roots) = &self.roots {
            builder = builder.ca_pem(roots.clone());
        }
        builder.connect().await
    }
}
