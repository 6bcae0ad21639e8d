//! When a held token is used, fetched anew or dropped. Pure: time is an argument.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::TOKEN_RETRY_MS;

/// What to do for somebody who needs a token now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This one is good.
    Use(Arc<str>),
    /// Ask the provider; should that fail, `fallback` may still be used.
    Fetch { fallback: Option<Arc<str>> },
}

/// The token in hand and what is known about it.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    token: Arc<str>,
    /// `None` for a token without `exp`: it is good until a broker refuses it.
    life: Option<Life>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    /// Unix milliseconds. Invariant: refresh_at ≤ expires_at.
    refresh_at: u64,
    expires_at: u64,
}

impl Policy {
    pub(crate) fn wanted(&self, now_ms: u64) -> Wanted {
        let Some(held) = &self.held else {
            return Wanted::Fetch { fallback: None };
        };
        match held.life {
            Some(life) if now_ms >= life.expires_at => Wanted::Fetch { fallback: None },
            Some(life) if now_ms >= life.refresh_at => Wanted::Fetch {
                fallback: Some(Arc::clone(&held.token)),
            },
            _ => Wanted::Use(Arc::clone(&held.token)),
        }
    }

    pub(crate) fn fetched(&mut self, token: Arc<str>, now_ms: u64) {
        let life = expiry_ms(&token).map(|expires_at| {
            let left = expires_at.saturating_sub(now_ms);
            Life {
                refresh_at: now_ms.saturating_add(left / 3 * 2),
                expires_at,
            }
        });
        self.held = Some(Held { token, life });
    }

    /// The provider failed: a token still valid is used a little longer before the provider is asked again.
    pub(crate) fn failed(&mut self, now_ms: u64) {
        if let Some(life) = self.held.as_mut().and_then(|held| held.life.as_mut()) {
            life.refresh_at = now_ms.saturating_add(TOKEN_RETRY_MS).min(life.expires_at);
        }
    }

    /// A broker refused exactly this token. A newer one that arrived meanwhile stays.
    pub(crate) fn invalidate(&mut self, rejected: &str) {
        if self
            .held
            .as_ref()
            .is_some_and(|held| &*held.token == rejected)
        {
            self.held = None;
        }
    }
}

/// The `exp` claim in Unix milliseconds, read without verifying anything: only the broker's opinion counts,
/// this merely tells when to ask for the next token.
fn expiry_ms(token: &str) -> Option<u64> {
    let mut parts = token.split('.');
    let claims = parts.nth(1)?;
    parts.next()?;
    let json = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&json).ok()?;
    claims.get("exp")?.as_u64()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(exp_s: u64) -> Arc<str> {
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"sub\":\"a\",\"exp\":{exp_s}}}"));
        format!("e30.{claims}.sig").into()
    }

    #[test]
    fn a_token_is_fetched_on_first_use_and_again_after_two_thirds_of_its_life() {
        let mut policy = Policy::default();
        assert_eq!(policy.wanted(0), Wanted::Fetch { fallback: None });
        let first = token(90);
        policy.fetched(Arc::clone(&first), 0);
        assert_eq!(policy.wanted(59_999), Wanted::Use(Arc::clone(&first)));
        assert_eq!(
            policy.wanted(60_000),
            Wanted::Fetch {
                fallback: Some(Arc::clone(&first))
            }
        );
        assert_eq!(policy.wanted(90_000), Wanted::Fetch { fallback: None });
    }

    #[test]
    fn a_token_without_expiry_is_kept_until_it_is_refused() {
        for opaque in ["opaque", "a.b", "a.%%%.c", "e30.e30.sig"] {
            let mut policy = Policy::default();
            policy.fetched(opaque.into(), 5);
            assert_eq!(policy.wanted(u64::MAX), Wanted::Use(opaque.into()));
            policy.invalidate(opaque);
            assert_eq!(policy.wanted(6), Wanted::Fetch { fallback: None });
        }
    }

    #[test]
    fn a_failed_fetch_leaves_the_valid_token_in_use_for_five_seconds() {
        let mut policy = Policy::default();
        let held = token(90);
        policy.fetched(Arc::clone(&held), 0);
        policy.failed(60_000);
        assert_eq!(policy.wanted(64_999), Wanted::Use(Arc::clone(&held)));
        assert_eq!(
            policy.wanted(65_000),
            Wanted::Fetch {
                fallback: Some(Arc::clone(&held))
            }
        );
        policy.failed(89_000);
        assert_eq!(policy.wanted(90_000), Wanted::Fetch { fallback: None });
    }

    #[test]
    fn invalidating_drops_exactly_the_refused_token() {
        let mut policy = Policy::default();
        policy.fetched("new".into(), 0);
        policy.invalidate("old");
        assert_eq!(policy.wanted(1), Wanted::Use("new".into()));
    }

    #[test]
    fn an_expiry_beyond_what_fits_is_no_expiry() {
        let mut policy = Policy::default();
        let far = token(u64::MAX);
        policy.fetched(Arc::clone(&far), 0);
        assert_eq!(policy.wanted(u64::MAX), Wanted::Use(far));
    }
}
