//! The three random words of one sign-in: `state` ties the answer to this request, `nonce` ties
//! the ID token to it, and the PKCE verifier (RFC 7636, S256) ties the code to this process.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::exit::Failure;
use crate::secret::Secret;

/// Bytes of randomness in each word.
const WORD_BYTES: usize = 32;

/// The words of one sign-in.
#[derive(Clone, Debug)]
pub(super) struct Words {
    /// Comes back with the answer.
    pub state: Secret,
    /// Comes back in the ID token.
    pub nonce: Secret,
    /// Is shown with the code, by this process only.
    pub verifier: Secret,
}

impl Words {
    pub(super) fn random() -> Result<Self, Failure> {
        Ok(Self {
            state: word()?,
            nonce: word()?,
            verifier: word()?,
        })
    }

    /// What the provider is told of the verifier beforehand.
    pub(super) fn challenge(&self) -> String {
        challenge(self.verifier.reveal())
    }
}

fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

fn word() -> Result<Secret, Failure> {
    let mut bytes = [0; WORD_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("no randomness: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_the_one_of_rfc_7636_appendix_b() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    #[test]
    fn no_two_words_are_the_same() {
        let words = Words::random().expect("words");
        assert_eq!(words.state.reveal().len(), 43);
        assert!(words.state != words.nonce && words.nonce != words.verifier);
    }
}
