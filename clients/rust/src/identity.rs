//! The certificate a client presents.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::builder::BadConfig;

/// A chain and its key, as they are shown in the next handshake.
#[derive(Debug)]
pub(crate) struct ClientIdentity {
    shown: RwLock<Arc<CertifiedKey>>,
    /// Where a newer one may be.
    files: Option<Files>,
}

#[derive(Debug)]
struct Files {
    chain: PathBuf,
    key: PathBuf,
}

impl ClientIdentity {
    /// One identity for good.
    pub(crate) fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, BadConfig> {
        let shown = certified(chain, key, "the PEM given")?;
        Ok(Self {
            shown: RwLock::new(shown),
            files: None,
        })
    }

    /// Whatever the files hold when a handshake begins. They must hold a good identity now.
    pub(crate) fn from_files(chain: PathBuf, key: PathBuf) -> Result<Self, BadConfig> {
        let files = Files { chain, key };
        Ok(Self {
            shown: RwLock::new(files.read()?),
            files: Some(files),
        })
    }

    /// What is shown now, after a look at the files. A pair that is half written, or gone, changes nothing.
    fn look(&self) -> Arc<CertifiedKey> {
        if let Some(files) = &self.files {
            match files.read() {
                Ok(read) => *self.shown.write().unwrap_or_else(PoisonError::into_inner) = read,
                Err(error) => {
                    tracing::warn!(%error, "the client certificate on disk is not usable; the one read before is shown");
                }
            }
        }
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Files {
    fn read(&self) -> Result<Arc<CertifiedKey>, BadConfig> {
        let read = |file: &Path| {
            std::fs::read(file).map_err(|error| unusable(&file.display().to_string(), &error))
        };
        let source_name = format!("{} and {}", self.chain.display(), self.key.display());
        certified(&read(&self.chain)?, &read(&self.key)?, &source_name)
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.look())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified(chain: &[u8], key: &[u8], source_name: &str) -> Result<Arc<CertifiedKey>, BadConfig> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(source_name, &error))?;
    if chain.is_empty() {
        return Err(unusable(source_name, &"it contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(source_name, &error))?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider);
    certified
        .map(Arc::new)
        .map_err(|error| unusable(source_name, &error))
}

fn unusable(source_name: &str, why: &dyn std::fmt::Display) -> BadConfig {
    BadConfig::Identity {
        source_name: source_name.to_owned(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_chain_whose_key_is_another_ones_is_refused() {
        let ((chain, key), (_, other)) = (made(), made());
        ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        for (chain, key) in [(&chain, &other), (&key, &key), (&chain, &chain)] {
            let refused = ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(matches!(refused, BadConfig::Identity { .. }), "{refused}");
            assert!(!refused.to_string().contains("PRIVATE"), "{refused}");
        }
    }

    #[test]
    fn what_is_renewed_on_disk_is_shown_next_and_what_is_half_written_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (chain_file, key_file) = (directory.path().join("chain"), directory.path().join("key"));
        let write = |(chain, key): &(String, String)| {
            std::fs::write(&chain_file, chain).unwrap();
            std::fs::write(&key_file, key).unwrap();
        };
        let (first, second) = (made(), made());
        write(&first);
        let identity = ClientIdentity::from_files(chain_file.clone(), key_file.clone()).unwrap();
        let shown = identity.look();
        write(&second);
        let renewed = identity.look();
        assert_ne!(shown.cert, renewed.cert);
        std::fs::write(&chain_file, &first.0).unwrap();
        assert_eq!(identity.look().cert, renewed.cert);
        let missing =
            ClientIdentity::from_files(directory.path().join("no"), key_file).unwrap_err();
        assert!(missing.to_string().contains("/no"), "{missing}");
    }
}
