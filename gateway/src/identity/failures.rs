//! Credentials that the control plane did not accept, and how many of them one person may still present.
//!
//! The control plane counts failures by the address they come from, and all people come to it from this gateway's. So
//! each has a small account of failures here, which lies well below what the gateway has there, and one credential is
//! asked about once and not over and over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use felix_model::TimeMs;

use super::credential::{Payer, Shown};
use super::refused::{Failed, Refused};

/// Attempts of one person that may fail at once or be on their way: the control plane forgives an address 200 failures,
/// and a browser that comes back with all its tabs has as many as this on their way.
const AT_ONCE: u64 = 32;
/// One more every so often: a fiftieth of what the control plane forgives an address.
const ONE_MORE_MS: u64 = 5_000;
/// How long a credential stays refused. Short, because its provider may be made known to the tenant meanwhile.
const REFUSED_MS: u64 = 5_000;
/// People with an account. One more has an account with all others for whom there was no room.
const ACCOUNTS_MAX: usize = 16_384;
/// Refused credentials that are known again; of more, the oldest is forgotten.
const REFUSED_MAX: usize = 4_096;

/// What failed lately.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    accounts: BTreeMap<Payer, Account>,
    refused: BTreeMap<[u8; 32], (TimeMs, Refused)>,
}

/// A person's failures. Whoever has none left to pay for has no account.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Thousandths of a second until all is forgiven.
    owed_ms: u64,
    at: TimeMs,
}

/// One attempt. It counts as a failure until it is said to be none, because whoever hangs up did not unmake it.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    failures: &'a Failures,
    payer: Payer,
    credential: [u8; 32],
}

impl Failures {
    /// Begins to ask the control plane about a credential.
    ///
    /// # Errors
    /// What it said of it a moment ago, or that this person has failed too often.
    pub(super) fn attempt(&self, shown: &Shown, at: TimeMs) -> Result<Attempt<'_>, Failed> {
        let credential = shown.token.digest();
        let mut book = self.lock();
        if let Some((_, refused)) = book
            .refused
            .get(&credential)
            .filter(|(until, _)| at < *until)
        {
            return Err(Failed::NotAccepted(refused.clone()));
        }
        let payer = book.account_of(shown.payer, at);
        let account = book.accounts.entry(payer);
        let account = account.or_insert(Account { owed_ms: 0, at });
        account.forgive(at);
        if account.owed_ms > (AT_ONCE - 1) * ONE_MORE_MS {
            return Err(Failed::Undecided("this person fails too often".into()));
        }
        account.owed_ms += ONE_MORE_MS;
        Ok(Attempt {
            failures: self,
            payer,
            credential,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// It was accepted, or nothing was said of it.
    pub(super) fn passed(self) {
        let mut book = self.failures.lock();
        if let Some(account) = book.accounts.get_mut(&self.payer) {
            account.owed_ms = account.owed_ms.saturating_sub(ONE_MORE_MS);
            if account.owed_ms == 0 {
                book.accounts.remove(&self.payer);
            }
        }
    }

    /// It was not accepted, and would not be if it were presented again.
    pub(super) fn refused(self, refused: &Refused, at: TimeMs) {
        let mut book = self.failures.lock();
        if book.refused.len() >= REFUSED_MAX {
            book.refused.retain(|_, (until, _)| at < *until);
        }
        if book.refused.len() >= REFUSED_MAX {
            let oldest = book.refused.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(oldest) = oldest.map(|(credential, _)| *credential) {
                book.refused.remove(&oldest);
            }
        }
        let until = TimeMs(at.0.saturating_add(REFUSED_MS));
        book.refused
            .insert(self.credential, (until, refused.clone()));
    }
}

impl Book {
    fn account_of(&mut self, payer: Payer, at: TimeMs) -> Payer {
        if self.accounts.len() < ACCOUNTS_MAX || self.accounts.contains_key(&payer) {
            return payer;
        }
        self.accounts.retain(|_, account| {
            account.forgive(at);
            account.owed_ms > 0
        });
        match self.accounts.len() < ACCOUNTS_MAX {
            true => payer,
            false => Payer::UNKNOWN,
        }
    }
}

impl Account {
    fn forgive(&mut self, at: TimeMs) {
        self.owed_ms = self.owed_ms.saturating_sub(at.0.saturating_sub(self.at.0));
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::super::secret::Secret;
    use super::*;

    fn shown(subject: &str, number: usize) -> Shown {
        Shown {
            token: Secret::new(format!("{subject} {number}")),
            payer: Payer::of(subject),
        }
    }

    fn no() -> Refused {
        Refused::Forbidden("no".into())
    }

    #[test]
    fn what_was_refused_is_refused_again_without_asking_for_a_while() {
        let failures = Failures::default();
        let token = shown("ann", 1);
        failures
            .attempt(&token, TimeMs(0))
            .unwrap()
            .refused(&no(), TimeMs(0));
        let again = failures.attempt(&token, TimeMs(REFUSED_MS - 1));
        assert_eq!(again.unwrap_err(), Failed::NotAccepted(no()));
        assert!(failures.attempt(&token, TimeMs(REFUSED_MS)).is_ok());
    }

    #[test]
    fn a_person_fails_so_often_and_then_seldom_and_nobody_else_pays() {
        let failures = Failures::default();
        let at = TimeMs(0);
        for number in 0..AT_ONCE as usize {
            let attempt = failures.attempt(&shown("eve", number), at).unwrap();
            // The others hang up.
            if number % 2 == 0 {
                attempt.refused(&no(), at);
            }
        }
        let next = |at| failures.attempt(&shown("eve", 1_000), TimeMs(at));
        assert!(matches!(next(0), Err(Failed::Undecided(_))));
        assert!(failures.attempt(&shown("ann", 0), at).is_ok());
        assert!(next(ONE_MORE_MS).is_ok());
        assert!(matches!(next(ONE_MORE_MS), Err(Failed::Undecided(_))));
    }

    #[test]
    fn whoever_succeeds_pays_nothing_and_leaves_nothing_behind() {
        let failures = Failures::default();
        for number in 0..4 * AT_ONCE as usize {
            let attempt = failures.attempt(&shown("ann", number), TimeMs(0));
            attempt.unwrap().passed();
        }
        assert!(failures.lock().accounts.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let failures = Failures::default();
        for number in 0..ACCOUNTS_MAX + 100 {
            let who = shown(&number.to_string(), 0);
            match failures.attempt(&who, TimeMs(0)) {
                Ok(attempt) => attempt.refused(&no(), TimeMs(0)),
                Err(failed) => assert!(matches!(failed, Failed::Undecided(_))),
            }
        }
        let book = failures.lock();
        assert_eq!(book.accounts.len(), ACCOUNTS_MAX + 1);
        assert_eq!(book.refused.len(), REFUSED_MAX);
    }
}
