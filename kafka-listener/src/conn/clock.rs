//! When a connection has waited long enough for its client.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{
    AUTHENTICATION_TIMEOUT, FRAME_BYTES_PER_SECOND_MIN, FRAME_TIMEOUT, IDLE_TIMEOUT, LEFT_TIMEOUT,
    SEND_TIMEOUT,
};

/// How long a request of so many bytes may take to come in: what is slow has its time, and what stands still has not.
pub(super) fn frame_time(bytes: usize) -> Duration {
    FRAME_TIMEOUT + Duration::from_secs((bytes / FRAME_BYTES_PER_SECOND_MIN) as u64)
}

/// What happened when.
#[derive(Debug)]
pub(super) struct Clock {
    opened: Instant,
    /// Something came in or went out.
    active: Instant,
    /// Something went out, or began to wait for it.
    sent: Instant,
    /// Nothing is read before this: a quota is used up.
    pub(super) muted: Option<Instant>,
    /// The client ended its side.
    left: Option<Instant>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    /// A request that has begun, and by when it must be whole.
    pub(super) frame: Option<(Duration, Instant)>,
    /// That something is sent.
    pub(super) sends: bool,
    /// That requests are answered.
    pub(super) answers: bool,
    /// A login.
    pub(super) login: bool,
}

impl Clock {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            opened: now,
            active: now,
            sent: now,
            muted: None,
            left: None,
        }
    }

    pub(super) fn received(&mut self) {
        self.active = Instant::now();
    }

    /// Some of what waits was sent, or what waits is the first that does.
    pub(super) fn sent(&mut self) {
        self.active = Instant::now();
        self.sent = self.active;
    }

    pub(super) fn ended(&mut self) {
        self.left = Some(Instant::now());
    }

    /// When to wake next, and how long it was waited for then.
    pub(super) fn due(&self, awaited: Awaited) -> (Duration, Instant) {
        if let Some(until) = self.muted {
            return (Duration::ZERO, until);
        }
        if let Some(left) = self.left {
            return (LEFT_TIMEOUT, left + LEFT_TIMEOUT);
        }
        let idle = if awaited.answers {
            // Whatever runs has a deadline of its own.
            let long = 2 * IDLE_TIMEOUT;
            (long, Instant::now() + long)
        } else {
            (IDLE_TIMEOUT, self.active + IDLE_TIMEOUT)
        };
        let sends = awaited
            .sends
            .then(|| (SEND_TIMEOUT, self.sent + SEND_TIMEOUT));
        let login = awaited
            .login
            .then(|| (AUTHENTICATION_TIMEOUT, self.opened + AUTHENTICATION_TIMEOUT));
        [awaited.frame, sends, login]
            .into_iter()
            .flatten()
            .fold(
                idle,
                |first, next| if next.1 < first.1 { next } else { first },
            )
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const NOTHING: Awaited = Awaited {
        frame: None,
        sends: false,
        answers: false,
        login: false,
    };

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_gives_no_more_time_for_what_must_go_out_or_be_whole() {
        let mut clock = Clock::new();
        let begun = Instant::now();
        let awaited = Awaited {
            frame: Some((FRAME_TIMEOUT, begun + FRAME_TIMEOUT)),
            sends: true,
            ..NOTHING
        };
        for _ in 0..3 {
            advance(Duration::from_secs(1)).await;
            clock.received();
            assert_eq!(clock.due(awaited).1, begun + FRAME_TIMEOUT);
            let only_sends = Awaited {
                frame: None,
                ..awaited
            };
            assert_eq!(clock.due(only_sends).1, begun + SEND_TIMEOUT);
            assert_eq!(clock.due(NOTHING).1, Instant::now() + IDLE_TIMEOUT);
        }
        clock.sent();
        let only_sends = Awaited {
            frame: None,
            ..awaited
        };
        assert_eq!(clock.due(only_sends).1, Instant::now() + SEND_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_has_its_time_whatever_else_is_awaited() {
        let clock = Clock::new();
        let opened = Instant::now();
        advance(Duration::from_secs(5)).await;
        let awaited = Awaited {
            sends: true,
            answers: true,
            login: true,
            ..NOTHING
        };
        assert_eq!(clock.due(awaited).1, opened + AUTHENTICATION_TIMEOUT);
    }

    #[test]
    fn a_slow_link_brings_even_the_largest_request() {
        let largest = crate::limits::FRAME_BYTES_MAX;
        let rate = largest as u64 / frame_time(largest).as_secs();
        assert!((200_000..300_000).contains(&rate), "{rate} bytes a second");
        assert_eq!(frame_time(1000), FRAME_TIMEOUT);
    }
}
