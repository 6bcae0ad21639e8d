//! Principals that several connections speak for: a fleet that shares a token costs its permissions once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use felix_auth::Principal;

use crate::limits::PRINCIPALS_SHARED_MAX;

/// Principals of tokens that verified, by what their tokens are remembered by, while somebody holds them. It spares
/// memory, never a verification: whoever asks has verified his token himself.
#[derive(Debug, Default)]
pub(crate) struct Principals {
    known: Mutex<HashMap<[u8; 32], Weak<Principal>>>,
}

impl Principals {
    /// The principal as others hold it already, if they do.
    pub(crate) fn share(&self, token: [u8; 32], principal: Principal) -> Arc<Principal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = known.get(&token).and_then(Weak::upgrade) {
            return held;
        }
        let principal = Arc::new(principal);
        if known.len() >= PRINCIPALS_SHARED_MAX {
            known.retain(|_, held| held.strong_count() > 0);
        }
        if known.len() < PRINCIPALS_SHARED_MAX {
            known.insert(token, Arc::downgrade(&principal));
        }
        principal
    }
}

#[cfg(test)]
mod tests {
    use felix_model::TimeMs;

    use super::*;

    fn principal(subject: &str) -> Principal {
        Principal::new(
            "dev".parse().unwrap(),
            subject,
            (TimeMs(0), TimeMs(1)),
            Arc::default(),
        )
    }

    #[test]
    fn one_token_is_one_principal_while_somebody_holds_it() {
        let principals = Principals::default();
        let first = principals.share([1; 32], principal("a"));
        let second = principals.share([1; 32], principal("a"));
        assert!(Arc::ptr_eq(&first, &second));
        let other = principals.share([2; 32], principal("b"));
        assert!(!Arc::ptr_eq(&first, &other));
        drop((first, second));
        assert_eq!(&*principals.share([1; 32], principal("c")).subject, "c");
    }
}
