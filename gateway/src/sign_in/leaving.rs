//! Sign-outs that go on at the provider: what a browser that has signed out here is sent there with, and what it is to
//! come back with. Pure: time is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::identity::Secret;

/// How long a person may take at the provider.
pub(super) const LOGOUT_TIME: Duration = Duration::from_secs(300);
/// Sign-outs under way. Only who was signed in can begin one; one more ends the oldest.
const LOGOUTS_MAX: usize = 10_000;

/// One sign-out under way.
#[derive(Debug)]
struct Leave {
    began_at: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The sign-in is over here, and the provider has not been told.
    Here { hint: Secret },
    /// The browser was sent to the provider.
    There { state: [u8; 32], return_to: String },
}

/// All of them, by the hash of the cookie of their browser.
#[derive(Debug, Default)]
pub(super) struct Leaving(BTreeMap<[u8; 32], Leave>);

impl Leaving {
    /// Keeps the ID token of a sign-in that was ended, by which the provider knows whom to sign out.
    pub(super) fn begin(&mut self, browser: &Secret, hint: Secret, now: Instant) {
        if self.0.len() >= LOGOUTS_MAX {
            let stands = |one: &Leave| now.saturating_duration_since(one.began_at) < LOGOUT_TIME;
            self.0.retain(|_, one| stands(one));
            let oldest = self.0.iter().min_by_key(|(_, one)| one.began_at);
            if let (true, Some(oldest)) = (self.0.len() >= LOGOUTS_MAX, oldest.map(|(key, _)| *key))
            {
                self.0.remove(&oldest);
            }
        }
        let leave = Leave {
            began_at: now,
            stage: Stage::Here { hint },
        };
        self.0.insert(browser.digest(), leave);
    }

    /// The ID token for the provider, once; the browser is to come back with `state`.
    pub(super) fn send(
        &mut self,
        browser: &Secret,
        state: &Secret,
        return_to: &str,
        now: Instant,
    ) -> Option<Secret> {
        let key = browser.digest();
        let leave = self.0.remove(&key)?;
        let Stage::Here { hint } = leave.stage else {
            return None;
        };
        if now.saturating_duration_since(leave.began_at) >= LOGOUT_TIME {
            return None;
        }
        let stage = Stage::There {
            state: state.digest(),
            return_to: return_to.to_owned(),
        };
        self.0.insert(key, Leave { stage, ..leave });
        Some(hint)
    }

    /// Where a browser goes that comes back from the provider, once.
    pub(super) fn finish(
        &mut self,
        browser: &Secret,
        state: &Secret,
        now: Instant,
    ) -> Option<String> {
        let key = browser.digest();
        let leave = self.0.get(&key)?;
        let in_time = now.saturating_duration_since(leave.began_at) < LOGOUT_TIME;
        match &leave.stage {
            // Hashes are compared, so the time this takes says nothing of the secrets.
            Stage::There { state: sent, .. } if in_time && *sent == state.digest() => {}
            Stage::Here { .. } | Stage::There { .. } => return None,
        }
        match self.0.remove(&key)?.stage {
            Stage::There { return_to, .. } => Some(return_to),
            Stage::Here { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_out_goes_to_the_provider_once_and_comes_back_once_with_its_state() {
        let (mut leaving, at) = (Leaving::default(), Instant::now());
        let secret = |text: &str| Secret::new(text);
        let (browser, state) = (secret("browser"), secret("state"));
        assert!(leaving.send(&browser, &state, "/", at).is_none());
        leaving.begin(&browser, secret("hint"), at);
        assert!(leaving.finish(&browser, &state, at).is_none());
        assert!(leaving.send(&secret("another"), &state, "/", at).is_none());
        let hint = leaving.send(&browser, &state, "/board/7", at).unwrap();
        assert_eq!(hint.reveal(), "hint");
        assert!(leaving.finish(&browser, &secret("guessed"), at).is_none());
        assert!(leaving.finish(&secret("another"), &state, at).is_none());
        assert_eq!(
            leaving.finish(&browser, &state, at).as_deref(),
            Some("/board/7")
        );
        assert!(leaving.finish(&browser, &state, at).is_none());
        assert!(leaving.0.is_empty());
    }

    #[test]
    fn a_sign_out_that_took_too_long_is_gone_and_there_are_only_so_many() {
        let (mut leaving, at) = (Leaving::default(), Instant::now());
        let (browser, state) = (Secret::new("browser"), Secret::new("state"));
        leaving.begin(&browser, Secret::new("hint"), at);
        let late = at + LOGOUT_TIME;
        assert!(leaving.send(&browser, &state, "/", late).is_none());
        for number in 0..=LOGOUTS_MAX {
            let browser = Secret::new(number.to_string());
            let at = at + Duration::from_nanos(number as u64);
            leaving.begin(&browser, Secret::new("hint"), at);
        }
        assert_eq!(leaving.0.len(), LOGOUTS_MAX);
        let first = Secret::new("0");
        assert!(leaving.send(&first, &state, "/", at).is_none());
    }
}
