//! The certificate that Kafka clients see, re-read when it changes on disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why there is no usable certificate. The listener does not start without one that it was told to use.
#[derive(Debug, thiserror::Error)]
pub enum TlsRefused {
    /// A PEM file is missing, unreadable or holds something else.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate and the key do not fit each other or this TLS stack.
    #[error("the certificate is not usable: {0}")]
    Unusable(String),
}

/// The TLS configuration of new connections. Those that are open keep the one they began with.
pub(crate) struct Tls {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Held>,
}

struct Held {
    pem: (Vec<u8>, Vec<u8>),
    config: Arc<ServerConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a chain and its key.
    ///
    /// # Errors
    /// [`TlsRefused`] names the file that is at fault.
    pub(crate) fn read(cert: &Path, key: &Path) -> Result<Self, TlsRefused> {
        Ok(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            current: RwLock::new(Held::read(cert, key)?),
        })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let held = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&held.config))
    }

    /// Looks at the files again. `true` when another certificate is shown from now on.
    ///
    /// # Errors
    /// [`TlsRefused`]; the earlier one stays.
    pub(crate) fn reload(&self) -> Result<bool, TlsRefused> {
        let fresh = Held::read(&self.cert, &self.key)?;
        let mut held = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if held.pem == fresh.pem {
            return Ok(false);
        }
        *held = fresh;
        Ok(true)
    }
}

impl Held {
    fn read(cert: &Path, key: &Path) -> Result<Self, TlsRefused> {
        let refused = |path: &Path, reason: String| TlsRefused::File {
            path: path.into(),
            reason,
        };
        let read =
            |path: &Path| std::fs::read(path).map_err(|error| refused(path, error.to_string()));
        let pem = (read(cert)?, read(key)?);
        let chain = CertificateDer::pem_slice_iter(&pem.0)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(cert, error.to_string()))?;
        if chain.is_empty() {
            return Err(refused(cert, "holds no certificate".into()));
        }
        let private = PrivateKeyDer::from_pem_slice(&pem.1)
            .map_err(|error| refused(key, error.to_string()))?;
        let unusable = |error: rustls::Error| TlsRefused::Unusable(error.to_string());
        let config =
            ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .map_err(unusable)?
                .with_no_client_auth()
                .with_single_cert(chain, private)
                .map_err(unusable)?;
        Ok(Self {
            pem,
            config: Arc::new(config),
        })
    }
}
