//! Codes and refresh tokens: what was given out, and what is given for it. No clock and no randomness of its own.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::people::Person;
use super::request::Grantable;

/// Seconds a code is good for: a browser takes it where it belongs at once.
const CODE_SECONDS: u64 = 60;
/// Seconds a sign-in can be continued for without a use.
const REFRESH_SECONDS: u64 = 30 * 24 * 3600;
/// Codes that wait to be redeemed; one more drops the oldest.
const CODES_MAX: usize = 256;
/// Sign-ins that can be continued; one more drops the oldest.
const SIGN_INS_MAX: usize = 4096;
/// A code verifier has from 43 to 128 characters (RFC 7636 section 4.1).
const VERIFIER_CHARS: std::ops::RangeInclusive<usize> = 43..=128;

/// Why nothing is given for a code or a refresh token. All look alike to whoever asks (RFC 6749 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoTokens {
    #[error("the code is unknown, was used before, or waited longer than {CODE_SECONDS} s")]
    Code,
    #[error("the redirect address is not the one the code was sent to")]
    Redirect,
    #[error("the code verifier does not fit the challenge")]
    Verifier,
    #[error("the refresh token is unknown, was used before, or the person signed out")]
    Refresh,
}

/// A sign-in, as ID tokens tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedIn {
    pub(super) person: Person,
    pub(super) sign_in: String,
    pub(super) at: u64,
    pub(super) scope: String,
    /// Of the first ID token alone.
    pub(super) nonce: Option<String>,
}

#[derive(Debug)]
enum Given {
    Waiting(Box<Code>),
    /// What was given for it belongs to this sign-in.
    Spent(String),
}

#[derive(Debug)]
struct Code {
    grantable: Grantable,
    signed_in: SignedIn,
    until: u64,
}

#[derive(Debug)]
struct Continued {
    signed_in: SignedIn,
    /// Hash of the one refresh token that is good.
    digest: [u8; 32],
    until: u64,
}

/// Everything that was given out. Codes and tokens are kept as hashes.
#[derive(Debug, Default)]
pub(super) struct Desk {
    codes: BTreeMap<[u8; 32], Given>,
    codes_by_age: VecDeque<[u8; 32]>,
    sign_ins: BTreeMap<String, Continued>,
    sign_ins_by_age: VecDeque<String>,
}

impl Desk {
    /// Takes note of a code that is sent to a browser. `code` and `sign_in` are random.
    pub(super) fn give_code(
        &mut self,
        code: &str,
        sign_in: &str,
        person: Person,
        grantable: Grantable,
        now: u64,
    ) {
        while self.codes.len() >= CODES_MAX {
            match self.codes_by_age.pop_front() {
                Some(oldest) => self.codes.remove(&oldest),
                None => break,
            };
        }
        let signed_in = SignedIn {
            person,
            sign_in: sign_in.to_owned(),
            at: now,
            scope: grantable.scope.clone(),
            nonce: grantable.nonce.clone(),
        };
        let until = now.saturating_add(CODE_SECONDS);
        let digest = digest(code);
        self.codes_by_age.retain(|one| self.codes.contains_key(one));
        self.codes_by_age.push_back(digest);
        let code = Code {
            grantable,
            signed_in,
            until,
        };
        self.codes.insert(digest, Given::Waiting(Box::new(code)));
    }

    /// Redeems a code. It is spent afterwards, also when it was refused; and when it comes a second time, what was given
    /// for it is taken back (RFC 6749 section 4.1.2), because one of the two was stolen.
    pub(super) fn redeem(
        &mut self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
        refresh: &str,
        now: u64,
    ) -> Result<SignedIn, NoTokens> {
        let digest = digest(code);
        let held = match self.codes.remove(&digest) {
            Some(Given::Waiting(held)) => held,
            Some(Given::Spent(sign_in)) => {
                self.end(&sign_in);
                return Err(NoTokens::Code);
            }
            None => return Err(NoTokens::Code),
        };
        let spent = Given::Spent(held.signed_in.sign_in.clone());
        self.codes.insert(digest, spent);
        if now >= held.until {
            return Err(NoTokens::Code);
        }
        if held.grantable.redirect_uri != redirect_uri {
            return Err(NoTokens::Redirect);
        }
        if !fits(verifier, &held.grantable.challenge) {
            return Err(NoTokens::Verifier);
        }
        self.begin(held.signed_in.clone(), refresh, now);
        Ok(held.signed_in)
    }

    /// Continues a sign-in with the next refresh token. One that was used before ends the sign-in.
    pub(super) fn refresh(
        &mut self,
        presented: &str,
        next: &str,
        now: u64,
    ) -> Result<SignedIn, NoTokens> {
        let sign_in = presented.split_once('.').map_or("", |(sign_in, _)| sign_in);
        let held = self.sign_ins.get_mut(sign_in).ok_or(NoTokens::Refresh)?;
        if now >= held.until || !same(&held.digest, &digest(presented)) {
            self.end(sign_in);
            return Err(NoTokens::Refresh);
        }
        held.digest = digest(&refresh_token(sign_in, next));
        held.until = now.saturating_add(REFRESH_SECONDS);
        Ok(SignedIn {
            nonce: None,
            ..held.signed_in.clone()
        })
    }

    /// Ends a sign-in; nothing is given for its refresh token any more.
    pub(super) fn end(&mut self, sign_in: &str) {
        self.sign_ins.remove(sign_in);
    }

    fn begin(&mut self, signed_in: SignedIn, refresh: &str, now: u64) {
        while self.sign_ins.len() >= SIGN_INS_MAX {
            match self.sign_ins_by_age.pop_front() {
                Some(oldest) => self.sign_ins.remove(&oldest),
                None => break,
            };
        }
        self.sign_ins_by_age
            .retain(|one| self.sign_ins.contains_key(one));
        let sign_in = signed_in.sign_in.clone();
        let continued = Continued {
            digest: digest(&refresh_token(&sign_in, refresh)),
            until: now.saturating_add(REFRESH_SECONDS),
            signed_in,
        };
        self.sign_ins_by_age.push_back(sign_in.clone());
        self.sign_ins.insert(sign_in, continued);
    }
}

/// A refresh token: which sign-in it continues, and what only its holder knows.
pub(super) fn refresh_token(sign_in: &str, secret: &str) -> String {
    format!("{sign_in}.{secret}")
}

fn fits(verifier: &str, challenge: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    VERIFIER_CHARS.contains(&verifier.len())
        && verifier.bytes().all(allowed)
        && same(
            URL_SAFE_NO_PAD.encode(digest(verifier)).as_bytes(),
            challenge.as_bytes(),
        )
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares in a time that tells nothing of where the two differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0, |differ, (a, b)| differ | (a ^ b))
            == 0
}
