//! The UDP socket and what is asked of QUIC.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::CertificateRefused;
use crate::limits::{
    BLACK_HOLE_COOLDOWN, BROKER_STREAMS_MAX, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, IDLE_TIMEOUT,
    KEEP_ALIVE, SEND_WINDOW_BYTES, UDP_BUFFER_BYTES,
};

/// The sockets of one client: one per address family, made when first needed and shared by all connections.
#[derive(Debug)]
pub(crate) struct Transport {
    loopback: ClientConfig,
    network: ClientConfig,
    endpoints: Mutex<Endpoints>,
}

#[derive(Debug, Default)]
struct Endpoints {
    v4: Option<Endpoint>,
    v6: Option<Endpoint>,
}

/// Why a handshake did not happen. The text is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialFailed {
    #[error("no socket: {0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Connect(#[from] quinn::ConnectError),
    #[error("{0}")]
    Handshake(#[from] quinn::ConnectionError),
}

impl DialFailed {
    /// What the broker says of this client's certificate, if that is what it is about.
    pub(crate) fn certificate(&self) -> Option<CertificateRefused> {
        match self {
            Self::Handshake(closed) => judgement(closed),
            Self::Socket(_) | Self::Connect(_) => None,
        }
    }
}

/// Where alerts of TLS begin among the codes with which QUIC closes connections (RFC 9001, 4.8).
const ALERTS: u64 = 0x100;

/// What the end of a connection says of the certificate that this side presented. Only the peer's own closing counts: that
/// this side does not take the broker's certificate is another matter.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other end is about something else"
)]
pub(crate) fn judgement(closed: &quinn::ConnectionError) -> Option<CertificateRefused> {
    let code = match closed {
        quinn::ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        _ => return None,
    };
    alert(code.checked_sub(ALERTS)?)
}

/// The alerts of RFC 8446, 6.2, that judge a certificate.
fn alert(number: u64) -> Option<CertificateRefused> {
    let unfit = match number {
        116 => return Some(CertificateRefused::Missing),
        42 => "it is malformed, or its signature is wrong",
        43 => "it is of an unsupported kind",
        44 => "it was revoked",
        45 => "it has expired, or is not valid yet",
        46 => "it is not acceptable",
        48 => "no authority that the broker trusts has signed it",
        49 => "it may not be used here",
        // An authority of the same name signed it, or the key beside it is another one.
        51 => "its signature does not fit",
        _ => return None,
    };
    Some(CertificateRefused::Unfit(unfit))
}

impl Transport {
    pub(crate) fn new(crypto: QuicClientConfig, subscription_window: u32) -> Self {
        let crypto = Arc::new(crypto);
        let config = |loopback| {
            let mut config = ClientConfig::new(Arc::clone(&crypto) as _);
            config.transport_config(Arc::new(transport(loopback, subscription_window)));
            config
        };
        Self {
            loopback: config(true),
            network: config(false),
            endpoints: Mutex::default(),
        }
    }

    pub(crate) async fn dial(
        &self,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<Connection, DialFailed> {
        let loopback = remote.ip().to_canonical().is_loopback();
        let config = if loopback {
            &self.loopback
        } else {
            &self.network
        };
        let endpoint = self.endpoint(remote.is_ipv6())?;
        Ok(endpoint
            .connect_with(config.clone(), remote, server_name)?
            .await?)
    }

    /// Waits until every closed connection has been said goodbye to.
    pub(crate) async fn drained(&self) {
        let endpoints = {
            let endpoints = self
                .endpoints
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            [endpoints.v4.clone(), endpoints.v6.clone()]
        };
        for endpoint in endpoints.into_iter().flatten() {
            endpoint.wait_idle().await;
        }
    }

    fn endpoint(&self, v6: bool) -> io::Result<Endpoint> {
        let mut endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let endpoint = if v6 {
            &mut endpoints.v6
        } else {
            &mut endpoints.v4
        };
        if let Some(endpoint) = endpoint {
            return Ok(endpoint.clone());
        }
        let mut config = EndpointConfig::default();
        config
            .max_udp_payload_size(DATAGRAM_BYTES_MAX)
            .map_err(io::Error::other)?;
        let made = Endpoint::new(config, None, socket(v6)?, Arc::new(TokioRuntime))?;
        Ok(endpoint.insert(made).clone())
    }
}

fn socket(v6: bool) -> io::Result<UdpSocket> {
    let (domain, local) = if v6 {
        (Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
    } else {
        (Domain::IPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Larger buffers are worth having and never worth failing for.
    let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// On loopback every datagram of the largest size arrives, so it begins there; elsewhere discovery starts from what
/// every path carries.
fn transport(loopback: bool, subscription_window: u32) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_uni_streams(VarInt::from_u32(BROKER_STREAMS_MAX))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(subscription_window))
        // Each stream bounds itself. A bound over all of them would let subscriptions nobody reads take the
        // room of acknowledgements.
        .receive_window(VarInt::MAX)
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    config.initial_mtu(if loopback {
        DATAGRAM_BYTES_MAX
    } else {
        DATAGRAM_BYTES_MIN
    });
    // Also on loopback: loss can be taken for a path that carries only small datagrams, and it is discovery that
    // finds back from there.
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(DATAGRAM_BYTES_MAX)
        .black_hole_cooldown(BLACK_HOLE_COOLDOWN);
    config.mtu_discovery_config(Some(discovery));
    config
}
