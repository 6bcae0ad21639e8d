//! Bounds of this client, each with its reason.

use std::time::Duration;

/// Time to reach the control plane. It is near; a packet lost twice still fits.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for an answer. A create waits for one flush of the control plane's disk.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the control plane may hold a request for changes. Under the 25 s it allows.
pub const POLL_WAIT: Duration = Duration::from_secs(20);

/// Time for an answer to a held request: the wait itself and an ordinary call.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// First and longest pause between attempts while the control plane cannot be reached.
pub const RETRY_PAUSE: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(2000));

/// Items asked for per page; the API's default.
pub const PAGE_ITEMS: usize = 1000;

/// Bytes of an error body that are read. It is for people, and may come from something that is no control plane.
pub const ERROR_BYTES_MAX: usize = 64 * 1024;

/// How long an unused connection is kept. The control plane closes it after 30 s.
pub const IDLE_TIME: Duration = Duration::from_secs(20);
