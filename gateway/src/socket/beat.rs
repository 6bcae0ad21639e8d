//! When a browser is pinged and when it is given up. Pure: time is an argument.

use std::time::Duration;

/// The heartbeat of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    /// Zero: no pings, and no end.
    interval: Duration,
    /// Zero: no end.
    timeout: Duration,
    /// When anything was heard last.
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

    /// Something was heard, or could not be because this side did not listen.
    pub(super) const fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// How long a ping took that is answered now; `None` for an answer to an earlier one.
    pub(super) fn answered(&self, payload: &[u8], now: Duration) -> Option<Duration> {
        let is_last = payload == self.count.to_le_bytes();
        is_last.then(|| now.saturating_sub(self.pinged))
    }

    /// How long a message may take to be accepted.
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
    fn without_an_interval_silence_is_no_end() {
        assert_eq!(Beat::new(0, 14, s(0)).due(s(900)), Due::Nothing);
        let mut endless = Beat::new(5, 0, s(0));
        assert_eq!(endless.due(s(900)), Due::Ping(1));
        assert_eq!(endless.patience(), None);
    }
}
