//! Whom this client trusts.

use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CipherSuite, RootCertStore};

use crate::builder::BadConfig;
use crate::identity::ClientIdentity;

/// The application protocol offered in every handshake.
pub(crate) const PROTOCOL: &[u8] = b"felix/1";

/// Reads the certificates of a PEM bundle; `source` names it in errors.
pub(crate) fn roots_from_pem(pem: &[u8], source: &str) -> Result<RootCertStore, BadConfig> {
    let unusable = |why: String| BadConfig::Certificates {
        source_name: source.to_owned(),
        why,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it contains no certificate".to_owned()));
    }
    Ok(roots)
}

/// The machine's own trust store.
pub(crate) fn system_roots() -> Result<RootCertStore, BadConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(
            || "it contains no certificate".to_owned(),
            |error| error.to_string(),
        );
        return Err(BadConfig::Certificates {
            source_name: "the system's store".to_owned(),
            why,
        });
    }
    Ok(roots)
}

/// TLS 1.3 with the protocol offered and AES-128 preferred: it costs a third of ChaCha20 where the processor
/// knows AES, and the handshake leaves the choice to the broker elsewhere.
pub(crate) fn quic_config(
    roots: RootCertStore,
    identity: Option<ClientIdentity>,
) -> Result<QuicClientConfig, BadConfig> {
    let unusable = |why: String| BadConfig::Tls { why };
    let tls = rustls::ClientConfig::builder_with_provider(provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots);
    let mut tls = match identity {
        Some(identity) => tls.with_client_cert_resolver(Arc::new(identity)),
        None => tls.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    QuicClientConfig::try_from(Arc::new(tls)).map_err(|error| unusable(error.to_string()))
}

fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let preferred = [
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS13_AES_256_GCM_SHA384,
        ];
        let place = preferred
            .iter()
            .position(|preferred| *preferred == suite.suite());
        place.unwrap_or(preferred.len())
    });
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_certificates_is_named() {
        let refused = roots_from_pem(b"hello", "ca.pem").unwrap_err();
        assert!(refused.to_string().contains("ca.pem"), "{refused}");
        let refused = roots_from_pem(
            b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
            "ca.pem",
        );
        assert!(matches!(refused, Err(BadConfig::Certificates { .. })));
    }

    #[test]
    fn aes_128_is_offered_first() {
        let first = provider().cipher_suites.first().map(|suite| suite.suite());
        assert_eq!(first, Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
    }
}
