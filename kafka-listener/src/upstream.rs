//! Where brokers and control plane are, and how connections to them are made.

use std::path::Path;
use std::sync::Arc;

use felix_client::{Client, ConnectFailed, Near};
use felix_controlplane_client::{
    Api as ControlPlane, BadEndpoint, Credential, Given, NoCredential, TokenSource,
};
use felix_model::TenantId;

use crate::config::Config;

/// The addresses behind the listener, with what is trusted of them.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    brokers: Vec<String>,
    broker_ca: Option<Vec<u8>>,
    broker_name: Option<String>,
    controlplane_url: String,
    /// The broker in whose process this is.
    near: Option<Arc<dyn Near>>,
}

/// A file of trusted roots cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct RootsRefused {
    path: String,
    source: std::io::Error,
}

impl Upstream {
    /// Reads the roots that the configuration names.
    ///
    /// # Errors
    /// [`RootsRefused`] names the file.
    pub(crate) fn read(config: &Config, near: Option<Arc<dyn Near>>) -> Result<Self, RootsRefused> {
        let roots = |path: Option<&Path>| {
            path.map(|path| {
                std::fs::read(path).map_err(|source| RootsRefused {
                    path: path.display().to_string(),
                    source,
                })
            })
            .transpose()
        };
        Ok(Self {
            brokers: config.brokers.clone(),
            broker_ca: roots(config.broker_ca.as_deref())?,
            broker_name: config.broker_name.clone(),
            controlplane_url: config.controlplane_url.clone(),
            near,
        })
    }

    /// Connects to the brokers in the name of a token.
    ///
    /// # Errors
    /// When no broker answers or takes the token.
    pub(crate) async fn connect(
        &self,
        tenant: &TenantId,
        token: &str,
    ) -> Result<Client, ConnectFailed> {
        let mut builder = Client::builder()
            .brokers(self.brokers.iter().cloned())
            .tenant(tenant.as_str())
            .token(token);
        if let Some(pem) = &self.broker_ca {
            builder = builder.ca_pem(pem.clone());
        }
        if let Some(name) = &self.broker_name {
            builder = builder.server_name(name.clone());
        }
        if let Some(near) = &self.near {
            builder = builder.near(Arc::clone(near));
        }
        builder.connect().await
    }

    /// The source of the listener's own tokens, and what keeps it fresh.
    ///
    /// # Errors
    /// [`NoCredential`].
    pub(crate) fn credential(
        &self,
        given: Given,
    ) -> Result<(TokenSource, Option<Credential>), NoCredential> {
        given.source(&self.controlplane_url, self.broker_ca.as_deref())
    }

    /// Calls to the control plane with a token; `None` when its address cannot be used, which is found out at start.
    pub(crate) fn control(&self, token: TokenSource) -> Option<ControlPlane> {
        self.try_control(token).ok()
    }

    /// Calls to the control plane with a token.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address or the roots cannot be used.
    pub(crate) fn try_control(&self, token: TokenSource) -> Result<ControlPlane, BadEndpoint> {
        match self
            .broker_ca
            .as_ref()
            .filter(|_| self.controlplane_url.starts_with("https:"))
        {
            Some(roots) => ControlPlane::trusting(&self.controlplane_url, token, roots),
            None => ControlPlane::new(&self.controlplane_url, token),
        }
    }
}
