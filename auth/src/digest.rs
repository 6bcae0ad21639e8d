//! Digests as text, and comparison of secrets.

use sha2::{Digest, Sha256};

/// The SHA-256 of the bytes in lowercase hexadecimal.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
