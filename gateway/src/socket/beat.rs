//! When a browser is pinged and when it is given up. Pure: time is an argument.

use std::time::Duration;

/// The heartbeat of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    /// Zero: no pings, and no end.
    interval: Duration,
    /// Zero: no end.
    timeout: Duration,
    /// When there was a sign of life last.
    heard: Duration,
    /// When the last ping went out, and which it was.
    pinged: Duration,
    count: u64,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// With this number as its payload.
    Ping(u64),
    Dead,
}

impl Beat {
    pub(super) const fn new(interval_s: u64, timeout_s: u64, now: Duration) -> Self {
        Self {
            interval: Duration::from_secs(interval_s),
            timeout: Duration::from_secs(timeout_s),
            heard: now,
            pinged: now,
            count: 0,
        }
    }

    /// Something was heard, or was taken that had to wait until there was room; or nothing could be heard, because this
    /// side did not listen. What is taken at once is no sign: the system takes it for a browser that is gone as well.
    pub(super) const fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// How long a ping took that is answered now; `None` for an answer to an earlier one.
    pub(super) fn answered(&self, payload: &[u8], now: Duration) -> Option<Duration> {
        let is_last = payload == self.count.to_le_bytes();
        is_last.then(|| now.saturating_sub(self.pinged))
    }

    /// How long a browser may take nothing of what waits for it.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!self.interval.is_zero() && !self.timeout.is_zero()).then_some(self.timeout)
    }

    pub(super) fn due(&mut self, now: Duration) -> Due {
        if self.interval.is_zero() {
            return Due::Nothing;
        }
        if !self.timeout.is_zero() && now.saturating_sub(self.heard) >= self.timeout {
            return Due::Dead;
        }
        if now.saturating_sub(self.pinged) < self.interval {
            return Due::Nothing;
        }
        self.pinged = now;
        self.count += 1;
        Due::Ping(self.count)
    }
}

/// What waits until a browser has taken what was sent before, and how it gets on. A message may be of any size, so that
/// what counts is that some of it goes, and not how long all of it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    /// `None`: without end.
    patience: Option<Duration>,
    /// Bytes that the system had taken when it was looked last, and when they became more.
    written: u64,
    moved: Duration,
    has_moved: bool,
}

impl Taking {
    /// Begins once the system has no more room: from then on it takes only what the browser makes room for.
    pub(super) const fn new(patience: Option<Duration>, written: u64, now: Duration) -> Self {
        Self {
            patience,
            written,
            moved: now,
            has_moved: false,
        }
    }

    /// Whether the browser has taken anything.
    pub(super) const fn has_moved(&mut self, written: u64, now: Duration) -> bool {
        if written != self.written {
            self.written = written;
            self.moved = now;
            self.has_moved = true;
        }
        self.has_moved
    }

    /// Whether it has taken nothing for too long.
    pub(super) fn is_stuck(&mut self, written: u64, now: Duration) -> bool {
        self.has_moved(written, now);
        let waited = now.saturating_sub(self.moved);
        self.patience.is_some_and(|patience| waited >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_browser_is_pinged_and_given_up_within_fifteen_seconds() {
        let mut beat = Beat::new(5, 14, s(0));
        assert_eq!(beat.due(s(4)), Due::Nothing);
        assert_eq!(beat.due(s(5)), Due::Ping(1));
        assert_eq!(beat.due(s(6)), Due::Nothing);
        assert_eq!(beat.due(s(10)), Due::Ping(2));
        assert_eq!(beat.due(s(14)), Due::Dead);
    }

    #[test]
    fn any_sign_of_life_counts_and_a_pong_measures_its_own_ping() {
        let mut beat = Beat::new(5, 14, s(0));
        assert_eq!(beat.due(s(5)), Due::Ping(1));
        beat.heard(s(6));
        assert_eq!(beat.answered(&1u64.to_le_bytes(), s(6)), Some(s(1)));
        assert_eq!(beat.answered(&0u64.to_le_bytes(), s(6)), None);
        assert_eq!(beat.due(s(19)), Due::Ping(2));
        assert_eq!(beat.due(s(20)), Due::Dead);
    }

    #[test]
    fn a_browser_that_takes_a_little_at_a_time_is_no_dead_one() {
        let mut beat = Beat::new(5, 14, s(0));
        let mut taking = Taking::new(beat.patience(), 100, s(4));
        for second in 1..10 {
            assert!(!taking.is_stuck(100 + second, s(4 + 13 * second)));
        }
        assert!(taking.has_moved(110, s(130)));
        beat.heard(s(130));
        assert_eq!(beat.due(s(131)), Due::Ping(1));
        assert_eq!(beat.due(s(144)), Due::Dead);
    }

    #[test]
    fn a_browser_that_takes_nothing_is_given_up_from_the_last_byte_on() {
        let mut taking = Taking::new(Some(s(14)), 100, s(4));
        assert!(!taking.is_stuck(100, s(17)));
        assert!(taking.is_stuck(100, s(18)));
        let mut taking = Taking::new(Some(s(14)), 100, s(4));
        assert!(!taking.is_stuck(101, s(17)));
        assert!(!taking.is_stuck(101, s(30)));
        assert!(taking.is_stuck(101, s(31)));
    }

    #[test]
    fn what_is_taken_only_into_the_systems_buffer_is_no_sign_of_life() {
        let mut taking = Taking::new(Some(s(14)), 100, s(0));
        assert!(!taking.has_moved(100, s(1)));
    }

    #[test]
    fn without_an_interval_silence_is_no_end() {
        assert_eq!(Beat::new(0, 14, s(0)).due(s(900)), Due::Nothing);
        let mut endless = Beat::new(5, 0, s(0));
        assert_eq!(endless.due(s(900)), Due::Ping(1));
        assert_eq!(endless.patience(), None);
        assert!(!Taking::new(None, 0, s(0)).is_stuck(0, s(900)));
    }
}
