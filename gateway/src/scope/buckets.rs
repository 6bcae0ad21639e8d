//! Token buckets: how many writes and bytes a browser and a person may send. Time is an argument.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Limits;
use crate::metrics::Limited;

/// So many a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// At least 1.
    pub(crate) per_second: u64,
    /// At least 1.
    pub(crate) burst: u64,
}

/// Limits on writes and on their bytes; `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) writes: Option<Rate>,
    pub(crate) bytes: Option<Rate>,
}

/// One bucket. It starts full.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    /// Thousandths of what may be taken, at `filled`.
    held: u64,
    filled: Duration,
}

/// The buckets of one rate's two sides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buckets {
    writes: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// A write that was refused. Nothing was taken from any bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) why: Limited,
    /// When all that it lacks will be there.
    pub(crate) wait: Duration,
}

impl Bucket {
    fn new(rate: Rate, now: Duration) -> Self {
        Self {
            rate,
            held: rate.burst.saturating_mul(1_000),
            filled: now,
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled);
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        // Thousandths per microsecond: a rate of one a second needs a thousand of them for one.
        let gained = micros.saturating_mul(self.rate.per_second) / 1_000;
        if gained == 0 {
            return;
        }
        self.filled = now;
        let most = self.rate.burst.saturating_mul(1_000);
        self.held = self.held.saturating_add(gained).min(most);
    }

    /// How long until this much is there.
    fn wait(&self, amount: u64) -> Duration {
        let lacking = amount.saturating_mul(1_000).saturating_sub(self.held);
        Duration::from_micros(lacking.saturating_mul(1_000).div_ceil(self.rate.per_second))
    }

    fn is_full(&self) -> bool {
        self.held >= self.rate.burst.saturating_mul(1_000)
    }
}

impl Buckets {
    pub(crate) fn new(rates: Rates, now: Duration) -> Self {
        Self {
            writes: rates.writes.map(|rate| Bucket::new(rate, now)),
            bytes: rates.bytes.map(|rate| Bucket::new(rate, now)),
        }
    }

    fn wait(&mut self, now: Duration, bytes: u64) -> Duration {
        let sides = [(&mut self.writes, 1), (&mut self.bytes, bytes)];
        let waits = sides.into_iter().filter_map(|(bucket, amount)| {
            let bucket = bucket.as_mut()?;
            bucket.fill(now);
            Some(bucket.wait(amount))
        });
        waits.max().unwrap_or_default()
    }

    fn take(&mut self, bytes: u64) {
        for (bucket, amount) in [(&mut self.writes, 1), (&mut self.bytes, bytes)] {
            if let Some(bucket) = bucket {
                bucket.held = bucket.held.saturating_sub(amount.saturating_mul(1_000));
            }
        }
    }

    /// Takes one, or says how long until there is one.
    pub(crate) fn take_one(&mut self, now: Duration) -> Result<(), Duration> {
        let wait = self.wait(now, 0);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.take(0);
        Ok(())
    }

    fn is_full(&mut self, now: Duration) -> bool {
        [&mut self.writes, &mut self.bytes]
            .into_iter()
            .flatten()
            .all(|bucket| {
                bucket.fill(now);
                bucket.is_full()
            })
    }
}

/// What people have left, over all their sessions. It outlives their last session until it is full again, so that coming
/// back is no way around a limit.
#[derive(Debug)]
pub(crate) struct People {
    rates: Rates,
    left: Mutex<HashMap<Arc<str>, Buckets>>,
}

