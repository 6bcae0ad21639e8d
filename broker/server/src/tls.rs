//! Certificates and the QUIC server configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{EndpointConfig, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::alpn::{CLIENT_PROTOCOL, EitherAlpn};
use crate::limits::{
    CLIENT_STREAMS_FIRST, CLIENT_UNI_STREAMS_FIRST, IDLE_TIMEOUT, KEEP_ALIVE, RECEIVE_WINDOW_BYTES,
    SEND_WINDOW_BYTES,
};

/// The chain and key that clients see.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's private key.
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// Why there is no usable certificate. The broker does not start without one.
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

impl Identity {
    /// Reads a PEM chain and key.
    ///
    /// # Errors
    /// [`TlsRefused::File`] names the file that is at fault.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, TlsRefused> {
        let refused = |path: &Path, reason: String| TlsRefused::File {
            path: path.into(),
            reason,
        };
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| refused(cert, error.to_string()))?;
        if chain.is_empty() {
            return Err(refused(cert, "holds no certificate".into()));
        }
        let key =
            PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, error.to_string()))?;
        Ok(Self { chain, key })
    }

    /// Makes a self-signed certificate for `localhost` and the loopback addresses.
    ///
    /// # Errors
    /// [`TlsRefused::Unusable`] when the system gives no randomness.
    pub fn self_signed() -> Result<Self, TlsRefused> {
        let names = ["localhost", "127.0.0.1", "::1"].map(String::from);
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| TlsRefused::Unusable(error.to_string()))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|error| TlsRefused::Unusable(error.to_owned()))?;
        Ok(Self {
            chain: vec![made.cert.der().clone()],
            key,
        })
    }
}

/// Whose certificates clients may, or must, present.
#[derive(Clone, Debug)]
pub(crate) struct ClientRoots {
    roots: Arc<RootCertStore>,
    required: bool,
}

impl ClientRoots {
    /// Reads the roots.
    ///
    /// # Errors
    /// [`TlsRefused::File`] names the file that is at fault.
    pub(crate) fn read(file: &Path, required: bool) -> Result<Self, TlsRefused> {
        let refused = |reason: String| TlsRefused::File {
            path: file.into(),
            reason,
        };
        let mut roots = RootCertStore::empty();
        let read =
            CertificateDer::pem_file_iter(file).map_err(|error| refused(error.to_string()))?;
        for root in read {
            let root = root.map_err(|error| refused(error.to_string()))?;
            roots
                .add(root)
                .map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("holds no certificate".into()));
        }
        Ok(Self {
            roots: Arc::new(roots),
            required,
        })
    }

    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, TlsRefused> {
        let provider = rustls::crypto::ring::default_provider().into();
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
        let builder = if self.required {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        builder
            .build()
            .map_err(|error| TlsRefused::Unusable(error.to_string()))
    }
}

/// The server configurations of a listener, which may change while it runs: connections that are open keep the one
/// they began with.
#[derive(Debug)]
pub(crate) struct ServerConfigs {
    current: RwLock<Pair>,
    clients: Option<ClientRoots>,
}

/// The two transport settings: loopback peers get large datagrams at once.
#[derive(Clone, Debug)]
struct Pair {
    loopback: Arc<ServerConfig>,
    network: Arc<ServerConfig>,
}

impl ServerConfigs {
    /// Builds both from one identity.
    ///
    /// # Errors
    /// [`TlsRefused::Unusable`] when certificate and key do not go together.
    pub(crate) fn new(
        identity: &Identity,
        clients: Option<ClientRoots>,
    ) -> Result<Self, TlsRefused> {
        Ok(Self {
            current: RwLock::new(Pair::new(identity, clients.as_ref())?),
            clients,
        })
    }

    /// The settings for a peer at `remote`.
    pub(crate) fn for_peer(&self, remote: IpAddr) -> Arc<ServerConfig> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(if remote.to_canonical().is_loopback() {
            &current.loopback
        } else {
            &current.network
        })
    }

    /// What the endpoint itself is built with.
    pub(crate) fn default_config(&self) -> ServerConfig {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .network
            .as_ref()
            .clone()
    }

    /// Shows another certificate from the next connection on.
    ///
    /// # Errors
    /// [`TlsRefused::Unusable`]; the earlier one stays.
    pub(crate) fn replace(&self, identity: &Identity) -> Result<(), TlsRefused> {
        let pair = Pair::new(identity, self.clients.as_ref())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(())
    }
}

