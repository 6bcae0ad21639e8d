//! Tokens that were issued, for when the control plane is away: whoever reloads a page then is not locked out.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use felix_model::TimeMs;

use super::ask::Minted;

/// Tokens kept; of more, those that run out first are let go.
const KEPT_MAX: usize = 16_384;

type Key = [u8; 32];

/// What was issued for which credential and ask.
#[derive(Debug, Default)]
pub(super) struct Reuse(Mutex<BTreeMap<Key, Kept>>);

#[derive(Debug)]
struct Kept {
    minted: Minted,
    /// The earliest of everything it rests on.
    until: TimeMs,
}

impl Reuse {
    /// Remembers the newest token. `credential_until` is when what was presented for it runs out.
    pub(super) fn remember(
        &self,
        key: Key,
        minted: &Minted,
        credential_until: TimeMs,
        now: TimeMs,
    ) {
        let until = minted.expires_at.min(credential_until);
        let mut kept = self.lock();
        if kept.len() >= KEPT_MAX && !kept.contains_key(&key) {
            kept.retain(|_, one| now < one.until);
            let first = kept.iter().min_by_key(|(_, one)| one.until);
            if let (true, Some(first)) = (kept.len() >= KEPT_MAX, first.map(|(key, _)| *key)) {
                kept.remove(&first);
            }
        }
        let minted = minted.clone();
        kept.insert(key, Kept { minted, until });
    }

    /// What was issued before, if all it rests on still stands.
    pub(super) fn find(&self, key: &Key, now: TimeMs) -> Option<Minted> {
        let kept = self.lock();
        let found = kept.get(key).filter(|one| now < one.until)?;
        let mut minted = found.minted.clone();
        minted.expires_at = found.until;
        Some(minted)
    }

    /// It must not be used again: it was refused, or the person signed out.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::secret::Secret;
    use super::*;

    fn minted(until: u64) -> Minted {
        Minted {
            token: Secret::new("t"),
            principal: "p".into(),
            rights: Arc::default(),
            minted_at: TimeMs(0),
            expires_at: TimeMs(until),
        }
    }

    #[test]
    fn a_token_is_found_until_the_first_thing_it_rests_on_runs_out() {
        let reuse = Reuse::default();
        reuse.remember([1; 32], &minted(100), TimeMs(50), TimeMs(0));
        assert_eq!(
            reuse.find(&[1; 32], TimeMs(49)).unwrap().expires_at,
            TimeMs(50)
        );
        assert!(reuse.find(&[1; 32], TimeMs(50)).is_none());
        reuse.remember([1; 32], &minted(100), TimeMs(500), TimeMs(0));
        assert!(reuse.find(&[1; 32], TimeMs(99)).is_some());
        assert!(reuse.find(&[1; 32], TimeMs(100)).is_none());
        assert!(reuse.find(&[2; 32], TimeMs(0)).is_none());
        reuse.forget(&[1; 32]);
        assert!(reuse.find(&[1; 32], TimeMs(0)).is_none());
    }

    #[test]
    fn only_so_many_are_kept() {
        let reuse = Reuse::default();
        for number in 0..=KEPT_MAX as u64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            reuse.remember(key, &minted(1_000 + number), TimeMs(u64::MAX), TimeMs(0));
        }
        assert_eq!(reuse.lock().len(), KEPT_MAX);
        assert!(
            reuse.find(&[0; 32], TimeMs(0)).is_none(),
            "the first to run out is let go"
        );
    }
}
