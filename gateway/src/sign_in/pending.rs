//! Logins under way: what a browser that was sent to the provider is to come back with. Pure: time is an argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::provider::Words;
use crate::identity::Secret;

/// How long a person may take at the provider.
pub(super) const LOGIN_TIME: Duration = Duration::from_secs(600);
/// Logins under way from everywhere, and from one address; one more ends the oldest of that address, or of all.
const LOGINS_MAX: usize = 10_000;
const LOGINS_PER_ADDRESS_MAX: usize = 200;

/// One login under way.
#[derive(Debug)]
pub(super) struct Login {
    /// Hash of the cookie of the browser that began it.
    pub(super) browser: [u8; 32],
    pub(super) words: Words,
    /// Where the browser goes afterwards, on this origin.
    pub(super) return_to: String,
    pub(super) from: IpAddr,
    pub(super) began_at: Instant,
}

/// Why an answer is not taken. None of these ends a login, save the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotTaken {
    /// No such login, or no longer: it was finished, given up, or never begun here.
    #[error("there is no login under way that this answers")]
    Unknown,
    /// Another browser began it.
    #[error("this login was begun in another browser")]
    AnotherBrowser,
    /// The person took too long.
    #[error("the login took too long; begin again")]
    TooLate,
}

/// All of them, by the hash of their state.
#[derive(Debug, Default)]
pub(super) struct Pending(BTreeMap<[u8; 32], Login>);

impl Pending {
    pub(super) fn begin(&mut self, state: &Secret, login: Login) {
        let at = login.began_at;
        if self.0.len() >= LOGINS_MAX {
            self.0
                .retain(|_, one| at.saturating_duration_since(one.began_at) < LOGIN_TIME);
        }
        let from = login.from;
        let own = self.0.values().filter(|one| one.from == from).count();
        let oldest = |of_all: bool| {
            let among = self.0.iter().filter(|(_, one)| of_all || one.from == from);
            among
                .min_by_key(|(_, one)| one.began_at)
                .map(|(key, _)| *key)
        };
        let gone = if own >= LOGINS_PER_ADDRESS_MAX {
            oldest(false)
        } else if self.0.len() >= LOGINS_MAX {
            oldest(true)
        } else {
            None
        };
        if let Some(gone) = gone {
            self.0.remove(&gone);
        }
        self.0.insert(state.digest(), login);
    }

    /// Takes the login that a browser's answer belongs to. It can be taken once.
    pub(super) fn take(
        &mut self,
        state: &Secret,
        browser: Option<&Secret>,
        now: Instant,
    ) -> Result<Login, NotTaken> {
        let key = state.digest();
        let login = self.0.get(&key).ok_or(NotTaken::Unknown)?;
        // Hashes are compared, so the time this takes says nothing of the secrets.
        if browser.map(Secret::digest) != Some(login.browser) {
            return Err(NotTaken::AnotherBrowser);
        }
        let login = self.0.remove(&key).ok_or(NotTaken::Unknown)?;
        match now.saturating_duration_since(login.began_at) < LOGIN_TIME {
            true => Ok(login),
            false => Err(NotTaken::TooLate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(browser: &Secret, from: u8, began_at: Instant) -> Login {
        Login {
            browser: browser.digest(),
            words: Words {
                nonce: Secret::new("n"),
                verifier: Secret::new("v"),
                redirect_uri: String::new(),
            },
            return_to: "/".into(),
            from: IpAddr::from([127, 0, 0, from]),
            began_at,
        }
    }

    #[test]
    fn a_login_is_taken_once_by_the_browser_that_began_it() {
        let (mut pending, at) = (Pending::default(), Instant::now());
        let (state, browser) = (Secret::new("state"), Secret::new("browser"));
        pending.begin(&state, login(&browser, 1, at));
        let other = Secret::new("other");
        let refused = |taken: Result<Login, NotTaken>| taken.unwrap_err();
        assert_eq!(
            refused(pending.take(&other, Some(&browser), at)),
            NotTaken::Unknown
        );
        assert_eq!(
            refused(pending.take(&state, Some(&other), at)),
            NotTaken::AnotherBrowser
        );
        assert_eq!(
            refused(pending.take(&state, None, at)),
            NotTaken::AnotherBrowser
        );
        assert!(pending.take(&state, Some(&browser), at).is_ok());
        assert_eq!(
            refused(pending.take(&state, Some(&browser), at)),
            NotTaken::Unknown
        );
    }

    #[test]
    fn a_login_that_took_too_long_is_gone() {
        let (mut pending, at) = (Pending::default(), Instant::now());
        let (state, browser) = (Secret::new("state"), Secret::new("browser"));
        pending.begin(&state, login(&browser, 1, at));
        let late = pending.take(&state, Some(&browser), at + LOGIN_TIME);
        assert_eq!(late.unwrap_err(), NotTaken::TooLate);
    }

    #[test]
    fn one_address_that_begins_many_logins_loses_its_own_oldest() {
        let (mut pending, at) = (Pending::default(), Instant::now());
        let browser = Secret::new("browser");
        pending.begin(&Secret::new("mine"), login(&browser, 1, at));
        for number in 0..=LOGINS_PER_ADDRESS_MAX {
            let at = at + Duration::from_millis(number as u64);
            pending.begin(&Secret::new(number.to_string()), login(&browser, 2, at));
        }
        assert_eq!(pending.0.len(), LOGINS_PER_ADDRESS_MAX + 1);
        assert!(
            pending
                .take(&Secret::new("mine"), Some(&browser), at)
                .is_ok()
        );
        assert!(pending.take(&Secret::new("0"), Some(&browser), at).is_err());
        assert!(pending.take(&Secret::new("1"), Some(&browser), at).is_ok());
    }
}
