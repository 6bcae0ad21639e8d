//! Certificates of members. Each names its member, whatever host it runs on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use super::Named;

/// The name that a member's certificate bears, as a DNS name.
#[must_use]
pub fn certificate_name(member: u64) -> String {
    format!("felix-raft-{member}")
}

/// Where a member's certificates are, each file in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This member's certificate, and those between it and the roots.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The roots that sign members' certificates.
    pub ca: PathBuf,
}

/// Why certificates are not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsRefused {
    /// A file cannot be read, or is not what it should be.
    #[error("{what} {}: {detail}", file.display())]
    File {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The files do not go together.
    #[error("the certificates of raft members cannot be used: {0}")]
    Together(String),
    /// The certificate is another member's.
    #[error("raft_tls_cert does not name {expected}: {detail}")]
    Name {
        /// What it must bear.
        expected: String,
        /// What the check says.
        detail: String,
    },
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are handed over as they come"
)]
fn unusable(named: &Named, detail: impl ToString) -> TlsRefused {
    TlsRefused::File {
        what: named.0,
        file: named.1.clone(),
        detail: detail.to_string(),
    }
}

fn certificates(named: &Named) -> Result<Vec<CertificateDer<'static>>, TlsRefused> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&named.1)
        .map_err(|error| unusable(named, error))?
        .collect();
    let found = found.map_err(|error| unusable(named, error))?;
    match found.is_empty() {
        true => Err(unusable(named, "it holds no certificate")),
        false => Ok(found),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are handed over as they come"
)]
fn together(error: impl ToString) -> TlsRefused {
    TlsRefused::Together(error.to_string())
}

/// What is read of the files.
#[derive(Debug)]
struct Read {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

impl TlsFiles {
    fn changed_at(&self) -> Vec<Option<SystemTime>> {
        let changed = |file: &PathBuf| std::fs::metadata(file).ok()?.modified().ok();
        [&self.cert, &self.key, &self.ca]
            .into_iter()
            .map(changed)
            .collect()
    }

    fn read(&self) -> Result<Read, TlsRefused> {
        let named = |what, file: &Path| Named(what, file.to_path_buf());
        let key = named("raft_tls_key", &self.key);
        let ca = named("raft_tls_ca", &self.ca);
        let mut roots = RootCertStore::empty();
        for root in certificates(&ca)? {
            roots.add(root).map_err(|error| unusable(&ca, error))?;
        }
        Ok(Read {
            chain: certificates(&named("raft_tls_cert", &self.cert))?,
            key: PrivateKeyDer::from_pem_file(&key.1).map_err(|error| unusable(&key, error))?,
            roots: Arc::new(roots),
        })
    }

    /// How a member's listener meets others: they must show a certificate too.
    ///
    /// # Errors
    /// [`TlsRefused`], also when the certificate does not name `member`.
    pub(crate) fn server(&self, member: u64) -> Result<Arc<ServerConfig>, TlsRefused> {
        let Read { chain, key, roots } = self.read()?;
        if let Some(own) = chain.first() {
            names(own, member).map_err(|detail| TlsRefused::Name {
                expected: certificate_name(member),
                detail,
            })?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(together)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(together)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(together)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// How a member calls another: it must be the one that is meant, on whichever host.
    ///
    /// # Errors
    /// [`TlsRefused`].
    pub(crate) fn client(&self, member: u64) -> Result<ClientConfig, TlsRefused> {
        let Read { chain, key, roots } = self.read()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(together)?;
        let name = ServerName::try_from(certificate_name(member)).map_err(together)?;
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(together)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(MemberVerifier { inner, name }))
            .with_client_auth_cert(chain, key)
            .map_err(together)
    }
}

/// What is made of the files, and made again when they change: certificates are renewed while members run.
pub(crate) struct Renewed<T> {
    files: TlsFiles,
    /// How often the files are looked at.
    pause: Duration,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    made: T,
    changed_at: Vec<Option<SystemTime>>,
    looked_at: Instant,
}

impl<T> std::fmt::Debug for Renewed<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Renewed")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl<T: Clone> Renewed<T> {
    /// Makes it for the first time.
    ///
    /// # Errors
    /// [`TlsRefused`].
    pub(crate) fn new(
        files: TlsFiles,
        pause: Duration,
        make: impl FnOnce(&TlsFiles) -> Result<T, TlsRefused>,
    ) -> Result<Self, TlsRefused> {
        let changed_at = files.changed_at();
        let held = Held {
            made: make(&files)?,
            changed_at,
            looked_at: Instant::now(),
        };
        Ok(Self {
            files,
            pause,
            held: Mutex::new(held),
        })
    }

    /// What it is now. Files that cannot be used leave what was, and are tried again: a certificate and its key are seldom
    /// replaced in one moment.
    pub(crate) fn get(&self, make: impl FnOnce(&TlsFiles) -> Result<T, TlsRefused>) -> T {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.looked_at.elapsed() < self.pause {
            return held.made.clone();
        }
        held.looked_at = Instant::now();
        let changed_at = self.files.changed_at();
        if changed_at != held.changed_at {
            match make(&self.files) {
                Ok(made) => {
                    tracing::info!(file = %self.files.cert.display(), "took a new certificate of this raft member");
                    held.made = made;
                    held.changed_at = changed_at;
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate of this raft member stays as it was");
                }
            }
        }
        held.made.clone()
    }
}

/// Whether a certificate names a member.
///
/// # Errors
/// What the check says.
pub(crate) fn names(certificate: &CertificateDer<'_>, member: u64) -> Result<(), String> {
    let name = ServerName::try_from(certificate_name(member)).map_err(|error| error.to_string())?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
    verify_server_name(&parsed, &name).map_err(|error| error.to_string())
}

/// Checks a server's certificate in every way, but for the name of the member instead of the host's.
#[derive(Debug)]
struct MemberVerifier {
    inner: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner
            .verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_taken_when_its_files_change_and_kept_when_they_are_of_no_use() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let files = TlsFiles {
            cert: file("cert.pem"),
            key: file("key.pem"),
            ca: file("ca.pem"),
        };
        let write = |second: u64, cert: &str, key: &str| {
            for (name, text) in [("cert.pem", cert), ("key.pem", key), ("ca.pem", cert)] {
                std::fs::write(file(name), text).unwrap();
                let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
                let file = std::fs::File::options().write(true).open(file(name));
                file.unwrap().set_modified(changed).unwrap();
            }
        };
        let issue = |member| {
            let made = rcgen::generate_simple_self_signed([certificate_name(member)]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let (cert, key) = issue(1);
        write(1, &cert, &key);
        let make = |files: &TlsFiles| files.server(1);
        let renewed = Renewed::new(files, Duration::ZERO, make).unwrap();
        let first = renewed.get(make);
        assert!(Arc::ptr_eq(&first, &renewed.get(make)), "nothing changed");
        write(2, "nonsense", &key);
        assert!(Arc::ptr_eq(&first, &renewed.get(make)), "of no use");
        let (cert, key) = issue(2);
        write(3, &cert, &key);
        assert!(Arc::ptr_eq(&first, &renewed.get(make)), "another member's");
        let (cert, key) = issue(1);
        write(4, &cert, &key);
        assert!(!Arc::ptr_eq(&first, &renewed.get(make)));
    }
}
