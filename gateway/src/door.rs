//! Who lets people in, made from the configuration: whose pages may ask, how people sign in here, and what their
//! sign-ins are exchanged for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::FromRef;
use felix_controlplane_client::BadEndpoint;
use felix_model::TenantId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::app::App;
use crate::config::Config;
use crate::console::Console;
use crate::identity::{self, Identity, Secret};
use crate::origin::{BadOrigin, Origins};
use crate::sign_in::{self, SignIn};

/// Bytes of a file with a secret that are read.
const SECRET_BYTES_MAX: usize = 4_096;

/// Why nobody could be let in. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum DoorRefused {
    /// The tenant cannot exist.
    #[error("tenant: {0}")]
    Tenant(felix_model::BadName),
    /// An origin is none.
    #[error("public_url or origins: {0}")]
    Origin(#[from] BadOrigin),
    /// The control plane's address.
    #[error("controlplane_url: {0}")]
    ControlPlane(#[from] BadEndpoint),
    /// A file cannot be read, or is not what it should be.
    #[error("{key}: {}: {why}", path.display())]
    File {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The HTTP client could not be made.
    #[error("no HTTP client for the provider: {0}")]
    Client(#[from] reqwest::Error),
}

/// The people's side of a gateway.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) origins: Origins,
    pub(crate) trusted_proxies: usize,
    pub(crate) sign_in: Arc<SignIn>,
    pub(crate) identity: Identity,
    tenant: TenantId,
    /// PEM.
    roots: Option<Vec<u8>>,
}

impl Door {
    /// Reads what the configuration names; nothing is asked of anybody yet. Must be called where tasks can be started.
    ///
    /// # Errors
    /// [`DoorRefused`] says what to change.
    pub(crate) fn open(config: &Config, trusted_proxies: usize) -> Result<Self, DoorRefused> {
        let tenant = TenantId::new(&config.tenant).map_err(DoorRefused::Tenant)?;
        let roots = config.broker_ca.as_deref().map(read_roots).transpose()?;
        let (pem, provider_roots) = roots.unzip();
        let client_secret = config.oidc_client_secret_file.as_deref();
        let origins = Origins::new(config.public_url.as_deref(), &config.origins)?;
        let sign_in = SignIn::new(sign_in::Settings {
            issuer: config.oidc_issuer.clone(),
            client_id: config.oidc_client_id.clone(),
            client_secret: client_secret.map(read_secret).transpose()?,
            scopes: config.oidc_scopes.clone(),
            provider_roots: provider_roots.clone().unwrap_or_default(),
            origins: origins.clone(),
            trusted_proxies,
        })?;
        let settings = identity::Settings {
            tenant: tenant.clone(),
            controlplane_url: config.controlplane_url.clone(),
            controlplane_roots: pem.clone(),
            issuer: config.oidc_issuer.clone(),
            client_id: config.oidc_client_id.clone(),
            provider_roots: provider_roots.unwrap_or_default(),
            credential: config.credential_file.clone(),
        };
        let identity = Identity::new(settings, sign_in.sessions())?;
        Ok(Self {
            origins,
            trusted_proxies,
            identity,
            sign_in: Arc::new(sign_in),
            tenant,
            roots: pem,
        })
    }

    /// Prepares what the console asks with; it comes in by this door.
    ///
    /// # Errors
    /// When the control plane's address cannot be used.
    pub(crate) fn console(&self, config: &Config) -> Result<Console, DoorRefused> {
        let roots = self.roots.as_deref();
        Ok(Console::new(config, self.tenant.clone(), roots)?)
    }
}

impl FromRef<App> for Arc<SignIn> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.door.sign_in)
    }
}

fn read_roots(path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), DoorRefused> {
    let unusable = |why: String| DoorRefused::File {
        key: "broker_ca",
        path: path.to_owned(),
        why,
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let roots = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let roots = roots.map_err(|error| unusable(error.to_string()))?;
    Ok((pem, roots))
}

fn read_secret(path: &Path) -> Result<Secret, DoorRefused> {
    let unusable = |why: String| DoorRefused::File {
        key: "oidc_client_secret_file",
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    match text.trim() {
        "" => Err(unusable("it is empty".into())),
        secret if secret.len() > SECRET_BYTES_MAX => Err(unusable("it is too large".into())),
        secret => Ok(Secret::new(secret)),
    }
}
