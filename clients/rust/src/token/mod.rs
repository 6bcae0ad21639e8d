//! Where tokens come from: fixed, or from a provider that is asked when one is due.
//!
//! The contract is the same in every one of our clients. The source is asked at each stream that is opened, not
//! once; it asks the provider on first use and again when two thirds of the token's life have passed; callers
//! share one fetch; a fetch that takes too long fails those who wait and is still used when it arrives; a token a
//! broker refused is dropped, and the request is repeated once, with a different token or not at all.

mod policy;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::timeout;

use self::policy::{Policy, Wanted};
use crate::flight::{Finally, Flight};
use crate::limits::TOKEN_TIMEOUT;

/// Why no token could be had. Trying again is the provider's business: the client does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFailed {
    /// The provider returned an error.
    #[error("the token provider failed: {0}")]
    Provider(Arc<str>),
    /// The provider returned an empty token.
    #[error("the token provider returned an empty token")]
    Empty,
    /// The provider has not answered yet. Its late answer will still be used.
    #[error("the token provider did not answer within {} s", TOKEN_TIMEOUT.as_secs())]
    TimedOut,
}

type Fetched = Result<Arc<str>, TokenFailed>;
type Fetch = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
type Provider = dyn Fn() -> Fetch + Send + Sync;

/// A fixed token or a provider of tokens. Cheap to clone; clones share what was fetched.
#[derive(Clone)]
pub struct TokenSource(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(Arc<str>),
    Refreshing(Arc<Refreshing>),
}

struct Refreshing {
    provider: Box<Provider>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    policy: Policy,
    /// The fetch that is under way. It belongs to a task of its own, so that no caller's cancellation ends it.
    flight: Option<Flight<Fetched>>,
}

impl TokenSource {
    /// One token for good.
    pub fn fixed(token: impl Into<Arc<str>>) -> Self {
        Self(Kind::Fixed(token.into()))
    }

    /// Asks `provider` whenever a token is due.
    pub fn provider<F, Fut, E>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: fmt::Display,
    {
        let provider = Box::new(move || -> Fetch {
            let fetch = provider();
            Box::pin(async move { fetch.await.map_err(|error| error.to_string()) })
        });
        Self(Kind::Refreshing(Arc::new(Refreshing {
            provider,
            state: Mutex::default(),
        })))
    }

    /// The token to open a stream with.
    ///
    /// # Errors
    /// [`TokenFailed`] when the provider has none and no held token is valid.
    pub async fn token(&self) -> Fetched {
        match &self.0 {
            Kind::Fixed(token) => Ok(Arc::clone(token)),
            Kind::Refreshing(refreshing) => refreshing.token().await,
        }
    }

    /// Whether there is one token for good.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.0, Kind::Fixed(_))
    }

    /// A broker refused `rejected`, or whoever holds the provider has a better one. Returns whether asking again may
    /// bring another.
    pub fn invalidate(&self, rejected: &str) -> bool {
        match &self.0 {
            Kind::Fixed(_) => false,
            Kind::Refreshing(refreshing) => {
                refreshing.lock().policy.invalidate(rejected);
                true
            }
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Fixed(_) => "TokenSource(fixed)",
            Kind::Refreshing(_) => "TokenSource(provider)",
        })
    }
}

impl Refreshing {
    async fn token(self: &Arc<Self>) -> Fetched {
        let (flight, fallback) = match self.join_flight() {
            Joined::Token(token) => return Ok(token),
            Joined::Flight { flight, fallback } => (flight, fallback),
        };
        let fetched = match timeout(TOKEN_TIMEOUT, flight.landed()).await {
            Ok(Some(fetched)) => fetched,
            Ok(None) => Err(TokenFailed::Provider("it panicked".into())),
            Err(_) => Err(TokenFailed::TimedOut),
        };
        match (fetched, fallback) {
            (Err(_), Some(held)) => Ok(held),
            (fetched, _) => fetched,
        }
    }