impl Pair {
    fn new(identity: &Identity, clients: Option<&ClientRoots>) -> Result<Self, TlsRefused> {
        let crypto = Arc::new(EitherAlpn {
            without: Arc::new(quic_crypto(identity, clients, &[])?),
            with: Arc::new(quic_crypto(identity, clients, &[CLIENT_PROTOCOL])?),
        });
        let build = |loopback: bool| {
            let mut config = ServerConfig::with_crypto(Arc::clone(&crypto) as _);
            config.transport_config(Arc::new(transport(loopback)));
            Arc::new(config)
        };
        Ok(Self {
            loopback: build(true),
            network: build(false),
        })
    }
}

fn quic_crypto(
    identity: &Identity,
    clients: Option<&ClientRoots>,
    protocols: &[&[u8]],
) -> Result<QuicServerConfig, TlsRefused> {
    let unusable = |error: &dyn std::fmt::Display| TlsRefused::Unusable(error.to_string());
    let clients = clients.map(ClientRoots::verifier).transpose()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(
        rustls::crypto::ring::default_provider().into(),
    )
    .with_protocol_versions(&[&rustls::version::TLS13])
    .map_err(|error| unusable(&error))?
    .with_client_cert_verifier(clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
    .with_single_cert(identity.chain.clone(), identity.key.clone_key())
    .map_err(|error| unusable(&error))?;
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    QuicServerConfig::try_from(tls).map_err(|error| unusable(&error))
}

/// Largest datagram on loopback: ten of them fit the 64 KiB of one segmented send, which quinn fixes at ten.
const LOOPBACK_MTU: u16 = 4096;

fn transport(loopback: bool) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(CLIENT_STREAMS_FIRST))
        .max_concurrent_uni_streams(VarInt::from_u32(CLIENT_UNI_STREAMS_FIRST))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW_BYTES * 2))
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IDLE_TIMEOUT.try_into().ok())
        .datagram_receive_buffer_size(None);
    if loopback {
        config.initial_mtu(LOOPBACK_MTU);
    }
    // Ordinary loss must not be read as a black hole for long (a bulk transfer would go on in 1200-byte
    // datagrams): probing starts again after a short pause.
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(LOOPBACK_MTU)
        .black_hole_cooldown(std::time::Duration::from_secs(2));
    config.mtu_discovery_config(Some(discovery));
    config
}

/// Endpoint settings: accept larger datagrams than the default of 1472 bytes.
pub(crate) fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    // Twice what this side ever sends; the receive buffers grow with it. The value is within 1200..=65527, so it
    // is always accepted.
    let _ = config.max_udp_payload_size(8192);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_certificate_is_shown_from_the_next_connection_on() {
        let configs = ServerConfigs::new(&Identity::self_signed().unwrap(), None).unwrap();
        let peer = IpAddr::from([127, 0, 0, 1]);
        let before = configs.for_peer(peer);
        configs.replace(&Identity::self_signed().unwrap()).unwrap();
        assert!(!Arc::ptr_eq(&before, &configs.for_peer(peer)));
    }

    #[test]
    fn a_certificate_that_does_not_fit_its_key_leaves_the_earlier_one() {
        let configs = ServerConfigs::new(&Identity::self_signed().unwrap(), None).unwrap();
        let peer = IpAddr::from([127, 0, 0, 1]);
        let before = configs.for_peer(peer);
        let (one, other) = (
            Identity::self_signed().unwrap(),
            Identity::self_signed().unwrap(),
        );
        let mixed = Identity {
            chain: one.chain,
            key: other.key,
        };
        assert!(matches!(
            configs.replace(&mixed),
            Err(TlsRefused::Unusable(_))
        ));
        assert!(Arc::ptr_eq(&before, &configs.for_peer(peer)));
    }
}