impl People {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            rates: limits.principal,
            left: Mutex::default(),
        }
    }

    /// Takes a write of these many bytes from a session, an alias and a person together, or from none of them.
    ///
    /// # Errors
    /// [`Over`], with the longest wait.
    pub(crate) fn charge(
        &self,
        who: &Arc<str>,
        now: Duration,
        bytes: usize,
        [session, alias]: [&mut Buckets; 2],
    ) -> Result<(), Over> {
        let bytes = bytes as u64;
        let mut people = self.lock();
        let fresh = || Buckets::new(self.rates, now);
        let person = people.entry(Arc::clone(who)).or_insert_with(fresh);
        let waits = [
            (Limited::SessionRate, session.wait(now, bytes)),
            (Limited::AliasRate, alias.wait(now, bytes)),
            (Limited::PrincipalRate, person.wait(now, bytes)),
        ];
        let longest = waits.into_iter().max_by_key(|(_, wait)| *wait);
        if let Some((why, wait)) = longest.filter(|(_, wait)| !wait.is_zero()) {
            return Err(Over { why, wait });
        }
        for buckets in [session, alias, person] {
            buckets.take(bytes);
        }
        Ok(())
    }

    /// Takes one write from a person who has no session here.
    ///
    /// # Errors
    /// [`Over`].
    pub(crate) fn charge_alone(&self, who: &Arc<str>, now: Duration) -> Result<(), Over> {
        let (mut none, mut nor) = (Buckets::default(), Buckets::default());
        self.charge(who, now, 0, [&mut none, &mut nor])
    }

    /// Forgets those who have all they can have.
    pub(crate) fn sweep(&self, now: Duration) {
        self.lock().retain(|_, buckets| !buckets.is_full(now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Buckets>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn rates(writes: u64, burst: u64, bytes: u64) -> Rates {
        let bytes = Rate {
            per_second: bytes,
            burst: bytes,
        };
        Rates {
            writes: Some(Rate {
                per_second: writes,
                burst,
            }),
            bytes: Some(bytes),
        }
    }

    fn people(principal: Rates) -> People {
        People {
            rates: principal,
            left: Mutex::default(),
        }
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let people = people(Rates::default());
        let who: Arc<str> = "ann".into();
        let mut session = Buckets::new(rates(10, 3, 1_000), ms(0));
        let mut alias = Buckets::default();
        let mut write = |now| people.charge(&who, ms(now), 1, [&mut session, &mut alias]);
        for _ in 0..3 {
            assert_eq!(write(0), Ok(()));
        }
        let over = write(0).unwrap_err();
        assert_eq!((over.why, over.wait), (Limited::SessionRate, ms(100)));
        assert_eq!(write(99).unwrap_err().wait, ms(1));
        assert_eq!(write(100), Ok(()));
        assert!(write(100).is_err());
    }

    #[test]
    fn what_is_refused_takes_nothing_from_anybody() {
        let people = people(rates(1, 1, 1_000));
        let who: Arc<str> = "ann".into();
        let mut session = Buckets::new(rates(1, 5, 1_000), ms(0));
        let mut alias = Buckets::new(rates(1, 5, 1_000), ms(0));
        let mut write = || people.charge(&who, ms(0), 10, [&mut session, &mut alias]);
        assert_eq!(write(), Ok(()));
        let before = write().unwrap_err();
        assert_eq!(before.why, Limited::PrincipalRate);
        assert_eq!(write().unwrap_err(), before);
        assert_eq!(session.writes.unwrap().held, 4_000);
        assert_eq!(alias.bytes.unwrap().held, 990_000);
    }

    #[test]
    fn the_longest_wait_is_the_one_reported() {
        let people = people(rates(10, 1, 100));
        let who: Arc<str> = "ann".into();
        let mut session = Buckets::new(rates(1, 1, 100), ms(0));
        let mut alias = Buckets::default();
        let mut write = || people.charge(&who, ms(0), 1, [&mut session, &mut alias]);
        write().unwrap();
        assert_eq!(
            write().unwrap_err(),
            Over {
                why: Limited::SessionRate,
                wait: ms(1_000)
            }
        );
    }

    #[test]
    fn two_sessions_of_a_person_share_what_he_has_and_coming_back_does_not_help() {
        let people = people(rates(1, 2, 1_000));
        let who: Arc<str> = "ann".into();
        assert_eq!(people.charge_alone(&who, ms(0)), Ok(()));
        assert_eq!(people.charge_alone(&who, ms(0)), Ok(()));
        people.sweep(ms(500));
        assert!(people.charge_alone(&who, ms(500)).is_err());
        people.sweep(ms(3_000));
        assert!(people.lock().is_empty());
    }
}