    fn join_flight(self: &Arc<Self>) -> Joined {
        let mut state = self.lock();
        let fallback = match state.policy.wanted(now_ms()) {
            Wanted::Use(token) => return Joined::Token(token),
            Wanted::Fetch { fallback } => fallback,
        };
        if let Some(flight) = &state.flight {
            return Joined::Flight {
                flight: flight.clone(),
                fallback,
            };
        }
        let flight = Flight::launch(Arc::clone(self).fetch());
        state.flight = Some(flight.clone());
        Joined::Flight { flight, fallback }
    }

    async fn fetch(self: Arc<Self>) -> Fetched {
        // A provider that panics must not leave a flight behind that never lands.
        let _landed = Finally(|| self.lock().flight = None);
        let fetched = match (self.provider)().await {
            Ok(token) if token.trim().is_empty() => Err(TokenFailed::Empty),
            Ok(token) => Ok(Arc::<str>::from(token)),
            Err(error) => Err(TokenFailed::Provider(error.into())),
        };
        let mut state = self.lock();
        match &fetched {
            Ok(token) => state.policy.fetched(Arc::clone(token), now_ms()),
            Err(_) => state.policy.failed(now_ms()),
        }
        drop(state);
        fetched
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Joined {
    Token(Arc<str>),
    Flight {
        flight: Flight<Fetched>,
        fallback: Option<Arc<str>>,
    },
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn callers_share_one_fetch() {
        let asked = Arc::new(AtomicUsize::new(0));
        let go = Arc::new(Notify::new());
        let source = TokenSource::provider({
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            move || {
                asked.fetch_add(1, Ordering::SeqCst);
                let go = Arc::clone(&go);
                async move {
                    go.notified().await;
                    Ok::<_, String>("t".to_owned())
                }
            }
        });
        let (first, second) = (source.clone(), source.clone());
        let first = tokio::spawn(async move { first.token().await });
        let second = tokio::spawn(async move { second.token().await });
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        assert_eq!(first.await.unwrap().as_deref(), Ok("t"));
        assert_eq!(second.await.unwrap().as_deref(), Ok("t"));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failing_or_empty_provider_is_a_typed_failure() {
        let failing = TokenSource::provider(|| async { Err::<String, _>("boom") });
        assert_eq!(
            failing.token().await,
            Err(TokenFailed::Provider("boom".into()))
        );
        let empty = TokenSource::provider(|| async { Ok::<_, String>(" ".to_owned()) });
        assert_eq!(empty.token().await, Err(TokenFailed::Empty));
    }

    #[tokio::test]
    async fn a_provider_that_panics_fails_its_callers_and_is_asked_again_next_time() {
        let source = TokenSource::provider(|| async {
            assert!(std::hint::black_box(false), "provider bug");
            Ok::<_, String>(String::new())
        });
        assert!(matches!(
            source.token().await,
            Err(TokenFailed::Provider(_))
        ));
        assert!(matches!(
            source.token().await,
            Err(TokenFailed::Provider(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_fails_those_who_wait_and_is_used_by_those_who_come_later() {
        let go = Arc::new(Notify::new());
        let source = TokenSource::provider({
            let go = Arc::clone(&go);
            move || {
                let go = Arc::clone(&go);
                async move {
                    go.notified().await;
                    Ok::<_, String>("late".to_owned())
                }
            }
        });
        assert_eq!(source.token().await, Err(TokenFailed::TimedOut));
        go.notify_one();
        assert_eq!(source.token().await.as_deref(), Ok("late"));
    }

    #[tokio::test]
    async fn a_refused_token_is_fetched_anew_and_a_fixed_one_is_not() {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = TokenSource::provider({
            let asked = Arc::clone(&asked);
            move || {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                async move { Ok::<_, String>(format!("t{number}")) }
            }
        });
        assert_eq!(source.token().await.as_deref(), Ok("t0"));
        assert_eq!(source.token().await.as_deref(), Ok("t0"));
        assert!(source.invalidate("t0"));
        assert_eq!(source.token().await.as_deref(), Ok("t1"));
        assert!(!TokenSource::fixed("x").invalidate("x"));
    }
}
