//! Chooses the TLS configuration from the ClientHello.
//!
//! A QUIC stack fails the handshake when only one side lists protocols (RFC 9001, section 8.1), and clients of
//! this protocol come both ways: with `felix/1` and with no list at all. So the choice of a configuration
//! waits until the ClientHello is complete: it may arrive in several CRYPTO frames, since post-quantum key
//! shares do not fit one datagram.

use std::any::Any;
use std::sync::Arc;

use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};

use crate::limits::CLIENT_HELLO_BYTES_MAX;

/// The protocol clients may offer.
pub(crate) const CLIENT_PROTOCOL: &[u8] = b"felix/1";

/// Two complete TLS configurations, of which each connection uses one.
pub(crate) struct EitherAlpn {
    /// For clients that send no protocol list.
    pub(crate) without: Arc<dyn ServerConfig>,
    /// For clients that do; lists [`CLIENT_PROTOCOL`] and refuses everything else (alert 120).
    pub(crate) with: Arc<dyn ServerConfig>,
}

impl ServerConfig for EitherAlpn {
    fn initial_keys(
        &self,
        version: u32,
        destination: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.with.initial_keys(version, destination)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.with.retry_tag(version, original, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        Box::new(Undecided {
            config: self,
            version,
            params: *params,
            hello: Vec::new(),
            chosen: None,
        })
    }
}

/// A session that has not seen a whole ClientHello yet, and afterwards the one that was chosen.
struct Undecided {
    config: Arc<EitherAlpn>,
    version: u32,
    params: TransportParameters,
    hello: Vec<u8>,
    chosen: Option<Box<dyn Session>>,
}

impl Undecided {
    fn choose(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        let offers = match client_hello_offers_protocols(&self.hello) {
            Hello::Incomplete if self.hello.len() < CLIENT_HELLO_BYTES_MAX => return Ok(None),
            Hello::Incomplete => {
                return Err(TransportError {
                    code: TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                    frame: None,
                    reason: "the ClientHello is too long".into(),
                });
            }
            Hello::Protocols => true,
            // What is no ClientHello is for the TLS library to refuse, with the right alert.
            Hello::NoProtocols | Hello::Other => false,
        };
        let config = if offers {
            &self.config.with
        } else {
            &self.config.without
        };
        self.chosen = Some(Arc::clone(config).start_session(self.version, &self.params));
        Ok(Some(std::mem::take(&mut self.hello)))
    }
}

impl Session for Undecided {
    fn initial_keys(&self, destination: &ConnectionId, side: Side) -> Keys {
        match &self.chosen {
            Some(session) => session.initial_keys(destination, side),
            None => {
                // Both configurations derive the same keys: they depend on the id and the version only.
                let session =
                    Arc::clone(&self.config.without).start_session(self.version, &self.params);
                session.initial_keys(destination, side)
            }
        }
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.chosen.as_ref()?.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.chosen.as_ref()?.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.chosen.as_ref()?.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.chosen.as_ref()?.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.chosen
            .as_ref()
            .is_none_or(|session| session.is_handshaking())
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if let Some(session) = &mut self.chosen {
            return session.read_handshake(buf);
        }
        self.hello.extend_from_slice(buf);
        let Some(hello) = self.choose()? else {
            return Ok(false);
        };
        match &mut self.chosen {
            Some(session) => session.read_handshake(&hello),
            None => Ok(false),
        }
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.chosen
            .as_ref()
            .map_or(Ok(None), |session| session.transport_parameters())
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.chosen.as_mut()?.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.chosen.as_mut()?.next_1rtt_keys()
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.chosen
            .as_ref()
            .is_some_and(|session| session.is_valid_retry(original, header, payload))
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        match &self.chosen {
            Some(session) => session.export_keying_material(output, label, context),
            None => Err(ExportKeyingMaterialError),
        }
    }
}

/// What the bytes so far say about the client's protocol list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    Incomplete,
    Protocols,
    NoProtocols,
    /// Not a well-formed ClientHello.
    Other,
}

/// TLS extension number of the protocol list (RFC 7301).
const EXTENSION_ALPN: u16 = 16;

/// Walks a ClientHello (RFC 8446, section 4.1.2) to its extensions.
fn client_hello_offers_protocols(bytes: &[u8]) -> Hello {
    let mut outer = Cursor(bytes);
    let (Some(kind), Some(length)) = (outer.u8(), outer.u24()) else {
        return Hello::Incomplete;
    };
    if kind != 1 {
        return Hello::Other;
    }
    let Some(body) = outer.take(length) else {
        return Hello::Incomplete;
    };
    extensions_of(body).map_or(Hello::Other, |mut extensions| {
        while let Some(kind) = extensions.u16() {
            if extensions
                .u16()
                .and_then(|length| extensions.take(usize::from(length)))
                .is_none()
            {
                return Hello::Other;
            }
            if kind == EXTENSION_ALPN {
                return Hello::Protocols;
            }
        }
        Hello::NoProtocols
    })
}

fn extensions_of(body: &[u8]) -> Option<Cursor<'_>> {
    let mut body = Cursor(body);
    body.take(2 + 32)?;
    let session_id = usize::from(body.u8()?);
    body.take(session_id)?;
    let suites = usize::from(body.u16()?);
    body.take(suites)?;
    let compressions = usize::from(body.u8()?);
    body.take(compressions)?;
    let Some(length) = body.u16() else {
        return Some(Cursor(&[]));
    };
    Some(Cursor(body.take(usize::from(length))?))
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u24(&mut self) -> Option<usize> {
        let bytes = self.take(3)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let mut out = vec![1, 0];
        out.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn a_protocol_list_is_seen_wherever_it_stands() {
        let other = [0, 43, 0, 3, 2, 3, 4];
        let list = [
            0, 16, 0, 10, 0, 8, 7, b'f', b'e', b'l', b'i', b'x', b'/', b'1',
        ];
        assert_eq!(
            client_hello_offers_protocols(&hello(&other)),
            Hello::NoProtocols
        );
        assert_eq!(
            client_hello_offers_protocols(&hello(&[&other[..], &list[..]].concat())),
            Hello::Protocols
        );
        assert_eq!(
            client_hello_offers_protocols(&hello(&[])),
            Hello::NoProtocols
        );
    }

    #[test]
    fn every_prefix_of_a_hello_is_incomplete_and_no_prefix_panics() {
        let whole = hello(&[0, 43, 0, 3, 2, 3, 4]);
        for cut in 0..whole.len() {
            assert_eq!(
                client_hello_offers_protocols(&whole[..cut]),
                Hello::Incomplete,
                "{cut}"
            );
        }
    }

    #[test]
    fn damaged_lengths_are_left_to_the_tls_library() {
        let mut whole = hello(&[0, 43, 0, 3, 2, 3, 4]);
        let at = whole.len() - 4;
        whole[at] = 200;
        assert_eq!(client_hello_offers_protocols(&whole), Hello::Other);
        assert_eq!(client_hello_offers_protocols(&[2, 0, 0, 0]), Hello::Other);
    }
}
