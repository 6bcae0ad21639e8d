//! Whom an `https` address is trusted by: the authority that was named, or else the machine's own.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::exit::Failure;

/// The TLS of a client. Without `https` nobody is asked and nobody is trusted.
pub(crate) fn client_config(url: &str, ca_file: Option<&Path>) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    match ca_file {
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
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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
        let refused = client_config("https://x", Some(&file)).expect_err("no file");
        assert_eq!(refused.exit, Exit::Usage);
        std::fs::write(&file, "not a certificate").expect("written");
        let refused = client_config("https://x", Some(&file)).expect_err("no certificate");
        assert!(refused.message.contains("ca.pem"), "{}", refused.message);
    }

    #[test]
    fn a_named_authority_is_the_only_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = crate::dev::certificates(directory.path()).expect("certificates");
        assert!(client_config("https://x", Some(&files.ca)).is_ok());
        assert!(client_config("http://x", None).is_ok());
    }
}
