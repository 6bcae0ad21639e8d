//! Counters: sums by key, beside the entries of a cache.

use bytes::Bytes;
use felix_wire::extension::requests::{CounterAdd, CounterGet};

use super::cache::Cache;
use crate::asks::Repeat;
use crate::client::Client;
use crate::error::{CacheFailed, CallFailed};

/// The counters of a cache. A counter and an entry of the same key are two things.
#[derive(Clone, Debug)]
pub struct Counter(Cache);

/// What an add that must count once came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Added {
    /// The sum.
    pub value: i64,
    /// It had been added before, and the sum is what the counter stands at now.
    pub repeated: bool,
}

impl Client {
    /// The counters of a cache.
    ///
    /// # Errors
    /// When no cache can have this name.
    pub fn counter(&self, cache: &str) -> Result<Counter, CallFailed> {
        self.cache(cache).map(Counter)
    }
}

impl Counter {
    /// Adds, and answers the new sum.
    ///
    /// # Errors
    /// [`CacheFailed::Call`]. With [`Retry::OutcomeUnknown`](crate::Retry::OutcomeUnknown) it may have been
    /// added, and is not repeated: [`add_once`](Self::add_once) is.
    pub async fn add(&self, key: &str, delta: i64) -> Result<i64, CacheFailed> {
        let ask = CounterAdd {
            key: key.into(),
            delta,
            once: None,
        };
        let value = self.0.ask(ask, Repeat::Unapplied).await?.value;
        value.ok_or_else(without_a_sum)
    }

    /// Adds if nothing was added under the same idempotency key, of 1 to 128 bytes, in the last ten minutes.
    /// Repeated until it is answered. Needs a broker with the `requests` extension.
    ///
    /// # Errors
    /// [`CacheFailed::Call`].
    pub async fn add_once(
        &self,
        key: &str,
        delta: i64,
        once: impl Into<Bytes>,
    ) -> Result<Added, CacheFailed> {
        let ask = CounterAdd {
            key: key.into(),
            delta,
            once: Some(once.into()),
        };
        let counted = self.0.ask(ask, Repeat::Always).await?;
        let value = counted.value.ok_or_else(without_a_sum)?;
        let repeated = counted.repeated;
        Ok(Added { value, repeated })
    }

    /// The sum; `None` when nothing was ever added.
    ///
    /// # Errors
    /// [`CacheFailed::Call`].
    pub async fn get(&self, key: &str) -> Result<Option<i64>, CacheFailed> {
        let ask = CounterGet { key: key.into() };
        Ok(self.0.ask(ask, Repeat::Always).await?.value)
    }
}

fn without_a_sum() -> CacheFailed {
    let what = "an add was answered without a sum".to_owned();
    CacheFailed::Call(CallFailed::Protocol { what })
}
