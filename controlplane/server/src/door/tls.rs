//! The certificate of a listener, read again when its files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::limits::CERTIFICATES_PAUSE;

/// Why a certificate is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsRefused {
    /// A file is missing, unreadable, or holds something else.
    #[error("{}: {detail}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Certificate, key and authority do not go together.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

/// The files of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TlsFiles {
    /// The chain, leaf first (PEM).
    cert: PathBuf,
    /// The leaf's private key (PEM).
    key: PathBuf,
    /// Whose certificates callers must present; none is asked for when `None`.
    client_ca: Option<PathBuf>,
}

/// A certificate that may change while connections are open; they keep the one they began with.
pub(crate) struct Certificates {
    files: TlsFiles,
    current: RwLock<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    read_at: Vec<Option<SystemTime>>,
}

impl Certificates {
    /// Reads the files.
    fn read(files: TlsFiles) -> Result<Self, TlsRefused> {
        let read_at = files.changed_at();
        let config = files.config()?;
        let current = RwLock::new(Current { config, read_at });
        Ok(Self { files, current })
    }

    /// What the next connection is accepted with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current.config))
    }

    /// Reads the files again when they changed. Files that cannot be used leave what is, and are tried again: a
    /// certificate and its key are seldom replaced in one moment. Blocking.
    pub(super) fn refresh(&self) {
        let changed_at = self.files.changed_at();
        let known = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if known.read_at == changed_at {
            return;
        }
        drop(known);
        match self.files.config() {
            Ok(config) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Current {
                    config,
                    read_at: changed_at,
                };
                tracing::info!(file = %self.files.cert.display(), "took a new certificate");
            }
            Err(error) => tracing::error!(%error, "the certificate stays as it was"),
        }
    }
}

impl TlsFiles {
    fn changed_at(&self) -> Vec<Option<SystemTime>> {
        let changed = |file: &Path| {
            let metadata = std::fs::metadata(file).ok()?;
            metadata.modified().ok()
        };
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(|file| changed(file))
            .collect()
    }

    fn config(&self) -> Result<Arc<ServerConfig>, TlsRefused> {
        let unusable = |error: &dyn std::fmt::Display| TlsRefused::Unusable(error.to_string());
        let chain = pem(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| TlsRefused::File {
            file: self.key.clone(),
            detail: error.to_string(),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for root in pem(file)? {
                    roots.add(root).map_err(|error| unusable(&error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| unusable(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// The certificates of a listener; `None` when it does not encrypt.
pub(crate) type Encryption = Option<Arc<Certificates>>;

/// The certificates of the API and of the bootstrap listener, as far as they are configured.
pub(crate) fn certificates(config: &Config) -> Result<(Encryption, Encryption), TlsRefused> {
    let read = |cert: &Option<PathBuf>, key: &Option<PathBuf>, client_ca: &Option<PathBuf>| {
        let (Some(cert), Some(key)) = (cert.clone(), key.clone()) else {
            return Ok(None);
        };
        let files = TlsFiles {
            cert,
            key,
            client_ca: client_ca.clone(),
        };
        Certificates::read(files).map(|read| Some(Arc::new(read)))
    };
    let api = read(&config.tls_cert, &config.tls_key, &None)?;
    let bootstrap = read(
        &config.bootstrap_tls_cert,
        &config.bootstrap_tls_key,
        &config.bootstrap_tls_client_ca,
    )?;
    Ok((api, bootstrap))
}

/// Looks at the files of certificates again and again.
pub(crate) async fn watch_certificates(all: Vec<Arc<Certificates>>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATES_PAUSE) => {}
            () = stop.cancelled() => return,
        }
        let all = all.clone();
        let read = tokio::task::spawn_blocking(move || all.iter().for_each(|one| one.refresh()));
        if read.await.is_err() {
            tracing::error!("the certificates could not be looked at");
        }
    }
}

fn pem(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsRefused> {
    let refused = |detail: String| TlsRefused::File {
        file: file.to_owned(),
        detail,
    };
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(error.to_string()))?;
    if chain.is_empty() {
        return Err(refused("holds no certificate".into()));
    }
    Ok(chain)
}
