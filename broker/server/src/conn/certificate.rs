//! Tokens that count only where the client's certificate names who presents them.

use felix_auth::{CertificateNames, Principal};
use felix_wire::error::{Code, Failure};
use quinn::Connection;
use rustls::pki_types::CertificateDer;

/// The names in the certificate that a client presented, which the handshake found good. `None` when it presented none.
pub(super) fn presented(quic: &Connection) -> Option<CertificateNames> {
    let identity = quic.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.first().map(|leaf| CertificateNames::read(leaf))
}

/// Whether a certificate, if there is one, names the principal of a token or the actor who acts for him.
///
/// # Errors
/// `unauthenticated`, reason `token_not_of_certificate`.
pub(super) fn check(
    names: Option<&CertificateNames>,
    principal: &Principal,
) -> Result<(), Failure> {
    let Some(names) = names else {
        return Ok(());
    };
    let named = [Some(&*principal.subject), principal.actor.as_deref()];
    if named.into_iter().flatten().any(|id| names.speak_for(id)) {
        return Ok(());
    }
    Err(Failure::new(
        Code::Unauthenticated,
        "the certificate of this connection names neither the token's principal nor its actor",
    )
    .with_reason("token_not_of_certificate"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use felix_auth::Permissions;
    use felix_model::TimeMs;
    use quinn::crypto::rustls::QuicClientConfig;
    use quinn::{ConnectionError, Endpoint};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
    use rustls::RootCertStore;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::tls::{ClientRoots, Identity, ServerConfigs};

    struct Authority(Issuer<'static, KeyPair>);

    impl Authority {
        fn new() -> (Self, String) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            let pem = params.self_signed(&key).unwrap().pem();
            (Self(Issuer::new(params, key)), pem)
        }

        fn issue(&self, uri: &str) -> Identity {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
            let certificate = params.signed_by(&key, &self.0).unwrap();
            Identity {
                chain: vec![certificate.der().clone()],
                key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            }
        }
    }

    /// A listener that trusts one authority for clients, and what connects to it.
    struct World {
        endpoint: Endpoint,
        address: SocketAddr,
        server: Identity,
    }

    impl World {
        fn new(roots: &str, required: bool) -> Self {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), roots).unwrap();
            let clients = ClientRoots::read(file.path(), required).unwrap();
            let server = Identity::self_signed().unwrap();
            let configs = ServerConfigs::new(&server, Some(clients)).unwrap();
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            let endpoint = Endpoint::server(configs.default_config(), local).unwrap();
            let address = endpoint.local_addr().unwrap();
            Self {
                endpoint,
                address,
                server,
            }
        }

        /// What a client with this certificate is known by, or why it is nobody here.
        async fn meet(
            &self,
            client: Option<&Identity>,
        ) -> Result<Option<CertificateNames>, ConnectionError> {
            let mut roots = RootCertStore::empty();
            roots.add(self.server.chain[0].clone()).unwrap();
            let provider = rustls::crypto::ring::default_provider();
            let tls = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots);
            let tls = match client {
                Some(identity) => tls
                    .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                    .unwrap(),
                None => tls.with_no_client_auth(),
            };
            let config = QuicClientConfig::try_from(tls).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(config));
            let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
            let connecting = endpoint
                .connect_with(config, self.address, "localhost")
                .unwrap();
            let client = tokio::spawn(connecting);
            let accepted = self.endpoint.accept().await.unwrap().await;
            let met = accepted.map(|connection| presented(&connection));
            drop(client.await.unwrap());
            met
        }
    }

    fn principal(subject: &str, actor: Option<&str>) -> Principal {
        let mut principal = Principal::new(
            "t".parse().unwrap(),
            subject,
            (TimeMs(0), TimeMs(1)),
            Arc::new(Permissions::compile("t", [])),
        );
        principal.actor = actor.map(Arc::from);
        principal
    }

    #[tokio::test]
    async fn a_token_counts_only_where_the_certificate_names_its_principal_or_actor() {
        let (authority, roots) = Authority::new();
        let world = World::new(&roots, false);
        let gateway = authority.issue("felix:principal:p:gateway");
        let names = world.meet(Some(&gateway)).await.unwrap();
        check(names.as_ref(), &principal("p:gateway", None)).unwrap();
        check(names.as_ref(), &principal("p:alice", Some("p:gateway"))).unwrap();
        let stolen = check(names.as_ref(), &principal("p:alice", None)).unwrap_err();
        assert_eq!(stolen.code(), Some(Code::Unauthenticated));
        assert_eq!(stolen.reason(), Some("token_not_of_certificate"));
        // Without a certificate nothing is bound to it.
        let nameless = world.meet(None).await.unwrap();
        assert_eq!(nameless, None);
        check(nameless.as_ref(), &principal("p:alice", None)).unwrap();
    }

    #[tokio::test]
    async fn a_certificate_that_is_demanded_must_be_there_and_of_the_right_authority() {
        let (authority, roots) = Authority::new();
        let world = World::new(&roots, true);
        assert!(world.meet(None).await.is_err());
        let (stranger, _) = Authority::new();
        let strange = stranger.issue("felix:principal:p:gateway");
        assert!(world.meet(Some(&strange)).await.is_err());
        let right = authority.issue("felix:principal:p:gateway");
        assert!(world.meet(Some(&right)).await.unwrap().is_some());
        // Where one may be left out, one of another authority is refused all the same.
        let lenient = World::new(&roots, false);
        assert!(lenient.meet(Some(&strange)).await.is_err());
    }
}
