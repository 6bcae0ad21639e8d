//! Whom an `https` address is trusted by: the authority that was named, or else the machine's own. And the certificate
//! that is presented there, if one was named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::exit::Failure;

/// Files for connections to an `https` listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authority of its certificate, when it is not the machine's.
    pub ca_file: Option<PathBuf>,
    /// What this side presents.
    pub identity: Option<Identity>,
}

/// A certificate and its key, as files (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain, leaf first.
    pub cert_file: PathBuf,
    /// The leaf's private key.
    pub key_file: PathBuf,
}

/// The TLS of a client. Without `https` nobody is asked and nobody is trusted.
pub(crate) fn client_config(url: &str, tls: &Tls) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    match tls.ca_file.as_deref() {
        Some(file) => named(file, &mut roots)?,
        None if url.starts_with("https://") => {
            let found = rustls_native_certs::load_native_certs();
            // Some machines have one odd certificate among two hundred good ones.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    Failure::usage("this machine has no certificate authorities")
                        .with_hint("name the control plane's with --controlplane-ca-file"),
                );
            }
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let config = config.with_root_certificates(roots);
    match &tls.identity {
        None => Ok(config.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = identity.read()?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| Identity::unusable(&identity.key_file, &error))
        }
    }
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
        let chain = CertificateDer::pem_file_iter(&self.cert_file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| Self::unusable(&self.cert_file, &error))?;
        if chain.is_empty() {
            return Err(Self::unusable(
                &self.cert_file,
                &"there is no certificate in it",
            ));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key_file)
            .map_err(|error| Self::unusable(&self.key_file, &error))?;
        Ok((chain, key))
    }

    fn unusable(file: &Path, why: &dyn std::fmt::Display) -> Failure {
        let file = file.display();
        Failure::usage(format!("{file} is no client certificate and key: {why}")).with_hint(
            "--client-cert-file names the certificate chain and --client-key-file its private key, both PEM",
        )
    }
}

fn named(file: &Path, roots: &mut RootCertStore) -> Result<(), Failure> {
    let unusable =
        |why: String| Failure::usage(format!("{} cannot be trusted: {why}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(|error| unusable(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("there is no certificate in it".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_file_without_a_certificate_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.pem");
        let tls = trusting(&file);
        let refused = client_config("https://x", &tls).expect_err("no file");
        assert_eq!(refused.exit, Exit::Usage);
        std::fs::write(&file, "not a certificate").expect("written");
        let refused = client_config("https://x", &tls).expect_err("no certificate");
        assert!(refused.message.contains("ca.pem"), "{}", refused.message);
    }

    #[test]
    fn a_named_authority_is_the_only_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = crate::dev::certificates(directory.path()).expect("certificates");
        assert!(client_config("https://x", &trusting(&files.ca)).is_ok());
        assert!(client_config("http://x", &Tls::default()).is_ok());
    }

    #[test]
    fn a_certificate_to_present_must_be_readable_and_fit_its_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = crate::dev::certificates(directory.path()).expect("certificates");
        let with = |cert_file: &Path, key_file: &Path| Tls {
            identity: Some(Identity {
                cert_file: cert_file.to_owned(),
                key_file: key_file.to_owned(),
            }),
            ..trusting(&files.ca)
        };
        let good = with(&files.certificate, &files.key);
        assert!(client_config("https://x", &good).is_ok());
        for wrong in [
            with(&files.key, &files.certificate),
            with(&files.ca, &files.key),
        ] {
            let refused = client_config("https://x", &wrong).expect_err("they do not fit");
            assert_eq!(refused.exit, Exit::Usage);
            assert!(refused.hint.is_some_and(|hint| hint.contains("PEM")));
        }
    }

    fn trusting(ca_file: &Path) -> Tls {
        Tls {
            ca_file: Some(ca_file.to_owned()),
            identity: None,
        }
    }
}
