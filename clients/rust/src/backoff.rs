//! How long to wait before the next attempt. Pure: the caller brings randomness and does the waiting.

use std::time::Duration;

/// How a lost connection is sought again.
///
/// The n-th wait is drawn evenly from zero to `first * 2^n`, at most `longest` (full jitter): after a broker's
/// restart its clients come back spread out instead of together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconnectPolicy {
    /// Upper bound of the first wait.
    pub first: Duration,
    /// Upper bound of every wait.
    pub longest: Duration,
    /// Attempts end once this much time has passed since the first of them failed.
    pub give_up_after: Duration,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(2),
            give_up_after: Duration::from_secs(60),
        }
    }
}

impl ReconnectPolicy {
    /// Tries once and reports what happened.
    #[must_use]
    pub fn never() -> Self {
        Self {
            give_up_after: Duration::ZERO,
            ..Self::default()
        }
    }

    /// Sets the upper bound of the first wait.
    #[must_use]
    pub fn first(mut self, first: Duration) -> Self {
        self.first = first;
        self
    }

    /// Sets the upper bound of every wait.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Sets how long attempts go on.
    #[must_use]
    pub fn give_up_after(mut self, give_up_after: Duration) -> Self {
        self.give_up_after = give_up_after;
        self
    }
}

/// The waits of one series of attempts.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    policy: ReconnectPolicy,
    attempt: u32,
}

impl Backoff {
    pub(crate) fn new(policy: ReconnectPolicy) -> Self {
        Self { policy, attempt: 0 }
    }

    /// The next wait, or `None` when the series has gone on for long enough. `random` is any 64 bits;
    /// `at_least` is what the broker asked for.
    pub(crate) fn next(
        &mut self,
        elapsed: Duration,
        at_least: Duration,
        random: u64,
    ) -> Option<Duration> {
        if elapsed >= self.policy.give_up_after {
            return None;
        }
        let factor = 1u32.checked_shl(self.attempt).unwrap_or(u32::MAX);
        let bound = self
            .policy
            .first
            .saturating_mul(factor)
            .min(self.policy.longest);
        self.attempt = self.attempt.saturating_add(1);
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        let drawn = Duration::from_micros(random % micros.saturating_add(1).max(1));
        let left = self.policy.give_up_after - elapsed;
        Some(drawn.max(at_least).min(left))
    }
}

/// 64 bits nobody can foresee, so that clients started together do not wait alike.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_FLOOR: Duration = Duration::ZERO;

    fn policy() -> ReconnectPolicy {
        ReconnectPolicy::default()
            .first(Duration::from_millis(200))
            .longest(Duration::from_secs(2))
            .give_up_after(Duration::from_secs(10))
    }

    #[test]
    fn waits_double_up_to_the_longest_and_every_one_is_drawn_below_its_bound() {
        let mut backoff = Backoff::new(policy());
        for bound in [200u64, 400, 800, 1_600, 2_000, 2_000] {
            let mut peek = backoff.clone();
            let longest = peek.next(NO_FLOOR, NO_FLOOR, bound * 1_000);
            assert_eq!(longest, Some(Duration::from_millis(bound)));
            let wraps = backoff.next(NO_FLOOR, NO_FLOOR, bound * 1_000 + 1);
            assert_eq!(wraps, Some(Duration::ZERO));
        }
    }

    #[test]
    fn a_wait_the_broker_asked_for_is_kept() {
        let mut backoff = Backoff::new(policy());
        let wait = backoff.next(NO_FLOOR, Duration::from_millis(700), 0);
        assert_eq!(wait, Some(Duration::from_millis(700)));
    }

    #[test]
    fn attempts_end_when_the_time_is_over_and_the_last_wait_does_not_reach_past_it() {
        let mut backoff = Backoff::new(policy());
        let late = Duration::from_millis(9_990);
        assert_eq!(
            backoff.next(late, Duration::from_secs(3), 0),
            Some(Duration::from_millis(10))
        );
        assert_eq!(backoff.next(Duration::from_secs(10), NO_FLOOR, 0), None);
        assert_eq!(
            Backoff::new(ReconnectPolicy::never()).next(NO_FLOOR, NO_FLOOR, 7),
            None
        );
    }

    #[test]
    fn a_very_long_series_does_not_overflow() {
        let mut backoff = Backoff::new(policy());
        for _ in 0..100 {
            assert!(backoff.next(NO_FLOOR, NO_FLOOR, u64::MAX).is_some());
        }
    }
}
