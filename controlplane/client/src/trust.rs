//! Whose certificates are trusted, and which one is presented.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::call::BadEndpoint;

/// What a connection over TLS begins with. The default trusts nobody and presents nothing: enough for `http`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// PEM certificates to trust, and no others; needed for `https`.
    pub roots: Option<Vec<u8>>,
    identity: Option<Identity>,
}

/// PEM of a certificate chain, leaf first, and of its key.
#[derive(Clone, PartialEq, Eq)]
struct Identity {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Trust")
            .field("roots", &self.roots.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl Trust {
    /// Trusts these PEM certificates, if any are given.
    #[must_use]
    pub fn roots(roots: Option<&[u8]>) -> Self {
        Self {
            roots: roots.map(<[u8]>::to_vec),
            identity: None,
        }
    }

    /// Presents a certificate to whoever asks for one: its chain, leaf first, and its private key, both PEM.
    #[must_use]
    pub fn presenting(self, chain: Vec<u8>, key: Vec<u8>) -> Self {
        let identity = Some(Identity { chain, key });
        Self { identity, ..self }
    }

    /// TLS that trusts the roots and nothing else; without any it trusts nobody.
    pub(crate) fn config(&self) -> Result<ClientConfig, BadEndpoint> {
        let bad = |detail: String| BadEndpoint::BadRoots { detail };
        let mut store = RootCertStore::empty();
        let roots = self.roots.as_deref().unwrap_or_default();
        for root in CertificateDer::pem_slice_iter(roots) {
            let root = root.map_err(|error| bad(error.to_string()))?;
            store.add(root).map_err(|error| bad(error.to_string()))?;
        }
        if store.is_empty() && !roots.is_empty() {
            return Err(bad("there is no certificate in it".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(error.to_string()))?
            .with_root_certificates(store);
        match &self.identity {
            None => Ok(config.with_no_client_auth()),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(&error))
            }
        }
    }
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), BadEndpoint> {
        let chain = CertificateDer::pem_slice_iter(&self.chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(&error))?;
        if chain.is_empty() {
            return Err(unusable(&"there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| unusable(&error))?;
        Ok((chain, key))
    }
}

fn unusable(detail: &dyn fmt::Display) -> BadEndpoint {
    BadEndpoint::BadIdentity {
        detail: detail.to_string(),
    }
}

/// Whether a failure is a server's refusal of the certificate that was presented to it, or of the lack of one, by the words
/// that rustls has for alerts it received. The request was not read then.
pub(crate) fn is_about_certificate(detail: &str) -> bool {
    let Some((_, alert)) = detail.split_once("received fatal alert: ") else {
        return false;
    };
    let alert = alert.chars().filter(char::is_ascii_alphabetic);
    let alert: String = alert.collect::<String>().to_ascii_lowercase();
    [
        "certificaterequired",
        "badcertificate",
        "unsupportedcertificate",
        "certificaterevoked",
        "certificateexpired",
        "certificateunknown",
        "unknownca",
        "accessdenied",
    ]
    .iter()
    .any(|about| alert.starts_with(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_to_present_must_be_one_and_fit_its_key() {
        let own = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
        let (chain, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let other = other.signing_key.serialize_pem();
        let with = |chain: &str, key: &str| Trust::default().presenting(chain.into(), key.into());
        assert!(with(&chain, &key).config().is_ok());
        for wrong in [with("", &key), with(&chain, ""), with(&chain, &other)] {
            let refused = wrong.config().unwrap_err();
            assert!(
                matches!(refused, BadEndpoint::BadIdentity { .. }),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_key_is_in_no_debug_text() {
        let shown = format!(
            "{:?}",
            Trust::default().presenting("chain".into(), "hush".into())
        );
        assert!(!shown.contains("hush"), "{shown}");
        assert!(!shown.contains("104, 117, 115, 104"), "{shown}");
    }

    #[test]
    fn alerts_about_certificates_are_told_from_others() {
        use rustls::AlertDescription as Alert;
        let about = |alert| {
            let error = rustls::Error::AlertReceived(alert);
            is_about_certificate(&format!("connection error: {error}"))
        };
        for alert in [
            Alert::CertificateRequired,
            Alert::UnknownCA,
            Alert::CertificateExpired,
        ] {
            assert!(about(alert), "{alert:?}");
        }
        assert!(!about(Alert::InternalError));
    }
}
