//! Members over HTTP: one route, which takes a message and gives its answer.
//!
//! Who calls must know the cluster's token, or show a certificate that names the member he says he is, or both, as it is
//! configured. The token is looked at before anything else of a request is read.

use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};

mod client;
mod server;
mod tls;

pub use client::HttpTransport;
pub use server::{PeerListener, ServeFailed};
pub use tls::{TlsFiles, TlsRefused, certificate_name};

/// Where messages go.
pub(crate) const PATH: &str = "/raft/v1/message";

/// The member that calls, for who shows a certificate.
pub(crate) const MEMBER: &str = "x-felix-member";

/// Stands in a refusal after which the message was not looked at.
pub(crate) const UNREAD: &str = "x-felix-unread";

/// Bytes of a message, and of an answer. The largest holds one entry, which holds one append.
pub(crate) const MESSAGE_BYTES_MAX: usize = 34 * 1024 * 1024;

/// Messages that are worked on at once. A member sends a few to each other.
pub(crate) const MESSAGES_MAX: usize = 256;

/// How long a message may take to arrive and be answered.
pub(crate) const MESSAGE_TIME: Duration = Duration::from_secs(30);

/// How long a handshake may take.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Fewest characters of a token.
pub const TOKEN_CHARS_MIN: usize = 32;

/// The cluster's token: never shown, and only ever compared as a whole.
#[derive(Clone)]
pub struct PeerToken {
    header: String,
    digest: [u8; 32],
}

impl std::fmt::Debug for PeerToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("PeerToken(..)")
    }
}

impl PeerToken {
    /// Takes a token.
    ///
    /// # Errors
    /// How many characters it has, when these are too few.
    pub fn new(token: &str) -> Result<Self, usize> {
        let chars = token.chars().count();
        if chars < TOKEN_CHARS_MIN {
            return Err(chars);
        }
        let header = format!("Bearer {token}");
        let digest = Sha256::digest(header.as_bytes()).into();
        Ok(Self { header, digest })
    }

    pub(crate) fn header(&self) -> &str {
        &self.header
    }

    /// Compares in a time that tells nothing about where the two differ: all of both digests, always.
    pub(crate) fn is(&self, presented: &[u8]) -> bool {
        let presented = Sha256::digest(presented);
        let pairs = presented.iter().zip(self.digest.iter());
        pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// How members know each other.
#[derive(Clone, Debug, Default)]
pub struct PeerSecurity {
    /// What all of them know.
    pub token: Option<PeerToken>,
    /// Certificates: this member's, its key, and whoever signs the others'.
    pub tls: Option<TlsFiles>,
}

/// Files of PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) &'static str, pub(crate) PathBuf);

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_of_31_characters_is_refused() {
        assert_eq!(PeerToken::new(&TOKEN[1..]).err(), Some(31));
        assert!(PeerToken::new(TOKEN).is_ok());
    }

    #[test]
    fn only_the_very_token_is_the_token_and_it_is_never_shown() {
        let token = PeerToken::new(TOKEN).unwrap();
        assert!(token.is(format!("Bearer {TOKEN}").as_bytes()));
        assert!(!token.is(format!("Bearer {TOKEN}x").as_bytes()));
        assert!(!token.is(format!("bearer {TOKEN}").as_bytes()));
        assert!(!token.is(TOKEN.as_bytes()));
        assert!(!token.is(b""));
        assert_eq!(format!("{token:?}"), "PeerToken(..)");
    }
}
