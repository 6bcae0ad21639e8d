//! A token that is replaced while calls are made with it, and when it has to be.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::limits::{CREDENTIAL_RETRY, REFUSED_PAUSE, UNDATED_LIFE};

/// A token that is replaced while calls are made with it. Clones hold the same one.
#[derive(Clone)]
pub struct Held(Arc<Shared>);

struct Shared {
    token: watch::Sender<Arc<str>>,
    /// The last token with which a call was answered that it is not good.
    refused: watch::Sender<Option<Arc<str>>>,
}

/// Why a token should be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    /// Two thirds of its life have passed.
    Due,
    /// The control plane refused it: its key was retired, or it was revoked or ran out.
    Refused,
}

impl Held {
    /// Holds a first token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(Arc::new(Shared {
            token: watch::Sender::new(token.into()),
            refused: watch::Sender::new(None),
        }))
    }

    /// Holds another token from the next call on.
    pub fn replace(&self, token: &str) {
        self.0.token.send_replace(token.into());
    }

    /// The token held now.
    #[must_use]
    pub fn token(&self) -> Arc<str> {
        Arc::clone(&self.0.token.borrow())
    }

    /// Waits until another token than this one is held.
    pub async fn other_than(&self, token: &str) {
        let mut held = self.0.token.subscribe();
        // The sender lives in `self`, so that this cannot fail.
        let _ = held.wait_for(|held| **held != *token).await;
    }

    /// A call with this token was answered that it is not good.
    pub(crate) fn refused(&self, token: &Arc<str>) {
        self.0.refused.send_replace(Some(Arc::clone(token)));
    }

    /// Whether two thirds of the token's life have passed.
    pub(crate) fn is_due(&self) -> bool {
        due_in(&self.token()).is_zero()
    }

    /// Has the token replaced whenever two thirds of its life have passed, and at once when the control plane refuses
    /// it. `renew` says whether it held another token; if not, it is asked again in a while. One renewal runs at a
    /// time, and one that brings nothing but tokens that are refused again is asked for less and less often.
    ///
    /// It ends when it is dropped.
    pub async fn keep_fresh<F: Future<Output = bool>>(&self, mut renew: impl FnMut() -> F) {
        let mut pause = Duration::ZERO;
        let mut renewed: Option<Instant> = None;
        loop {
            let why = self.stale().await;
            if renewed.is_none_or(|at| at.elapsed() > REFUSED_PAUSE.1) {
                pause = Duration::ZERO;
            }
            if why == Stale::Refused {
                sleep(pause).await;
                pause = (pause * 2).clamp(REFUSED_PAUSE.0, REFUSED_PAUSE.1);
            }
            while !renew().await {
                sleep(CREDENTIAL_RETRY).await;
            }
            renewed = Some(Instant::now());
        }
    }

    async fn stale(&self) -> Stale {
        let token = self.token();
        let mut refused = self.0.refused.subscribe();
        tokio::select! {
            () = sleep(due_in(&token)) => Stale::Due,
            _ = refused.wait_for(|refused| refused.as_ref() == Some(&token)) => Stale::Refused,
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Held(..)")
    }
}

/// How long until two thirds of a token's life have passed. A token that does not say when it runs out is renewed
/// every minute.
fn due_in(token: &str) -> Duration {
    let Some((issued_at, expires_at)) = life(token) else {
        return UNDATED_LIFE;
    };
    let due = issued_at.saturating_add(expires_at.saturating_sub(issued_at) / 3 * 2);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Duration::from_secs(due).saturating_sub(since.unwrap_or_default())
}

/// `iat` and `exp` of a token, unverified, in seconds.
fn life(token: &str) -> Option<(u64, u64)> {
    let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&body).ok()?;
    let seconds = |claim| claims.get(claim)?.as_u64();
    Some((seconds("iat")?, seconds("exp")?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn token(issued_at: u64, expires_at: u64) -> String {
        let claims = format!("{{\"iat\":{issued_at},\"exp\":{expires_at}}}");
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims))
    }

    fn now() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap().as_secs()
    }

    #[test]
    fn a_token_is_due_when_two_thirds_of_its_life_have_passed() {
        let now = now();
        assert!(due_in(&token(now - 700, now + 200)).is_zero());
        let due = due_in(&token(now, now + 900));
        assert!(due > Duration::from_secs(590) && due <= Duration::from_secs(600));
        assert_eq!(due_in("opaque"), UNDATED_LIFE);
    }

    /// Keeps `held` fresh with tokens that are good for a day, until `times` renewals were made; says how long it took.
    async fn renewals(held: &Held, times: usize, refuse_each: bool) -> Duration {
        let began = Instant::now();
        let made = AtomicUsize::new(0);
        let (told, mut seen) = watch::channel(0);
        let keeping = held.keep_fresh(|| {
            let number = made.fetch_add(1, Ordering::SeqCst) as u64;
            held.replace(&token(now(), now() + 86_400 + number));
            if refuse_each {
                held.refused(&held.token());
            }
            told.send_replace(number as usize + 1);
            std::future::ready(true)
        });
        tokio::select! {
            () = keeping => {}
            _ = seen.wait_for(|made| *made == times) => {}
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_replaced_at_once() {
        let held = Held::new(&token(now(), now() + 86_400));
        held.refused(&held.token());
        assert_eq!(renewals(&held, 1, false).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_refusal_of_a_token_that_is_not_held_any_more_replaces_nothing() {
        let old = Held::new("old").token();
        let held = Held::new(&token(now(), now() + 86_400));
        held.refused(&old);
        let took = renewals(&held, 1, false).await;
        assert!(took > Duration::from_secs(50_000), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_are_all_refused_are_asked_for_less_and_less_often() {
        let held = Held::new(&token(now(), now() + 86_400));
        held.refused(&held.token());
        let took = renewals(&held, 10, true).await;
        assert!(took > Duration::from_secs(120), "{took:?}");
    }

    #[tokio::test]
    async fn whoever_waits_for_another_token_is_woken_by_it() {
        let held = Held::new("one");
        let waiting = held.clone();
        let woken = tokio::spawn(async move { waiting.other_than("one").await });
        held.replace("two");
        woken.await.unwrap();
        held.other_than("one").await;
    }
}
