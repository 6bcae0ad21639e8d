//! Where brokers and control plane are, and how connections to them are made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use felix_client::{Client, ConnectFailed, Near};
use felix_controlplane_client::{
    Api as ControlPlane, BadEndpoint, Credential, Given, NoCredential, TokenSource, Trust,
};
use felix_model::TenantId;

use crate::config::Config;

/// The addresses behind the listener, with what is trusted of them.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    brokers: Vec<String>,
    broker_ca: Option<Vec<u8>>,
    broker_name: Option<String>,
    /// Certificate chain and key that are presented, as files.
    identity: Option<(PathBuf, PathBuf)>,
    /// What the control plane is trusted by, and what is presented to it.
    trust: Trust,
    controlplane_url: String,
    /// Whether the log has been told that brokers want another certificate.
    told: Arc<AtomicBool>,
    /// The broker in whose process this is.
    near: Option<Arc<dyn Near>>,
}

/// A file of trusted roots, or of the certificate to present, cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct RootsRefused {
    path: String,
    source: std::io::Error,
}

impl Upstream {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// [`RootsRefused`] names the file.
    pub(crate) fn read(config: &Config, near: Option<Arc<dyn Near>>) -> Result<Self, RootsRefused> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| RootsRefused {
                path: path.display().to_string(),
                source,
            })
        };
        let broker_ca = config.broker_ca.as_deref().map(read).transpose()?;
        let identity = config.client_cert.clone().zip(config.client_key.clone());
        let mut trust = Trust::default();
        if config.controlplane_url.starts_with("https:") {
            trust.roots.clone_from(&broker_ca);
            if let Some((chain, key)) = &identity {
                trust = trust.presenting(read(chain)?, read(key)?);
            }
        }
        Ok(Self {
            brokers: config.brokers.clone(),
            broker_ca,
            broker_name: config.broker_name.clone(),
            identity,
            trust,
            controlplane_url: config.controlplane_url.clone(),
            told: Arc::default(),
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
        if let Some((chain, key)) = &self.identity {
            builder = builder.client_identity_files(chain, key);
        }
        if let Some(near) = &self.near {
            builder = builder.near(Arc::clone(near));
        }
        let connected = builder.connect().await;
        self.tell(&connected);
        connected
    }

    /// Says once that brokers want another certificate: Kafka's protocol has no words for it, so that the log is where
    /// somebody learns what to change. Once more when it was mended in between.
    fn tell(&self, connected: &Result<Client, ConnectFailed>) {
        match connected {
            Ok(_) => self.told.store(false, Ordering::Relaxed),
            Err(failed @ ConnectFailed::Certificate { .. }) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        code = failed.code(),
                        %failed,
                        "set client_cert and client_key of this listener"
                    );
                }
            }
            Err(_) => {}
        }
    }

    /// The source of the listener's own tokens, and what keeps it fresh.
    ///
    /// # Errors
    /// [`NoCredential`].
    pub(crate) fn credential(
        &self,
        given: Given,
    ) -> Result<(TokenSource, Option<Credential>), NoCredential> {
        given.source(&self.controlplane_url, &self.trust)
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
        ControlPlane::with_trust(&self.controlplane_url, token, &self.trust)
    }
}
